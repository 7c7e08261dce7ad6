"""What only `nystrom` can say; the laws over it are in test_laws_*.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention import Full, Mask, Nystrom
from attention.nystrom import _pseudoinverse
from tests.attention import loops
from tests.attention.cases import call, forward, inputs, logit_scale
from tests.attention.tolerances import assert_close

MEANS = False  # an inverse has negative entries
SETTINGS = (
    {"num_landmarks": 5, "pinv_iterations": 4, "scale": 1.5},
    {"num_landmarks": 16, "pinv_iterations": 2, "softcap": 3.0, "temperature": 0.7},
)


def reference(variant, given, mask, choices):
    """The three matrices of each head, written out for the real tokens alone."""
    query, key, value = (loops.spread(x, given) for x in (given.query, given.key, given.value))
    shapes = zip((mask.query_valid, mask.key_valid), (query, key), strict=True)
    real = [np.broadcast_to(True if x is None else x, y.shape[:2]) for x, y in shapes]
    output = np.zeros((*query.shape[:3], value.shape[3]))
    for b, n in np.ndindex(query.shape[0], query.shape[2]):
        q, k, v = query[b, real[0][b], n], key[b, real[1][b], n], value[b, real[1][b], n]
        if len(q) and len(k):
            few = [means(x, variant.num_landmarks) for x in (q, k)]
            inverse = inverted(softmax(variant, *few), variant.pinv_iterations)
            output[b, real[0][b], n] = softmax(variant, q, few[1]) @ inverse @ softmax(variant, few[0], k) @ v
    return output, np.zeros(output.shape[:3])


def means(x, number):
    return np.stack([segment.mean(0) for segment in np.array_split(x, min(number, len(x)))])


def softmax(variant, query, key):
    logits = logit_scale(variant) * query @ key.T
    if variant.softcap is not None:
        logits = variant.softcap * np.tanh(logits / variant.softcap)
    weight = np.exp(logits - logits.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def inverted(a, iterations):
    z = a.T / (np.linalg.norm(a, 1) * np.linalg.norm(a, np.inf))
    one = np.eye(len(a))
    for _ in range(iterations):
        z = z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z))) / 4
    return z


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4)], ids=str)
def test_the_iteration_converges_to_the_pseudoinverse(shape):
    """Of any matrix whose rows sum to 1, with more rows than columns too, and with rows and columns of 0."""
    draw = np.random.default_rng(0)
    matrix = draw.dirichlet(0.3 * np.ones(shape[1]), (3, shape[0]))
    matrix[0] = np.pad(draw.dirichlet(0.3 * np.ones(3), 3), [(0, x - 3) for x in shape])
    with jax.enable_x64(True):
        found = np.asarray(_pseudoinverse(jnp.asarray(matrix), 30))
    np.testing.assert_allclose(found, np.linalg.pinv(matrix), atol=1e-9)
    assert (found[0, 3:] == 0).all() and (found[0, :, 3:] == 0).all()


def test_with_all_tokens_for_landmarks_it_is_full_attention_once_the_inverse_has_converged():
    """Queries that are each nearest to a key of its own: the matrix is far from singular."""
    with jax.enable_x64(True):
        given = inputs(Nystrom(), length=9, dtype=jnp.float64)
        tokens = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 1, 4)))
        tokens = tokens / jnp.linalg.norm(tokens, axis=-1, keepdims=True)
        given = given._replace(query=jnp.tile(tokens, (1, 1, 4, 1)), key=jnp.tile(tokens, (1, 1, 2, 1)))
        expected = forward(Full(scale=12), given, Mask())[0]
        errors = [
            float(abs(forward(Nystrom(9, iterations, scale=12), given, Mask())[0] - expected).max())
            for iterations in (2, 16)
        ]
    assert errors[1] < 1e-9 < errors[0]


def test_rows_of_a_batch_have_norms_of_their_own():
    """Another row whose matrix has a greater norm changes nothing."""
    variant = Nystrom(num_landmarks=4, pinv_iterations=1)
    given = inputs(variant)
    other = given.over_tokens(lambda x: x.at[1].set(30 * x[1]))
    assert_close(call(variant, given, Mask())[0][0], call(variant, other, Mask())[0][0])
