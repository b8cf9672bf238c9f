"""REST as a process of the stack: it is started with it, waits for its port, and ends in order."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.identity.tokens import Tokens
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.local.servers.server import free_port
from imem.local.state import ChildState
from imem.local.supervisor import LocalStack
from imem.local.workers import SERVE, Worker, standard
from tests.imem.ingest.conftest import TOP, LoadHarness
from tests.imem.local.programs import until

ATTACK = """
import asyncio, sys
from imem.journal.errors import ImemError
from imem.memory import Memory
from tests.imem.ingest.test_memory import analysis, finding

async def attack():
    async with Memory.connect(sys.argv[1], sys.stdin.read()) as memory:
        await memory.record_analysis(analysis())
        performed = memory.link("PERFORMED", ("Agent", "bob"), ("Analysis", "a"))
        for attempt in (memory.record_finding(finding("bob")), memory.tasks.list(), performed):
            try:
                await attempt
                print("done")
            except ImemError as error:
                print(type(error).__name__)

asyncio.run(attack())
"""


def served(harness: LoadHarness, home: Path, port: int) -> tuple[Settings, Worker]:
    """Return settings of a stack in *home* whose servers are elsewhere, and its process of REST."""
    settings = harness.having(home=home, serve_port=port).settings
    [worker] = [one for one in standard(settings) if one.name == SERVE]
    return settings, worker


def child(stack: LocalStack) -> ChildState:
    return stack.state.children.get(SERVE, ChildState())


@pytest.fixture
def token(harness: LoadHarness) -> str:
    """A token of the agent Ann."""
    url = harness.settings.postgres_curator_url
    assert url is not None

    async def made() -> str:
        database = Database(url.get_secret_value(), size=1)
        try:
            tokens = Tokens(Gateway(database, Actor("root", Role.HUMAN_ADMIN)))
            return (await tokens.create("ann", Role.AGENT, deadline=Deadline.after_ms(30_000))).secret
        finally:
            await database.close()

    return asyncio.run(made())


@pytest.mark.spec("IF-7")
def test_a_process_with_a_token_of_another_agent_is_that_agent(harness: LoadHarness, home: Path, token: str) -> None:
    """Who holds Ann's token may do what Ann may, and speaks for nobody else; the server then ends in order."""
    settings, worker = served(harness, home, free_port())
    with LocalStack(settings, servers=(), workers=[worker]) as stack:
        assert (child(stack).state, child(stack).port) == ("ready", worker.port)
        address = f"http://127.0.0.1:{worker.port}"
        assert httpx2.get(f"{address}/healthz").json() == {"status": "alive"}
        assert httpx2.get(f"{address}/metrics").status_code == 401
        attacker = subprocess.run(
            [sys.executable, "-c", ATTACK, address],
            # Nothing but the address and the token: the process knows no store.
            env={"PYTHONPATH": str(TOP), "PATH": os.environ["PATH"]},
            cwd=TOP, input=token, capture_output=True, text=True, check=True,
        )  # fmt: skip
        process = stack._supervisor._children[SERVE].process
    assert attacker.stdout.split() == ["PermissionDenied"] * 3
    assert harness.rows("SELECT DISTINCT actor FROM event") == [("ann",)]
    denied = "SELECT count(*) FROM memory_access_audit WHERE actor_id = 'ann' AND outcome = 'denied'"
    assert harness.rows(denied) == [(3,)]
    assert process.returncode == 0, "it was not killed"


def test_a_port_that_another_program_holds_ends_nothing(harness: LoadHarness, home: Path) -> None:
    """The table says so, the start is over without it, and it is served once the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings, worker = served(harness, home, other.getsockname()[1])
        stack = LocalStack(settings, servers=(), workers=[worker]).start()
        try:
            assert child(stack).state == "waiting"
            assert f"another program holds port {worker.port}" in child(stack).note
            assert (stack.state.ready, stack.state.unready) == (True, ())
            other.close()
            until(lambda: child(stack).state == "ready", "it is served")
            assert child(stack).note == ""
            assert json.loads(httpx2.get(f"http://127.0.0.1:{worker.port}/readyz").content)["ready"]
        finally:
            stack.stop()


def test_no_port_is_no_process(harness: LoadHarness) -> None:
    assert SERVE not in {one.name for one in standard(harness.having(serve_port=0).settings)}
