"""Retention: scores that decay with distance, without a softmax."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from attention.check import check_count, check_positive
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.mask import Mask
from attention.operands import repeated, wide, zeroed
from attention.state import (
    DEFAULT_BLOCK,
    decayed_flops,
    decayed_sums,
    from_the_end,
    last_state,
    state_step,
)


@dataclasses.dataclass(frozen=True)
class Retention(Attention):
    """Each head sums what it saw with weights that decay at a rate of its own.

    output_t = scale sum_{s <= t} gamma_n^(t - s) (q_t.k_s) v_s, gamma_n = 1 - 1/m_n with m_n from
    `first_memory` to `last_memory` tokens, evenly by logarithm over the heads (Sun et al. 2023, eq. 5 and 8;
    32 and 512 are their heads'). Two-sided: gamma_n^|t - s|. Padding takes no time: distances are counted in
    tokens that are no padding as keys.

    Outputs are sums, and the layer normalises each head's, as theirs does. Departures: neither is divided by
    sums of decays, which that normalisation undoes; rotary positions are the model's to add, and the gate on
    the output is left out, as no other variant here has one.

    O(T (W + H) V) time by blocks of W queries, O(T) memory, a state of H V numbers. It has no softmax and
    never is full attention.
    """

    name: ClassVar[str] = "retention"
    unnormalised: ClassVar[bool] = True

    first_memory: int = 32
    last_memory: int = 512
    scale: float | None = None  # None: 1/sqrt(H)
    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_count(self, "first_memory", least=2)
        check_count(self, "last_memory", least=2)
        check_positive(self, "scale", optional=True)
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T (W + H))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: there is no softmax")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Two-sided: as often again for what comes after."""
        counted = decayed_flops(
            max(query_length, key_length), batch=batch, num_heads=num_heads, head_dim=head_dim,
            value_dim=value_dim, block=self.query_block or DEFAULT_BLOCK,
        )  # fmt: skip
        times = 1 if causal else 2
        return Flops(times * counted.forward, times * counted.backward)

    def log_decay(self, num_heads: int) -> np.ndarray:
        """log gamma_n, at most 0: N."""
        return np.log1p(-1 / np.geomspace(self.first_memory, self.last_memory, num_heads))

    def _call(self, query, key, value, mask, *, params, rng, gates):
        query_length = query.shape[1]
        length = max(query_length, key.shape[1])
        arrays = [from_the_end(x, length) for x in self._arrays(query, key, value, mask)]
        block = self.query_block or DEFAULT_BLOCK
        output = decayed_sums(*arrays, block)
        if not mask.causal:
            output += jnp.flip(decayed_sums(*(jnp.flip(x, 1) for x in arrays), block), 1)
            query, key, value, _ = arrays  # each token's own value is in both
            output -= jnp.einsum("BTNH,BTNH->BTN", query, key)[..., None] * value
        output = output[:, length - query_length :]
        return zeroed(output, mask.query_valid)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_state(*self._arrays(query, key, value, mask)[1:])

    def _step(self, query, key, value, cache, *, params, gates):
        return state_step(*self._arrays(query, key, value, Mask()), cache)

    def _arrays(self, query, key, value, mask: Mask):
        """Queries scaled, keys and values for each of their heads, and logarithms of decays."""
        scale = 1 / math.sqrt(query.shape[3]) if self.scale is None else self.scale
        query, key, value = (repeated(wide(x), query.shape[2]) for x in (query, key, value))
        return query * scale, key, value, self._decays(mask, key.shape[1], query.shape[2], query.dtype)

    def _decays(self, mask: Mask, key_length: int, num_heads: int, dtype):
        """b S N."""
        decay = jnp.asarray(self.log_decay(num_heads), dtype)
        if mask.key_valid is None:
            return jnp.broadcast_to(decay, (1, key_length, num_heads))
        return jnp.where(mask.key_valid[..., None], decay, 0)
