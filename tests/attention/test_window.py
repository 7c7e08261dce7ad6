"""What only `window` can say; the laws over it are in test_laws_*.py."""

import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, Window
from tests.attention.cases import forward, inputs
from tests.attention.masks import positions, visible
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"window_size": 5, "query_block": 8},  # one tile holds a block's band
    {"window_size": 5, "query_block": 8, "key_block": 4},  # tile by tile
    {"window_size": 1},
    {"window_size": 17, "query_block": 4, "key_block": 8, "softcap": 1.5, "temperature": 0.7, "scale": 0.9},
    {"window_size": 64},  # longer than the sequence
)


def allowed(variant, mask, batch, query_length, key_length):
    """Fewer than window_size positions away, and what the mask allows."""
    query, key = positions(mask, batch, query_length, key_length)
    distance = np.abs(query[:, :, None] - key[:, None, :])
    return visible(mask, batch, query_length, key_length) & (distance < variant.window_size)


CAUSAL_3 = """
    1.....
    11....
    111...
    .111..
    ..111.
    ...111
"""
TWO_SIDED_3 = """
    111...
    1111..
    11111.
    .11111
    ..1111
    ...111
"""
CAUSAL_3_LAST_TWO_QUERIES = """
    ..111.
    ...111
"""
SELF_ONLY = """
    1.....
    .1....
    ..1...
    ...1..
    ....1.
    .....1
"""


@pytest.mark.parametrize(
    ("window_size", "causal", "drawing"),
    [
        (3, True, CAUSAL_3),
        (3, False, TWO_SIDED_3),
        (3, True, CAUSAL_3_LAST_TWO_QUERIES),
        (1, True, SELF_ONLY),
        (1, False, SELF_ONLY),
    ],
)
def test_literal_masks(window_size, causal, drawing):
    """Equal logits and one-hot values: a row of the output is 1/n on the n keys that the query sees."""
    literal = np.array([[mark == "1" for mark in row] for row in drawing.split()], float)
    query_length, key_length = literal.shape
    variant = Window(window_size=window_size, query_block=2)
    given = inputs(
        variant, batch=1, length=query_length, key_length=key_length, num_kv_heads=1, value_dim=key_length
    )
    given = given._replace(query=given.query * 0, value=given.value * 0 + np.eye(key_length)[:, None])
    output, lse = forward(variant, given, Mask(causal=causal))
    for head in range(given.query.shape[2]):
        np.testing.assert_allclose(output[0, :, head], literal / literal.sum(1, keepdims=True), atol=1e-6)
        np.testing.assert_allclose(lse[0, :, head], np.log(literal.sum(1)), atol=1e-6)


def test_flops_count_what_the_literal_masks_show():
    shape = {"batch": 2, "num_heads": 3, "num_kv_heads": 1, "head_dim": 4, "value_dim": 5}
    forward_of = 2 * 3 * 2 * (4 + 5)
    window = Window(window_size=3)
    square = dict(query_length=6, key_length=6, **shape)
    assert window.flops(**square, causal=True).forward == CAUSAL_3.count("1") * forward_of
    assert window.flops(**square, causal=False).forward == TWO_SIDED_3.count("1") * forward_of
    last_two = dict(query_length=2, key_length=6, **shape)
    assert window.flops(**last_two, causal=True).forward == CAUSAL_3_LAST_TWO_QUERIES.count("1") * forward_of


def test_reach_leaves_the_querys_own_position_out():
    assert Window(window_size=1).reach == 0
    assert Window(window_size=128).reach == 127


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("window_size", [2**30 + 1, 2**40])
def test_a_window_fits_int32(window_size):
    with pytest.raises(ValueError, match=rf"window_size={window_size}.*at most {2**30}"):
        Window(window_size=window_size)


def test_the_longest_window_sees_all():
    """At positions near their own bound too."""
    variant, far = Window(window_size=2**30), 2**30 - 1
    given = inputs(variant, length=2)
    mask = Mask.for_self(positions=jnp.asarray([[-5, far - 6]]))
    for one, other in zip(*(forward(x, given, mask) for x in (variant, Full())), strict=True):
        assert_close(one, other)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("window_size", [0, -1, 2.0, True, None, "3"])
def test_a_window_is_a_count_of_keys(window_size):
    with pytest.raises(ValueError, match=rf"window_size={window_size!r}.*at least 1"):
        Window(window_size=window_size)
