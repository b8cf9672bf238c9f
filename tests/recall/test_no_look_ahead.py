"""What becomes known later changes no earlier answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imem.memory import Memory
from journal.errors import BadInput, UnknownSubject
from tests.graph_proofs.world import World
from tests.recall import facts
from tests.recall.conftest import Desk, settings_of
from tests.recall.facts import Line, day

T = 5
"""The day as of which is asked; facts are known from day 0 to day 10."""

EXAMPLES = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=True
)

DAYS = st.integers(0, 10)


def _facts() -> st.SearchStrategy[Line]:
    """Draw one fact: content follows from the key, so that nothing conflicts; states vary with the day."""
    return st.one_of(
        st.builds(lambda n, at: facts.analysis(f"a{n}", at), st.integers(0, 3), DAYS),
        st.builds(lambda n, at: facts.finding(f"f{n}", at), st.integers(0, 7), DAYS),
        st.builds(lambda n, at: facts.outcome(f"o{n}", at), st.integers(0, 5), st.integers(3, 10)),
        st.builds(lambda n, at: facts.decision(f"d{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.cites(f"d{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.performed(f"a{n}", at), st.integers(0, 3), DAYS),
        st.builds(lambda n, at: facts.debate(f"b{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.debate_state(f"b{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.contradiction(f"c{n}", at), st.integers(0, 2), DAYS),
        st.builds(
            lambda n, at: facts.agent(f"agent{n}", at, "baseline" if at % 2 else "model"), st.integers(0, 2), DAYS
        ),
    )


def _later(n: int, at: int) -> list[Line]:
    """Return corrections, known on day *at*, of a record of each sort that answers sort or select by."""
    return [
        facts.corrected(facts.analysis(f"a{n % 4}", 0), at, confidence=0.9, date=day(n % 9)),
        facts.corrected(facts.finding(f"f{n}", 0), at, importance=0.99, probability=0.95, statement="Corrected."),
        facts.corrected(facts.outcome(f"o{n % 6}", 3), at, actual=float(n % 2)),
        facts.corrected(facts.debate(f"b{n % 3}", 0), at, topic="Corrected."),
    ]


async def answers(memory: Memory, clock: str, as_of: datetime) -> dict[str, Any]:
    """Return every answer that takes ``as_of``, without what says when it was asked."""
    asked: dict[str, Any] = {"as_of": as_of, "clock": clock}
    found: dict[str, Any] = {}

    async def ask(name: str, question: Any) -> None:
        try:
            answer = await question
        except (BadInput, UnknownSubject) as refusal:
            answer = repr(refusal)
        found[name] = answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer

    for subject in ("company:T0", "company:T1"):
        await ask(f"brief {subject}", memory.brief(subject, for_agent="agent0", **asked))
        for part in ("history", "debates", "contradictions", "patterns", "lessons"):
            await ask(f"{part} {subject}", getattr(memory, part)(subject, limit=2, **asked))
        brief = found[f"brief {subject}"]
        weak = {name: arm["reason"] for name, arm in brief.items() if isinstance(arm, dict) and arm.get("reason")}
        assert brief["mode"] == "normal", weak
        for name in ("took_ms", "complete_until"):
            del brief[name]
    for n in range(3):
        await ask(f"record of agent{n}", memory.track_record(f"agent{n}", **asked))
        await ask(f"debate b{n}", memory.debate(f"b{n}", **asked))
    return found


@pytest.mark.spec("GR-10")
@EXAMPLES
@given(history=st.lists(_facts(), min_size=10, max_size=30), n=st.integers(0, 7), at=st.integers(T + 1, 10))
async def test_facts_known_after_a_moment_change_no_answer_as_of_it(
    world: World, history: list[Line], n: int, at: int
) -> None:
    """Over random histories: every answer as of T is the same before and after facts known later are stated."""
    as_of = datetime.fromisoformat(day(T))
    await world.wipe()
    async with world.journal() as journal, Memory.open(settings_of(world, journal)) as memory:
        desk = Desk(world, journal, memory, settings_of(world, journal))
        known = [line for line in history if line["known_at"] <= day(T)]
        later = [line for line in history if line["known_at"] > day(T)]
        always = [facts.analysis("a0", 0), facts.finding("f0", 0), facts.debate("b0", 0)]
        await desk.know([facts.company("T0", 0), facts.company("T1", 0), facts.agent("agent0", 0), *always, *known])
        before = await answers(memory, "known", as_of)
        await desk.know(later, "later")
        await journal.say(*_later(n, at))
        await journal.say(*_later(0, at))
        await desk.work()
        assert await answers(memory, "known", as_of) == before
        assert await answers(memory, "known", datetime.fromisoformat(day(11))) != before


@pytest.mark.spec("GR-10")
@EXAMPLES
@given(
    first=st.lists(_facts(), min_size=8, max_size=20),
    second=st.lists(_facts(), min_size=4, max_size=12),
    n=st.integers(0, 7),
)
async def test_what_is_recorded_later_changes_no_answer_of_what_was_on_file(
    world: World, first: list[Line], second: list[Line], n: int
) -> None:
    """Over random histories: on the recorded clock an old answer is the same whatever is recorded afterwards."""
    await world.wipe()
    async with world.journal() as journal, Memory.open(settings_of(world, journal)) as memory:
        desk = Desk(world, journal, memory, settings_of(world, journal))
        await desk.know([facts.company("T0", 0), facts.company("T1", 0), facts.analysis("a0", 0), *first])
        at = (await memory.brief("company:T0", clock="recorded")).as_of
        before = await answers(memory, "recorded", at)
        await desk.know([facts.agent("agent0", 1), *second], "later")
        await journal.say(*_later(n, 1))
        await journal.say(*_later(0, 1))
        await desk.work()
        assert await answers(memory, "recorded", at) == before
