"""The processes themselves: agents run by a worker of their own, managed by another, killed and resumed."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator
from imem.checkpoints.pauses.pipelines import MANAGE
from imem.journal.settings import Settings
from imem.local.workers import standard
from imem.services.pauses import sender
from imem.workers.celery_app import QUEUE, make_app
from tests.servers import in_database
from tests.waiting import until
from tests.workers import process

from .world import PERSON, World, soon


@pytest.fixture
def settings(world: World, light_stack: Any, home: Path) -> Settings:
    given: Settings = light_stack.settings
    return given.model_copy(
        update={
            "home": home,
            **in_database(given, world.url),
            "neo4j_url": "bolt://127.0.0.1:1",
            "agent_programs": "tests.checkpoints.pauses.programs",
            "agent_processes": 2,
            "archive_checkpoints": True,
        }
    )


@pytest.mark.spec("CK-38")
async def test_an_analysis_runs_is_killed_paused_and_resumed(world: World, settings: Settings) -> None:
    """The agents' worker is killed in the middle: one alert, one pause; in the end every subtask was done once."""
    app = make_app(settings)
    orchestrator = CeleryOrchestrator(world.database, world.definitions, sender(app))

    async def manage() -> None:
        """Ask for a manager's round, as beat does every few seconds."""
        await asyncio.to_thread(app.send_task, MANAGE.name, queue=QUEUE, ignore_result=True, expires=5)

    async def status() -> str:
        return (await orchestrator.get_workflow_state("a-1", deadline=soon())).status

    async def subtasks() -> list[tuple[str, str]]:
        # In the end its rows go, and the archive keeps a copy of each.
        found = await world.rows(
            "SELECT agent_type, subtask FROM workflow.agent_checkpoints WHERE kind = 'subtask' UNION ALL "
            "SELECT agent_type, subtask FROM workflow.agent_checkpoints_archive WHERE kind = 'subtask'"
        )
        return sorted((row["agent_type"], row["subtask"]) for row in found)

    async def begun() -> bool:
        return len(await subtasks()) >= 2

    async def paused() -> bool:
        await manage()
        return await status() == "PAUSED"

    async def all_done() -> bool:
        await manage()
        return set((await orchestrator.get_workflow_state("a-1", deadline=soon())).agents.values()) == {"COMPLETED"}

    async with process("celery", settings):
        async with process("agents", settings, killed=True) as agents:
            names = {"screening": "scr-1", "news_monitor": "new-1"}
            await orchestrator.start_analysis("a-1", "company:MU", names, deadline=soon())
            await until(begun)
            os.killpg(agents.pid, signal.SIGKILL)
            await agents.wait()
        done = await subtasks()
        await world.later(timedelta(seconds=40))
        await until(paused)
        assert await world.alerts() == ["AGENT_FAILURE"]
        await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
        async with process("agents", settings):
            await until(all_done)

    wanted = [(kind, name) for kind in ("news_monitor", "screening") for name in world.definitions.of_type(kind).names]
    assert await subtasks() == sorted(wanted)
    assert set(done) < set(wanted)
    assert len(await world.rows("SELECT FROM workflow.paused_analyses")) == 1


def test_agents_have_a_worker_where_there_are_programs(settings: Settings) -> None:
    assert [worker.name for worker in standard(settings)][-1] == "agents"
    assert "agents" not in {worker.name for worker in standard(settings.model_copy(update={"agent_programs": None}))}
