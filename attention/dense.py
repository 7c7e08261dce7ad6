"""Exact attention with the score matrix written out: the baseline."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from attention.cache import attend_cached, last_tokens, with_token
from attention.check import check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.softmax import softmax_of


@dataclasses.dataclass(frozen=True)
class Dense(SoftmaxAttention):
    """Every query attends to every key that the mask allows, through the whole score matrix.

    output_t = sum_s softmax_s(scale q_t.k_s / temperature) v_s (Vaswani et al. 2017, eq. 1). O(T S) time and
    memory, masked or not: what most code does, kept to be compared with. Its limit holds always.
    """

    name: ClassVar[str] = "dense"

    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0

    def __post_init__(self):
        check_softmax_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=True, explicit_positions=True,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=True, equivariant=True, learned=False, time="O(T^2)", memory="O(T^2)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit({}, "always")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """All T S pairs, as they are computed whether masked or not; nothing is recomputed."""
        pairs = query_length * key_length
        counted = softmax_flops(
            pairs, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )
        return Flops(counted.forward, 2 * counted.forward)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        batch, query_length, _, head_dim = query.shape
        key_length, num_kv_heads = key.shape[1:3]
        wide = jnp.promote_types(query.dtype, jnp.float32)
        logits = Logits.of(self, head_dim)
        query_BTKGH = query.reshape(batch, query_length, num_kv_heads, -1, head_dim)
        scores = jnp.einsum("BTKGH,BSKH->BKGTS", query_BTKGH, key, preferred_element_type=wide)
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        scores = logits.cap(scores * logits.scale)[0]
        allowed = mask.to_array(query_length, key_length)[:, None, None]
        return softmax_of(jnp.where(allowed, scores, -jnp.inf), value, dropout, self.dropout_rate)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_tokens(key, value, mask, max_length)

    def _step(self, query, key, value, cache, *, params, gates):
        cache = with_token(cache, key, value)
        return attend_cached(query, cache, Logits.of(self, query.shape[3]), reach=self.reach), cache
