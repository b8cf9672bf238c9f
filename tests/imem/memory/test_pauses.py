"""Pausing and resuming from Python: for people, with and without an event loop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused
from imem.journal.settings import Role
from imem.memory import Memory

from .conftest import MemoryHarness


def worked(harness: MemoryHarness) -> None:
    """Leave an analysis that runs, one subtask done and nobody at work."""
    with Memory.sync(harness.of()) as memory, memory.session(harness.agent_id, **harness.names) as session:
        session.memory["plan"] = "read the filing"
        session.complete("fetch")


async def test_an_analysis_is_paused_extended_resumed_and_given_up(harness: MemoryHarness) -> None:
    worked(harness)
    async with Memory.open(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        paused = await memory.pause("company:MU", "Odd figures.")
        assert (paused.status.value, paused.pause.analysis_id) == ("PAUSED", harness.analysis)
        assert [one.reason for one in await memory.paused()] == ["Odd figures."]
        until = paused.pause.paused_at + timedelta(days=20)
        assert (await memory.extend_pause(harness.analysis, until, "Leave.")).extended_until == until
        with pytest.raises(BadInput, match="extended already"):
            await memory.extend_pause(harness.analysis, until, "Once more.")
        assert (await memory.resume(harness.analysis, {"restart": {"reader": "checkpoint"}})).status.value == "RESUMED"
        assert (await memory.pause_state(harness.analysis)).status is None
        await memory.pause(harness.analysis, "Again.")
        assert await memory.cancel_pause(harness.analysis, "Nobody needs it.") == harness.analysis
        assert (await memory.pause_state(harness.analysis)).outcome == "failed"
        with pytest.raises(BadInput, match="deadline_ms"):
            await memory.pause(harness.analysis, "Never.", deadline_ms=-1)


def test_orders_are_for_people_and_their_refusals_name_what_is_wrong(harness: MemoryHarness) -> None:
    worked(harness)
    with Memory.sync(harness.of()) as agent, pytest.raises(PermissionDenied):
        agent.pause(harness.analysis, "I would rather not.")
    with Memory.sync(harness.of("boss", Role.HUMAN_ADMIN)) as memory:
        with pytest.raises(TransitionRefused, match="not paused"):
            memory.resume("company:MU")
        with pytest.raises(BadInput, match="NOBODY"):
            memory.pause("company:NOBODY", "Who is that?")
        with pytest.raises(BadInput):
            memory.pause(harness.analysis, "")
        assert memory.paused() == []
    assert harness.audited(authorized=False) == [("ann", "workflow", "pause")]
