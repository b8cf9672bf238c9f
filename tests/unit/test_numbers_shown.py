"""How numbers are shown inside a line."""

from __future__ import annotations

import pytest

from imem.recall.rendering.formatting import number


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (0.25, "0.25"), (-0.0001, "-0.0001"), (12.0, "12"), (1234567.891, "1,234,567.89"),
        (1e14, "100,000,000,000,000"), (1e308, "1e+308"), (-1.23456e15, "-1.235e+15"), (0.000012, "1.2e-05"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_never_shown_as_another(value: float, shown: str) -> None:
    assert number(value) == shown
