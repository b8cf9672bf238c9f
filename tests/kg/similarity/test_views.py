"""Materialised views: whole or as before, with their age, and without what may not be seen any more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from imem.cli import app
from imem.credibility.settling import settle_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, StatementRejected, UnknownSubject
from imem.journal.gateway import Gateway
from imem.journal.modes import Mode
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.engine import Graph
from imem.kg.views import BUILDS, View, build, rebuild
from imem.memory import Memory
from imem.recall.brief import Recall
from imem.recall.model import Completeness, Quality
from imem.recall.request.context import RecallDependencies
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.sections.patterns import load_from_view
from imem.recall.subjects import PRESENT
from imem.recall.views import row_of
from tests.kg.similarity.conftest import NEVER, SimilarityHarness, analysis, company, day
from tests.servers import in_database


def pattern(key: str, status: str, known: float = 0, *, sector: str | None = None, rate: float = 0.5) -> dict[str, Any]:
    core = {"pattern_id": key, "name": key.upper(), "category": "c"}
    return {
        "record": "Pattern", "known_at": day(known).isoformat(), "core": core | ({"sector": sector} if sector else {}),
        "groups": {"status": {"status": status, "quarantined": False},
                   "performance": {"success_rate": rate, "occurrence_count": 3}},
    }  # fmt: skip


def claims() -> list[dict[str, Any]]:
    core = {
        "id": "f", "analysis_id": "a1", "subject_id": "company:A", "agent": "ann", "domain": "d", "statement": "Up.",
        "direction": "positive", "metric": "return_5s", "target_at": day(5).isoformat(),
    }  # fmt: skip
    outcome = {
        "id": "o", "subject_id": "company:A", "metric": "return_5s", "target_at": day(5).isoformat(), "actual": 0.1,
        "observed_at": day(6).isoformat(), "vintage": 0,
    }  # fmt: skip
    return [
        {"record": "Finding", "known_at": day(1).isoformat(), "core": core},
        {"record": "Outcome", "known_at": day(6).isoformat(), "core": outcome},
    ]


class Plain(Recall):
    """Finds no subject by another name, and asks no server how it is."""

    async def subject(self, subject: str, at: AsOf = PRESENT, *, deadline: Deadline) -> str:
        assert at is PRESENT
        assert not deadline.passed
        return subject

    async def mode_now(self, deadline: Deadline) -> Mode:
        assert not deadline.passed
        return Mode.NORMAL


async def row(harness: SimilarityHarness, name: str, key: str, actor: Actor | None = None) -> View | None:
    sources = cast("RecallDependencies", SimpleNamespace(gateway=Gateway(harness.database, harness.gateway.actor)))
    return await row_of(Plain(sources, actor or harness.gateway.actor), name, key, deadline=NEVER)


async def read(harness: SimilarityHarness, name: str, key: str, actor: Actor | None = None) -> View:
    found = await row(harness, name, key, actor)
    assert found is not None
    return found


@pytest.fixture
async def told(harness: SimilarityHarness) -> SimilarityHarness:
    await harness.say(
        company("A", sector="energy", size_class="small", name="Aleph"), company("B", sector="energy"),
        company("C", sector="banks"),
        analysis("a1", "company:A", "Old.", day(1), recommendation="sell"),
        analysis("a2", "company:A", "New.", day(3), recommendation="buy", confidence=0.7),
        analysis("b1", "company:B", "One.", day(2)),
        pattern("p1", "active", rate=0.6), pattern("p2", "active", rate=0.9), pattern("p3", "candidate"),
        pattern("p4", "active", sector="energy"),
        *claims(),
    )  # fmt: skip
    await settle_due(
        harness.pipelines, Gateway(harness.pipelines, harness.gateway.actor), halflife_years=2.0, until=NEVER
    )
    return harness


async def test_what_they_hold(told: SimilarityHarness) -> None:
    made = await rebuild(told.pipelines, deadline=NEVER)
    assert made == {"top_patterns": 2, "agent_credibility": 1, "company_summaries": 2, "peer_comparisons": 1}
    assert [one["pattern_id"] for one in (await read(told, "top_patterns", "*")).value] == ["p2", "p1"]
    assert [one["pattern_id"] for one in (await read(told, "top_patterns", "energy")).value] == ["p4"]
    summary = (await read(told, "company_summaries", "company:A")).value
    assert {name: summary[name] for name in ("name", "analyses", "newest_analysis", "recommendation", "findings")} == {
        "name": "Aleph", "analyses": 2, "newest_analysis": "a2", "recommendation": "buy", "findings": 1,
    }  # fmt: skip
    peers = (await read(told, "peer_comparisons", "energy")).value
    assert [(one["subject_id"], one["analyses"]) for one in peers] == [("company:A", 2), ("company:B", 1)]
    [record] = (await read(told, "agent_credibility", "ann")).value
    assert (record["domain"], record["observations"], record["correct"]) == ("d", 1, 1)
    found = await read(told, "company_summaries", "company:NONE")
    assert found.value is None
    assert found.source_seq == (await told.rows("SELECT max(position) AS p FROM event"))[0]["p"]
    assert 0 <= found.age_s < 60


async def test_people_and_programs_read_them(
    told: SimilarityHarness, light_stack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through Memory a subject goes by any name that it has, an agent sees its own record alone; the command prints."""
    graph = {"neo4j_url": "bolt://127.0.0.1:1", "neo4j_password": SecretStr("x")}
    given = {**in_database(light_stack.settings, told.url), **graph}
    settings = light_stack.settings.model_copy(update={**given, "actor": "ann", "role": Role.AGENT})
    async with Memory.open(settings) as memory:
        assert await memory.view("top_patterns", "energy") is None
        await rebuild(told.pipelines, deadline=NEVER)
        summary = await memory.view("company_summaries", "A")
        assert summary is not None
        assert (summary.key, summary.value["newest_analysis"]) == ("company:A", "a2")
        own, sector = await memory.view("agent_credibility", "ann"), await memory.view("top_patterns", "nowhere")
        assert own is not None
        assert sector is not None
        assert (own.value[0]["domain"], sector.value) == ("d", None)
        with pytest.raises(PermissionDenied):
            await memory.view("agent_credibility", "bob")
        with pytest.raises(UnknownSubject):
            await memory.view("company_summaries", "nobody")
        with pytest.raises(BadInput, match="deadline_ms"):
            await memory.view("top_patterns", "energy", deadline_ms=9)

    for name in (
        "postgres_url",
        "postgres_curator_url",
        "valkey_working_url",
        "valkey_durable_url",
        "valkey_cache_url",
    ):
        monkeypatch.setenv(f"IMEM_{name.upper()}", getattr(settings, name).get_secret_value())
    monkeypatch.setenv("IMEM_NEO4J_URL", "bolt://127.0.0.1:1")
    monkeypatch.setenv("IMEM_HOME", str(tmp_path))
    run = CliRunner().invoke
    done = await asyncio.to_thread(run, app, ["view", "company_summaries", "A"])
    none = await asyncio.to_thread(run, app, ["view", "top_patterns", "nowhere"])
    assert json.loads(done.stdout)["value"] == summary.value
    assert (done.exit_code, none.exit_code) == (0, 1)


async def test_a_withdrawn_pattern_is_gone_at_once(told: SimilarityHarness) -> None:
    """The view is not made anew, and the answer is right all the same."""
    await rebuild(told.pipelines, deadline=NEVER)
    await told.say(pattern("p2", "deprecated", 9, rate=0.9))
    assert [one["pattern_id"] for one in (await read(told, "top_patterns", "*")).value] == ["p1"]


async def test_the_view_stands_in_where_the_time_is_over(told: SimilarityHarness) -> None:
    """The best of the sector and of none, labelled, without what was withdrawn since; as of a day it knows nothing."""

    def ask(asked: datetime | None = None) -> RetrievalRequest:
        at = AsOf(asked or datetime.now(UTC), asked=asked)
        return RetrievalRequest("company:A", at, told.gateway.database, cast("Graph", None), NEVER, Limits(), 2.0)

    async def shown(question: RetrievalRequest) -> list[str]:
        section = await load_from_view(question)
        assert (section.quality, section.completeness) == (Quality.PARTIAL, Completeness.TOP_N)
        return [item.key for item in section.items]

    assert await shown(ask()) == ["p2", "p1", "p4"], "never made: by the journal"
    await rebuild(told.pipelines, deadline=NEVER)
    await told.say(pattern("p9", "active", 8, rate=0.99), pattern("p2", "deprecated", 9, rate=0.9))
    assert await shown(ask()) == ["p1", "p4"], "p9 is in the next making"
    assert "read from a view" in str((await load_from_view(ask())).reason)
    assert await shown(ask(day(7))) == ["p2", "p1", "p4"]


async def test_a_making_that_fails_leaves_the_old_one(told: SimilarityHarness) -> None:
    """The others are made; readers of the broken one get what was there, with its age."""
    await rebuild(told.pipelines, deadline=NEVER)
    before = {name: await read(told, name, "company:A") for name in BUILDS}
    told.owner("ALTER TABLE view_row ADD CONSTRAINT broken CHECK (name <> 'company_summaries') NOT VALID")
    await told.say(analysis("a3", "company:A", "Newest.", day(8)))
    with pytest.raises(StatementRejected):
        await rebuild(told.pipelines, deadline=NEVER)
    for name in BUILDS:
        after = await read(told, name, "company:A")
        if name == "company_summaries":
            assert replace(after, age_s=0.0) == replace(before[name], age_s=0.0)
        else:
            assert after.version > before[name].version


async def test_readers_see_one_version_or_the_other(told: SimilarityHarness) -> None:
    """While a view is being made, and after its maker was killed, the old one is read; rows of no version stay."""
    await rebuild(told.pipelines, deadline=NEVER)
    before = await read(told, "company_summaries", "company:A")
    await told.say(analysis("a3", "company:A", "Newest.", day(8)))
    with psycopg.connect(told.admin_url) as conn:
        conn.execute("LOCK TABLE view_current IN EXCLUSIVE MODE")
        with pytest.raises(Exception, match="deadline"):
            await build(told.pipelines, "company_summaries", deadline=NEVER.within_ms(300))
        assert (await read(told, "company_summaries", "company:A")).version == before.version
    assert (await told.rows("SELECT count(DISTINCT version) AS n FROM view_row WHERE name = 'company_summaries'")) == [
        {"n": 1}
    ]
    await build(told.pipelines, "company_summaries", deadline=NEVER)
    assert (await read(told, "company_summaries", "company:A")).value["analyses"] == 3


async def test_who_may_read_what(told: SimilarityHarness) -> None:
    """An agent sees its own record alone; a view that was never made is none; a name that is none is said."""
    assert await row(told, "top_patterns", "*") is None
    await rebuild(told.pipelines, deadline=NEVER)
    ann = Actor("ann", Role.AGENT)
    assert (await read(told, "agent_credibility", "ann", ann)).value is not None
    with pytest.raises(PermissionDenied):
        await read(told, "agent_credibility", "bob", ann)
    with pytest.raises(BadInput):
        await read(told, "everything", "x")
