"""A gated recurrent unit as a mixer, B T D -> B T D."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attention import Flops, Mask
from experiments.model.positions import Place
from experiments.model.recurrent import Recurrent, check_decodes, check_mask, real


@dataclasses.dataclass(frozen=True)
class GRU(Recurrent):
    """A gated recurrent unit, whose state is I = num_heads * head_dim numbers wide.

    r, z = sigmoid(W x_t + U h_{t-1} + b), n = tanh(W' x_t + r * U' h_{t-1} + b'),
    h_t = (1 - z) * n + z * h_{t-1}, and y_t = O h_t; a two-sided one reads from both ends, each with weights
    of its own, and O takes both states. (Cho et al. 2014; the reset gate comes after the product with U', as
    `nnx.GRUCell` has it, whose weights these are, and `torch.nn.GRU`, but that U has no bias.)

    Time O(T), token after token: a device waits T times. Memory O(T). It never is full attention.
    """

    name: ClassVar[str] = "gru"

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """None: all of its products are with kernels."""
        return Flops(0, 0)

    def module(
        self, *, model_dim: int, inner_dim: int, causal: bool, kernel_init: Any, dtype: Any, rngs: nnx.Rngs
    ) -> "GRUMixer":
        return GRUMixer(model_dim, inner_dim, causal=causal, kernel_init=kernel_init, dtype=dtype, rngs=rngs)


class GRUCache(NamedTuple):
    """What decoding carries: the state after the tokens that were read."""

    state: Float[Array, "B I"]


class GRUMixer(nnx.Module):
    """The layer of `GRU`. A padded token leaves the state as it is, and its output is zero."""

    def __init__(
        self,
        model_dim: int,
        inner_dim: int,
        *,
        causal: bool,
        kernel_init: nnx.Initializer,
        dtype: Any,
        rngs: nnx.Rngs,
    ):
        def cell() -> nnx.GRUCell:
            return nnx.GRUCell(model_dim, inner_dim, kernel_init=kernel_init, dtype=dtype, rngs=rngs)

        self.inner_dim, self.causal = inner_dim, causal
        self.ahead, self.back = cell(), None if causal else cell()
        self.output = nnx.Linear(
            inner_dim * (1 if causal else 2), model_dim,
            use_bias=False, kernel_init=kernel_init, dtype=dtype, rngs=rngs,
        )  # fmt: skip

    def __call__(
        self, x: Float[Array, "B T D"], mask: Mask, rng: Key[Array, ""] | None = None
    ) -> Float[Array, "B T D"]:
        check_mask("gru", mask, self.causal)
        start = self.init_cache(x.shape[0], x.shape[1]).state
        states, _ = _along(self.ahead, x, mask.key_valid, start)
        if self.back is not None:
            behind, _ = _along(self.back, x, mask.key_valid, start, reverse=True)
            states = jnp.concatenate([states, behind], axis=-1)
        return self.output(states)

    def init_cache(self, batch: int, max_length: int) -> GRUCache:
        """Of sequences of which nothing was read. `max_length` has no bearing: the state does not grow."""
        del max_length
        return GRUCache(jnp.zeros((batch, self.inner_dim), jnp.float32))

    def prefill(
        self, x: Float[Array, "B T D"], lengths: Int[Array, " B"] | None, max_length: int
    ) -> tuple[Float[Array, "B T D"], GRUCache]:
        """The outputs of a prompt, and the cache after it. Tokens from `lengths` on are padding."""
        check_decodes("gru", self.causal)
        start = self.init_cache(x.shape[0], max_length).state
        states, last = _along(self.ahead, x, real(lengths, x.shape[1]), start)
        return self.output(states), GRUCache(last)

    def step(
        self, x: Float[Array, "B 1 D"], cache: GRUCache, place: Place
    ) -> tuple[Float[Array, "B 1 D"], GRUCache]:
        """The output of the next token, and the cache after it."""
        check_decodes("gru", self.causal)
        states, last = _along(self.ahead, x, None, cache.state)
        return self.output(states), GRUCache(last)


def _along(
    cell: nnx.GRUCell,
    x: Float[Array, "B T D"],
    valid: Bool[Array, "#B T"] | None,
    start: Float[Array, "B I"],
    *,
    reverse: bool = False,
) -> tuple[Float[Array, "B T I"], Float[Array, "B I"]]:
    """The states after each token, zero after padded ones, and the last state, in float32."""
    # Not the cell itself, which would project each token alone: one product for all takes a fraction of that.
    projected = jnp.moveaxis(cell.dense_i(x), 1, 0)
    steps = projected, None if valid is None else jnp.moveaxis(valid, 1, 0)[..., None]

    def step(state: Any, token: Any) -> tuple[Any, Any]:
        arrived, real = token
        arrived, kept = (y.astype(jnp.float32) for y in (arrived, cell.dense_h(state)))
        (in_r, in_z, in_n), (kept_r, kept_z, kept_n) = (jnp.split(y, 3, -1) for y in (arrived, kept))
        update = jax.nn.sigmoid(in_z + kept_z)
        candidate = jnp.tanh(in_n + jax.nn.sigmoid(in_r + kept_r) * kept_n)
        new = (1 - update) * candidate + update * state
        if real is None:
            return new, new
        return jnp.where(real, new, state), jnp.where(real, new, 0)

    last, states = jax.lax.scan(step, start, steps, reverse=reverse)
    return jnp.moveaxis(states, 0, 1), last
