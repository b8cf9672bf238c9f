"""
Review tasks about contradictions that neither evidence nor scores resolve: one for each pair of documents.

The reviewer sees the two documents, the scores of their sources, and each value in which they differ. The fallback of
level 4 counts until somebody answers, and is labelled as a fallback. An answer counts from the moment at which it was
given; answers as of an earlier moment do not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, groupby
from typing import Any, Final

import orjson

from imem.alerts.store import NewAlert, Severity
from imem.credibility.disputes.answers import (
    ChosenSide,
    DocumentPair,
    OwnValues,
    SeenDocument,
    SeenItem,
    check_rules,
    fallback_of,
    groups_of_answer,
    own_point,
)
from imem.credibility.disputes.findings import WRITER
from imem.jobs.due import make_due
from imem.jobs.lifecycle import Effects
from imem.journal.actors import Action, Actor
from imem.journal.audit import context_of
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.data_points import DataPoint
from imem.kg.kinds.enums import ContradictionPriority, ContradictionStatus
from imem.kg.kinds.trust import DataContradiction
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import RecordLine, groups_of, record_of
from imem.review.kinds import Answer, Task, TaskAction, TaskKind
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

KEEPING: Final = frozenset({"confirm", "investigate"})
"""Actions after which the value that counted before still counts."""

WAITING: Final = frozenset({ContradictionStatus.QUEUED, ContradictionStatus.INVESTIGATING})
"""Statuses of contradictions that wait for a person."""

RANKS: Final = {priority: rank for rank, priority in enumerate(ContradictionPriority)}
"""Rank of a task by the priority of its most important item; 0 is CRITICAL."""


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
    seen = await _corrected(conn, task.package)
    items = [item for item in seen.items if item.contradiction_id in standing]
    at = answer.at if answer is not None else now
    lines, lost = [], set[str]()
    for item in items:
        groups = dict(groups_of_answer(item, seen.items, task.state, answer))
        lines.append(groups_of(DataContradiction, item.contradiction_id, groups, known_at=at, writer=WRITER))
        if answer is not None and answer.action not in KEEPING:
            lost |= item.points_without(groups["resolution"].final_value)
    if answer is not None and isinstance(answer.fields, OwnValues):
        own = answer.fields.by_item(seen.items)
        points = await _own_points(conn, task.task_id, {item: own.get(item.contradiction_id) for item in items}, answer)
        lines += [record_of(point, known_at=at, writer=WRITER) for point in points]
    if answer is not None and isinstance(answer.fields, ChosenSide) and answer.fields.always:
        await _make_rules(conn, task, answer, now)
    facts = [(ACTOR, Action.APPEND_CREDIBILITY, entry_of(line)) for line in lines]
    # A point that arrives just now may have withdrawn an item: its cell is compared once more.
    compared = {key for item in items for key in (item.point_a, item.point_b) if key is not None}
    await make_due(conn, QUEUE, "DataPoint", compared)
    return Effects(facts=facts, alerts=await _reruns(conn, task, lost))


async def _own_points(
    conn: Connection, task_id: str, values: Mapping[SeenItem, float | None], answer: Answer
) -> list[DataPoint]:
    """Return the data points of the values that a person states, each of the cell of its item."""
    found = await rows(conn, "points_recorded", {"keys": [item.point_b for item in values if item.point_b is not None]})
    cores = {row["key"]: orjson.loads(row["core"]) for row in found}
    points = [
        own_point(cores[item.point_b], value, answer, task_id)
        for item, value in values.items()
        if value is not None and item.point_b in cores
    ]
    # Two items of one cell are one value.
    return list({point.id: point for point in points}.values())


async def _make_rules(conn: Connection, task: Task[DocumentPair], answer: Answer, now: datetime) -> None:
    """
    Make a rule of each metric and difference of a task, with audit rows, in the transaction of *conn*.

    One in force that prefers the other source is revoked by it; one that says the same stays.
    """
    check_rules(task.package, answer.fields)
    sources = tuple(document.source for document in task.package.documents)
    side = answer.fields.document if isinstance(answer.fields, ChosenSide) else "a"
    kinds = {(item.metric, item.difference) for item in task.package.items if item.difference is not None}
    for metric, difference in sorted(kinds):
        a, b = sorted(sources)
        about = {"metric": metric, "source_a": a, "source_b": b, "difference": difference.value}
        rule = {
            "rule_id": str(id_of("standing rule", task.task_id, metric, difference.value)),
            "preferred": sources["ab".index(side)],
            "task_id": task.task_id,
            "reason": answer.rationale,
        }
        who = {"person": answer.by, "role": answer.role, "context": context_of(None, **about, **rule)}
        await rows(conn, "make_rule", {**about, **rule, **who, "now": now})


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


CONTRADICTION: Final[TaskKind[Any, DocumentPair]] = TaskKind(
    name=KIND,
    package=DocumentPair,
    actions=TaskKind.of(
        TaskAction(
            name="choose",
            does="The values of document a or b count, for good; with always=true those of its source for later "
            "contradictions of the kind, too.",
            fields=ChosenSide,
            check=lambda package, fields: check_rules(package, fields) if fields.always else None,
        ),
        TaskAction(
            name="value",
            does="Neither is right: the stated value counts, for good. Of several items name each by its number, as "
            "1=…, and the document that counts of all others.",
            fields=OwnValues,
            alone=True,
            check=lambda package, fields: fields.by_item(package.items) and None,
        ),
        TaskAction(
            name="confirm",
            does="The provisional value counts for good.",
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
        """The group of a task: the subject, the analysis, and the two documents."""
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


async def show_corrections(conn: Connection, reports: Collection[str]) -> list[RecordLine]:
    """
    Show the corrected values of *reports* in the tasks about them that wait.

    Returns:
        The resolutions of those that wait for a person, with the corrected value of the fallback.
    """
    lines = []
    about = {"keys": sorted(reports), "states": [state.value for state in ANSWERABLE]}
    for row in await rows(conn, "tasks_about", about) if reports else ():
        before = DocumentPair.model_validate(row["package"])
        package = await _corrected(conn, before)
        if package == before:
            continue
        await rows(conn, "items_corrected", {"task_id": row["task_id"], "package": package.model_dump_json()})
        changed = {
            one.contradiction_id: one for one, old in zip(package.items, before.items, strict=True) if one != old
        }
        for found in await rows(conn, "reports_corrected", {"keys": sorted(changed)}):
            resolution = DataContradiction.Resolution.model_validate(orjson.loads(found["resolution"]))
            if resolution.status not in WAITING:
                continue
            value = fallback_of(changed[found["key"]]).final_value
            group = {"resolution": resolution.model_copy(update={"final_value": value})}
            at = found["known_at"].astimezone(UTC)
            lines.append(groups_of(DataContradiction, found["key"], group, known_at=at, writer=WRITER))
    return lines


async def _corrected(conn: Connection, package: DocumentPair) -> DocumentPair:
    """Return *package* with the values of the contradictions that were corrected."""
    found = await rows(conn, "reports_corrected", {"keys": [item.contradiction_id for item in package.items]})
    cores = {row["key"]: orjson.loads(row["core"]) for row in found}
    items = tuple(
        item.corrected(float(core["value_a"]), float(core["value_b"]))
        if (core := cores.get(item.contradiction_id)) is not None
        else item
        for item in package.items
    )
    return package.model_copy(update={"items": items}) if cores else package


async def withdraw(conn: Connection, contradictions: Collection[str], asked: Collection[str] = ()) -> Effects:
    """
    Withdraw the tasks that can be answered whose items are all withdrawn, by *contradictions* or before.

    Args:
        asked: contradictions that are recorded in the transaction of *conn* and may not be yet: their tasks stay.
    """
    effects = Effects()
    about = {"keys": sorted(contradictions), "states": [state.value for state in ANSWERABLE]}
    for row in await rows(conn, "tasks_about", about) if contradictions else ():
        keys = set(row["keys"])
        left = {one["key"] for one in await rows(conn, "contradictions_standing", {"keys": sorted(keys)})}
        if left <= set(contradictions) and keys.isdisjoint(asked):
            effects += await withdraw_task(conn, row["task_id"], "None of its values contradict each other any more.")
    return effects


def rank_of(items: Iterable[SeenItem]) -> int:
    """Return the rank of a task: that of its most important item."""
    return min(RANKS[item.priority] for item in items)
