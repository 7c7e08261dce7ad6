"""As many digits as the uncertainty is worth."""

import pytest

from experiments.report import digits


@pytest.mark.parametrize(
    ("mean", "half_width", "expected"),
    [
        (0.50731, 0.36494, ("0.51", "0.36")),
        (0.998903, 0.000923, ("0.99890", "0.00092")),
        (0.5, 0.0996, ("0.50", "0.10")),
        (123.456, 17.2, ("123", "17")),
        (12345.6, 1234.0, ("12346", "1234")),
        (2.641646, None, ("2.642", None)),
        (0.0078125, 0.0, ("0.007812", "0")),
        (1.0, None, ("1.000", None)),
        (-0.004, 0.02, ("-0.004", "0.020")),
    ],
)
def test_mean_and_half_width(mean, half_width, expected):
    assert digits.shown(mean, half_width) == expected
