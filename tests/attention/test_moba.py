"""What only `moba` can say; the laws over it are in test_laws_*.py."""

import jax
import numpy as np
import pytest

from attention import Full, Mask, MoBA
from tests.attention import oracle
from tests.attention.cases import BATCH, LENGTH, forward, inputs, logit_scale
from tests.attention.loops import spread
from tests.attention.masks import positions, visible
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"block_size": 4, "top_k": 3},
    {"block_size": 3, "top_k": 2, "query_block": 2, "softcap": 1.5, "temperature": 0.7, "scale": 0.9},
)


def choices(variant, given):
    """What is chosen is told from these tokens, which are held, and from the mask."""
    key = given.query if given.key is None else given.key
    return np.asarray(given.query, np.float64), spread(key, given)


def reference(variant, given, mask, choices):
    allowed = seen(variant, mask, *choices)
    return oracle.attend(
        given.query, given.key, given.value, allowed, logit_scale(variant), softcap=variant.softcap
    )[:2]


def seen(variant, mask, query, key):
    """B N T S: row by row, the keys in the blocks of the `top_k` greatest scores, as far as the mask goes."""
    batch, length, heads, _ = query.shape
    may = visible(mask, batch, length, key.shape[1])
    real = np.ones(key.shape[:2], bool)
    if mask.key_valid is not None:
        real &= np.asarray(mask.key_valid)
    block_of = np.arange(key.shape[1]) // variant.block_size
    place = positions(mask, batch, length, key.shape[1])[0] // variant.block_size
    allowed = np.zeros((batch, heads, length, key.shape[1]), bool)
    for b, n, t in np.ndindex(batch, heads, length):
        scores = {}
        for j in set(block_of[real[b]]):
            mean = key[b, (block_of == j) & real[b], n].mean(0)
            if j == place[b, t]:
                scores[j] = np.inf
            elif j < place[b, t] or not mask.causal:
                scores[j] = query[b, t, n] @ mean
        chosen = sorted(scores, key=lambda j: -scores[j])[: variant.top_k]
        allowed[b, n, t] = may[b, t] & np.isin(block_of, chosen)
    return allowed


def test_every_query_sees_its_own_block_and_two_that_it_chose():
    """Causal, blocks of four: what is seen is whole blocks of the past and the own one up to itself."""
    variant, given = MoBA(block_size=4, top_k=3), inputs(MoBA())
    allowed = seen(variant, Mask(causal=True), *choices(variant, given))
    whole = np.minimum(np.arange(LENGTH) // 4, 2) * 4 + np.arange(LENGTH) % 4 + 1
    assert (allowed.sum(-1) == whole).all()
    assert len(np.unique(allowed.reshape(BATCH * 4, -1), axis=0)) == BATCH * 4, "heads choose by themselves"
    assert not (allowed[:, 0] == allowed[:, 1]).all(), "as do those that share keys"


def test_a_planted_block_is_found():
    """Keys of one block point where the last query does: it is chosen, and has all the weight."""
    variant, given = MoBA(block_size=4, top_k=2, scale=1.0), inputs(MoBA(), num_kv_heads=4)
    key = given.key.at[:, 8:12].set(20 * given.query[:, -1:])
    value = given.value.at[:, 8:12].set(7.0)
    output, _ = forward(variant, given._replace(key=key, value=value), Mask(causal=True))
    assert_close(output[:, -1], np.full(output[:, -1].shape, 7.0))
    alone, _ = forward(
        MoBA(block_size=4, top_k=1, scale=1.0), given._replace(key=key, value=value), Mask(causal=True)
    )
    assert (abs(alone[:, -1]) < 4).all()


def test_dropout_has_the_bits_of_full_attention():
    """However queries are dealt out: at the limit both drop the same."""
    given, mask = inputs(MoBA(), rng=jax.random.key(3)), Mask(causal=True)
    expected = forward(Full(dropout_rate=0.4), given, mask)
    for size in (None, 3):
        variant = MoBA(block_size=4, top_k=10, dropout_rate=0.4, query_block=size)
        for one, other in zip(forward(variant, given, mask), expected, strict=True):
            assert_close(one, other)


def test_how_queries_are_dealt_out_changes_nothing():
    given, mask = inputs(MoBA()), Mask(causal=True)
    one, *others = (
        forward(MoBA(block_size=4, top_k=3, query_block=size), given, mask) for size in (None, 1, 5, 64)
    )
    for other in others:
        for expected, actual in zip(one, other, strict=True):
            assert_close(actual, expected)


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
@pytest.mark.parametrize("lengths", [(37, 37), (11, 37), (37, 11)])
def test_flops_count_what_is_seen(fields, lengths):
    variant = MoBA(**fields)
    sizes = {"batch": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 4, "value_dim": 3}
    counted = variant.flops(query_length=lengths[0], key_length=lengths[1], causal=True, **sizes)
    given = inputs(variant, batch=1, length=lengths[0], key_length=lengths[1])
    pairs = 2 * seen(variant, Mask(causal=True), *choices(variant, given)).sum()
    past = np.arange(lengths[1] - lengths[0], lengths[1]) // variant.block_size
    scores = 2 * 4 * np.maximum(past, 0).sum()
    assert counted.forward == 2 * pairs * (4 + 3) + 2 * scores * 4
    assert counted.backward == 2 * pairs * (3 * 4 + 2 * 3)
