"""A control: no attention at all."""

import dataclasses
from typing import ClassVar

from attention.interface import Attention, Capabilities, Flops, Limit
from attention.operands import repeated, zeroed


@dataclasses.dataclass(frozen=True)
class Nothing(Attention):
    """Every token sees itself alone: output_t = v_t.

    The layers around it stay, so that a model with this shows what a task is worth without any mixing of
    tokens. Queries and keys go unused, and get no gradient. O(T) time and memory. It is full attention of
    sequences of one token.
    """

    name: ClassVar[str] = "none"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=True, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=True, learned=False, time="O(T)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return 0

    def limit(self, length: int) -> Limit:
        return Limit({} if length <= 1 else None, "T == S == 1")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """No matrix product."""
        return Flops(0, 0)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        """Of a token that is padding as a key the value is 0 already."""
        output = repeated(value, query.shape[2])
        if mask.query_segments is not None:
            output = zeroed(output, mask.query_segments == mask.key_segments)
        return zeroed(output, mask.query_valid)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return ()

    def _step(self, query, key, value, cache, *, params, gates):
        return repeated(value, query.shape[2]), cache
