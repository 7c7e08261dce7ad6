"""Exact attention to every d-th of near keys."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from attention.band import band_attention
from attention.blocks import band_block
from attention.cache import attend_placed, last_tokens, with_token
from attention.check import check_block_fields, check_count, check_softmax_fields
from attention.cost import softmax_flops
from attention.dropout import Dropout, for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.mask import Mask
from attention.state import from_the_end


@dataclasses.dataclass(frozen=True)
class Dilated(SoftmaxAttention):
    """Every query attends to `window_size` keys, its own and each `dilation`-th before it.

    Causal: t - s = 0, d, ..., (window_size - 1) d. Two-sided: as many ahead. The dilated sliding window of
    Longformer (Beltagy et al. 2020, section 3.1), with one dilation for all heads where theirs may have one
    each. Tokens of one remainder by d are one sequence, on which it is the window: no key between is visited.

    O(T window_size) time, O(T) memory. It is full attention if dilation == 1 and window_size >= max(T, S).
    Distances are counted by index: padding inside a sequence takes up room.
    """

    name: ClassVar[str] = "dilated"

    window_size: int = 64
    dilation: int = 4
    scale: float | None = None  # None: 1/sqrt(H)
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0
    query_block: int | None = None  # None: chosen from the window's size
    key_block: int | None = None  # None: the whole band of a block of queries, if that is short

    def __post_init__(self):
        check_count(self, "window_size")
        check_count(self, "dilation")
        check_softmax_fields(self)
        check_block_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=True, explicit_positions=False,
            cross_attention=True, grouped_queries=True, value_width=True, shared_key=False, decoding=True,
            sequence_parallel=False,
            exact=True, equivariant=False, learned=False, time="O(T w)", memory="O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return (self.window_size - 1) * self.dilation

    def limit(self, length: int) -> Limit:
        condition = "dilation == 1 and window_size >= max(T, S)"
        return Limit({"dilation": 1, "window_size": max(length, 1)}, condition)

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        position = np.arange(query_length, dtype=np.int64) + (key_length - query_length)
        back = np.minimum(self.window_size - 1, position // self.dilation)
        ahead = np.minimum(self.window_size - 1, (key_length - 1 - position) // self.dilation)
        pairs = int(np.maximum(back + (0 if causal else ahead) + 1, 0).sum())
        return softmax_flops(pairs, batch=batch, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        batch, length, num_heads, head_dim = query.shape
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        before, classes = self.window_size - 1, self.dilation
        if classes >= max(length, key.shape[1]):  # nobody is so far away
            before, classes = 0, 1
        rows = batch * classes * num_heads
        output, lse = band_attention(
            _by_class(query, classes), _by_class(key, classes), _by_class(value, classes),
            _classes_of(mask, query, key, classes), before=before, after=0 if mask.causal else before,
            query_block=self.query_block or band_block(rows, 2 * before + 1, length),
            key_block=self.key_block, logits=Logits.of(self, head_dim),
            dropout_rate=self.dropout_rate, dropout=_draws(dropout, batch, classes),
        )  # fmt: skip
        return _in_order(output, batch, length), _in_order(lse, batch, length)

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        return last_tokens(key, value, mask, min((self.window_size - 1) * self.dilation + 1, max_length))

    def _step(self, query, key, value, cache, *, params, gates):
        cache = with_token(cache, key, value)
        number = -(-cache.key.shape[1] // self.dilation)
        place = cache.length[:, None] - 1 - self.dilation * jnp.arange(number)
        return attend_placed(query, cache, place, Logits.of(self, query.shape[3]), reach=self.reach), cache


def _by_class(x: Any, classes: int) -> Any:
    """B T ... -> B*d T/d ..., the tokens of one remainder by d in a row of the batch, aligned at the end."""
    x = from_the_end(x, -(-x.shape[1] // classes) * classes)
    x = x.reshape(x.shape[0], -1, classes, *x.shape[2:]).swapaxes(1, 2)
    return x.reshape(-1, *x.shape[2:])


def _in_order(x: Any, batch: int, length: int) -> Any:
    """Back to B T ..., less what was filled in."""
    x = x.reshape(batch, -1, *x.shape[1:]).swapaxes(1, 2)
    x = x.reshape(batch, -1, *x.shape[3:])
    return x[:, x.shape[1] - length :]


def _classes_of(mask: Mask, query, key, classes: int) -> Mask:
    """The mask of the classes; keys that were filled in are padding."""
    arrays = {name: getattr(mask, name) for name in mask.given()}
    if key.shape[1] % classes:
        arrays.setdefault("key_valid", jnp.ones((1, key.shape[1]), bool))
    every = {name: jnp.broadcast_to(x, (query.shape[0], x.shape[1])) for name, x in arrays.items()}
    return Mask(mask.causal, **{name: _by_class(x, classes) for name, x in every.items()})


def _draws(dropout: Dropout | None, batch: int, classes: int) -> Dropout | None:
    if dropout is None:
        return None
    first, second = (
        jnp.moveaxis(_by_class(jnp.moveaxis(word, 3, 1), classes), 1, 3) for word in dropout.words
    )
    index = jnp.broadcast_to(dropout.key_index[:, 0], (batch, dropout.key_index.shape[2]))
    return Dropout((first, second), _by_class(index, classes)[:, None])
