"""Refusals of wrong use: each line names the argument, its value and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from attention.mask import Mask
from attention.visibility import FAR

if TYPE_CHECKING:
    from attention.interface import Attention

# As Python floats: ints of any size compare with them.
_LEAST, _MOST = float(jnp.finfo(jnp.float32).tiny), float(jnp.finfo(jnp.float32).max)
_MOST_CAP = 1e30  # logits over a greater one are too near 0 for float32, and would come back as 0
_CAPABILITY_OF_FIELD = {
    "query_segments": "segments",
    "key_segments": "segments",
    "query_positions": "explicit_positions",
    "key_positions": "explicit_positions",
}


def check_field(named: Any, field: str, accepted: str, holds: bool) -> None:
    """Raises ValueError unless `holds`. `named`: a variant, or whatever else has a name and the field."""
    value = getattr(named, field)
    if not holds:
        # NumPy's, but for its float64, no JSON record can hold.
        foreign = isinstance(value, np.generic) and not isinstance(value, float)
        kind = f", of Python's own, not numpy.{type(value).__name__}" if foreign else ""
        raise ValueError(f"{named.name}: {field}={value!r} is not accepted; {field} must be {accepted}{kind}")


def check_count(named: Any, field: str, *, least: int = 1, most: int = FAR, optional: bool = False) -> None:
    """The field must be an int from `least` to `most`, or None if `optional`.

    Up to FAR, what counts tokens adds up with a position within int32.
    """
    value = getattr(named, field)
    accepted = f"an int of at least {least} and at most {most}" + (" or None" if optional else "")
    holds = is_int(value, least) and value <= most
    check_field(named, field, accepted, holds or (optional and value is None))


def check_positive(named: Any, field: str, *, most: float = _MOST, optional: bool = False) -> None:
    """The field must be a number above 0 that float32 can hold, or None if `optional`."""
    value = getattr(named, field)
    accepted = f"a number above 0 that float32 can hold, at most {most:.2g}"
    accepted += " or None" if optional else ""
    holds = is_real(value) and _LEAST <= value <= most
    check_field(named, field, accepted, holds or (optional and value is None))


def check_choice(named: Any, field: str, choices: Sequence[str]) -> None:
    """The field must be one of these strings."""
    value = getattr(named, field)
    accepted = " or ".join(repr(choice) for choice in choices)
    check_field(named, field, accepted, isinstance(value, str) and value in choices)


def check_logit_fields(variant: Any) -> None:
    """The fields by which q.k becomes a logit: scale, temperature, softcap."""
    check_positive(variant, "scale", optional=True)
    check_positive(variant, "temperature")
    check_positive(variant, "softcap", most=_MOST_CAP, optional=True)
    # What multiplies q.k, 1/sqrt(H) being 1 at most; beyond float32 it would be inf, and inf * 0 is NaN.
    factor = (1 if variant.scale is None else variant.scale) / variant.temperature
    if not _LEAST <= factor <= _MOST:
        raise ValueError(
            f"{variant.name}: scale={variant.scale!r} / temperature={variant.temperature!r} is {factor:.3g}; "
            "it must be a number above 0 that float32 can hold"
        )


def check_softmax_fields(variant: Any) -> None:
    """The fields that softmax variants share: those of logits, and dropout_rate."""
    check_logit_fields(variant)
    rate = variant.dropout_rate
    check_field(variant, "dropout_rate", "a number in [0, 1)", is_real(rate) and 0 <= rate < 1)


def check_block_fields(variant: Attention) -> None:
    """query_block and key_block: an int of at least 1, or None for the platform's default."""
    check_count(variant, "query_block", optional=True)
    check_count(variant, "key_block", optional=True)


def is_int(value: Any, least: float = -math.inf) -> bool:
    """Whether it is an int of at least `least`; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_call(variant: Attention, query, key, value, mask: Mask, *, params, rng, gates) -> None:
    """Everything about one call that can be told from shapes, dtypes and what is given.

    Raises TypeError for what is no array, Mask, dict or rng, ValueError for arguments that do not fit each
    other and NotImplementedError for those that do but that the variant cannot honour.
    """
    if not isinstance(mask, Mask):
        given = f"an array of shape {mask.shape}" if hasattr(mask, "shape") else repr(mask)
        raise TypeError(f"mask must be an attention.Mask, as Mask(causal=True, key_valid=...), not {given}")
    if not isinstance(mask.causal, bool):
        raise TypeError(f"mask.causal must be True or False, not {type(mask.causal).__name__}")
    _check_shapes(variant, query, key, value)
    _check_supported(variant, query, key, value, mask)
    _check_mask_arrays(mask, query.shape[0], query.shape[1], value.shape[1])
    _check_gates(variant, query, gates)
    _check_params(variant, query, value, params)
    if rng is None and getattr(variant, "dropout_rate", 0) > 0:
        raise ValueError(f"{variant.name}: dropout_rate={variant.dropout_rate} needs rng, a jax.random.key")  # pyright: ignore[reportAttributeAccessIssue]
    check_rng(rng)


def check_tokens(**arrays: Any) -> None:
    """Each is what query, key and value have to be."""
    for name, array in arrays.items():
        _check_array(name, array)
        if array.ndim != 4:
            raise ValueError(
                f"{name} must have 4 axes (batch, length, heads, width), got shape {array.shape}"
            )
        _check_floating(name, array)


def check_rng(rng: Any) -> None:
    """None or one key."""
    if rng is None:
        return
    accepted = (
        "rng must be one typed key, as jax.random.key makes it (of an old one: jax.random.wrap_key_data)"
    )
    if not isinstance(rng, jax.Array | np.ndarray):
        raise TypeError(f"{accepted}, not {type(rng).__name__}")
    if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) or rng.shape:
        raise ValueError(f"{accepted}, not an array of {rng.dtype} of shape {rng.shape}")


def check_decodes(variant: Attention, max_length: Any) -> None:
    """That it can, and for how many tokens."""
    if not variant.capabilities.decoding:
        raise NotImplementedError(f"{variant.name} cannot decode: it has no init_cache, prefill and step")
    if not (is_int(max_length, 1) and max_length <= FAR):
        raise ValueError(f"max_length={max_length!r} is not accepted; it must be an int from 1 to {FAR}")


def check_prompt(lengths: Any, query: Any, max_length: int) -> None:
    """What `prefill` takes besides what a call does."""
    check_tokens(query=query)
    if query.shape[1] > max_length:
        raise ValueError(f"query {query.shape} has {query.shape[1]} tokens, but max_length is {max_length}")
    if lengths is None:
        return
    _check_array("lengths", lengths)
    fits = jnp.issubdtype(lengths.dtype, jnp.integer) and jnp.can_cast(lengths.dtype, jnp.int32)
    if lengths.shape != query.shape[:1] or not fits:
        raise ValueError(
            f"lengths must be of shape {query.shape[:1]} and an integer type within int32, got "
            f"{lengths.shape}, {lengths.dtype}"
        )


def check_parts(parts: Any) -> None:
    """What `merge` takes: one or more pairs (output, lse), all of the same shapes."""
    accepted = "parts must be a list of pairs (output, lse)"
    if not isinstance(parts, Sequence):
        raise TypeError(f"{accepted}, not {type(parts).__name__}")
    if not parts:
        raise ValueError(f"{accepted}, at least one; it is empty")
    for i, part in enumerate(parts):
        if not isinstance(part, Sequence) or len(part) != 2:
            raise TypeError(f"{accepted}, but parts[{i}] is no pair: {type(part).__name__}")
        for j, array in enumerate(part):
            name = f"parts[{i}][{j}]"
            _check_array(name, array)
            _check_floating(name, array)
            shape = parts[0][0].shape if j == 0 else parts[0][0].shape[:-1]
            if array.shape != shape:
                raise ValueError(
                    f"{name} has shape {array.shape}; beside the output of parts[0] it must have {shape}"
                )


def _check_array(name: str, array: Any) -> None:
    if not isinstance(array, jax.Array | np.ndarray):
        raise TypeError(f"{name} must be a jax.Array or numpy.ndarray, not {type(array).__name__}")


def _check_floating(name: str, array: Any) -> None:
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"{name} must be floating point, got {array.dtype}")


def _check_gates(variant: Attention, query, gates) -> None:
    if gates is not None:
        _check_array("gates", gates)
    if not variant.num_gates:
        if gates is not None:
            raise ValueError(f"{variant.name} takes no gates, but gates of shape {gates.shape} are given")
        return
    accepted = (*query.shape[:3], variant.num_gates)
    if gates is None or gates.shape != accepted:
        given = None if gates is None else f"an array of shape {gates.shape}"
        raise ValueError(f"{variant.name}: gates must have shape {accepted}, got {given}")


def _check_params(variant: Attention, query, value, params) -> None:
    """Their names; what shape each has is for the variant to say, as it may depend on a longest length."""
    if not isinstance(params, Mapping):
        raise TypeError(f"params must be a dict of arrays, not {type(params).__name__}; `init` makes it")
    if not variant.capabilities.learned:
        if params:
            raise ValueError(f"{variant.name} has no parameters, but params has {sorted(params)}")
        return
    sizes = {"num_heads": query.shape[2], "num_kv_heads": value.shape[2], "head_dim": query.shape[3]}
    lengths = {"max_length": max(query.shape[1], value.shape[1])}
    accepted = jax.eval_shape(
        lambda rng: variant.init(rng, model_dim=query.shape[2] * query.shape[3], **sizes, **lengths),
        jax.random.key(0),
    )
    if set(params) != set(accepted):
        shapes = ", ".join(f"{name} {getattr(x, 'shape', x)}" for name, x in sorted(accepted.items()))
        raise ValueError(f"{variant.name}: params must be {shapes}, got {sorted(params)}; `init` makes them")


def _check_shapes(variant: Attention, query, key, value) -> None:
    arrays = {"query": query, "value": value} | ({} if key is None else {"key": key})
    check_tokens(**arrays)
    for name, array in arrays.items():
        if array.dtype != query.dtype:
            raise ValueError(f"{name} is {array.dtype}, but query is {query.dtype}; they must be the same")
        if array.shape[0] != query.shape[0]:
            raise ValueError(f"{name} {array.shape} and query {query.shape} differ in batch size")
    keys = query if key is None else key
    name = "query (the keys, as key is None)" if key is None else "key"
    if keys.shape[1] != value.shape[1]:
        raise ValueError(f"{name} {keys.shape} and value {value.shape} differ in length")
    if keys.shape[3] != query.shape[3]:
        raise ValueError(f"key {keys.shape} and query {query.shape} differ in head width")
    if key is not None and key.shape[2] != value.shape[2]:
        raise ValueError(f"key {key.shape} and value {value.shape} differ in heads")
    num_heads, num_kv_heads = query.shape[2], value.shape[2]
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(
            f"the {num_kv_heads} heads of value {value.shape} do not divide those of query {query.shape}"
        )


def _check_supported(variant: Attention, query, key, value, mask: Mask) -> None:
    capabilities = variant.capabilities
    refused = [
        field
        for field in mask.given()
        if not getattr(capabilities, _CAPABILITY_OF_FIELD.get(field, ""), True)
    ]
    if refused:
        raise NotImplementedError(f"{variant.name} cannot honour the mask's {', '.join(refused)}")
    if mask.causal and not capabilities.causal:
        raise NotImplementedError(f"{variant.name} has no causal form: mask.causal=True")
    if not mask.causal and not capabilities.two_sided:
        raise NotImplementedError(f"{variant.name} is causal only: mask.causal=False")
    if capabilities.shared_key and key is not None:
        raise NotImplementedError(
            f"{variant.name} takes its keys from the queries: key must be None, got shape {key.shape}"
        )
    if not capabilities.cross_attention and query.shape[1] != value.shape[1]:
        raise NotImplementedError(
            f"{variant.name} has no cross-attention: query {query.shape}, value {value.shape}"
        )
    if not capabilities.grouped_queries and query.shape[2] != value.shape[2]:
        raise NotImplementedError(
            f"{variant.name} has no grouped queries: query {query.shape}, value {value.shape}"
        )
    if not capabilities.value_width and query.shape[3] != value.shape[3]:
        raise NotImplementedError(
            f"{variant.name} needs values as wide as queries: query {query.shape}, value {value.shape}"
        )


def _check_mask_arrays(mask: Mask, batch: int, query_length: int, key_length: int) -> None:
    for field in mask.given():
        array = getattr(mask, field)
        _check_array(f"mask.{field}", array)
        length = query_length if field.startswith("query") else key_length
        if array.shape not in ((batch, length), (1, length)):
            raise ValueError(
                f"mask.{field} has shape {array.shape}; accepted are {(batch, length)} and {(1, length)}"
            )
        if field.endswith("valid"):
            fits, accepted = array.dtype == jnp.bool_, "bool"
        else:  # wider ones would lose what tells them apart
            fits = jnp.issubdtype(array.dtype, jnp.integer) and jnp.can_cast(array.dtype, jnp.int32)
            accepted = "an integer type within int32"
        if not fits:
            raise ValueError(f"mask.{field} is {array.dtype}; it must be {accepted}")
    if (mask.query_segments is None) != (mask.key_segments is None):
        raise ValueError("mask has one of query_segments and key_segments; give both or neither")
    if mask.key_positions is not None and mask.query_positions is None:
        raise ValueError("mask.key_positions needs mask.query_positions beside it")
