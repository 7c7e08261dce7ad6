"""Exact attention, blockwise."""

import dataclasses
import math
from typing import ClassVar

from attention.band import band_attention
from attention.blocks import full_blocks
from attention.cache import attend_cached, last_tokens, with_token
from attention.check import check_block_fields, check_softmax_fields
from attention.cost import count_pairs, softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.ring import ring_attention
from attention.visibility import default_band


@dataclasses.dataclass(frozen=True)
class Full(SoftmaxAttention):
    """Every query attends to every key that the mask allows, exactly.

    output_t = sum_s softmax_s(scale q_t.k_s / temperature) v_s (Vaswani et al. 2017, eq. 1), computed tile by
    tile with an online softmax and a backward that recomputes (Dao et al. 2022); tiles that the mask empties
    are skipped. O(T S) time, O(T + S) memory. It is full attention: its limit holds always.
    """

    name: ClassVar[str] = "full"

    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # queries and keys of a tile; None: the platform's default
    key_block: int | None = None

    def __post_init__(self):
        check_softmax_fields(self)
        check_block_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=True, explicit_positions=True,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=True,
            exact=True, equivariant=True, learned=False, time="O(T^2)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit({}, "always")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        band = default_band(query_length, key_length, None, 0 if causal else None)
        return softmax_flops(
            count_pairs(*band), batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        return band_attention(
            query, key, value, mask, before=None, after=0 if mask.causal else None,
            **self._blocks(query, key), logits=Logits.of(self, query.shape[3]),
            dropout_rate=self.dropout_rate,
            dropout=for_tokens(rng, self.dropout_rate, query.shape, value.shape),
        )  # fmt: skip

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_tokens(key, value, mask, max_length)

    def _step(self, query, key, value, cache, *, params, gates):
        cache = with_token(cache, key, value)
        return attend_cached(query, cache, Logits.of(self, query.shape[3]), reach=self.reach), cache

    def _attend_shard(self, query, key, value, mask, *, axis_name, dropout, params, gates):
        return ring_attention(
            query, key, value, mask, axis_name=axis_name,
            **self._blocks(query, key), logits=Logits.of(self, query.shape[3]),
            dropout_rate=self.dropout_rate, dropout=dropout,
        )  # fmt: skip

    def _blocks(self, query, key) -> dict[str, int]:
        rows = query.shape[0] * query.shape[2]
        query_block, key_block = full_blocks(rows, query.shape[1], key.shape[1])
        return {"query_block": self.query_block or query_block, "key_block": self.key_block or key_block}
