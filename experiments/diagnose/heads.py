"""How each head spreads its weight: entropy, distance, reach, and how like a uniform or another head it is.

Of a row of weights, which of some variants need not sum to 1 nor be positive, the shares |w| / sum |w| count.
Rows that see fewer than `LEAST_KEYS` keys say nothing of how a head spreads, and are left out of that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

LEAST_KEYS = 8
REACHED = 0.9  # of the weight

Shares = Float[np.ndarray, "B N T S"]
Statistics = dict[str, list[float | None]]  # a number for each head; None: too few keys to tell


def statistics(layers: Mapping[int, Float[np.ndarray, "B N T S"]]) -> dict[int, Statistics]:
    """By layer, for each head, over all rows:

    `entropy` in nats; `evenness`, the entropy over that of a uniform row; `from_uniform` and `from_nearest`,
    the share of the weight that lies elsewhere than in a uniform head, and than in the head of the layer
    (`nearest`) that is most like it (total variation distance; None where there is one head); `distance`, the
    mean of |t - s| in tokens; `reach`, the least distance that holds 90% of the weight; `on_first`, the share
    on the first token. A uniform head weighs alike what any head of any layer sees.
    """
    shares = {layer: _shares(weights) for layer, weights in layers.items()}
    seen = np.asarray(np.stack([(own > 0).any(1) for own in shares.values()]).any(0))
    return {layer: _of_layer(own, seen) for layer, own in shares.items()}


def apart(one: Float[np.ndarray, "B T S"], other: Float[np.ndarray, "B T S"], rows: Any) -> float:
    """The share of the weight that lies elsewhere, in the mean of some rows."""
    return float(np.abs(one - other).sum(-1)[rows].mean() / 2)


def _shares(weights: Float[np.ndarray, "B N T S"]) -> Shares:
    size = np.abs(np.asarray(weights, np.float64))
    total = size.sum(-1, keepdims=True)
    return size / np.where(total > 0, total, 1)


def _of_layer(shares: Shares, seen: Bool[np.ndarray, "B T S"]) -> Statistics:
    count = seen.sum(-1)
    rows = count >= LEAST_KEYS
    uniform = seen / np.maximum(count, 1)[..., None]
    found: list[dict[str, float | None]] = []
    for head, own in enumerate(shares.swapaxes(0, 1)):
        entropy = -np.where(own > 0, own * np.log(np.where(own > 0, own, 1)), 0).sum(-1)
        told: dict[str, float | None] = {"entropy": float(entropy[count > 0].mean()) if count.any() else None}
        told |= dict.fromkeys(("evenness", "from_uniform"))
        if rows.any():
            told["evenness"] = float((entropy[rows] / np.log(count[rows])).mean())
            told["from_uniform"] = apart(own, uniform, rows)
        found.append(told | _nearest(head, shares, rows) | _lengths(own))
    return {name: [told[name] for told in found] for name in found[0]}


def _nearest(head: int, shares: Shares, rows: Bool[np.ndarray, "B T"]) -> dict[str, float | None]:
    others = [n for n in range(shares.shape[1]) if n != head] if rows.any() else []
    found = [(apart(shares[:, head], shares[:, n], rows), n) for n in others]
    value, nearest = min(found, default=(None, None))
    return {"from_nearest": value, "nearest": nearest}


def _lengths(own: Float[np.ndarray, "B T S"]) -> dict[str, float | None]:
    total = own.sum()
    if not total:
        return dict.fromkeys(("distance", "reach", "on_first"))
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


def values_of(name: str, layers: Sequence[Statistics]) -> list[float]:
    """A number of all heads of all layers, those that are known."""
    return [value for layer in layers for value in layer[name] if value is not None]
