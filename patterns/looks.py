"""
Tiers 2 and 3 as a pipeline: what a look at a blind test concludes, and the control test of its pairs.

If agents are found to know of the pattern, the test is contaminated: it is closed, its pairs are dropped, and another
attempt begins at month 0. Each look is one transaction; ids follow from pattern, tier and attempt, so that a repeated
run records nothing twice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from statistics import fmean, median
from typing import Any

from imem.jobs.lifecycle import Effects, LifecycleRow
from imem.jobs.pipeline import Report
from imem.journal.clock import months_after
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.kg.kinds.enums import PatternStatus, ValidationType
from imem.kg.kinds.patterns import Pattern, PatternValidation, ShadowAnalysis
from imem.kg.load_format.lines import Line, groups_of, record_of
from imem.patterns.definition import PatternDefinition, definition_of
from imem.patterns.evidence.blind import (
    LOOKS,
    DesignedBlind,
    Look,
    Pair,
    SoundBlind,
    designed_blind,
    look_of,
    sound_blind,
)
from imem.patterns.evidence.control import ControlResult, assignment, control_test
from imem.patterns.evidence.verdicts import DomainVerdict, domain_class, domain_verdict, q_values
from imem.patterns.life import (
    ACTOR,
    WRITER,
    GateMode,
    PatternsRuntime,
    Stage,
    enter,
    grouped,
    hold,
    keep,
    recorded,
    staged,
)
from imem.patterns.prospective import (
    WAIT,
    at_month_0,
    each_due,
    not_isolated,
    prefix_of,
    verify_isolation,
)
from imem.patterns.shadows import ShadowRunner
from imem.patterns.similarity import SIMILARITY, alike
from imem.patterns.states import PatternFacts
from imem.review.tasks import open_task


async def look_at_blind_tests(runtime: PatternsRuntime, *, until: Deadline) -> Report:
    """Look at the blind tests that are six or twelve months old, and conclude those that say anything."""
    if (runner := runtime.shadow_runner) is None:
        return {}
    return await each_due(runtime, Stage.BLIND, partial(_look, runtime, runner), until=until)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Concluding:
    """
    A blind test that says something.

    Attributes:
        row, definition: of the candidate.
        pairs: its completed pairs.
        design, sound: what the two tests say; *sound* is None where the design alone decides.
        mode: which gates it must pass.
        now: the present moment.
    """

    row: LifecycleRow
    definition: PatternDefinition
    pairs: Sequence[Pair]
    design: DesignedBlind
    sound: SoundBlind | None
    mode: GateMode
    now: datetime


async def _look(
    runtime: PatternsRuntime, runner: ShadowRunner, conn: Connection, row: LifecycleRow, now: datetime
) -> tuple[str, Effects]:
    mode, started = runtime.pattern_gate_mode, datetime.fromisoformat(row.data["blind"]["started_at"])
    signals = (await verify_isolation(conn, row, runner, started)).signals
    if signals:
        return "contaminated", await _contaminated(conn, row, signals, now)
    found = await rows(conn, "pattern_pairs", {"key": row.key, "attempt": prefix_of(row)})
    pairs = [pair_of(one) for one in found]
    sound = None
    if mode is GateMode.BOTH:
        horizon = timedelta(days=max(1.0, _days([one["target_at"] - one["predicted_at"] for one in found])))
        sound = await asyncio.to_thread(sound_blind, pairs, horizon)
    of = _Concluding(
        row=row, definition=definition_of(row.data["definition"]), pairs=pairs, design=designed_blind(pairs),
        sound=sound, mode=mode, now=now,
    )  # fmt: skip
    looks = row.data["blind"]["looks"]
    said, reason = look_of(LOOKS[min(looks, len(LOOKS) - 1)], of.design, sound)
    if said is Look.INCONCLUSIVE:
        later = months_after(started, LOOKS[1]) if looks == 0 else now + WAIT
        blind = {**row.data["blind"], "looks": looks + 1}
        await keep(conn, row, staged(row.data, Stage.BLIND, max(later, now + timedelta(days=1)), blind=blind))
        return said.value, Effects()
    facts = recorded(record_of(_blind_record(of, said, reason), writer=WRITER), *map(_outcome_of, found))
    if (seen := alike(row.key, of.definition.words, pairs)) is not None:
        _, asked = await open_task(
            runtime, conn, SIMILARITY, seen, task_id=f"similarity-{prefix_of(row)}"[:200], rank=2
        )
        facts += asked
    if said is Look.FAILED:
        failed = PatternFacts(role=ACTOR.role, failed_tier=2)
        return said.value, facts + (await enter(conn, row, PatternStatus.REJECTED_BLIND, failed, reason=reason))[1]
    status, effects = await _control(conn, of)
    return status.value, facts + effects


def pair_of(row: Row) -> Pair:
    """Return the pair of a shadow analysis whose question is settled; values as shares of what was stated."""
    event = row["happened"] is not None
    size = 1.0 if event else abs(row["stated"])
    return Pair(
        cluster=row["subject_id"], target_at=row["target_at"], with_pattern=row["with_pattern"] / size,
        without_pattern=row["stated"] / size, actual=float(row["happened"]) if event else row["actual"] / size,
        event=event,
    )  # fmt: skip


def _days(spans: Sequence[timedelta]) -> float:
    return median([span / timedelta(days=1) for span in spans]) if spans else 1.0


def _outcome_of(row: Row) -> Line:
    outcome = ShadowAnalysis.Outcome(actual_outcome=row["actual"], pattern_helped=pair_of(row).helped)
    return groups_of(ShadowAnalysis, row["shadow_id"], {"outcome": outcome}, writer=WRITER)


def _blind_record(of: _Concluding, said: Look, reason: str | None) -> PatternValidation:
    data, design, sound = of.row.data, of.design, of.sound
    return PatternValidation(
        id=f"{of.row.key}/blind_test/{data['attempt']}", pattern_id=of.row.key,
        validation_type=ValidationType.BLIND_TEST, test_start_date=datetime.fromisoformat(data["blind"]["started_at"]),
        test_end_date=of.now, passed=said is Look.PASSED, sample_size=design.helped + design.hurt + design.neither,
        p_value=None if sound is None else sound.p, improvement_ratio=design.ratio, failure_reason=reason,
        test_metadata={
            "attempt": data["attempt"], "looks": data["blind"]["looks"] + 1, "helped": design.helped,
            "hurt": design.hurt, "neither": design.neither, "blocks": None if sound is None else sound.blocks,
            "gain": None if sound is None else sound.gain,
        },
    )  # fmt: skip


async def _contaminated(conn: Connection, row: LifecycleRow, signals: Sequence[str], now: datetime) -> Effects:
    """Close a contaminated test; its pairs count no more, and another attempt begins at month 0."""
    attempt = row.data["attempt"]
    record = PatternValidation(
        id=f"{row.key}/blind_test/{attempt}", pattern_id=row.key, validation_type=ValidationType.BLIND_TEST,
        test_start_date=datetime.fromisoformat(row.data["blind"]["started_at"]), test_end_date=now, passed=False,
        sample_size=0, failure_reason="contaminated", test_metadata={"attempt": attempt, "signals": list(signals)},
    )  # fmt: skip
    await keep(conn, row, at_month_0(row.data, now, attempt=attempt + 1))
    return recorded(record_of(record, writer=WRITER)) + Effects(alerts=[not_isolated(row, signals, now)])


# The control test


def arms(pairs: Sequence[Pair], seed: int) -> tuple[list[float], list[float]]:
    """
    Return the mean accuracy of each cluster by the arm that it was assigned: treatment, and control.

    The accuracy of a forecast is 1 minus its error, see :meth:`~imem.patterns.evidence.blind.Pair.error`.
    """
    treated = assignment([pair.cluster for pair in pairs], seed)
    accuracies: defaultdict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        forecast = pair.with_pattern if treated[pair.cluster] else pair.without_pattern
        accuracies[pair.cluster].append(1.0 - pair.error(forecast))
    means = {cluster: fmean(found) for cluster, found in accuracies.items()}
    return (
        [mean for cluster, mean in sorted(means.items()) if treated[cluster]],
        [mean for cluster, mean in sorted(means.items()) if not treated[cluster]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Controlled:
    """
    What the control test says.

    Attributes:
        found: the test; None where there is none.
        seed: of the assignment.
        p, q: by what it is judged, and over its family; None without a test.
        verdict: of the domain.
        failure: why it failed; None if it passed.
    """

    found: ControlResult | None
    seed: int
    p: float | None
    q: float | None
    verdict: DomainVerdict
    failure: str | None


async def _controlled(conn: Connection, of: _Concluding) -> _Controlled:
    """Return the control test of the pairs, judged with those that ended in this cycle of Gate 6."""
    key, definition, holdout = of.row.key, of.definition, of.row.data["holdout"]
    seed = id_of("control", key, str(of.row.data["attempt"])).int % 2**32
    found = await asyncio.to_thread(control_test, *arms(of.pairs, seed), seed)
    if isinstance(found, str):
        return _Controlled(found=None, seed=seed, p=None, q=None, verdict=DomainVerdict.REJECT, failure=found)
    designed = of.mode is GateMode.AS_DESIGNED
    domain = domain_class(definition.category)
    p = found.p if designed else max(found.p, found.permutation_p)
    asked = {"domain": domain.value, "key": key, "metric": definition.metric, "reference": definition.reference}
    family = await rows(conn, "control_family", asked)
    dependent = any(one["shares"] for one in family)
    q = q_values([p, *(one["p"] for one in family if one["p"] is not None)], dependent=dependent)[0]
    seen = holdout["occurrences"] + holdout["sample"]
    verdict = domain_verdict(domain, p if designed else q, correlation=holdout["test"], occurrences=seen)
    failure = found.failure or ("domain_verdict" if verdict is DomainVerdict.REJECT else None)
    return _Controlled(found=found, seed=seed, p=p, q=q, verdict=verdict, failure=failure)


async def _control(conn: Connection, of: _Concluding) -> tuple[PatternStatus, Effects]:
    """Conclude all: the control test, and the status that follows from it."""
    data, holdout, control = of.row.data, of.row.data["holdout"], await _controlled(conn, of)
    sample = holdout["sample"] + len(of.pairs)
    designed_p = None if control.found is None else control.found.p
    said = {
        "p": control.p, "q": control.q, "domain": domain_class(of.definition.category).value,
        "verdict": control.verdict.value, "failure": control.failure, "at": of.now.isoformat(),
    }  # fmt: skip
    test = PatternValidation(
        id=f"{of.row.key}/control_group/{data['attempt']}", pattern_id=of.row.key,
        validation_type=ValidationType.CONTROL_GROUP,
        test_start_date=datetime.fromisoformat(data["blind"]["started_at"]), test_end_date=of.now,
        passed=control.failure is None, sample_size=len({pair.cluster for pair in of.pairs}), p_value=designed_p,
        failure_reason=control.failure,
        test_metadata={
            "attempt": data["attempt"], "seed": control.seed,
            **({} if control.found is None else control.found._asdict()), **said,
        },
    )  # fmt: skip
    right = sum(of.definition.claim.hit(pair.actual, pair.without_pattern) for pair in of.pairs)
    design = of.design
    kept = {
        **data, "control": said,
        "blind": {**data["blind"], "ratio": design.ratio, "helped": design.helped, "hurt": design.hurt},
        "baseline": {"successes": holdout["hits"] + right, "cases": sample},
    }  # fmt: skip
    values = Pattern.Validation(
        training_correlation=holdout["training"], validation_correlation=holdout["validation"],
        test_correlation=holdout["test"], blind_test_score=design.ratio, control_p_value=designed_p,
        validation_sample_size=sample, validated_date=of.now,
    )  # fmt: skip
    facts = recorded(record_of(test, writer=WRITER), grouped(of.row.key, validation=values))
    status, effects = await _concluded(conn, of, control, kept)
    return status, facts + effects


async def _concluded(
    conn: Connection, of: _Concluding, control: _Controlled, data: Mapping[str, Any]
) -> tuple[PatternStatus, Effects]:
    if control.failure is not None:
        status, facts = PatternStatus.REJECTED_STATISTICAL, PatternFacts(role=ACTOR.role, failed_tier=3)
        return status, (await enter(conn, of.row, status, facts, data=data, reason=control.failure))[1]
    facts = PatternFacts(role=ACTOR.role, tiers_passed=True, verdict=control.verdict.value)
    if control.verdict is DomainVerdict.PROBATION:
        return PatternStatus.PROBATIONARY, (await hold(conn, of.row, facts, of.now, data=data))[1]
    status = PatternStatus.STATISTICALLY_VALIDATED
    return status, (await enter(conn, of.row, status, facts, data=data))[1]
