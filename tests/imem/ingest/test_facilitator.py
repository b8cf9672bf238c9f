"""Who facilitates debates does what its row of the table says, through the public methods, and nothing beyond it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from imem import Memory
from imem.journal.errors import PermissionDenied
from imem.journal.settings import Role
from imem.kg.model import Company, Debate, DebateResolution, DebateState, Finding, Turn
from tests.imem.ingest.conftest import LoadHarness

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def debate(key: str = "d", **values: Any) -> Debate:
    return Debate(
        id=key, subject_id="company:MU", topic="Does it rise?", challenger_agent="ann", challenged_agent="bob",
        participants=("ann", "bob"), timestamp=NOW, **values,
    )  # fmt: skip


STATE = Debate.State(state=DebateState.CLOSED, provisional=False)

MAY: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "a debate with its turns": lambda m: m.record_debate(debate(), turns=[Turn(number=1, speaker="ann", text="No.")]),
    "how it stands": lambda m: m.record_groups(Debate, "d", {"state": STATE}),
    "how it ended": lambda m: m.record(DebateResolution(id="r", debate_id="d", winning_position="It rises.")),
    "who decided it": lambda m: m.link("RESOLVED_BY", ("Debate", "d"), ("Agent", "ann")),
    "what it changed": lambda m: m.link("IMPACTED_ANALYSIS", ("DebateResolution", "r"), ("Analysis", "a")),
}

MAY_NOT: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "a finding": lambda m: m.record_finding(
        Finding(id="f", analysis_id="a", subject_id="company:MU", agent="fay", domain="d", statement="It rises.")
    ),
    "a company": lambda m: m.record_company(Company(ticker="MU")),
    "a link of others": lambda m: m.link("PEER_OF", ("Company", "MU"), ("Company", "NVDA")),
    "a debate of long ago": lambda m: m.record_debate(debate("old"), known_at=NOW),
    "a correction": lambda m: m.correct(debate(), "wrong"),
}


@pytest.mark.parametrize("what", MAY)
async def test_a_facilitator_states_debates(harness: LoadHarness, what: str) -> None:
    """A debate, its turns, how it stands, how it ended and whom that concerns: durable, and in the audit."""
    async with Memory.open(harness.as_role(Role.DEBATE_FACILITATOR, "fay").settings) as memory:
        receipt = await MAY[what](memory)

    assert receipt.durable
    assert harness.rows("SELECT DISTINCT actor_id, actor_role FROM memory_access_audit WHERE authorized") == [
        ("fay", "debate_facilitator")
    ]


@pytest.mark.parametrize("what", MAY_NOT)
async def test_a_facilitator_states_nothing_else(harness: LoadHarness, what: str) -> None:
    """Denied, with the roles that may, one row in the audit and no event."""
    async with Memory.open(harness.as_role(Role.DEBATE_FACILITATOR, "fay").settings) as memory:
        with pytest.raises(PermissionDenied, match=r"fay \(debate_facilitator\) may not .*(human_admin|import right)"):
            await MAY_NOT[what](memory)

    assert harness.count("event") == 0
    assert harness.rows("SELECT count(*) FROM memory_access_audit WHERE NOT authorized") == [(1,)]


async def test_no_other_role_gains_by_it(harness: LoadHarness) -> None:
    """An agent's own debates stay its own: how one ended is stated by a facilitator."""
    async with Memory.open(harness.as_role(Role.AGENT, "ann").settings) as memory:
        assert (await memory.record_debate(debate())).durable
        with pytest.raises(PermissionDenied):
            await MAY["how it stands"](memory)
