"""Softmax attention to near keys and linear attention to all of them, in one head."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from attention.check import check_choice, check_count, check_softmax_fields
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.linear import FEATURES, Linear
from attention.operands import wide
from attention.window import Window


@dataclasses.dataclass(frozen=True)
class WindowLinear(Attention):
    """What each head sees exactly of the near and roughly of all, mixed by a gate of each token.

    output_t = sigmoid(g_t) linear_t + (1 - sigmoid(g_t)) window_t: linear attention to all keys, near ones
    too (`linear`, with its `feature_map`s), and softmax attention to those less than `window_size` positions
    away (`window`); g_t is the token's gate for the head. A query whose window holds no real key has the
    linear part alone, so that weights stay a mean. Dropout is of the window's weights.

    Infini-attention mixes so (Munkhdalai et al. 2024, eq. 10), by one learned number a head, attention inside
    a segment and a linear memory of the segments before it; here the window slides, the sums go up to the
    query, and gates are each token's. Based has both kinds in layers of their own, its linear ones with
    features of a Taylor expansion (Arora et al. 2024).

    O(T (w + H)) time for w = window_size, causal by blocks of W queries as `linear`; O(T) memory. It is full
    attention only where window_size >= max(T, S) and gates are -inf.
    """

    name: ClassVar[str] = "window_linear"

    window_size: int = 64
    feature_map: str = "elu"
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the window's size, 64 of the linear part

    def __post_init__(self):
        check_count(self, "window_size")
        check_choice(self, "feature_map", tuple(FEATURES))
        check_softmax_fields(self)
        check_count(self, "query_block", optional=True)

    @property
    def num_gates(self) -> int:
        return 1

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T (w + W + H))", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "window_size >= max(T, S) and gates of -inf, which are given with each call")

    def flops(self, **sizes) -> Flops:
        """Those of both parts."""
        near, far = self._near.flops(**sizes), self._far.flops(**sizes)
        return Flops(near.forward + far.forward, near.backward + far.backward)

    @property
    def _near(self) -> Window:
        return Window(
            self.window_size, self.scale, self.temperature, self.softcap, self.dropout_rate, self.query_block
        )

    @property
    def _far(self) -> Linear:
        return Linear(self.feature_map, self.query_block)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        assert gates is not None  # or the call would have been refused
        rest = {"params": params, "rng": rng, "gates": None}
        near, lse = self._near._attend(query, key, value, mask, **rest)
        far = self._far._call(query, key, value, mask, **rest)
        share = jnp.where(lse > -jnp.inf, jax.nn.sigmoid(wide(gates[..., 0])), 1)[..., None]
        return share * far + (1 - share) * wide(near)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        rest = {"max_length": max_length, "params": params, "gates": None}
        return tuple(part._cached(query, key, value, mask, **rest) for part in (self._near, self._far))

    def _step(self, query, key, value, cache, *, params, gates):
        assert gates is not None  # or the call would have been refused
        rest = {"params": params, "gates": None}
        near, near_cache = self._near._step(query, key, value, cache[0], **rest)
        far, far_cache = self._far._step(query, key, value, cache[1], **rest)
        share = jax.nn.sigmoid(wide(gates[..., 0]))[..., None]
        return share * far + (1 - share) * near, (near_cache, far_cache)
