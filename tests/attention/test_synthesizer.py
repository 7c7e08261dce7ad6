"""What only `synthesizer` can say; the laws over it are in test_laws_*.py."""

import numpy as np
import pytest

from attention import Mask, Synthesizer
from tests.attention import oracle
from tests.attention.cases import LENGTH, call, inputs
from tests.attention.masks import visible

SETTINGS = (
    {"kind": "factorized", "rank": 3},
    {"kind": "dense", "softcap": 1.5, "temperature": 0.7},
    {"kind": "random"},
)


def reference(variant, given, mask, choices):
    """The textbook's softmax with a table's rows for queries and the identity for keys."""
    query = np.asarray(given.query, np.float64)
    batch, length, heads, _ = query.shape
    params = {name: np.asarray(x, np.float64) for name, x in given.params.items()}
    match variant.kind:
        case "dense":
            hidden = np.maximum(np.einsum("BTNH,NHJ->BTNJ", _real(query, mask), params["hidden"]), 0)
            table = np.einsum("BTNJ,SNJ->BTNS", hidden, params["by_index"][:length])
        case "random":
            table = params["logits"][:, :length, :length].swapaxes(0, 1)
        case _:
            table = np.einsum("TNR,SNR->TNS", params["query_index"][:length], params["key_index"][:length])
    rows = np.broadcast_to(table, (batch, length, heads, length))
    columns = np.broadcast_to(np.eye(length)[None, :, None], (batch, length, heads, length))
    value = np.repeat(np.asarray(given.value, np.float64), heads // given.value.shape[2], axis=2)
    allowed = visible(mask, batch, length, length)
    output, lse, _ = oracle.attend(
        rows, columns, value, allowed, 1 / variant.temperature, softcap=variant.softcap
    )
    return output, lse


def _real(query, mask):
    valid = np.ones(query.shape[:2], bool) if mask.query_valid is None else np.asarray(mask.query_valid)
    return np.where(valid[..., None, None], query, 0)


@pytest.mark.parametrize("kind", ["dense", "random", "factorized"])
def test_indices_that_were_not_learned_are_refused(kind):
    variant = Synthesizer(kind=kind)
    given = inputs(variant)
    params = {
        name: x
        if name == "hidden"
        else x[tuple(slice(0, n - 60) if n == 2 * LENGTH else slice(None) for n in x.shape)]
        for name, x in given.params.items()
    }
    with pytest.raises(ValueError, match=rf"synthesizer: params.*at least {LENGTH} indices"):
        call(variant, given._replace(params=params), Mask())
