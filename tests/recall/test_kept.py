"""Kept answers are what L3 would say now: after any write, for everybody, and to whom they are for alone."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from imem.cache.metrics import LOADS, REQUESTS
from imem.cache.tiers.invalidation import ProjectionInvalidator
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.journal.events.entry import AppendStatus
from imem.journal.gateway import _columns
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.engine import Graph
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.similarity.index import update
from imem.memory import Memory
from imem.recall.brief import _WITHOUT_AGENT
from imem.recall.immutable import SealedDict, SealedList
from imem.recall.model import Briefing, Quality
from imem.recall.read_horizon import ReadHorizon, fetch_read_horizon
from imem.recall.request import horizon
from imem.recall.section_registry import BRIEFING_SECTIONS, SUBJECT
from imem.services.recall import recall_over
from tests.counting import total
from tests.kg.draining import drain
from tests.kg.projection.world import NEVER, importer
from tests.kg.similarity.conftest import Directions
from tests.recall import facts
from tests.recall.conftest import RecallHarness, patient, settings_of
from tests.recall.facts import Line, day
from tests.recall.test_no_look_ahead import _facts, _later
from tests.waiting import until

EXAMPLES = settings(
    max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=True
)

T = 5


async def whole(memory: Memory, subject: str) -> Briefing:
    """Return the first without a missing part: on a busy machine one may be late, and is nobody else's then."""
    async with asyncio.timeout(60):
        while (briefing := await memory.brief(subject)).degraded:
            pass
    return briefing


class Asked:
    """What was asked of which tier since it was made."""

    def __init__(self) -> None:
        self._before = {tier: total(REQUESTS, tier=tier) for tier in ("C2", "C1", "L3")}

    def of(self, tier: str) -> float:
        return total(REQUESTS, tier=tier) - self._before[tier]


async def shared(memory: Memory) -> None:
    """Wait until what was loaded lies where other processes find it: nobody who asks waits for that."""
    tiers = memory._stores.tiers
    assert tiers is not None
    await asyncio.gather(*tiers._ending)


@asynccontextmanager
async def without_tiers(harness: RecallHarness) -> AsyncIterator[Memory]:
    """Open a memory that keeps nothing."""
    async with Memory.open(harness.settings) as memory:
        memory._recall = recall_over(memory._stores, use_cache=False)
        yield memory


def said(briefing: Briefing) -> dict[str, Any]:
    """Return a briefing without what depends on when it was asked."""
    found = briefing.model_dump(exclude={"took_ms", "late_ms", "as_of", "complete_until"})
    for item in found["track_records"]["items"]:
        for name in ("mean", "lower", "upper"):
            del item[name]
    for item in found["panels"]["items"]:
        # Weights decay as time passes, and so do the answers and records of pools.
        del item["weighted"], item["pools"], item["trust"]
        for answer in item["answers"]:
            for name in ("weight", "moves", "advantage", "loss", "peer_loss", "bias"):
                del answer[name]
    return found


async def _season(harness: RecallHarness) -> None:
    await harness.know(
        [
            facts.company("T0", 0), facts.company("T1", 0), facts.agent("agent0", 0), facts.agent("agent1", 0),
            facts.analysis("a0", 1), facts.finding("f0", 1, probability=0.9), facts.finding("f4", 1, probability=0.2),
            facts.analysis("a1", 1), facts.finding("f1", 1, probability=0.9),
            facts.decision("d0", 2), facts.debate("b0", 2), facts.contradiction("c0", 3), facts.outcome("o0", 4),
            facts.pattern("p0", 0), facts.pattern_status("p0", 1, "active"), facts.lesson("l0", 1),
            facts.identified("p0", 1), facts.affects("l0", 1),
        ]
    )  # fmt: skip


async def test_a_second_briefing_asks_l3_for_nothing(telling: RecallHarness) -> None:
    """Nor does the first of another process."""
    await _season(telling)
    first = await whole(telling.memory, "T0")
    await shared(telling.memory)
    assert first.mode == "normal"
    asked = Asked()
    again = await telling.memory.brief("T0")
    assert (asked.of("L3"), asked.of("C1"), asked.of("C2")) == (0, 0, 9)
    async with patient(telling.settings) as other:
        elsewhere = await other.brief("T0")
        assert (asked.of("L3"), asked.of("C1")) == (0, 9)
    assert said(first) == said(again) == said(elsewhere)
    assert again.as_of >= first.as_of
    assert again.complete_until is not None
    assert again.complete_until <= again.as_of


async def test_who_has_written_finds_it_in_every_process(telling: RecallHarness) -> None:
    """What is known of another subject stays where it is, but for how like the two are."""
    await _season(telling)
    async with patient(telling.settings) as other:
        for memory in (telling.memory, other):
            for subject in ("T0", "T1"):
                await whole(memory, subject)
            await shared(memory)
        receipts = await telling.journal.say(facts.finding("f8", 6, importance=1.0))
        await telling.work()
        for memory in (telling.memory, other):
            asked = Asked()
            shown = (await memory.brief("T0")).history.items[0].findings
            assert "f8" in [one.finding.key for one in shown]
            if memory is telling.memory:
                assert asked.of("L3") == 7, "patterns hang on something else, the rest is loaded once for all"
            # Who takes what another process has loaded has loaded nothing.
            before = {kind.name: total(LOADS, query=kind.name) for kind in (SUBJECT, *BRIEFING_SECTIONS)}
            await whole(memory, "T1")
            loaded = {name for name, times in before.items() if total(LOADS, query=name) > times}
            if memory is telling.memory:
                assert loaded == {"similar_analyses"}, "only what is like T0 hangs on it"
            else:
                assert loaded == set(), "and that is loaded once"
            await shared(memory)
        briefing = await telling.memory.brief("T0")
        assert briefing.complete_until is not None
        assert receipts[0].recorded_at is not None
        assert briefing.complete_until >= receipts[0].recorded_at


async def test_whole_parts_say_that_the_journal_answered(
    telling: RecallHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who shares another's loads has a whole answer, also where the journal was late for him alone."""
    await _season(telling)
    tiers = telling.memory._stores.tiers
    assert tiers is not None
    shared_by_both, asked = asyncio.Event(), 0

    def loads_waited_for_by(requests: int) -> Callable[[], Awaitable[bool]]:
        async def waited() -> bool:
            return [flight.waiting for flight in tiers._flights._open.values()] == [requests] * len(_WITHOUT_AGENT)

        return waited

    async def opened(*given: Any, **named: Any) -> ReadHorizon:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise BudgetExceeded("Postgres did not answer in time.")
        await shared_by_both.wait()
        return await fetch_read_horizon(*given, **named)

    async def ask() -> Briefing:
        return await telling.memory.brief("T0", deadline_ms=30_000)

    monkeypatch.setattr(horizon, "fetch_read_horizon", opened)
    async with asyncio.TaskGroup() as both:
        first = both.create_task(ask())
        await until(loads_waited_for_by(1))
        second = both.create_task(ask())
        await until(loads_waited_for_by(2))
        shared_by_both.set()
    assert asked > 1
    assert [(one.degraded, one.mode) for one in (first.result(), second.result())] == [(False, "normal")] * 2


@EXAMPLES
@given(
    batches=st.lists(
        st.lists(
            st.one_of(_facts(), st.builds(lambda n, of: _later(n, 9)[of], st.integers(0, 7), st.integers(0, 4))),
            min_size=1,
            max_size=8,
        ),
        min_size=2,
        max_size=4,
    )
)
async def test_a_kept_answer_is_what_would_be_loaded(telling: RecallHarness, batches: list[list[Line]]) -> None:
    """After each of any writes: now and as of a day, for companies and for questions of a series."""
    await telling.world.wipe()
    async with telling.world.journal() as journal, fresh(telling, journal) as harness, without_tiers(harness) as bare:
        await harness.know([facts.company("T0", 0), facts.market_analysis("q0", 0), facts.lesson("l0", 0)])
        for batch in batches:
            receipts = await harness.journal.say(*batch)
            assert receipts
            await harness.work()
            for subject in ("company:T0", "market:m0"):
                for at in (None, datetime.fromisoformat(day(T))):
                    kept, loaded = await harness.memory.brief(subject, as_of=at), await bare.brief(subject, as_of=at)
                    if {kept.mode, loaded.mode} == {"normal"}:
                        assert said(kept) == said(loaded), (subject, at)


LINKS: dict[str, Line] = {
    "PERFORMED": facts.performed("a0", 6),
    "IDENTIFIED_PATTERN": {**facts.identified("p1", 6), "from": {"Analysis": "a0"}},
    "AFFECTS_PATTERN": facts.affects("l2", 6),
}
"""Links that are written apart from any record and that a briefing shows something by."""


@pytest.mark.parametrize("link", LINKS)
async def test_a_link_alone_drops_the_answers_that_show_it(telling: RecallHarness, link: str) -> None:
    """Nothing else is told of: from C2 of the process that asked, and from C1."""
    await _season(telling)
    active = (facts.pattern("p1", 0), facts.pattern_status("p1", 1, "active"))
    await telling.know([*active, facts.lesson("l1", 1), facts.lesson("l2", 1), facts.affects("l1", 1)])
    before = await whole(telling.memory, "T0")
    await shared(telling.memory)
    assert telling.told is not None

    receipts = await telling.journal.say(LINKS[link], actor=importer("links"))
    assert [receipt.verdict for receipt in receipts] == [AppendStatus.NEW]
    applier = telling.world.applier(telling.journal, written=telling.told.written)
    await drain(applier)
    await applier.stop()
    # Until then an answer says that what is compared is not all there is.
    await update(telling.journal.database, Directions(), until=NEVER, loading=0.0)

    async with without_tiers(telling) as bare, patient(telling.settings) as other:
        loaded = said(await whole(bare, "T0"))
        assert loaded != said(before), "the link is to be seen"
        for memory in (telling.memory, other):
            assert said(await whole(memory, "T0")) == loaded


RESOLUTION: Line = {
    "record": "DebateResolution", "known_at": day(3),
    "core": {"id": "r0", "debate_id": "b0", "winning_position": "It rises.", "winning_agent": "agent0"},
}  # fmt: skip
WAS_RIGHT: Line = {
    "record": "DebateResolution", "known_at": day(6), "key": "r0",
    "groups": {"outcome": {"accuracy_tracked": True, "outcome_correctness": 1.0}},
}  # fmt: skip

ELSEWHERE: dict[str, tuple[Line, Line]] = {
    "what a resolution of its debate was worth": (RESOLUTION, WAS_RIGHT),
    "a score on another subject": (facts.finding("f9", 1, probability=0.9), facts.outcome("o1", 4)),
}
"""What an answer shows of elsewhere: what there is before, and what is stated about that and not about the subject."""


@pytest.mark.parametrize("what", ELSEWHERE)
async def test_what_an_answer_shows_of_elsewhere_drops_it(telling: RecallHarness, what: str) -> None:
    """A record beside the subject's own, and what the agents who spoke about it did on others."""
    first, then = ELSEWHERE[what]
    await _season(telling)
    await telling.know([first])
    before = await whole(telling.memory, "T0")

    await telling.know([then])

    async with without_tiers(telling) as bare:
        loaded = said(await whole(bare, "T0"))
    assert loaded != said(before), "it is to be seen"
    assert said(await whole(telling.memory, "T0")) == loaded


@asynccontextmanager
async def fresh(telling: RecallHarness, journal: Any) -> AsyncIterator[RecallHarness]:
    """Lend a harness over another journal, with the same servers."""
    assert telling.told is not None
    changed = settings_of(telling.world, journal)
    async with patient(changed) as memory:
        yield RecallHarness(
            telling.world, journal, memory, changed, ProjectionInvalidator(journal.database, telling.told.publisher)
        )


@pytest.mark.spec("PF-4", "PV-20")
async def test_a_withdrawn_pattern_is_gone_with_the_acknowledgement_everywhere(telling: RecallHarness) -> None:
    """Before anything is applied: from C2 of the process that asks, from C1, and from another process's C2."""
    await _season(telling)
    async with patient(telling.settings) as other, patient(telling.settings) as third:
        for memory in (telling.memory, other):
            briefing = await memory.brief("T0")
            assert [one.key for one in briefing.patterns.items] == ["p0"]
            assert [one.key for one in briefing.lessons.items] == ["l0"]

        shown = await telling.memory.query("active_patterns", {"sector": None})
        assert [row["pattern"]["pattern_id"] for row in shown] == ["p0"]
        await telling.journal.say(facts.pattern_status("p0", 6, "deprecated"))

        for memory in (telling.memory, other, third):
            briefing = await memory.brief("T0")
            assert briefing.patterns.items == []
            assert (await memory.patterns("T0")).items == []
            assert await memory.query("active_patterns", {"sector": None}) == [], "the graph shows it yet"


@pytest.mark.spec("PF-4")
async def test_each_transition_counts_when_it_is_committed(telling: RecallHarness) -> None:
    """The one with the lower position may commit last: by positions, its reader would find nothing new."""
    await _season(telling)
    database = telling.journal.database

    async def epoch() -> int:
        return int((await telling.journal.rows("SELECT epoch FROM pattern_epoch"))[0]["epoch"])

    line = orjson.dumps(facts.pattern_status("p0", 7, "deprecated"))
    entry = entry_of(parse_line(line, needs_known_at=False, writer="patterns"))
    before = await epoch()
    async with database.transaction(NEVER) as conn:
        await conn.execute(sql("append"), _columns([entry], importer("first"), Action.IMPORT))
        await telling.journal.say(facts.pattern_status("p1", 8, "active"), actor=importer("second"))
        assert await epoch() == before + 1
    assert await epoch() == before + 2


@pytest.mark.spec("PF-5")
async def test_a_role_is_never_served_what_was_kept_for_another(telling: RecallHarness) -> None:
    await _season(telling)
    asked = Asked()
    for role in (Role.HUMAN_ADMIN, Role.AGENT, Role.DEBATE_FACILITATOR):
        async with patient(telling.settings.model_copy(update={"actor": "agent0", "role": role})) as memory:
            await memory.brief("T0")
    assert (asked.of("L3"), asked.of("C1"), asked.of("C2")) == (27, 0, 0)


@pytest.mark.spec("PF-5")
async def test_the_record_of_who_asks_is_shown_to_nobody_else(telling: RecallHarness) -> None:
    """An agent that has not spoken about the subject, and another of the same role, in one process and in two."""
    await _season(telling)
    await telling.know([facts.analysis("a3", 1), facts.finding("f5", 1, agent="agent2"), facts.outcome("o1", 4)])
    changes = {"role": Role.AGENT}
    async with patient(telling.settings.model_copy(update={"actor": "agent2", **changes})) as memory:
        own = await memory.brief("T0", for_agent="agent2")
        assert "agent2" in [one.agent for one in own.track_records.items]
        anybody = await memory.brief("T0")
        assert "agent2" not in [one.agent for one in anybody.track_records.items]
    async with patient(telling.settings.model_copy(update={"actor": "agent0", **changes})) as memory:
        for asked in (await memory.brief("T0"), await memory.brief("T0", for_agent="agent0")):
            assert "agent2" not in [one.agent for one in asked.track_records.items]


async def test_every_access_to_patterns_is_audited_whoever_answers(telling: RecallHarness) -> None:
    """Once each: also where what the name means is asked anew, since something was stated."""
    await _season(telling)

    async def audited() -> int:
        rows = await telling.journal.rows(
            "SELECT 1 FROM memory_access_audit WHERE resource_type = 'patterns' AND action = 'read' AND authorized"
        )
        return len(rows)

    for _ in range(3):
        await telling.memory.brief("T0")
    assert await audited() == 3
    await telling.know([facts.finding("f8", 6)])
    await telling.memory.brief("T0")
    await telling.memory.patterns("T0")
    assert await audited() == 5


@pytest.mark.spec("AC-5")
async def test_without_its_row_no_pattern_is_shown(telling: RecallHarness) -> None:
    """What shows no patterns by right of that row is answered as ever."""
    await _season(telling)
    await telling.memory.brief("T0")
    telling.journal.owner("ALTER FUNCTION imem_audit_v1 RENAME TO away")
    briefing = await telling.memory.brief("T0")
    assert briefing.patterns.quality is Quality.UNAVAILABLE
    assert not briefing.patterns.items
    assert [one.key for one in briefing.lessons.items] == ["l0"]
    assert {name for name, section in briefing.sections.items() if section.quality is not Quality.EXACT} == {"patterns"}


class Counting(Database):
    """A journal that notes which statements it is asked."""

    names: list[str]

    async def named(self, name: str, parameters: Any = None, *, deadline: Deadline) -> Any:
        self.names.append(name)
        return await super().named(name, parameters, deadline=deadline)


def counting(memory: Memory) -> list[str]:
    """Return the list in which the statements are noted that *memory* asks of the journal from now on."""
    database: Any = memory._stores.database
    database.__class__, database.names = Counting, []
    found: list[str] = database.names
    return found


async def test_a_kept_briefing_asks_one_statement_of_the_journal(telling: RecallHarness) -> None:
    """The row of its patterns, which brings their epoch; another process, which finds it in C1, asks no name either."""
    await _season(telling)
    await telling.memory.brief("T0")
    await shared(telling.memory)
    async with patient(telling.settings) as other:
        await other.brief("T1")
        for memory in (telling.memory, other, other):
            names = counting(memory)
            await memory.brief("T0")
            # How things stand is asked every few seconds, and not waited for.
            assert [name for name in names if name != "read_horizon"] == ["audit_patterns"]
            memory._stores.database.__class__ = Database


class Held(Graph):
    """A graph of which one query answers late, and is heard at once."""

    holds: str
    heard: asyncio.Event
    go: asyncio.Event

    async def read(self, name: str, parameters: Any = None, *, deadline: Deadline) -> Any:
        rows = await super().read(name, parameters, deadline=deadline)
        if name == self.holds:
            self.heard.set()
            await self.go.wait()
        return rows


async def test_what_is_loaded_once_more_after_a_change_is_of_after_it(telling: RecallHarness) -> None:
    """Who began before a change, and joined a load from before it, keeps nothing that lacks it for others."""
    await _season(telling)
    told = telling.told
    assert told is not None
    async with patient(telling.settings) as memory:
        graph: Any = memory._stores.graph
        graph.holds, graph.heard, graph.go = "company_history", asyncio.Event(), asyncio.Event()
        graph.__class__ = Held
        tiers = memory._stores.tiers
        assert tiers is not None

        async def joined() -> bool:
            return any(b":history:" in key and flight.waiting == 2 for key, flight in tiers._flights._open.items())

        early = asyncio.create_task(memory.brief("T0"))
        await graph.heard.wait()
        late = asyncio.create_task(memory.brief("T0"))
        await until(joined)
        # Known as of now, so that whoever asks as of a moment ago does not find it.
        core: dict[str, Any] = {"id": "f8", "analysis_id": "a0", "subject_id": "company:T0", "agent": "agent0"}
        core |= {"domain": "up_or_down", "statement": "What f8 says.", "importance": 1.0}
        await telling.journal.say({"record": "Finding", "core": core}, actor=Actor("agent0", Role.AGENT))
        applier = telling.world.applier(telling.journal, written=told.written)
        await drain(applier)
        await applier.stop()
        graph.go.set()
        await asyncio.gather(early, late)

        shown = (await memory.brief("T0")).history.items[0].findings
        assert "f8" in [one.finding.key for one in shown]


def _all_sealed(value: Any) -> None:
    """Assert that nothing in an answer is a list or a dict that could be changed."""
    if isinstance(value, BaseModel):
        value = dict(value).values()
    elif isinstance(value, dict):
        assert isinstance(value, SealedDict)
        value = value.values()
    elif isinstance(value, list):
        assert isinstance(value, SealedList)
    else:
        return
    for one in value:
        _all_sealed(one)


async def test_warming_makes_the_first_briefing_a_kept_one(telling: RecallHarness) -> None:
    await _season(telling)
    asked = Asked()
    assert await telling.memory.warm("T0", deadline_ms=30_000) == 8
    assert asked.of("L3") == 0, "warming is no request"
    await telling.memory.brief("T0")
    assert asked.of("C2") == 8


async def test_an_answer_cannot_be_changed_under_others(telling: RecallHarness) -> None:
    """Whether it was just loaded or kept; a copy can."""
    await _season(telling)
    for _ in range(2):
        briefing = await telling.memory.brief("T0")
        core = briefing.history.items[0].analysis.core
        for change in (briefing.history.items.clear, core.clear, lambda core=core: core.update(kind="spoilt")):
            with pytest.raises(TypeError, match="copy"):
                change()
        _all_sealed(briefing)
        for copied in (briefing.model_copy(deep=True), pickle.loads(pickle.dumps(briefing))):  # noqa: S301 - our own
            assert copied == briefing
            copied.history.items.clear()
            assert copied != briefing
        assert Briefing.model_validate_json(briefing.model_dump_json()) == briefing
        assert sorted(core) == sorted(core.copy())
