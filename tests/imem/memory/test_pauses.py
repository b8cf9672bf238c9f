"""Pausing and resuming from Python: for people, with and without an event loop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused
from imem.journal.settings import Role
from imem.memory import Memory

from .conftest import House


def worked(house: House) -> None:
    """Leave an analysis that runs, one subtask done and nobody at work."""
    with Memory.sync(house.of()) as memory, memory.session(house.agent_id, **house.names) as session:
        session.memory["plan"] = "read the filing"
        session.complete("fetch")


async def test_an_analysis_is_paused_extended_resumed_and_given_up(house: House) -> None:
    worked(house)
    async with Memory.open(house.of("boss", Role.HUMAN_ADMIN)) as memory:
        paused = await memory.pause("company:MU", "Odd figures.")
        assert (paused.status.value, paused.pause.analysis_id) == ("PAUSED", house.analysis)
        assert [one.reason for one in await memory.paused()] == ["Odd figures."]
        until = paused.pause.paused_at + timedelta(days=20)
        assert (await memory.extend_pause(house.analysis, until, "Leave.")).extended_until == until
        with pytest.raises(BadInput, match="extended already"):
            await memory.extend_pause(house.analysis, until, "Once more.")
        assert (await memory.resume(house.analysis, {"restart": {"reader": "checkpoint"}})).status.value == "RESUMED"
        assert (await memory.pause_state(house.analysis)).status is None
        await memory.pause(house.analysis, "Again.")
        assert await memory.cancel_pause(house.analysis, "Nobody needs it.") == house.analysis
        assert (await memory.pause_state(house.analysis)).outcome == "failed"
        with pytest.raises(BadInput, match="deadline_ms"):
            await memory.pause(house.analysis, "Never.", deadline_ms=-1)


def test_orders_are_for_people_and_their_refusals_name_what_is_wrong(house: House) -> None:
    worked(house)
    with Memory.sync(house.of()) as agent, pytest.raises(PermissionDenied):
        agent.pause(house.analysis, "I would rather not.")
    with Memory.sync(house.of("boss", Role.HUMAN_ADMIN)) as memory:
        with pytest.raises(TransitionRefused, match="not paused"):
            memory.resume("company:MU")
        with pytest.raises(BadInput, match="NOBODY"):
            memory.pause("company:NOBODY", "Who is that?")
        with pytest.raises(BadInput):
            memory.pause(house.analysis, "")
        assert memory.paused() == []
    assert house.audited(authorized=False) == [("ann", "workflow", "pause")]
