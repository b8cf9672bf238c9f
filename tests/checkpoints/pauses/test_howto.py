"""The program of the how-to, as it stands there, run by the workers themselves to the end of its analysis."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator
from imem.checkpoints.pauses.pipelines import MANAGE
from imem.journal.settings import Settings
from imem.services.pauses import sender
from imem.workers.celery_app import QUEUE, make_app
from tests.waiting import until
from tests.workers import process

from .test_worker import settings
from .world import World, soon

__all__ = ["settings"]

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "run-your-own-agents.md"
SUBTASKS = ["sec_filing_parsing", "business_model_analysis", "swot_analysis", "moat_evaluation", "kpi_tracking"]


def program_of_the_how_to() -> str:
    """Return the program as the page shows it."""
    (found,) = re.findall(r"```python\n(# my_desk/programs\.py\n.*?)```", HOW_TO.read_text(), re.DOTALL)
    return str(found)


@pytest.mark.spec("CK-7")
async def test_the_program_of_the_how_to_runs_to_the_end(world: World, settings: Settings) -> None:
    """
    With the definitions that come with the program, through the real workers and the manager's rounds.

    The analysis ends succeeded without an alert; no checkpoint and no key is left, the results are, and the archive
    has a copy of each row.
    """
    folder = settings.home / "my_desk"
    folder.mkdir()
    (folder / "programs.py").write_text(program_of_the_how_to())
    settings = settings.model_copy(update={"agent_programs": "my_desk.programs"})
    app = make_app(settings)
    orchestrator = CeleryOrchestrator(world.database, world.definitions, sender(app))

    async def cleaned_up() -> bool:
        await asyncio.to_thread(app.send_task, MANAGE.name, queue=QUEUE, ignore_result=True, expires=5)
        (found,) = await world.rows("SELECT outcome, cleared_at FROM workflow.analysis")
        return found["outcome"] == "succeeded" and found["cleared_at"] is not None

    async with process("celery", settings), process("agents", settings, path=str(settings.home)):
        await orchestrator.start_analysis("a-1", "company:MU", {"business_research": "bus-1"}, deadline=soon())
        await until(cleaned_up)

    assert await world.alerts() == []
    assert await world.rows("SELECT FROM workflow.agent_checkpoints") == []
    assert await world.rows("SELECT FROM workflow.agent_leases") == []
    assert await world.keys("bus-1") == []
    assert [key for key in await world.durable_redis.keys("*") if b"bus-1" in key or b"checkpoint:" in key] == []
    delivered = await world.rows("SELECT subtask, nothing FROM workflow.agent_deliverable")
    assert {row["subtask"]: row["nothing"] for row in delivered} == {name: name == "swot_analysis" for name in SUBTASKS}
    kept = await world.rows("SELECT kind, subtask FROM workflow.agent_checkpoints_archive ORDER BY seq")
    assert [(row["kind"], row["subtask"]) for row in kept] == [
        ("start", None), *(("subtask", name) for name in SUBTASKS),
    ]  # fmt: skip
