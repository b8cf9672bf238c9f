"""Lessons as they are recorded, and the pipelines that go on with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from imem.jobs.lifecycle import Effects, advance_due, finish
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.kg.kinds.base import Kind
from imem.kg.kinds.enums import LessonPriority, LessonSource
from imem.kg.kinds.learning import Lesson
from imem.kg.kinds.work import Decision, Outcome
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import link_of, record_of
from imem.postmortem.lessons.gate import LessonDecision, LessonItem, LessonWording, decide_lesson, lessons_waiting
from imem.postmortem.lessons.life import ACTOR, LIFE, open_lessons
from tests.credibility.conftest import World, company

DAY0 = datetime(2026, 1, 5, tzinfo=UTC)
ENOUGH = Deadline.never()
PERSON = Actor("kate", Role.HUMAN_ADMIN)
MODEL = Actor("import:analyst", Role.HUMAN_ADMIN, may_import=True)


def lesson(key: str, **core: Any) -> Lesson:
    values = {
        "id": key, "source": LessonSource.AI_ANALYSIS, "category": "missing_factors", "priority": LessonPriority.MEDIUM,
        "insight": f"What {key} teaches about inventories at the top of a cycle.",
        "recommended_action": f"Before {key} comes again, look at inventories.", "affected_domains": ["flu"],
    }  # fmt: skip
    return Lesson(**{**values, **core})


async def record(world: World, *models: Kind, actor: Actor = MODEL, writer: str | None = None) -> None:
    """Append records, as whoever may; *writer* with the groups that it governs."""
    action = Action.APPEND_POSTMORTEM if type(models[0]).GOVERNED else Action.APPEND
    entries = [entry_of(record_of(one, writer=writer or type(one).GOVERNED)) for one in models]
    async with world.pipelines.transaction(ENOUGH) as conn:
        await finish(conn, Effects(facts=[(actor, action, entry) for entry in entries]), world.engine, ENOUGH)


def agent(name: str, kind: str = "model", domains: list[str] | None = None) -> dict[str, Any]:
    profile = {"specialization": "flu", "kind": kind, "domains": ["flu"] if domains is None else domains}
    known_at = (DAY0 - timedelta(days=9)).isoformat()
    return {"record": "Agent", "known_at": known_at, "core": {"name": name}, "groups": {"profile": profile}}


def runtime_of(world: World) -> Any:
    return SimpleNamespace(database=world.pipelines, gateway=world.engine)


async def go_on(world: World) -> None:
    """Let the pipelines do all that is due."""
    runtime = runtime_of(world)
    await open_lessons(runtime, until=ENOUGH)
    while (report := await advance_due(runtime, {LIFE.kind: LIFE}, until=ENOUGH)).moved:
        assert (report.failed, report.refused) == (0, 0), report


async def waiting(world: World) -> list[LessonItem]:
    async with world.pipelines.transaction(ENOUGH) as conn:
        return await lessons_waiting(conn)


async def decide(
    world: World,
    key: str,
    decision: LessonDecision,
    reason: str | None = None,
    wording: LessonWording | None = None,
    *,
    replaces: str | None = None,
    patterns: Iterable[str] = (),
    task_id: str | None = None,
) -> None:
    async with world.pipelines.transaction(ENOUGH) as conn:
        now = datetime.now(UTC)
        effects = await decide_lesson(
            conn,
            key,
            decision,
            by=PERSON.id,
            reason=reason,
            wording=wording,
            replaces=replaces,
            patterns=patterns,
            task_id=task_id,
            now=now,
        )
        await finish(conn, effects, world.engine, ENOUGH)


async def states(world: World) -> dict[str, str]:
    """Return the state of each lesson by its row; what was recorded of it says the same, where anything was."""
    rows = await world.rows("SELECT key, state FROM lifecycle WHERE kind = 'lesson' ORDER BY key")
    said = await world.rows(
        "SELECT h.key, e.payload -> 'groups' -> 'state' AS value FROM record_head AS h"
        " JOIN event AS e ON e.position = h.position WHERE h.kind = 'Lesson' AND h.grp = 'state'"
    )
    found = {row["key"]: row["state"] for row in rows}
    recorded = {row["key"]: row["value"]["state"] for row in said}
    assert {key: found[key] for key in recorded} == recorded
    assert {row["key"] for row in said if row["value"]["applied"]} == {
        key for key, state in found.items() if state == "applied"
    }
    return found


async def links(world: World) -> list[tuple[str, str]]:
    """Return every link of a delivery, as its type and its agent, each event once."""
    found = await world.rows(
        "SELECT split_part(kind, '.', 2) AS type,"
        " CASE payload ->> 'from_label' WHEN 'Agent' THEN payload ->> 'from_key' ELSE payload ->> 'to_key' END AS agent"
        " FROM event WHERE kind LIKE 'link.%%' AND actor = %s ORDER BY 1, 2",
        ACTOR.id,
    )
    return [(row["type"], row["agent"]) for row in found]


async def superseded(world: World) -> list[tuple[str, str]]:
    """Return which lesson is linked with which other one, in whose place it stands."""
    found = await world.rows(
        "SELECT payload ->> 'from_key' AS lesson, payload ->> 'to_key' AS other FROM event"
        " WHERE kind = 'link.SUPERSEDES' ORDER BY position"
    )
    return [(row["lesson"], row["other"]) for row in found]


LINKS = ("ADDED_TO_CHECKLIST", "AFFECTS_AGENT", "RECEIVED_LESSON")


# Decisions that an effect is measured on

DAY = timedelta(days=1)
APPLIED = DAY0 - 200 * DAY


def decided(subject: str, number: int, *, late: bool, right: bool, agents: tuple[str, ...] = ("ann",)) -> list[Any]:
    """Return a decision and its outcome after 90 days, which was measured."""
    at = APPLIED + (number + 1) * (DAY if late else -DAY)
    key = f"{subject}-{late}-{number}"
    over = at + 90 * DAY
    return [
        Decision(id=key, subject_id=f"company:{subject}", type="portfolio", agents_involved=agents, decided_at=at),
        Outcome(
            id=f"o-{key}", subject_id=f"company:{subject}", decision_id=key, checkpoint=90, metric="total_return",
            period_start=at, target_at=over, actual=0.1, unit="fraction", observed_at=over, vintage=0,
            assessment=Outcome.Assessment(deviation=0.0, accuracy=float(right)),
        ),
    ]  # fmt: skip


def measured(cells: Mapping[tuple[str, bool], int]) -> list[Any]:
    """Return ten decisions of each cell (ticker, after the lesson), of which so many are right."""
    return [
        each
        for (subject, late), right in cells.items()
        for number in range(10)
        for each in decided(subject, number, late=late, right=number < right)
    ]


async def applied(world: World, key: str) -> None:
    """Have a lesson for technology that is applied, and that the agent *ann* has."""
    state = Lesson.State(state="applied", reviewed=True, applied=True, applied_date=APPLIED, effectiveness_tracked=True)
    await record(world, lesson(key, state=state, scope_sector="Technology"), writer="postmortem", actor=PERSON)
    link = entry_of(link_of("AFFECTS_AGENT", ("Lesson", key), ("Agent", "ann")))
    async with world.pipelines.transaction(ENOUGH) as conn:
        await finish(conn, Effects(facts=[(ACTOR, Action.APPEND, link)]), world.engine, ENOUGH)
    long_ago = DAY0 - 900 * DAY
    await world.say(company("MU", long_ago, sector="Technology"), company("XOM", long_ago, sector="Energy"))
    await go_on(world)
