"""Attention to a fixed number of learned mixtures of all keys."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from attention.band import band_attention
from attention.blocks import full_blocks
from attention.check import check_count, check_field, check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.operands import wide

MOST_PROJECTED = 2**16  # the projections have so many numbers for each position


@dataclasses.dataclass(frozen=True)
class Linformer(SoftmaxAttention):
    """Keys and values are projected along the sequence, to `num_projected` of each, and all queries see all.

    output_t = sum_j softmax_j(scale q_t.(E k)_j) (F v)_j with E and F learned, num_projected x S (Wang et al.
    2020, eq. 7). All heads share them, as in the paper's "headwise" sharing; `share` also has F = E, its
    "key-value" sharing. Columns belong to positions: a shorter input uses the first ones, a longer one than
    they were made for is refused. Padded keys are zero and so add nothing to any mixture. With the same
    projections it is linformer on PyPI, whose `share_kv` also makes values of what makes keys, and which
    draws projections uniformly with a third of the variance.

    Each mixture holds all keys, later ones too, so that there is no causal form. O(T num_projected) time and
    O(T) memory. It is full attention only for projections that are the identity.
    """

    name: ClassVar[str] = "linformer"

    num_projected: int = 128
    share: bool = False
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: the platform's default

    def __post_init__(self):
        check_count(self, "num_projected", most=MOST_PROJECTED)
        check_field(self, "share", "True or False", isinstance(self.share, bool))
        check_softmax_fields(self)
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=False, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=False,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=True, time="O(T P)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "num_projected >= S and projections that are the identity, which are learned")

    def init(self, rng, *, num_heads, num_kv_heads, head_dim, model_dim, max_length):
        """`key_projection` and, unless shared, `value_projection` (max_length num_projected), normal with
        variance 1 / num_projected (Theorem 2's)."""
        names = ("key_projection",) if self.share else ("key_projection", "value_projection")
        shape, deviation = (max_length, self.num_projected), 1 / math.sqrt(self.num_projected)
        return {
            name: deviation * jax.random.normal(each, shape, jnp.float32)
            for name, each in zip(names, jax.random.split(rng, len(names)), strict=True)
        }

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """All queries with all mixtures, and the mixtures."""
        counted = softmax_flops(
            query_length * self.num_projected, batch=batch, num_heads=num_heads, head_dim=head_dim,
            value_dim=value_dim,
        )  # fmt: skip
        mixing = 2 * batch * key_length * self.num_projected * num_kv_heads * (head_dim + value_dim)
        return Flops(counted.forward + mixing, counted.backward + 2 * mixing)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        of_keys = self._projection(params, "key_projection", key.shape[1])
        of_values = of_keys if self.share else self._projection(params, "value_projection", key.shape[1])
        key, value = (
            jnp.einsum("SP,BSKH->BPKH", matrix.astype(wide(x).dtype), wide(x)).astype(query.dtype)
            for matrix, x in ((of_keys, key), (of_values, value))
        )
        rows = query.shape[0] * query.shape[2]
        query_block, key_block = full_blocks(rows, query.shape[1], self.num_projected)
        return band_attention(
            query, key, value, self._mask(mask), before=None, after=None,
            query_block=self.query_block or query_block, key_block=key_block,
            logits=Logits.of(self, query.shape[3]), dropout_rate=self.dropout_rate,
            dropout=for_tokens(rng, self.dropout_rate, query.shape, value.shape),
        )  # fmt: skip

    def _mask(self, mask: Mask) -> Mask:
        """Of queries and mixtures: where all keys are padding, there is nothing that a mixture could hold."""
        if mask.key_valid is None:
            return Mask(query_valid=mask.query_valid)
        some = mask.key_valid.any(1, keepdims=True)
        return Mask(
            query_valid=mask.query_valid, key_valid=jnp.broadcast_to(some, (len(some), self.num_projected))
        )

    def _projection(self, params, name: str, length: int):
        """Its first `length` columns, one for each key: S P."""
        matrix = params[name]
        if matrix.ndim != 2 or matrix.shape[0] < length or matrix.shape[1] != self.num_projected:
            raise ValueError(
                f"linformer: params[{name!r}] must have shape (max_length, {self.num_projected}) with a "
                f"max_length of at least {length} keys, got {matrix.shape}; `init` makes it"
            )
        return matrix[:length]
