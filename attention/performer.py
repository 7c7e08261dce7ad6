"""FAVOR+: random features whose products are, in the mean, the softmax's kernel."""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attention.check import check_choice, check_count, check_positive
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.kernel import FLOOR, kernel_attention, kernel_flops, kernel_step, summed
from attention.operands import wide
from attention.state import DEFAULT_BLOCK

MOST_FEATURES = 2**16


@dataclasses.dataclass(frozen=True)
class Performer(Attention):
    """Weights exp(scale q.k) estimated by `num_features` positive random features of queries and keys.

    phi(x) = exp(w.x - |x|^2 / 2) for x = sqrt(scale) q or sqrt(scale) k and each row w of a random matrix:
    rows are orthogonal in blocks of H and as long as normal vectors are (Choromanski et al. 2021, Lemma 1 and
    section 2.4). The matrix comes from `feature_seed` alone, in training and in evaluation: it is not drawn
    again. `kind="relu"` has phi(x) = relu(w.x) in its place, their generalised attention.

    Departures from the paper's code: what is subtracted from exponents for the numbers' sake is a token's own
    maximum and comes back as its weight, where the code subtracts the maximum over all keys, which lets a
    causal query see the size of later ones through its epsilon; 1e-6 is added to each feature of a token once
    its greatest is 1. For standard normal inputs of width 64 that changes outputs by less than 1e-3; what
    performer-pytorch on PyPI adds, 1e-4 beside the greatest of all keys, changes them by more than 1.

    O(T F V) time for F = num_features, causal O(T (W + V) F) by blocks of W queries; O(T) memory. It
    approaches full attention as F grows, and at no F is it.
    """

    name: ClassVar[str] = "performer"

    num_features: int = 256
    kind: str = "softmax"  # or "relu"
    feature_seed: int = 0
    scale: float | None = None  # None: 1/sqrt(H)
    query_block: int | None = None  # None: 64

    def __post_init__(self):
        check_count(self, "num_features", most=MOST_FEATURES)
        check_choice(self, "kind", ("softmax", "relu"))
        check_count(self, "feature_seed", least=0, most=2**31 - 1)
        check_positive(self, "scale", optional=True)
        check_count(self, "query_block", optional=True)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=True, learned=False, time="O(T (W + V) F)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: full attention is the mean over random matrices, of kind 'softmax'")

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Features of queries and keys, and the kernel attention over them."""
        of_kernel = kernel_flops(
            batch=batch, query_length=query_length, key_length=key_length, num_heads=num_heads,
            num_kv_heads=num_kv_heads, num_features=self.num_features, value_dim=value_dim, causal=causal,
            block=self.query_block or DEFAULT_BLOCK,
        )  # fmt: skip
        tokens = query_length * num_heads + key_length * num_kv_heads
        features = 2 * batch * tokens * self.num_features * head_dim
        return Flops(of_kernel.forward + features, of_kernel.backward + features)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        query, key = self._features(wide(query)), self._features(wide(key))
        return kernel_attention(
            query.features, key.features, wide(value), mask,
            block=self.query_block or DEFAULT_BLOCK, log_weight=key.log_weight,
        )  # fmt: skip

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        of_key = self._features(wide(key))
        return summed(of_key.features, wide(value), mask, of_key.log_weight)

    def _step(self, query, key, value, cache, *, params, gates):
        of_query, of_key = self._features(wide(query)), self._features(wide(key))
        return kernel_step(of_query.features, of_key.features, wide(value), cache, of_key.log_weight)

    def _features(self, x: Float[Array, "B S K H"]) -> "_Features":
        """Of queries too, whose weights cancel in each row."""
        width = x.shape[3]
        scale = 1 / math.sqrt(width) if self.scale is None else self.scale
        x = x * math.sqrt(scale)
        directions = jnp.asarray(random_directions(self.num_features, width, self.feature_seed), x.dtype)
        projected = jnp.einsum("BSKH,FH->BSKF", x, directions)
        if self.kind == "relu":
            return _Features(jax.nn.relu(projected) + FLOOR, None)
        greatest = projected.max(-1, keepdims=True)
        features = jnp.exp(projected - greatest) + FLOOR
        return _Features(features, greatest[..., 0] - (x**2).sum(-1) / 2)


class _Features(NamedTuple):
    """B S K F, and the logarithm of what they are to be multiplied by, B S K, None if by nothing."""

    features: Any
    log_weight: Any


@functools.cache
def random_directions(num_features: int, width: int, seed: int) -> np.ndarray:
    """F H: orthogonal within each `width` rows, of the lengths of standard normal vectors; float64."""
    draw = np.random.default_rng(seed)
    num_blocks = -(-num_features // width)
    turned = [np.linalg.qr(draw.normal(size=(width, width))) for _ in range(num_blocks)]
    rows = [q.T * np.sign(np.diag(r))[:, None] for q, r in turned]  # else not every rotation is as likely
    lengths = np.linalg.norm(draw.normal(size=(num_blocks * width, width)), axis=1)
    return (np.concatenate(rows) * lengths[:, None])[:num_features]
