"""Track records of many agents, domains and moments in one call: what single calls say, by the same rights, bounded."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from imem.cli import app
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.memory import Memory
from imem.recall import single_reads
from imem.recall.model import TrackRecordItem
from imem.recall.sections.track_records import track_table
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import day
from tests.recall.test_existence import environment


async def known(harness: RecallHarness) -> None:
    claims = [facts.finding("f0", 1), facts.finding("f4", 1)]
    await harness.know([facts.company("T0", 0), facts.analysis("a0", 1), *claims, facts.outcome("o0", 4)])


async def test_one_call_says_what_single_calls_say(harness: RecallHarness) -> None:
    """Two agents, a domain that neither knows beside theirs, and 168 moments: 672 records in one statement."""
    await known(harness)
    first = datetime.fromisoformat(day(2))
    moments = [first + timedelta(hours=number) for number in range(168)]
    agents, domains = ["agent0", "agent1"], ["up_or_down", "elsewhere"]

    table = await harness.memory.track_records(agents, domains, as_of=moments)

    assert (len(table.items), table.total) == (672, 672)
    assert {one.n for one in table.items} == {0, 1}
    for moment in (moments[0], moments[100], moments[-1]):
        shown = [one for one in table.items if one.as_of == moment and one.domain == "up_or_down"]
        single = [
            item
            for agent in agents
            for item in (await harness.memory.track_record(agent, "up_or_down", as_of=moment)).items
        ]
        assert [TrackRecordItem(**one.model_dump(exclude={"as_of", "pinned"})) for one in shown] == single


async def test_all_agents_as_of_a_day(harness: RecallHarness) -> None:
    """Without names: whoever has a record then, and nobody who has one later alone."""
    await known(harness)
    early, late = datetime.fromisoformat(day(2)), datetime.fromisoformat(day(9))

    table = await harness.memory.track_records(as_of=[early, late])

    assert [(one.as_of, one.agent) for one in table.items] == [(late, "agent0"), (late, "agent1")]
    assert [one.agent for one in (await harness.memory.track_records(None, ["up_or_down"], as_of=[early])).items] == []
    assert [one.agent for one in (await harness.memory.track_records()).items] == ["agent0", "agent1"]


async def test_what_is_known_later_does_not_count(harness: RecallHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound counts what there was at the moments asked for; everybody as of one moment is read in pages."""
    await known(harness)
    monkeypatch.setattr(single_reads, "MOST_RECORDS", 1)
    early, late = datetime.fromisoformat(day(2)), datetime.fromisoformat(day(9))

    assert (await harness.memory.track_records(as_of=[early, early + timedelta(hours=1)])).items == []
    assert [one.agent for one in (await harness.memory.track_records(as_of=[late])).items] == ["agent0", "agent1"]
    with pytest.raises(BadInput, match="agents"):
        await harness.memory.track_records(as_of=[early, late])


async def test_agents_without_an_outcome(harness: RecallHarness) -> None:
    """They are listed when asked for, from the claim on, with an empty record; a remark claims nothing."""
    await known(harness)
    await harness.know([facts.finding("f2", 2, subject_id="company:T9"), facts.remark("f8", 1)])
    moments = [datetime.fromisoformat(day(number)) for number in (0, 1, 3, 9)]

    table = await harness.memory.track_records(as_of=moments, unscored=True)

    assert [(one.as_of, one.agent, one.evidence) for one in table.items] == [
        *[(moments[1], agent, "none") for agent in ("agent0", "agent1")],
        *[(moments[2], agent, "none") for agent in ("agent0", "agent1", "agent2")],
        *[
            (moments[3], agent, level)
            for agent, level in (("agent0", "little"), ("agent1", "little"), ("agent2", "none"))
        ],
    ]
    assert '| "agent2" | "up_or_down" | 0 (0) | – | no outcomes yet | – |' in track_table(table.items)
    only = await harness.memory.track_records(["agent2"], as_of=moments[-1:], unscored=True)
    assert [one.agent for one in only.items] == ["agent2"]
    assert (await harness.memory.track_records(None, ["elsewhere"], unscored=True)).items == []


async def test_an_agent_reads_its_own_alone(harness: RecallHarness) -> None:
    """Among others its own does not help, nor does asking for all; how much may be asked for is bounded."""
    await known(harness)
    settings = harness.settings.model_copy(update={"actor": "agent0", "role": Role.AGENT})
    async with Memory.open(settings) as memory:
        assert [one.agent for one in (await memory.track_records(["agent0"])).items] == ["agent0"]
        with pytest.raises(PermissionDenied, match="agent1"):
            await memory.track_records(["agent0", "agent1"], ["up_or_down"])
        with pytest.raises(PermissionDenied):
            await memory.track_records()
    domains = [f"d{number}" for number in range(101)]
    with pytest.raises(BadInput, match="agents"):
        await harness.memory.track_records(["agent0"], domains, as_of=[datetime.fromisoformat(day(2))] * 100)
    assert json.loads((await harness.memory.track_records([], [])).model_dump_json())["items"] == []


async def test_the_command_without_a_name_lists_all(
    harness: RecallHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever has claimed anything by then, those of whom nothing was settled among them."""
    await known(harness)
    await harness.know([facts.finding("f2", 2, subject_id="company:T9")])
    for name, value in environment(harness.settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IMEM_HOME", str(tmp_path))
    listed = {}
    for words in ([], ["--as-of", "2026-01-02"], ["--domain", "elsewhere"]):
        done = await asyncio.to_thread(CliRunner().invoke, app, ["agents", *words])
        assert done.exit_code == 0, done.output
        listed[" ".join(words)] = re.findall(
            r'^\| "(\w+)".*?(no outcomes yet|little evidence)', done.stdout, re.MULTILINE
        )
    little, none = "little evidence", "no outcomes yet"
    assert listed == {
        "": [("agent0", little), ("agent1", little), ("agent2", none)],
        "--as-of 2026-01-02": [("agent0", none), ("agent1", none)],
        "--domain elsewhere": [],
    }
