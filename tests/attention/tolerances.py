"""How close is close, by dtype; written once."""

import numpy as np

# (relative, absolute) at values of order one. bfloat16 keeps 8 bits: an output rounded once is off by 0.4%.
TOLERANCES = {"float64": (1e-10, 1e-10), "float32": (3e-5, 1e-5), "bfloat16": (2e-2, 2e-2)}


def assert_close(actual, expected, *, what: str = "", dtype: str | None = None, loosen: float = 1.0) -> None:
    """Equal within the tolerance of `dtype`, that of `actual` unless given; infinities must coincide."""
    dtype = dtype or str(actual.dtype)
    relative, absolute = (loosen * x for x in TOLERANCES[dtype])
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    np.testing.assert_allclose(actual, expected, rtol=relative, atol=absolute, err_msg=what)
