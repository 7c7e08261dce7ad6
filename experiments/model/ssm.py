"""A selective state-space layer as a mixer, B T D -> B T D."""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from attention import Flops, Mask
from attention.check import check_count
from experiments.model.positions import Place
from experiments.model.recurrent import Recurrent, check_decodes, check_mask, real

CHUNK = 64  # tokens whose states are written out at once
LEAST_STEP, MOST_STEP = 1e-3, 1e-1  # step sizes before training, log-uniform between
WIDEST_STATE = 1024


@dataclasses.dataclass(frozen=True)
class SSM(Recurrent):
    """A selective state space: a diagonal linear recurrence whose steps, inputs and outputs follow the token.

    For each of I = num_heads * head_dim channels, a state of N = `state_dim` numbers,

        h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t x_t,    y_t = C_t . h_t + D x_t,

    Delta_t = softplus(low-rank linear(x_t)) for each channel, B_t and C_t = linear(x_t) for all channels, A =
    -exp(A_log) < 0 and D learned; x and z are SiLU of linear projections of the input, and the layer's output
    is O (y * z). (Gu and Dao 2023, "Mamba", algorithm 2 and section 3.4.) A starts as -1 .. -N, Delta
    without an input log-uniform in [0.001, 0.1], its rank is D / 16.

    Time O(T I N); memory O(T I + C I N) for chunks of C tokens, which are made again in the backward pass.
    Departures: the convolution before x is the model's own, `model.conv_width`, on D channels and without an
    activation; I is that of attention, where Mamba has 2 D. A two-sided layer reads from both ends, each with
    a selection of its own, and O takes both. It never is full attention.
    """

    name: ClassVar[str] = "ssm"
    state_dim: int = 16

    def __post_init__(self):
        check_count(self, "state_dim", most=WIDEST_STATE)

    def flops(
        self, *, batch, query_length, key_length, num_heads, num_kv_heads, head_dim, value_dim, causal
    ) -> Flops:
        """What is added to the state and what is read from it, as linear attention counts them.

        Decays, and what the backward pass makes again of a chunk, are elementwise and not counted.
        """
        products = 2 * num_heads * head_dim * self.state_dim * (1 if causal else 2)
        forward = 2 * batch * query_length * products
        return Flops(forward, 2 * forward)

    def module(
        self, *, model_dim: int, inner_dim: int, causal: bool, kernel_init: Any, dtype: Any, rngs: nnx.Rngs
    ) -> "SSMMixer":
        return SSMMixer(
            model_dim, inner_dim, self.state_dim,
            causal=causal, kernel_init=kernel_init, dtype=dtype, rngs=rngs,
        )  # fmt: skip


class SSMCache(NamedTuple):
    """What decoding carries: the state after the tokens that were read."""

    state: Float[Array, "B I N"]


class Selective(nnx.Module):
    """The recurrence of `SSM` in one direction, B T I -> B T I in float32."""

    def __init__(self, inner_dim: int, state_dim: int, rank: int, *, rngs: nnx.Rngs, **options: Any):
        self.rank, self.state_dim = rank, state_dim
        self.x_proj = nnx.Linear(inner_dim, rank + 2 * state_dim, use_bias=False, rngs=rngs, **options)
        self.dt_proj = nnx.Linear(
            rank, inner_dim, dtype=jnp.float32, rngs=rngs,
            kernel_init=_uniform(rank**-0.5), bias_init=_inverse_softplus_of_steps,
        )  # fmt: skip
        # A vector, I * N: matrices decay, and these are not to (as the paper's authors have it).
        self.A_log = nnx.Param(jnp.tile(jnp.log(jnp.arange(1, state_dim + 1, dtype=jnp.float32)), inner_dim))
        self.D = nnx.Param(jnp.ones(inner_dim))

    def __call__(
        self,
        x: Float[Array, "B T I"],
        valid: Bool[Array, "#B T"] | None,
        start: Float[Array, "B I N"],
        *,
        reverse: bool = False,
    ) -> tuple[Float[Array, "B T I"], Float[Array, "B I N"]]:
        """The outputs, zero of padded tokens, and the last state."""
        low, b, c = jnp.split(
            self.x_proj(x).astype(jnp.float32), [self.rank, self.rank + self.state_dim], axis=-1
        )
        x, delta = x.astype(jnp.float32), jax.nn.softplus(self.dt_proj(low))
        if valid is not None:  # no step is made
            delta = jnp.where(valid[..., None], delta, 0)
        a = -jnp.exp(self.A_log[...].reshape(-1, self.state_dim))
        y, last = selective_scan(x, delta, a, b, c, start, reverse=reverse)
        y = y + self.D[...] * x
        return y if valid is None else jnp.where(valid[..., None], y, 0), last


class SSMMixer(nnx.Module):
    """The layer of `SSM`. A padded token leaves the state as it is, and its output is zero."""

    def __init__(
        self,
        model_dim: int,
        inner_dim: int,
        state_dim: int,
        *,
        causal: bool,
        kernel_init: nnx.Initializer,
        dtype: Any,
        rngs: nnx.Rngs,
    ):
        options: Any = {"kernel_init": kernel_init, "dtype": dtype, "rngs": rngs}
        rank = math.ceil(model_dim / 16)

        def selective() -> Selective:
            return Selective(inner_dim, state_dim, rank, **options)

        self.inner_dim, self.state_dim, self.causal, self.dtype = inner_dim, state_dim, causal, dtype
        self.in_proj = nnx.Linear(model_dim, 2 * inner_dim, use_bias=False, **options)
        self.ahead, self.back = selective(), None if causal else selective()
        sides = 1 if causal else 2
        self.out_proj = nnx.Linear(sides * inner_dim, model_dim, use_bias=False, **options)

    def __call__(
        self, x: Float[Array, "B T D"], mask: Mask, rng: Key[Array, ""] | None = None
    ) -> Float[Array, "B T D"]:
        check_mask("ssm", mask, self.causal)
        return self._mixed(x, mask.key_valid, self.init_cache(x.shape[0], x.shape[1]).state)[0]

    def init_cache(self, batch: int, max_length: int) -> SSMCache:
        """Of sequences of which nothing was read. `max_length` has no bearing: the state does not grow."""
        del max_length
        return SSMCache(jnp.zeros((batch, self.inner_dim, self.state_dim), jnp.float32))

    def prefill(
        self, x: Float[Array, "B T D"], lengths: Int[Array, " B"] | None, max_length: int
    ) -> tuple[Float[Array, "B T D"], SSMCache]:
        """The outputs of a prompt, and the cache after it. Tokens from `lengths` on are padding."""
        check_decodes("ssm", self.causal)
        start = self.init_cache(x.shape[0], max_length).state
        y, last = self._mixed(x, real(lengths, x.shape[1]), start)
        return y, SSMCache(last)

    def step(
        self, x: Float[Array, "B 1 D"], cache: SSMCache, place: Place
    ) -> tuple[Float[Array, "B 1 D"], SSMCache]:
        """The output of the next token, and the cache after it."""
        check_decodes("ssm", self.causal)
        y, last = self._mixed(x, None, cache.state)
        return y, SSMCache(last)

    def _mixed(
        self, x: Float[Array, "B T D"], valid: Bool[Array, "#B T"] | None, start: Float[Array, "B I N"]
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B I N"]]:
        inner, gate = jnp.split(jax.nn.silu(self.in_proj(x)), 2, axis=-1)
        y, last = self.ahead(inner, valid, start)
        y = y * gate
        if self.back is not None:
            behind, _ = self.back(inner, valid, start, reverse=True)
            y = jnp.concatenate([y, behind * gate], axis=-1)
        return self.out_proj(y.astype(self.dtype)), last


def selective_scan(
    x: Float[Array, "B T I"],
    delta: Float[Array, "B T I"],
    a: Float[Array, "I N"],
    b: Float[Array, "B T N"],
    c: Float[Array, "B T N"],
    start: Float[Array, "B I N"],
    *,
    reverse: bool = False,
    chunk: int = CHUNK,
) -> tuple[Float[Array, "B T I"], Float[Array, "B I N"]]:
    """C_t . h_t with h_t = exp(delta_t a) h_{t-1} + delta_t b_t x_t, and the last state.

    `reverse`: from the last token to the first. States are written out for a chunk of tokens at a time, in
    the backward pass too.
    """
    length = x.shape[1]
    chunk = max(1, min(chunk, length))
    count = -(-length // chunk)

    def parts(y: Any) -> Any:  # what is filled up makes no step
        y = jnp.pad(y, ((0, 0), (0, count * chunk - length), (0, 0)))
        return jnp.moveaxis(y.reshape(y.shape[0], count, chunk, y.shape[2]), 1, 0)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def step(state: Any, tokens: Any) -> tuple[Any, Any]:
        x, delta, b, c = tokens
        decays = jnp.exp(delta[..., None] * a)
        added = (delta * x)[..., None] * b[:, :, None]
        decays, sums = jax.lax.associative_scan(_after, (decays, added), axis=1, reverse=reverse)
        states = sums + decays * state[:, None]
        return states[:, 0 if reverse else -1], (states * c[:, :, None]).sum(-1)

    last, y = jax.lax.scan(step, start, tuple(map(parts, (x, delta, b, c))), reverse=reverse)
    return jnp.moveaxis(y, 0, 1).reshape(x.shape[0], -1, x.shape[2])[:, :length], last


def _after(one: Any, other: Any) -> Any:
    """The recurrences h -> decay h + added of two stretches of tokens, one after the other."""
    return one[0] * other[0], one[1] * other[0] + other[1]


def _uniform(most: float) -> nnx.Initializer:
    return lambda key, shape, dtype=jnp.float32, **_: jax.random.uniform(key, shape, dtype, -most, most)


def _inverse_softplus_of_steps(key, shape, dtype=jnp.float32, **_):
    low, high = math.log(LEAST_STEP), math.log(MOST_STEP)
    steps = jnp.exp(jax.random.uniform(key, shape, dtype, low, high))
    return steps + jnp.log(-jnp.expm1(-steps))
