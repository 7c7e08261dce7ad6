"""Gated linear attention: a state that forgets by what it reads."""

import dataclasses
import math
from typing import ClassVar

from attention.check import check_count, check_positive
from attention.interface import Attention, Capabilities, Limit
from attention.mask import Mask
from attention.operands import repeated, wide, zeroed
from attention.state import (
    DEFAULT_BLOCK,
    decayed_flops,
    decayed_sums,
    forgetting,
    last_state,
    state_step,
)


@dataclasses.dataclass(frozen=True)
class GatedLinear(Attention):
    """Each head sums what it saw, and each token says how much of the sum before it is kept.

    output_t = q_t.S_t, S_t = a_t S_{t-1} + scale k_t v_t^T, a_t = sigmoid(g_t)^(1 / gate_temperature), g_t
    the token's gate (Yang et al. 2024, eq. 3; section 4.4 for the temperature of 16). A gate is a number for
    each head, as in Mamba-2 (Dao and Gu 2024) and their simplest case, where the paper's own has one for each
    of the key's H channels: products of scores can then not be taken as they are. Padding keeps all.

    Outputs are sums, and the layer normalises each head's; the paper's gate on the output is left out, as no
    other variant here has one. Causal only. O(T (W + H) V) time by blocks of W queries, O(T) memory, a state
    of H V numbers. It never is full attention.
    """

    name: ClassVar[str] = "gated_linear"
    unnormalised: ClassVar[bool] = True

    gate_temperature: float = 16.0
    scale: float | None = None  # None: 1/sqrt(H)
    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_positive(self, "gate_temperature")
        check_positive(self, "scale", optional=True)
        check_count(self, "query_block", optional=True)

    @property
    def num_gates(self) -> int:
        return 1

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=False, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T (W + H))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: there is no softmax")

    def flops(self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal):
        return decayed_flops(
            query_length, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim,
            block=self.query_block or DEFAULT_BLOCK,
        )  # fmt: skip

    def _call(self, query, key, value, mask, *, params, rng, gates):
        arrays = self._arrays(query, key, value, gates, mask)
        return zeroed(decayed_sums(*arrays, self.query_block or DEFAULT_BLOCK), mask.query_valid)

    def _arrays(self, query, key, value, gates, mask: Mask):
        """Queries scaled, keys and values for each of their heads, and logarithms of decays."""
        assert gates is not None  # or the call would have been refused
        scale = 1 / math.sqrt(query.shape[3]) if self.scale is None else self.scale
        key, value = (repeated(wide(x), query.shape[2]) for x in (key, value))
        decay = forgetting(wide(gates[..., 0]), self.gate_temperature, mask)
        return wide(query) * scale, key, value, decay

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        _, key, value, decay = self._arrays(query, key, value, gates, mask)
        return last_state(key, value, decay)

    def _step(self, query, key, value, cache, *, params, gates):
        return state_step(*self._arrays(query, key, value, gates, Mask()), cache)
