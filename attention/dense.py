"""Exact attention with the score matrix written out: the baseline."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from attention.check import check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import Dropout, drop, for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits


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
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=False,
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
        return softmax_of(scores, value, mask.to_array(query_length, key_length), dropout, self.dropout_rate)


def softmax_of(
    logits: Float[Array, "#B K G T S"],
    value: Float[Array, "B S K V"],
    allowed: Bool[Array, "#B T S"],
    dropout: Dropout | None,
    dropout_rate: float,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """Output and log-sum-exp of logits that are written out, in their dtype."""
    logits = jnp.where(allowed[:, None, None], logits, -jnp.inf)
    # Whatever is subtracted cancels; its gradient would only cost time and memory.
    greatest = lax.stop_gradient(logits.max(-1, initial=-jnp.inf, keepdims=True))
    sees = greatest > -jnp.inf
    mass = jnp.exp(logits - jnp.where(sees, greatest, 0))
    total = jnp.where(sees, mass.sum(-1, keepdims=True), 1)
    weight = drop(mass / total, dropout, dropout_rate).astype(value.dtype)
    weight = jnp.broadcast_to(weight, (len(value), *weight.shape[1:]))
    output = jnp.einsum("BKGTS,BSKV->BTKGV", weight, value, preferred_element_type=logits.dtype)
    lse = jnp.where(sees, jnp.where(sees, greatest, 0) + jnp.log(total), -jnp.inf)[..., 0]
    lse = jnp.broadcast_to(lse, (len(value), *lse.shape[1:])).transpose(0, 3, 1, 2)
    return output.reshape(*output.shape[:2], -1, output.shape[4]), lse.reshape(*lse.shape[:2], -1)
