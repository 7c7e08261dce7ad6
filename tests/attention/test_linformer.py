"""What only `linformer` can say; the laws over it are in test_laws_*.py."""

import numpy as np
import pytest

from attention import Full, Linformer, Mask
from tests.attention import oracle
from tests.attention.cases import LENGTH, call, forward, inputs, logit_scale
from tests.attention.tolerances import assert_close

MEANS = False  # a mixture may take keys away
SETTINGS = (
    {"num_projected": 6, "query_block": 8, "scale": 0.1},
    {"num_projected": 5, "share": True, "softcap": 1.5, "temperature": 0.7, "scale": 0.1},
)


def reference(variant, given, mask, choices):
    """Mixtures as they are written, and softmax attention to them."""
    key, value = (np.asarray(x, np.float64) for x in (given.key, given.value))
    valid = np.ones(key.shape[:2], bool)
    if mask.key_valid is not None:
        valid &= np.asarray(mask.key_valid)
    params = {name: np.asarray(x, np.float64) for name, x in given.params.items()}
    of_keys = params["key_projection"][: key.shape[1]]
    of_values = of_keys if variant.share else params["value_projection"][: key.shape[1]]
    mixed = [
        np.einsum("SP,BSKH,BS->BPKH", matrix, x, valid) for matrix, x in ((of_keys, key), (of_values, value))
    ]
    seeing = np.ones(given.query.shape[:2], bool)
    if mask.query_valid is not None:
        seeing &= np.asarray(mask.query_valid)
    allowed = np.broadcast_to(
        (seeing & valid.any(1, keepdims=True))[..., None], (*seeing.shape, of_keys.shape[1])
    )
    return oracle.attend(given.query, *mixed, allowed, logit_scale(variant), softcap=variant.softcap)[:2]


def test_with_the_identity_for_its_projections_it_is_full_attention():
    variant = Linformer(num_projected=LENGTH)
    given = inputs(variant)
    params = {name: np.eye(LENGTH, dtype=np.float32) for name in given.params}
    result = forward(variant, given._replace(params=params), Mask())
    for one, other in zip(result, forward(Full(), given._replace(params={}), Mask()), strict=True):
        assert_close(one, other)


def test_it_is_not_for_longer_inputs_than_it_was_made_for():
    variant = Linformer(num_projected=5)
    given = inputs(variant)
    short = {name: x[: LENGTH - 1] for name, x in given.params.items()}
    with pytest.raises(ValueError, match=rf"key_projection.*at least {LENGTH} keys.*\({LENGTH - 1}, 5\)"):
        call(variant, given._replace(params=short), Mask())
