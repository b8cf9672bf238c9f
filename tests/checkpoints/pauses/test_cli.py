"""What people type: orders, lists, batches with progress, and exit codes."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from imem import commands
from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.cli import app
from imem.commands.pauses import PLAN_CHARS
from imem.journal.errors import PermissionDenied, TransitionRefused
from imem.services.pauses import PauseCommands

from .world import World, soon


@pytest.fixture(name="imem")
def command(world: World, light_stack: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line as a person, in a thread: each has an event loop of its own."""
    settings = light_stack.settings
    for name in ("working", "durable", "cache"):
        url = getattr(settings, f"valkey_{name}_url").get_secret_value()
        monkeypatch.setenv(f"IMEM_VALKEY_{name.upper()}_URL", url)
    monkeypatch.setenv("IMEM_POSTGRES_URL", world.url)
    monkeypatch.setenv("IMEM_POSTGRES_ADMIN_URL", world.admin_url)
    monkeypatch.setenv("IMEM_NEO4J_URL", "bolt://127.0.0.1:1")
    monkeypatch.setenv("IMEM_NEO4J_PASSWORD", "unused")
    monkeypatch.setenv("IMEM_HOME", str(settings.home))
    monkeypatch.setenv("IMEM_ACTOR", "priya")
    # As the command itself does it: its own words speak, logs below an error do not.
    monkeypatch.setattr(commands, "is_command", True)

    async def run(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, list(words))

    yield run
    structlog.reset_defaults()


async def have(world: World, *names: str) -> None:
    for name in names:
        await world.release(await world.begin(name, stock_id=f"company:{name}"))


async def test_a_pause_from_beginning_to_end(world: World, imem: Any) -> None:
    """By stock or by analysis; the list says why and what happens next; every order is the actor's."""
    await have(world, "a-1")

    paused = await imem("pause", "company:a-1", "--reason", "Odd figures.")
    assert paused.exit_code == 0, paused.output
    assert "a-1 of company:a-1  PAUSED  since" in paused.output
    assert "MANUAL by priya: Odd figures." in paused.output
    assert "unless resumed: stale" in paused.output
    listed = json.loads((await imem("pauses", "--json")).output)
    assert [(one["analysis_id"], one["status"], one["created_by"]) for one in listed] == [("a-1", "PAUSED", "priya")]
    until = (await world.pause_row("a-1"))["pause_timestamp"] + timedelta(days=20)
    extended = await imem("extend", "a-1", "--until", until.isoformat(), "--reason", "Leave.", "--json")
    assert json.loads(extended.output)["extended_until"] == until.isoformat()
    shown = json.loads((await imem("pauses", "show", "company:a-1", "--json")).output)
    assert (shown["status"], shown["pause"]["extension_reason"]) == ("PAUSED", "Leave.")

    resumed = await imem("resume", "a-1")
    assert resumed.exit_code == 0, resumed.output
    assert "RESUMED" in resumed.output
    assert "restarts: business_research (checkpoint)" in resumed.output
    assert (await imem("pauses")).output.strip() == "Nothing is paused."
    assert "RESUMED" in (await imem("pauses", "--all")).output


async def test_what_is_wrong_is_a_sentence_and_an_exit_code(world: World, imem: Any, tmp_path: Path) -> None:
    """2 for what was typed wrongly, 1 for what is refused; nothing was changed."""
    await have(world, "a-1")
    endless = tmp_path / "plan.json"
    endless.write_text("{" + " " * PLAN_CHARS + "}")
    for words in (
        ("pause", "company:XX", "--reason", "x"),
        ("pause", "a-1", "--reason", " "),
        ("resume",),
        ("resume", "a-1", "--cause", "abc"),
        ("resume", "a-1", "--plan", "{"),
        ("resume", "a-1", "--plan", "[]"),
        ("resume", "a-1", "--plan", "[" * 10_000),
        ("resume", "a-1", "--plan", f"@{endless}"),
        ("extend", "a-1", "--until", "soon", "--reason", "x"),
        ("pauses", "batches", "17"),
        ("resume", "--cause", "0123456789"),
    ):
        result = await imem(*words)
        assert result.exit_code == 2, (words, result.output, result.exception)
    for line in ("resume a-1", "extend a-1 --until 2027-01-01 --reason x"):
        result = await imem(*line.split())
        assert isinstance(result.exception, TransitionRefused), (line, result.output)
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert (await imem("pause", "a-1", "--reason", "x")).exit_code == 0
    result = await imem("resume", "a-1", "--plan", '{"restart": ["astrologer"]}')
    assert result.exit_code == 2
    assert "takes no part" in result.output


async def test_an_agent_may_not_order_a_pause(world: World, imem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One denial row, and nothing else."""
    await have(world, "a-1")
    monkeypatch.setenv("IMEM_ROLE", "agent")

    result = await imem("pause", "a-1", "--reason", "x")

    assert isinstance(result.exception, PermissionDenied)
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    (row,) = await world.rows("SELECT action, authorized FROM memory_access_audit WHERE resource_type = 'workflow'")
    assert row == {"action": "pause", "authorized": False}


async def test_an_order_that_is_still_under_way_ends_with_three(world: World, imem: Any) -> None:
    """The agent has not stopped: the workers go on with it."""
    await world.begin("a-1")

    result = await imem("pause", "a-1", "--reason", "x", "--wait", "0")

    assert result.exit_code == 3, result.output
    assert "PAUSING" in result.output


async def test_a_batch_shows_how_it_goes(world: World, imem: Any) -> None:
    names = ["a-1", "a-2", "a-3"]
    await have(world, *names)

    paused = await imem("pause", *names, "--reason", "All.", "--limit", "2", "--json")
    assert paused.exit_code == 0, paused.output
    assert json.loads(paused.output)["paused"] == 3
    resumed = await imem("resume", *(f"company:{name}" for name in names))
    assert resumed.exit_code == 0, resumed.output
    assert "COMPLETED: 3 of 3 through, 0 failed" in resumed.output
    listed = json.loads((await imem("pauses", "batches", "--json")).output)
    assert [one["operation"] for one in listed] == ["resume", "pause"]
    one = json.loads((await imem("pauses", "batches", listed[0]["batch_id"], "--json")).output)
    assert set(one["members"]) == set(names)


async def test_a_cause_that_is_over_and_a_pause_that_is_given_up(world: World, imem: Any) -> None:
    lease = await world.begin("a-1", stock_id="company:a-1")
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)
    await world.incidents.report("a-1", lease.agent_type, quota, deadline=soon())
    signature = (await world.failure())["signature"]
    await world.release(lease)
    await world.manager.round(deadline=soon())

    assert f"imem resume --cause {signature[:12]}" in (await imem("pauses", "show", "a-1")).output
    told = await imem("resume", "--cause", signature[:10])
    assert told.exit_code == 0, told.output
    assert "quota | api.example is over" in told.output
    for _ in range(3):
        await world.manager.round(deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "RESUMED"
    await imem("pause", "a-1", "--reason", "Again.")
    given_up = await imem("pauses", "cancel", "a-1", "--reason", "Enough.")
    assert given_up.output.strip() == "a-1 is given up."
    assert "EXPIRED" in (await imem("pauses", "show", "a-1")).output


async def test_a_batch_that_is_held_back_is_looked_at_now_and_then(
    world: World, imem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota is used up: nothing is launched, and nobody asks about it hundreds of times."""
    for name in ("a-1", "a-2"):
        await world.paused(name, stock_id=f"company:{name}")
    await have(world, "b-0", "b-1", "b-2")
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)
    for name in ("b-0", "b-1", "b-2"):
        await world.incidents.report(name, "business_research", quota, deadline=soon())
    looks, carry_out = [], PauseCommands.carry_out

    async def counted(self: PauseCommands, *given: Any, **named: Any) -> Any:
        looks.append(given)
        return await carry_out(self, *given, **named)

    monkeypatch.setattr(PauseCommands, "carry_out", counted)
    found = await imem("resume", "a-1", "a-2", "--wait", "0", "--json")

    assert found.exit_code == 3, found.output
    assert "quota" in json.loads(found.output)["held_back"]
    assert 0 < len(looks) <= 12
