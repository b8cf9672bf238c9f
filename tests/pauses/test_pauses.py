"""Orders and sagas: what a pause leaves, who wins, and what is refused."""

from __future__ import annotations

import pytest

from journal.errors import TransitionRefused

from .conftest import PERSON, World, soon


async def test_a_pause_and_a_resume(world: World) -> None:
    """One order each; in between nothing of the analysis starts, and its memory is proven in two places."""
    lease = await world.begin("a-1")
    before = await world.memory(lease)
    await world.release(lease)

    paused = await world.pauses.pause_analysis("company:MU", "Odd figures.", by=PERSON, deadline=soon())

    assert (paused.status, paused.new) == ("PAUSED", True)
    assert await world.alerts() == ["ANALYSIS_PAUSED"]
    with pytest.raises(TransitionRefused, match="paused since"):
        await world.begin("a-1")
    resumed = await world.pauses.resume_analysis("company:MU", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    assert resumed.plan.to_dict() == {"restart": {"business_research": "checkpoint"}, "skip": [], "wait": []}
    assert await world.memory(lease) == before
    assert await world.alerts() == ["ANALYSIS_PAUSED", "ANALYSIS_RESUMED"]
    state = await world.pauses.get_pause_state("company:MU", deadline=soon())
    assert state.status is None
    assert state.pause is not None
    assert state.pause.status == "RESUMED"
