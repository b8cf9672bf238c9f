"""Memory and the command line: who may synchronise what, with the original actors, and what people are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import BadInput, NotOpen, PermissionDenied
from imem.journal.events.entry import Tier
from imem.journal.settings import Role
from imem.kg.model import Finding
from imem.memory import Memory
from imem.sync.delivery.pusher import PushState
from imem.sync.snapshots import SnapshotOutcome
from imem.sync.synchronizer import SyncState

from .conftest import MemoryHarness


def finding(harness: MemoryHarness, agent: str = "ann", **named: Any) -> Finding:
    values = {"id": f"f-{agent}", "analysis_id": harness.analysis, "subject_id": "company:MU", "agent": agent}
    return Finding(**{**values, "domain": "margins", "statement": "Margins widen.", **named})


def a_debate(harness: MemoryHarness, challenger: str, challenged: str) -> None:
    harness.rows(
        "SELECT open_debate_v1('d-1', %s, imem_now() + interval '15 minutes', jsonb_build_object('topic', 'Margins',"
        " 'challenger', %s::text, 'challenged', %s::text), '{}', 'ann', 'agent', '{}')",
        harness.analysis, challenger, challenged,
    )  # fmt: skip


def other(harness: MemoryHarness) -> dict[str, Any]:
    return {**harness.names, "agent_type": "clerk"}


async def test_an_agent_publishes_pushes_and_another_pulls(harness: MemoryHarness) -> None:
    clerk = harness.agent_id.replace("reader", "clerk")
    async with (
        Memory.open(harness.of("ann")) as ann,
        Memory.open(harness.of("bob")) as bob,
        bob.session(clerk, **other(harness)) as theirs,
    ):
        async with ann.session(harness.agent_id, **harness.names) as session:
            await session.memory.publish(finding(harness, importance=0.9))
            [first] = await ann.push(harness.agent_id)
            [second] = await ann.push(harness.agent_id, [finding(harness, id="f-2", importance=0.9)], tier="critical")
            assert await ann.push(harness.agent_id) == []
            routed = await bob.route(first.position or 0)
        got = await bob.pull(clerk)
        knowledge = await bob.working(clerk).knowledge()
        assert await theirs.memory.keys() == []

    assert (first.state, second.state) == (PushState.DURABLE, PushState.DURABLE)
    assert [(one.agent_id, one.why) for one in routed] == [(clerk, "important")]
    assert [(one.key, one.tier, one.actor) for one in got.updates] == [
        ("f-ann", Tier.HIGH, "ann"),
        ("f-2", Tier.CRITICAL, "ann"),
    ]
    assert [one["key"] for one in knowledge] == ["f-ann", "f-2"]


async def test_an_agent_synchronises_itself_alone(harness: MemoryHarness) -> None:
    async with (
        Memory.open(harness.of("ann")) as ann,
        Memory.open(harness.of("eve")) as eve,
        ann.session(harness.agent_id, **harness.names) as session,
    ):
        await session.memory.publish(finding(harness))
        a_debate(harness, "ann", "somebody-else")
        for denied in (
            eve.push(harness.agent_id),
            eve.pull(harness.agent_id),
            eve.notices(harness.agent_id),
            eve.force_sync([harness.agent_id]),
            eve.snapshot("d-1"),
            eve.sync_gate(f"{harness.analysis}/3"),
            eve.working(harness.agent_id).published(),
            eve.working(harness.agent_id).knowledge(),
        ):
            with pytest.raises(PermissionDenied):
                await denied
        [own] = (await ann.force_sync([harness.agent_id], deadline_ms=1_500)).values()
        assert own.state is SyncState.DURABLE_NOT_VISIBLE

    assert len(harness.audited(authorized=False)) == 8


async def test_a_facilitator_opens_a_debate_that_all_read(harness: MemoryHarness) -> None:
    clerk = harness.agent_id.replace("reader", "clerk")
    async with (
        Memory.open(harness.of("ann")) as ann,
        Memory.open(harness.of("bob")) as bob,
        Memory.open(harness.of("fay", Role.DEBATE_FACILITATOR)) as fay,
        ann.session(harness.agent_id, **harness.names) as session,
        bob.session(clerk, **other(harness)),
    ):
        await session.memory.publish(finding(harness))
        a_debate(harness, "ann", "bob")
        taken = await fay.snapshot("d-1", deadline_ms=2_000)
        assert taken.snapshot_id is not None
        seen = [await memory.read_snapshot(taken.snapshot_id) for memory in (ann, bob, fay)]

    assert taken.outcome is SnapshotOutcome.TAKEN
    assert {one.sha256 for one in seen} == {taken.sha256}
    assert [row["actor"] for row in harness.rows("SELECT actor FROM event")] == ["ann"]


async def test_items_are_pushed_by_whoever_works_with_the_memory(harness: MemoryHarness) -> None:
    async with Memory.open(harness.of("ann")) as ann:
        async with ann.session(harness.agent_id, **harness.names):
            pass
        with pytest.raises(NotOpen, match="No session of this process"):
            await ann.push(harness.agent_id, [finding(harness)])
        for call, field in (
            ({"tier": 7}, "tier"),
            ({"tier": "soon"}, "tier"),
            ({"deadline_ms": 9}, "deadline_ms"),
        ):
            with pytest.raises(BadInput) as refused:
                await ann.push(harness.agent_id, **call)
            assert refused.value.field == field
        with pytest.raises(BadInput) as refused:
            await ann.push("nobody-at-all")
        assert refused.value.field == "agent_id"
        for wrong in (9, 2_001, "soon"):
            with pytest.raises(BadInput) as refused:
                await ann.force_sync([harness.agent_id], deadline_ms=cast("float", wrong))
            assert refused.value.field == "deadline_ms"
        for pull in ({"deadline_ms": 2001}, {"tiers": [9]}):
            with pytest.raises(BadInput):
                await ann.pull(harness.agent_id, **pull)


def test_the_same_without_an_event_loop(harness: MemoryHarness) -> None:
    with Memory.sync(harness.of("ann")) as ann, ann.session(harness.agent_id, **harness.names) as session:
        item = session.memory.publish(finding(harness))
        assert [one.id for one in session.memory.published()] == [item]
        [pushed] = ann.push(harness.agent_id)
        assert (pushed.item, pushed.state) == (item, PushState.DURABLE)
        assert ann.pull(harness.agent_id).updates == ()
        assert ann.notices(harness.agent_id) == []
        assert session.memory.knowledge() == []


# People


@contextmanager
def environment(harness: MemoryHarness, patch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CliRunner]:
    """Point the command line at the servers, as a person."""
    settings = harness.of("priya", Role.HUMAN_ADMIN)
    for name in (
        "postgres_url",
        "postgres_curator_url",
        "valkey_working_url",
        "valkey_durable_url",
        "valkey_cache_url",
    ):
        patch.setenv(f"IMEM_{name.upper()}", getattr(settings, name).get_secret_value())
    patch.setenv("IMEM_NEO4J_URL", "bolt://127.0.0.1:1")
    patch.setenv("IMEM_ACTOR", "priya")
    patch.setenv("IMEM_HOME", str(tmp_path))
    yield CliRunner()


@pytest.mark.spec("SY-14")
def test_people_are_shown_snapshots_and_what_is_behind(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clerk = harness.agent_id.replace("reader", "clerk")
    gate = f"{harness.analysis}/3"
    with (
        environment(harness, monkeypatch, tmp_path) as runner,
        Memory.sync(harness.of("ann")) as ann,
        Memory.sync(harness.of("bob")) as bob,
        Memory.sync(harness.of("fay", Role.DEBATE_FACILITATOR)) as fay,
        ann.session(harness.agent_id, **harness.names) as session,
        bob.session(clerk, **other(harness)),
    ):
        session.memory.publish(finding(harness))
        a_debate(harness, "ann", "bob")
        taken = fay.snapshot("d-1", deadline_ms=2_000)
        harness.rows(
            "INSERT INTO workflow.gate_opening VALUES (%s, 3, imem_now() + interval '1 hour')", harness.analysis
        )
        shown = runner.invoke(app, ["snapshot", "show", str(taken.snapshot_id)])
        as_json = runner.invoke(app, ["snapshot", "show", str(taken.snapshot_id), "--json"])
        none_yet = runner.invoke(app, ["sync", "gate", gate, "--last"])
        behind = runner.invoke(app, ["sync", "gate", gate])
        last = runner.invoke(app, ["sync", "gate", gate, "--last", "--json"])
        wrong = runner.invoke(app, ["sync", "gate", "no-gate"])
        unknown = runner.invoke(app, ["snapshot", "show", "no-id"])

    assert shown.exit_code == 0, shown.output
    assert f"SHA-256 {taken.sha256}" in shown.output
    assert "Finding/f-ann v" in shown.output
    assert "(not in the graph then)" in shown.output
    assert json.loads(as_json.output)["sha256"] == taken.sha256
    assert "no report of that gate yet" in none_yet.output
    assert behind.exit_code == 3, behind.output
    assert "lag 1: 1 not in the graph" in behind.output
    assert json.loads(last.output)["consistent"] is False
    assert (wrong.exit_code, unknown.exit_code) == (2, 2)
