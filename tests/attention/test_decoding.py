"""Decoding: one token at a time gives what the causal pass over all gives, in arrays that never change."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from attention import Full, Linear, Mask, Window, bytes_of
from tests.attention.cases import (
    BATCH,
    HEAD_DIM,
    LENGTH,
    NUM_HEADS,
    Inputs,
    cases,
    first_cases,
    forward,
    inputs,
)
from tests.attention.tolerances import assert_close

PROMPT = 20
ALL = pytest.mark.parametrize("case", [x for x in cases() if x.variant.capabilities.decoding], ids=str)
FIRST = pytest.mark.parametrize(
    "case", [x for x in first_cases() if x.variant.capabilities.decoding], ids=str
)


def tokens_of(given: Inputs) -> dict:
    """What `prefill` and `step` take by token; a shared key is said to be None."""
    tokens = {"query": given.query, "key": given.key, "value": given.value}
    return tokens | ({} if given.gates is None else {"gates": given.gates})


def sizes_of(given: Inputs) -> dict:
    num_kv_heads, value_dim = given.value.shape[2:]
    return {
        "num_heads": NUM_HEADS,
        "num_kv_heads": num_kv_heads,
        "head_dim": HEAD_DIM,
        "value_dim": value_dim,
    }


@functools.partial(jax.jit, static_argnums=(0, 3))
def decode(variant, given: Inputs, lengths, steps: int, cache=None):
    """Outputs of a prompt of `lengths` (without `cache`), of `steps` more tokens of each row; the cache."""
    tokens, prompt = tokens_of(given), None
    if cache is None:
        head = {name: x if x is None else x[:, :PROMPT] for name, x in tokens.items()}
        prompt, cache = variant.prefill(**head, lengths=lengths, max_length=LENGTH, params=given.params)

    def one(cache, step):
        index = (lengths + step)[:, None, None, None]
        now = {name: x if x is None else jnp.take_along_axis(x, index, 1) for name, x in tokens.items()}
        output, cache = variant.step(**now, cache=cache, params=given.params)
        return cache, output[:, 0]

    cache, outputs = jax.lax.scan(one, cache, jnp.arange(steps))
    return prompt, outputs.swapaxes(0, 1), cache


@ALL
def test_steps_after_a_prompt_equal_the_causal_pass(case):
    """Prompts of different lengths in one batch; the cache keeps the shapes and dtypes that it began with."""
    given = inputs(case.variant)
    expected, _ = forward(case.variant, given, Mask(causal=True))
    lengths = jnp.asarray([PROMPT, PROMPT - 7])
    prompt, outputs, cache = decode(case.variant, given, lengths, LENGTH - PROMPT)
    for row, length in enumerate(lengths.tolist()):
        assert_close(prompt[row, :length], expected[row, :length], what=f"prompt of row {row}")
        following = expected[row, length : length + LENGTH - PROMPT]
        assert_close(outputs[row], following, what=f"steps of row {row}", loosen=3)
    empty = case.variant.init_cache(batch=BATCH, max_length=LENGTH, **sizes_of(given))
    assert jax.tree.map(jnp.shape, cache) == jax.tree.map(jnp.shape, empty)
    assert jax.tree.map(jnp.result_type, cache) == jax.tree.map(jnp.result_type, empty)


@FIRST
def test_steps_from_nothing_equal_the_causal_pass(case):
    """What the cache of no token holds counts for nothing."""
    given = inputs(case.variant)
    expected, _ = forward(case.variant, given, Mask(causal=True))
    empty = case.variant.init_cache(batch=BATCH, max_length=LENGTH, **sizes_of(given))
    _, outputs, _ = decode(case.variant, given, jnp.zeros(BATCH, int), LENGTH, empty)
    assert_close(outputs, expected, loosen=3)


@FIRST
def test_beyond_the_longest_a_row_is_right_or_not_a_number(case):
    """Never a number that leaves out what was lost."""
    variant, given = case.variant, inputs(case.variant)
    expected, _ = forward(variant, given, Mask(causal=True))
    short = LENGTH - 9
    empty = variant.init_cache(batch=BATCH, max_length=short, **sizes_of(given))
    _, outputs, _ = decode(variant, given, jnp.zeros(BATCH, int), LENGTH, empty)
    assert_close(outputs[:, :short], expected[:, :short], loosen=3)
    beyond = np.asarray(outputs[:, short:])
    if not np.isnan(beyond).all():
        assert_close(beyond, expected[:, short:], loosen=3, dtype="float32")


def cache_bytes(name: str, max_length: int, **fields) -> int:
    sizes = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "value_dim": 16}
    variant = attention.make(name, **fields)
    return bytes_of(jax.eval_shape(lambda: variant.init_cache(batch=3, max_length=max_length, **sizes)))


def test_bytes_by_hand():
    """Two heads of keys and values, 8 and 16 numbers of 4 bytes for each token, in three rows; lengths."""
    of_token = 3 * 2 * (8 + 16) * 4
    assert cache_bytes("full", 1000) == cache_bytes("dense", 1000) == 1000 * of_token + 12
    assert cache_bytes("window", 1000, window_size=128) == 128 * of_token + 12
    assert cache_bytes("window", 100, window_size=128) == 100 * of_token + 12
    assert cache_bytes("retention", 1000) == 3 * 4 * 8 * 16 * 4
    assert cache_bytes("linear", 1000) == 3 * 2 * 8 * (16 + 1) * 4 + 3 * 2 * 4 + 12
    assert cache_bytes("none", 1000) == 0


@pytest.mark.parametrize(
    "name", ["window", "dilated", "linear", "performer", "retention", "gated_linear", "delta", "mean", "none"]
)
def test_windows_and_states_take_the_same_whatever_the_length(name):
    assert cache_bytes(name, 2**12) == cache_bytes(name, 2**20)


def test_pools_take_less_than_all_keys():
    """A sixteenth of them, and what is near."""
    near = cache_bytes("pooled", 2**12) - cache_bytes("full", 2**12) / 16
    assert math.isclose(cache_bytes("pooled", 2**16), cache_bytes("full", 2**16) / 16 + near, rel_tol=0.01)


def test_an_empty_prompt_leaves_an_empty_cache():
    given = inputs(Linear(), length=0)
    output, cache = Linear().prefill(given.query, given.key, given.value, max_length=LENGTH)
    assert output.shape == given.query.shape[:3] + given.value.shape[3:]
    empty = Linear().init_cache(batch=BATCH, max_length=LENGTH, **sizes_of(given))
    assert all((a == b).all() for a, b in zip(cache, empty, strict=True))


def test_bfloat16():
    variant = Full()
    given = inputs(variant, dtype=jnp.bfloat16)
    expected, _ = forward(variant, given, Mask(causal=True))
    _, outputs, cache = decode(variant, given, jnp.full(BATCH, PROMPT), LENGTH - PROMPT)
    assert outputs.dtype == cache.key.dtype == jnp.bfloat16
    assert_close(outputs, expected[:, PROMPT:])


def refused(match: str, use, kind: type[Exception] = ValueError) -> None:
    with pytest.raises(kind, match=match):
        use()


@pytest.mark.usefixtures("as_users_run")
def test_wrong_use_is_refused():
    variant, given = Window(window_size=4), inputs(Window(window_size=4))
    prompt = (given.query, given.key, given.value)
    refused("37 tokens, but max_length is 36", lambda: variant.prefill(*prompt, max_length=36))
    for length in (0, 2.5, True, 2**31):
        refused(f"max_length={length}", lambda length=length: variant.prefill(*prompt, max_length=length))
    for lengths in (jnp.ones(3, int), jnp.ones((2, 1), int), jnp.ones(2), jnp.ones(2, bool)):
        refused(r"lengths must be of shape \(2,\)", lambda lengths=lengths: variant.prefill(
            *prompt, max_length=LENGTH, lengths=lengths))  # fmt: skip
    refused("lengths", lambda: variant.prefill(*prompt, max_length=LENGTH, lengths=[1, 2]), TypeError)
    cache = variant.init_cache(batch=BATCH, max_length=LENGTH, **sizes_of(given))
    refused("query .* has 37 tokens; step takes one", lambda: variant.step(*prompt, cache))
    one = tuple(x[:, :1] for x in prompt)
    single = variant.init_cache(batch=1, max_length=LENGTH, **sizes_of(given))
    refused("window: cache", lambda: variant.step(*one, single))
    one_head = one[0], one[1][:, :, :1], one[2][:, :, :1]
    refused(r"the cache holds \(2, 4\) .* got \(1, 4\)", lambda: variant.step(*one_head, cache))
    dropping = Window(window_size=4, dropout_rate=0.5)
    refused("dropout_rate=0.5 needs rng", lambda: dropping.step(*one, cache))
