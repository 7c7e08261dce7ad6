"""What a variant's own test file says that it computes (see cases.py), as values and as gradients."""

import jax
import numpy as np

from attention import Mask
from tests.attention import oracle
from tests.attention.cases import Case, Inputs, cotangents, logit_scale
from tests.attention.tolerances import assert_close


def by_reference(case: Case, given: Inputs, mask: Mask):
    """Output and log-sum-exp, float64."""
    if is_exact(case):
        operands, softcap = _operands(case, given, mask)
        return oracle.attend(*operands, softcap=softcap)[:2]
    return case.statement.reference(case.variant, given, mask, _choices(case, given))


def check_gradients(case: Case, given: Inputs, mask: Mask, gradients: dict) -> None:
    """Against the oracle's for an exact variant, else against differences of its reference."""
    if is_exact(case):
        operands, softcap = _operands(case, given, mask)
        expected = oracle.gradients(*operands, *cotangents(given), softcap=softcap)
        for name, gradient in expected._asdict().items():
            assert_close(gradients[name], gradient, what=f"gradient of {name}")
    else:
        choices = _choices(case, given)
        _check_by_differences(
            lambda moved: case.statement.reference(case.variant, moved, mask, choices), given, gradients
        )


def is_exact(case: Case) -> bool:
    """Whether it declares visible pairs."""
    return hasattr(case.statement, "allowed")


def _operands(case: Case, given: Inputs, mask: Mask):
    lengths = given.query.shape[0], given.query.shape[1], given.value.shape[1]
    allowed = case.statement.allowed(case.variant, mask, *lengths)
    return (given.query, given.key, given.value, allowed, logit_scale(case.variant)), getattr(
        case.variant, "softcap", None
    )


def _choices(case: Case, given: Inputs):
    return case.statement.choices(case.variant, given) if hasattr(case.statement, "choices") else None


def _check_by_differences(reference, given: Inputs, gradients: dict, step: float = 1e-5) -> None:
    """Slopes along random directions equal central differences of `reference` in float64, choices held."""
    draw = np.random.default_rng(7)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), given._replace(rng=None))
    d_output, d_lse = (np.asarray(x, np.float64) for x in cotangents(given))

    def loss(name, direction, distance):
        moved = jax.tree.map(lambda x, d: x + distance * d, getattr(wide, name), direction)
        output, lse = reference(wide._replace(**{name: moved}))
        return (d_output * output).sum() + np.where(np.isfinite(lse), d_lse * lse, 0).sum()

    for name, gradient in gradients.items():
        leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(gradient)]
        norm = np.sqrt(sum((x**2).sum() for x in leaves))
        for _ in range(3 if leaves else 0):
            direction = jax.tree.map(lambda x: draw.normal(size=x.shape), gradient)
            expected = (loss(name, direction, step) - loss(name, direction, -step)) / (2 * step)
            slope = sum((x * d).sum() for x, d in zip(leaves, jax.tree.leaves(direction), strict=True))
            np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-4 * norm, err_msg=name)
