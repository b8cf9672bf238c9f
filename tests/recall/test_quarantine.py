"""Agents learn nothing of a pattern that is not active: every read, for every status."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, PermissionDenied
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.kg.views import rebuild
from imem.memory import Memory
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.test_no_look_ahead import _questions
from tests.recall.test_who_may_ask import asking

HIDDEN = [status for status in PatternStatus if status is not PatternStatus.ACTIVE]

MARK = "Zyxw"
"""What every text about a pattern holds, and nothing else does."""


def key_of(status: str) -> str:
    return f"{MARK}-{status}"


def world_of(statuses: Sequence[PatternStatus]) -> list[Line]:
    """Return patterns of these statuses, each linked with whatever patterns are linked with."""
    lines: list[Line] = [
        facts.company("T0", 0), facts.agent("agent0", 0), facts.agent("agent1", 0), facts.analysis("a0", 0),
        facts.finding("f0", 0), facts.outcome("o0", 4), facts.debate("b0", 0), facts.decision("d0", 1),
        facts.cites("d0", 1), facts.performed("a0", 0), facts.lesson("l0", 0),
    ]  # fmt: skip
    for number, status in enumerate(statuses):
        key = key_of(status)
        core = {"pattern_id": key, "name": f"{MARK} of {status}", "category": f"momentum {MARK}"}
        body = f"{MARK}: how {status} was found."
        groups = {"performance": {"success_rate": 0.9, "occurrence_count": 50}}
        lines += [
            {"record": "Pattern", "known_at": day(0), "core": core, "body": body},
            {"record": "Pattern", "known_at": day(0), "key": key, "groups": groups},
            facts.pattern_status(key, 1, status),
            {"link": "IDENTIFIED_PATTERN", "known_at": day(1), "from": {"Analysis": "a0"}, "to": {"Pattern": key}},
            {"link": "AFFECTS_PATTERN", "known_at": day(1), "from": {"Lesson": "l0"}, "to": {"Pattern": key}},
            {"link": "SUPPORTS_POSITION", "known_at": day(1), "from": {"Pattern": key}, "to": {"Debate": "b0"},
             "props": {"side": "challenger"}},
        ]  # fmt: skip
        if number:
            other = {"Pattern": key_of(statuses[number - 1])}
            lines.append({"link": "SIMILAR_TO", "known_at": day(1), "from": {"Pattern": key}, "to": other,
                          "props": {"score": 0.9}})  # fmt: skip
    return lines


def shown(answer: Any) -> str:
    """Return all that an answer says, as text."""
    if isinstance(answer, BaseModel):
        return answer.model_dump_json() + repr(answer)
    return json.dumps(answer, default=str) + repr(answer)


Door = tuple[str, str, Callable[[], Awaitable[Any]]]
"""A read by which an agent could see a pattern: a name, what it asks for, and the call."""


def doors(memory: Memory) -> Iterator[Door]:
    """Yield the reads that name no pattern: whatever is there could be in their answers."""
    then = datetime.fromisoformat(day(3))
    for name, question, what, more in _questions(memory):
        yield name, "", partial(question, *what, **more)
        yield f"{name} of day 3", "", partial(question, *what, **more, as_of=then)
    yield "search", MARK, partial(memory.search, MARK)
    yield "search of patterns", MARK, partial(memory.search, MARK, kinds=["pattern"])
    yield "active patterns", "", partial(memory.query, "active_patterns", {"sector": None})
    # Cut short: what stands in passes the same filter.
    yield "late briefing", "", partial(memory.brief, "T0", deadline_ms=25)
    yield "late patterns", "", partial(memory.patterns, "T0", deadline_ms=25)


def doors_to(memory: Memory, status: str) -> Iterator[Door]:
    """Yield the reads that ask for one pattern."""
    key, then = key_of(status), datetime.fromisoformat(day(3))
    for words in (f"{MARK} of {status}", key, f"how {status} was found"):
        yield "search", words, partial(memory.search, words)
    yield "text", key, partial(memory.text, "Pattern", key)
    yield "text of day 3", key, partial(memory.text, "Pattern", key, as_of=then)
    yield "history of it", key, partial(memory.history, key)
    yield "similar to it", key, partial(memory.similar, key, min_score=0.0)


async def leaks(doors: Iterable[Door]) -> list[str]:
    """Return the doors that name a pattern; what an error says counts, too."""
    found = []
    for name, asked, ask in doors:
        try:
            said = shown(await ask())
        except ImemError as error:
            said = f"{error} {error.mend or ''}"
        # What was asked for comes from who asks.
        if MARK in (said.replace(asked, "") if asked and not name.startswith("text") else said):
            found.append(name)
    return found


@pytest.mark.spec("PV-12", "PV-19")
@pytest.mark.parametrize("role", [Role.AGENT, Role.DEBATE_FACILITATOR, Role.READER])
async def test_no_read_shows_a_pattern_that_is_not_active(harness: RecallHarness, role: Role) -> None:
    await harness.know(world_of(HIDDEN))
    await rebuild(harness.journal.database, deadline=Deadline.never())
    async with asking(harness, role) as memory:
        assert await leaks(doors(memory)) == []
        assert {status: names for status in HIDDEN if (names := await leaks(doors_to(memory, status)))} == {}


@pytest.mark.spec("PV-19")
async def test_the_same_reads_show_a_pattern_that_is_active(harness: RecallHarness) -> None:
    """Without this, the walk would prove nothing."""
    await harness.know(world_of([PatternStatus.ACTIVE]))
    await rebuild(harness.journal.database, deadline=Deadline.never())
    async with asking(harness, Role.AGENT) as memory:
        found = await leaks([*doors(memory), *doors_to(memory, PatternStatus.ACTIVE)])
    assert {"brief company:T0", "patterns company:T0", "text", "text of day 3", "active patterns"} <= set(found)


@pytest.mark.spec("PV-21")
async def test_agents_cannot_tell_quarantined_from_nonexistent(harness: RecallHarness) -> None:
    await harness.know(world_of(HIDDEN))
    async with asking(harness, Role.AGENT) as memory:
        for key in (*map(key_of, HIDDEN), "nothing"):
            assert await memory.text("Pattern", key) is None
            for ask in (memory.pattern_tests, lambda k: memory.query("pattern_evidence", {"pattern_id": k})):
                with pytest.raises((PermissionDenied, BadInput)) as refused:
                    await ask(key)
                assert str(refused.value).replace(key, "KEY") == str(refused.value).replace(MARK, "")
            with pytest.raises(PermissionDenied) as denied:
                await memory.all_patterns()
            assert MARK not in str(denied.value)
