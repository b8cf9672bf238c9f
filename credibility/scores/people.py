"""
Statements of people about agents, as of a moment: overrides, pins, and corrections of biases that they approved.

A recommendation is a question that the agent answered in the domain and that settled, or what a person overrode: what
is neither settled nor overridden is not counted, however many findings an agent states. An override of a finding was
right when the finding turned out wrong, one of a decision when its verdict is a failure; of an analysis that is not
known. An override of a finding counts while that finding is known, and is the agent's in the domain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from imem.credibility.scores.overrides import (
    REVIEW_MONTHS,
    TRAILING,
    OverrideFact,
    OverrideFigures,
    OverrideRate,
    override_figures,
)
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, RecordAsOf, dated
from imem.kg.kinds.enums import BiasKind, BiasStatus, DecisionOutcome

Pair = tuple[str, str]
"""Agent and domain."""

_Target = tuple[str, str]
"""Kind and key of what was overridden."""

KINDS: Final = ("HumanOverride", "CredibilityPin", "BiasCorrection")


@dataclass(frozen=True, slots=True)
class Pin:
    """A score that a person holds, with why, since when, and until when; None: until it is taken out."""

    id: str
    score: float
    reason: str
    pinned_at: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Correction:
    """An approved correction of a bias; *sector* and *regime* are None where it holds for all."""

    id: str
    metric: str
    sector: str | None
    regime: str | None
    kind: BiasKind
    bias: float
    n: int


@dataclass(frozen=True, slots=True)
class PeopleFacts:
    """Statements of people about one agent in one domain."""

    overrides: OverrideFigures = OverrideFigures()  # noqa: RUF009 - it is immutable
    pin: Pin | None = None
    corrections: tuple[Correction, ...] = ()


NOTHING: Final = PeopleFacts()


async def people_facts(
    database: Database, pairs: Sequence[Pair], at: AsOf, until: datetime, *, deadline: Deadline
) -> Mapping[Pair, PeopleFacts]:
    """
    Return what people said about each pair about which they said anything.

    Args:
        until: the latest moment that counts, on the clock of *at*.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    by_kind = await _records(database, KINDS, pairs, at, deadline)
    if not by_kind:
        return {}
    figures = await _figures(database, by_kind["HumanOverride"], at, until, deadline)
    return {
        pair: PeopleFacts(
            figures.get(pair, NOTHING.overrides),
            _pin(by_kind["CredibilityPin"][pair], until),
            tuple(map(_correction, filter(_approved, by_kind["BiasCorrection"][pair]))),
        )
        for pair in {pair for records in by_kind.values() for pair in records}
    }


async def pinned_scores(
    database: Database, pairs: Sequence[Pair], at: AsOf, until: datetime, *, deadline: Deadline
) -> Mapping[Pair, float]:
    """Return the score at which each pinned pair is held; arguments and errors are those of :func:`people_facts`."""
    by_kind = await _records(database, ("CredibilityPin",), pairs, at, deadline)
    found = {pair: _pin(records, until) for pair, records in by_kind.get("CredibilityPin", {}).items()}
    return {pair: pin.score for pair, pin in found.items() if pin is not None}


async def _records(
    database: Database, kinds: Sequence[str], pairs: Sequence[Pair], at: AsOf, deadline: Deadline
) -> dict[str, dict[Pair, list[RecordAsOf]]]:
    """Return the records of the given kinds by kind and pair; empty if there are none of their agents."""
    agents = sorted({agent for agent, _ in pairs})
    asked = {"kinds": list(kinds), "agents": agents, **at.limits}
    found = await database.named("records_about_agents", asked, deadline=deadline)
    if not found:
        return {}
    answer = await dated(database, [(row["kind"], row["key"]) for row in found], at, deadline=deadline)
    by_kind: dict[str, dict[Pair, list[RecordAsOf]]] = {kind: defaultdict(list) for kind in kinds}
    wanted = set(pairs)
    for (kind, _), record in sorted(answer.records.items()):
        pair = record.core["agent"], record.core["domain"]
        if pair in wanted:
            by_kind[kind][pair].append(record)
    return by_kind


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _pin(records: Iterable[RecordAsOf], until: datetime) -> Pin | None:
    pins = []
    for record in records:
        core, end = record.core, record.groups.get("end")
        since, by = datetime.fromisoformat(core["pinned_at"]), _moment(core.get("until"))
        pin = Pin(record.key, core["score"], core["reason"], since, by)
        ends = [one for one in (pin.until, _moment(end["ended_at"]) if end else None) if one is not None]
        if pin.pinned_at <= until and all(one > until for one in ends):
            pins.append(pin)
    return max(pins, key=lambda one: (one.pinned_at, one.id), default=None)


def _approved(record: RecordAsOf) -> bool:
    return record.groups.get("state", {}).get("status") == BiasStatus.APPROVED


def _correction(record: RecordAsOf) -> Correction:
    core = record.core
    return Correction(
        record.key, core["of_metric"], core.get("sector"), core.get("regime"), BiasKind(core["kind"]), core["bias"],
        core["n"],
    )  # fmt: skip


# Overrides


async def _figures(
    database: Database, records: Mapping[Pair, Sequence[RecordAsOf]], at: AsOf, until: datetime, deadline: Deadline
) -> dict[Pair, OverrideFigures]:
    counted: dict[Pair, list[tuple[datetime, RecordAsOf]]] = {}
    for pair, of_pair in records.items():
        dated_ones = [(datetime.fromisoformat(one.core["overridden_at"]), one) for one in of_pair]
        inside = [one for one in dated_ones if until - TRAILING < one[0] <= until and not one[1].core.get("withdrawn")]
        if inside:
            counted[pair] = inside
    counted = await _of_own_findings(database, counted, at, deadline)
    if not counted:
        return {}
    pairs = sorted(counted)
    right = await _right(database, [one for of_pair in counted.values() for _, one in of_pair], at, until, deadline)
    given: dict[str, Any] = {
        "agents": [agent for agent, _ in pairs],
        "domains": [domain for _, domain in pairs],
        "since": until - TRAILING,
        "overridden": sorted(
            {one.core["finding_id"] for of in counted.values() for _, one in of if one.core.get("finding_id")}
        ),
        "clock": at.clock.value,
        "until": until,
    }
    answered: dict[Pair, dict[datetime, _Answered]] = defaultdict(dict)
    for row in await database.named("recommendations", given, deadline=deadline):
        of_questions = {("Finding", key): ("Finding", keys[0]) for keys in row["overridden"] or () for key in keys}
        answered[pairs[row["n"] - 1]][row["month"].astimezone(UTC)] = _Answered(row["recommendations"], of_questions)
    contexts: dict[Pair, dict[str, dict[str, OverrideRate]]] = defaultdict(lambda: defaultdict(dict))
    for row in await database.named("overridden_by_context", given, deadline=deadline):
        rate = OverrideRate(row["overridden"], row["recommendations"])
        contexts[pairs[row["n"] - 1]][row["dimension"]][row["value"]] = rate
    edges = _month_edges(until)
    figures = {}
    for pair in pairs:
        overridden = counted[pair]
        facts = [OverrideFact(one.core["reason"], right.get(_target(one.core))) for _, one in overridden]
        months = [
            _rate(
                [one for moment, one in overridden if start <= moment < end], [answered[pair].get(start, _Answered())]
            )
            for start, end in pairwise(edges)
        ]
        total = _rate([one for _, one in overridden], answered[pair].values())
        figures[pair] = override_figures(facts, total, months, contexts[pair])
    return figures


async def _of_own_findings(
    database: Database, counted: Mapping[Pair, list[tuple[datetime, RecordAsOf]]], at: AsOf, deadline: Deadline
) -> dict[Pair, list[tuple[datetime, RecordAsOf]]]:
    """Return the overrides without those of a finding that is unknown as of *at*, or of another agent or domain."""
    targets = {_target(one.core) for of_pair in counted.values() for _, one in of_pair}
    findings = await dated(database, [one for one in targets if one[0] == "Finding"], at, deadline=deadline)
    agent_of = {ref: (one.core["agent"], one.core["domain"]) for ref, one in findings.records.items()}
    kept = {
        pair: [
            (moment, one)
            for moment, one in of_pair
            if (target := _target(one.core))[0] != "Finding" or agent_of.get(target) == pair
        ]
        for pair, of_pair in counted.items()
    }
    return {pair: of_pair for pair, of_pair in kept.items() if of_pair}


@dataclass(frozen=True, slots=True)
class _Answered:
    """Questions answered that settled; for each overridden finding of them, the one that stands for its question."""

    settled: int = 0
    overridden: Mapping[_Target, _Target] = field(default_factory=dict)


def _target(core: Mapping[str, Any]) -> _Target:
    """Return the kind and key of what was overridden."""
    names = {"Finding": "finding_id", "Analysis": "analysis_id", "Decision": "decision_id"}
    return next((kind, core[name]) for kind, name in names.items() if core.get(name) is not None)


def _rate(overridden: Iterable[RecordAsOf], answered: Iterable[_Answered]) -> OverrideRate:
    """Return how many recommendations people overrode, each once, of those that settled and these."""
    settled, question = 0, dict[_Target, _Target]()
    for one in answered:
        settled += one.settled
        question |= one.overridden
    targets = {question.get(target, target) for target in (_target(record.core) for record in overridden)}
    return OverrideRate(len(targets), settled + len(targets - set(question.values())))


def _month_edges(until: datetime) -> list[datetime]:
    """Return the starts of the last complete calendar months and the end of the last, in UTC."""
    of = until.astimezone(UTC)
    count = of.year * 12 + of.month - 1
    return [datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in range(count - REVIEW_MONTHS, count + 1)]


async def _right(
    database: Database, records: Sequence[RecordAsOf], at: AsOf, until: datetime, deadline: Deadline
) -> dict[_Target, bool]:
    """Return whether the override of each recommendation was right, where that is known."""
    targets = {_target(record.core) for record in records}
    findings = sorted(key for kind, key in targets if kind == "Finding")
    decisions = sorted(one for one in targets if one[0] == "Decision")
    found: dict[_Target, bool] = {}
    if findings:
        given = {"findings": findings, "clock": at.clock.value, "until": until}
        scored = await database.named("scores_as_of", given, deadline=deadline)
        found |= {("Finding", row["finding_id"]): row["y"] == 0 for row in scored if row["y"] is not None}
    if decisions:
        verdicts = (await dated(database, decisions, at, deadline=deadline)).records
        ends = (DecisionOutcome.SUCCESS, DecisionOutcome.FAILURE)
        for ref, record in verdicts.items():
            verdict = record.groups.get("outcome", {}).get("outcome")
            if verdict in ends:
                found[ref] = verdict == DecisionOutcome.FAILURE
    return found
