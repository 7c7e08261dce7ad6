"""What only `lsh` can say; the laws over it are in test_laws_*.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import LSH, Mask, lsh_buckets
from tests.attention import oracle
from tests.attention.cases import BATCH, LENGTH, forward, inputs, logit_scale
from tests.attention.masks import build
from tests.attention.tolerances import assert_close

SETTINGS = (
    {"num_hashes": 2, "num_buckets": 4, "chunk_size": 4},
    {"num_hashes": 1, "num_buckets": 2, "chunk_size": 8, "query_block": 4},
    {"num_hashes": 3, "num_buckets": 6, "chunk_size": 3, "hash_seed": 5, "softcap": 1.5, "temperature": 0.7,
     "scale": 0.9},
    {"num_hashes": 2, "num_buckets": 1, "chunk_size": 5},
    {"num_hashes": 2, "num_buckets": 10, "chunk_size": 4},
)  # fmt: skip


def choices(variant, given):
    """The buckets, B N R T: argmax [x, -x] in float64, G drawn from the seed; the first wins ties."""
    query = np.asarray(given.query, np.float64)
    batch, length, heads, width = query.shape
    if variant.num_buckets == 1:
        return np.zeros((batch, heads, variant.num_hashes, length), int)
    rng = jax.random.key(variant.hash_seed) if given.rng is None else jax.random.fold_in(given.rng, 0)
    dtype = jnp.promote_types(given.query.dtype, jnp.float32)
    directions = jax.random.normal(rng, (variant.num_hashes, width, variant.num_buckets // 2), dtype)
    x = np.einsum("BTNH,RHC->BNRTC", unit(query), np.asarray(directions, np.float64))
    return np.concatenate([x, -x], -1).argmax(-1)


def unit(query):
    return query / np.maximum(np.linalg.norm(query, axis=-1, keepdims=True), 1e-6)


def reference(variant, given, mask, choices):
    return attended(variant, given, mask, choices)[:2]


def attended(variant, given, mask, choices):
    """Whom a query sees is told from the buckets token by token; then one softmax over all of them."""
    batch, length, heads, _ = given.query.shape
    seeing, seen, segment = tokens(mask, batch, length)
    allowed = np.zeros((batch, heads, length, length), bool)
    for b, head, hash_round in np.ndindex(batch, heads, variant.num_hashes):
        buckets = choices[b, head, hash_round]
        chunk = ranks(buckets, seeing[b] | seen[b], segment[b]) // variant.chunk_size
        allowed[b, head] |= seen_in_a_round(buckets, chunk, seeing[b], seen[b], segment[b], mask.causal)
    return attend_over(variant, given, alone(allowed, seeing, seen))


def at_limit(variant, given, mask):
    """Full attention to normalised keys, the own position left out unless nothing else is there."""
    batch, length, heads, _ = given.query.shape
    seeing, seen, _ = tokens(mask, batch, length)
    allowed = np.array(np.broadcast_to(mask.to_array(length, length), (batch, length, length)))
    allowed &= ~np.eye(length, dtype=bool)
    allowed = np.repeat(allowed[:, None], heads, axis=1)
    return attend_over(variant, given, alone(allowed, seeing, seen))[:2]


def tokens(mask, batch, length):
    """Which tokens are real as queries and which as keys, and their segments: B T each."""
    everywhere = np.ones((batch, length), bool)
    seeing, seen = (
        everywhere if given is None else everywhere & np.asarray(given)
        for given in (mask.query_valid, mask.key_valid)
    )
    segment = np.zeros(length, int) if mask.query_segments is None else np.asarray(mask.query_segments)
    return seeing, seen, np.broadcast_to(segment, (batch, length))


def ranks(buckets, real, segment):
    """How many earlier tokens, real as a query or as a key, share bucket and segment."""
    together = real & (buckets[:, None] == buckets) & (segment[:, None] == segment)
    return np.tril(together, -1).sum(1)


def seen_in_a_round(buckets, chunk, seeing, seen, segment, causal):
    """T S: the same bucket and segment, the own chunk or the one before; not itself; causal: earlier ones."""
    together = seeing[:, None] & seen & (buckets[:, None] == buckets) & (segment[:, None] == segment)
    back = chunk[:, None] - chunk
    near = together & (back >= 0) & (back <= 1) & ~np.eye(len(buckets), dtype=bool)
    return np.tril(near) if causal else near


def alone(allowed, seeing, seen):
    """A token that is real both as a query and as a key and sees nobody sees itself."""
    sees_nobody = ~allowed.any(-1) & (seeing & seen)[:, None]
    return allowed | (sees_nobody[..., None] & np.eye(allowed.shape[-1], dtype=bool))


def attend_over(variant, given, allowed):
    query = np.asarray(given.query, np.float64)
    value = np.repeat(np.asarray(given.value, np.float64), query.shape[2] // given.value.shape[2], axis=2)
    return oracle.attend(query, unit(query), value, allowed, logit_scale(variant), softcap=variant.softcap)


@pytest.mark.parametrize(("rng", "length"), [(None, LENGTH), (7, 1030)], ids=["seed", "rng"])
def test_buckets_are_those_of_numpy(rng, length):
    """Of the seed without an rng, of the rng with one; of more tokens than are hashed at once; of ties."""
    variant = LSH(num_hashes=8, num_buckets=16, hash_seed=3)
    given = inputs(variant, length=length, rng=None if rng is None else jax.random.key(rng))
    given = given._replace(query=given.query.at[:, 5].set(0))  # no direction: all are equally near
    buckets = lsh_buckets(variant, given.query, given.rng)
    np.testing.assert_array_equal(buckets, choices(variant, given))
    assert (buckets[..., 5] == 0).all()


def test_buckets_are_angular():
    """A token's bucket depends on its direction alone; the opposite direction has the opposite bucket."""
    variant = LSH(num_hashes=8, num_buckets=6)
    query = inputs(variant).query
    buckets = lsh_buckets(variant, query, None)
    assert buckets.shape == (query.shape[0], query.shape[2], 8, LENGTH)
    assert buckets.dtype == jnp.int32
    assert set(np.unique(buckets)) == set(range(6))
    np.testing.assert_array_equal(lsh_buckets(variant, query * 7.5, None), buckets)
    np.testing.assert_array_equal(lsh_buckets(variant, -query, None), (buckets + 3) % 6)


def test_heads_and_rows_share_the_hash():
    """Equal vectors meet, wherever they stand."""
    variant = LSH(num_hashes=8, num_buckets=16)
    query = inputs(variant).query
    same = jnp.broadcast_to(query[:1, :, :1], query.shape)
    buckets = np.asarray(lsh_buckets(variant, same, None))
    np.testing.assert_array_equal(buckets, np.broadcast_to(buckets[:1, :1], buckets.shape))


def test_rounds_hash_differently_and_near_tokens_meet_more_often():
    variant = LSH(num_hashes=64, num_buckets=8)
    query = inputs(variant).query
    near = query + 0.1 * inputs(variant, seed=1).query
    buckets, moved, other = (
        lsh_buckets(variant, x, None) for x in (query, near, inputs(variant, seed=2).query)
    )
    assert (buckets[:, :, 0] != buckets[:, :, 1]).any()
    assert (buckets == moved).mean() > 0.8
    assert 0.05 < (buckets == other).mean() < 0.25  # one in eight


@pytest.mark.parametrize("length", [1, 8, 9, 17, 36])
def test_buckets_of_a_beginning_are_those_of_the_whole(length):
    """So that neither padding nor later tokens change anything, and decoding can equal the parallel pass."""
    variant = LSH(chunk_size=4)
    query = inputs(variant).query
    whole = lsh_buckets(variant, query, None)
    np.testing.assert_array_equal(lsh_buckets(variant, query[:, :length], None), whole[..., :length])


def test_rng_decides_the_hash_where_it_is_given():
    variant, query = LSH(num_buckets=8), inputs(LSH()).query
    seeds = [lsh_buckets(variant, query, rng) for rng in (None, jax.random.key(0), jax.random.key(1))]
    assert (seeds[0] != seeds[1]).any()
    assert (seeds[1] != seeds[2]).any()
    other_seed = lsh_buckets(LSH(num_buckets=8, hash_seed=1), query, None)
    assert (seeds[0] != other_seed).any()
    np.testing.assert_array_equal(
        lsh_buckets(LSH(num_buckets=8, hash_seed=1), query, jax.random.key(1)), seeds[2]
    )


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
def test_a_key_met_in_several_rounds_counts_once(causal):
    """With one bucket all rounds see the same: their number changes nothing."""
    given = inputs(LSH())
    once, often = (LSH(num_hashes=rounds, num_buckets=1, chunk_size=5) for rounds in (1, 4))
    for one, many in zip(*(forward(x, given, Mask(causal=causal)) for x in (once, often)), strict=True):
        assert_close(many, one)


def test_a_lone_token_sees_itself():
    """Then its value is its output and its logit the log-sum-exp."""
    variant = LSH(num_buckets=4, chunk_size=4)
    given = inputs(variant, length=1)
    for causal in (True, False):
        output, lse = forward(variant, given, Mask(causal=causal))
        assert_close(output, np.repeat(given.value, 2, axis=2))
        assert_close(lse, np.linalg.norm(given.query, axis=-1) * logit_scale(variant))


def test_the_first_chunk_does_not_look_at_the_last():
    """Two-sided: chunk c sees c and c-1 of its bucket, so the tokens of chunk 0 see no later chunk."""
    variant = LSH(num_hashes=1, num_buckets=1, chunk_size=4)
    given = inputs(variant, length=16)
    changed = given._replace(value=given.value.at[:, 4:].add(1.0), query=given.query.at[:, 4:].multiply(-3.0))
    before, after = (forward(variant, x, Mask())[0] for x in (given, changed))
    assert_close(after[:, :4], before[:, :4])
    assert abs(after[:, 4:8] - before[:, 4:8]).max() > 0.1


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("side", ["query_valid", "key_valid"])
def test_one_sided_padding_is_one_sided(causal, side):
    """A token that is no query is a key still, and the other way round."""
    variant = LSH(**SETTINGS[0])
    given, both = inputs(variant), build("holes", causal, BATCH, LENGTH, LENGTH)
    mask = Mask(causal, **{side: getattr(both, side)})
    expected = reference(variant, given, mask, choices(variant, given))
    for one, other in zip(forward(variant, given, mask), expected, strict=True):
        assert_close(one, other)


def test_three_tokens_of_which_the_first_asks_nothing():
    """Causal, at the limit: token 1 sees token 0, though that one is padding as a query."""
    variant = LSH(num_buckets=1, chunk_size=3)
    given = inputs(variant, batch=1, length=3, num_kv_heads=1)
    mask = Mask(causal=True, query_valid=jnp.asarray([[False, True, True]]))
    output, lse = forward(variant, given, mask)
    assert (output[0, 0] == 0).all()
    assert (lse[0, 0] == -np.inf).all()
    assert_close(output[0, 1], np.broadcast_to(given.value[0, 0], output[0, 1].shape))


@pytest.mark.parametrize(
    ("causal", "pairs"),
    [
        (True, (0 + 1 + 2 + 3 + 2 + 3) + 3 * (0 + 1 + 2 + 3 + 2)),
        (False, (1 + 1 + 3 + 3 + 3 + 3) + 3 * (1 + 1 + 3 + 3 + 2)),
    ],
)
def test_flops_of_tokens_spread_evenly_by_hand(causal, pairs):
    """Buckets of 6, 5, 5, 5; chunks of two, each seeing itself and the one before; two columns of hashing."""
    shape = {"batch": 2, "query_length": 21, "key_length": 21, "num_heads": 5, "num_kv_heads": 5}
    variant = LSH(num_hashes=3, num_buckets=4, chunk_size=2)
    flops = variant.flops(**shape, head_dim=4, value_dim=7, causal=causal)
    assert flops.forward == 2 * 5 * 3 * (pairs * 2 * (4 + 7) + 21 * 2 * 4 * 2)
    assert flops.backward == 2 * 5 * 3 * pairs * 2 * (3 * 4 + 2 * 7)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("num_hashes", 0, "at least 1"),
        ("num_buckets", 3, "even"),
        ("num_buckets", 0, "even"),
        ("num_buckets", None, "even"),
        ("chunk_size", 0, "at least 1"),
        ("hash_seed", -1, "at least 0"),
    ],
)
def test_fields_are_checked(field, value, accepted):
    with pytest.raises(ValueError, match=f"{field}={value!r}.*{accepted}"):
        LSH(**{field: value})


def test_buckets_in_effect_are_counted():
    """Against a loop over heads and rounds, of the tokens that are real; of none there is no number."""
    variant = LSH(num_buckets=4, num_hashes=3, chunk_size=8)
    query = inputs(variant).query
    valid = jnp.arange(LENGTH) < jnp.array([[30], [0]])
    mask = Mask.for_self(causal=True, valid=valid)
    found = variant.observe(query, None, mask, None)["buckets"]  # pyright: ignore[reportArgumentType]
    buckets = np.asarray(lsh_buckets(variant, query, None))[0, :, :, :30]
    shares = [[np.bincount(row, minlength=4) / 30 for row in head] for head in buckets]
    expected = [1 / np.mean([(share**2).sum() for share in head]) for head in shares]
    np.testing.assert_allclose(found.values[0], expected, rtol=1e-5)
    assert np.isnan(found.values[1]).all() and found.least == 2
    assert LSH(num_buckets=2).observe(query, None, Mask(), None)["buckets"].least is None  # pyright: ignore
