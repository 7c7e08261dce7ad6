"""What only `native_sparse` can say; the laws over it are in test_laws_*.py."""

import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, NativeSparse, Window
from attention.native_sparse import compress, importance
from tests.attention import oracle
from tests.attention.cases import LENGTH, call, forward, inputs, logit_scale
from tests.attention.loops import sigmoid
from tests.attention.masks import visible
from tests.attention.tolerances import assert_close

MEANS = False  # weights of places may be below 0, and gates do not sum to 1
SETTINGS = (
    {"compress_block": 4, "compress_stride": 2, "select_block": 4, "num_selected": 5, "window_size": 13},
    {"compress_block": 3, "compress_stride": 1, "select_block": 2, "num_selected": 4, "window_size": 2,
     "query_block": 4, "temperature": 0.7, "scale": 0.9},
)  # fmt: skip


def choices(variant, given):
    """What is selected is told from these, which are held, and from the mask."""
    key = given.query if given.key is None else given.key
    return tuple(np.asarray(x, np.float64) for x in (given.query, key, given.params["key_weights"]))


def reference(variant, given, mask, choices):
    """The three softmaxes, each over what it sees, and their sum."""
    key, value = (np.asarray(x, np.float64) for x in (given.key, given.value))
    weights = (np.asarray(given.params[name], np.float64) for name in ("key_weights", "value_weights"))
    keys, values = (
        compressed(variant, x, weight, mask) for x, weight in zip((key, value), weights, strict=True)
    )
    may = visible(mask, *given.query.shape[:2], key.shape[1])
    distance = np.arange(key.shape[1])[:, None] - np.arange(key.shape[1])
    seen = (
        (keys, values, seen_compressed(variant, mask, key.shape)),
        (key, value, may[:, None] & np.repeat(selected(variant, mask, *choices), repeats(given), axis=1)),
        (key, value, may & (distance < variant.window_size)),
    )
    outputs = [
        oracle.attend(given.query, *each, logit_scale(variant), softcap=variant.softcap)[0]
        if each[0].shape[1]
        else 0
        for each in seen
    ]
    gates = sigmoid(np.asarray(given.gates, np.float64))
    output = sum(gates[..., c, None] * each for c, each in enumerate(outputs))
    return output, np.zeros(output.shape[:3])


def repeats(given):
    return given.query.shape[2] // given.value.shape[2]


def real_keys(mask, shape):
    return np.ones(shape, bool) if mask.key_valid is None else np.broadcast_to(mask.key_valid, shape)


def compressed(variant, x, weights, mask):
    """Block by block and place by place."""
    x = np.where(real_keys(mask, x.shape[:2])[..., None, None], x, 0)
    number = max((x.shape[1] - variant.compress_block) // variant.compress_stride + 1, 0)
    blocks = np.zeros((x.shape[0], number, *x.shape[2:]))
    for i in range(number):
        for p in range(variant.compress_block):
            blocks[:, i] += weights[:, p, None] * x[:, i * variant.compress_stride + p]
    return blocks


def seen_compressed(variant, mask, shape):
    """B T E: those with a real key whose last place is not after the query."""
    real = real_keys(mask, shape[:2])
    seeing = np.ones(shape[:2], bool) if mask.query_valid is None else np.asarray(mask.query_valid)
    ends = np.arange(variant.compress_block, shape[1] + 1, variant.compress_stride)
    some = [real[:, end - variant.compress_block : end].any(1) for end in ends]
    some = np.stack(some, 1) if some else np.zeros((shape[0], 0), bool)
    return some[:, None] & seeing[..., None] & (ends <= np.arange(shape[1])[:, None] + 1)


def selected(variant, mask, query, key, weights):
    """B K T S: row by row, the tokens of the blocks that weigh most; equation 9 as it is written."""
    batch, length, heads, _ = query.shape
    keys, real = compressed(variant, key, weights, mask), real_keys(mask, key.shape[:2])
    seen = seen_compressed(variant, mask, key.shape)
    logits = logit_scale(variant) * np.einsum("btnh,benh->bnte", query, spread(keys, heads))
    if variant.softcap is not None:
        logits = variant.softcap * np.tanh(logits / variant.softcap)
    block_of = np.arange(length) // variant.select_block
    stretches = variant.select_block // variant.compress_stride
    parts = variant.compress_block // variant.compress_stride
    allowed = np.zeros((batch, key.shape[2], length, length), bool)
    for b, k, t in np.ndindex(batch, key.shape[2], length):
        log_p = []
        for n in range(k * heads // key.shape[2], (k + 1) * heads // key.shape[2]):
            x = np.where(seen[b, t], logits[b, n, t], -np.inf)
            log_p.append(x - np.logaddexp.reduce(x) if seen[b, t].any() else x)
        score = {}
        for j in set(block_of[real[b]]):
            first = (j + 1) * stretches - 1  # from 1 on, as the paper counts: (l'/d) j, less 1
            on = [first - m - n for m in range(stretches) for n in range(parts)]
            terms = [p[i] for p in log_p for i in on if 0 <= i < len(p)]
            score[j] = np.logaddexp.reduce(terms) if terms else -np.inf
            if j in (0, block_of[t], block_of[t] - 1):
                score[j] = np.inf
            if j > block_of[t] or score[j] == -np.inf:
                del score[j]
        chosen = sorted(score, key=lambda j: -score[j])[: variant.num_selected]
        allowed[b, k, t] = np.isin(block_of, chosen)
    return allowed


def spread(array, heads):
    return np.repeat(array, heads // array.shape[2], axis=2)


def test_capped_logits_equal_the_reference():
    """Not among the settings: a cap makes equals of huge logits, and rounding chooses among them."""
    variant = NativeSparse(**SETTINGS[0], softcap=1.5)
    given, mask = inputs(variant), Mask(causal=True)
    output, _ = reference(variant, given, mask, choices(variant, given))
    assert_close(forward(variant, given, mask)[0], output)


def test_one_branch_at_a_time():
    """Gates that are 0 or 1: the window, and all blocks selected, are `window` and `full`."""
    variant = NativeSparse(
        compress_block=4, compress_stride=2, select_block=4, num_selected=10, window_size=5
    )
    given, mask = inputs(variant), Mask(causal=True)
    for branch, twin in ((1, Full()), (2, Window(window_size=5))):
        gates = jnp.full_like(given.gates, -1e4).at[..., branch].set(1e4)
        output = forward(variant, given._replace(gates=gates), mask)[0]
        assert_close(output, forward(twin, given._replace(gates=None, params={}), mask)[0])


def test_compressed_keys_begin_as_means():
    variant = NativeSparse(compress_block=6, compress_stride=2, select_block=8)
    key = inputs(variant).key
    params = variant.init(None, num_heads=4, num_kv_heads=2, head_dim=4, model_dim=16, max_length=LENGTH)
    keys = compress(key, params["key_weights"], 2)
    assert keys.shape[1] == (LENGTH - 6) // 2 + 1
    for i in range(keys.shape[1]):
        assert_close(keys[:, i], key[:, 2 * i : 2 * i + 6].mean(1))


@pytest.mark.parametrize(("parts", "stretches"), [(1, 1), (2, 4), (3, 2), (5, 3), (1, 4), (4, 1)])
def test_importance_counts_stretches_that_are_shared(parts, stretches):
    """Twelve stretches; of blocks that are the same it is the weight itself."""
    weight = np.random.default_rng(0).random(13 - parts)
    found = importance(jnp.log(weight)[None, None, None], parts, stretches, 12 // stretches)[0, 0, 0]
    expected = np.zeros(12 // stretches)
    for i, j in np.ndindex(len(weight), len(expected)):
        expected[j] += weight[i] * len({*range(i, i + parts)} & {*range(j * stretches, (j + 1) * stretches)})
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-5)
    if parts == stretches == 1:
        np.testing.assert_allclose(expected, weight)


def test_a_planted_block_is_selected_by_the_heads_together():
    """Keys of block 2 point where head 0 looks, the others look elsewhere: all of the group select it."""
    variant = NativeSparse(compress_block=4, compress_stride=4, select_block=4, num_selected=4, scale=5.0)
    given = inputs(variant)
    params = {name: jnp.full((2, 4), 0.25) for name in given.params}
    key = given.key.at[:, 8:12, 0].set(20 * given.query[:, -1:, 0])
    allowed = selected(variant, Mask(causal=True), *choices(variant, given._replace(key=key, params=params)))
    assert allowed[:, 0, -1, 8:12].all()
    gates = jnp.full_like(given.gates, -1e4).at[..., 1].set(1e4)
    value = given.value.at[:, 8:12].set(7.0)
    given = given._replace(key=key, value=value, params=params, gates=gates)
    output = forward(variant, given, Mask(causal=True))[0]
    assert_close(output[:, -1, 0], np.full(output[:, -1, 0].shape, 7.0))


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
def test_flops_count_what_is_seen(fields):
    variant = NativeSparse(**fields)
    given, mask = inputs(variant, batch=1), Mask(causal=True)
    sizes = {"batch": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 4, "value_dim": 3}
    counted = variant.flops(query_length=LENGTH, key_length=LENGTH, causal=True, **sizes)
    shape = (1, LENGTH)
    far = seen_compressed(variant, mask, shape).sum()
    may = visible(mask, *shape, LENGTH)
    exact = (may[:, None] & selected(variant, mask, *choices(variant, given)))[:, 0].sum()
    near = np.minimum(np.arange(LENGTH) + 1, variant.window_size).sum()
    blocks = (LENGTH - variant.compress_block) // variant.compress_stride + 1
    mixing = 2 * 2 * 2 * blocks * variant.compress_block * (4 + 3)
    assert counted.forward == 2 * 4 * 2 * ((far + exact + near) * (4 + 3) + far * 4) + mixing
    assert counted.backward == 2 * 4 * 2 * (far + exact + near) * (3 * 4 + 2 * 3) + 2 * mixing


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    "fields", [{"compress_stride": 3}, {"compress_stride": 8, "select_block": 12}, {"select_block": 24}]
)
def test_strides_divide_blocks(fields):
    with pytest.raises(ValueError, match=r"compress_stride=\d+ .*divisor of compress_block=32 and of select"):
        NativeSparse(**fields)


def test_weights_are_those_of_the_fields():
    variant = NativeSparse(**SETTINGS[0])
    given = inputs(variant)
    params = given.params | {"value_weights": jnp.ones((2, 5))}
    with pytest.raises(ValueError, match=r"native_sparse.*value_weights.*\(2, 4\).*\(2, 5\)"):
        call(variant, given._replace(params=params), Mask(causal=True))
