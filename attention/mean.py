"""A control: the mean of all values that may be seen."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from attention.check import check_count
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.kernel import kernel_attention, kernel_flops, kernel_step, summed
from attention.operands import wide
from attention.state import DEFAULT_BLOCK


@dataclasses.dataclass(frozen=True)
class Mean(Attention):
    """Every query gives the same weight to every key that the mask allows: it looks at nothing.

    output_t = mean_s v_s. What a task needs attention for is what a model with this in its place cannot do.
    Queries and keys go unused, and get no gradient. O(T) time, causal O(T W) by blocks of W queries; O(T)
    memory. It is full attention where all logits are equal, and no hyperparameter makes them so.
    """

    name: ClassVar[str] = "mean"

    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=True, learned=False, time="O(T W)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "only where all logits are equal, which no hyperparameter decides")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Sums of values as products with ones; the backward has their gradient alone."""
        counted = kernel_flops(
            batch=batch, query_length=query_length, key_length=key_length, num_heads=num_heads,
            num_kv_heads=num_kv_heads, num_features=1, value_dim=value_dim, causal=causal,
            block=self.query_block or DEFAULT_BLOCK,
        )  # fmt: skip
        return Flops(counted.forward, counted.forward)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        query, key, value = _alike(query), _alike(key), wide(value)
        return kernel_attention(query, key, value, mask, block=self.query_block or DEFAULT_BLOCK)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return summed(_alike(key), wide(value), mask)

    def _step(self, query, key, value, cache, *, params, gates):
        return kernel_step(_alike(query), _alike(key), wide(value), cache)


def _alike(x):
    """One feature, the same for all."""
    return jnp.ones_like(wide(x[..., :1]))
