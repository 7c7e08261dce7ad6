"""The entropy that comes with the output is that of the weights written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from tests.attention import oracle, test_lsh, test_pooled
from tests.attention.cases import Inputs, inputs, logit_scale, statement
from tests.attention.tolerances import assert_close

LENGTH = 13
VARIANTS = (
    attention.Full(temperature=0.7),
    attention.Dense(scale=0.9),
    attention.Window(window_size=4),
    attention.Pooled(window_size=3, pool_size=2, num_levels=2),
    attention.LSH(num_hashes=2, num_buckets=4, chunk_size=4),
)
NOT_COUNTING = [
    attention.Pooled(window_size=3, pool_size=2, num_levels=2, count_members=False, pooling=pooling)
    for pooling in ("mean", "learned")
]


def operands(num_kv_heads=2):
    keys = jax.random.split(jax.random.key(0), 3)
    query = 2 * jax.random.normal(keys[0], (2, LENGTH, 2, 4))
    key, value = (
        jax.random.normal(k, (2, LENGTH, num_kv_heads, w)) for k, w in zip(keys[1:], (4, 3), strict=True)
    )
    return query, key, value


def valid():
    return jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [LENGTH - 4]])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_it_is_that_of_the_weights_and_the_output_is_the_variants(variant, causal):
    query, key, value = operands()
    key = None if variant.capabilities.shared_key else key
    mask = attention.Mask.for_self(causal=causal, valid=valid())
    output, entropy = attention.attend_with_entropy(variant, query, key, value, mask)
    np.testing.assert_allclose(output, variant(query, key, value, mask), atol=1e-5)
    weights = np.asarray(attention.attention_matrix(variant, query, key, mask), np.float64)
    expected = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1).swapaxes(1, 2)
    np.testing.assert_allclose(entropy, expected, atol=1e-5)
    assert entropy.dtype == jnp.float32 and (np.asarray(entropy)[1, -4:] == 0).all()


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [(variant, jnp.float32) for variant in (*VARIANTS, *NOT_COUNTING)]
    + [(variant, jnp.bfloat16) for variant in VARIANTS[:3]],
)
def test_it_is_that_of_the_oracles_weights_at_logits_of_a_hundred(variant, dtype):
    given = inputs(variant, dtype=dtype)
    given = given._replace(query=20 * given.query)
    query, key, value, params = given[:4]
    valid = jnp.arange(query.shape[1])[None] < jnp.array([[query.shape[1]], [9]])
    mask = attention.Mask.for_self(causal=True, valid=valid)
    output, entropy = attention.attend_with_entropy(variant, query, key, value, mask, params=params)
    assert (output.dtype, entropy.dtype) == (dtype, jnp.float32)
    expected_output, expected = by_oracle(variant, given, mask)
    assert_close(output, expected_output)
    np.testing.assert_allclose(entropy, expected, atol=2e-4)


def by_oracle(variant, given: Inputs, mask):
    """Output and entropy of its weights in float64, a pool being as many keys as its logit counts."""
    members = 1.0
    if isinstance(variant, attention.Pooled):
        attended, count = test_pooled.attended(variant, given, mask)
        members = np.maximum(count, 1)[:, None, None] if variant.count_members else 1.0
    elif isinstance(variant, attention.LSH):
        attended = test_lsh.attended(variant, given, mask, test_lsh.choices(variant, given))
    else:
        query, key, value = given[:3]
        allowed = statement(variant.name).allowed(variant, mask, *query.shape[:2], key.shape[1])
        attended = oracle.attend(query, key, value, allowed, logit_scale(variant))
    weight = attended.weight
    each = np.where(weight > 0, weight / members, 1)
    return attended.output, -(weight * np.log(each)).sum(-1).swapaxes(1, 2)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("wrong", [{"value": jnp.float16}, {"query": jnp.int32}])
def test_dtypes_that_do_not_fit_are_refused(wrong):
    arrays = dict(zip(("query", "key", "value"), operands(), strict=True))
    arrays |= {name: arrays[name].astype(dtype) for name, dtype in wrong.items()}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        attention.attend_with_entropy(attention.Full(), **arrays, mask=attention.Mask())


def test_its_gradient_is_that_of_the_weights_and_padding_may_hold_anything():
    query, key, value = operands()
    query = query.at[1, -1].set(jnp.nan)
    mask = attention.Mask.for_self(causal=True, valid=valid())

    def by_pass(query, key):
        return attention.attend_with_entropy(attention.Full(), query, key, value, mask)[1].sum()

    def written_out(query, key):
        seen = mask.to_array(LENGTH, LENGTH)[:, None]
        query = jnp.where(valid()[..., None, None], query, 0)
        logits = jnp.where(seen, jnp.einsum("btnh,bsnh->bnts", query, key) / 2, -1e9)
        weights = jnp.where(seen, jax.nn.softmax(logits), 0)
        return -(weights * jnp.log(jnp.where(weights > 0, weights, 1))).sum()

    for found, expected in zip(
        jax.grad(by_pass, (0, 1))(query, key), jax.grad(written_out, (0, 1))(query, key), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_shared_keys_with_fewer_value_heads():
    query, _, value = operands(num_kv_heads=1)
    variant, mask = VARIANTS[-1], attention.Mask(causal=True)
    output, _ = attention.attend_with_entropy(variant, query, None, value, mask)
    np.testing.assert_allclose(output, variant(query, None, value, mask), atol=1e-5)


def test_where_it_cannot_be_had_it_is_refused():
    query, key, value = operands()
    with pytest.raises(NotImplementedError, match="softcap=5"):
        attention.attend_with_entropy(attention.Full(softcap=5.0), query, key, value, attention.Mask())
    assert attention.no_entropy(attention.Full()) is None
