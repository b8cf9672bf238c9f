"""The tables of what is critical, and of what fits a change of regime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.archives.scoring import criticality_of, impact_of, qualifies, regime_score, score_of, tier_of


@pytest.mark.spec("AR-3")
@pytest.mark.parametrize(
    ("used", "confidence", "impact", "validations", "score", "tier"),
    [
        (True, 0.80, 0.2, 1, 2, 2),
        (False, 0.90, 0.2, 5, 2, 2),
        (False, 0.60, 0.2, 2, 0, 1),
        (True, 0.50, 0.2, 1, 1, 2),
        (False, 0.70, 0.5, 3, 1, 1),
        (False, 0.60, impact_of(60_000.0, 4.0), 3, 2, 2),
        # Of products of decimals: 0.7 and not above it.
        (False, 0.1 * 7, 0.1 + 0.4, 3, 1, 1),
        (False, None, None, 0, 0, 1),
    ],
)
def test_what_is_critical(
    *, used: bool, confidence: float | None, impact: float | None, validations: int, score: int, tier: int
) -> None:
    found = criticality_of(used=used, confidence=confidence, impact=impact, validations=validations)
    assert found.score == score
    assert tier_of(critical=found.critical, validated=True, ended_late=False) == tier
    assert tier_of(critical=found.critical, validated=False, ended_late=False) == (2 if tier == 2 else 0)
    assert tier_of(critical=False, validated=False, ended_late=True) == 2


@pytest.mark.spec("AR-3")
def test_the_impact_of_a_position() -> None:
    assert impact_of(60_000.0, 4.0) == pytest.approx(0.6)
    assert impact_of(10_000.0, 12.0) == pytest.approx(0.6)
    assert impact_of(1e9) == 1.0
    assert impact_of(None) is None


@pytest.mark.spec("AR-22")
@pytest.mark.parametrize(
    ("match", "confidence", "accuracy", "years", "score", "promoted"),
    [(1.0, 0.82, 0.75, 3.68, 0.859, True), (1.0, 0.60, 0.50, 9.0, 0.690, False), (1.0, 0.59, 0.90, 0.0, None, False)],
)
def test_what_fits_a_change_of_regime(
    *, match: float, confidence: float, accuracy: float, years: float, score: float | None, promoted: bool
) -> None:
    found = score_of(match, confidence, accuracy, years)
    if score is not None:
        assert found == pytest.approx(score, abs=0.001)
    assert qualifies(confidence, found) is promoted


@pytest.mark.spec("AR-22")
def test_the_score_of_tags_and_dates() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    given: dict[str, Any] = {
        "confidence": 0.82,
        "accuracy": 0.75,
        "now": now,
        "deprecated_at": now - timedelta(days=3.68 * 365.25),
    }
    assert regime_score(triggers=["a"], tags=["a", "b"], **given) == pytest.approx(0.859, abs=0.001)
    assert regime_score(triggers=["a", "c"], tags=["a", "b"], **given) == pytest.approx(0.659, abs=0.001)
    given["deprecated_at"] = now - timedelta(days=40 * 365)
    assert regime_score(triggers=["a"], tags=["a"], **given) == pytest.approx(0.796, abs=0.001)
