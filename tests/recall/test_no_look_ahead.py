"""What becomes known later changes no earlier answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imem.journal.errors import BadInput, BudgetExceeded, StoreUnavailable
from imem.journal.modes import Mode
from imem.memory import Memory
from imem.recall.model import Briefing
from imem.recall.section_registry import DATED_QUERIES
from imem.recall.signals import AgentMemory
from tests.kg.projection.conftest import CHAOS
from tests.kg.projection.world import World
from tests.recall import facts
from tests.recall.conftest import RecallHarness, settings_of
from tests.recall.facts import Line, day

T = 5
"""The day as of which is asked; facts are known from day 0 to day 10."""

EXAMPLES = settings(
    max_examples=150 if CHAOS else 2,
    deadline=None,
    derandomize=not CHAOS,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
"""The same few examples in the ordinary run, many new ones in the long form."""

DAYS = st.integers(0, 10)
BEFORE_TARGET = st.integers(0, facts.TARGET_DAY - 1)
"""When claims are made."""

SUBJECTS = ("company:T0", "company:T1", "company:T2", "market:m0", "market:m1")
"""The first and the fourth are known from the beginning; the others when a history says so, or never."""

NAMES = (
    "T1",
    "t2",
    "m1",
    "Company T1",
    "Company T2",
    "Shared name",
    "Will m1 come true?",
    "Compani T1",
    "T",
    "market:m",
)
"""Tickers, ids, names, and what looks like one."""

TEXTS = (("Analysis", "a0"), ("Analysis", "a1"), ("Debate", "b1"), ("Pattern", "p0"), ("Lesson", "l1"))


def _facts() -> st.SearchStrategy[Line]:
    """Draw one fact: content follows from the key, so that nothing conflicts; states vary with the day."""
    return st.one_of(
        st.builds(lambda n, at: facts.company(f"T{n}", at), st.integers(0, 2), DAYS),
        st.builds(
            lambda n, at, name: facts.renamed(f"T{n}", at, name or f"Company T{n}"),
            st.integers(0, 2), DAYS, st.sampled_from(["Shared name", None]),
        ),
        st.builds(lambda n, at: facts.with_body(facts.analysis(f"a{n}", at)), st.integers(0, 3), DAYS),
        st.builds(lambda n, at: facts.analysis(f"a{n}", at), st.integers(0, 3), DAYS),
        st.builds(lambda n, at: facts.finding(f"f{2 * n}", at, confidence=0.5), st.integers(0, 3), BEFORE_TARGET),
        st.builds(lambda n, at: facts.remark(f"f{2 * n + 1}", at), st.integers(0, 3), DAYS),
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
        st.builds(lambda n, at: facts.market(f"m{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.market_analysis(f"q{n}", at), st.integers(0, 2), DAYS),
        st.builds(lambda n, at: facts.market_finding(f"g{n}", at), st.integers(0, 5), BEFORE_TARGET),
        st.builds(lambda n, at: facts.pattern(f"p{n}", at), st.integers(0, 1), DAYS),
        st.builds(
            lambda n, at, status: facts.pattern_status(f"p{n}", at, status),
            st.integers(0, 1), DAYS, st.sampled_from(["active", "deprecated"]),
        ),
        st.builds(lambda n, at: facts.identified(f"p{n}", at), st.integers(0, 1), DAYS),
        st.builds(lambda n, at: facts.with_body(facts.lesson(f"l{n}", at)), st.integers(0, 5), DAYS),
        st.builds(lambda n, at: facts.affects(f"l{n}", at), st.integers(0, 5), DAYS),
    )  # fmt: skip


ALWAYS = (facts.market_analysis("q0", 0), facts.lesson("l0", 0))
"""What the last subject needs to be known at all, and a lesson, without which nobody looks for others."""


def _later(n: int, at: int) -> list[Line]:
    """Return corrections, known on day *at*, of a record of each sort that answers sort or select by."""
    return [
        facts.corrected(facts.analysis(f"a{n % 4}", 0), at, confidence=0.9, date=day(n % 9)),
        facts.corrected(
            facts.finding(f"f{n}", 0), at, importance=0.99, probability=0.95, confidence=0.6, statement="Corrected."
        ),
        facts.corrected(facts.outcome(f"o{n % 6}", 3), at, actual=float(n % 2)),
        facts.corrected(facts.debate(f"b{n % 3}", 0), at, topic="Corrected."),
        facts.corrected(facts.lesson(f"l{n % 6}", 0), at, affected_domains=["up_or_down", "domain0", "domain1"]),
    ]


def _late_signals(answer: Any) -> list[str]:
    """Return why signals could not be read: such a read raises nothing."""
    read = answer.values() if isinstance(answer, dict) else [answer]
    return [one.reason for one in read if isinstance(one, AgentMemory) and one.reason is not None]


async def _in_time(question: Callable[..., Any], *what: Any, **more: Any) -> Any:
    """
    Return an answer that no deadline cut short, and for which every store was asked.

    On a busy machine a deadline passes, and a server that was late several times is not asked for a while; here answers
    are compared, not how soon they come.
    """
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(BudgetExceeded, StoreUnavailable):
                answer = await question(*what, **more)
                if getattr(answer, "mode", Mode.NORMAL) is Mode.NORMAL and not _late_signals(answer):
                    return answer
            await asyncio.sleep(0.02)


TIMEOUT_S = 120.0


_Question = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""What an answer is called, the method, and its arguments."""


def _of_subject(memory: Memory, subject: str) -> Iterator[_Question]:
    yield f"brief {subject}", memory.brief, (subject,), {"for_agent": "agent0"}
    for part in ("history", "debates", "contradictions", "patterns", "lessons", "panel"):
        yield f"{part} {subject}", getattr(memory, part), (subject,), {"limit": 2}
    yield f"signals {subject}", memory.signals, (subject,), {"agent": "agent0"}
    yield f"signals of all {subject}", memory.signal_histories, (subject, ["agent0", "agent1", "agent2"]), {"limit": 5}
    yield f"similar {subject}", memory.similar, (subject,), {"limit": 2, "min_score": 0.0}
    for name in sorted(DATED_QUERIES):
        more = {"findings_limit": 1, "detailed": 1} if name == "company_history" else {}
        given = {"subject_id": subject, "limit": 2} | more
        yield f"{name} {subject}", memory.query, (name, given), {}


def _questions(memory: Memory) -> Iterator[_Question]:
    """Yield everything that takes a moment."""
    yield "weights", memory.weights, (["agent0", "agent1", "agent2"], "up_or_down"), {}
    for subject in SUBJECTS:
        yield from _of_subject(memory, subject)
    for name in NAMES:
        yield f"history {name}", memory.history, (name,), {"limit": 1}
        yield f"similar {name}", memory.similar, (name,), {"limit": 1, "min_score": 0.0}
    for n in range(3):
        yield f"record of agent{n}", memory.track_record, (f"agent{n}",), {}
        yield f"record of agent{n} in domain0", memory.track_record, (f"agent{n}", "domain0"), {}
        yield f"score of agent{n}", memory.credibility, ([f"agent{n}"],), {}
        yield f"explanation of agent{n}", memory.explain, (f"agent{n}", "up_or_down"), {}
        yield f"agent{n} or another", memory.auto_resolve, (f"agent{n}", f"agent{(n + 1) % 3}", "up_or_down"), {}
        yield f"debate b{n}", memory.debate, (f"b{n}",), {}
    for n in range(4):
        yield f"similar a{n}", memory.similar, (f"a{n}",), {"limit": 2, "min_score": 0.0}
    for kind, key in TEXTS:
        yield f"text of {kind} {key}", memory.text, (kind, key), {}


async def answers(memory: Memory, clock: str, as_of: datetime) -> dict[str, Any]:
    """Return every answer that takes ``as_of``, without what says when it was asked."""
    found: dict[str, Any] = {}
    for name, question, what, more in _questions(memory):
        try:
            answer = await _in_time(question, *what, **more, as_of=as_of, clock=clock)
        except BadInput as refusal:
            answer = f"{type(refusal).__name__}: {refusal}"
        found[name] = answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer
        if isinstance(answer, Briefing):
            brief = found[name]
            weak = {
                part: section["reason"]
                for part, section in brief.items()
                if isinstance(section, dict) and section.get("reason")
            }
            assert brief["mode"] == "normal", weak
            del brief["took_ms"], brief["late_ms"], brief["complete_until"]
    for name, unscored in (("track records of all", False), ("and of those without an outcome", True)):
        table = await _in_time(memory.track_records, as_of=[as_of], unscored=unscored, clock=clock)
        found[name] = table.model_dump(mode="json")["items"]
    return found


async def test_every_read_that_takes_a_moment_is_asked() -> None:
    """A method that takes ``as_of`` and is not among the answers here would be proved by nothing."""
    takes = {
        name for name, method in inspect.getmembers(Memory, inspect.iscoroutinefunction)
        if not name.startswith("_") and "as_of" in inspect.signature(method).parameters
    }  # fmt: skip
    own = {"signals", "signal_histories"}
    # Search is asked by tests/imem/search, once its texts are projected; until then it says since when they are not.
    own |= {"search"}
    # Precedents are found by that search: tests/imem/debates asks for them as of moments.
    own |= {"find_precedents"}
    # Readings of regimes are no facts about a subject: tests/credibility/regimes asks for them as of days.
    own |= {"regime"}
    # Data points are neither; tests/credibility/disputes asks for their values as of days.
    own |= {"value", "differences", "sources"}
    # Outcomes of checkpoints: tests/credibility/forecasts asks for them as of days.
    own |= {"forecasts", "replay_policy", "plan_pattern_test"}
    single = {"brief", "similar", "track_record", "debate", "text", "query", "panel", "weights"}
    single |= {"credibility", "explain", "auto_resolve"}
    assert takes == single | {"history", "debates", "contradictions", "patterns", "lessons", "track_records", *own}


@pytest.mark.spec("GR-10")
@pytest.mark.longer
@EXAMPLES
@given(history=st.lists(_facts(), min_size=10, max_size=30), n=st.integers(0, 7), at=st.integers(T + 1, 10))
async def test_facts_known_after_a_moment_change_no_answer_as_of_it(
    world: World, history: list[Line], n: int, at: int
) -> None:
    """Over random histories: every answer as of T is the same before and after facts known later are stated."""
    as_of = datetime.fromisoformat(day(T))
    await world.wipe()
    async with world.journal() as journal, Memory.open(settings_of(world, journal)) as memory:
        harness = RecallHarness(world, journal, memory, settings_of(world, journal))
        known = [line for line in history if line["known_at"] <= day(T)]
        later = [line for line in history if line["known_at"] > day(T)]
        always = [facts.analysis("a0", 0), facts.finding("f0", 0), facts.debate("b0", 0), *ALWAYS]
        await harness.know([facts.company("T0", 0), facts.agent("agent0", 0), *always, *known])
        before = await answers(memory, "known", as_of)
        await harness.know(later, "later")
        await journal.say(*_later(n, at))
        await journal.say(*_later(0, at))
        await harness.work()
        assert await answers(memory, "known", as_of) == before
        assert await answers(memory, "known", datetime.fromisoformat(day(11))) != before


@pytest.mark.spec("GR-10")
@pytest.mark.longer
@EXAMPLES
@given(
    first=st.lists(_facts(), min_size=8, max_size=20),
    second=st.lists(_facts(), min_size=4, max_size=12),
    n=st.integers(0, 7),
)
async def test_what_is_recorded_later_changes_no_answer_of_what_was_recorded_by_then(
    world: World, first: list[Line], second: list[Line], n: int
) -> None:
    """Over random histories: on the recorded clock an old answer is the same whatever is recorded afterwards."""
    await world.wipe()
    async with world.journal() as journal, Memory.open(settings_of(world, journal)) as memory:
        harness = RecallHarness(world, journal, memory, settings_of(world, journal))
        await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *ALWAYS, *first])
        at = (await memory.brief("company:T0", clock="recorded")).as_of
        before = await answers(memory, "recorded", at)
        await harness.know([facts.agent("agent0", 1), *second], "later")
        await journal.say(*_later(n, 1))
        await journal.say(*_later(0, 1))
        await harness.work()
        assert await answers(memory, "recorded", at) == before


def _patterns(*lines: Line) -> list[Line]:
    """Return lessons of two patterns that the first analysis of T0 showed, with *lines*."""
    return [
        *(facts.pattern(f"p{n}", 0) for n in range(2)), *(facts.affects(f"l{n}", 1) for n in range(2, 6)),
        *({**facts.identified(f"p{n}", 1), "from": {"Analysis": "a0"}} for n in range(2)),
        *(facts.lesson(f"l{n}", 1, affected_domains=["elsewhere"]) for n in range(2, 6)), *lines,
    ]  # fmt: skip


CASES: dict[str, tuple[list[Line], list[Line]]] = {
    "a score of a corrected outcome, a role stated anew, a correction of what is sorted by": (
        [
            *(facts.finding(f"f{4 * n}", 1, importance=n / 10) for n in range(4)), facts.outcome("o0", 4, actual=1.0),
            facts.performed("a0", 1), *(facts.analysis(f"a{2 * n + 4}", 1) for n in range(3)),
        ],
        [
            facts.corrected(facts.outcome("o0", 4, actual=1.0), 7, actual=0.0), facts.performed("a0", 8),
            facts.corrected(facts.finding("f0", 1, importance=0.0), 7, importance=0.9),
            *(facts.corrected(facts.analysis(f"a{2 * n + 4}", 1), 7, date=day(9 - n)) for n in range(3)),
        ],
    ),
    "a question that is found to belong to the series": (
        [facts.market("m0", 1), facts.market_analysis("q1", 1), facts.market_finding("g1", 1)],
        [facts.market("m1", 7)],
    ),
    "a question that is asked about before its series was known": (
        [facts.market("m1", 1), facts.market_analysis("q1", 1), facts.market_finding("g1", 1)],
        [facts.market("m0", 7)],
    ),
    "a pattern that is no longer active": (
        _patterns(facts.pattern_status("p0", 2, "active")),
        [facts.pattern_status("p0", 7, "deprecated")],
    ),
    "a pattern that becomes active": (
        _patterns(facts.pattern_status("p0", 2, "active")),
        [facts.pattern_status("p1", 7, "active")],
    ),
    "a lesson of other domains than it had": (
        [facts.lesson(f"l{n}", 1 + n / 10, affected_domains=["up_or_down"]) for n in range(1, 5)],
        [
            facts.corrected(facts.lesson("l1", 1.1, affected_domains=["up_or_down"]), 7, affected_domains=["gone"]),
            facts.corrected(facts.lesson("l0", 0), 8, affected_domains=["up_or_down"]),
        ],
    ),
}  # fmt: skip
"""What was known, and what became known later: each once changed an earlier answer, or nearly."""


@pytest.mark.spec("GR-10")
@pytest.mark.parametrize("case", list(CASES))
async def test_a_later_fact_of_each_sort_changes_no_earlier_answer(harness: RecallHarness, case: str) -> None:
    """The ways in which later facts reach an answer that random histories seldom find, one by one."""
    known, later = CASES[case]
    basis = [facts.company("T0", 0), facts.company("T1", 0), facts.analysis("a0", 0), facts.finding("f0", 0)]
    stated = {(line["record"], line["core"]["id"]) for line in known if line.get("record") in {"Finding", "Analysis"}}
    basis = [line for line in basis if (line["record"], line["core"].get("id")) not in stated]
    await harness.know([*basis, *ALWAYS, *known])
    before = await answers(harness.memory, "known", datetime.fromisoformat(day(T)))
    await harness.know(later, "later")
    assert await answers(harness.memory, "known", datetime.fromisoformat(day(T))) == before
    assert await answers(harness.memory, "known", datetime.fromisoformat(day(11))) != before
