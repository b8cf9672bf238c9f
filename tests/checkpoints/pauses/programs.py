"""Programs of agents, as a user's module registers them."""

from __future__ import annotations

import asyncio

from imem.checkpoints.orchestration.programs import AgentRun, program
from tests.checkpoints.pauses.delivered import deliver


async def work(run: AgentRun) -> None:
    """Complete what is left, with a safe point after each; a subtask takes a moment."""
    for name in run.session.pending:
        await asyncio.sleep(0.3)
        await run.session.memory.set(f"done:{name}", "yes")
        await deliver(run.session, name)
        await run.session.complete(name)
        await run.safe_point()


program("screening")(work)
program("news_monitor")(work)
