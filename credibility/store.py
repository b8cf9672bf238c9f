"""
Reads and writes of settlement: named statements, and conversion between rows and values.

No function here opens a transaction: callers pass the connection whose transaction holds the settlement lock, so that
reads and writes are consistent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import orjson

from imem.credibility.history import (
    DatedStatement,
    OutcomeValue,
    Question,
    QuestionKey,
    RegimeReadings,
    RegimeValue,
    ScoreContent,
    ScoreVersion,
    StatedClaim,
    SubjectData,
    ValidityInterval,
    contexts,
    fold_statements,
    latest,
)
from imem.credibility.observations import ObservationClaim, PeerComparison
from imem.credibility.scores.cells import CellStep
from imem.credibility.scores.context import DIMENSIONS, ClaimContext, ContextCell
from imem.credibility.settlement import QuestionScope
from imem.credibility.track_steps import (
    ObservationStep,
    ScoredClaim,
    SweepStart,
    TrackRecordStep,
    span_of,
)
from imem.credibility.verdicts import CitedClaim, FindingCitation, movement
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, rows
from imem.kg.asof import AsOfClock
from imem.kg.kinds.fields import moment_text
from imem.kg.kinds.metrics import metric_of

V = TypeVar("V")

MARKET = "US"
"""The market whose regime is part of a claim's context."""


class TrackRecordKey(NamedTuple):
    """Identity of a track record: an agent in a domain."""

    agent: str
    domain: str


# Questions


def columns_of(keys: Sequence[QuestionKey]) -> dict[str, Any]:
    """Return questions as the arrays that statements take."""
    return {
        "subjects": [key.subject_id for key in keys],
        "metrics": [key.metric for key in keys],
        "targets": [key.target_at for key in keys],
    }


async def questions(conn: Connection, keys: Sequence[QuestionKey]) -> list[Question]:
    """Return the statements about those of the given questions that have an outcome."""
    found: dict[int, Question] = {}
    agents: dict[int, set[str]] = defaultdict(set)
    first: dict[int, dict[str, Row]] = defaultdict(dict)
    made: list[Row] = []
    for row in await rows(conn, "question_facts", columns_of(keys)):
        number = row["n"]
        question = found.get(number)
        if question is None:
            question = found[number] = Question(keys[number - 1])
        _add(question, row)
        if row["kind"] == "Finding":
            made.append(row)
            agents[number].add(row["agent"])
            earlier = first[number].get(row["key"])
            if not row["corrects"] and (earlier is None or row["order_key"] < earlier["order_key"]):
                first[number][row["key"]] = row
    profiles = await profiles_of(conn, set().union(*agents.values()))
    kinds = {agent: fold_statements(said, AsOfClock.RECORDED, latest) for agent, said in profiles.items()}
    subjects = await _subjects(conn, {question.key.subject_id for question in found.values()})
    regimes = await _regimes(conn, made)
    for number, question in found.items():
        question.profiles = {agent: profiles[agent] for agent in sorted(agents[number]) if agent in profiles}
        question.unmeasured = {
            key
            for key, row in first[number].items()
            if not row["settles"] and row["agent"] in kinds and not kinds[row["agent"]].at(row["recorded_at"])
        }
        question.subject = subjects.get(question.key.subject_id, [])
        question.regimes = regimes
    return list(found.values())


async def contexts_of(conn: Connection, claims: Sequence[Row]) -> list[ClaimContext]:
    """Return the context of each claim as known when it was made; what it needs of one is the columns of a question."""
    subjects = await _subjects(conn, {row["subject_id"] for row in claims})
    regimes = await _regimes(conn, claims)
    found = []
    for row in claims:
        key = QuestionKey(row["subject_id"], row["metric"], row["target_at"])
        question = Question(key, subject=subjects.get(key.subject_id, []), regimes=regimes)
        metric, at = metric_of(key.metric), row["known_at"]
        known = None if metric is None else contexts(question, metric, at, AsOfClock.KNOWN).at(at)
        found.append(known or ClaimContext())
    return found


def _add(question: Question, row: Row) -> None:
    clocks = row["known_at"], row["recorded_at"], row["order_key"], row["corrects"]
    metric = metric_of(question.key.metric)
    scope = QuestionScope(row["period_start"], row["unit"] or (metric.unit if metric is not None else None))
    if row["kind"] == "Finding":
        said = StatedClaim(row["agent"], row["domain"], row["probability"], row["direction"], row["value"], scope)
        question.findings[row["key"]].append(DatedStatement(*clocks, said))
    elif row["settles"] and row["actual"] is not None:
        answer = OutcomeValue(row["key"], row["vintage"] or 0, row["actual"], scope, bool(row["withdrawn"]))
        question.outcomes[row["key"]].append(DatedStatement(*clocks, answer))


async def profiles_of(conn: Connection, agents: Collection[str]) -> dict[str, list[DatedStatement[bool]]]:
    """Return the statements whether an agent is a baseline, of those of *agents* that ever were one."""
    found: dict[str, list[DatedStatement[bool]]] = defaultdict(list)
    for row in await rows(conn, "baseline_profiles", {"agents": sorted(agents)}) if agents else []:
        found[row["agent"]].append(
            DatedStatement(row["known_at"], row["recorded_at"], row["order_key"], corrects=False, value=row["baseline"])
        )
    return found


async def _subjects(conn: Connection, subjects: Collection[str]) -> dict[str, list[DatedStatement[SubjectData]]]:
    found: dict[str, list[DatedStatement[SubjectData]]] = defaultdict(list)
    for row in await rows(conn, "subject_facts", {"subjects": sorted(subjects)}) if subjects else []:
        data = SubjectData(row["sector"], row["company_size"], row["growth_stage"])
        found[row["subject_id"]].append(_replacing(row, data))
    return found


async def _regimes(conn: Connection, made: Sequence[Row]) -> RegimeReadings | None:
    """Return the readings that can be in force for one of the findings with these statements."""
    if not made:
        return None
    first, last = min(row["known_at"] for row in made), max(row["known_at"] for row in made)
    wanted = {
        "market": MARKET, "first_at": first, "last_at": last, "first": moment_text(first), "last": moment_text(last),
        "recorded_from": min(row["recorded_at"] for row in made),
    }  # fmt: skip
    found = [
        _replacing(row, RegimeValue(row["key"], row["observed_at"], row["regime"]))
        for row in await rows(conn, "regime_facts", wanted)
    ]
    return RegimeReadings(found) if found else None


def _replacing(row: Row, value: V) -> DatedStatement[V]:
    return DatedStatement(row["known_at"], row["recorded_at"], row["order_key"], row["replaces"], value)


# Scores

SCORE_COLUMNS = (
    "finding_id", "vintage", "revision", "outcome_id", "agent", "domain", "subject_id", "metric", "target_at",
    "predicted_at", "stated", "actual", "happened", "y", "abstained", "brier", "log_score", "reference", "error",
    "peer_loss", *DIMENSIONS,
    "first_known_at", "known_at", "superseded_known_at", "recorded_at", "superseded_recorded_at",
)  # fmt: skip

ScoreRow = tuple[Any, ...]
"""A row of ``agent_outcome`` in the order of SCORE_COLUMNS."""

ScoreId = tuple[str, int, int]
"""Finding, vintage, revision."""


def row_of(score: ScoreVersion, key: QuestionKey) -> ScoreRow:
    """Return *score* as a row."""
    content: ScoreContent = score.content
    known, recorded = score.known or (None, None), score.recorded or (None, None)
    return (
        score.finding_id, content.vintage, score.revision, content.outcome_id, content.agent, content.domain,
        key.subject_id, key.metric, key.target_at, content.predicted_at, content.stated, content.actual,
        content.happened, content.y, content.y is None, content.brier, content.log_score, content.reference,
        content.error, content.peer_loss, *content.context, content.first_known_at, *known, *recorded,
    )  # fmt: skip


async def stored_scores(conn: Connection, keys: Sequence[QuestionKey]) -> dict[ScoreId, ScoreRow]:
    """Return the stored scores of the given questions."""
    found = await rows(conn, "scores_of_questions", columns_of(keys))
    return {
        (row["finding_id"], row["vintage"], row["revision"]): tuple(row[name] for name in SCORE_COLUMNS)
        for row in found
    }


async def write_scores(conn: Connection, written: Sequence[ScoreRow], removed: Sequence[ScoreId]) -> None:
    """Write and remove scores."""
    if removed:
        finding_id, vintage, revision = zip(*sorted(removed), strict=True)
        gone = {"finding_id": list(finding_id), "vintage": list(vintage), "revision": list(revision)}
        await execute(conn, "delete_scores", gone)
    if written:
        await execute(conn, "write_scores", {"rows": _json(SCORE_COLUMNS, sorted(written, key=_id))})


def _id(row: Sequence[Any]) -> ScoreId:
    return row[0], row[1], row[2]


def _json(names: Sequence[str], values: Sequence[Sequence[Any]]) -> str:
    """Return rows as a JSON list of objects; numbers keep every bit, moments every microsecond."""
    return orjson.dumps([dict(zip(names, row, strict=True)) for row in values]).decode()


# Track records

STEP_COLUMNS = TrackRecordStep._fields


async def scores_of(conn: Connection, pair: TrackRecordKey) -> list[ScoredClaim]:
    """Return every score of an agent in a domain."""
    return [_scored(row) for row in await rows(conn, "scores_of_track", pair._asdict())]


def _scored(row: Row) -> ScoredClaim:
    return ScoredClaim(
        row["finding_id"], row["target_at"], row["predicted_at"], row["first_known_at"], row["stated"],
        row["happened"], row["y"], row["brier"], row["log_score"], row["reference"],
        _span(row["known_at"], row["superseded_known_at"]),
        _span(row["recorded_at"], row["superseded_recorded_at"]), _context(row), row["error"], row["peer_loss"],
        (row["subject_id"], row["metric"]),
    )  # fmt: skip


def _context(row: Row) -> ClaimContext:
    return ClaimContext(
        row["sector"], row["metric_type"], row["time_horizon"], row["company_size"], row["growth_stage"], row["regime"]
    )


MOST_RESUMED = 500
"""
Scores after the first change for which a sweep always resumes there.

With more it resumes if they are at most :data:`SHARE_RESUMED` of those before: while a load goes on, each round of
settlement would otherwise read a long record anew from its beginning.
"""

SHARE_RESUMED = 0.5
"""Largest share of changed scores, of those before the first change; with more, a full sweep is as cheap."""


async def resumable(
    conn: Connection, pair: TrackRecordKey, clock: AsOfClock, since: datetime, halflife_years: float
) -> tuple[SweepStart, list[ScoredClaim]] | None:
    """
    Return where a sweep resumes whose first change is at *since*, and the scores that change from then on.

    None if it cannot resume: there is no step before *since*, its half-life differs, or more than
    :data:`MOST_RESUMED` scores changed that are not few beside those before (:data:`SHARE_RESUMED`).
    """
    where = {**pair._asdict(), "clock": clock.value, "since": since}
    found = await rows(conn, "step_before", where)
    if not found or found[0]["halflife_years"] != halflife_years:
        return None
    most = max(MOST_RESUMED, int((found[0]["scored"] + found[0]["abstained"]) * SHARE_RESUMED))
    changed = [_scored(row) for row in await rows(conn, "scores_since", {**where, "limit": most + 1})]
    if len(changed) > most:
        return None
    targets = sorted({score.target_at for score in changed if score.y is not None})
    observed = await rows(conn, "observations_before", {**where, "targets": targets}) if targets else []
    if any(row["early"] for row in observed):
        return None
    members: dict[datetime, dict[str, ObservationClaim]] = defaultdict(dict)
    for row in observed:
        members[row["target_at"]][row["finding_id"]] = ObservationClaim(
            row["y"], row["happened"], row["brier"], row["reference"], _context(row), row["error"], row["peer_loss"],
            (row["target_at"] - row["predicted_at"]).total_seconds(), (row["subject_id"], row["metric"]),
        )  # fmt: skip
    touched = {_context(row) for row in observed} | {score.context for score in changed if score.y is not None}
    names = {"contexts": sorted(name_of_context(context) for context in touched)}
    cells = [cell_step_of(row) for row in await rows(conn, "cells_before", {**where, **names})] if touched else []
    findings = sorted(
        {row["finding_id"] for row in observed if row["brier"] is not None}
        | {score.finding_id for score in changed if score.brier is not None}
    )
    rates = await rows(conn, "base_rates_of", {**where, "findings": findings}) if findings else []
    start = SweepStart(
        step_of(found[0]),
        members,
        {row["finding_id"]: row["rate"] for row in rates},
        {step.cell.context: step for step in cells},
    )
    return start, [score for score in changed if span_of(score, clock) is not None]


def _span(start: datetime | None, end: datetime | None) -> ValidityInterval | None:
    return None if start is None else ValidityInterval(start, end)


async def halflife_of(conn: Connection, pair: TrackRecordKey, default: float) -> float:
    """Return the half-life in the agent's credibility record, in years, else *default*."""
    found = await rows(conn, "halflife_of", pair._asdict())
    return float(found[0]["halflife_years"]) if found and found[0]["halflife_years"] else default


def step_of(row: Row) -> TrackRecordStep:
    """Return a row of ``track_step`` as a value."""
    return TrackRecordStep(*(row[name] for name in STEP_COLUMNS))


async def stored_steps(
    conn: Connection, pair: TrackRecordKey, clock: AsOfClock, since: datetime | None = None
) -> list[tuple[TrackRecordStep, float]]:
    """Return the stored steps from *since* on, each with the half-life it was computed with."""
    where = {**pair._asdict(), "clock": clock.value, "since": since}
    return [(step_of(row), row["halflife_years"]) for row in await rows(conn, "steps_of_track", where)]


@dataclass(frozen=True, slots=True)
class StepDifference:
    """
    Difference between stored and recomputed steps.

    Attributes:
        steps: number of differing steps.
        deviation: largest difference of a number; infinite if a step was missing or superfluous.
        halflife: whether steps were stored with another half-life, so that they had to differ.
    """

    steps: int = 0
    deviation: float = 0.0
    halflife: bool = False

    def __add__(self, other: StepDifference) -> StepDifference:
        return StepDifference(
            self.steps + other.steps, max(self.deviation, other.deviation), self.halflife or other.halflife
        )


async def write_steps(
    conn: Connection,
    pair: TrackRecordKey,
    clock: AsOfClock,
    steps: Sequence[TrackRecordStep],
    halflife_years: float,
    *,
    since: datetime | None = None,
) -> StepDifference:
    """Replace the stored steps from *since* on by *steps*; only those from the first difference on are written."""
    stored = await stored_steps(conn, pair, clock, since)
    same = 0
    for (old, halflife), new in zip(stored, steps, strict=False):
        if old != new or halflife != halflife_years:
            break
        same += 1
    where = {**pair._asdict(), "clock": clock.value}
    if len(stored) > same:
        await execute(conn, "delete_steps", {**where, "since": stored[same][0].at})
    if len(steps) > same:
        values = [(*where.values(), halflife_years, *step) for step in steps[same:]]
        await execute(conn, "write_steps", {"steps": _json((*where, "halflife_years", *STEP_COLUMNS), values)})
    return StepDifference(
        max(len(stored), len(steps)) - same,
        _deviation([old for old, _ in stored[same:]], list(steps[same:])),
        any(halflife != halflife_years for _, halflife in stored),
    )


def _deviation(old: Sequence[TrackRecordStep], new: Sequence[TrackRecordStep]) -> float:
    if [step.at for step in old] != [step.at for step in new]:
        return math.inf
    pairs = (zip(one[1:], other[1:], strict=True) for one, other in zip(old, new, strict=True))
    return max((abs(value - wanted) for pair in pairs for value, wanted in pair), default=0.0)


# Cells

CELL_COLUMNS = ("context", "at", "halflife_years", *ContextCell._fields[1:])


@lru_cache(maxsize=4096)
def name_of_context(context: ClaimContext) -> str:
    """Return how ``track_cell`` names a context."""
    return orjson.dumps(list(context)).decode()


@lru_cache(maxsize=4096)
def context_named(name: str) -> ClaimContext:
    """Return the context that ``track_cell`` names so."""
    return ClaimContext(*orjson.loads(name))


def cell_step_of(row: Row) -> CellStep:
    """Return a row of ``track_cell`` as a value."""
    return CellStep(
        row["at"], ContextCell(context_named(row["context"]), *(row[name] for name in ContextCell._fields[1:]))
    )


async def write_cells(
    conn: Connection,
    pair: TrackRecordKey,
    clock: AsOfClock,
    steps: Sequence[CellStep],
    halflife_years: float,
    *,
    since: datetime | None = None,
) -> StepDifference:
    """Replace the stored steps of cells from *since* on by *steps*; those that do not differ are left alone."""
    where = {**pair._asdict(), "clock": clock.value}
    stored = {
        (row["context"], row["at"]): tuple(row[name] for name in CELL_COLUMNS)
        for row in await rows(conn, "cells_of_track", {**where, "since": since})
    }
    wanted = {
        (name, step.at): (name, step.at, halflife_years, *step.cell[1:])
        for step in steps
        for name in (name_of_context(step.cell.context),)
    }
    gone = sorted(key for key, row in stored.items() if wanted.get(key) != row)
    new = [row for key, row in wanted.items() if stored.get(key) != row]
    if gone:
        contexts, moments = zip(*gone, strict=True)
        await execute(conn, "delete_cells", {**where, "contexts": list(contexts), "moments": list(moments)})
    if new:
        values = [(*where.values(), *row) for row in new]
        await execute(conn, "write_cells", {"steps": _json((*where, *CELL_COLUMNS), values)})
    differing = {(row[0], row[1]) for row in new} | set(gone)
    deviations = [_cell_deviation(stored.get(key), wanted.get(key)) for key in differing]
    return StepDifference(len(differing), max(deviations, default=0.0))


def _cell_deviation(old: Sequence[Any] | None, new: Sequence[Any] | None) -> float:
    if old is None or new is None or old[-1] != new[-1]:
        return math.inf
    return max(abs(float(value) - float(wanted)) for value, wanted in zip(old[3:-1], new[3:-1], strict=True))


# Observations

OBSERVATION_COLUMNS = ("at", "target_at", "context", *PeerComparison._fields)


async def write_observations(
    conn: Connection,
    pair: TrackRecordKey,
    clock: AsOfClock,
    steps: Sequence[ObservationStep],
    *,
    since: datetime | None = None,
) -> StepDifference:
    """Replace the stored steps of observations from *since* on by *steps*; those that do not differ are left alone."""
    where = {**pair._asdict(), "clock": clock.value}
    values = [
        (*where.values(), step.at, step.target_at, name_of_context(step.context), *step.compared) for step in steps
    ]
    written = {"since": since, "steps": _json((*where, *OBSERVATION_COLUMNS), values)}
    [row] = await rows(conn, "replace_observations", {**where, **written})
    return StepDifference(row["steps"], math.inf if row["missing"] else row["deviation"])


# Decisions


async def citations(
    conn: Connection, decisions: Sequence[str]
) -> dict[str, dict[str, list[DatedStatement[FindingCitation]]]]:
    """Return, for each decision, the statements of its citations by the identity of the link."""
    found: dict[str, dict[str, list[DatedStatement[FindingCitation]]]] = defaultdict(lambda: defaultdict(list))
    for row in await rows(conn, "citations_of", {"decisions": list(decisions)}):
        statement = citation_of(row)
        found[row["decision"]][row["link"]].append(statement)
    return found


def citation_of(row: Row) -> DatedStatement[FindingCitation]:
    """Return the statement of a citation in a row of ``citations_of`` or ``unsettled_citations``."""
    citation = FindingCitation(row["finding_id"], row["at"] or datetime.min.replace(tzinfo=UTC), row["rank"])
    return DatedStatement(row["known_at"], row["recorded_at"], row["order_key"], corrects=False, value=citation)


async def cited_claims(conn: Connection, findings: Collection[str]) -> dict[str, CitedClaim]:
    """Return the claims of the given findings, settled or not; findings without a claim are left out."""
    found = await rows(conn, "cited_claims", {"findings": sorted(findings)}) if findings else []
    return {row["finding_id"]: CitedClaim(row["known_at"], row["target_at"], row["metric"]) for row in found}


async def marks(conn: Connection, findings: Collection[str]) -> dict[str, list[tuple[ValidityInterval, int | None]]]:
    """Return the movements of each scored finding with their intervals on the known clock."""
    found: dict[str, list[tuple[ValidityInterval, int | None]]] = defaultdict(list)
    for row in await rows(conn, "scores_of_findings", {"findings": sorted(findings)}) if findings else []:
        span = _span(row["known_at"], row["superseded_known_at"])
        if span is not None:
            moved = movement(metric_of(row["metric"]), row["actual"], abstained=row["abstained"])
            found[row["finding_id"]].append((span, moved))
    return found


async def stances(conn: Connection, decisions: Sequence[str]) -> dict[str, list[DatedStatement[str | None]]]:
    """Return the statements of each decision's stance."""
    found: dict[str, list[DatedStatement[str | None]]] = defaultdict(list)
    for row in await rows(conn, "stances_of", {"decisions": list(decisions)}):
        found[row["decision"]].append(stance_of(row))
    return found


def stance_of(row: Row) -> DatedStatement[str | None]:
    """Return the statement of a stance in a row of ``stances_of`` or ``stances_until``."""
    return DatedStatement(row["known_at"], row["recorded_at"], row["order_key"], row["corrects"], row["stance"])


async def recorded_verdicts(conn: Connection, decisions: Sequence[str]) -> dict[str, list[DatedStatement[str]]]:
    """Return the recorded statements of each decision's verdict."""
    found: dict[str, list[DatedStatement[str]]] = defaultdict(list)
    for row in await rows(conn, "verdicts_of", {"decisions": list(decisions)}):
        found[row["decision"]].append(
            DatedStatement(row["known_at"], row["recorded_at"], row["order_key"], corrects=False, value=row["outcome"])
        )
    return found
