"""Whatever fails or crawls, an answer comes in time and says what it is worth."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, StoreUnavailable
from imem.journal.modes import Mode
from imem.journal.settings import Role
from imem.kg.engine import Graph, Record
from imem.memory import Memory
from imem.recall.model import AWAY, Briefing, BriefingSection, Completeness, Quality
from imem.recall.request.fallbacks import MAX_FALLBACKS
from imem.recall.section_registry import BRIEFING_SECTIONS
from imem.recall.timing.latency_watch import MOST_TIMEOUTS, AnswerSource, LatencyWatch
from tests.kg.projection.test_engine import RUNAWAY
from tests.punctual import Punctual
from tests.recall.conftest import RecallHarness
from tests.recall.far import Far, far, forget, kept, labelled
from tests.recall.test_kept import _season, said, whole
from tests.waiting import until

__all__ = ["far"]

FAILS = "UNWIND [0] AS zero RETURN 1 / zero AS never"
"""What Neo4j refuses while it runs."""

QUERIES = {
    "history": "company_history",
    "debates": "debates_of_subject",
    "track_records": "speakers_of_subject",
    "contradictions": "contradictions_of_subject",
    "lessons": "lessons_of_subject",
}
"""The sections of a briefing that ask the graph, each with its query."""

LATE_S = 1.0
"""A briefing of so few records that has 2 s and took so many was held up by the machine."""

MOST_LATE = 10
"""How often a part of a briefing may be late, on a busy machine, before that is the defect itself."""

ALL_S = 2.0
"""Within so many seconds anything ends, whatever is silent."""


class Troubled(Graph):
    """A graph in which one query is another."""

    troubled: str = ""
    becomes: str = ""

    async def read(self, name: str, parameters: Mapping[str, Any] | None = None, *, deadline: Deadline) -> list[Record]:
        if name == self.troubled:
            return await self.read_text("troubled", self.becomes, deadline=deadline)
        return await super().read(name, parameters, deadline=deadline)


@asynccontextmanager
async def troubled(harness: RecallHarness, name: str, becomes: str = RUNAWAY, **changes: Any) -> AsyncIterator[Memory]:
    """Open a memory in which one query of the graph takes for ever, or does what else *becomes* does."""
    async with Memory.open(harness.settings.model_copy(update={"deadline_ms": 500, **changes})) as memory:
        graph: Any = memory._stores.graph
        graph.__class__ = Troubled
        graph.troubled, graph.becomes = name, becomes
        yield memory


@pytest.mark.spec("PF-6")
async def test_a_query_that_takes_for_ever_is_answered_in_time_and_ends_on_the_server(telling: RecallHarness) -> None:
    """
    By 500 ms from the call, what stands in says so, the other sections are whole; within 1 s the transaction is gone.
    """
    await _season(telling)
    async with troubled(telling, "company_history") as memory:
        await memory.brief("T0", deadline_ms=2_000)
        in_time = Punctual()
        # Who gets no processor in that time is late by that alone: process or server. A defect shows every time.
        for _ in range(MOST_LATE):
            begun_s = time.monotonic()
            with in_time.within(0.5):
                briefing = await memory.brief("T0")
            last_seen_s = await _until_ended(telling, begun_s)
            if briefing.history.quality is not Quality.UNAVAILABLE and last_seen_s < 1.0:
                break
    assert in_time.late_s < 0
    assert last_seen_s < 1.0
    assert briefing.history.quality is Quality.PARTIAL
    assert briefing.history.completeness is Completeness.TOP_N
    assert [item.analysis.key for item in briefing.history.items] == ["a0"]
    labelled(briefing)


async def _until_ended(telling: RecallHarness, begun_s: float) -> float:
    """Wait until the server runs the troubled query no more; return how long after *begun_s* it was last seen."""
    last_seen_s = 0.0

    async def ended() -> bool:
        nonlocal last_seen_s
        asked_s = time.monotonic()
        rows = await telling.world.graph.read_text(
            "show",
            "SHOW TRANSACTIONS YIELD metaData WHERE metaData.statement STARTS WITH 'troubled' RETURN 1 AS one",
            deadline=Deadline.after_ms(20_000),
        )
        if rows:
            last_seen_s = asked_s - begun_s
        return not rows

    await until(ended)
    return last_seen_s


async def only_one_less(memory: Memory, name: str) -> Briefing:
    """
    Return the briefing of which *name* alone is less than exact.

    Another part may be less for one reason only: the briefing itself came so late that there was no time for it.
    Anything else is a defect the first time that it shows.
    """
    for _ in range(MOST_LATE):
        started_s = time.monotonic()
        briefing = await memory.brief("T0", deadline_ms=2000)
        took_s = time.monotonic() - started_s
        less = {other: section for other, section in briefing.sections.items() if section.quality is not Quality.EXACT}
        assert name in less, "what failed is shown as exact"
        if set(less) == {name}:
            return briefing
        assert took_s > LATE_S, {
            other: (section.quality, section.reason) for other, section in less.items() if other != name
        }
    raise AssertionError(f"{MOST_LATE} briefings one after the other were late")


@pytest.mark.spec("PF-12")
@pytest.mark.parametrize("name", QUERIES)
async def test_one_query_that_fails_leaves_the_others_whole(telling: RecallHarness, name: str) -> None:
    """Neo4j refuses it while it runs: an error, long before the deadline."""
    await _season(telling)
    async with troubled(telling, QUERIES[name], FAILS, role=Role.AGENT, actor="agent0") as memory:
        briefing = await only_one_less(memory, name)
    assert briefing.sections[name].quality is Quality.PARTIAL, "what the journal knows stands in"
    well = await whole(telling.memory, "T0")
    assert {**said(briefing), name: None, "mode": None} == {**said(well), name: None, "mode": None}
    labelled(briefing)


@pytest.mark.spec("PF-12")
async def test_one_query_that_postgres_refuses_leaves_the_others_whole(telling: RecallHarness) -> None:
    """The right to read turns was taken away: the statement fails on the server, and nothing stands in for it."""
    await _season(telling)
    telling.journal.owner("REVOKE SELECT ON debate_turn FROM imem_app, imem_curators, PUBLIC")
    briefing = await only_one_less(telling.memory, "debates")
    assert briefing.debates.error == AWAY
    assert briefing.history.items
    labelled(briefing)


Asking = Callable[[Memory, str, float], Awaitable[BriefingSection | Briefing]]

QUESTIONS: dict[str, Asking] = {
    "brief": lambda memory, subject, ms: memory.brief(subject, deadline_ms=ms),
    "history": lambda memory, subject, ms: memory.history(subject, deadline_ms=ms),
    "similar": lambda memory, subject, ms: memory.similar(subject, deadline_ms=ms),
    "patterns": lambda memory, subject, ms: memory.patterns(subject, deadline_ms=ms),
    "lessons": lambda memory, subject, ms: memory.lessons(subject, deadline_ms=ms),
}


class Counting(LatencyWatch):
    """Counts how often a section was answered, and how many things that stand in were tried at most."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[str, int] = {}
        self.deepest = 0

    def observe(self, query: str, outcome: AnswerSource, *, depth: int | None = None, late: bool = False) -> None:
        self.answered[query] = self.answered.get(query, 0) + 1
        self.deepest = max(self.deepest, depth or 0)
        super().observe(query, outcome, depth=depth, late=late)


@pytest.mark.spec("PF-7")
async def test_with_every_tier_stalled_a_hundred_questions_end_in_time_and_say_so(far: Far) -> None:
    """Briefings and parts of them, with and without kept answers, by three budgets: nothing is exact or tried twice."""
    await kept(far)
    recall = far.memory._recall
    counting = Counting()
    far.memory._recall = replace(recall, sources=replace(recall.sources, watch=counting))
    scenarios = itertools.cycle(itertools.product(QUESTIONS, ("company:T0", "company:T1"), (500, 200, 100)))
    in_time, shown = Punctual(), list[Quality]()

    async def ask(question: str, subject: str, budget_ms: float) -> None:
        with in_time.within(budget_ms / 1000):
            try:
                answer = await QUESTIONS[question](far.memory, subject, budget_ms)
            except (StoreUnavailable, BudgetExceeded):
                assert question != "brief", "a briefing says in its sections what could not be asked"
                return
        assert answer.mode in {Mode.DEGRADED_READ, Mode.READ_ONLY}
        for section in answer.sections.values() if isinstance(answer, Briefing) else [answer]:
            assert section.quality is not Quality.EXACT
            assert section.reason
            shown.append(section.quality)
        if isinstance(answer, Briefing):
            labelled(answer)

    far.stall(*far.proxies)
    for remembered in (True, False):
        if not remembered:
            forget(far)
        for _ in range(5):
            async with asyncio.TaskGroup() as ten:
                for scenario in itertools.islice(scenarios, 10):
                    ten.create_task(ask(*scenario))
    assert in_time.calls == 100
    assert in_time.slowest_s < ALL_S
    assert in_time.late_s < 0
    assert Quality.STALE in shown, "what was kept stood in"
    assert Quality.UNAVAILABLE in shown
    assert counting.deepest <= MAX_FALLBACKS + 1
    assert sum(counting.answered.values()) <= in_time.calls * len(BRIEFING_SECTIONS), (
        "a section was answered twice for one question"
    )
    far.flow()


async def test_whichever_servers_are_silent_a_briefing_comes_in_time_and_says_what_it_lacks(far: Far) -> None:
    """Every set of them, with and without kept answers."""
    await kept(far)
    names, in_time = sorted(far.proxies), Punctual()
    sets = [chosen for size in range(1, 5) for chosen in itertools.combinations(names, size)]
    for nth, stalled in enumerate(sets):
        far.flow()
        if nth % 2:
            forget(far)
        far.stall(*stalled)
        # While Postgres answers, what a person calls it is enough, even with all else silent.
        with in_time.within(0.5):
            briefing = await far.memory.brief("company:T0" if "postgres" in stalled else "T0")
        labelled(briefing)
    assert in_time.late_s < 0
    far.flow()


async def test_an_old_copy_says_how_old_it_is(far: Far) -> None:
    """Past its time, with the graph away: the copy, its age, and why; in the Markdown as well."""
    tiers = far.memory._stores.tiers
    assert tiers is not None
    tiers.clock = clock = ManualClock()
    tiers.local._clock = clock
    await kept(far)
    clock.advance(timedelta(hours=3))
    far.stall("graph")
    # How soon it is answered is proved elsewhere; a busy machine shall not decide what is.
    briefing = await far.memory.brief("T0", deadline_ms=2_000)
    assert briefing.history.quality is Quality.STALE
    assert briefing.history.age_s == pytest.approx(3 * 3600, abs=60)
    assert briefing.history.items
    assert "[stale: as known 3 h ago" in briefing.to_markdown()
    labelled(briefing)


async def test_too_many_timeouts_are_told_to_people_once(telling: RecallHarness) -> None:
    """Ten in a minute, or more than a twentieth of them."""
    now = 0.0
    database = telling.memory._stores.database
    watch = LatencyWatch(database, now=lambda: now)

    async def alerts() -> list[dict[str, Any]]:
        await asyncio.gather(*watch._alerts._under_way)
        return await telling.journal.rows("SELECT kind, payload FROM workflow.alert WHERE kind = 'QUERY_TIMEOUTS'")

    for _ in range(400):
        watch.observe("history", AnswerSource.EXACT)
    for _ in range(MOST_TIMEOUTS - 1):
        watch.observe("history", AnswerSource.REDUCED, depth=1, late=True)
    assert await alerts() == []
    watch.observe("history", AnswerSource.NONE, depth=2, late=True)
    assert len(await alerts()) == 1
    watch.observe("history", AnswerSource.NONE, depth=2, late=True)
    now = 120.0
    for _ in range(MOST_TIMEOUTS):
        watch.observe("history", AnswerSource.NONE, depth=2, late=True)
    assert len(await alerts()) == 1, "it stands until somebody has acknowledged it"
    for _ in range(38):
        watch.observe("debates", AnswerSource.CACHED)
    for _ in range(2):
        watch.observe("debates", AnswerSource.STALE, late=True)
    assert len(await alerts()) == 1, "a twentieth is not more than a twentieth"
    watch.observe("debates", AnswerSource.STALE, late=True)
    found = await alerts()
    assert len(found) == 2
    assert found[1]["payload"]["query"] == "debates"


async def test_who_can_wait_is_answered_as_a_whole(far: Far) -> None:
    """The graph answers so late that no question by default would hear it: one that has 30 s does."""
    far.proxies["graph"].delay_s = 0.8
    assert (await far.memory.brief("T0")).history.quality is not Quality.EXACT
    briefing = await far.memory.brief("T0", deadline_ms=30_000)
    assert not briefing.degraded
    assert briefing.took_ms > 500
    assert briefing.history.items
    with pytest.raises(BadInput, match="30,000"):
        await far.memory.brief("T0", deadline_ms=30_001)


async def test_the_budget_of_a_single_question_is_kept_too(telling: RecallHarness) -> None:
    await _season(telling)
    async with troubled(telling, "lessons_of_subject") as memory:
        in_time = Punctual()
        section: BriefingSection | None = None
        # A process that gets no processor in its half second has no answer, which it says by then.
        while section is None and in_time.calls < MOST_LATE:
            with suppress(BudgetExceeded), in_time.within(0.5):
                section = await memory.lessons("T0")
        assert in_time.late_s < 0
    assert section is not None
    assert section.quality is Quality.PARTIAL
    assert [one.key for one in section.items] == []  # type: ignore[attr-defined]
