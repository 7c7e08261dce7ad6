"""Mixing along the sequence, B T D -> B T D: any attention between its projections."""

import dataclasses
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from attention import Attention, Mask, attend_sharded, attend_with_entropy
from experiments.model.positions import Place, rotary


class Inputs(NamedTuple):
    """What a layer's attention gets, and query and key as they are before a rotary model turns them."""

    query: Float[Array, "B T N H"]
    key: Float[Array, "B T K H"] | None
    gates: Float[Array, "B T N F"] | None
    params: dict[str, Any]
    plain_query: Float[Array, "B T N H"]
    plain_key: Float[Array, "B T K H"] | None


class AttentionMixer(nnx.Module):
    """Projections to queries, keys, values (and gates), a variant of attention, and a projection back.

    A variant whose keys are its queries gets no key projection. Heads whose outputs are sums and no means are
    normalised, each by its root mean square. What a variant learns are parameters of the mixer. Without an
    rng the variant runs as in evaluation: no dropout, and no draws. In training `with_entropy` leaves the sum
    of the entropies of all rows of weights as an `nnx.Intermediate`; in evaluation `with_inputs` leaves
    `Inputs` as one. The devices of `mesh` share each sequence.
    """

    def __init__(
        self,
        variant: Attention,
        *,
        num_heads: int,
        num_kv_heads: int,
        model_dim: int,
        head_dim: int,
        value_dim: int,
        max_length: int,
        rotate: bool,
        kernel_init: nnx.Initializer,
        dtype: Any,
        rngs: nnx.Rngs,
        with_entropy: bool = False,
        with_inputs: bool = False,
        mesh: Mesh | None = None,
    ):
        def project(*features: int) -> nnx.LinearGeneral:
            return nnx.LinearGeneral(
                model_dim, features, use_bias=False, kernel_init=kernel_init, dtype=dtype, rngs=rngs
            )

        self.variant, self.rotate, self.mesh = variant, rotate, mesh
        self.with_entropy, self.with_inputs = with_entropy, with_inputs
        self.query = project(num_heads, head_dim)
        self.key = None if variant.capabilities.shared_key else project(num_kv_heads, head_dim)
        self.value = project(num_kv_heads, value_dim)
        self.gates = project(num_heads, variant.num_gates) if variant.num_gates else None
        self.norm = nnx.RMSNorm(value_dim, dtype=dtype, rngs=rngs) if variant.unnormalised else None
        self.output = nnx.LinearGeneral(
            (num_heads, value_dim), model_dim, axis=(-2, -1),
            use_bias=False, kernel_init=kernel_init, dtype=dtype, rngs=rngs,
        )  # fmt: skip
        learned = variant.init(
            rngs.params(), num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
            model_dim=model_dim, max_length=max_length,
        )  # fmt: skip
        self.learned = nnx.data(jax.tree.map(nnx.Param, dict(learned)))

    def __call__(
        self, x: Float[Array, "B T D"], mask: Mask, rng: Key[Array, ""] | None = None
    ) -> Float[Array, "B T D"]:
        given, value = self._inputs(x), self.value(x)
        query, key = given.query, given.key
        variant: Any = in_evaluation(self.variant) if rng is None else self.variant
        options = {"params": given.params, "rng": rng, "gates": given.gates}
        if self.with_inputs and rng is None:
            self.sow(nnx.Intermediate, "inputs", given)
        if self.with_entropy and rng is not None:
            mixed, entropy = attend_with_entropy(variant, query, key, value, mask, **options)
            self.sow(nnx.Intermediate, "entropy", entropy.sum())
        elif self.mesh is not None:
            mixed, _ = attend_sharded(variant, query, key, value, mask, mesh=self.mesh, **options)
        else:
            mixed = variant(query, key, value, mask, **options)
        return self._joined(mixed)

    def prefill(
        self, x: Float[Array, "B T D"], lengths: Int[Array, " B"], max_length: int
    ) -> tuple[Float[Array, "B T D"], Any]:
        """A prompt whose rows have `lengths` real tokens in front, and what decoding remembers of it."""
        given = self._inputs(x)
        mixed, cache = in_evaluation(self.variant).prefill(
            given.query, given.key, self.value(x),
            max_length=max_length, lengths=lengths, params=given.params, gates=given.gates,
        )  # fmt: skip
        return self._joined(mixed), cache

    def step(self, x: Float[Array, "B 1 D"], cache: Any, place: Place) -> tuple[Float[Array, "B 1 D"], Any]:
        """One more token of each row."""
        given = self._inputs(x, place)
        mixed, cache = in_evaluation(self.variant).step(
            given.query, given.key, self.value(x), cache, params=given.params, gates=given.gates
        )
        return self._joined(mixed), cache

    def _inputs(self, x, place: Place | None = None) -> Inputs:
        plain_query = query = self.query(x)
        plain_key = key = None if self.key is None else self.key(x)
        if self.rotate:
            query, key = rotary(query, place), None if key is None else rotary(key, place)
        learned = jax.tree.map(lambda p: p[...], self.learned, is_leaf=lambda p: isinstance(p, nnx.Param))
        gates = None if self.gates is None else self.gates(x)
        return Inputs(query, key, gates, learned, plain_query, plain_key)

    def _joined(self, mixed):
        return self.output(mixed if self.norm is None else self.norm(mixed))


def in_evaluation(variant: Attention) -> Attention:
    """The same variant without dropout."""
    if not getattr(variant, "dropout_rate", 0.0):
        return variant
    return dataclasses.replace(variant, dropout_rate=0.0)  # pyright: ignore[reportArgumentType]
