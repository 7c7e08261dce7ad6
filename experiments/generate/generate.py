"""Tokens that a model writes after a prompt, one by one."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from experiments.generate.sampling import Sampling, choose
from experiments.model import decoding
from experiments.model.transformer import Transformer
from experiments.training import train
from experiments.training.trained import Trained


def generate(
    model: Trained, prompts: list[np.ndarray], num_tokens: int, sampling: Sampling, seed: int = 0
) -> np.ndarray:
    """B `num_tokens` int32: what the model writes after each prompt (int32, one token at least).

    Compiled once for a number of prompts, the longest of them and `num_tokens`. What a row draws depends on
    `seed` and the row. Raises ValueError for a model that cannot write, an empty prompt, a `num_tokens`
    below 1, or predictions that are not finite; NotImplementedError for a mixer that cannot decode.
    """
    if num_tokens < 1:
        raise ValueError(f"num_tokens={num_tokens} is not accepted; it must be at least 1")
    if not prompts or any(prompt.size == 0 for prompt in prompts):
        raise ValueError("a prompt of no token is not accepted; it must have at least 1")
    lengths = np.array([prompt.size for prompt in prompts], np.int32)
    tokens = np.zeros((len(prompts), lengths.max()), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: prompt.size] = prompt
    graph, rng = train.graph(model.config, model.task), jax.random.key(seed)
    written, finite = _written(graph, sampling, num_tokens, model.params, tokens, lengths, rng)
    if not finite:
        raise ValueError("what the model predicts is not finite: nothing can be drawn from it")
    return np.asarray(written)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _written(graph: Any, sampling: Sampling, num_tokens: int, params, tokens, lengths, rng):
    """The tokens, and whether all that they were drawn from was finite."""
    model: Transformer = nnx.merge(graph, params)
    longest = tokens.shape[1] + num_tokens
    logits, memory = decoding.prefill(model, tokens, lengths, max_length=longest)

    def one(carry, index):
        logits, memory = carry
        token = choose(logits, jax.random.fold_in(rng, index), sampling)
        return decoding.step(model, token, memory), (token, jnp.isfinite(logits).all())

    _, (written, finite) = lax.scan(one, (logits, memory), jnp.arange(num_tokens))
    return written.T, finite.all()
