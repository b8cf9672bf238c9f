"""
Review tasks about contradictions that neither evidence nor scores resolve: one for each pair of documents.

The reviewer sees the two documents, the scores of their sources, and each value in which they differ. The fallback of
level 4 counts until somebody answers, and is labelled as a fallback. An answer counts from the moment at which it was
given; answers as of an earlier moment do not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, groupby
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from imem.alerts.store import NewAlert, Severity
from imem.credibility.disputes.findings import WRITER, resolution_of
from imem.credibility.disputes.levels import HUMAN_CONFIDENCE, Verdict, fallback
from imem.credibility.disputes.priorities import TAGS
from imem.jobs.due import make_due
from imem.jobs.lifecycle import Effects
from imem.journal.actors import Action, Actor
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import (
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    OutcomeProvenance,
    ResolutionLevelData,
)
from imem.kg.kinds.metrics import metric_of
from imem.kg.kinds.trust import DataContradiction
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind
from imem.review.states import ANSWERABLE, TaskState
from imem.review.tasks import ReviewRuntime, amend_task, open_task, withdraw_task

ACTOR: Final = Actor("data-contradictions", Role.LEARNING_ENGINE, may_import=True)
"""The actor that records contradictions, as of when they could be known, and what becomes of them."""

QUEUE: Final = "disputes"
"""Queue of the cells that are to be compared."""

ITEMS: Final = 100
"""Values of one task at most."""

OVERRIDDEN_ALERT: Final = "VALUE_OVERRIDDEN"
"""Kind of the alert that an analysis is to be run again: it rests on a value that a person overrode."""

KIND: Final = "contradiction"

ANSWER_WITHIN: Final = timedelta(hours=6)
"""How long a task waits for an answer before the fallback applies (credibility-and-contradictions, section 9)."""

HUMAN: Final = "human_arbitration"
CONFIRMED: Final = "human_confirmation"
MARKED_UNCERTAIN: Final = "human_uncertainty"

KEEPING: Final = frozenset({"confirm", "investigate"})
"""Actions after which the value that counted before still counts."""

RANKS: Final = {priority: rank for rank, priority in enumerate(ContradictionPriority)}
"""Rank of a task by the priority of its most important item; 0 is CRITICAL."""

Resolution = DataContradiction.Resolution


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeenDocument(_Seen):
    """A document, as the reviewer sees it; *score* is its source's when the task was opened."""

    source: str
    document: str | None
    filed_at: datetime | None
    score: float


class SeenItem(_Seen):
    """
    A value in which the two documents differ.

    Attributes:
        contradiction_id: of the contradiction.
        point_a, point_b: the data points, where they are recorded.
        data_point: the metric with its period and unit.
        value_a, value_b: as the first and the second document state it.
        differ_by: as a share of the larger one.
        priority: of the contradiction.
        valuation_impact: how far the difference moves the valuation, as a fraction of it, if that is known.
        fallback_value: what counts if nobody answers; None: no value does.
        fallback_side: the document that states it.
        fallback_confidence: how sure that is.
        differential: the difference of the sources' scores.
    """

    contradiction_id: str
    point_a: str | None
    point_b: str | None
    metric: str
    data_point: str
    value_a: float
    value_b: float
    differ_by: float
    priority: ContradictionPriority
    valuation_impact: float | None = None
    fallback_value: float | None
    fallback_side: ContradictionSide | None
    fallback_confidence: float
    differential: float

    def points_without(self, value: float | None) -> set[str]:
        """Return the data points of the two that state another value than *value*."""
        stated = ((self.point_a, self.value_a), (self.point_b, self.value_b))
        return {key for key, other in stated if key is not None and other != value}


class DocumentPair(_Seen):
    """What the reviewer of a contradiction sees."""

    subject_id: str
    documents: tuple[SeenDocument, SeenDocument]
    items: tuple[SeenItem, ...]


class ChosenSide(Fields):
    """The document whose values count: the first (a) or the second (b)."""

    document: Literal["a", "b"]


def _headline(package: DocumentPair) -> str:
    one, other = (" ".join(filter(None, (seen.source, seen.document))) for seen in package.documents)
    first = package.items[0]
    more = f" and {len(package.items) - 1} more" if len(package.items) > 1 else ""
    return (
        f"{package.subject_id}: which counts of {first.data_point}{more}, {first.value_a:g} (a: {one}) or "
        f"{first.value_b:g} (b: {other})?"
    )


def _default(package: DocumentPair) -> str:
    taken = sorted({item.fallback_side for item in package.items if item.fallback_side is not None})
    if not taken:
        return "no value counts: both stay uncertain, at a confidence of 0.50."
    names = " and ".join(taken)
    some = "" if all(item.fallback_side is not None for item in package.items) else "; the others stay uncertain"
    return f"the values of document {names} count provisionally{some}."


def _likeness(package: DocumentPair) -> str:
    """Return what makes tasks alike: the pair of sources, and the metrics in which they differ."""
    sources = " / ".join(document.source for document in package.documents)
    return f"{sources}: {', '.join(sorted({item.metric for item in package.items}))}"[:500]


async def _apply(
    _runtime: Any, conn: Connection, task: Task[DocumentPair], answer: Answer | None, now: datetime
) -> Effects:
    """Record what an answer, or its absence, makes of every item that still is a contradiction."""
    keys = [item.contradiction_id for item in task.package.items]
    standing = {row["key"] for row in await rows(conn, "contradictions_standing", {"keys": keys})}
    items = [item for item in task.package.items if item.contradiction_id in standing]
    at = answer.at if answer is not None else now
    facts, lost = [], set[str]()
    for item in items:
        groups = dict(_groups(item, task.state, answer))
        line = groups_of(DataContradiction, item.contradiction_id, groups, known_at=at, writer=WRITER)
        facts.append((ACTOR, Action.APPEND_CREDIBILITY, entry_of(line)))
        if answer is not None and answer.action not in KEEPING:
            lost |= item.points_without(groups["resolution"].final_value)
    # A point that arrives just now may have withdrawn an item: its cell is compared once more.
    points = {key for item in items for key in (item.point_a, item.point_b) if key is not None}
    await make_due(conn, QUEUE, "DataPoint", points)
    return Effects(facts=facts, alerts=await _reruns(conn, task, lost))


async def _reruns(conn: Connection, task: Task[DocumentPair], lost: Collection[str]) -> list[NewAlert]:
    """Return an alert for each analysis that rests on a point whose value no longer counts: it is to be run again."""
    found = await rows(conn, "analyses_using_points", {"points": sorted(lost)}) if lost else []
    return [
        NewAlert(
            alert_id=id_of("value overridden", task.task_id, row["analysis_id"]),
            kind=OVERRIDDEN_ALERT,
            severity=Severity.HIGH,
            subject=task.package.subject_id,
            analysis_id=row["analysis_id"],
            payload={
                "task_id": task.task_id,
                "reason": f"Run it again: by a person's answer, {row['points']} of its values no longer count.",
            },
        )
        for row in found
    ]


def _groups(item: SeenItem, state: TaskState, answer: Answer | None) -> Iterator[tuple[str, Any]]:
    """Yield the resolution of an item, and its outcome where a person said which value is right."""
    if answer is None:
        yield "resolution", fallback_of(item)
        return
    reviewed = state is not TaskState.ANSWERED
    if answer.action == "choose":
        side = ContradictionSide(getattr(answer.fields, "document", ""))
        yield "resolution", _decided(item, answer, HUMAN, side, reviewed=reviewed)
        yield "outcome", _confirmed(side)
    elif answer.action == "investigate":
        update = {"status": ContradictionStatus.INVESTIGATING, "reviewed_at_gate3": reviewed, "decided_by": answer.by}
        yield "resolution", fallback_of(item).model_copy(update=update)
    elif answer.action == "uncertain" or item.fallback_side is None:
        yield "resolution", _uncertain(item, answer, reviewed=reviewed)
    else:
        confirmed = _decided(item, answer, CONFIRMED, item.fallback_side, reviewed=reviewed)
        yield "resolution", confirmed.model_copy(update={"resolution_level": ResolutionLevelData.FALLBACK})
        yield "outcome", _confirmed(item.fallback_side)


def fallback_of(item: SeenItem) -> Resolution:
    """Return the resolution of level 4: the fallback counts, provisionally."""
    verdict = fallback(item.fallback_side, item.fallback_confidence, item.differential)
    return resolution_of(item.value_a, item.value_b, verdict, item.priority)


def _decided(
    item: SeenItem, answer: Answer, method: str, side: ContradictionSide | None, *, reviewed: bool
) -> Resolution:
    verdict = Verdict(
        ResolutionLevelData.HUMAN, method, side, HUMAN_CONFIDENCE, item.differential, ContradictionStatus.RESOLVED
    )
    decided = resolution_of(item.value_a, item.value_b, verdict, item.priority)
    return decided.model_copy(update={"reviewed_at_gate3": reviewed, "decided_by": answer.by})


def _uncertain(item: SeenItem, answer: Answer, *, reviewed: bool) -> Resolution:
    """Return the resolution of a person who holds neither value: the more cautious one counts, as uncertain."""
    decided = _decided(item, answer, MARKED_UNCERTAIN, None, reviewed=reviewed)
    uncertain = {"status": ContradictionStatus.UNCERTAIN, "confidence": 0.50, "final_value": cautious_value(item)}
    return decided.model_copy(update=uncertain)


def _confirmed(side: ContradictionSide) -> DataContradiction.Outcome:
    """Return the outcome that a person names: the value of *side* is right."""
    return DataContradiction.Outcome(outcome_label=side, outcome_provenance=OutcomeProvenance.HUMAN_LABEL)


def cautious_value(item: SeenItem) -> float | None:
    """Return the more cautious of two values; None where the metric declares no cautious end."""
    metric = metric_of(TAGS.get(item.metric, item.metric))
    if metric is None or metric.cautious is None:
        return None
    return (min if metric.cautious == "low" else max)(item.value_a, item.value_b)


CONTRADICTION: Final[TaskKind[Any, DocumentPair]] = TaskKind(
    name=KIND,
    package=DocumentPair,
    actions=TaskKind.of(
        TaskAction(name="choose", does="The values of document a or b count, for good.", fields=ChosenSide),
        TaskAction(
            name="confirm",
            does="What counts provisionally counts for good.",
            reviews=TaskState.CONFIRMED,
            only_default=True,
        ),
        TaskAction(name="uncertain", does="Neither is sure: the more cautious value counts, at 0.50.", rationale=True),
        TaskAction(
            name="investigate",
            does="Leave it provisional while somebody looks into it.",
            reviews=TaskState.INVESTIGATING,
            only_default=True,
        ),
    ),
    headline=_headline,
    default=_default,
    apply=_apply,
    due=ANSWER_WITHIN,
    minutes=2.0,
    displaces=lambda rank: rank == RANKS[ContradictionPriority.CRITICAL],
    likeness=_likeness,
)


@dataclass(frozen=True, slots=True)
class Question:
    """
    A contradiction that goes to a person.

    Attributes:
        subject_id: the subject.
        analysis_id: the analysis that reported it, if one did.
        documents: the two documents.
        item: the values.
    """

    subject_id: str
    analysis_id: str | None
    documents: tuple[SeenDocument, SeenDocument]
    item: SeenItem

    @property
    def place(self) -> tuple[str, ...]:
        """What tasks are grouped by: the subject, the analysis, and the two documents."""
        names = [(one.source, one.document or "") for one in self.documents]
        return self.subject_id, self.analysis_id or "", *names[0], *names[1]


async def ask(runtime: ReviewRuntime, conn: Connection, questions: Iterable[Question]) -> tuple[set[str], Effects]:
    """
    Open a task for each pair of documents, or add to one that waits, in the transaction of *conn*.

    Returns:
        The ids of the contradictions that wait for an answer, and the effects for the end of the transaction. Of all
        others the fallback counts already.
    """
    asked_in: dict[str, set[str]] = {}
    effects = Effects()
    ordered = sorted(questions, key=lambda one: (one.place, one.item.contradiction_id))
    for place, group in groupby(ordered, key=lambda one: one.place):
        asked = list(group)
        for start in range(0, len(asked), ITEMS):
            part = asked[start : start + ITEMS]
            package = DocumentPair(
                subject_id=place[0], documents=part[0].documents, items=tuple(one.item for one in part)
            )
            task, more = await _open(runtime, conn, package, place)
            effects += more
            if task.state is TaskState.OPEN:
                asked_in.setdefault(task.task_id, set()).update(item.contradiction_id for item in package.items)
    # A task that was opened first may have been displaced by a later one.
    still = await rows(conn, "tasks_still_open", {"task_ids": list(asked_in)})
    return {one for row in still for one in asked_in[row["key"]]}, effects


async def _open(
    runtime: ReviewRuntime, conn: Connection, package: DocumentPair, place: tuple[str, ...]
) -> tuple[Task[DocumentPair], Effects]:
    """Add *package* to the task of its documents; if somebody has looked at that task, open another one."""
    first = package.items[0].contradiction_id
    for number in count():
        name = id_of("contradiction task", *place) if not number else id_of("contradiction task", first, number)
        task, effects = await open_task(
            runtime, conn, CONTRADICTION, package, task_id=str(name), rank=rank_of(package.items),
            analysis_id=place[1] or None, subject_ids=[package.subject_id],
        )  # fmt: skip
        known = {item.contradiction_id for item in task.package.items}
        new = tuple(item for item in package.items if item.contradiction_id not in known)
        if not new and task.state in ANSWERABLE:
            return task, effects
        # A more urgent value has a task of its own: it may displace others, and is told at once.
        fits = len(known) + len(new) <= ITEMS and rank_of(package.items) >= task.rank
        if new and fits and task.state is TaskState.OPEN:
            grown = task.package.model_copy(update={"items": (*task.package.items, *new)})
            if await amend_task(conn, CONTRADICTION, task.task_id, grown):
                return task, effects
    raise AssertionError  # pragma: no cover - the numbers do not end


async def withdraw(conn: Connection, contradictions: Collection[str]) -> Effects:
    """Withdraw the open tasks whose items are all withdrawn, by *contradictions* or before."""
    effects = Effects()
    found = await rows(conn, "tasks_about", {"keys": sorted(contradictions)}) if contradictions else []
    for row in found:
        keys = {item.contradiction_id for item in DocumentPair.model_validate(row["package"]).items}
        left = {one["key"] for one in await rows(conn, "contradictions_standing", {"keys": sorted(keys)})}
        if left <= set(contradictions):
            effects += await withdraw_task(conn, row["task_id"], "None of its values contradict each other any more.")
    return effects


def rank_of(items: Iterable[SeenItem]) -> int:
    """Return the rank of a task: that of its most important item."""
    return min(RANKS[item.priority] for item in items)
