"""Exact attention to near keys."""

import dataclasses
from typing import ClassVar

from attention.band import band_attention
from attention.blocks import band_block
from attention.cache import attend_cached, last_tokens, with_token
from attention.check import check_block_fields, check_count, check_softmax_fields
from attention.cost import count_pairs, softmax_flops
from attention.dropout import for_tokens
from attention.halo import with_halo
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.visibility import default_band


@dataclasses.dataclass(frozen=True)
class Window(SoftmaxAttention):
    """Every query attends to the keys less than `window_size` positions away, its own among them.

    Causal: 0 <= t - s < window_size. Two-sided: |t - s| < window_size, 2 window_size - 1 keys. Within the
    window it is exact softmax attention (the local attention of Beltagy et al. 2020, sliding and not by
    blocks). O(T window_size) time, also where positions are given if they ascend, else up to O(T S); O(T)
    memory. It is full attention if window_size >= max(T, S) and positions are the defaults.
    """

    name: ClassVar[str] = "window"

    window_size: int = 128
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the window's size
    key_block: int | None = None  # None: the whole band of a block of queries, if that is short

    def __post_init__(self):
        check_count(self, "window_size")
        check_softmax_fields(self)
        check_block_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=True, explicit_positions=True,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=True,
            exact=True, equivariant=False, learned=False, time="O(T w)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return self.window_size - 1

    def limit(self, length: int) -> Limit:
        return Limit({"window_size": max(length, 1)}, "window_size >= max(T, S), default positions")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        band = default_band(query_length, key_length, *self._band(causal))
        return softmax_flops(
            count_pairs(*band), batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim
        )

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        return self._near(query, key, value, mask, *self._band(mask.causal), dropout)

    def _attend_shard(self, query, key, value, mask, *, axis_name, dropout, params, gates):
        before, after = self._band(mask.causal)
        key, value, mask, dropout, halo = with_halo(key, value, mask, dropout, before, after, axis_name)
        # The last query is taken to stand at the last key, and stands as many before it as come after.
        return self._near(query, key, value, mask, before + halo, after - halo, dropout)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_tokens(key, value, mask, min(self.window_size, max_length))

    def _step(self, query, key, value, cache, *, params, gates):
        cache = with_token(cache, key, value)
        return attend_cached(query, cache, Logits.of(self, query.shape[3]), reach=self.reach), cache

    def _near(self, query, key, value, mask, before: int, after: int, dropout):
        rows = query.shape[0] * query.shape[2]
        query_block = self.query_block or band_block(rows, before + after + 1, query.shape[1])
        return band_attention(
            query, key, value, mask, before=before, after=after,
            query_block=query_block, key_block=self.key_block,
            logits=Logits.of(self, query.shape[3]),
            dropout_rate=self.dropout_rate, dropout=dropout,
        )  # fmt: skip

    def _band(self, causal: bool) -> tuple[int, int]:
        return self.window_size - 1, 0 if causal else self.window_size - 1
