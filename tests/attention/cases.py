"""Every registered variant with several settings, inputs for it, and the one function the laws compile.

A variant is under all the laws once it is registered. Its own test file, tests/attention/test_<name>.py, adds
what only it can say; the laws look there for these names:

- `SETTINGS`: hyperparameters to test with, small enough to matter at LENGTH; the defaults if missing;
- `allowed(variant, mask, batch, query_length, key_length)`: an exact variant's visible pairs, bool B T S, or
- `reference(variant, inputs, mask, choices)`: its output and log-sum-exp by plain NumPy loops, and, where it
  makes discrete choices, `choices(variant, inputs)`, which are then held while differences are taken;
- `MEANS`: False if weights may be below 0, or not sum to 1, though outputs are not `unnormalised`;
- `at_limit(variant, inputs, mask)`: output and log-sum-exp at its limit, if that is not plainly `full`.
"""

import dataclasses
import functools
import importlib
import importlib.util
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import attention
from attention import Attention, Mask, SoftmaxAttention

# A prime, longer than several blocks of the settings; one shape for all, so that compilations are shared.
BATCH, LENGTH, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, VALUE_DIM = 2, 37, 4, 2, 4, 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A variant with some setting, and its test file's statements (None: it has no test file)."""

    variant: Any
    setting: str
    statement: Any

    def __str__(self) -> str:
        return self.variant.name + (f"({self.setting})" if self.setting else "")


class Inputs(NamedTuple):
    """What a call takes besides the mask."""

    query: Any
    key: Any
    value: Any
    params: Any
    rng: Any
    gates: Any

    def over_tokens(self, change: Callable[[Array], Array]) -> "Inputs":
        """`change` applied to query, key, value and gates."""
        tokens = {"query": self.query, "key": self.key, "value": self.value, "gates": self.gates}
        return self._replace(**{name: change(x) for name, x in tokens.items() if x is not None})

    def where(self, keep: Any, other: "Inputs") -> "Inputs":
        """These tokens where `keep` (B T), those of `other` elsewhere; for T = S."""
        keep = keep[:, :, None, None]
        tokens = {"query": self.query, "key": self.key, "value": self.value, "gates": self.gates}
        chosen = {name: x for name, x in tokens.items() if x is not None}
        return self._replace(**{name: jnp.where(keep, x, getattr(other, name)) for name, x in chosen.items()})


class Result(NamedTuple):
    """One evaluation; lse is zeros if the variant has none, gradients have the structure of Inputs."""

    output: Array
    lse: Array
    gradients: dict[str, Any]


def statement(name: str) -> ModuleType | None:
    """The test file of a variant."""
    module = f"tests.attention.test_{name}"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None


@functools.cache
def cases() -> tuple[Case, ...]:
    """All settings of every registered variant."""
    found = []
    for name in attention.names():
        stated = statement(name)
        for fields in getattr(stated, "SETTINGS", ({},)):
            setting = ",".join(f"{field}={value}" for field, value in fields.items())
            found.append(Case(attention.make(name, **fields), setting, stated))
    return tuple(found)


def first_cases() -> tuple[Case, ...]:
    """One setting of each variant, the first: for laws that compile anew at every turn."""
    return tuple(next(case for case in cases() if case.variant.name == name) for name in attention.names())


def inputs(
    variant: Attention, *, seed: int = 0, batch: int = BATCH, length: int = LENGTH,
    key_length: int | None = None, num_kv_heads: int = NUM_KV_HEADS, value_dim: int = VALUE_DIM,
    dtype: Any = jnp.float32, rng: Array | None = None,
) -> Inputs:  # fmt: skip
    """Standard normal arrays, as general as the variant can take: grouped queries, V other than H."""
    can = variant.capabilities
    key_length = length if key_length is None else key_length
    num_kv_heads = num_kv_heads if can.grouped_queries else NUM_HEADS
    value_dim = value_dim if can.value_width else HEAD_DIM
    draw = np.random.default_rng(seed).normal

    def array(*shape):
        return jnp.asarray(draw(size=shape), dtype)

    query = array(batch, length, NUM_HEADS, HEAD_DIM)
    key = array(batch, key_length, num_kv_heads, HEAD_DIM)
    value = array(batch, key_length, num_kv_heads, value_dim)
    params = variant.init(
        jax.random.key(0), num_heads=NUM_HEADS, num_kv_heads=num_kv_heads, head_dim=HEAD_DIM,
        model_dim=NUM_HEADS * HEAD_DIM, max_length=max(2 * LENGTH, length, key_length),
    )  # fmt: skip
    params = jax.tree.map(lambda x: jnp.asarray(draw(size=x.shape), x.dtype), params)
    gates = array(batch, length, NUM_HEADS, variant.num_gates) if variant.num_gates else None
    return Inputs(query, None if can.shared_key else key, value, params, rng, gates)


def cotangents(given: Inputs, *, seed: int = 1) -> tuple[Array, Array]:
    """Random gradients of a loss with respect to output B T N V and lse B T N."""
    rows = given.query.shape[:3]
    draw = np.random.default_rng(seed).normal
    d_output = jnp.asarray(draw(size=(*rows, given.value.shape[3])), given.query.dtype)
    return d_output, jnp.asarray(draw(size=rows), jnp.float32)


def call(variant: Attention, given: Inputs, mask: Mask) -> tuple[Array, Array]:
    """Output and log-sum-exp."""
    rest = {"params": given.params, "rng": given.rng, "gates": given.gates}
    if isinstance(variant, SoftmaxAttention):
        return variant.attend(given.query, given.key, given.value, mask, **rest)
    output = variant(given.query, given.key, given.value, mask, **rest)
    return output, jnp.zeros(given.query.shape[:3], jnp.promote_types(output.dtype, jnp.float32))


forward = jax.jit(call, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def evaluate(variant: Attention, given: Inputs, mask: Mask, d_output: Array, d_lse: Array) -> Result:
    """Forward and backward, compiled once for each variant, shape and kind of mask."""

    def of(trained):
        return call(variant, given._replace(**trained), mask)

    trained = given._replace(rng=None)._asdict()
    (output, lse), pull = jax.vjp(of, {name: x for name, x in trained.items() if x is not None})
    return Result(output, lse, pull((d_output, d_lse))[0])


def run(variant: Attention, given: Inputs, mask: Mask) -> Result:
    """`evaluate` with the usual cotangents."""
    return evaluate(variant, given, mask, *cotangents(given))


def logit_scale(variant: Any) -> float:
    """What multiplies q.k at HEAD_DIM: its scale (1/sqrt(H) unless given) over its temperature."""
    scale = getattr(variant, "scale", None)
    return (1 / math.sqrt(HEAD_DIM) if scale is None else scale) / getattr(variant, "temperature", 1.0)
