"""
Steps that retrievers of sections share: find keys in the graph, read their values as of the moment in Postgres.

Fallbacks without Neo4j find the keys in the journal's record heads, so what is known through links alone is missing,
and the section is labelled partial; others read a sample of half of the rows. :mod:`imem.recall.request.fallbacks`
decides which one runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imem.credibility.panels.pooling import Seasons
from imem.credibility.track_record import scores_until
from imem.journal.arguments import check_int
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, RecordAsOf, Ref, ValuesAsOf, dated
from imem.kg.kinds.metrics import unit_of
from imem.recall.answers import BriefingSection, ClaimSummary, Completeness, DatedRecord, Quality

if TYPE_CHECKING:
    from imem.kg.engine import Graph

A = TypeVar("A", bound=BriefingSection)


GRAPH_SHARE: Final = 0.75
"""Share of the time left for the graph; the rest is for Postgres."""

WITHOUT_GRAPH: Final = (
    "Neo4j could not be asked; this is what Postgres knows, without what is known through links alone"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Most items of each sort in an answer.

    Attributes:
        analyses: analyses in a history.
        findings: findings of an analysis.
        detailed: newest analyses of a history that are shown with findings; others with their conclusion alone.
        signals: earlier signals of the agent that asks.
        panels: questions with the answers of several agents.
    """

    analyses: int = 30
    findings: int = 40
    debates: int = 10
    speakers: int = 60
    contradictions: int = 20
    patterns: int = 10
    lessons: int = 10
    similar: int = 5
    detailed: int = 2
    signals: int = 3
    panels: int = 3

    @classmethod
    def all(cls, limit: int) -> Limits:
        """Return limits that are all *limit*."""
        return cls(*(limit,) * len(fields(cls)))

    def __post_init__(self) -> None:
        """Check that each limit is a whole number; BadInput names the limit."""
        for limit in fields(self):
            check_int(f"limits.{limit.name}", getattr(self, limit.name))


@dataclass(frozen=True, slots=True)
class RetrievalRequest:
    """
    Arguments of a retriever.

    Attributes:
        subject_id: the subject.
        at: the resolved as-of.
        database: Postgres.
        graph: the Neo4j client.
        deadline: when the answer is due.
        limits: most items of each sort.
        halflife_years: age at which an observation weighs half.
        for_agent: the agent that asks, if known.
        seasons: what ends a season of an agent's record.
    """

    subject_id: str
    at: AsOf
    database: Database
    graph: Graph
    deadline: Deadline
    limits: Limits
    halflife_years: float
    for_agent: str | None = None
    seasons: Seasons = "gap"

    async def dated(self, refs: Iterable[Ref]) -> ValuesAsOf:
        """Return the values of *refs* as of the moment, from Postgres."""
        return await dated(self.database, refs, self.at, deadline=self.deadline)


async def graph_rows(request: RetrievalRequest, name: str, limit: int, **more: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a named graph query, and the total before the limit."""
    parameters = {"subject_id": request.subject_id, "limit": limit, **request.at.limits, **more}
    share = request.deadline.within_ms(request.deadline.left_ms() * GRAPH_SHARE)
    rows = await request.graph.read(name, parameters, deadline=share)
    return rows, rows[0].get("total", len(rows)) if rows else 0


async def journal_keys(request: RetrievalRequest, kind: str, limit: int) -> list[str]:
    """Return the keys of the newest records of *kind* about the subject, from record heads."""
    rows = await request.database.named(
        "records_of_subject",
        {"subject_id": request.subject_id, "kinds": [kind], "limit": limit, **request.at.limits},
        deadline=request.deadline,
    )
    return [row["key"] for row in rows]


def mark_partial(section: A, completeness: Completeness = Completeness.TOP_N, reason: str = WITHOUT_GRAPH) -> A:
    """Return *section* labelled as a fallback."""
    return section.model_copy(update={"quality": Quality.PARTIAL, "reason": reason, "completeness": completeness})


def record(one: RecordAsOf) -> DatedRecord:
    """Return a dated record as an answer shows it."""
    return DatedRecord(
        kind=one.kind,
        key=one.key,
        core=dict(one.core),
        groups={name: dict(group) for name, group in one.groups.items()},
        known_at=one.known_at,
        occurred_at=one.occurred_at,
        corrected_at=one.corrected_at,
        more=one.has_body,
    )


async def claims_settled(request: RetrievalRequest, analyses: Sequence[str]) -> dict[str, ClaimSummary]:
    """Return how the claims of the given analyses turned out, by analysis; those without a claim are left out."""
    if not analyses:
        return {}
    until = await scores_until(request.database, request.at, deadline=request.deadline)
    given = {"analyses": list(analyses), "clock": request.at.clock.value, "until": until, **request.at.limits}
    rows = await request.database.named("claims_of_analyses", given, deadline=request.deadline)
    return {row.pop("analysis_id"): _claims(row) for row in rows}


def _claims(row: dict[str, Any]) -> ClaimSummary:
    """Return how claims turned out; metric, period and actual only if all claims are about one question in one unit."""
    stated, metric = row.pop("units"), row["metric"]
    units = {unit_of(metric, one) for one in stated} if metric is not None else set()
    if len(units) == 1:
        return ClaimSummary.model_validate({**row, "unit": units.pop()})
    return ClaimSummary.model_validate({**row, **dict.fromkeys(("metric", "period_start", "target_at", "actual"))})
