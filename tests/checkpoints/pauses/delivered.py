"""What the subtasks of tests deliver: a result where a store keeps one, and the word that there is none elsewhere."""

from __future__ import annotations

from typing import Any

from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.result_delivery import NO_RESULT
from imem.checkpoints.session import Session


def results(agent_type: str, subtask: str) -> dict[str, Any]:
    """Return something for each store that the shipped definition names."""
    stores = Definitions.read().of_type(agent_type).subtask(subtask).stores
    keeping = {Location.POSTGRES, Location.CACHE}
    return {store.value: {"of": subtask} if store in keeping else NO_RESULT for store in stores}


async def deliver(session: Session, subtask: str) -> None:
    """Deliver what the definition wants of a subtask, if it wants something."""
    if said := results(session.lease.agent_type, subtask):
        await session.deliver(subtask, **said)
