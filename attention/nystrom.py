"""Attention through landmarks: a Nystrom approximation of the softmax's matrix."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from attention.band import band_attention
from attention.blocks import full_blocks
from attention.check import check_count, check_logit_fields
from attention.cost import softmax_flops
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.logits import Logits
from attention.mask import Mask
from attention.operands import repeated, wide

MOST_LANDMARKS = 2**12  # the matrix between landmarks has so many rows and columns
# Where that matrix is singular rounding in its null space grows by 13/4 at each turn, to about 1 by here.
MOST_ITERATIONS = 16

# What was rounded is divided by small singular values.
_product = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


@dataclasses.dataclass(frozen=True)
class Nystrom(Attention):
    """Queries meet keys through `num_landmarks` of each, means of segments of the sequence.

    output = softmax(Q K~^T) Z softmax(Q~ K^T) V, logits scaled as everywhere, Z an approximate Moore-Penrose
    inverse of A = softmax(Q~ K~^T) (Xiong et al. 2021, their Algorithm 1): `pinv_iterations` turns of
    Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 (their Lemma 1) from Z = A^T / (|A|_1 |A|_inf). Here
    |A|_inf is 1, and |A|_1 that of each head of each row: nystrom-attention on PyPI has the greatest of the
    whole batch, by which rows would see each other. Weights may be negative.

    Departures: segments are of the real tokens by their rank, so that padding moves none, and where these do
    not divide by the landmarks the first segments are one longer; with fewer tokens than landmarks each token
    is one; nystrom-attention puts zeros in front, which without a mask are keys. The paper's convolution of
    the values is left out (the model has one of its own). All is computed in float32 or wider, as Z enlarges
    what rounding leaves.

    Landmarks hold later tokens, so that there is no causal form. O(T m) time and O(T) memory, m =
    num_landmarks, besides O(m^3) for Z. It is full attention if each token is a landmark and Z has converged:
    A Z A = A.
    """

    name: ClassVar[str] = "nystrom"

    num_landmarks: int = 64
    pinv_iterations: int = 6
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None

    def __post_init__(self):
        check_count(self, "num_landmarks", most=MOST_LANDMARKS)
        check_count(self, "pinv_iterations", most=MOST_ITERATIONS)
        check_logit_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=False, two_sided=True, interior_padding=True, segments=False, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=False,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=False, time="O(T m)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(
            None, "num_landmarks >= max(T, S) and an inverse that has converged, which depends on the inputs"
        )

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Landmarks with all keys, all queries with landmarks, these among themselves, and the inverse."""
        rows, columns = (min(self.num_landmarks, x) for x in (query_length, key_length))
        counted = softmax_flops(
            query_length * columns + rows * key_length, batch=batch, num_heads=num_heads, head_dim=head_dim,
            value_dim=value_dim,
        )  # fmt: skip
        inverse = self.pinv_iterations * 2 * rows**2 * (rows + columns)
        inverse += rows * columns * (head_dim + value_dim)
        among = 2 * batch * num_heads * inverse
        return Flops(counted.forward + among, counted.backward + 2 * among)

    def _call(self, query, key, value, mask, *, params, rng, gates):
        query, key, value = (wide(x) for x in (query, key, value))
        logits, num_heads = Logits.of(self, query.shape[3]), query.shape[2]
        queries, some_query = _landmarks(query, mask.query_valid, self.num_landmarks)
        keys, some_key = _landmarks(key, mask.key_valid, self.num_landmarks)
        keys_of_heads = repeated(keys, num_heads)
        seen = _attend(queries, key, value, some_query, mask.key_valid, logits)
        among = _weights(queries, keys_of_heads, some_query, some_key, logits)
        inverse = _pseudoinverse(among, self.pinv_iterations)
        mixed = _product(inverse, seen.swapaxes(1, 2)).swapaxes(1, 2)
        return _attend(query, keys_of_heads, mixed, mask.query_valid, some_key, logits)


def _landmarks(x: Any, valid: Any, most: int) -> tuple[Any, Any]:
    """Means of segments, B M ..., for up to `most` landmarks; and which of them hold a token, b M."""
    batch, length = x.shape[:2]
    number = min(most, length)
    if valid is None:
        rank, count = jnp.arange(length)[None], jnp.full((1, 1), length)
    else:
        rank, count = jnp.cumsum(valid, 1) - 1, valid.sum(1, keepdims=True)
    short, longer = count // number, count % number
    size = short + (jnp.arange(number) < longer)
    end = longer * (short + 1)  # of the segments that are one longer
    segment = jnp.where(rank < end, rank // (short + 1), longer + (rank - end) // jnp.maximum(short, 1))
    # Padding is zero, and may be added anywhere.
    segment = jnp.broadcast_to(jnp.clip(segment, 0, number - 1), (batch, length))
    sums = jnp.zeros((batch, number, *x.shape[2:]), x.dtype).at[jnp.arange(batch)[:, None], segment].add(x)
    return sums / jnp.maximum(size, 1)[..., None, None], size > 0


def _attend(query, key, value, query_valid, key_valid, logits: Logits) -> Any:
    """Softmax attention of all that is real to all that is."""
    query_block, key_block = full_blocks(query.shape[0] * query.shape[2], query.shape[1], key.shape[1])
    return band_attention(
        query, key, value, Mask(query_valid=query_valid, key_valid=key_valid), before=None, after=None,
        query_block=query_block, key_block=key_block, logits=logits, dropout_rate=0.0, dropout=None,
    )[0]  # fmt: skip


def _weights(queries, keys, some_query, some_key, logits: Logits) -> Any:
    """The softmax among landmarks, B N M M, rows and columns of those without a token being 0."""
    scores = jnp.einsum("BMNH,BPNH->BNMP", queries, keys, precision=lax.Precision.HIGHEST)
    allowed = (some_query[:, :, None] & some_key[:, None, :])[:, None]
    scores = jnp.where(allowed, logits.cap(scores * logits.scale)[0], jnp.finfo(scores.dtype).min)
    return jnp.where(allowed, jax.nn.softmax(scores, axis=-1), 0)


def _pseudoinverse(matrix: Any, iterations: int) -> Any:
    """Of matrices ... M P whose rows sum to 1, or are 0: ... P M. What is 0 stays 0."""
    norm = matrix.sum(-2).max(-1)[..., None, None]
    identity = jnp.eye(matrix.shape[-2], dtype=matrix.dtype)

    def turn(inverse, _):
        both = _product(matrix, inverse)
        inner = 15 * identity - _product(both, 7 * identity - both)
        return _product(inverse, 13 * identity - _product(both, inner)) / 4, None

    return lax.scan(turn, matrix.mT / jnp.where(norm > 0, norm, 1), length=iterations)[0]
