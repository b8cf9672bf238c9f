"""Precedents from end to end: recorded, projected, found as of the moment before a debate, labelled when they fail."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import psycopg
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from imem.cli import app
from imem.credibility.settling import ACTOR, settle_due
from imem.debates.precedents.model import Precedents
from imem.debates.precedents.rendering import precedents_lines
from imem.journal.actors import Action
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.gateway import Gateway
from imem.journal.settings import Role, Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.memory import Memory
from imem.services.stores import Stores
from tests.imem.debates.conftest import MemoryHarness, memory_of, project
from tests.imem.memories.conftest import Places
from tests.imem.search.conftest import as_worker

Line = dict[str, Any]
DESK = Path(__file__).parents[3] / "examples" / "trading_desk" / "trading_desk.jsonl.gz"


def day(number: float) -> str:
    return (datetime(2026, 6, 1, 12, tzinfo=UTC) + timedelta(days=number)).isoformat()


def company(ticker: str) -> Line:
    profile = {"name": f"{ticker} Incorporated", "sector": "Technology"}
    return {"record": "Company", "known_at": day(-99), "core": {"ticker": ticker}, "groups": {"profile": profile}}


def finding(key: str, agent: str, at: float, **core: Any) -> Line:
    values = {
        "id": key, "analysis_id": f"of {key}", "subject_id": "company:MU", "agent": agent, "domain": "margins",
        "statement": "Margins rise.",
    }  # fmt: skip
    return {"record": "Finding", "known_at": day(at), "core": {**values, **core}}


def debate(key: str, at: float, *, state: str | None = "closed", ended: float | None = None, **core: Any) -> list[Line]:
    """Return a debate that was opened on a day, and closed on the same or another one."""
    values = {
        "id": key, "subject_id": "company:MU", "topic": "Have gross margins peaked?", "challenger_agent": "bob",
        "challenged_agent": "ann", "participants": ["ann", "bob"], "timestamp": day(at),
    }  # fmt: skip
    lines: list[Line] = [{"record": "Debate", "known_at": day(at), "core": {**values, **core}}]
    if state is not None:
        method = {"resolution_level": "2_facilitator", "resolution_method": "judged"} if state == "closed" else {}
        group = {"state": state, "provisional": False, **method}
        known = day(at if ended is None else ended)
        lines.append({"record": "Debate", "known_at": known, "key": key, "groups": {"state": group}})
    return lines


def resolution(key: str, at: float, *, of: str, accuracy: float | None = None, **core: Any) -> Line:
    values = {"id": key, "debate_id": of, "winning_position": "They have.", "winning_agent": "bob"}
    tracked = {} if accuracy is None else {"outcome": {"accuracy_tracked": True, "outcome_correctness": accuracy}}
    return {"record": "DebateResolution", "known_at": day(at), "core": {**values, **core}, "groups": tracked}


def pattern(key: str, status: str, at: float) -> list[Line]:
    core = {"pattern_id": key, "name": f"Pattern {key}", "category": "supply"}
    performance = {"success_rate": 0.7, "occurrence_count": 20}
    quarantine = {"status": status, "quarantined": status != "active"}
    return [
        {"record": "Pattern", "known_at": day(-9), "core": core, "groups": {"performance": performance}},
        {"record": "Pattern", "known_at": day(at), "key": key, "groups": {"status": quarantine}},
    ]


async def know(harness: MemoryHarness, lines: Iterable[Line], *, settled: bool = False) -> None:
    """Record facts as an import, each as the subsystem that may, and score claims if they are *settled*."""
    settings = harness.of("kate", Role.KNOWLEDGE_BASE_AGENT).model_copy(update={"may_import": True})
    async with Stores.open(settings) as stores:
        page: list[Any] = []
        for line in lines:
            writer = {"Pattern": "patterns", "DebateResolution": "debates"}.get(line.get("record", ""))
            entry = entry_of(parse_line(orjson.dumps(line), writer=writer))
            page.append(entry)
        for start in range(0, len(page), 500):
            receipts = await stores.gateway.append(
                page[start : start + 500], action=Action.IMPORT, deadline=Deadline.after_ms(60_000)
            )
            assert not any(receipt.verdict.refused for receipt in receipts)
    if settled:
        async with as_worker(harness) as database:
            await settle_due(database, Gateway(database, ACTOR), halflife_years=2.0, until=Deadline.never())


def claims(agent: str, n: int, right: int) -> list[Line]:
    """Return claims of *agent* that come true week by week before the debates, the first *right* of them rightly."""
    lines: list[Line] = []
    for week in range(n):
        at = -7.0 * (week + 1)
        asked = {"metric": "up", "target_at": day(at), "subject_id": f"market:{agent}-{week}"}
        lines.append(finding(f"{agent}-{week}", agent, at - 1, probability=0.9, **asked))
        core = {"id": f"o-{agent}-{week}", "actual": float(week < right), "observed_at": day(at), "vintage": 0, **asked}
        lines.append({"record": "Outcome", "known_at": day(at + 0.1), "core": core})
    return lines


def keys(answer: Precedents) -> list[str]:
    return [one.debate_id for one in answer.items]


@pytest.mark.spec("DB-15")
async def test_only_what_was_resolved_before_the_debate_is_a_precedent(harness: MemoryHarness, places: Places) -> None:
    """Not the debate itself, nor what was open, withdrawn or closed later; a topic asks for now or for a moment."""
    await know(
        harness,
        [
            company("MU"), *debate("old", 1), *debate("open", 1, state=None), *debate("gone", 1, state="withdrawn"),
            *debate("provisional", 1, state="provisional"), *debate("late", 1, ended=5), *debate("at once", 4),
            *debate("asked", 4), *debate("after", 6),
        ],
    )  # fmt: skip
    await project(harness, places)
    async with memory_of(harness) as memory:
        found = await memory.find_precedents("asked")
        assert (keys(found), found.reason) == (["old"], None)
        assert found.as_of == datetime.fromisoformat(day(4)) - timedelta(microseconds=1)
        assert keys(await memory.find_precedents("asked", as_of=datetime.fromisoformat(day(9)))) == ["old"]
        topic = "Have margins peaked?"
        assert set(keys(await memory.find_precedents(topic))) == {"old", "late", "at once", "asked", "after"}
        assert set(keys(await memory.find_precedents(topic, as_of=datetime.fromisoformat(day(3))))) == {"old"}
        assert len((await memory.find_precedents(topic, k=2)).items) == 2


@pytest.mark.spec("DB-18")
async def test_what_a_precedent_says(harness: MemoryHarness, places: Places) -> None:
    """Route, winner, differential and outcome of the newest resolution; an unknown outcome is shown, in no rate."""
    scores = {"resolution_method": "credibility_weighted", "resolution_level": "2_facilitator"}
    await know(
        harness,
        [
            company("MU"), company("NVDA"), finding("f1", "ann", 0), finding("f2", "ann", 0),
            *debate("one", 1, disputed_finding="f1"), resolution("r1", 1, of="one", accuracy=1.0),
            *debate("two", 2, subject_id="company:NVDA", topic="Have gross margins peaked there?"),
            resolution("r2", 2, of="two"),
            *debate("three", 2, challenger_agent="eve"), resolution("r3", 2, of="three", winning_agent="ann"),
            {**debate("three", 2)[1], "groups": {"state": {"state": "closed", "provisional": False, **scores}},
             "known_at": day(3)},
            resolution("r4", 3, of="three", winning_agent="eve", credibility_differential=0.4, accuracy=0.0),
            *debate("asked", 4, disputed_finding="f2"),
        ],
    )  # fmt: skip
    await project(harness, places)
    async with memory_of(harness) as memory:
        found = await memory.find_precedents("asked")
        before = await memory.find_precedents("asked", as_of=datetime.fromisoformat(day(4)))

    assert before == found
    by_key = {one.debate_id: one for one in found.items}
    one, two, three = (by_key[key] for key in ("one", "two", "three"))
    assert (one.same_subject, one.same_agents, one.same_domain, one.domain) == (True, True, True, "margins")
    assert (two.same_subject, two.same_agents, two.same_domain, two.accuracy) == (False, True, False, None)
    assert (three.same_agents, three.by_credibility, three.winner, three.differential) == (False, True, "eve", 0.4)
    assert (one.level, one.method, one.winner, one.accuracy) == ("2_facilitator", "judged", "bob", 1.0)
    assert (found.accuracy.share, found.accuracy.n, found.lesson) == (0.5, 2, None)
    assert (found.challenger_won.share, found.challenger_won.n) == (1.0, 2)
    assert "outcome unknown" in next(line for line in precedents_lines(found) if "[two]" in line or '"two"' in line)


@pytest.mark.spec("DB-19")
async def test_patterns_in_quarantine_never_appear(harness: MemoryHarness, places: Places) -> None:
    """Only what was active before the debate: no candidate, nothing rejected, deprecated or activated later."""
    statuses = (
        "candidate",
        "statistically_validated",
        "human_approved",
        "rejected_blind",
        "deprecated",
        "probationary",
    )
    await know(
        harness,
        [
            company("MU"), *debate("asked", 4), *pattern("known", "active", 0), *pattern("later", "active", 5),
            *(line for status in statuses for line in pattern(status, status, 0)),
        ],
    )  # fmt: skip
    await project(harness, places)
    async with memory_of(harness) as memory:
        found = await memory.find_precedents("asked")

    assert [(one.pattern_id, one.success_rate, one.occurrence_count) for one in found.patterns] == [("known", 0.7, 20)]


@pytest.mark.spec("DB-17")
async def test_too_few_decisions_are_reported_as_such(harness: MemoryHarness, places: Places) -> None:
    """Of 15 against 12 decisions the answer says so, with both records; of 15 against 15 it is the differential."""
    of_both: Line = {"challenger_agent": "bob", "challenged_agent": "ann", "disputed_finding": "f"}
    of_eve: Line = {**of_both, "challenger_agent": "eve", "participants": ["ann", "eve"]}
    critical: Line = {**of_eve, "priority": "critical_path"}
    await know(
        harness,
        [
            finding("f", "ann", 1), *claims("ann", 15, 13), *claims("bob", 12, 9), *claims("eve", 15, 12),
            *debate("few", 4, **of_both), *debate("close", 4, **of_eve), *debate("critical", 4, **critical),
        ],
        settled=True,
    )  # fmt: skip
    await project(harness, places)
    async with memory_of(harness, "fay", Role.DEBATE_FACILITATOR) as memory:
        few, close, path = [await memory.find_precedents(key) for key in ("few", "close", "critical")]
    async with memory_of(harness) as memory:
        assert (await memory.find_precedents("few")).level2 is None, "an agent reads its own score alone"

    assert few.level2 is not None
    assert [(one.agent, one.decisions) for one in few.level2.records] == [("bob", 12), ("ann", 15)]
    assert (few.level2.eligible, few.level2.reason) == (False, "insufficient_decisions")
    assert any("insufficient decisions" in line for line in precedents_lines(few))
    assert close.level2 is not None
    assert (close.level2.eligible, close.level2.reason) == (False, "below_threshold")
    assert path.level2 is not None
    assert path.level2.reason == "critical_path"


async def test_a_search_that_fails_is_said(harness: MemoryHarness, places: Places) -> None:
    """The debate goes on: no error but that of a wrong argument or a missing right."""
    await know(harness, [company("MU"), *debate("old", 1), *debate("asked", 4), *pattern("known", "active", 0)])
    await project(harness, places)
    async with memory_of(harness) as memory:
        for wrong in ({"k": 0}, {"k": 51}, {"as_of": datetime(2026, 6, 1)}):  # noqa: DTZ001 - that is wrong
            with pytest.raises(BadInput):
                await memory.find_precedents("asked", **wrong)
        harness.rows("DROP TABLE recall.record_text CASCADE")
        found = await memory.find_precedents("asked")
        assert (found.available, found.items) == (False, [])
        assert (found.reason or "").startswith("precedents unavailable: ")
        assert [one.pattern_id for one in found.patterns] == ["known"]
    settings = harness.of().model_copy(update={"postgres_url": SecretStr("postgresql://x@127.0.0.1:1/none")})
    async with Memory.open(settings) as memory:
        found = await memory.find_precedents("asked")
        assert (found.available, found.as_of) == (False, None)
        assert precedents_lines(found)[-1].startswith("Incomplete: precedents unavailable: ")


async def test_the_budget_is_kept(harness: MemoryHarness, places: Places) -> None:
    """Without an encoder words answer; where Postgres does not answer, the budget ends the wait."""
    await know(harness, [company("MU"), *debate("old", 1), *debate("asked", 4)])
    await project(harness, places)
    places.away = True
    async with memory_of(harness) as memory:
        found = await memory.find_precedents("asked")
        assert (keys(found), found.available) == (["old"], True)
        assert "by words alone" in (found.reason or "")
        with psycopg.connect(harness.admin_url) as blocking:
            blocking.execute("LOCK TABLE record_history IN ACCESS EXCLUSIVE MODE")
            began = monotonic()
            found = await memory.find_precedents("asked", deadline_ms=300)
            took_s = monotonic() - began
        assert (found.available, found.items) == (False, [])
        assert (found.reason or "").startswith("precedents unavailable: ")
        assert took_s < 5.0


def of_the_desk(line: Line) -> bool:
    """Return whether precedents of the desk's debates depend on a line."""
    return line.get("record") in {"Company", "Debate", "DebateResolution", "Outcome"} or (
        line.get("record") == "Finding" and line["core"]["agent"] in {"bull_researcher", "trader"}
    )


@pytest.mark.spec("DB-15")
async def test_the_trading_desk(harness: MemoryHarness, places: Places) -> None:
    """
    All 264 debates: judged, none of them eligible for level 2, and no precedent is of the same moment or later.

    Of the 110 run-days with an earlier debate of the same company, each finds one.
    """
    with gzip.open(DESK, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    kept = [{name: one for name, one in line.items() if name not in {"turns", "body"}} for line in lines]
    await know(harness, filter(of_the_desk, kept), settled=True)
    await project(harness, places)
    debates = {line["core"]["id"]: line for line in kept if line.get("record") == "Debate"}
    states = harness.rows(
        "SELECT payload #>> '{groups,state,state}' AS state, payload #>> '{groups,state,resolution_method}' AS method, "
        "count(*) AS n FROM event WHERE kind = 'record.Debate' GROUP BY 1, 2"
    )
    assert states == [{"state": "closed", "method": "judged", "n": 264}]
    answers: dict[str, Precedents] = {}
    async with memory_of(harness, "fay", Role.DEBATE_FACILITATOR) as memory:
        wanted = sorted(debates)
        for start in range(0, len(wanted), 4):
            found = await asyncio.gather(*(memory.find_precedents(key) for key in wanted[start : start + 4]))
            answers |= dict(zip(wanted[start : start + 4], found, strict=True))

    earlier = 0
    for key, answer in answers.items():
        opened, subject = (debates[key]["core"][name] for name in ("timestamp", "subject_id"))
        assert (answer.available, answer.reason) == (True, None)
        assert all(one.opened_at < datetime.fromisoformat(opened) for one in answer.items)
        assert all(debates[one.debate_id]["known_at"] < debates[key]["known_at"] for one in answer.items)
        assert answer.level2 is not None
        assert (answer.level2.eligible, answer.level2.reason) == (False, "insufficient_decisions")
        before = {
            other["core"]["id"] for other in debates.values()
            if other["core"]["subject_id"] == subject and other["known_at"] < debates[key]["known_at"]
        }  # fmt: skip
        if key.endswith("/research") and before:
            earlier += 1
            assert before & set(keys(answer)), key
            assert answer.items[0].debate_id in before
    assert earlier == 110


async def test_the_command(harness: MemoryHarness, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each, JSON for programs; 0 done, 2 wrong usage."""
    await know(harness, [company("MU"), *debate("old", 1), resolution("r", 1, of="old"), *debate("asked", 4)])
    await project(harness, places)
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of("ann"))

    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, ["precedents", *arguments])

    done, as_json, wrong = await run("asked"), await run("asked", "--json"), await run("asked", "-k", "0")

    assert done.exit_code == 0, done.output
    assert '"bob" challenged "ann": "Have gross margins peaked?" → "bob" won: "They have."' in done.output
    assert [one["debate_id"] for one in json.loads(as_json.output)["items"]] == ["old"]
    assert wrong.exit_code == 2
