"""Tiles against brute force: what is visited, what is visited without a mask, and how much of it there is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention import Full, Mask, Pooled, Window, blockwise
from attention.logits import Logits
from attention.tiles import refine, static_tiles, tiles_between, without_peeling
from attention.visibility import Interval, Placed, default_band, from_mask, visible
from tests.attention.cases import Case, forward, inputs, statement
from tests.attention.masks import MASKS, build
from tests.attention.references import by_reference
from tests.attention.tolerances import assert_close


def visits(tiles) -> list[list[tuple[bool, int]]]:
    """For each block of queries, what the loops visit: whether masked, and the first key of the tile."""
    program = blockwise.program(tiles, visible, Logits(1.0), 0.0, jnp.float32)
    schedule = jax.tree.map(np.asarray, blockwise.schedule(tiles))
    found: list[list[tuple[bool, int]]] = [[] for _ in tiles.starts]
    with jax.disable_jit():
        for c, visited in enumerate(found):

            def visit(masked, m, carry, c=c, visited=visited):
                visited.append((masked, int(blockwise.start_of(program, schedule, c, m))))
                return carry

            blockwise.visit_tiles(program, schedule, c, visit, 0)
    return found


def check_visits(tiles, seen: np.ndarray) -> None:
    """`seen` B T S: every visible pair is visited once, and without a mask only what every row sees."""
    query_length, key_length = seen.shape[1:]
    for c, visited in enumerate(visits(tiles)):
        rows = seen[:, c * tiles.query_block : (c + 1) * tiles.query_block]
        times = np.zeros(max(tiles.key_length, key_length), int)
        for masked, start in visited:
            stop = start + tiles.key_block
            assert stop <= max(tiles.key_length, key_length)
            times[start:stop] += 1
            if not masked:
                assert stop <= key_length, "padding is visited without a mask"
                assert rows[:, :, start:stop].all(), f"block {c}: keys {start} to {stop} are not all visible"
        assert (times <= 1).all(), "a key is visited twice"
        assert (times[:key_length][rows.any((0, 1))] == 1).all(), f"block {c} misses keys that it sees"
    assert query_length <= len(tiles.starts) * tiles.query_block


def test_the_check_itself_notices():
    first, last = default_band(8, 8, None, 0)
    seen = np.tril(np.ones((1, 8, 8), bool))
    tiles = static_tiles(first, last, 4, 4)
    check_visits(tiles, seen)
    for wrong in (np.triu(seen), np.ones_like(seen)):
        with pytest.raises(AssertionError):
            check_visits(tiles, wrong)


LENGTHS = st.integers(1, 14)
BLOCKS = st.integers(1, 6)


@st.composite
def intervals(draw):
    """First and last key of each of T queries among S keys; some are empty; perhaps a hole in each."""
    query_length, key_length = draw(LENGTHS), draw(LENGTHS)
    key = st.integers(0, key_length - 1)
    edges = st.lists(key, min_size=query_length, max_size=query_length).map(np.array)
    first, last = draw(edges), draw(edges)
    if draw(st.booleans()):  # in order, as bands are
        first, last = np.sort(first), np.sort(last)
    hole = {"hole_first": draw(edges), "hole_last": draw(edges)} if draw(st.booleans()) else {}
    return key_length, first, last, hole


@settings(max_examples=200)
@given(intervals(), BLOCKS, st.none() | BLOCKS)
def test_intervals_are_covered(interval, query_block, key_block):
    key_length, first, last, hole = interval
    key = np.arange(key_length)
    seen = (first[:, None] <= key) & (key <= last[:, None])
    if hole:
        seen &= (key < hole["hole_first"][:, None]) | (key > hole["hole_last"][:, None])
    tiles = static_tiles(first, last, query_block, key_block, **hole)
    check_visits(tiles, seen[None])
    check_visits(without_peeling(tiles), seen[None])


SHAPES = ((12, 9, 5, 4), (7, 12, 4, 3), (1, 9, 4, 1))  # few: each compiles anew


@settings(max_examples=45)
@given(
    st.sampled_from(SHAPES), st.sampled_from(sorted(MASKS)), st.booleans(), st.sampled_from((None, 1, 3, 6))
)
def test_tiles_that_arrays_decide_are_covered(shape, kind, causal, window):
    """Padding, segments and positions in every row of the batch; in order or in none."""
    T, S, query_block, key_block = shape
    mask = build(kind, causal, 2, T, S)
    before, after = (None if window is None else window - 1), 0 if causal else window and window - 1
    query, key = from_mask(mask, T, S, before, after)
    if mask.query_positions is None:
        tiles = refine(static_tiles(*default_band(T, S, before, after), query_block, key_block), query, key)
    else:
        tiles = tiles_between(query, key, T, query_block, key_block)
    seen = np.asarray(visible(query, key))[:, 0]
    check_visits(tiles, np.broadcast_to(seen, (2, T, S)))


def test_the_last_keys_may_be_seen_by_nobody():
    """Keys 0 to 3 in one tile, 4 to 6 in none; segments decide when run."""
    query, key = from_mask(Mask.for_self(segments=jnp.zeros((1, 7), int)), 7, 7, None, None)
    first, last = np.zeros(7, int), np.full(7, 3)
    query = query._replace(first=jnp.asarray(first)[None, None], last=jnp.asarray(last)[None, None])
    tiles = refine(static_tiles(first, last, 4, 4), query, key)
    assert tiles.key_length == 4
    check_visits(tiles, np.asarray(visible(query, key))[:, 0])


# Lengths and blocks at which every block of queries has one tile or none, and no tile needs a mask.
ONE_TILE_OR_NONE = [
    (Pooled(window_size=1, pool_size=64, num_levels=1), 128, 128),
    (Pooled(window_size=1, pool_size=128, num_levels=2), 200, 200),
    (Pooled(window_size=0, pool_size=4, num_levels=1, query_block=3), 6, 6),
    (Pooled(window_size=1, pool_size=2, num_levels=1, query_block=2), 4, 4),
    (Full(query_block=1), 2, 1),
    (Window(window_size=1, query_block=1), 3, 2),
]


@pytest.mark.parametrize(("variant", "query_length", "key_length"), ONE_TILE_OR_NONE, ids=str)
def test_a_block_without_tiles_visits_none(variant, query_length, key_length):
    """Causal. Where some blocks have one tile, unmasked, the others, which have none, see nothing of it."""
    given = inputs(variant, batch=1, length=query_length, key_length=key_length)
    mask = Mask(causal=True)
    output, lse = forward(variant, given, mask)
    expected, expected_lse = by_reference(Case(variant, "", statement(variant.name)), given, mask)
    assert_close(lse, expected_lse, what="lse")
    assert_close(output, expected, what="output")


def test_visible_is_what_the_intervals_say():
    query = Interval(jnp.array([[0, 2]]), jnp.array([[3, 3]]), jnp.array([[1, 3]]), jnp.array([[1, 3]]))
    seen = visible(query, Placed(jnp.arange(5)[None]))
    np.testing.assert_array_equal(seen[0], [[1, 0, 1, 1, 0], [0, 0, 1, 0, 0]])
