"""Mask: what is visible, said with literal drawings; defaults; and what travels through jax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention import Mask
from tests.attention.masks import MASKS, build, visible


def drawn(*rows: str) -> np.ndarray:
    """1 T S from rows of 1 and . ."""
    return np.array([[mark == "1" for mark in row] for row in rows])[None]


def array(*numbers):
    return jnp.asarray([numbers])


@pytest.mark.parametrize(
    ("mask", "drawing"),
    [
        (Mask(), drawn("1111", "1111", "1111", "1111")),
        (Mask(causal=True), drawn("1...", "11..", "111.", "1111")),
        (Mask(key_valid=array(True, False, True, True)), drawn("1.11", "1.11", "1.11", "1.11")),
        (Mask(query_valid=array(True, False, True, True)), drawn("1111", "....", "1111", "1111")),
        (
            Mask.for_self(causal=True, valid=array(True, True, True, False)),
            drawn("1...", "11..", "111.", "...."),
        ),
        (Mask.for_self(segments=array(7, 7, -1, -1)), drawn("11..", "11..", "..11", "..11")),
        (Mask.for_self(causal=True, segments=array(0, 1, 0, 1)), drawn("1...", ".1..", "1.1.", ".1.1")),
        (Mask.for_self(causal=True, positions=array(5, 3, 9, 3)), drawn("11.1", ".1.1", "1111", ".1.1")),
        (Mask(True, query_positions=array(0, 2, 4, -1)), drawn("1...", "111.", "1111", "....")),
    ],
    ids=lambda x: None if isinstance(x, np.ndarray) else str(x.given() or x.causal),
)
def test_literal_masks(mask, drawing):
    np.testing.assert_array_equal(mask.to_array(4, 4), drawing)


def test_the_last_query_sees_the_last_key():
    np.testing.assert_array_equal(Mask(causal=True).to_array(2, 4), drawn("111.", "1111"))
    np.testing.assert_array_equal(Mask(causal=True).to_array(4, 2), drawn("..", "..", "1.", "11"))


def test_default_positions():
    """Key j at j, query i at i + S - T; int32 whatever was given."""
    query, key = Mask().positions(2, 5)
    np.testing.assert_array_equal(query, [[3, 4]])
    np.testing.assert_array_equal(key, [[0, 1, 2, 3, 4]])
    query, key = Mask(query_positions=jnp.asarray([[7, 8]], jnp.int8)).positions(2, 3)
    np.testing.assert_array_equal(query, [[7, 8]])
    assert query.dtype == key.dtype == jnp.int32


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", MASKS)
def test_to_array_says_what_the_docstring_says(kind, causal):
    for lengths in ((7, 7), (3, 7), (7, 3)):
        mask = build(kind, causal, 2, *lengths)
        array = mask.to_array(*lengths)
        assert array.shape[0] in (1, 2)
        np.testing.assert_array_equal(np.broadcast_to(array, (2, *lengths)), visible(mask, 2, *lengths))


def test_given_names_what_is_given():
    assert Mask(causal=True).given() == ()
    assert Mask(key_valid=array(True)).given() == ("key_valid",)
    both = Mask.for_self(valid=array(True), segments=array(1), positions=array(0))
    assert both.given() == (
        "query_valid", "key_valid", "query_segments", "key_segments", "query_positions", "key_positions",
    )  # fmt: skip


def test_causal_is_static_and_so_is_which_arrays_are_given():
    """One compilation for each kind of mask, none for other values."""
    traced = []

    @jax.jit
    def rows(mask):
        traced.append(mask.given())
        return mask.to_array(2, 2)

    for valid in ([True, False], [False, True]):
        for causal in (True, False):
            rows(Mask(causal, key_valid=array(*valid)))
    rows(Mask(True))
    assert len(traced) == 3
    assert jax.tree.leaves(Mask(causal=True)) == []


def test_a_mask_cannot_be_changed():
    with pytest.raises(AttributeError):
        Mask().causal = True  # pyright: ignore[reportAttributeAccessIssue]


@given(st.lists(st.integers(-(2**30) + 1, 2**30 - 1), min_size=1, max_size=6))
def test_positions_compare_as_integers(positions):
    """Float32 could not tell neighbours above 2^24 apart."""
    mask = Mask.for_self(causal=True, positions=jnp.asarray([positions]))
    expected = np.array(positions)[None, :] <= np.array(positions)[:, None]
    np.testing.assert_array_equal(mask.to_array(len(positions), len(positions))[0], expected)
