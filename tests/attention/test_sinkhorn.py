"""What only `sinkhorn` can say; the laws over it are in test_laws_*.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, Sinkhorn
from attention.sinkhorn import _gumbel, _sinkhorn
from tests.attention import loops
from tests.attention.cases import LENGTH, call, forward, inputs, logit_scale
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"block_size": 8, "num_iterations": 3, "sort_temperature": 8.0},
    {"block_size": 5, "num_iterations": 1, "sort_temperature": 20.0, "softcap": 1.5, "temperature": 0.7},
)


def reference(variant, given, mask, choices):
    """Token by token: own keys, and for each place in a block what is sorted there."""
    query, key, value = (loops.spread(x, given) for x in (given.query, given.key, given.value))
    real_query, real_key = loops.valid(mask, query.shape[:2])
    output = np.zeros((*query.shape[:3], value.shape[3]))
    for b, n in np.ndindex(query.shape[0], query.shape[2]):
        places = [np.arange(i, min(i + variant.block_size, query.shape[1])) for i in starts(variant, query)]
        order = sorting(variant, given, places, query[b, :, n], real_query[b], real_key[b], n)
        for i, own in enumerate(places):
            keys, values, counts = sorted_block(
                variant, order[i], places, key[b, :, n], value[b, :, n], real_key[b]
            )
            own_keys = own[real_key[b, own]]
            keys = np.concatenate([key[b, own_keys, n], keys])
            values = np.concatenate([value[b, own_keys, n], values])
            counts = np.concatenate([np.ones(len(own_keys)), counts])
            for t in own[real_query[b, own]]:
                output[b, t, n] = attended(variant, query[b, t, n], keys, values, counts)
    return output, np.zeros(output.shape[:3])


def starts(variant, query):
    return range(0, query.shape[1], variant.block_size)


def sorting(variant, given, places, query, real_query, real_key, n):
    """R among the blocks that hold something real, 0 elsewhere."""
    hidden = np.asarray(given.params["hidden"], np.float64)[n]
    by_block = np.asarray(given.params["by_block"], np.float64)[:, n]
    rows = [i for i, own in enumerate(places) if real_query[own].any()]
    columns = [j for j, own in enumerate(places) if real_key[own].any()]
    order = np.zeros((len(places), len(places)))
    if not rows or not columns:
        return order
    pooled = np.stack([query[places[i][real_query[places[i]]]].sum(0) for i in rows])
    logits = np.maximum(pooled @ hidden, 0) @ by_block[columns].T / variant.sort_temperature
    for _ in range(variant.num_iterations):
        logits = logits - np.logaddexp.reduce(logits, 0, keepdims=True)
        logits = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
    order[np.ix_(rows, columns)] = np.exp(logits)
    return order


def sorted_block(variant, shares, places, key, value, real):
    """Keys, values and counts of the places in a block that hold something."""
    found = []
    for w in range(variant.block_size):
        tokens = [
            (share, own[w])
            for share, own in zip(shares, places, strict=True)
            if w < len(own) and real[own[w]]
        ]
        count = sum(share for share, _ in tokens)
        if count > 1e-12:
            mean = [sum(share * x[s] for share, s in tokens) / count for x in (key, value)]
            found.append((*mean, count))
    if not found:
        return np.zeros((0, key.shape[-1])), np.zeros((0, value.shape[-1])), np.zeros(0)
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def attended(variant, query, keys, values, counts):
    if not len(keys):
        return 0
    logits = logit_scale(variant) * keys @ query
    if variant.softcap is not None:
        logits = variant.softcap * np.tanh(logits / variant.softcap)
    logits = logits + np.log(counts)
    weight = np.exp(logits - logits.max())
    return weight / weight.sum() @ values


def at_limit(variant, given, mask):
    """Full attention, and no log-sum-exp: every key is there twice."""
    shared = {field: getattr(variant, field) for field in ("scale", "temperature", "softcap")}
    output, lse = forward(Full(**shared), given._replace(params={}), mask)
    return output, 0 * jnp.where(jnp.isfinite(lse), lse, 0)


def test_rows_sum_to_one_after_any_number_of_turns_and_columns_in_the_end():
    logits = 3 * jax.random.normal(jax.random.key(0), (1, 2, 6, 6))
    takes_part = (jnp.arange(6) != 2)[:, None] & (jnp.arange(6) != 4)
    for iterations in (1, 100):
        order = _sinkhorn(logits, takes_part, iterations)
        assert_close(order.sum(-1), np.broadcast_to(np.arange(6) != 2, (1, 2, 6)))
    assert_close(order.sum(-2), np.broadcast_to(np.arange(6) != 4, (1, 2, 6)), loosen=30)


def test_noise_is_drawn_where_there_is_an_rng_and_padding_draws_no_other():
    """As Gumbel's: mean 0.5772, variance pi^2 / 6."""
    variant, real = Sinkhorn(block_size=8), np.arange(LENGTH) < 24
    given = inputs(variant, rng=jax.random.key(0))
    short = given.over_tokens(lambda x: x[:, :24])
    output = call(variant, short, Mask())[0]
    padded = call(variant, given, Mask.for_self(valid=jnp.asarray(real)[None]))[0]
    assert_close(padded[:, :24], output)
    assert abs(call(variant, short._replace(rng=None), Mask())[0] - output).max() > 0.1
    noise = np.asarray(_gumbel(jax.random.key(0), 2, 3, 100))
    assert len(np.unique(noise)) > 0.98 * noise.size
    assert noise.mean() == pytest.approx(0.5772, abs=0.02)
    assert noise.var() == pytest.approx(np.pi**2 / 6, abs=0.05)


def test_a_permutation_sorts_whole_blocks():
    """Logits that say so: block 0 sees block 1, and 1 sees 0."""
    variant = Sinkhorn(block_size=4, sort_temperature=0.01)
    given = inputs(variant, length=8, num_kv_heads=4)
    query = jnp.ones_like(given.query).at[:, 4:].set(-1)
    hidden = jnp.zeros((4, 4, 4)).at[:, 0, 0].set(1.0).at[:, 0, 1].set(-1.0)
    by_block = jnp.zeros((2, 4, 4)).at[1, :, 0].set(1.0).at[0, :, 1].set(1.0)
    params = {"hidden": hidden, "by_block": by_block}
    given = given._replace(query=query, params=params)
    expected = forward(Full(), given._replace(params={}), Mask())[0]
    assert_close(call(variant, given, Mask())[0], expected)


def test_it_is_refused_more_blocks_than_it_was_made_for():
    variant = Sinkhorn(block_size=4)
    given = inputs(variant)
    short = given.params | {"by_block": given.params["by_block"][:9]}
    with pytest.raises(ValueError, match=r"by_block.*at least 10 blocks of 4.*\(9, 4, 4\)"):
        call(variant, given._replace(params=short), Mask())
