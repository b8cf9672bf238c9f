"""``imem reflections``: what it prints, and with which exit code it ends."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from tests.imem.memory.conftest import MemoryHarness

from .conftest import Desk, reflect


async def test_on_the_command_line(
    harness: MemoryHarness, desk: Desk, pipelines: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text for people, JSON for programs; 0 done, 1 denied, 2 wrong usage."""
    await desk.trades(10)
    await reflect(harness, pipelines)
    actor = ["kate", Role.HUMAN_ADMIN]
    monkeypatch.setattr(Settings, "read", lambda *_, **__: harness.of(*actor))  # type: ignore[arg-type]

    async def run(*words: str, code: int = 0) -> str:
        # In a thread, as it has an event loop of its own.
        done = await asyncio.to_thread(CliRunner().invoke, app, ["reflections", *words])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    [note] = json.loads(await run("show", desk.name, "--json"))
    assert (note["deployment_id"], note["status"], note["trades_considered"]) == (desk.name, "active", 10)
    lines = (await run("show", desk.name)).splitlines()
    assert note["id"] in lines[0]
    assert lines[1].strip().startswith("All closed trades: 10 trades")
    assert await run("show", desk.name, "--as-of", "2020-01-01") == "There is no note.\n"
    assert "## Reflection on closed trades" in await run("show", desk.name, "--prompt")
    promoted = json.loads(await run("promote", note["id"], "--json"))["id"]
    assert (await run("promote", note["id"])) == f"Promoted as {promoted}.\n"
    await run("promote", "x", code=2)
    await run("promote", promoted, code=2)
    actor[:] = ["bob", Role.AGENT]
    await run("show", desk.name, code=1)
    await run("promote", note["id"], code=1)
