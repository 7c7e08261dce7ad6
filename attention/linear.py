"""Linear attention: a kernel of features in place of the softmax."""

import dataclasses
import math
from typing import ClassVar

import jax

from attention.check import check_choice, check_count
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.kernel import FLOOR, kernel_attention, kernel_flops, kernel_step, summed
from attention.operands import wide
from attention.state import DEFAULT_BLOCK

FEATURES = {
    "elu": lambda x: jax.nn.elu(x) + 1,  # Katharopoulos et al. 2020, eq. 7
    "relu": jax.nn.relu,  # Kasai et al. 2021, without their projection
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),  # over the head's width, of queries as of keys
}


@dataclasses.dataclass(frozen=True)
class Linear(Attention):
    """Every query attends to every key with weight phi(q).phi(k), divided by the row's sum.

    output_t = sum_s phi(q_t).phi(k_s) v_s / sum_s phi(q_t).phi(k_s) (Katharopoulos et al. 2020, eq. 4-5;
    causal eq. 8-12). `feature_map`: "elu", elu(x) + 1 (their eq. 7), "relu" or "softmax" over the head's
    width; 1e-6 is added to each feature, in place of an epsilon in the denominator, so that
    weights stay a mean. From such features the sums of performer-pytorch on PyPI give the same.

    O(T H V) time, causal O(T (W + H) V) by blocks of W queries; O(T) memory. It has no scale and no
    temperature, and never is full attention.
    """

    name: ClassVar[str] = "linear"

    feature_map: str = "elu"
    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_choice(self, "feature_map", tuple(FEATURES))
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=True, learned=False, time="O(T (W + H))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: no finite feature map has the softmax's kernel exp(q.k)")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        return kernel_flops(
            batch=batch, query_length=query_length, key_length=key_length, num_heads=num_heads,
            num_kv_heads=num_kv_heads, num_features=head_dim, value_dim=value_dim, causal=causal,
            block=self.query_block or DEFAULT_BLOCK,
        )  # fmt: skip

    def _call(self, query, key, value, mask, *, params, rng, gates):
        query, key = self._features(query), self._features(key)
        return kernel_attention(query, key, wide(value), mask, block=self.query_block or DEFAULT_BLOCK)

    def _features(self, x):
        return FEATURES[self.feature_map](wide(x)) + FLOOR

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return summed(self._features(key), wide(value), mask)

    def _step(self, query, key, value, cache, *, params, gates):
        return kernel_step(self._features(query), self._features(key), wide(value), cache)
