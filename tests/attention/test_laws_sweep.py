"""Laws 1 and 3 at settings and lengths that nobody picked: windows, pools, levels, blocks, both lengths.

Forward only: each example is a program of its own. What tiles are visited is swept far more widely, without
compiling anything, in test_tiles.py.
"""

import numpy as np
import pytest

from attention import Full, Mask, Pooled, Window
from tests.attention.cases import Case, forward, inputs, statement
from tests.attention.references import by_reference
from tests.attention.tolerances import assert_close

LENGTHS = (1, 2, 3, 5, 8, 12, 13)
EXAMPLES = 16


def drawn(name: str, seed: int):
    """A variant, its two lengths and whether it is causal."""
    draw = np.random.default_rng(seed)

    def pick(*of):
        return of[draw.integers(len(of))]

    blocks = {"query_block": pick(None, 1, 2, 3, 4, 8), "key_block": pick(None, None, 1, 3, 4)}
    match name:
        case "full":
            variant = Full(**blocks)
        case "window":
            variant = Window(window_size=pick(1, 2, 3, 7), **blocks)
        case _:
            variant = Pooled(
                window_size=pick(0, 1, 2, 4),
                pool_size=pick(1, 2, 3, 4, 8),
                num_levels=pick(1, 2, 3),
                **blocks,
            )
    return variant, pick(*LENGTHS), pick(*LENGTHS), bool(draw.random() < 0.6)


@pytest.mark.parametrize("seed", range(EXAMPLES))
@pytest.mark.parametrize("name", ["full", "window", "pooled"])
def test_any_setting_equals_its_reference(name, seed):
    variant, query_length, key_length, causal = drawn(name, seed)
    given = inputs(variant, batch=1, length=query_length, key_length=key_length)
    output, lse = forward(variant, given, Mask(causal))
    expected, expected_lse = by_reference(Case(variant, "", statement(name)), given, Mask(causal))
    what = f"{variant}, {query_length} queries, {key_length} keys, causal={causal}"
    assert_close(lse, expected_lse, what=f"lse: {what}")
    assert_close(output, expected, what=f"output: {what}")
