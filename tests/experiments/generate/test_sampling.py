import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.generate.sampling import Sampling, choose

# Probabilities 0.5, 0.25, 0.125, 0.125 at temperature 1, in no order.
LOGITS = np.log(np.array([0.125, 0.5, 0.125, 0.25]))
DRAWS = 4000


def shares(sampling: Sampling) -> dict[int, float]:
    """How often each token is drawn."""
    rows = jnp.broadcast_to(jnp.asarray(LOGITS, jnp.float32), (DRAWS, 4))
    counts = collections.Counter(np.asarray(choose(rows, jax.random.key(0), sampling)).tolist())
    return {token: count / DRAWS for token, count in sorted(counts.items())}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), {0: 0.125, 1: 0.5, 2: 0.125, 3: 0.25}),
        (Sampling(temperature=0), {1: 1}),
        (Sampling(temperature=0.5), {0: 1 / 22, 1: 16 / 22, 2: 1 / 22, 3: 4 / 22}),
        (Sampling(top_k=1), {1: 1}),
        (Sampling(top_k=2), {1: 2 / 3, 3: 1 / 3}),
        (Sampling(top_k=3), {0: 1 / 7, 1: 4 / 7, 3: 2 / 7}),  # of two as likely the first
        (Sampling(top_k=9), {0: 0.125, 1: 0.5, 2: 0.125, 3: 0.25}),
        (Sampling(top_p=0.4), {1: 1}),
        (Sampling(top_p=0.6), {1: 2 / 3, 3: 1 / 3}),
        (Sampling(temperature=0.5, top_p=0.8), {1: 0.8, 3: 0.2}),  # 16/22 alone is not enough
        (Sampling(top_k=2, top_p=0.66), {1: 1}),  # the share of those that top_k left
        (Sampling(temperature=1e-40), {1: 1}),
        (Sampling(top_p=1e-9), {1: 1}),
    ],
    ids=str,
)
def test_each_token_is_drawn_as_often_as_it_should(sampling, expected):
    found = shares(sampling)
    assert found.keys() == expected.keys()
    for token, share in expected.items():
        assert abs(found[token] - share) < 4 * np.sqrt(0.25 / DRAWS)


def test_a_row_draws_the_same_whatever_is_beside_it():
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(5, 30)), jnp.float32)
    rng = jax.random.key(3)
    assert (choose(rows, rng, Sampling())[:2] == choose(rows[:2], rng, Sampling())).all()


def test_tokens_that_are_impossible_are_never_drawn():
    logits = jnp.where(jnp.arange(4) == 2, -jnp.inf, jnp.zeros((DRAWS, 4)))
    assert 2 not in np.asarray(choose(logits, jax.random.key(0), Sampling()))


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", x) for x in (-1, float("nan"), float("inf"), "1", True)]
    + [("top_k", x) for x in (0, 1.5, True)]
    + [("top_p", x) for x in (0, 1.1, float("nan"), None)],
)
@pytest.mark.usefixtures("as_users_run")
def test_wrong_values_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"sampling: {field}={value!r} is not accepted"):
        Sampling(**{field: value})
