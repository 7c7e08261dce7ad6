"""Native sparse attention: compressed blocks of keys, chosen ones exactly and a window, mixed by gates."""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from attention.band import band_attention
from attention.blocks import band_block
from attention.blockwise import Sides, blockwise
from attention.cache import (
    Tokens,
    attend_chosen,
    attend_one,
    attend_placed,
    last_tokens,
    put,
    with_token,
)
from attention.check import check_count, check_field, check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import for_tokens
from attention.interface import Attention, Capabilities, Flops, Limit
from attention.logits import Logits
from attention.mask import Mask
from attention.operands import wide
from attention.routed import blocks_of_queries, routed_attention
from attention.tiles import LONGEST_SLAB, slab_or_tiles, without_peeling
from attention.visibility import NOWHERE, Interval, Placed, of_real_queries, visible

MOST_COMPRESSED = 2**10  # what it shares with blocks is written out in the program
FORCED = 3  # the first block, the own one and the one before it
SCORED = 64  # queries that are held against all compressed keys at once


@dataclasses.dataclass(frozen=True)
class NativeSparse(Attention):
    """Three softmaxes of each query, over compressed keys, over chosen blocks and over a window, gated.

    output_t = sum_c sigmoid(gate_c) softmax(scale q_t.k^c) v^c over the branches c, one gate for each, token
    and head (Yuan et al. 2025, eq. 5), all causal:

    - compressed: key and value i are sum_p a_p k_(i d + p), sum_p b_p v_(i d + p), p < compress_block, d =
      compress_stride, seen once their last token is not after t (eq. 7); a and b are learned, for each
      key/value head, and begin as means;
    - selected: the keys up to t of the `num_selected` blocks of `select_block` keys that weigh most. A
      block's importance is the weight that the first branch has on the compressed keys that overlap with it,
      once for each stretch of d tokens that they share, summed over the query heads of a key/value head (eq.
      8-10). The first block, the own one and the one before it are always among them (section 4.1);
    - window: the last `window_size` keys, the own one included.

    Departures: a weight for each place in a block instead of an MLP with intra-block positions, so that
    outputs stay linear in the values; all branches share one key and value projection, as the layer has one
    for each; a block on which there is no weight at all is not selected. Importance is summed as logarithms,
    where no weight is lost to rounding, and has no gradient.

    Blocks lie by index: a padded key takes up room in them and adds nothing; a block of padding is neither
    seen nor selected. With n = num_selected, b = select_block, w = window_size, d = compress_stride O(T (n b
    + w + T / d)) time and O(n T) memory. It is full attention only for gates that leave the selected branch
    alone, and as many blocks as there are.
    """

    name: ClassVar[str] = "native_sparse"

    compress_block: int = 32
    compress_stride: int = 16
    select_block: int = 64
    num_selected: int = 16
    window_size: int = 512
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen for each branch

    def __post_init__(self):
        check_count(self, "compress_block", most=MOST_COMPRESSED)
        check_count(self, "compress_stride", most=self.compress_block)
        check_count(self, "select_block")
        check_count(self, "num_selected", least=FORCED)
        check_count(self, "window_size")
        check_softmax_fields(self)
        check_count(self, "query_block", optional=True)
        both = {field: getattr(self, field) for field in ("compress_block", "select_block")}
        accepted = "a divisor of " + " and of ".join(f"{field}={value!r}" for field, value in both.items())
        divides = not any(value % self.compress_stride for value in both.values())
        check_field(self, "compress_stride", accepted, divides)

    @property
    def num_gates(self) -> int:
        return 3

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=False, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=True, time="O(T (n b + w + T / d))", memory="O(n T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        condition = "num_selected >= T / select_block and gates of 0, 1 and 0, which come from the tokens"
        return Limit(None, condition)

    def init(self, rng, *, num_heads, num_kv_heads, head_dim, model_dim, max_length):
        """`key_weights` and `value_weights` (K compress_block): 1 / compress_block, so that it starts at the
        mean."""
        mean = jnp.full((num_kv_heads, self.compress_block), 1 / self.compress_block, jnp.float32)
        return {"key_weights": mean, "value_weights": mean}

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """Pairs of the branches; compression; compressed logits once more for the choice, forward alone."""
        place = np.arange(query_length, dtype=np.int64)
        compressed = int(np.maximum(self._compressed(place + 1), 0).sum())
        past = np.minimum(place // self.select_block, self.num_selected - 1)
        selected = int((place % self.select_block + 1 + past * self.select_block).sum())
        near = int(np.minimum(place + 1, self.window_size).sum())
        counted = softmax_flops(
            compressed + selected + near, batch=batch, num_heads=num_heads, head_dim=head_dim,
            value_dim=value_dim,
        )  # fmt: skip
        choice = 2 * batch * num_heads * compressed * head_dim
        blocks = max(self._compressed(key_length), 0)
        mixing = 2 * batch * num_kv_heads * blocks * self.compress_block * (head_dim + value_dim)
        return Flops(counted.forward + choice + mixing, counted.backward + 2 * mixing)

    def _compressed(self, length):
        """Compressed keys of the first `length` tokens; 0 or less where there is none."""
        return (length - self.compress_block) // self.compress_stride + 1

    def _call(self, query, key, value, mask, *, params, rng, gates):
        assert gates is not None  # or the call would have been refused
        logits = Logits.of(self, query.shape[3])
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        weights = [self._weights(params, name, key.shape[2]) for name in ("key_weights", "value_weights")]
        keys, values = (
            compress(x, weight, self.compress_stride) for x, weight in zip((key, value), weights, strict=True)
        )
        real = blocks_with_keys(mask.key_valid, key.shape[1], self.compress_block, self.compress_stride)
        rows = query.shape[0] * query.shape[2]
        branches = [
            self._attend_selected(query, key, value, keys, real, mask, logits, dropout),
            band_attention(
                query, key, value, mask, before=self.window_size - 1, after=0,
                query_block=self.query_block or band_block(rows, self.window_size, query.shape[1]),
                key_block=None, logits=logits, dropout_rate=self.dropout_rate, dropout=dropout,
            )[0],
        ]  # fmt: skip
        if keys.shape[1]:
            branches.insert(0, self._attend_compressed(query, keys, values, real, mask, logits, rng))
        else:
            gates = gates[..., 1:]
        shares = jax.nn.sigmoid(wide(gates))
        parts = [shares[..., c, None] * branch for c, branch in enumerate(branches)]
        return functools.reduce(jnp.add, parts)

    def _weights(self, params, name: str, num_heads: int):
        """K compress_block, repeated where queries are the keys, of more heads than there are weights for."""
        weights = params[name]
        if weights.ndim != 2 or weights.shape[1] != self.compress_block or num_heads % weights.shape[0]:
            raise ValueError(
                f"native_sparse: params[{name!r}] must have shape {(num_heads, self.compress_block)} (key "
                f"heads, compress_block), got {weights.shape}; `init` makes it"
            )
        return jnp.repeat(weights, num_heads // weights.shape[0], axis=0)

    def _attend_compressed(self, query, keys, values, real, mask: Mask, logits: Logits, rng):
        """The first branch, for compressed keys B E K H and values B E K V, E above 0."""
        length, num_blocks = query.shape[1], keys.shape[1]
        last = np.maximum(self._compressed(np.arange(length) + 1), 0) - 1
        first = np.zeros_like(last)
        rows = query.shape[0] * query.shape[2]
        query_block = self.query_block or band_block(rows, min(num_blocks, LONGEST_SLAB), length)
        tiles = slab_or_tiles(first, last, min(query_block, length), None)
        if mask.given():
            tiles = without_peeling(tiles)
        interval = Interval(
            *of_real_queries(mask, *(jnp.asarray(x, jnp.int32)[None, None] for x in (first, last)))
        )
        position = jnp.where(real, jnp.arange(num_blocks, dtype=jnp.int32), NOWHERE)[:, None]
        rng = None if rng is None else jax.random.fold_in(rng, 1)
        dropout = for_tokens(rng, self.dropout_rate, query.shape, values.shape)
        return blockwise(
            query, keys.astype(query.dtype), values.astype(query.dtype), tiles=tiles, visible=visible,
            sides=Sides(interval, Placed(position), dropout=dropout), logits=logits,
            dropout_rate=self.dropout_rate,
        )[0]  # fmt: skip

    def _attend_selected(self, query, key, value, keys, real, mask: Mask, logits: Logits, dropout):
        size = self._size(key.shape[1])
        selectable = blocks_with_keys(mask.key_valid, key.shape[1], size, size, whole=False)
        query_, keys = (lax.stop_gradient(x) for x in (query, keys.astype(query.dtype)))

        def select(query_BWNH, seeing_bW, place_W):
            may = selectable[:, None] & seeing_bW[:, :, None]
            return self._selected(query_BWNH, keys, real, may, place_W[None], size, logits)

        chosen = blocks_of_queries(select, query_, mask.query_valid, 0, SCORED)
        return routed_attention(
            query, key, value, chosen, mask, block_size=size, query_block=self.query_block, logits=logits,
            dropout_rate=self.dropout_rate, dropout=dropout,
        )[0]  # fmt: skip

    def _size(self, length: int) -> int:
        """One block that holds all is as good as a longer one."""
        return min(self.select_block, -(-length // self.compress_stride) * self.compress_stride)

    def _selected(self, query, keys, real, may, place, size: int, logits: Logits):
        """Blocks that weigh most, B K W M, up to each query's `place`, b W, of those it `may` select, b W J.

        J is none. `keys` are compressed, B E K H, and `real` says which there are, b E.
        """
        seen = real[:, None] & (jnp.arange(keys.shape[1]) < self._compressed(place + 1)[..., None])
        weights, own = log_weights(query, keys, seen, logits), (place // size)[..., None]
        block = jnp.arange(may.shape[2], dtype=jnp.int32)
        forced = (block == 0) | (block >= own - 1)
        stretches = self.compress_block // self.compress_stride, size // self.compress_stride
        score = jnp.where(forced[:, None], jnp.inf, importance(weights, *stretches, len(block)))
        score = jnp.where((may & (block <= own))[:, None], score, -jnp.inf)
        score, index = lax.top_k(score, min(self.num_selected, len(block)))
        return jnp.where(score > -jnp.inf, index, len(block))

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        tokens, number = last_tokens(key, value, mask, max_length), max(self._compressed(max_length), 0)
        there = (jnp.arange(number) < self._compressed(tokens.length)[:, None])[..., None, None]
        compressed = []
        for x, name in ((key, "key_weights"), (value, "value_weights")):
            padded = jnp.pad(x, ((0, 0), (0, max_length - x.shape[1]), (0, 0), (0, 0)))
            mixed = compress(padded, self._weights(params, name, key.shape[2]), self.compress_stride)
            compressed.append(jnp.where(there, mixed, 0).astype(x.dtype))
        return _Cache(tokens, *compressed)

    def _step(self, query, key, value, cache, *, params, gates):
        assert gates is not None  # or the call would have been refused
        tokens, logits = with_token(cache.tokens, key, value), Logits.of(self, query.shape[3])
        length, slots, number = tokens.length, tokens.key.shape[1], cache.key.shape[1]
        last, shares = length - 1, jax.nn.sigmoid(wide(gates))
        near = last[:, None] - jnp.arange(min(self.window_size, slots))
        output = shares[..., 2, None] * attend_placed(query, tokens, near, logits, reach=self.reach)
        cache = _Cache(tokens, *self._with_compressed(cache, tokens, params))
        there = jnp.arange(number) < self._compressed(length)[:, None]
        if number:
            coarse, _ = attend_one(query, cache.key, cache.value, there[:, None], logits)
            output += shares[..., 0, None] * coarse
        size = self._size(slots)
        may = jnp.ones((1, 1, -(-slots // size)), bool)
        chosen = self._selected(query, cache.key, there, may, last[:, None], size, logits)[:, :, 0]
        return output + shares[..., 1, None] * attend_chosen(query, tokens, chosen, size, logits), cache

    def _with_compressed(self, cache: "_Cache", tokens: Tokens, params) -> list:
        """Compressed keys and values with one more, where its last token is the newest."""
        behind = tokens.length - self.compress_block
        entry = behind // self.compress_stride
        closes = (behind >= 0) & (behind % self.compress_stride == 0)
        slots, number = tokens.key.shape[1], cache.key.shape[1]
        if not number:
            return [cache.key, cache.value]
        slot = (behind[:, None] + jnp.arange(self.compress_block)) % slots
        after = []
        for x, held, name in (
            (tokens.key, cache.key, "key_weights"), (tokens.value, cache.value, "value_weights"),
        ):  # fmt: skip
            members = jnp.take_along_axis(x, slot[..., None, None], 1)
            mixed = compress(members, self._weights(params, name, x.shape[2]), self.compress_stride)
            after.append(put(held, mixed.astype(held.dtype), entry, closes))
        return after


class _Cache(NamedTuple):
    """What decoding remembers: all tokens, compressed keys B E K H and compressed values B E K V."""

    tokens: Tokens
    key: Any
    value: Any


def compress(
    x: Float[Array, "B S K H"], weights: Float[Array, "K P"], stride: int
) -> Float[Array, "B E K H"]:
    """sum_p weights_p x_(i stride + p) for each i of which all places are there, float32 or wider."""
    batch, length, num_heads, width = x.shape
    stretches, parts = length // stride, weights.shape[1] // stride
    num_blocks = max(stretches - parts + 1, 0)
    if not num_blocks:
        return jnp.zeros((batch, 0, num_heads, width), wide(x).dtype)
    x = wide(x)[:, : stretches * stride].reshape(batch, stretches, stride, num_heads, width)
    weights = weights.astype(x.dtype).reshape(num_heads, parts, stride)
    mixed = jnp.einsum("BSPKH,KMP->MSBKH", x, weights)  # what stretch S gives as part M of a block
    # Part m of block i is stretch i + m: rows that are one longer begin one later each.
    mixed = mixed.reshape(-1, *mixed.shape[2:])
    mixed = jnp.pad(mixed, ((0, parts), *((0, 0),) * 3)).reshape(parts, stretches + 1, *mixed.shape[1:])
    return jnp.moveaxis(mixed[:, :num_blocks].sum(0), 0, 1)


def blocks_with_keys(
    valid: Bool[Array, "b S"] | None, length: int, size: int, stride: int, *, whole: bool = True
) -> Bool[Array, "b E"]:
    """Which blocks have a key that is no padding; not `whole`: a last one may have fewer than `size`."""
    num_blocks = max((length - size) // stride + 1, 0) if whole else -(-length // stride)
    if valid is None:
        return jnp.ones((1, num_blocks), bool)
    before = jnp.pad(jnp.cumsum(valid, 1, dtype=jnp.int32), ((0, 0), (1, 0)))
    begins = np.arange(num_blocks) * stride
    return before[:, np.minimum(begins + size, length)] > before[:, begins]


def log_weights(
    query: Float[Array, "B W N H"], keys: Float[Array, "B E K H"], seen: Bool[Array, "b W E"], logits: Logits
) -> Float[Array, "B K W E"]:
    """The logarithm of the softmax's weights, summed over the query heads of a key/value head."""
    shape = (*query.shape[:2], keys.shape[2], query.shape[2] // keys.shape[2], query.shape[3])
    score = jnp.einsum(
        "BWKGH,BEKH->BGKWE", query.reshape(shape), keys, precision=lax.Precision.HIGHEST,
        preferred_element_type=wide(query).dtype,
    )  # fmt: skip
    score = jnp.where(seen[:, None, None], logits.cap(score * logits.scale)[0], -jnp.inf)
    greatest = jnp.maximum(score.max(-1, keepdims=True, initial=-jnp.inf), jnp.finfo(score.dtype).min)
    total = jnp.log(jnp.maximum(jnp.exp(score - greatest).sum(-1, keepdims=True), 1))
    score = score - greatest - total
    return score[:, 0] if score.shape[1] == 1 else jax.nn.logsumexp(score, axis=1)


def importance(
    weights: Float[Array, "B K W E"], parts: int, stretches: int, num_blocks: int
) -> Float[Array, "B K W J"]:
    """The logarithm of each block's sum over its stretches of the weights of all keys that lie on them.

    Key i lies on the `parts` stretches from i on, block j is the `stretches` from j stretches on.
    """
    # Key j stretches + o - (parts - 1) shares so many with block j, for each offset o.
    offset = np.arange(parts + stretches - 1)
    shared = np.minimum(np.minimum(offset, offset[::-1]) + 1, min(parts, stretches))
    rows = -(-len(offset) // stretches)
    fill = (num_blocks + rows - 1) * stretches - (parts - 1) - weights.shape[-1]
    padded = jnp.pad(weights, (*((0, 0),) * 3, (parts - 1, max(fill, 0))), constant_values=-jnp.inf)
    padded = padded[..., : (num_blocks + rows - 1) * stretches]
    by_offset = padded.reshape(*weights.shape[:3], -1, stretches).swapaxes(-1, -2)
    terms = []
    for row in range(rows):
        counts = np.log(shared[row * stretches : (row + 1) * stretches]).astype(weights.dtype)
        terms.append(by_offset[..., : len(counts), row : row + num_blocks] + counts[:, None])
    greatest = functools.reduce(jnp.maximum, [x.max(-2) for x in terms])
    greatest = jnp.maximum(greatest, jnp.finfo(weights.dtype).min)
    masses = [jnp.exp(x - greatest[..., None, :]).sum(-2) for x in terms]
    return jnp.log(functools.reduce(jnp.add, masses)) + greatest
