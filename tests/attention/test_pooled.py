"""What only `pooled` can say; the laws over it are in test_laws_*.py."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, Pooled
from tests.attention import oracle
from tests.attention.cases import LENGTH, forward, inputs, logit_scale
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"window_size": 4, "pool_size": 3, "num_levels": 2, "query_block": 8},
    {"window_size": 2, "pool_size": 2, "num_levels": 4, "pooling": "learned", "query_block": 8,
     "key_block": 4},
    {"window_size": 0, "pool_size": 4, "num_levels": 1},
    {"window_size": 0, "pool_size": 2, "num_levels": 3, "pooling": "learned", "count_members": False},
    {"window_size": 3, "pool_size": 4, "num_levels": 2, "count_members": False, "query_block": 5,
     "softcap": 1.5, "temperature": 0.7, "scale": 0.9},
)  # fmt: skip


def reference(variant, given, mask, choices):
    return attended(variant, given, mask)[0][:2]


def attended(variant, given, mask):
    """Keys, pools, pools of pools side by side, each query picking from them; one softmax over its picks.

    And how many keys each of them has, B E.
    """
    query, key, value = (np.asarray(x, np.float64) for x in (given.query, given.key, given.value))
    batch, query_length, key_length = query.shape[0], query.shape[1], key.shape[1]
    valid = np.ones((batch, key_length)) if mask.key_valid is None else np.asarray(mask.key_valid, float)
    levels: list[Any] = [(key, value, np.broadcast_to(valid, (batch, key_length)))]
    for level in range(1, variant.num_levels + 1):
        content = None if variant.pooling == "mean" else np.asarray(given.params["pool_query"])[level - 1]
        levels.append(pools_of(levels[-1], variant.pool_size, content))
    picks = [
        picked(variant, i + key_length - query_length, key_length, mask.causal) for i in range(query_length)
    ]
    allowed = np.zeros((batch, query_length, sum(x[2].shape[1] for x in levels)), bool)
    start = 0
    for level, (_, _, count) in enumerate(levels):
        for t, pick in enumerate(picks):
            allowed[:, t, [start + x for x in pick[level]]] = True
        allowed[:, :, start : start + count.shape[1]] &= count[:, None, :] > 0
        start += count.shape[1]
    if mask.query_valid is not None:
        allowed &= np.asarray(mask.query_valid)[:, :, None]
    key, value, count = (np.concatenate([x[part] for x in levels], axis=1) for part in range(3))
    log_bias = np.log(np.maximum(count, 1)) if variant.count_members else 0.0
    scale, softcap = logit_scale(variant), variant.softcap
    return oracle.attend(query, key, value, allowed, scale, softcap=softcap, log_bias=log_bias), count


def pools_of(elements, pool_size, content):
    """Every `pool_size` elements (B S K H, B S K V, B S) as one, by mean or by softmax(content . key)."""
    key, value, count = elements
    batch, length, heads = key.shape[:3]
    number = -(-length // pool_size)
    pooled = tuple(np.zeros((batch, number, *x.shape[2:])) for x in (key, value, count))
    for b, pool, head in np.ndindex(batch, number, heads):
        members = [m for m in range(pool * pool_size, min((pool + 1) * pool_size, length)) if count[b, m] > 0]
        logits = np.array([0.0 if content is None else key[b, m, head] @ content[head] for m in members])
        mass = np.exp(logits - logits.max(initial=-math.inf)) * count[b, members]
        share = mass / mass.sum()
        pooled[0][b, pool, head] = share @ key[b, members, head]
        pooled[1][b, pool, head] = share @ value[b, members, head]
        pooled[2][b, pool] = count[b, members].sum()
    return pooled


def picked(variant, t, length, causal):
    """For the query at position t: the indices that it sees of keys, of pools, of pools of pools ..."""
    picks = [[] for _ in range(variant.num_levels + 1)]
    if causal and t < 0:
        return picks
    bounds = [near(variant, level, t, length, causal) for level in range(1, variant.num_levels + 2)]
    left, right = bounds[0]
    if causal or variant.window_size > 0:
        picks[0] = list(range(left, min(right, length)))
    else:
        bounds[0] = (0, 0)
    for level in range(1, variant.num_levels + 1):
        size = variant.pool_size**level
        (left, right), (far_left, far_right) = bounds[level - 1], bounds[level]
        for pool in range(-(-length // size)):
            first, end = pool * size, min((pool + 1) * size, length)
            beyond = first >= far_left and end <= far_right
            inside = first < right and end > left
            if beyond and not inside:
                picks[level].append(pool)
    return picks


def near(variant, level, t, length, causal):
    """Keys [left, right) that the query at t sees at levels below `level`."""
    if level == variant.num_levels + 1:
        return 0, (t + 1 if causal else length)
    size = variant.pool_size**level
    half = variant.window_size * variant.pool_size ** (level - 1)
    if causal:
        return max(0, math.floor((t + 1 - half) / size) * size), t + 1
    left, right = (t + 1 - half, t + half) if half else (t, t + 1)
    left, right = math.floor(left / size) * size, math.ceil(right / size) * size
    return min(max(left, 0), length), min(max(right, 0), length)


MEMORY_COMPRESSED_4 = """
    1.........
    11........
    111.......
    aaaa......
    aaaa1.....
    aaaa11....
    aaaa111...
    aaaabbbb..
    aaaabbbb1.
    aaaabbbb11
"""
TWO_EXACT_THEN_PAIRS_THEN_FOURS = """
    1.............
    11............
    111...........
    aa11..........
    aa111.........
    aabb11........
    aabb111.......
    aaaabb11......
    aaaabb111.....
    aaaabbcc11....
    aaaabbcc111...
    aaaabbbbcc11..
    aaaabbbbcc111.
    aaaabbbbccdd11
"""


@pytest.mark.parametrize(
    ("fields", "drawing"),
    [
        ({"window_size": 0, "pool_size": 4, "num_levels": 1}, MEMORY_COMPRESSED_4),
        ({"window_size": 2, "pool_size": 2, "num_levels": 2}, TWO_EXACT_THEN_PAIRS_THEN_FOURS),
    ],
)
def test_literal_masks(fields, drawing):
    """Letters are pools: not counting members, each of p elements gets 1/p, shared by the pool's members."""
    rows = drawing.split()
    variant = Pooled(**fields, count_members=False)
    weight = effective_matrix(variant, len(rows), causal=True)
    for t, row in enumerate(rows):
        elements = row.count("1") + len(set(row) - set("1."))
        expected = [0 if x == "." else 1 if x == "1" else 1 / row.count(x) for x in row]
        np.testing.assert_allclose(
            weight[t], np.array(expected) / elements, atol=1e-6, err_msg=f"row {t}: {row}"
        )


def test_flops_count_what_the_literal_masks_show():
    """Keys and pools seen, and for each of the 10 keys its share in its pool's key and value."""
    variant = Pooled(window_size=0, pool_size=4, num_levels=1)
    flops = variant.flops(
        batch=2,
        query_length=10,
        key_length=10,
        num_heads=6,
        num_kv_heads=3,
        head_dim=4,
        value_dim=5,
        causal=True,
    )
    seen = sum(len(set(row) - {".", "1"}) + row.count("1") for row in MEMORY_COMPRESSED_4.split())
    pooling = 2 * 3 * 10 * 2 * (4 + 5)
    assert flops.forward == 2 * 6 * seen * 2 * (4 + 5) + pooling
    assert flops.backward == 2 * 6 * seen * 2 * (3 * 4 + 2 * 5) + 2 * pooling


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("fields", SETTINGS, ids=str)
def test_no_gap_and_no_double_count(fields, causal):
    """With equal keys and members counted, every key that may be seen weighs the same, at every phase."""
    variant = Pooled(**fields | {"count_members": True, "softcap": None})
    weight = effective_matrix(variant, LENGTH, causal)
    seen = np.tril(np.ones((LENGTH, LENGTH))) if causal else np.ones((LENGTH, LENGTH))
    np.testing.assert_allclose(weight, seen / seen.sum(1, keepdims=True), atol=1e-6)


def effective_matrix(variant, length, causal):
    """Weights T S of the keys themselves, all keys being equal."""
    given = inputs(variant, batch=1, length=length, num_kv_heads=1, value_dim=length)
    given = given._replace(
        query=given.query * 0, key=given.key * 0, value=given.value * 0 + np.eye(length)[:, None]
    )
    return forward(variant, given, Mask(causal=causal))[0][0, :, 0]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
def test_pools_of_equal_keys_count_as_their_members_would(causal):
    """Then pooling loses nothing and the softmax is full attention's, if the values are equal too or not."""
    variant = Pooled(window_size=2, pool_size=2, num_levels=2)
    given = inputs(variant)
    given = given._replace(key=jnp.repeat(given.key, 4, axis=1)[:, :LENGTH])
    output, lse = forward(variant, given, Mask(causal=causal))
    expected, expected_lse = forward(Full(), given, Mask(causal=causal))
    assert_close(lse, expected_lse)
    assert_close(output, expected)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("lengths", [(9, 9), (4, 9), (9, 4)], ids=str)
def test_a_window_over_all_is_full_attention(lengths, causal):
    """The other limit: window_size >= max(T, S), and no less."""
    variant = Pooled(window_size=9, pool_size=2)
    given = inputs(variant, length=lengths[0], key_length=lengths[1])
    for one, other in zip(*(forward(x, given, Mask(causal)) for x in (variant, Full())), strict=True):
        assert_close(one, other)


def test_learned_pooling_starts_at_the_mean():
    learned, mean = Pooled(window_size=2, pool_size=3, pooling="learned"), Pooled(window_size=2, pool_size=3)
    given = inputs(learned)
    zeros = given._replace(params={"pool_query": given.params["pool_query"] * 0})
    assert_close(
        forward(learned, zeros, Mask(causal=True))[0], forward(mean, inputs(mean), Mask(causal=True))[0]
    )


def test_learned_pooling_names_the_parameters_it_lacks():
    variant = Pooled(pooling="learned")
    given = inputs(variant)
    for params in ({}, {"pool_query": given.params["pool_query"][:1]}):
        with pytest.raises(ValueError, match=r"pool_query.*\(2, 2, 4\)"):
            variant(given.query, given.key, given.value, Mask(), params=params)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("window_size", -1, "at least 0"),
        ("pool_size", 0, "at least 1"),
        ("num_levels", 0, "at least 1"),
        ("pooling", "max", "'mean' or 'learned'"),
        ("count_members", 1, "True or False"),
    ],
)
def test_fields_are_checked(field, value, accepted):
    with pytest.raises(ValueError, match=f"{field}={value!r}.*{accepted}"):
        Pooled(**{field: value})


def test_the_share_on_pools_is_what_lies_beyond_the_exact_keys():
    """Ten tokens, window 2, pools of 4: exact are the keys from the pool that holds the one before on."""
    variant = Pooled(window_size=2, pool_size=4, num_levels=1)
    weights = jnp.full((1, 1, 10, 10), 0.1)
    exact = [[max((t + 1 - 2) // 4 * 4, 0) <= s <= t for s in range(10)] for t in range(10)]
    found = variant.observe(None, None, Mask(causal=True), weights)["on_pools"]  # pyright: ignore
    np.testing.assert_allclose(found.values, [[1 - np.mean(exact)]], rtol=1e-6)
    none = Pooled(window_size=2, pool_size=1).observe(None, None, Mask(causal=True), weights)  # pyright: ignore
    np.testing.assert_allclose(none["on_pools"].values, 0)
