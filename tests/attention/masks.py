"""The kinds of mask the laws go through, and what a mask means, said again in NumPy."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from attention import Attention, Mask

# A mask's array -> the capability that a variant needs to honour it. Padding is honoured by all.
CAPABILITY = {
    "query_segments": "segments",
    "key_segments": "segments",
    "query_positions": "explicit_positions",
    "key_positions": "explicit_positions",
}


def plain(batch: int, query_length: int, key_length: int) -> Mask:
    """No arrays."""
    return Mask()


def appended(batch: int, query_length: int, key_length: int) -> Mask:
    """Padding at the end, another length in each row of the batch."""
    return Mask(query_valid=_prefix(batch, query_length), key_valid=_prefix(batch, key_length))


def holes(batch: int, query_length: int, key_length: int) -> Mask:
    """Padding anywhere, different for queries and keys unless they are the same tokens."""
    query_valid = _random(0, batch, query_length, 2) > 0
    key_valid = query_valid if query_length == key_length else _random(1, batch, key_length, 2) > 0
    return Mask(query_valid=jnp.asarray(query_valid), key_valid=jnp.asarray(key_valid))


def one_sided(batch: int, query_length: int, key_length: int) -> Mask:
    """Padding anywhere, different for queries and keys though they may be the same tokens."""
    query_valid, key_valid = (_random(6 + i, batch, (query_length, key_length)[i], 3) > 0 for i in (0, 1))
    return Mask(query_valid=jnp.asarray(query_valid), key_valid=jnp.asarray(key_valid))


def packed(batch: int, query_length: int, key_length: int) -> Mask:
    """Three documents one after the other, with padding behind."""
    query, key = (np.minimum(np.arange(x) * 4 // max(x, 1), 2) for x in (query_length, key_length))
    padding = appended(batch, query_length, key_length)
    return Mask(
        query_valid=padding.query_valid, key_valid=padding.key_valid,
        query_segments=jnp.asarray(query[None]), key_segments=jnp.asarray(key[None]),
    )  # fmt: skip


def mixed(batch: int, query_length: int, key_length: int) -> Mask:
    """Segments in no order, some numbers negative, some of which nobody else has."""
    padding = holes(batch, query_length, key_length)
    query = _random(2, batch, query_length, 4) - 1
    key = query if query_length == key_length else _random(3, batch, key_length, 4) - 1
    return Mask(
        query_valid=padding.query_valid, key_valid=padding.key_valid,
        query_segments=jnp.asarray(query), key_segments=jnp.asarray(key),
    )  # fmt: skip


def placed(batch: int, query_length: int, key_length: int) -> Mask:
    """Positions in no order, with gaps and repeats, before zero too; segments and padding as well."""
    query = _random(4, batch, query_length, 2 * query_length) - 5
    key = query if query_length == key_length else _random(5, batch, key_length, 2 * key_length) - 5
    mask = mixed(batch, query_length, key_length)
    return dataclasses.replace(mask, query_positions=jnp.asarray(query), key_positions=jnp.asarray(key))


def shifted(batch: int, query_length: int, key_length: int) -> Mask:
    """The default order where float32 cannot tell neighbours apart; queries three ahead of the keys."""
    query, key = (np.arange(x, dtype=np.int32)[None] + 2**29 for x in (query_length, key_length))
    query = query + (key_length - query_length + 3)
    return Mask(query_positions=jnp.asarray(query), key_positions=jnp.asarray(key))


MASKS: dict[str, Callable[[int, int, int], Mask]] = {
    kind.__name__: kind for kind in (plain, appended, holes, one_sided, packed, mixed, placed, shifted)
}


def build(kind: str, causal: bool, batch: int, query_length: int, key_length: int) -> Mask:
    """The mask of a kind, causal or not."""
    return dataclasses.replace(MASKS[kind](batch, query_length, key_length), causal=causal)


def honours(variant: Attention, mask: Mask) -> bool:
    """Whether the variant's capabilities claim all that the mask has."""
    can = variant.capabilities
    fields = all(getattr(can, CAPABILITY[field]) for field in mask.given() if field in CAPABILITY)
    return fields and (can.causal if mask.causal else can.two_sided)


def visible(mask: Mask, batch: int, query_length: int, key_length: int) -> np.ndarray:
    """What Mask's docstring says, pair by pair: B T S, True = may attend."""
    seen = np.zeros((batch, query_length, key_length), bool)
    array = {
        field: np.broadcast_to(getattr(mask, field), _shape(field, seen.shape)) for field in mask.given()
    }
    query_position, key_position = positions(mask, batch, query_length, key_length)
    for b, t, s in np.ndindex(seen.shape):
        seen[b, t, s] = (
            (not mask.causal or key_position[b, s] <= query_position[b, t])
            and (mask.query_valid is None or array["query_valid"][b, t])
            and (mask.key_valid is None or array["key_valid"][b, s])
            and (mask.query_segments is None or array["query_segments"][b, t] == array["key_segments"][b, s])
        )
    return seen


def positions(mask: Mask, batch: int, query_length: int, key_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Where queries (B T) and keys (B S) stand."""
    query, key = mask.query_positions, mask.key_positions
    query = np.arange(query_length) + key_length - query_length if query is None else np.asarray(query)
    key = np.arange(key_length) if key is None else np.asarray(key)
    return np.broadcast_to(query, (batch, query_length)), np.broadcast_to(key, (batch, key_length))


def _shape(field: str, shape: tuple[int, ...]) -> tuple[int, int]:
    batch, query_length, key_length = shape
    return batch, query_length if field.startswith("query") else key_length


def _prefix(batch: int, length: int):
    sizes = np.maximum(length - 5 - 7 * np.arange(batch), 1)
    return jnp.asarray(np.arange(length) < sizes[:, None])


def _random(seed: int, batch: int, length: int, below: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, below, (batch, length))
