"""What stops one store costs what it alone knows: nothing that was acknowledged, and nobody a hang."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from imem.journal.errors import BadInput, BudgetExceeded, OutcomeUnknown, StoreUnavailable
from imem.kg.engine import Graph, Record
from imem.kg.kinds.work import Finding
from imem.memory import Memory
from imem.recall.model import AWAY, BriefingSection, Quality
from imem.recall.sections.panels import WeightsTable
from imem.services.recall import recall_over
from tests.punctual import STALL_S, Punctual
from tests.recall import facts
from tests.recall.far import Far, far, forget, kept, labelled
from tests.recall.test_kept import whole

__all__ = ["far"]

HANG_S = 2.0
"""No call takes longer, whatever is silent."""

WRITE_MS = 1_500
A_SECOND = 8
"""Questions, and writes, a second: what a busy machine can still do beside the rest of the tests."""


@pytest.mark.spec("RS-1")
async def test_a_stopped_graph_is_answered_from_what_is_kept(far: Far) -> None:
    """Nothing is applied while it is stopped, so that what is kept is what is known; the rest is labelled."""
    await kept(far, "T0")
    await far.harness.know([facts.company("T9", 0)])
    far.stall("graph")
    in_time = Punctual()
    with in_time.within(0.5):
        known = await far.memory.brief("T0")
    with in_time.within(0.5):
        unknown = await far.memory.brief("T9")
    async with asyncio.timeout(60):
        while unknown.history.quality is Quality.UNAVAILABLE:
            # On a busy machine what is left of the time is too short for the journal as well, and the answer says so.
            labelled(unknown)
            unknown = await far.memory.brief("T9")
    assert in_time.late_s < 0
    assert known.history.quality is Quality.EXACT
    assert known.history.items
    assert unknown.history.quality is Quality.PARTIAL, "an empty answer here does not mean that nothing is known"
    assert not unknown.history.items
    labelled(unknown)


@pytest.mark.spec("RS-1")
async def test_a_stopped_postgres_is_answered_from_what_is_kept_without_patterns(far: Far) -> None:
    """Whether a pattern still has its status nobody can say then."""
    await kept(far)
    far.stall("postgres")
    in_time = Punctual()
    with in_time.within(0.5):
        briefing = await far.memory.brief("T0")
    assert in_time.late_s < 0
    assert briefing.history.items
    assert briefing.patterns.quality is Quality.UNAVAILABLE
    assert not briefing.patterns.items
    assert briefing.lessons.quality is Quality.UNAVAILABLE
    labelled(briefing)


@pytest.mark.spec("RS-1")
@pytest.mark.parametrize("server", ["durable", "cache"])
async def test_without_caches_everything_is_asked_of_l3(far: Far, server: str) -> None:
    await kept(far)
    await far.proxies[server].refuse()
    if server == "cache":
        forget(far)
    briefing = await whole(far.memory, "T0")
    assert briefing.history.items


@pytest.mark.spec("RS-1")
@pytest.mark.parametrize("server", ["graph", "postgres", "durable", "cache"])
async def test_a_store_that_stops_under_load_holds_nobody_up_and_loses_nothing(far: Far, server: str) -> None:
    """
    Silent for five seconds in the midst of questions and writes: each ends by its own deadline.

    Whatever was acknowledged is in the journal; afterwards everything is answered as a whole again.
    """
    await kept(far)
    refused, acknowledged = 0, list[UUID]()
    asked, written = Punctual(), Punctual()

    async def write(nth: int) -> None:
        nonlocal refused
        finding = Finding(
            id=f"load/{nth}", analysis_id="a0", subject_id="company:T0", agent="agent0", domain="up_or_down",
            statement=f"What was found {nth}.", importance=0.5,
        )  # fmt: skip
        with written.within(WRITE_MS / 1000):
            try:
                receipt = await far.memory.record_finding(finding, deadline_ms=WRITE_MS)
            except (StoreUnavailable, BudgetExceeded, OutcomeUnknown):
                refused += 1
                return
        assert receipt.event_id is not None
        acknowledged.append(receipt.event_id)

    async def ask(nth: int) -> None:
        # Half of it is about what nobody has asked before.
        with asked.within(0.5):
            briefing = await far.memory.brief("T0" if nth % 2 else "company:T1")
        labelled(briefing)

    before, after = A_SECOND, A_SECOND // 2
    count = before + math.ceil(STALL_S * A_SECOND) + after
    stalled_s = 0.0
    async with asyncio.TaskGroup() as load:
        for nth in range(count):
            if nth == before:
                far.stall(server)
                stalled_s = time.monotonic()
            if nth == count - after:
                stalled_s = time.monotonic() - stalled_s
                far.flow()
            load.create_task(ask(nth))
            load.create_task(write(nth))
            await asyncio.sleep(1 / A_SECOND)  # The rate of the load.
    assert stalled_s >= STALL_S
    assert asked.late_s < 0
    assert asked.calls == written.calls == count
    assert max(asked.slowest_s, written.slowest_s) < HANG_S
    rows = await far.harness.journal.rows("SELECT event_id FROM event WHERE event_id = ANY (%s::uuid[])", acknowledged)
    assert {row["event_id"] for row in rows} == set(acknowledged)
    assert len(acknowledged) + refused == count
    assert len(acknowledged) >= (before if server == "postgres" else count - 1)
    await far.harness.work()
    assert (await whole(far.memory, "T0")).history.items


class Counted(Graph):
    """A graph that counts, apart from its own limiter, how many statements the driver is asked to run at once."""

    now: int = 0
    most: int = 0

    async def _read(self, name: str, text: Any, parameters: Mapping[str, Any] | None, timeout_s: float) -> list[Record]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super()._read(name, text, parameters, timeout_s)
        finally:
            self.now -= 1


@pytest.mark.spec("RS-3")
@pytest.mark.parametrize("limit", [2, 5])
async def test_without_caches_and_when_they_return_the_graph_is_asked_no_more_at_once_than_is_configured(
    far: Far, limit: int
) -> None:
    """Everybody asks at once for what nobody keeps: the limit is used in full, and what is beyond it waits."""
    settings = far.settings.model_copy(update={"graph_concurrency": limit})
    async with Memory.open(settings) as memory:
        graph: Any = memory._stores.graph
        graph.__class__ = Counted
        for turn, silent in enumerate((("cache", "durable"), ())):
            far.flow()
            await memory.brief("company:T0")
            far.stall(*silent)
            graph.most = 0
            # Another number of analyses is another question, and none of the second turn was answered in the first.
            numbers = range(1 + 40 * turn, 41 + 40 * turn)
            asked = (memory.history("company:T0", limit=nth, deadline_ms=30_000) for nth in numbers)
            await asyncio.gather(*asked)
            assert graph.most == limit, silent or "all back"
        assert graph.most_running == limit


# Empty, and nothing found

BOTH: Final = frozenset({"graph", "postgres"})
Read = Callable[[Memory, str], Awaitable[Any]]

NEEDS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("history", "debates", "track_records", "contradictions", "lessons"), BOTH),
    **dict.fromkeys(("similar_analyses", "patterns", "panels"), frozenset({"postgres"})),
}
"""The sections of a briefing, and which stores each asks."""

READS: Final[Mapping[str, tuple[Read, frozenset[str]]]] = {
    "history": (lambda memory, subject: memory.history(subject), BOTH),
    "similar": (lambda memory, subject: memory.similar(subject), frozenset({"postgres"})),
    "debates": (lambda memory, subject: memory.debates(subject), BOTH),
    "contradictions": (lambda memory, subject: memory.contradictions(subject), BOTH),
    "patterns": (lambda memory, subject: memory.patterns(subject), frozenset({"postgres"})),
    "lessons": (lambda memory, subject: memory.lessons(subject), BOTH),
    "panel": (lambda memory, subject: memory.panel(subject), frozenset({"postgres"})),
    "weights": (lambda memory, of: memory.weights([of], "up_or_down"), frozenset({"postgres"})),
    "track record": (lambda memory, of: memory.track_record(f"nobody of {of}"), frozenset({"postgres"})),
    "scores": (lambda memory, of: memory.credibility([f"nobody of {of}"]), frozenset({"postgres"})),
    "debate": (lambda memory, of: memory.debate(f"none of {of}"), frozenset({"postgres"})),
    "text": (lambda memory, of: memory.text("Analysis", f"none of {of}"), frozenset({"postgres"})),
    "view": (lambda memory, of: memory.view("company_summaries", of), frozenset({"postgres"})),
    "query": (lambda memory, of: memory.query("peers", {"subject_id": of}), frozenset({"graph"})),
    "query of a day": (
        lambda memory, of: memory.query(
            "company_history", {"subject_id": of, "findings_limit": 1, "detailed": 1}
        ), BOTH,
    ),
    "search": (lambda memory, of: memory.search("anything", subject=of), frozenset({"postgres"})),
    "memories": (lambda memory, of: memory.memories.search(f"anything of {of}"), frozenset({"postgres"})),
}  # fmt: skip
"""The single reads, and which stores each asks."""


async def read(memory: Memory, name: str) -> str:
    """Return what a read of a subject of which nothing is known says, apart from its time and mode."""
    try:
        answer = await READS[name][0](memory, "company:T9")
    except BadInput:
        return "it was not recorded"
    except (StoreUnavailable, BudgetExceeded) as error:
        return f"it could not be asked: {type(error).__name__}"
    match answer:
        case WeightsTable():
            assert {item.observations for item in answer.items} <= {0}
            return f"{answer.quality}, {answer.error}"
        case BriefingSection():
            assert answer.total == 0
            return f"{answer.quality}, {answer.error}"
    assert not answer
    return "nothing"


async def answered(memory: Memory, name: str) -> str:
    """Return what a read says first that is not late: on a busy machine one may be, while its statement is planned."""
    async with asyncio.timeout(60):
        while (said := await read(memory, name)).startswith("it could not"):
            pass
    return said


@pytest.mark.spec("RS-4")
@pytest.mark.parametrize("how", ["silent", "refused"])
@pytest.mark.parametrize("away", [frozenset({"graph"}), frozenset({"postgres"}), BOTH])
async def test_nothing_found_and_could_not_be_asked_are_two_answers(far: Far, away: frozenset[str], how: str) -> None:
    """Every section of a briefing, and every single read, of a subject of which nothing is known."""
    await far.harness.know([facts.company("T9", 0), facts.pattern_status("p0", 5, "deprecated")])
    nothing = await whole(far.memory, "company:T9")
    assert set(nothing.sections) == set(NEEDS)
    assert {(section.quality, section.total) for section in nothing.sections.values()} == {(Quality.EXACT, 0)}
    found = {name: await answered(far.memory, name) for name in READS}
    assert not [name for name, answer in found.items() if answer.startswith("it could not")]

    async with Memory.open(far.settings) as memory:  # It keeps nothing.
        memory._recall = recall_over(memory._stores, use_cache=False)
        for name in away:
            if how == "refused":
                await far.proxies[name].refuse()
            else:
                far.stall(name)
        briefing = await memory.brief("company:T9")
        answers = dict(zip(READS, await asyncio.gather(*(read(memory, name) for name in READS)), strict=True))
    for name, section in briefing.sections.items():
        if NEEDS[name] & away:
            assert section.quality is not Quality.EXACT, name
            shown = nothing.model_copy(update={name: section}).to_markdown()
            assert shown != nothing.to_markdown(), name
        assert section.total == 0, name
    for name, (_, needs) in READS.items():
        if needs & away:
            assert answers[name] != found[name], name


async def test_a_store_that_refuses_is_told_from_one_that_is_late(far: Far) -> None:
    """Nothing is kept of it: every part says that a store is away."""
    for name in ("postgres", "graph", "durable"):
        await far.proxies[name].refuse()
    briefing = await far.memory.brief("company:T0")
    assert {name: section.error for name, section in briefing.sections.items() if section.error != AWAY} == {}, (
        briefing.sections
    )
