"""
Tier 1 as a pipeline: the hold-out of candidates, all of one mining run judged together.

Cases are read and permuted outside of any transaction. The result is stored in one transaction a family under the lock
of the queue: the record of each test, and the status of what failed. Ids follow from pattern, tier and attempt: a crash
leaves the family as it was, and a repeated run records nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import isfinite
from statistics import fmean
from typing import Any, Final

from imem.jobs.lifecycle import BATCH_MS, Effects, LifecycleRow, finish
from imem.jobs.pipeline import Report
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.kg.kinds.enums import PatternStatus, ValidationType
from imem.kg.kinds.patterns import Pattern, PatternValidation
from imem.kg.load_format.lines import record_of
from imem.patterns.cases import EVER, FeaturedCase, featured_cases
from imem.patterns.definition import PatternDefinition, definition_of
from imem.patterns.evidence.holdout import SEED, DesignedResult, Evidence, designed, evidence_of, holdout_p, matching
from imem.patterns.evidence.splits import Case, Split, split
from imem.patterns.evidence.verdicts import q_values
from imem.patterns.life import (
    ACTOR,
    CANDIDATES,
    WRITER,
    GateMode,
    PatternsRuntime,
    Stage,
    enter,
    grouped,
    keep,
    recorded,
    staged,
)
from imem.patterns.planning import plan
from imem.patterns.states import LEAST_OCCURRENCES, PatternFacts

MOST: Final = 500
"""Candidates of one round at most."""

SIGNIFICANT: Final = 0.05
"""The q-value below which the hold-out is passed."""

AGAIN: Final = timedelta(days=30)
"""After how long a candidate without enough cases is looked at again, at the latest."""


AT_ONCE: Final = 25
"""Candidates whose cases are held in memory at once; all of one family share permutations by their seed."""

Family = tuple[str | None, str, str]
"""The family that a candidate is judged with: the mining run (None: by hand), the metric, and the reference."""


SOON: Final = timedelta(days=1)
"""After how long at the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tested:
    """
    A candidate, and what its hold-out says.

    Attributes:
        row: of the candidate.
        design: the gate of the design.
        evidence: matching cases and periods by part; *ends*: when the last case of each became known.
        begins_at, ends_at: of the test part.
        effect: by how much outcomes of matching training cases lay off the reference, on average.
        look_at: when there can be a verdict, where the cases are too few; None: no cases come.
        p: of the permutation test; None where the cases are too few.
    """

    row: LifecycleRow
    design: DesignedResult
    evidence: Mapping[str, Evidence]
    ends: Mapping[str, datetime]
    begins_at: datetime
    ends_at: datetime
    effect: float
    look_at: datetime | None = None
    p: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the sound test says anything."""
        return self.evidence["validation"].enough and self.evidence["test"].enough


async def test_candidates(runtime: PatternsRuntime, *, until: Deadline) -> Report:
    """
    Test the candidates that are due; return how many were tested, passed, and wait for data; empty if none was due.

    Raises:
        PostgresUnavailable: committed families stay; the rest is still due.
    """
    due = await runtime.database.named(
        "patterns_in", {**CANDIDATES, "stage": Stage.HOLDOUT, "limit": MOST}, deadline=Deadline.after_ms(BATCH_MS)
    )
    if not due:
        return {}
    now = due[0]["now"]
    families: dict[Family, list[LifecycleRow]] = {}
    for found in due:
        row = LifecycleRow.of(found)
        definition = definition_of(row.data["definition"])
        families.setdefault((row.data["run"], definition.metric, definition.reference), []).append(row)
    total = {"tested": 0, "passed": 0, "waiting": 0}
    for family, candidates in families.items():
        if until.passed:
            return {**total, "more": True}
        await _record(runtime, family, await _tested(runtime, candidates, now), now, total)
    return total


async def _tested(runtime: PatternsRuntime, candidates: Sequence[LifecycleRow], now: datetime) -> list[_Tested]:
    """Return what hold-outs say; the questions are read once for all that are compared within the same periods."""
    panels: dict[tuple[str, str | None], list[LifecycleRow]] = {}
    for row in candidates:
        panels.setdefault((row.data["definition"]["period"], row.data["since"]), []).append(row)
    tested: list[_Tested] = []
    for (_, since), panel in panels.items():
        definition = definition_of(panel[0].data["definition"])
        found = await featured_cases(
            runtime.database, definition.metric, definition.reference, definition.period,
            since=EVER if since is None else datetime.fromisoformat(since), until=now,
            deadline=Deadline.after_ms(BATCH_MS),
        )  # fmt: skip
        for begin in range(0, len(panel), AT_ONCE):
            tested += await asyncio.to_thread(_judged, panel[begin : begin + AT_ONCE], found, now)
    return tested


def _judged(panel: Sequence[LifecycleRow], found: Sequence[FeaturedCase], now: datetime) -> list[_Tested]:
    """Return what the hold-outs of candidates on the same questions say, with p-values by the same permutations."""
    tested, tests, claims = [], [], []
    for row in panel:
        definition = definition_of(row.data["definition"])
        cases = [one.of(definition) for one in found]
        parts = split(cases)
        one = _looked_at(row, definition, parts, now)
        if one.enough:
            tests.append(parts.test)
            claims.append(definition.claim)
        else:
            one = replace(one, look_at=plan(definition, cases, now).verdict_at)
        tested.append(one)
    if not tests:
        return tested
    # What is no number is evidence of nothing.
    p = iter([float(p) if isfinite(p) else 1.0 for p in holdout_p(tests[0], tests, claims)])
    return [replace(one, p=next(p)) if one.enough else one for one in tested]


def _looked_at(row: LifecycleRow, definition: PatternDefinition, parts: Split, now: datetime) -> _Tested:
    named = list(zip(parts._fields, parts, strict=True))
    return _Tested(
        row=row, design=designed(parts, definition.claim), effect=effect_of(parts.training),
        evidence={name: evidence_of(part) for name, part in named},
        ends={name: max(case.known_at for case in part) for name, part in named if part},
        begins_at=min((case.predicted_at for case in parts.test), default=now),
        ends_at=max((case.known_at for case in parts.test), default=now),
    )  # fmt: skip


async def _record(
    runtime: PatternsRuntime, family: Family, judged: Sequence[_Tested], now: datetime, total: dict[str, int]
) -> None:
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "patterns_lock")
        keys = [one.row.key for one in judged]
        present = {row["key"]: LifecycleRow.of(row) for row in await rows(conn, "pattern_rows", {"keys": keys})}
        current = [one for one in judged if present[one.row.key].version == one.row.version]
        run, metric, reference = family
        asked = {"run": run, "metric": metric, "reference": reference, "keys": [one.row.key for one in current]}
        earlier = [row["p"] for row in await rows(conn, "pattern_family", asked)]
        qs = q_values([one.p for one in current if one.p is not None] + earlier)
        q_of = {one.row.key: q for one, q in zip((one for one in current if one.p is not None), qs, strict=False)}
        both = runtime.pattern_gate_mode is GateMode.BOTH
        effects = Effects()
        for one in current:
            few = one.evidence["training"].cases < LEAST_OCCURRENCES
            if few and one.row.data["since"] is None:
                effects += await _insufficient(conn, one)
                total["tested"] += 1
            elif few or (both and one.p is None):
                # A pattern that later forecasts alone test has no cases at first, and waits for them.
                await _wait(conn, one, now)
                total["waiting"] += 1
            else:
                more, passed = await _conclude(conn, one, q_of.get(one.row.key), len(qs), now, both=both)
                effects += more
                total["tested"] += 1
                total["passed"] += passed
        await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    if effects.facts:
        await runtime.gateway.publish_wakeup(tuple(Tier))


async def _wait(conn: Connection, one: _Tested, now: datetime) -> None:
    """Look at a candidate again when there can be a verdict, and a month later at the latest."""
    at = min(one.look_at or now + AGAIN, now + AGAIN)
    await keep(conn, one.row, staged(one.row.data, Stage.HOLDOUT, max(at, now + SOON)))


async def _insufficient(conn: Connection, one: _Tested) -> Effects:
    """Reject a candidate that was not seen often enough to be a pattern."""
    seen = one.evidence["training"].cases
    facts = PatternFacts(role=ACTOR.role, occurrences=seen)
    reason = f"Its condition held in {seen} training cases, fewer than {LEAST_OCCURRENCES}."
    return (await enter(conn, one.row, PatternStatus.REJECTED_INSUFFICIENT, facts, reason=reason))[1]


async def _conclude(
    conn: Connection, one: _Tested, q: float | None, family: int, now: datetime, *, both: bool
) -> tuple[Effects, bool]:
    """Record the hold-out of a candidate, and reject it if it failed; by *both* gates, or by the design's alone."""
    failure = one.design.failure
    if failure is None and both and not (q is not None and q < SIGNIFICANT):
        failure = "hold_out_q_value"
    evidence = {name: found._asdict() for name, found in one.evidence.items()}
    held = one.evidence["test"].cases
    attempt = one.row.data["attempt"]
    metadata: dict[str, Any] = {
        "attempt": attempt, "seed": SEED, "evidence": evidence, "designed_failure": one.design.failure, "q": q,
        "family": family, "exchangeable": "subjects, within each period",
        "ends": {name: at.isoformat() for name, at in one.ends.items()},
    }  # fmt: skip
    test = PatternValidation(
        id=f"{one.row.key}/holdout/{attempt}", pattern_id=one.row.key, validation_type=ValidationType.HOLDOUT,
        test_start_date=one.begins_at,
        test_end_date=one.ends_at, passed=failure is None,
        test_correlation=one.design.test, sample_size=held, p_value=one.p, failure_reason=failure,
        test_metadata=metadata,
    )  # fmt: skip
    values = Pattern.Validation(
        training_correlation=one.design.training, validation_correlation=one.design.validation,
        test_correlation=one.design.test, validation_sample_size=held, validated_date=now,
    )  # fmt: skip
    facts = recorded(record_of(test, writer=WRITER), grouped(one.row.key, validation=values))
    result = {
        "p": one.p, "q": q, "passed": failure is None, "failure": failure, "test": one.design.test,
        "training": one.design.training, "validation": one.design.validation, "sample": held,
        "occurrences": evidence["training"]["cases"], "effect": one.effect,
        "hits": round((one.design.test or 0.0) * held),
    }  # fmt: skip
    if failure is None:
        await keep(conn, one.row, staged(one.row.data, Stage.ISOLATION, now, holdout=result))
        return facts, True
    rejected = PatternFacts(role=ACTOR.role, failed_tier=1)
    data = {**one.row.data, "holdout": result}
    _, status = await enter(conn, one.row, PatternStatus.REJECTED_HOLDOUT, rejected, data=data, reason=failure)
    return facts + status, False


def effect_of(training: Sequence[Case]) -> float:
    """Return by how much the outcomes of matching cases lay off the reference in training, on average."""
    off = [case.outcome - case.reference for case in matching(training)]
    return fmean(off) if off else 0.0
