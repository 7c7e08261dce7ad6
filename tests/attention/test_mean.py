"""What only `mean` can say; the laws over it are in test_laws_*.py."""

import numpy as np

from tests.attention import loops

SETTINGS = ({"query_block": 8},)


def reference(variant, given, mask, choices):
    seen = loops.seen(given, mask) & np.ones((1, given.query.shape[2], 1, 1), bool)
    return loops.by_weights(seen.astype(np.float64), given)
