"""Every way to a lesson, and in which states agents see it there; as of any day, and for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.queries import named_queries
from imem.memory import Memory
from imem.recall.answers import RecordsSection
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.search.projection import project_due
from imem.recall.sections import lessons
from tests.kg.similarity.conftest import Directions
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.test_who_may_ask import asking

STATES: Final[Mapping[str, tuple[str, bool] | None]] = {
    "l0": None, "l1": ("draft", True), "l2": ("pending_gate6", False), "l3": ("pending_gate6", True),
    "l4": ("approved", False), "l5": ("applied", False), "l6": ("rejected", True), "l7": ("retired", True),
    "l8": ("superseded", True),
}  # fmt: skip
"""Lesson → its state, and whether a person reviewed it; None: no state was recorded."""

SEEN: Final = {"l3": True, "l4": False, "l5": False}
"""What agents see → whether it is advisory."""

Door = Callable[[RecallHarness, Memory, "datetime | None"], Awaitable[dict[str, bool]]]

PATIENT_MS: Final = 20_000.0


def shown(section: RecordsSection) -> dict[str, bool]:
    """Return what a section shows; every item stands in its text, and is told to be advisory or not."""
    assert section.total == len(section.items)
    return {one.key: ", advisory)" in lessons.lesson_text(one) for one in section.items}


async def briefing(_: RecallHarness, memory: Memory, at: datetime | None) -> dict[str, bool]:
    return shown((await memory.brief("T0", as_of=at, deadline_ms=PATIENT_MS)).lessons)


async def section(_: RecallHarness, memory: Memory, at: datetime | None) -> dict[str, bool]:
    return shown(await memory.lessons("T0", as_of=at, deadline_ms=PATIENT_MS))


def retrieved(retriever: Callable[[RetrievalRequest], Awaitable[RecordsSection]]) -> Door:
    async def ask(harness: RecallHarness, _: Memory, at: datetime | None) -> dict[str, bool]:
        now = (await harness.journal.database.named("safe_horizon", deadline=Deadline.never()))[0]["now"]
        request = RetrievalRequest(
            "company:T0", AsOf(at or now), harness.journal.database, harness.world.graph, Deadline.after_ms(PATIENT_MS),
            Limits(), 2.0,
        )  # fmt: skip
        return shown(await retriever(request))

    return ask


async def named_query(_: RecallHarness, memory: Memory, at: datetime | None) -> dict[str, bool]:
    rows = await memory.query("lessons_of_subject", {"subject_id": "company:T0"}, as_of=at, deadline_ms=PATIENT_MS)
    assert {row["total"] for row in rows} <= {len(rows)}
    return {row["lesson"]: SEEN.get(row["lesson"], False) for row in rows}


async def text(_: RecallHarness, memory: Memory, at: datetime | None) -> dict[str, bool]:
    found = {key: await memory.text("Lesson", key, as_of=at, deadline_ms=PATIENT_MS) for key in (*STATES, "l9")}
    return {key: SEEN.get(key, False) for key, one in found.items() if one is not None}


async def search(_: RecallHarness, memory: Memory, at: datetime | None) -> dict[str, bool]:
    found = await memory.search("what it teaches", kinds=["lesson"], limit=50, as_of=at, deadline_ms=PATIENT_MS)
    return {one.key: one.advisory for one in found.items}


DOORS: Final[Mapping[str, Door]] = {
    "briefing": briefing,
    "section": section,
    "retriever of the graph": retrieved(lessons.load),
    "retriever of the journal": retrieved(lessons.load_from_journal),
    "named query": named_query,
    "text": text,
    "search": search,
}


def recorded(key: str) -> Line:
    """Return a lesson of a domain of T0, without a state."""
    line = facts.with_body(facts.lesson(key, 1, affected_domains=["up_or_down"]))
    return {name: value for name, value in line.items() if name != "groups"}


async def know_lessons(harness: RecallHarness) -> None:
    """Record a lesson in every state, and one that is approved on day 3 and retired on day 6."""
    entered = [(key, *state) for key, state in STATES.items() if state is not None]
    await harness.know(
        [
            facts.company("T0", 0), facts.analysis("a0", 0), facts.finding("f0", 0),
            *(recorded(key) for key in (*STATES, "l9")),
            *(facts.lesson_enters(key, 2, state, reviewed=reviewed) for key, state, reviewed in entered),
            facts.lesson_enters("l9", 3, "approved"), facts.lesson_enters("l9", 6, "retired"),
        ]
    )  # fmt: skip
    await project_due(harness.journal.database, Directions(), until=Deadline.never())


async def test_agents_see_a_lesson_in_its_states_at_every_door(harness: RecallHarness) -> None:
    """Approved and applied ones, and as advisory what a person reviewed; and as of a day those of that day."""
    await know_lessons(harness)
    at = {number: datetime.fromisoformat(day(number)) for number in (1.5, 4, 7)}
    for role in (Role.AGENT, Role.DEBATE_FACILITATOR, Role.KNOWLEDGE_BASE_AGENT, Role.READER):
        async with asking(harness, role) as memory:
            for name, door in DOORS.items():
                assert await door(harness, memory, None) == SEEN, (role, name)
    async with asking(harness, Role.AGENT) as memory:
        for name, door in DOORS.items():
            assert await door(harness, memory, at[1.5]) == {}, name
            assert await door(harness, memory, at[4]) == SEEN | {"l9": False}, name
            assert await door(harness, memory, at[7]) == SEEN, name
        sample = await retrieved(lessons.load_sample)(harness, memory, None)
        assert sample.items() <= SEEN.items()


async def test_a_withdrawn_lesson_is_gone_before_the_graph_knows_it(harness: RecallHarness) -> None:
    await know_lessons(harness)
    await harness.journal.say(facts.lesson_enters("l4", 8, "retired"), facts.lesson_enters("l3", 8, "rejected"))
    async with asking(harness, Role.AGENT) as memory:
        for name, door in DOORS.items():
            assert await door(harness, memory, None) == {"l5": False}, name


async def test_the_limit_counts_what_agents_see(harness: RecallHarness) -> None:
    """The newest lessons are rejected: they take nobody's place, today or as of a day."""
    old = [facts.lesson(f"l{n}", 1, affected_domains=["up_or_down"]) for n in range(2)]
    new = [facts.lesson(f"l{n}", 2, affected_domains=["up_or_down"]) for n in range(2, 6)]
    await harness.know(
        [
            facts.company("T0", 0), facts.analysis("a0", 0), facts.finding("f0", 0), *old, *new,
            *(facts.lesson_enters(f"l{n}", 3, "rejected") for n in range(2, 6)),
        ]
    )  # fmt: skip
    found = await harness.memory.lessons("T0", limit=2)
    assert ([one.key for one in found.items], found.total) == (["l0", "l1"], 2)
    then = await harness.memory.lessons("T0", limit=2, as_of=datetime.fromisoformat(day(2.5)))
    assert ([one.key for one in then.items], then.total) == (["l2", "l3"], 6)


async def test_people_see_every_state_and_agents_nothing_under_review(harness: RecallHarness) -> None:
    await know_lessons(harness)
    queries = [name for name, query in named_queries().items() if query.area == "learning"]
    assert {"postmortems_pending", "postmortem_of_decision", "patterns_pending_revision"} <= set(queries)
    given: dict[str, Any] = {
        "opened_before": datetime.fromisoformat(day(9)), "decision_id": "d0", "root_cause": "timing",
        "classification": "genuine_success", "since": datetime.fromisoformat(day(0)),
    }  # fmt: skip
    kinds = ("PostMortem", "FailureAnalysis", "HumanInsight", "SuccessValidation")
    for role in (Role.HUMAN_ADMIN, Role.REVIEWER):
        async with asking(harness, role, "kate") as memory:
            assert set(await text(harness, memory, None)) == {*STATES, "l9"}
            for name in queries:
                parameters = {one: given[one] for one in named_queries()[name].parameters if one in given}
                await memory.query(name, parameters)
            for kind in kinds:
                assert await memory.text(kind, "x") is None
    for role in (Role.AGENT, Role.DEBATE_FACILITATOR, Role.KNOWLEDGE_BASE_AGENT, Role.READER):
        async with asking(harness, role) as memory:
            for name in queries:
                parameters = {one: given[one] for one in named_queries()[name].parameters if one in given}
                with pytest.raises(PermissionDenied):
                    await memory.query(name, parameters)
            for kind in kinds:
                with pytest.raises(PermissionDenied):
                    await memory.text(kind, "x")


@pytest.mark.spec("PM-13")
async def test_rebroadcasting_creates_no_second_edge(harness: RecallHarness) -> None:
    """A delivery that is repeated at another time is the same link."""
    ends = {"ADDED_TO_CHECKLIST": ("Lesson", "Agent"), "RECEIVED_LESSON": ("Agent", "Lesson")}
    keys = {"Lesson": "l4", "Agent": "ann"}
    for at in (2, 3):
        links = [
            {"link": link, "known_at": day(at), "from": {a: keys[a]}, "to": {b: keys[b]}, "props": {"at": day(at)}}
            for link, (a, b) in ends.items()
        ]
        await harness.know([facts.lesson("l4", 1), *links])
    found = await harness.world.run(
        "MATCH (:Lesson {id: 'l4'})-[r]-(:Agent {name: 'ann'}) RETURN type(r) AS t ORDER BY t"
    )
    assert [row["t"] for row in found] == sorted(ends)
