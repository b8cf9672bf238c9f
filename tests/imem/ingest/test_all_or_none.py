"""A call that records several things records all of them or none, and a refusal says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from imem import Memory
from imem.journal.errors import BadInput, CoreConflict, TooLarge
from imem.journal.events.entry import AppendStatus
from imem.journal.events.group_commit import BATCH_LINES
from imem.kg.model import Finding
from imem.recall.signals.model import AgentSignal
from tests.imem.ingest.conftest import LoadHarness
from tests.imem.ingest.test_memory import NOW, analysis, decision, finding

PAST = NOW - timedelta(days=400)


def found(key: str, **values: Any) -> Finding:
    return finding(key=key, **values)


def late(key: str) -> Finding:
    """A claim whose answer could be known before it was made."""
    return found(key, metric="return_5s", direction="positive", target_at=PAST)


def other(key: str) -> Finding:
    """Another statement under the id of one that is recorded."""
    return found(key, statement="It falls.")


def signal(**values: Any) -> AgentSignal:
    about = {"agent_name": "ann", "market_id": "company:MU", "direction": "YES", "confidence": 0.6}
    return AgentSignal(**{**about, **values})


Call = Callable[[Memory], Awaitable[Any]]

REFUSED: dict[str, tuple[Call, str]] = {
    "the last finding is late": (
        lambda m: m.record_analysis(analysis("x"), findings=_of("x", found("x1"), late("x2"))),
        "of Finding 'x2'",
    ),
    "the first finding is late": (
        lambda m: m.record_analysis(analysis("x"), findings=_of("x", late("x1"), found("x2"))),
        "of Finding 'x1'",
    ),
    "a finding is recorded with another core": (
        lambda m: m.record_analysis(analysis("x"), findings=_of("x", found("x1"), other("f"))),
        "of Finding 'f'",
    ),
    "the analysis is recorded with another core": (
        lambda m: m.record_analysis(analysis("a", confidence=0.1), findings=[found("x1")]),
        "of Analysis 'a'",
    ),
    "one of more findings than fit in a statement": (
        lambda m: m.record_analysis(
            analysis("x"), findings=_of("x", *(found(f"x{n}") for n in range(BATCH_LINES + 50)), late("x"))
        ),
        "of Finding 'x' is",
    ),
    "the decision is recorded with another core": (
        lambda m: m.record_decision(decision("bob", key="d"), cites=["f"]),
        "of Decision 'd'",
    ),
    "a finding that is cited is not recorded": (
        lambda m: m.record_decision(decision("ann", key="x"), cites=["f", "g"]),
        r"cites\.1: no Finding 'g'",
    ),
    "a finding is cited twice": (
        lambda m: m.record_decision(decision("ann", key="x"), cites=["f", "f"]),
        r"cites\.1: repeats 'f'",
    ),
    "a signal that begins an analysis is late": (
        lambda m: m.record_signal(signal(metadata={"metric": "return_5s", "target_at": PAST})),
        "of Finding 'signal:",
    ),
}
"""Calls that are refused: the call, and what the refusal names."""


def _of(key: str, *findings: Finding) -> Sequence[Finding]:
    return [one.model_copy(update={"analysis_id": key}) for one in findings]


@pytest.mark.parametrize("case", REFUSED)
async def test_a_call_that_is_refused_records_nothing(harness: LoadHarness, case: str) -> None:
    """No event, no head, no audit of a write, nothing due; the refusal names the record and says so."""
    call, named = REFUSED[case]
    state = "SELECT count(*) FROM event", "SELECT count(*) FROM record_head", "SELECT count(*) FROM due_row"
    async with Memory.open(harness.settings) as memory:
        await memory.record_analysis(analysis(), findings=[found("f")])
        await memory.record_decision(decision("ann"))
        before = [harness.rows(one) for one in state]
        with pytest.raises(BadInput, match=named) as refused:
            await call(memory)
        assert [harness.rows(one) for one in state] == before
    if "cites" not in named:
        assert str(refused.value).endswith("Nothing was recorded.")
    assert harness.rows("SELECT count(*) FROM memory_access_audit WHERE NOT authorized") == [(0,)]


async def test_the_mended_call_records_all(harness: LoadHarness) -> None:
    """A refusal leaves nothing behind that the same call, mended, would run into."""
    async with Memory.open(harness.settings) as memory:
        with pytest.raises(BadInput):
            await memory.record_analysis(analysis(), findings=[found("f1"), late("f2")])
        for verdict in (AppendStatus.NEW, AppendStatus.IDENTICAL):
            done = await memory.record_analysis(analysis(), findings=[found("f1"), found("f2")])
            assert (done.verdict, done.durable) == (verdict, True)
    assert harness.count("event") == 3


async def test_calls_at_once_are_refused_each_by_itself(harness: LoadHarness) -> None:
    """They share transactions, and a refusal of one undoes none of the others."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_analysis(analysis(), findings=[found("f")])
        calls = [
            memory.record_analysis(analysis(f"x{n}"), findings=_of(f"x{n}", found(f"x{n}/1"), bad(f"x{n}/2")))
            for n, bad in enumerate([found, late] * 10)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [isinstance(one, BadInput) for one in answers] == [False, True] * 10
    kept = harness.rows("SELECT record_key FROM event WHERE record_key LIKE 'x%%/%%' ORDER BY record_key")
    assert [key for (key,) in kept] == sorted(f"x{n}/{k}" for n in range(0, 20, 2) for k in (1, 2))


async def test_a_decision_cites_findings_in_their_order(harness: LoadHarness) -> None:
    """Each with its rank; the same call again writes nothing."""
    taken = decision("ann")
    async with Memory.open(harness.settings) as memory:
        await memory.record_analysis(analysis(), findings=[found("f1"), found("f2"), found("f3")])
        for _ in range(2):
            await memory.record_decision(taken, cites=["f3", "f1", "f2"])
    links = harness.rows(
        "SELECT payload ->> 'to_key', payload -> 'props' ->> 'rank' FROM event"
        " WHERE kind = 'link.CITES' ORDER BY position"
    )
    assert links == [("f3", "1"), ("f1", "2"), ("f2", "3")]


async def test_one_record_alone_is_refused_as_before(harness: LoadHarness) -> None:
    """A call of one record is refused in the words of the record."""
    async with Memory.open(harness.settings) as memory:
        await memory.record_analysis(analysis())
        with pytest.raises(CoreConflict, match=r"^core: is not the recorded core of 'a'\.") as refused:
            await memory.record_analysis(analysis(confidence=0.2))
    assert "Nothing was recorded" not in str(refused.value)


async def test_both_memories_of_an_outcome_or_neither(harness: LoadHarness) -> None:
    """The lesson's namespace is full: the memory of the loss is not stored either."""
    settings = harness.settings.model_copy(
        update={"memory_namespace_limit": 1, "embedding_local": "universal-3", "actor": "ann"}
    )
    async with Memory.open(settings) as memory:
        await memory.remember("Losses teach.", namespace="agent/ann/lessons")
        with pytest.raises(TooLarge):
            await memory.memories.record_outcome(decision("ann"), -20.0, lesson="Watch inventories.")
    assert harness.rows("SELECT namespace FROM recall.memory") == [("agent/ann/lessons",)]
