"""How each head spreads its weight: entropy, distance, reach, and how like a uniform or another head it is.

Of a row of weights, which of some variants need not sum to 1 nor be positive, the shares |w| / sum |w| count.
Rows that see fewer than `LEAST_KEYS` keys say nothing of how a head spreads, and are left out of that.
"""

import numpy as np
from jaxtyping import Bool, Float

from experiments.diagnoses import LEAST_KEYS, REACHED, STATISTICS

Shares = Float[np.ndarray, "B N T S"]
Statistics = dict[str, list[float | None]]  # a number for each head; None: it cannot be told


def statistics(
    weights: Float[np.ndarray, "B N T S"], uniform: Float[np.ndarray, "B N T S"] | None = None
) -> Statistics:
    """Of a layer, for each head, over all rows:

    `entropy` in nats; `evenness`, the entropy over that of the head's uniform row; `from_uniform` and
    `from_nearest`, the share of the weight that lies elsewhere than it would in a uniform head, and than in
    the head of the layer (`nearest`) that is most like it (total variation distance; None where there is one
    head); `distance`, the mean of |t - s| in tokens; `reach`, the least distance that holds 90% of the
    weight; `on_first`, the share on the first token. All are None of a head whose weights are not finite.

    `uniform` are the weights if each head weighed alike all that it sees. None: what it gives any weight to.
    """
    shares = _shares(weights)
    even = _shares(weights != 0 if uniform is None else uniform)
    rows = (even > 0).sum(-1) >= LEAST_KEYS
    found = [_of_head(head, shares, even[:, head], rows[:, head]) for head in range(shares.shape[1])]
    return {name: [told[name] for told in found] for name in STATISTICS}


def apart(one: Float[np.ndarray, "B T S"], other: Float[np.ndarray, "B T S"], rows: Bool[np.ndarray, "B T"]):
    """The share of the weight that lies elsewhere, in the mean of some rows; None of none."""
    return float(np.abs(one - other).sum(-1)[rows].mean() / 2) if rows.any() else None


def _shares(weights: Float[np.ndarray, "B N T S"] | Bool[np.ndarray, "B N T S"]) -> Shares:
    size = np.abs(np.asarray(weights, np.float64))
    total = size.sum(-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def _of_head(
    head: int, shares: Shares, even: Float[np.ndarray, "B T S"], rows: Bool[np.ndarray, "B T"]
) -> dict[str, float | None]:
    own = shares[:, head]
    told: dict[str, float | None] = dict.fromkeys(STATISTICS)
    if not np.isfinite(own).all():
        return told
    entropy = _entropy(own)
    sees = own.sum(-1) > 0
    told["entropy"] = float(entropy[sees].mean()) if sees.any() else 0.0
    told["from_uniform"] = apart(own, even, rows)
    told["evenness"] = float((entropy[rows] / _entropy(even)[rows]).mean()) if rows.any() else None
    others = [(apart(own, shares[:, n], rows), n) for n in range(shares.shape[1]) if n != head]
    known = [(value, n) for value, n in others if value is not None and np.isfinite(value)]
    told["from_nearest"], told["nearest"] = min(known, default=(None, None))
    return told | _lengths(own)


def _entropy(shares: Float[np.ndarray, "B T S"]) -> Float[np.ndarray, "B T"]:
    return -np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0).sum(-1)


def _lengths(own: Float[np.ndarray, "B T S"]) -> dict[str, float | None]:
    total = own.sum()
    if not total:
        return {}
    away = np.abs(np.arange(own.shape[1])[:, None] - np.arange(own.shape[2]))
    at = np.bincount(away.ravel(), own.sum(0).ravel()) / total
    reach = int(np.searchsorted(np.cumsum(at), REACHED))
    on_first = float(own[..., 0].sum() / total)
    return {"distance": float(at @ np.arange(at.size)), "reach": float(reach), "on_first": on_first}


def cosines(one: Float[np.ndarray, "heads H"], other: Float[np.ndarray, "heads H"]) -> list[float]:
    """Of two tokens' vectors, for each head; 0 where one has no length."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    length = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return ((one * other).sum(-1) / np.where(length > 0, length, 1)).tolist()
