"""Track records of many agents, domains and moments in one call: what single calls say, by the same rights, bounded."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from imem.memory import Memory
from journal.errors import BadInput, PermissionDenied
from journal.settings import Role
from recall.model import TrackRecordItem
from tests.recall import facts
from tests.recall.conftest import Desk
from tests.recall.facts import day


async def known(desk: Desk) -> None:
    claims = [facts.finding("f0", 1), facts.finding("f4", 1)]
    await desk.know([facts.company("T0", 0), facts.analysis("a0", 1), *claims, facts.outcome("o0", 4)])


async def test_one_call_says_what_single_calls_say(desk: Desk) -> None:
    """Two agents, a domain that neither knows beside theirs, and 168 moments: 672 records in one statement."""
    await known(desk)
    first = datetime.fromisoformat(day(2))
    moments = [first + timedelta(hours=number) for number in range(168)]
    agents, domains = ["agent0", "agent1"], ["up_or_down", "elsewhere"]

    table = await desk.memory.track_records(agents, domains, as_of=moments)

    assert (len(table.items), table.total) == (672, 672)
    assert {one.n for one in table.items} == {0, 1}
    for moment in (moments[0], moments[100], moments[-1]):
        shown = [one for one in table.items if one.as_of == moment and one.domain == "up_or_down"]
        single = [
            item
            for agent in agents
            for item in (await desk.memory.track_record(agent, "up_or_down", as_of=moment)).items
        ]
        assert [TrackRecordItem(**one.model_dump(exclude={"as_of"})) for one in shown] == single


async def test_all_agents_as_of_a_day(desk: Desk) -> None:
    """Without names: whoever has a record then, and nobody who has one later alone."""
    await known(desk)
    early, late = datetime.fromisoformat(day(2)), datetime.fromisoformat(day(9))

    table = await desk.memory.track_records(as_of=[early, late])

    assert [(one.as_of, one.agent) for one in table.items] == [(late, "agent0"), (late, "agent1")]
    assert [one.agent for one in (await desk.memory.track_records(None, ["up_or_down"], as_of=[early])).items] == []
    assert [one.agent for one in (await desk.memory.track_records()).items] == ["agent0", "agent1"]


async def test_an_agent_reads_its_own_alone(desk: Desk) -> None:
    """Among others its own does not help, nor does asking for all; how much may be asked for is bounded."""
    await known(desk)
    settings = desk.settings.model_copy(update={"actor": "agent0", "role": Role.AGENT})
    async with Memory.open(settings) as memory:
        assert [one.agent for one in (await memory.track_records(["agent0"])).items] == ["agent0"]
        with pytest.raises(PermissionDenied, match="agent1"):
            await memory.track_records(["agent0", "agent1"], ["up_or_down"])
        with pytest.raises(PermissionDenied):
            await memory.track_records()
    domains = [f"d{number}" for number in range(101)]
    with pytest.raises(BadInput, match="agents"):
        await desk.memory.track_records(["agent0"], domains, as_of=[datetime.fromisoformat(day(2))] * 100)
    assert json.loads((await desk.memory.track_records([], [])).model_dump_json())["items"] == []
