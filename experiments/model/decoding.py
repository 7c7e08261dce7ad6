"""A model token by token: what it predicts after a prompt, and after each further token."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from attention import bytes_of
from experiments.model.positions import Place
from experiments.model.transformer import Block, Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Decoding:
    """What is remembered of each row: by block, the convolution's and the mixer's; and how many tokens, B."""

    blocks: list[dict[str, Any]]
    length: Any
    max_length: int = dataclasses.field(metadata={"static": True})


def prefill(
    model: Transformer, tokens: Int[Array, "B T"], lengths: Int[Array, " B"] | None = None, *, max_length: int
) -> tuple[Float[Array, "B O"], Decoding]:
    """Logits after the last token of each prompt, and what later steps need, up to `max_length` tokens.

    `lengths`: how many tokens of each row are real, all in front, 1 at least; None: all T. Raises ValueError
    for a model that does not predict from the past alone, for a prompt that is empty or longer than
    `max_length`, and for a `max_length` beyond what was learned; NotImplementedError for a mixer that cannot.
    """
    if not model.causal or model.head != "token":
        raise ValueError("only a causal model with a prediction for each token can be continued")
    batch, length = tokens.shape
    if not 1 <= length <= max_length:
        raise ValueError(f"a prompt of {length} tokens; it must have from 1 to max_length={max_length}")
    if model.positions == "learned" and max_length > model.max_length:
        raise ValueError(f"max_length={max_length}, but learned positions end at {model.max_length}")
    lengths = jnp.full(batch, length, jnp.int32) if lengths is None else lengths.astype(jnp.int32)
    x, caches = model.embed(tokens), []
    for block in model.blocks:
        x, cache = _through(block, x, "prefill", {"convolution": (lengths,), "mixer": (lengths, max_length)})
        caches.append(cache)
    last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], 1)
    return model.predict(last)[:, 0], Decoding(caches, lengths, max_length)


def step(
    model: Transformer, tokens: Int[Array, " B"], decoding: Decoding
) -> tuple[Float[Array, "B O"], Decoding]:
    """Logits after one more token of each row.

    Beyond `max_length` tokens nothing that is predicted means anything: whoever counts them stops there.
    """
    place = Place(decoding.length, decoding.max_length)
    x, caches = model.embed(tokens[:, None], place), []
    for block, held in zip(model.blocks, decoding.blocks, strict=True):
        x, cache = _through(
            block, x, "step", {"convolution": (held["convolution"],), "mixer": (held["mixer"], place)}
        )
        caches.append(cache)
    return model.predict(x)[:, 0], Decoding(caches, decoding.length + 1, decoding.max_length)


def cache_bytes(graph: Any, params: Any, length: int) -> int | None:
    """Bytes that decoding one sequence of up to `length` tokens takes beside parameters; None if it cannot.

    `graph` and `params` as `nnx.merge` takes them; of parameters shapes and dtypes do.
    """

    def after_one_token(params: Any) -> Decoding:
        return prefill(nnx.merge(graph, params), jnp.zeros((1, 1), jnp.int32), max_length=length)[1]

    try:
        return bytes_of(jax.eval_shape(after_one_token, params).blocks)
    except (NotImplementedError, ValueError):
        return None


def _through(block: Block, x, method: str, given: dict[str, tuple]) -> tuple[Any, dict[str, Any]]:
    """A block's output, and the caches of what in it mixes tokens."""
    caches: dict[str, Any] = {"convolution": None}
    if block.convolution is not None:
        x, caches["convolution"] = block.convolution.decode(x, method, *given["convolution"])
    x, caches["mixer"] = block.mixer.decode(x, method, *given["mixer"])
    return x if block.feed_forward is None else block.feed_forward(x, rng=None), caches
