"""What was first known later is answered, as of a day, like what never existed; names mean what they meant then."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import AmbiguousSubject, BadInput, UnknownSubject
from imem.journal.settings import Settings
from imem.memory import Memory
from tests.kg.similarity.conftest import Directions
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day
from tests.recall.far import Far, far
from tests.recall.test_kept import counting, whole

__all__ = ["far"]

T = 5


def at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


def of_t9(known: float) -> list[Line]:
    """Return everything about one company and by one agent, of which nothing was known before a day."""
    target_at = day(known + 0.1)
    claim = {"metric": "up", "target_at": target_at}
    return [
        facts.company("T9", known), facts.agent("agent9", known), facts.pattern("p9", known),
        facts.with_body(facts.analysis("a9", known, subject_id="company:T9")),
        facts.finding("f9", known, analysis_id="a9", subject_id="company:T9", agent="agent9", **claim),
        facts.outcome("o9", known + 0.2, subject_id="company:T9", target_at=target_at), facts.debate("b9", known),
        facts.contradiction("c9", known), facts.with_body(facts.lesson("l9", known)),
    ]  # fmt: skip


Read = Callable[[Memory, str, dict[str, Any]], Any]
"""Asks a memory about what has a number, 9 or 8, by options."""

READS: dict[str, Read] = {
    "brief": lambda memory, n, asked: memory.brief(f"T{n}", **asked),
    "brief by id": lambda memory, n, asked: memory.brief(f"company:T{n}", **asked),
    "brief for an agent": lambda memory, n, asked: memory.brief("T0", for_agent=f"agent{n}", **asked),
    "brief by name": lambda memory, n, asked: memory.brief(f"Company T{n}", **asked),
    "history": lambda memory, n, asked: memory.history(f"T{n}", **asked),
    "debates": lambda memory, n, asked: memory.debates(f"T{n}", **asked),
    "contradictions": lambda memory, n, asked: memory.contradictions(f"T{n}", **asked),
    "patterns": lambda memory, n, asked: memory.patterns(f"T{n}", **asked),
    "lessons": lambda memory, n, asked: memory.lessons(f"T{n}", **asked),
    "panel": lambda memory, n, asked: memory.panel(f"T{n}", **asked),
    "weights": lambda memory, n, asked: memory.weights(["agent0", f"agent{n}"], "up_or_down", **asked),
    "similar, to a subject": lambda memory, n, asked: memory.similar(f"T{n}", **asked),
    "similar, to an analysis": lambda memory, n, asked: memory.similar(f"a{n}", **asked),
    "debate": lambda memory, n, asked: memory.debate(f"b{n}", **asked),
    "text of an analysis": lambda memory, n, asked: memory.text("Analysis", f"a{n}", **asked),
    "text of a lesson": lambda memory, n, asked: memory.text("Lesson", f"l{n}", **asked),
    "text of a pattern": lambda memory, n, asked: memory.text("Pattern", f"p{n}", **asked),
    "track record": lambda memory, n, asked: memory.track_record(f"agent{n}", **asked),
    "track record in a domain": lambda memory, n, asked: memory.track_record(f"agent{n}", "up_or_down", **asked),
    "track records of several": lambda memory, n, asked: memory.track_records(
        [f"agent{n}"], ["up_or_down"], **{**asked, "as_of": [asked["as_of"]]}
    ),
    "scores": lambda memory, n, asked: memory.credibility([f"agent{n}"], **asked),
    "scores in a domain": lambda memory, n, asked: memory.credibility([f"agent{n}"], ["up_or_down"], **asked),
    "explanation of a score": lambda memory, n, asked: memory.explain(f"agent{n}", "up_or_down", **asked),
    "auto-resolution": lambda memory, n, asked: memory.auto_resolve(f"agent{n}", "agent0", "up_or_down", **asked),
    "query": lambda memory, n, asked: memory.query(
        "company_history", {"subject_id": f"company:T{n}", "findings_limit": 3, "detailed": 3}, **asked
    ),
    "search": lambda memory, n, asked: memory.search("anything", subject=f"T{n}", **asked),
}


async def answered(read: Read, memory: Memory, n: str, **asked: Any) -> str:
    """Return an answer, or the refusal, in words, without the number."""
    try:
        answer = await read(memory, n, {"deadline_ms": 30_000, **asked})
    except BadInput as refusal:
        return f"{type(refusal).__name__} {refusal}".replace(n, "N")
    dumped = answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer
    if isinstance(dumped, dict):
        for name in ("took_ms", "late_ms", "complete_until"):
            dumped.pop(name, None)
    return str(dumped).replace(f"T{n}", "TN").replace(f"agent{n}", "agentN")


@pytest.mark.spec("GR-10")
@pytest.mark.parametrize("read", list(READS))
async def test_what_was_first_known_later_is_as_if_it_did_not_exist(harness: RecallHarness, read: str) -> None:
    """Number 9 was known from day 7 on, number 8 never: as of day 5 the answers, and the refusals, are the same."""
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *of_t9(7)])
    of_later = await answered(READS[read], harness.memory, "9", as_of=at(T))
    assert of_later == await answered(READS[read], harness.memory, "8", as_of=at(T))
    assert "T9" not in of_later
    if read != "text of a pattern":
        # Of one that is not active there is no text for those who may not validate it.
        assert of_later != await answered(READS[read], harness.memory, "9", as_of=at(8)), "it is known by then"


async def test_a_late_record_hides_nothing_that_was_said_before(harness: RecallHarness) -> None:
    """A subject is only a reference: it is known as soon as anything about it is; of itself nothing is said before."""
    await harness.know([facts.analysis("a4", 2), facts.company("T0", 7)])
    with pytest.raises(UnknownSubject):
        await harness.memory.brief("T0", as_of=at(1))
    for asked, record in ((at(3), False), (at(8), True)):
        briefing = await harness.memory.brief("T0", as_of=asked)
        assert [item.analysis.key for item in briefing.history.items] == ["a4"]
        assert (briefing.subject.record is not None) is record
    with pytest.raises(UnknownSubject):
        await harness.memory.brief("Company T0", as_of=at(3))
    assert (await harness.memory.brief("Company T0", as_of=at(8))).subject.subject_id == "company:T0"


async def test_on_the_recorded_clock_what_is_recorded_counts(harness: RecallHarness) -> None:
    """History that is imported afterwards was known, and not recorded yet."""
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0)])
    before = (await harness.memory.brief("T0", clock="recorded")).as_of
    await harness.know([facts.company("T9", 0)], "later")
    with pytest.raises(UnknownSubject) as refusal:
        await harness.memory.brief("T9", as_of=before, clock="recorded")
    assert "company:T9" not in refusal.value.nearest
    assert (await harness.memory.brief("T9", as_of=before)).subject.subject_id == "company:T9"
    assert (await harness.memory.brief("T9", clock="recorded")).subject.subject_id == "company:T9"


async def test_suggestions_are_what_was_known_by_then(harness: RecallHarness) -> None:
    """Neither a subject that came later, nor a name that one was given later."""
    await harness.know([
        facts.company("NVDA", 0), facts.company("NVDB", 7), facts.renamed("NVDA", 8, "Northwind Traders"),
        facts.market("flu-ca", 1), facts.market("flu-tx", 9),
    ])  # fmt: skip
    for typed, asked, nearest in (
        ("NVDC", T, {"company:NVDA"}), ("NVDC", 9, {"company:NVDA", "company:NVDB"}),
        ("Northwind Trader", T, set()), ("Northwind Trader", 9, {"company:NVDA"}),
        ("Nortwin", T, set()), ("Nortwin", 9, {"company:NVDA"}),
        ("Northwind Traders Incorporated", T, set()), ("Northwind Traders Incorporated", 9, {"company:NVDA"}),
        ("The Nortwind Co", T, set()), ("The Nortwind Co", 9, {"company:NVDA"}),
        ("market:flu-x", T, {"market:flu-ca"}), ("market:flu-x", 10, {"market:flu-ca", "market:flu-tx"}),
    ):  # fmt: skip
        with pytest.raises(UnknownSubject) as refusal:
            await harness.memory.brief(typed, as_of=at(asked))
        assert set(refusal.value.nearest) == nearest, (typed, asked)


async def test_a_subject_is_found_by_its_name(harness: RecallHarness) -> None:
    """As it was called then; ids and tickers come first; a question by what it asks."""
    await harness.know([
        facts.company("NWT", 0), facts.renamed("NWT", 2, "Northwind Traders"),
        facts.renamed("NWT", 7, "Northwind Group"),
        facts.company("OLD", 0), facts.renamed("OLD", 3, "NWT"), facts.market("m1", 4),
    ])  # fmt: skip

    async def found(name: str, number: float | None) -> str | None:
        try:
            answer = await harness.memory.brief(name, as_of=None if number is None else at(number))
        except UnknownSubject:
            return None
        return answer.subject.subject_id

    for name, expected in (
        ("Northwind Traders", {1: None, 5: "company:NWT", 8: None, None: None}),
        ("Northwind Group", {5: None, 8: "company:NWT", None: "company:NWT"}),
        ("NWT", {5: "company:NWT"}), ("northwind group", {5: None, None: "company:NWT"}),
        ("Will m1 come true?", {3: None, 5: "market:m1", None: "market:m1"}),
    ):  # fmt: skip
        for number, subject_id in expected.items():
            assert await found(name, number) == subject_id, (name, number)
    answer = await harness.memory.similar("Northwind Group")
    assert not answer.items


async def test_a_name_that_two_have_is_refused_with_both(harness: RecallHarness) -> None:
    """Those that had it then: who took it later is not named."""
    await harness.know([
        *(facts.company(ticker, 0) for ticker in ("AAA", "BBB", "CCC")),
        facts.renamed("AAA", 1, "Northwind"), facts.renamed("BBB", 3, "Northwind"),
        facts.renamed("CCC", 7, "Northwind"),
    ])  # fmt: skip
    assert (await harness.memory.brief("Northwind", as_of=at(2))).subject.subject_id == "company:AAA"
    for asked, ids in ((at(T), ("company:AAA", "company:BBB")), (None, ("company:AAA", "company:BBB", "company:CCC"))):
        with pytest.raises(AmbiguousSubject) as refusal:
            await harness.memory.brief("Northwind", as_of=asked)
        assert refusal.value.subject_ids == ids
        assert ", ".join(ids) in str(refusal.value)


async def test_a_ticker_of_which_there_are_only_memories_is_found(
    harness: RecallHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a memory is there, as of now or a day; a record of that name always comes first."""
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: Directions())
    await harness.know([facts.company("T0", 0), facts.market("m1", 0), facts.renamed("T0", 1, "NAMED")])
    memory = harness.memory
    before = (await memory.brief("T0")).as_of
    stored = {
        place: await memory.remember(f"Near {place}.", namespace=place)
        for place in ("symbol/MU", "symbol/SUB/deep", "symbol/MUX-1", "symbol/m1", "symbol/NAMED", "agent/local/ALONE")
    }

    async def found(name: str, **asked: Any) -> str | None:
        try:
            return (await memory.brief(name, **asked)).subject.subject_id
        except UnknownSubject:
            return None

    for name, subject_id in {
        "MU": "company:MU", "mu": "company:MU", "company:MU": "company:MU", "SUB": "company:SUB",
        "m1": "market:m1", "NAMED": "company:T0", "MUX": None, "M": None, "ALONE": None, "market:MU": None,
        "MU/": None, "%": None, "M_": None,
    }.items():  # fmt: skip
        assert await found(name) == subject_id, name
    hits = await memory.search("near", subject="MU", deadline_ms=30_000)
    assert [item.text for item in hits.items] == ["Near symbol/MU."]
    assert not (await memory.history("SUB")).items
    assert await found("MU", as_of=before) is None
    await memory.memories.retire(stored["symbol/MU"].id, reason="It was wrong.")
    assert await found("MU") is None


async def test_a_remembered_name_shows_at_no_earlier_day(telling: RecallHarness) -> None:
    """What a process remembers of a name, and what is kept of its subject, is of one moment alone."""
    await telling.know([facts.company("T0", 0), facts.company("T1", 7), facts.analysis("a1", 7)])
    for _ in range(2):
        await whole(telling.memory, "T1")
        with pytest.raises(UnknownSubject):
            await telling.memory.brief("T1", as_of=at(T))
        assert (await telling.memory.brief("T1", as_of=at(8))).history.items
    await telling.know([facts.analysis("a5", 3)], "later")
    assert [item.analysis.key for item in (await telling.memory.brief("T1", as_of=at(T))).history.items] == ["a5"]


async def test_finding_a_subject_takes_one_statement(harness: RecallHarness) -> None:
    """Whatever it is called, and as of any day."""
    await harness.know([facts.company("T0", 0), facts.market("m1", 0)])
    for name in ("T0", "t0", "company:T0", "m1", "Company T0"):
        for asked in (None, at(T)):
            names = counting(harness.memory)
            await harness.memory.history(name, as_of=asked)
            assert names.count("find_subject") == 1, name


@pytest.mark.parametrize("store", ["graph", "postgres"])
async def test_nothing_later_shows_where_a_store_is_away(far: Far, store: str) -> None:
    """The same answer for what was known later and for what never was; that it is unknown, only who asked can say."""
    await far.harness.know([facts.company("T9", 7), facts.analysis("a9", 7, subject_id="company:T9")])
    await whole(far.memory, "T9")
    far.stall(store)
    asked: dict[str, Any] = {"as_of": at(T), "deadline_ms": 2_000}
    later, never = [unexplained(await answered(READS["brief"], far.memory, n, **asked)) for n in "98"]
    by_id = [unexplained(await answered(READS["brief by id"], far.memory, n, **asked)) for n in "98"]
    assert later == never
    assert by_id[0] == by_id[1]
    assert ("UnknownSubject" in later) is (store == "graph")


def unexplained(answer: str) -> str:
    """
    Return *answer* without why its sections are what they are.

    Whether a wait or a store ended first is chance, and so is when the store counts as away.
    """
    return re.sub(r"'(?:reason|error|mode)': (?:'[^']*'|None)", "", answer)


async def test_the_command_ends_alike(harness: RecallHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the same words and the same exit code: nothing is known, 1."""
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 0), *of_t9(7)])
    for name, value in environment(harness.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IMEM_HOME", str(tmp_path))

    async def ended(n: str, day_of_month: str) -> list[tuple[int, str]]:
        found = []
        for words in (
            ["brief", f"T{n}"], ["similar", f"a{n}"], ["debates", f"T{n}"], ["debate", f"b{n}"],
            ["agents", f"agent{n}"], ["text", "Analysis", f"a{n}"],
        ):  # fmt: skip
            given = [*words, "--as-of", f"2026-01-{day_of_month}"]
            result = await asyncio.to_thread(CliRunner().invoke, app, given)
            found.append((result.exit_code, f"{result.output}{result.exception}".replace(n, "N")))
        return found

    later = await ended("9", "06")
    assert later == await ended("8", "06")
    assert [code for code, _ in later] == [1, 1, 1, 1, 0, 1]
    assert [code for code, _ in await ended("9", "09")] == [0] * 6


def environment(settings: Settings) -> dict[str, str]:
    """Return by which environment a command line finds the servers of *settings*."""
    named = (
        "postgres_url",
        "postgres_curator_url",
        "neo4j_url",
        "neo4j_password",
        "valkey_working_url",
        "valkey_durable_url",
        "valkey_cache_url",
    )
    values = {f"IMEM_{name.upper()}": getattr(settings, name) for name in named}
    shown = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in values.items()
        if value is not None
    }
    return {**shown, "IMEM_ACTOR": settings.actor, "IMEM_ROLE": settings.role.value, "IMEM_DEADLINE_MS": "30000"}
