"""Bias of stated values: worked examples, and that a proposal stands the test on newer claims."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from imem.credibility.scores.bias import ValueClaim, corrected, propose
from imem.kg.kinds.enums import BiasKind

START = datetime(2024, 1, 1, tzinfo=UTC)


def claims(factors: list[float], tolerance: float = 0.15, actual: float = 100.0) -> list[ValueClaim]:
    return [
        ValueClaim(START + timedelta(days=day), actual * factor, actual, tolerance)
        for day, factor in enumerate(factors)
    ]


@pytest.mark.spec("CR-19")
def test_corrections() -> None:
    assert corrected(0.12, BiasKind.RELATIVE, 0.032) == pytest.approx(0.1163, abs=5e-5)
    assert corrected(0.12, BiasKind.ABSOLUTE, 0.032) == pytest.approx(0.0880)


def test_a_lasting_bias_is_proposed() -> None:
    found = propose(claims([1.2] * 20))

    assert found is not None
    assert (found.kind, found.n) == (BiasKind.RELATIVE, 14)
    assert found.bias == pytest.approx(0.2)
    assert (found.frequency, found.before, found.after) == (1.0, 0.0, 1.0)


def test_a_bias_that_ended_is_not() -> None:
    assert propose(claims([*[1.2] * 14, *[1.0] * 6])) is None


def test_claims_of_few_moments_are_too_few() -> None:
    assert propose(claims([1.2] * 14)) is None
    assert propose([one._replace(target_at=START) for one in claims([1.2] * 100)]) is None


def test_noise_is_no_bias() -> None:
    drawn = np.random.default_rng(1).normal(1.0, 0.2, size=(50, 60))

    assert sum(propose(claims(list(factors))) is not None for factors in drawn) <= 2


def test_values_below_zero_are_corrected_by_a_number() -> None:
    days = [ValueClaim(START + timedelta(days=day), -4.0, -5.0, 0.1) for day in range(20)]

    found = propose(days)

    assert found is not None
    assert (found.kind, found.bias) == (BiasKind.ABSOLUTE, 1.0)


def test_a_bias_is_a_number() -> None:
    """Of values beyond all measure the relative error is none; what cannot be recorded is not proposed."""
    found = propose([ValueClaim(START + timedelta(days=day), 1e308, 1e-10, 0.15) for day in range(30)])

    assert found is not None
    assert (found.kind, found.bias) == (BiasKind.ABSOLUTE, 1e308)
