"""
Detection of contradictions between data points, and the resolution of those and of reported ones.

A data point that is recorded or corrected makes its cell due. A batch of cells is one transaction under a lock: a crash
records all of it or nothing, and two workers record nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

import orjson

from imem.credibility.disputes.answers import SeenDocument, SeenItem
from imem.credibility.disputes.arbitration import ACTOR, QUEUE, Question, ask, show_corrections, withdraw
from imem.credibility.disputes.cells import spread
from imem.credibility.disputes.findings import (
    OpenQuestion,
    RecordedContradiction,
    line_of_report,
    lines_of_cell,
    sources_at,
)
from imem.credibility.disputes.histories import Cell, PointHistory, epochs_of, histories_of, outcomes_of
from imem.credibility.disputes.priorities import priority_of
from imem.credibility.disputes.rules import rules_of
from imem.credibility.disputes.sources import Tallies, tallies_of
from imem.credibility.disputes.values import Judge
from imem.jobs.due import DueRow, due_rows_of, finish_due, halving, next_due, set_due_aside
from imem.jobs.lifecycle import Effects, finish
from imem.jobs.pipeline import Report
from imem.journal.actors import Action
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.enums import ContradictionSide, ContradictionStatus, DataDifference
from imem.kg.kinds.trust import DataContradiction
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import RecordLine
from imem.review.tasks import ReviewRuntime

KINDS: Final = ("DataPoint", "DataContradiction")
"""Kinds of its rows: points whose cells are compared, and contradictions that were recorded by others."""

QUEUED: Final = ContradictionStatus.QUEUED

BATCH: Final = 200
"""Due rows of one transaction."""

BATCH_MS: Final = 60_000
"""How long one transaction may take, in milliseconds."""

MOST_QUESTIONS: Final = 500
"""Questions of one transaction; to open a task for one takes some 20 ms."""

_ALWAYS: Final = {"known_until": END_OF_TIME, "recorded_until": END_OF_TIME}


async def find_contradictions(runtime: ReviewRuntime, *, guard: bool, until: Deadline, batch: int = BATCH) -> Report:
    """
    Compare due cells and resolve due contradictions until none is left or *until* has passed.

    Args:
        runtime: its gateway appends what was found, as :data:`ACTOR`; what only a person decides becomes a task.
        guard: whether what looks like a slip of the pen goes to a person.
        batch: most due rows of one transaction.

    Returns:
        Cells compared, contradictions written (``recorded`` counts new ones, withdrawn ones and new outcomes as well),
        and for each way to differ the neighbours of those cells that differ so; empty if nothing was due.

    Raises:
        PostgresUnavailable: committed batches stay; the rest is still due.
    """
    total: Counter[str] = Counter()
    while not until.passed:
        done = await halving(
            lambda size: _batch(runtime, size, guard=guard), batch, lambda error: _alone(runtime.database, error)
        )
        more = done.pop("more", 0)
        total.update(done)
        if not more:
            if total["recorded"]:
                await runtime.gateway.publish_wakeup(tuple(Tier))
            return dict(total)
    return {**total, "more": True}


async def _alone(database: Database, error: Exception) -> Counter[str]:
    async with database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "disputes_lock")
        due = await next_due(conn, QUEUE, KINDS, 1)
        await set_due_aside(conn, QUEUE, due, error)
    return Counter({"stuck": len(due), "more": 1})


async def _batch(runtime: ReviewRuntime, size: int, *, guard: bool) -> Counter[str]:
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "disputes_lock")
        due = await next_due(conn, QUEUE, KINDS, size)
        if not due:
            return Counter()
        await rows(conn, "disputes_idle_timeout")
        by_kind = {kind: sorted({one.key for one in due if one.kind == kind}) for kind in KINDS}
        cells, also = await _cells(conn, by_kind["DataPoint"])
        reports = await rows(conn, "contradictions_reported", {"keys": by_kind["DataContradiction"]})
        named = [
            (DataContradiction.model_validate(orjson.loads(row["core"])), row["known_at"].astimezone(UTC))
            for row in reports
        ]
        sources = {one.versions[0][1].source for histories in cells.values() for one in histories}
        tallies = await _tallies(conn, sources | {name for one, _ in named for name in (one.source_a, one.source_b)})
        recorded = await _recorded(conn, cells)
        metrics = sorted({cell.metric for cell in cells})
        made = await rows(conn, "standing_rules", {"metrics": metrics, "made_until": END_OF_TIME})
        found: list[RecordLine | OpenQuestion] = []
        for histories in cells.values():
            keys = {one.versions[0][1].id for one in histories}
            own = {key: one for key, one in recorded.items() if one.model.point_b in keys}
            rules = rules_of(made, histories[0].cell.metric)
            found += lines_of_cell(histories, own, tallies, guard=guard, rules=rules)
        found += [line_of_report(one, at, sources_at(tallies, at), guard=guard) for one, at in named]
        asking = [place for place, one in enumerate(found) if isinstance(one, OpenQuestion)]
        rest = asking[MOST_QUESTIONS] if len(asking) > MOST_QUESTIONS else len(found)
        whole, found = rest == len(found), found[:rest]
        questions = [one for one in found if isinstance(one, OpenQuestion)]
        lines = [one for one in found if not isinstance(one, OpenQuestion)]
        waiting, effects = await ask(runtime, conn, [_asked(one, tallies) for one in questions])
        lines += [one.line(QUEUED if one.model.id in waiting else None) for one in questions]
        gone = {line.key for line in lines if _withdraws(line)}
        lines += await show_corrections(conn, by_kind["DataContradiction"])
        effects += await withdraw(conn, gone, {one.model.id for one in questions})
        if whole:
            await finish_due(conn, QUEUE, {*due, *also})
        facts = [(ACTOR, Action.APPEND_CREDIBILITY, entry_of(line)) for line in lines]
        await finish(conn, Effects(facts=facts) + effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    counted = Counter({"recorded": len(lines), "cells": len(cells), "more": int(len(due) == size or not whole)})
    counted["asked"] = len(waiting)
    counted.update(differences_of(cells.values()))
    return counted


def _withdraws(line: RecordLine) -> bool:
    group = line.groups.get("resolution", {})
    return group.get("status") == ContradictionStatus.WITHDRAWN


def _asked(question: OpenQuestion, tallies: Tallies) -> Question:
    """Return what a reviewer sees of a contradiction."""
    model, verdict, sources = question.model, question.verdict, sources_at(tallies, question.since)
    pair = question.pair
    values = {ContradictionSide.A: model.value_a, ContradictionSide.B: model.value_b, None: None}
    priority = priority_of(question.metric, model.valuation_impact)
    judge = Judge(sources, priority, guard=True)
    points = (pair.a, pair.b) if pair is not None else (None, None)
    stated = ((model.source_a, model.document_a), (model.source_b, model.document_b))
    one, other = (
        SeenDocument(
            source=source,
            document=document,
            filed_at=None if point is None else point.filed_at,
            score=(sources(source) if point is None else judge.source_of(point)).score,
        )
        for (source, document), point in zip(stated, points, strict=True)
    )
    item = SeenItem(
        contradiction_id=model.id,
        point_a=model.point_a,
        point_b=model.point_b,
        metric=question.metric,
        data_point=model.data_point,
        value_a=model.value_a,
        value_b=model.value_b,
        differ_by=spread(model.value_a, model.value_b),
        priority=priority,
        valuation_impact=model.valuation_impact,
        fallback_value=values[verdict.winner],
        fallback_side=verdict.winner,
        fallback_confidence=verdict.confidence,
        differential=verdict.differential,
        difference=None if pair is None else pair.difference,
    )
    return Question(model.subject_id, model.analysis_id, (one, other), item)


def differences_of(cells: Iterable[Sequence[PointHistory]]) -> Counter[str]:
    """Return how many neighbours of the cells differ in each way; what only agrees is not counted."""
    found = Counter(
        pair.difference for histories in cells for pair in epochs_of(histories)[-1].pairs.values()
    )  # fmt: skip
    return Counter({one.value: count for one, count in found.items() if one is not DataDifference.AGREEMENT})


async def _cells(conn: Connection, keys: Sequence[str]) -> tuple[dict[Cell, list[PointHistory]], list[DueRow]]:
    """Return the cells of due points, and the rows that are done by comparing them: those of all of their points."""
    wanted = await rows(conn, "cells_of_points", {"keys": keys}) if keys else []
    if not wanted:
        return {}, []
    names = {
        f"{name}s": [row[name] for row in wanted] for name in ("subject_id", "metric", "period_end")
    }  # fmt: skip
    # Read before the points: a row of what is recorded meanwhile stays.
    done = due_rows_of(await rows(conn, "due_of_cells", {**names, "queue": QUEUE, "kind": KINDS[0]}))
    found = histories_of(await rows(conn, "data_points", {**names, **_ALWAYS}))
    due = {*keys, *(one.key for one in done)}
    cells = {
        cell: histories
        for cell, histories in found.items()
        if not due.isdisjoint(one.versions[0][1].id for one in histories)
    }
    return cells, done


async def _tallies(conn: Connection, sources: Iterable[str]) -> Tallies:
    return tallies_of(outcomes_of(await rows(conn, "source_outcomes", {"sources": sorted(sources), **_ALWAYS})))


async def _recorded(conn: Connection, cells: Mapping[Cell, Sequence[PointHistory]]) -> dict[str, RecordedContradiction]:
    keys = [one.versions[0][1].id for histories in cells.values() for one in histories]
    given: dict[str, Any] = {"keys": keys, "actor": ACTOR.id}
    found = await rows(conn, "contradictions_of_points", given) if keys else []
    return {row["key"]: RecordedContradiction.from_row(row) for row in found}
