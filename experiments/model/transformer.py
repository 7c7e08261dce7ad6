"""A transformer around any mixer."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key

from attention import Mask
from experiments.fields import Config
from experiments.model.mixer import AttentionMixer
from experiments.model.positions import Place, sinusoidal
from experiments.model.recurrent import Recurrent
from experiments.model.registry import Mixer
from experiments.tasks.task import Task

INITS: dict[str, Callable[[float], nnx.Initializer]] = {
    "xavier": lambda std: nnx.initializers.xavier_uniform(),
    "he": lambda std: nnx.initializers.he_normal(),
    "normal": lambda std: nnx.initializers.normal(std),
}
NORMS = ("pre", "post")
POSITIONS = ("learned", "sinusoidal", "rotary", "none")
DTYPES = ("float32", "bfloat16")


class Convolution(nnx.Module):
    """Depthwise causal convolution over the last `width` tokens, B T D -> B T D."""

    def __init__(self, width: int, model_dim: int, *, dtype: Any, rngs: nnx.Rngs):
        # Each channel is a sum of `width` terms, so this keeps their variance.
        self.kernel = nnx.Param(nnx.initializers.normal(width**-0.5)(rngs.params(), (width, model_dim)))
        self.dtype = dtype

    def __call__(self, x: Float[Array, "B T D"], valid: Bool[Array, "B T"] | None) -> Float[Array, "B T D"]:
        width = self.kernel.shape[0]
        if valid is not None:
            x = jnp.where(valid[..., None], x, 0)
        return self._slid(jnp.pad(x, ((0, 0), (width - 1, 0), (0, 0))))

    def prefill(
        self, x: Float[Array, "B T D"], lengths: Int[Array, " B"]
    ) -> tuple[Float[Array, "B T D"], Any]:
        """Of a prompt whose rows have `lengths` tokens in front, and the last `width` - 1 of each row's."""
        width = self.kernel.shape[0]
        padded = jnp.pad(x, ((0, 0), (width - 1, 0), (0, 0)))
        last = lengths[:, None] + jnp.arange(width - 1)
        return self._slid(padded), jnp.take_along_axis(padded, last[..., None], 1)

    def step(self, x: Float[Array, "B 1 D"], cache: Float[Array, "B w D"]) -> tuple[Any, Any]:
        """One more token of each row."""
        near = jnp.concatenate([cache, x], 1)
        return self._slid(near), near[:, 1:]

    def _slid(self, padded) -> Any:
        width, kernel = self.kernel.shape[0], self.kernel[...].astype(self.dtype)
        length = padded.shape[1] - width + 1
        # A sum of shifted copies: XLA's grouped convolution is slower on the CPU.
        return sum(padded[:, i : i + length] * kernel[i] for i in range(width))


class FeedForward(nnx.Module):
    """Two layers with a GELU between, B T D -> B T D."""

    def __init__(self, model_dim: int, mlp_dim: int, **options: Any):
        self.wide = nnx.Linear(model_dim, mlp_dim, **options)
        self.narrow = nnx.Linear(mlp_dim, model_dim, **options)

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.narrow(nnx.gelu(self.wide(x)))


class Residual(nnx.Module):
    """A branch with its residual, its dropout and its norm: before the branch, or after the sum."""

    def __init__(self, branch: nnx.Module, model: Config, *, dtype: Any, rngs: nnx.Rngs):
        self.branch, self.pre = branch, model.norm == "pre"
        self.norm = nnx.LayerNorm(model.model_dim, dtype=dtype, rngs=rngs)
        self.dropout = nnx.Dropout(model.dropout_rate)

    def __call__(self, x: Float[Array, "B T D"], *rest: Any, rng: Any) -> Float[Array, "B T D"]:
        branch: Any = self.branch
        y = branch(self.norm(x) if self.pre else x, *rest)
        return self._joined(x, self.dropout(y, deterministic=rng is None, rngs=rng))

    def decode(self, x: Float[Array, "B T D"], method: str, *rest: Any) -> tuple[Float[Array, "B T D"], Any]:
        """The branch's `prefill` or `step` in its place, and the cache that it gives."""
        y, cache = getattr(self.branch, method)(self.norm(x) if self.pre else x, *rest)
        return self._joined(x, y), cache

    def _joined(self, x, y):
        return x + y if self.pre else self.norm(x + y)


class Block(nnx.Module):
    """Convolution (if any), mixer, feed-forward (if any)."""

    def __init__(self, mixer: nnx.Module, model: Config, *, dtype: Any, rngs: nnx.Rngs):
        def residual(branch: nnx.Module) -> Residual:
            return Residual(branch, model, dtype=dtype, rngs=rngs)

        width, mlp_dim, options = model.model_dim, model.mlp_dim, {"dtype": dtype, "rngs": rngs}
        kernel_init = INITS[model.init](model.init_std)
        self.convolution = (
            residual(Convolution(model.conv_width, width, **options)) if model.conv_width else None
        )
        self.mixer = residual(mixer)
        self.feed_forward = (
            residual(FeedForward(width, mlp_dim, kernel_init=kernel_init, **options)) if mlp_dim else None
        )

    def __call__(
        self, x: Float[Array, "B T D"], mask: Mask, rng: Key[Array, ""] | None
    ) -> Float[Array, "B T D"]:
        rngs = [None] * 4 if rng is None else list(jax.random.split(rng, 4))
        if self.convolution is not None:
            x = self.convolution(x, mask.key_valid, rng=rngs[0])
        x = self.mixer(x, mask, rngs[1], rng=rngs[2])
        if self.feed_forward is not None:
            x = self.feed_forward(x, rng=rngs[3])
        return x


class Transformer(nnx.Module):
    """Tokens B T int32 -> logits B T O (head "token") or B O (head "pooled"), float32.

    A causal task gives a decoder, another an encoder. `make_mixer(layer, rngs)` gives each layer's mixer.
    """

    def __init__(
        self,
        model: Config,
        task: Task,
        make_mixer: Callable[[int, nnx.Rngs], nnx.Module],
        *,
        max_length: int,
        rngs: nnx.Rngs,
    ):
        self.dtype = jnp.dtype(model.compute_dtype)
        self.causal, self.head, self.max_length = task.causal, task.head, max_length
        self.positions, self.remat = model.positions, model.remat
        embed = {"embedding_init": nnx.initializers.normal(model.init_std), "rngs": rngs}
        self.embedding = nnx.Embed(task.vocab_size, model.model_dim, **embed)
        learned = model.positions == "learned"
        self.position_embedding = nnx.Embed(max_length, model.model_dim, **embed) if learned else None
        self.dropout = nnx.Dropout(model.dropout_rate)
        self.blocks = nnx.List(
            [
                Block(make_mixer(layer, rngs), model, dtype=self.dtype, rngs=rngs)
                for layer in range(model.num_layers)
            ]
        )
        pre = model.norm == "pre"
        self.norm = nnx.LayerNorm(model.model_dim, dtype=self.dtype, rngs=rngs) if pre else None
        self.output = nnx.Linear(
            model.model_dim, task.num_outputs,
            # In float32 whatever computes the rest: at a logit of 20 bfloat16 is 1/8 nat away.
            kernel_init=INITS[model.init](model.init_std), dtype=jnp.float32, rngs=rngs,
        )  # fmt: skip

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        valid: Bool[Array, "B T"] | None = None,
        rng: Key[Array, ""] | None = None,
    ) -> Float[Array, "..."]:
        """`valid`: True = real, False = padding. `rng`: for dropout and draws; without it, evaluation.

        Raises ValueError where T is above max_length and something depends on it.
        """
        mask = Mask.for_self(causal=self.causal, valid=valid)
        rngs = [None] * (len(self.blocks) + 1) if rng is None else jax.random.split(rng, len(self.blocks) + 1)
        x = self.embed(tokens)
        x = self.dropout(x, deterministic=rng is None, rngs=rngs[-1])
        run = nnx.remat(Block.__call__) if self.remat else Block.__call__
        for block, block_rng in zip(self.blocks, rngs, strict=False):
            x = run(block, x, mask, block_rng)
        if self.head == "pooled":
            x = _mean(x if self.norm is None else self.norm(x), valid)
            return self.output(x.astype(jnp.float32))
        return self.predict(x)

    def embed(self, tokens: Int[Array, "B T"], place: Place | None = None) -> Float[Array, "B T D"]:
        """Of tokens that stand from 0 on, or of the one token of each row at its `place`."""
        length, x = tokens.shape[1] if place is None else place.max_length, self.embedding(tokens)
        if self.position_embedding is not None:
            if length > self.max_length:
                raise ValueError(
                    f"{length} tokens, but learned positions end at max_length={self.max_length}"
                )
            x += self.position_embedding(jnp.arange(length) if place is None else place.index[:, None])
        if self.positions == "sinusoidal":
            table = sinusoidal(length, x.shape[-1])
            # As in the paper: the table, of size 1, would drown tokens that start much smaller.
            x = x * x.shape[-1] ** 0.5 + (table if place is None else table[place.index][:, None])
        return x.astype(self.dtype)

    def predict(self, x: Float[Array, "B T D"]) -> Float[Array, "B T O"]:
        """Logits of what the last block gives, float32."""
        return self.output((x if self.norm is None else self.norm(x)).astype(jnp.float32))


def _mean(x: Float[Array, "B T D"], valid: Bool[Array, "B T"] | None) -> Float[Array, "B D"]:
    """Mean of the real tokens, in float32; zero where there are none."""
    weights = jnp.ones(x.shape[:2]) if valid is None else valid.astype(jnp.float32)
    total = jnp.einsum("btd,bt->bd", x.astype(jnp.float32), weights)
    return total / jnp.maximum(weights.sum(1), 1)[:, None]


def build(
    model: Config,
    mixers: Sequence[Mixer],
    task: Task,
    rngs: nnx.Rngs,
    *,
    with_entropy: bool = False,
    with_inputs: bool = False,
    mesh: Mesh | None = None,
) -> Transformer:
    """The model of a config, the mixers in its layers in turn; the rest as AttentionMixer has it."""
    max_length = model.max_length or max((task.length, *task.eval_lengths))

    def make_mixer(layer: int, rngs: nnx.Rngs) -> nnx.Module:
        mixer = mixers[layer % len(mixers)]
        options: Any = {
            "model_dim": model.model_dim,
            "kernel_init": INITS[model.init](model.init_std),
            "dtype": jnp.dtype(model.compute_dtype),
            "rngs": rngs,
        }
        if isinstance(mixer, Recurrent):
            return mixer.module(inner_dim=model.num_heads * model.head_dim, causal=task.causal, **options)
        return AttentionMixer(
            mixer,
            **options,
            num_heads=model.num_heads,
            num_kv_heads=model.num_kv_heads or model.num_heads,
            head_dim=model.head_dim,
            value_dim=model.value_dim or model.head_dim,
            max_length=max_length,
            rotate=model.positions == "rotary",
            with_entropy=with_entropy,
            with_inputs=with_inputs,
            mesh=mesh,
        )

    return Transformer(model, task, make_mixer, max_length=max_length, rngs=rngs)
