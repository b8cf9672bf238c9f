"""Briefings from real servers: as of days, for unknown names, and while stores are away."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from imem.journal.errors import BadInput, PermissionDenied, UnknownSubject
from imem.journal.modes import Mode
from imem.journal.settings import Role
from imem.memory import Memory
from imem.recall.model import AWAY, Briefing, Completeness, Quality
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import day


def _refused() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


async def _season(harness: RecallHarness) -> None:
    await harness.know(
        [
            facts.company("T0", 0), facts.agent("agent0", 0), facts.agent("agent1", 0), facts.agent("agent2", 0),
            facts.analysis("a0", 1), facts.finding("f0", 1, probability=0.9), facts.finding("f4", 1, probability=0.2),
            facts.performed("a0", 1), facts.decision("d0", 2), facts.cites("d0", 2), facts.debate("b0", 2),
            facts.debate_state("b0", 4), facts.outcome("o0", 4, actual=1.0), facts.outcome("o2", 8, actual=0.0),
            facts.contradiction("c0", 3),
        ]
    )  # fmt: skip


async def test_the_answer_follows_what_was_known(harness: RecallHarness) -> None:
    """Before the outcome, after it, and after its revision: three days, three answers to one question."""
    await _season(harness)
    before, after, revised = [await harness.memory.brief("T0", as_of=_at(number)) for number in (3.5, 5, 9)]
    for briefing in (before, after, revised):
        assert briefing.mode == "normal", briefing
        assert [item.analysis.key for item in briefing.history.items] == ["a0"]
    scores = [
        {one.finding.key: one.score and one.score.right for one in briefing.history.items[0].findings}
        for briefing in (before, after, revised)
    ]
    assert scores == [{"f0": None, "f4": None}, {"f0": True, "f4": False}, {"f0": False, "f4": True}]
    verdicts = [
        briefing.history.items[0].decisions[0].decision.groups.get("outcome") for briefing in (before, after, revised)
    ]
    assert verdicts == [None, {"outcome": "success"}, {"outcome": "failure"}]
    states = [one.debates.items[0].debate.groups.get("state", {}).get("final_position") for one in (before, after)]
    assert states == [None, "As of day 4."]
    assert [one.agent for one in after.track_records.items] == ["agent0", "agent1"]
    assert {one.evidence for one in after.track_records.items} == {"little"}
    assert len(after.contradictions.items) == 1
    assert "little evidence" in after.to_markdown()


async def test_a_withdrawn_outcome_is_shown_until_it_was_withdrawn(harness: RecallHarness) -> None:
    line = facts.outcome("o0", 4, decision_id="d0")
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 1), facts.decision("d0", 2), line])
    await harness.know([facts.corrected(line, 6, withdrawn=True)])

    shown = [await harness.memory.brief("T0", as_of=_at(number)) for number in (5, 7)]

    decisions = [briefing.history.items[0].decisions[0] for briefing in shown]
    assert [[outcome.key for outcome in one.outcomes] for one in decisions] == [["o0"], []]


async def test_who_asks_sees_its_own_record(harness: RecallHarness) -> None:
    """An agent that has not spoken about the subject is shown its own record beside the others."""
    await _season(harness)
    # agent2 speaks about T1 alone, in the domain of the claims about T0.
    await harness.know([facts.analysis("a1", 1), facts.finding("f5", 1, probability=0.9), facts.outcome("o1", 4)])

    def shown(briefing: Briefing) -> list[str]:
        return [one.agent for one in briefing.track_records.items]

    others = await harness.memory.brief("company:T0", as_of=_at(5))
    assert shown(others) == ["agent0", "agent1"]
    briefing = await harness.memory.brief("company:T0", for_agent="agent2", as_of=_at(5))
    assert shown(briefing) == ["agent0", "agent1", "agent2"]
    assert [one.rows for one in briefing.track_records.items] == [1, 1, 1]
    assert '"agent2" (you)' in briefing.to_markdown()
    own = await harness.memory.brief("company:T0", for_agent="agent0", as_of=_at(5))
    assert shown(own) == ["agent0", "agent1"], "nobody is shown twice"
    assert '"agent0" (you)' in own.to_markdown()


async def test_an_unknown_name_is_answered_with_the_nearest(harness: RecallHarness) -> None:
    """A misspelt subject names those that look like it; one like nothing says so."""
    await _season(harness)
    with pytest.raises(UnknownSubject) as refusal:
        await harness.memory.brief("Compny T0")
    assert refusal.value.nearest == ("company:T0",)
    with pytest.raises(UnknownSubject, match="similar"):
        await harness.memory.brief("zzzzzzzz")
    for bad in ("", "   ", "x" * 201, "a\0b"):
        with pytest.raises(BadInput, match="subject"):
            await harness.memory.brief(bad)


async def test_an_unknown_name_without_neo4j_is_compared_by_the_journal(harness: RecallHarness) -> None:
    """Keys and names are recorded there as well."""
    markets = [facts.market(f"flu-{state}", 0) for state in ("ca", "tx")]
    await harness.know([facts.company("NVDA", 0), facts.company("MU", 0), *markets])
    settings = harness.settings.model_copy(update={"neo4j_url": f"bolt://127.0.0.1:{_refused()}"})
    async with Memory.open(settings) as memory:
        for typed, nearest in (
            ("NVDIA", {"company:NVDA"}), ("company:nvdaa", {"company:NVDA"}), ("market:mun", set()),
            ("market:flu-cb", {"market:flu-ca", "market:flu-tx"}), ("flu", {"market:flu-ca", "market:flu-tx"}),
            ("Micron Technology", set()), ("company:flu", set()), ("Compani MU", {"company:MU", "company:NVDA"}),
        ):  # fmt: skip
            with pytest.raises(UnknownSubject) as refusal:
                await memory.brief(typed)
            assert set(refusal.value.nearest) == nearest, typed
            if not nearest:
                assert "Nothing with a similar name" in str(refusal.value)


async def test_what_is_wrong_with_a_question_is_named(harness: RecallHarness) -> None:
    """Clock, moment, budget and limits are checked before anything is asked."""
    with pytest.raises(BadInput, match="clock"):
        await harness.memory.brief("T0", clock="wall")
    with pytest.raises(BadInput, match="as_of"):
        await harness.memory.brief("T0", as_of=datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused
    for budget in (9, 30_001):
        with pytest.raises(BadInput, match="deadline_ms"):
            await harness.memory.brief("T0", deadline_ms=budget)
    with pytest.raises(BadInput, match="limit"):
        await harness.memory.history("T0", limit=0)


async def test_without_neo4j_the_journal_answers_and_says_so(harness: RecallHarness) -> None:
    """A refused port: what Postgres knows comes, labelled, inside the budget."""
    await _season(harness)
    complete = await harness.memory.brief("T0", as_of=_at(5))
    settings = harness.settings.model_copy(update={"neo4j_url": f"bolt://127.0.0.1:{_refused()}"})
    async with Memory.open(settings) as memory:
        begun = time.monotonic()
        briefing = await memory.brief("T0", as_of=_at(5), deadline_ms=30_000)
        assert time.monotonic() - begun < 10, "a refused port is not waited for"
    assert briefing.mode is Mode.DEGRADED_READ
    assert briefing.history.quality is Quality.PARTIAL
    assert "Neo4j" in (briefing.history.reason or "")
    assert [item.analysis for item in briefing.history.items] == [item.analysis for item in complete.history.items]
    assert briefing.history.items[0].findings == complete.history.items[0].findings
    assert briefing.track_records.items == complete.track_records.items
    assert briefing.lessons.quality is Quality.PARTIAL
    assert {briefing.history.completeness, briefing.lessons.completeness} == {Completeness.TOP_N}
    assert briefing.patterns.quality is Quality.EXACT
    assert "[partial: Neo4j could not be asked" in briefing.to_markdown()


async def test_without_postgres_nothing_is_claimed(harness: RecallHarness) -> None:
    """The journal is away: an answer comes inside the budget and every section says that it could not be asked."""
    url = f"postgresql://imem_app:none@127.0.0.1:{_refused()}/imem"
    settings = harness.settings.model_copy(update={"postgres_url": SecretStr(url), "postgres_curator_url": None})
    async with Memory.open(settings) as memory:
        begun = time.monotonic()
        briefing = await memory.brief("T0", deadline_ms=1000)
        assert time.monotonic() - begun < 2.5
    assert briefing.mode is Mode.READ_ONLY
    assert {section.quality for section in briefing.sections.values()} == {Quality.UNAVAILABLE}
    assert all(section.fallback_exhausted and section.error == AWAY for section in briefing.sections.values())


async def test_single_questions_answer_as_the_briefing_does(harness: RecallHarness) -> None:
    """Each section can be asked for alone, and a debate and a text whole."""
    await _season(harness)
    briefing = await harness.memory.brief("T0", as_of=_at(5))
    alone = {"mode": Mode.NORMAL}
    assert await harness.memory.history("T0", as_of=_at(5)) == briefing.history.model_copy(update=alone)
    assert await harness.memory.debates("T0", as_of=_at(5)) == briefing.debates.model_copy(update=alone)
    of_itself = await harness.memory.contradictions("T0", as_of=_at(5))
    assert dict(of_itself) == {**dict(briefing.contradictions), **alone, "asked": []}
    debate = await harness.memory.debate("b0", as_of=_at(5))
    assert [turn.text for turn in debate.turns] == ["A word of b0, on day 2."]
    with pytest.raises(BadInput, match="debate"):
        await harness.memory.debate("b0", as_of=_at(1))
    records = await harness.memory.track_record("agent0", as_of=_at(5))
    assert [(one.domain, one.n, one.right) for one in records.items] == [("up_or_down", 1, 1)]


async def test_named_queries_are_checked_before_they_run(harness: RecallHarness) -> None:
    """A missing or unknown parameter is named; what shows unproven patterns is closed to agents, with a denial row."""
    await _season(harness)
    rows = await harness.memory.query("nearest_names", {"search": "t0"})
    assert rows[0]["subject_id"] == "company:T0"
    with pytest.raises(BadInput, match="query"):
        await harness.memory.query("drop_everything")
    with pytest.raises(BadInput, match="parameters"):
        await harness.memory.query("nearest_names", {"serch": "t0"})
    settings = harness.settings.model_copy(update={"actor": "agent0", "role": Role.AGENT})
    async with Memory.open(settings) as memory:
        with pytest.raises(PermissionDenied):
            await memory.query("patterns_ready_for_gate6")
        assert await memory.query("active_patterns", {"sector": "Technology"}) == []
    denied = await harness.journal.rows("SELECT actor_id FROM memory_access_audit WHERE NOT authorized")
    assert [row["actor_id"] for row in denied] == ["agent0"]


async def test_an_explicit_moment_is_clamped_and_said(harness: RecallHarness) -> None:
    """A moment in the future becomes the last one that is complete, and the answer states it."""
    await _season(harness)
    asked = datetime(2099, 1, 1, tzinfo=UTC)
    briefing = await harness.memory.brief("T0", as_of=asked)
    assert briefing.as_of < datetime.now(UTC)
    assert briefing.asked_as_of == asked
    assert "Asked for 2099-01-01 00:00 UTC" in briefing.to_markdown()
