"""The contract of every variant: a frozen dataclass that holds hyperparameters and binds a pure function.

Letters: B batch, T query length, S key length, N query heads, K key/value heads, G = N/K query heads that
share one, H key width, V value width, D model dim, F gates a head, C blocks of queries, M tiles of each, W
block length, R rounds of hashing, E pools of a level, P members of a pool. A small letter is that or 1.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from attention import decoding
from attention.check import check_call
from attention.dropout import Dropout
from attention.mask import Mask
from attention.operands import gates_of_tokens, is_empty, operands

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """Static facts of a variant, with its present hyperparameters. Tests prove each."""

    causal: bool  # honours Mask.causal
    two_sided: bool  # honours a mask that is not causal
    interior_padding: bool  # padding anywhere gives valid rows what they get without it
    segments: bool  # honours segments: packed equals separate
    explicit_positions: bool  # honours query_positions and key_positions
    cross_attention: bool  # T may differ from S, and keys may be those of another sequence
    grouped_queries: bool  # fewer key/value heads than query heads
    value_width: bool  # V may differ from H
    shared_key: bool  # the keys are the queries: `key` must be None
    decoding: bool  # has init_cache, prefill and step
    sequence_parallel: bool  # `attend_sharded` shares a sequence among devices
    exact: bool  # softmax over exactly the keys that it declares, no approximation
    equivariant: bool  # unmasked, permuting the tokens permutes the output
    learned: bool  # `init` gives trainable parameters
    time: str  # cost in T, forward and backward, e.g. "O(T w)"
    memory: str  # temporaries in T


@dataclasses.dataclass(frozen=True)
class Limit:
    """Where a variant is full attention: the hyperparameters to replace, or None and the reason why never."""

    hyperparameters: Mapping[str, Any] | None
    condition: str


@dataclasses.dataclass(frozen=True)
class Flops:
    """Matrix-product floating point operations (a multiply-add is two) of one call."""

    forward: int
    backward: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observation:
    """What only one kind of attention has to show, for each head."""

    values: Float[Array, "B N"]
    meaning: str = dataclasses.field(metadata={"static": True})
    # A head below it works badly; None: any value may be sound.
    least: float | None = dataclasses.field(default=None, metadata={"static": True})


class Attention(abc.ABC):
    """A variant of attention. Subclasses are frozen dataclasses, validated when built, and hashable."""

    name: ClassVar[str]
    # Whether outputs are sums and no weighted means, so that the layer has to normalise each head's.
    unnormalised: ClassVar[bool] = False

    @property
    def num_gates(self) -> int:
        """Numbers that a head needs for each token besides query, key and value, any real ones."""
        return 0

    @property
    @abc.abstractmethod
    def capabilities(self) -> Capabilities: ...

    @property
    @abc.abstractmethod
    def reach(self) -> float:
        """Tokens that one layer can look back; math.inf if all."""

    @abc.abstractmethod
    def limit(self, length: int) -> Limit:
        """Hyperparameters under which this is full attention for up to `length` queries and keys."""

    @abc.abstractmethod
    def flops(
        self,
        *,
        batch: int,
        query_length: int,
        key_length: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int,
        causal: bool,
    ) -> Flops:
        """Analytic count of the matrix products that the definition asks for, recomputation included."""

    def __call__(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"] | None,
        value: Float[Array, "B S K V"],
        mask: Mask,
        *,
        params: Params = {},  # noqa: B006 (never written to)
        rng: Key[Array, ""] | None = None,
        gates: Float[Array, "B T N F"] | None = None,
    ) -> Float[Array, "B T N V"]:
        """Attend. `key=None`: the keys are the queries.

        Raises TypeError for what is no array, Mask or rng, and ValueError for arguments that do not fit, each
        named, with what is accepted; NotImplementedError for a mask, or anything else, that this variant
        cannot honour.
        """
        check_call(self, query, key, value, mask, params=params, rng=rng, gates=gates)
        if is_empty(query, value):
            return jnp.zeros((*query.shape[:3], value.shape[3]), query.dtype)
        arrays = operands(query, key, value, mask)
        output = self._call(*arrays, mask, params=params, rng=rng, gates=gates_of_tokens(gates, mask))
        return output[..., : value.shape[3]].astype(query.dtype)

    @abc.abstractmethod
    def _call(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"],
        value: Float[Array, "B S K V"],
        mask: Mask,
        *,
        params: Params,
        rng: Key[Array, ""] | None,
        gates: Float[Array, "B T N F"] | None,
    ) -> Float[Array, "B T N V"]:
        """The output for arguments that fit, none of them empty: padded tokens are zero, keys are there."""

    def init(
        self,
        rng: Key[Array, ""],
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        model_dim: int,
        max_length: int,
    ) -> Params:
        """Trainable parameters, {} unless the variant learns."""
        del rng, num_heads, num_kv_heads, head_dim, model_dim, max_length
        return {}

    def init_cache(
        self,
        *,
        batch: int,
        max_length: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int,
        dtype: Any = jnp.float32,
    ) -> Any:
        """What decoding remembers before the first token: a tree of arrays, whose shapes never change.

        For rows of up to `max_length` tokens, query, key and value of `dtype`. Raises as `prefill` does.
        """
        return decoding.empty_cache(
            self, batch, max_length, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
            value_dim=value_dim, dtype=dtype,
        )  # fmt: skip

    def prefill(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B T K H"] | None,
        value: Float[Array, "B T K V"],
        *,
        max_length: int,
        lengths: Int[Array, " B"] | None = None,
        params: Params = {},  # noqa: B006 (never written to)
        gates: Float[Array, "B T N F"] | None = None,
    ) -> tuple[Float[Array, "B T N V"], Any]:
        """The causal output of a prompt, as calling gives it, and the cache after it.

        `lengths`: how many tokens of each row are real, all in front; None: all T. Raises as calling does,
        NotImplementedError if the variant cannot decode, and ValueError for a prompt above `max_length`.
        """
        return decoding.prefill(
            self, query, key, value, max_length=max_length, lengths=lengths, params=params, gates=gates
        )

    def step(
        self,
        query: Float[Array, "B 1 N H"],
        key: Float[Array, "B 1 K H"] | None,
        value: Float[Array, "B 1 K V"],
        cache: Any,
        *,
        params: Params = {},  # noqa: B006 (never written to)
        gates: Float[Array, "B 1 N F"] | None = None,
    ) -> tuple[Float[Array, "B 1 N V"], Any]:
        """The output for one more token of each row, as the causal pass over all would give, and the cache.

        A row with more tokens than the `max_length` of its cache, where that matters, is NaN. Raises as
        `prefill` does, and ValueError for a cache that is not of such arrays.
        """
        return decoding.step(self, query, key, value, cache, params=params, gates=gates)

    def _cached(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B T K H"],
        value: Float[Array, "B T K V"],
        mask: Mask,
        *,
        max_length: int,
        params: Params,
        gates: Float[Array, "B T N F"] | None,
    ) -> Any:
        """The cache after a prompt of at least one token, `mask` with `key_valid`; zeros if none is real.

        With `shared_key` the keys are the queries, N heads of them beside K of values.
        """
        raise NotImplementedError(f"{self.name} says that it decodes, and has no _cached")

    def _step(
        self,
        query: Float[Array, "B 1 N H"],
        key: Float[Array, "B 1 K H"],
        value: Float[Array, "B 1 K V"],
        cache: Any,
        *,
        params: Params,
        gates: Float[Array, "B 1 N F"] | None,
    ) -> tuple[Float[Array, "B 1 N V"], Any]:
        """`step` for arguments that fit, as `_cached` has them."""
        raise NotImplementedError(f"{self.name} says that it decodes, and has no _step")

    def observe(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"] | None,
        mask: Mask,
        weights: Float[Array, "B N T S"],
        *,
        params: Params = {},  # noqa: B006 (never written to)
        gates: Float[Array, "B T N F"] | None = None,
    ) -> Mapping[str, Observation]:
        """What a diagnosis shows of this variant beside what all have, by name; {} if there is nothing.

        `weights` is the `attention_matrix` of these arguments, in evaluation.
        """
        del query, key, mask, weights, params, gates
        return {}


class SoftmaxAttention(Attention):
    """A variant whose output is a softmax-weighted mean, so that parts of it merge by their log-sum-exp.

    A subclass writes `_attend` in place of `_call`.
    """

    def attend(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"] | None,
        value: Float[Array, "B S K V"],
        mask: Mask,
        *,
        params: Params = {},  # noqa: B006 (never written to)
        rng: Key[Array, ""] | None = None,
        gates: Float[Array, "B T N F"] | None = None,
    ) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
        """Output and, in float32 or wider, the log of the sum of exponentials of each row's logits.

        The log-sum-exp is taken before dropout. A row that sees nothing has output 0 and -inf. Raises as
        calling does.
        """
        check_call(self, query, key, value, mask, params=params, rng=rng, gates=gates)
        if is_empty(query, value):
            wide = jnp.promote_types(query.dtype, jnp.float32)
            output = jnp.zeros((*query.shape[:3], value.shape[3]), query.dtype)
            return output, jnp.full(query.shape[:3], -jnp.inf, wide)
        arrays = operands(query, key, value, mask)
        gates = gates_of_tokens(gates, mask)
        output, lse = self._attend(*arrays, mask, params=params, rng=rng, gates=gates)
        return output[..., : value.shape[3]].astype(query.dtype), lse

    def matched_key(
        self, query: Float[Array, "B T N H"], key: Float[Array, "B S K H"] | None
    ) -> Float[Array, "B S K H"]:
        """The keys as the logits see them: logit = scale q.k of these."""
        return query if key is None else key

    @abc.abstractmethod
    def _attend(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"],
        value: Float[Array, "B S K V"],
        mask: Mask,
        *,
        params: Params,
        rng: Key[Array, ""] | None,
        gates: Float[Array, "B T N F"] | None,
    ) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
        """`attend` for arguments that fit, as `_call` has them."""

    def _attend_shard(
        self,
        query: Float[Array, "B T N H"],
        key: Float[Array, "B S K H"],
        value: Float[Array, "B S K V"],
        mask: Mask,
        *,
        axis_name: str,
        dropout: Dropout | None,
        params: Params,
        gates: Float[Array, "B T N F"] | None,
    ) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
        """`_attend` inside `shard_map` for one device's share of the sequence, T queries and S keys.

        The shares are of equal length, in order along `axis_name`. `dropout` and `gates` are those of these
        tokens, `params` those of all.
        """
        del query, key, value, mask, axis_name, dropout, params, gates
        raise NotImplementedError(f"{self.name} says it is sequence_parallel, and has no _attend_shard")

    def __call__(self, query, key, value, mask, *, params={}, rng=None, gates=None):  # noqa: B006
        return self.attend(query, key, value, mask, params=params, rng=rng, gates=gates)[0]

    def _call(self, query, key, value, mask, *, params, rng, gates):
        return self._attend(query, key, value, mask, params=params, rng=rng, gates=gates)[0]
