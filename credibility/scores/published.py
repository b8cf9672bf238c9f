"""The record of a score, in which all of it is published. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from imem.credibility.scores.designed import override_penalty
from imem.credibility.scores.overrides import OverrideRate
from imem.credibility.scores.people import Correction, Pin
from imem.credibility.scores.reading import AgentScore
from imem.credibility.scores.scope import Share
from imem.journal.events.canonical import canonical_json
from imem.kg.kinds.enums import Regime
from imem.kg.kinds.fields import JSON_BYTES, moment_text
from imem.kg.kinds.trust import AgentCredibility

ROOM: Final = JSON_BYTES - 512
"""Bytes of a property for its entries; the rest is for the braces and commas around them."""

T = TypeVar("T")


def credibility_of(score: AgentScore, at: datetime, run_id: UUID) -> AgentCredibility:
    """
    Return the record of a score.

    Args:
        score: as of *at*, of the whole domain.
        at: the moment to which ages were counted.
        run_id: the run of the regime under which it is published.
    """
    record, overrides, trend, designed = score.record, score.people.overrides, score.trend, score.designed
    regimes = score.contexts.get("regime", {})
    contexts = {name: values for name, values in score.contexts.items() if name != "regime"}
    corrections = {one.id: one for one in score.people.corrections}
    return AgentCredibility(
        agent_id=record.agent,
        domain=record.domain,
        score=AgentCredibility.Score(
            overall_score=_share(designed.score),
            base_accuracy=_share(designed.base_accuracy),
            base_accuracy_lower=None if score.wilson is None else score.wilson.lower,
            base_accuracy_upper=None if score.wilson is None else score.wilson.upper,
            temporal_weight=_share(designed.temporal_weight),
            regime_adjustment=_share(designed.regime_adjustment),
            trend_adjusted=_share(designed.trend_adjusted),
            formula_version=designed.formula_version.value,
            sample_size=record.n,
            rows=record.rows,
            regime=None if score.regime is None else Regime(score.regime),
            regime_run=str(run_id),
            pin=None if score.people.pin is None else _pin(score.people.pin),
            recent_accuracy=score.recent_accuracy,
            time_weighted_score=_share(score.decayed_accuracy),
            bias_corrections=_within_room({"all": corrections}, lambda one: one.n, _correction).get("all"),
            last_updated=at,
            decay_halflife_years=record.halflife_years,
            last_decay_calculation=at,
            regime_credibility=_within_room({"all": regimes}, _observations, _accuracy).get("all"),
            trend_slope=trend.slope,
            trend_direction=trend.direction,
            trend_strength=_share(trend.r_squared),
            extrapolated_6mo=trend.extrapolated,
            trend_last_calculated=at,
            override_rate=overrides.rate,
            override_rate_by_context=_within_room(overrides.by_context, lambda one: one.recommendations, _overridden)
            or None,
            override_outcome_accuracy=overrides.outcome_accuracy,
            override_reasons=overrides.reasons or None,
            override_credibility_penalty=override_penalty(overrides.rate),
            context_dimensions=_within_room(contexts, _observations, _accuracy) or None,
            decayed_weight=score.weight,
            decayed_weight_sq=record.weight**2 / record.effective_n if record.effective_n > 0.0 else 0.0,
            posterior_mean=score.posterior.mean,
            posterior_lower=score.posterior.lower,
            posterior_upper=score.posterior.upper,
        ),
    )


def _share(value: float | None) -> float | None:
    """Return a fraction that rounding took beyond 0 to 1 as one."""
    return None if value is None else min(max(value, 0.0), 1.0)


def _within_room(
    parts: Mapping[str, Mapping[str, T]], evidence: Callable[[T], float], form: Callable[[T], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return *parts* as JSON types; what has the least evidence is left out where a property has no room for all."""
    flat = [(name, value, of) for name, values in parts.items() for value, of in values.items() if evidence(of) > 0.0]
    found: dict[str, dict[str, Any]] = {}
    left = ROOM
    for name, value, of in sorted(flat, key=lambda one: (-evidence(one[2]), one[0], one[1])):
        entry = form(of)
        left -= len(canonical_json({value: entry}))
        if left < 0:
            break
        found.setdefault(name, {})[value] = entry
    return found


def _observations(of: Share) -> float:
    return of.observations


def _accuracy(of: Share) -> dict[str, Any]:
    return {"accuracy": _share(of.accuracy), "sample_size": round(of.observations, 9)}


def _overridden(of: OverrideRate) -> dict[str, Any]:
    return {"rate": of.rate, "overrides": of.overrides, "recommendations": of.recommendations}


def _pin(of: Pin) -> dict[str, Any]:
    until = {} if of.until is None else {"until": moment_text(of.until)}
    return {"id": of.id, "score": of.score, **until}


def _correction(of: Correction) -> dict[str, Any]:
    entry = {"metric": of.metric, "sector": of.sector, "regime": of.regime, "bias": of.bias, "n": of.n}
    return {"kind": of.kind.value, **{name: value for name, value in entry.items() if value is not None}}
