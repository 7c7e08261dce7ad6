"""Attention whose weights are made from a token alone, or from nothing but its position."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from attention.band import band_attention
from attention.blocks import full_blocks
from attention.cache import lengths_of, places, put, ring, unless_full
from attention.check import check_choice, check_count, check_softmax_fields
from attention.cost import count_pairs, softmax_flops
from attention.dropout import for_tokens
from attention.interface import Capabilities, Flops, Limit, SoftmaxAttention
from attention.logits import Logits
from attention.operands import repeated, wide
from attention.softmax import softmax_of
from attention.visibility import default_band

KINDS = ("dense", "random", "factorized")
MOST_RANK = 2**12


@dataclasses.dataclass(frozen=True)
class Synthesizer(SoftmaxAttention):
    """Every query attends to every key by its index: no key is ever compared with a query.

    output_t = sum_s softmax_s(x_ts / temperature) v_s (Tay et al. 2021, section 3), x by `kind`:

    - "dense": x_ts = relu(q_t A).b_s, A learned H x H and b_s one H-vector for each index (their section 3.1
      with the query's projection in place of their first layer's input);
    - "random": x_ts = R_ts, learned for each pair of indices (section 3.2);
    - "factorized": x_ts = r_t.c_s, learned vectors of `rank` numbers (their factorized random).

    Each head has its own. Indices up to the `max_length` of `init` are known, longer inputs are refused. No
    key projection is needed: `key` is None. O(T^2) time; O(T) memory, of "random" O(T^2), as many as it has
    parameters. It never is full attention, which compares.
    """

    name: ClassVar[str] = "synthesizer"

    kind: str = "dense"
    rank: int = 8  # of "factorized"
    temperature: float = 1.0
    softcap: float | None = None
    dropout_rate: float = 0.0

    scale: ClassVar[float] = 1.0

    def __post_init__(self):
        check_choice(self, "kind", KINDS)
        check_count(self, "rank", most=MOST_RANK)
        check_softmax_fields(self)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            causal=True, two_sided=True, interior_padding=False, segments=False, explicit_positions=False,
            cross_attention=False, grouped_queries=True, value_width=True, shared_key=True, decoding=True,
            sequence_parallel=False,
            exact=False, equivariant=False, learned=True,
            time="O(T^2)", memory="O(T^2)" if self.kind == "random" else "O(T)",
        )  # fmt: skip

    @property
    def reach(self) -> float:
        return math.inf

    def limit(self, length: int) -> Limit:
        return Limit(None, "never: no key is compared with a query")

    def init(self, rng, *, num_heads, num_kv_heads, head_dim, model_dim, max_length):
        """By kind `hidden` (N H H) and `by_index` (max_length N H), `logits` (N max_length max_length), or
        `query_index` and `key_index` (max_length N rank); logits start with a variance of about 1."""
        first, second = jax.random.split(rng)
        width = max(head_dim, 1)  # as operands have it

        def normal(rng, deviation, *shape):
            return deviation * jax.random.normal(rng, shape, jnp.float32)

        match self.kind:
            case "dense":
                return {
                    "hidden": normal(first, math.sqrt(2 / width), num_heads, width, width),
                    "by_index": normal(second, 1 / math.sqrt(width), max_length, num_heads, width),
                }
            case "random":
                return {"logits": normal(first, 1.0, num_heads, max_length, max_length)}
            case _:
                shape, deviation = (max_length, num_heads, self.rank), self.rank**-0.25
                return {
                    "query_index": normal(first, deviation, *shape),
                    "key_index": normal(second, deviation, *shape),
                }

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        if self.kind == "random":  # all pairs, seen or not, and nothing is recomputed
            forward = 2 * batch * num_heads * query_length * key_length * value_dim
            return Flops(forward, 2 * forward)
        pairs = count_pairs(*default_band(query_length, key_length, None, 0 if causal else None))
        width = head_dim if self.kind == "dense" else self.rank
        counted = softmax_flops(pairs, batch=batch, num_heads=num_heads, head_dim=width, value_dim=value_dim)
        hidden = 2 * batch * query_length * num_heads * head_dim**2 if self.kind == "dense" else 0
        return Flops(counted.forward + hidden, counted.backward + 2 * hidden)

    def _attend(self, query, key, value, mask, *, params, rng, gates):
        batch, length, num_heads, _ = query.shape
        dropout = for_tokens(rng, self.dropout_rate, query.shape, value.shape)
        logits = Logits.of(self, query.shape[3])
        if self.kind == "random":
            table = self._known(params, "logits", length, 1)[:, :length, :length].astype(wide(query).dtype)
            scores = logits.cap(table * logits.scale)[0][None, :, None]
            allowed = mask.to_array(length, length)[:, None, None]
            return softmax_of(jnp.where(allowed, scores, -jnp.inf), value, dropout, self.dropout_rate)
        rows, columns = (
            jnp.broadcast_to(x, (batch, *x.shape[-3:])).astype(query.dtype)
            for x in self._factors(query, params, length)
        )
        query_block, key_block = full_blocks(batch * num_heads, length, length)
        return band_attention(
            rows, columns, value, mask, before=None, after=0 if mask.causal else None,
            query_block=query_block, key_block=key_block, logits=logits, dropout_rate=self.dropout_rate,
            dropout=dropout,
        )  # fmt: skip

    def _factors(self, query, params, length: int):
        """What logits are products of: rows by query or, factorized, by index, b T N J; columns 1 S N J."""
        if self.kind == "factorized":
            row, column = (self._known(params, name, length)[None] for name in ("query_index", "key_index"))
            return row, column
        hidden = jnp.einsum("BTNH,NHJ->BTNJ", wide(query), params["hidden"].astype(wide(query).dtype))
        return jax.nn.relu(hidden), self._known(params, "by_index", length)[None]

    def _cached(self, query, key, value, mask, *, max_length, params, gates):
        length = lengths_of(mask)
        return _Values(ring(value, length, max_length), length)

    def _step(self, query, key, value, cache, *, params, gates):
        values, length = put(cache.value, value, cache.length), cache.length + 1
        slots, logits = values.shape[1], Logits.of(self, query.shape[3])
        last = jnp.minimum(length, slots) - 1
        if self.kind == "random":
            scores = self._known(params, "logits", slots, 1)[:, last, :slots].swapaxes(0, 1)
        else:
            rows, columns = self._factors(query, params, slots)
            row = rows[:, 0] if self.kind == "dense" else rows[0, last]
            scores = jnp.einsum("BNJ,SNJ->BNS", row, columns[0], preferred_element_type=row.dtype)
        scores = logits.cap(wide(scores) * logits.scale)[0][:, :, None, None]
        seen = (places(length, slots) >= 0)[:, None, None, None]
        output, _ = softmax_of(jnp.where(seen, scores, -jnp.inf), repeated(values, query.shape[2]))
        return unless_full(output, length, slots, self.reach), _Values(values, length)

    def _known(self, params, name: str, length: int, axis: int = 0):
        """What is learned for the first `length` indices."""
        table = params[name]
        if table.ndim != 3 or table.shape[axis] < length:
            raise ValueError(
                f"synthesizer: params[{name!r}] must have 3 axes and at least {length} indices on axis {axis}"
                f", as many as tokens, got shape {table.shape}; `init` makes it for up to max_length"
            )
        return table if axis else table[:length]


class _Values(NamedTuple):
    """What decoding remembers: values and how many tokens there were, B."""

    value: Any
    length: Any
