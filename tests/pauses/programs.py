"""Programs of agents, as a user's module registers them; what they need the worker lends."""

from __future__ import annotations

import asyncio

from cache.changes import put
from cache.document import digest, document_of
from checkpoints.model import Kind
from checkpoints.programs import AgentRun, program
from journal.deadline import Deadline


def soon() -> Deadline:
    return Deadline.after_ms(20_000)


async def work(run: AgentRun) -> None:
    """Complete what is left, with a checkpoint and a safe point after each; a subtask takes a moment."""
    stores = run.tools.pausing.stores
    for name in run.pending:
        await asyncio.sleep(0.3)
        await stores.working.write(run.lease.agent_id, run.lease.epoch, [put(f"done:{name}", "yes")], deadline=soon())
        meta, contents = await stores.working.read(run.lease.agent_id, epoch=run.lease.epoch, deadline=soon())
        found = digest(contents)
        saved = await stores.checkpoints.save(
            run.lease, kind=Kind.SUBTASK, subtask=name, document=document_of(contents), digest=found, deadline=soon()
        )
        await stores.working.mark(
            run.lease.agent_id, run.lease.epoch, seq=saved.seq, digest=found, rev=meta.rev, deadline=soon()
        )
        await run.safe_point()


program("screening")(work)
program("news_monitor")(work)
