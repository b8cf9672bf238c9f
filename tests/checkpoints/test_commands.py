"""Working memory and checkpoints as people and agents reach them: by who they are, from Python and the command line."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import SecretStr

from imem.journal.errors import BadInput, NotOpen, PermissionDenied, StaleEpoch
from imem.journal.settings import Role, Settings
from imem.services.stores import Stores
from imem.services.working import AgentServices
from tests import forking
from tests.checkpoints.conftest import World, soon
from tests.checkpoints.recovering import READERS, desk_of, names, work
from tests.servers import in_database

AGENTS = {
    "agents": [
        {
            "agent_type": "reader",
            "subtasks": [{"name": "fetch"}, {"name": "read", "reentrant": True}, {"name": "rate"}],
        }
    ]
}


@pytest_asyncio.fixture
async def reader(world: World, tmp_path: Path) -> AsyncIterator[World]:
    """Give a world in which a reader of ann's is at work, one subtask done."""
    agents = tmp_path / "agents.json"
    agents.write_text(json.dumps(AGENTS))
    given = world.settings.model_copy(
        update={**in_database(world.settings, world.url), "agents": agents, "neo4j_url": "bolt://127.0.0.1:1"}
    )
    at_work = replace(world, definitions=READERS, settings=given)
    async with desk_of(at_work).begin(**names(at_work)) as session:
        await work(session, "fetch")
        await session.memory.set("secret", "what ann knows")
        yield at_work


def settings_of(world: World, role: Role, actor: str) -> Settings:
    settings: Settings = world.settings
    return settings.model_copy(update={"role": role, "actor": actor})


@asynccontextmanager
async def at(world: World, role: Role, actor: str) -> AsyncIterator[AgentServices]:
    async with Stores.open(settings_of(world, role, actor)) as stores:
        yield AgentServices(stores)


async def denials(world: World) -> int:
    rows = await world.rows("SELECT count(*) AS n FROM memory_access_audit WHERE NOT authorized")
    return int(rows[0]["n"])


def run(world: World, *words: str, role: Role = Role.HUMAN_ADMIN, actor: str = "boss") -> tuple[int, str, str]:
    """Run the command line as somebody, and return how it ended and what it said."""
    settings = settings_of(world, role, actor)
    variables = {name: text for name, text in os.environ.items() if not name.startswith("IMEM_")}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if value is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else getattr(value, "value", value)
            variables[f"IMEM_{name.upper()}"] = str(plain)
    done = forking.run("imem", *words, env={**variables, "PYTHONWARNINGS": "error"})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.spec("CK-16")
async def test_an_agent_reads_and_writes_its_own_memory_alone(reader: World) -> None:
    """Another agent gets a denial for every way in, each with its row; a person may look, and not write."""
    agent_id = reader.agent("reader")
    async with at(reader, Role.AGENT, "ann") as own:
        assert await own.memory(agent_id).get("secret") == "what ann knows"
        memory = own.memory(f"{agent_id}-2")
        async with own.session(**of_ann(reader)):
            await memory.set("more", "ann's")
            assert await memory.get("more") == "ann's"
    async with at(reader, Role.AGENT, "bob") as other:
        with pytest.raises(PermissionDenied):
            await other.memory(agent_id).get("secret")
        with pytest.raises(PermissionDenied):
            async with other.session(
                analysis_id=reader.analysis, agent_type="reader", agent_id=agent_id, subject_id="company:MU",
                deadline=soon(),
            ):  # fmt: skip
                pytest.fail("it began")
        with pytest.raises(PermissionDenied):
            await other.history(reader.analysis, deadline=soon())
        with pytest.raises(PermissionDenied):
            await other.look(agent_id, deadline=soon())
    assert await denials(reader) == 4
    async with at(reader, Role.HUMAN_ADMIN, "boss") as person:
        looked_at = person.memory(agent_id)
        assert (await looked_at.items(raw=True))["secret"] == b"what ann knows"
        with pytest.raises(PermissionDenied):
            await looked_at.set("more", "a word from above")
        with pytest.raises(PermissionDenied):
            await looked_at.list("list").append("a word from above")
    assert await denials(reader) == 6


def of_ann(reader: World) -> dict[str, Any]:
    """Return the names of another instance, whose lease nobody holds."""
    return {
        "analysis_id": f"{reader.analysis}-2", "agent_type": "reader", "agent_id": f"{reader.agent('reader')}-2",
        "subject_id": "company:MU", "deadline": soon(),
    }  # fmt: skip


@pytest.mark.spec("CK-8")
async def test_only_who_holds_the_lease_writes(reader: World) -> None:
    """
    What nobody works with takes no writes: the next session would go back to the checkpoint and lose them.

    Neither does a memory take any from beside its session, nor from one who has lost the lease and asks anew.
    """
    agent_id = of_ann(reader)["agent_id"]
    async with at(reader, Role.AGENT, "ann") as own, at(reader, Role.AGENT, "ann") as beside:
        memory = own.memory(agent_id)
        async with own.session(**of_ann(reader)):
            await memory.set("before", "a")
        with pytest.raises(NotOpen, match="No session of this process"):
            await memory.set("more", "between two sessions")
        async with own.session(**of_ann(reader)) as session:
            with pytest.raises(NotOpen, match="No session of this process"):
                await beside.memory(agent_id).set("more", "beside it")
            await memory.list("list").append("mine")
            assert await session.memory.list("list").all() == ["mine"]
            lease = await reader.leases.raise_epoch(f"{reader.analysis}-2", deadline=soon())
            await reader.memories.fence(agent_id, lease[0].epoch, deadline=soon())
            for one in (memory, own.memory(agent_id)):
                with pytest.raises(StaleEpoch):
                    await one.set("more", "too late")
            assert await beside.memory(agent_id).get("more") is None
        with pytest.raises(NotOpen, match="No session of this process"):
            await memory.set("more", "afterwards")


async def test_a_handle_is_guarded_whatever_it_is_asked(reader: World) -> None:
    """Every method of a memory goes through the gateway: taken out of the handle's hands, none works."""
    async with at(reader, Role.HUMAN_ADMIN, "boss") as person:
        memory = person.memory(reader.agent("reader"))
        assert await memory.get("secret") == "what ann knows"
        person.actor = replace(person.actor, role=Role.AGENT, id="bob")
        for asked in (
            memory.get("secret"), memory.items(), memory.keys(), memory.len(), memory.contains("secret"),
            memory.hash("fetch:hash").get("k"), memory.set("a", "b"), memory.delete("secret"), memory.clear(),
            memory.increment("n"), memory.pop("secret"), memory.setdefault("a", "b"), memory.update({"a": "b"}),
        ):  # fmt: skip
            with pytest.raises(PermissionDenied):
                await asked


async def test_what_is_not_there_is_said_in_a_sentence(reader: World) -> None:
    """An unknown instance has no memory, an unknown checkpoint is refused by its field."""
    async with at(reader, Role.HUMAN_ADMIN, "boss") as person:
        with pytest.raises(NotOpen, match="does not exist"):
            await person.memory("nobody").get("plan")
        with pytest.raises(BadInput, match="checkpoint"):
            await person.checkpoint(reader_id(reader), deadline=soon())


def reader_id(_: World) -> Any:
    return UUID(int=0)


async def test_the_command_line_shows_where_agents_stand(reader: World) -> None:
    """List and show tell the same in words and as JSON; values appear to whom the gateway lets read them."""
    code, listed, _ = run(reader, "checkpoints", "list", reader.analysis, "--json")
    assert code == 0
    start, fetched = json.loads(listed)
    assert (start["kind"], fetched["kind"], fetched["subtask"]) == ("start", "subtask", "fetch")

    code, shown, _ = run(reader, "checkpoints", "show", fetched["id"])
    assert code == 0
    assert "done: fetch" in shown
    assert "left: read, rate" in shown
    assert "working memory: 5 keys" in shown

    code, text, _ = run(reader, "checkpoints", "list", reader.analysis)
    assert "reader 1  " in text

    code, _, complaint = run(reader, "checkpoints", "show", fetched["id"], role=Role.AGENT, actor="bob")
    assert code == 1
    assert "may not read working memory" in complaint


async def test_the_command_line_shows_a_working_memory(reader: World) -> None:
    """Sizes, types, expiry and values; another agent is denied; nobody's memory is one sentence."""
    agent_id = reader.agent("reader")
    code, text, _ = run(reader, "working", agent_id)
    assert code == 0
    assert "OPEN, active, 6 keys" in text
    assert "what ann knows" in text
    assert "written to since" in text

    code, told, _ = run(reader, "working", agent_id, "--json")
    found = json.loads(told)
    assert found["readable"] is True
    assert found["keys"]["fetch:set"] == {**found["keys"]["fetch:set"], "type": "set", "items": 2}

    code, text, complaint = run(reader, "working", agent_id, role=Role.AGENT, actor="bob")
    assert (code, text) == (1, "")
    assert "what ann knows" not in complaint

    code, _, complaint = run(reader, "working", "nobody")
    assert code == 1
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [("working", "a*b"), ("working", "a:b"), ("checkpoints", "show", str(UUID(int=0))), ("checkpoints", "list", "")],
)
async def test_what_is_asked_for_wrongly_is_wrong_usage(reader: World, words: tuple[str, ...]) -> None:
    code, text, complaint = run(reader, *words)
    assert (code, text) == (2, "")
    assert "Error" in complaint


async def test_of_very_many_checkpoints_the_newest_are_listed(reader: World) -> None:
    """And it says so; whose they are is asked once, not once for each."""
    reader.owner(
        "INSERT INTO workflow.agent_checkpoints SELECT (jsonb_populate_record(c, jsonb_build_object("
        "'id', gen_random_uuid(), 'seq', n, 'kind', 'failure', 'failure_reason', 'the source is silent', "
        "'subtask', NULL, 'checkpoint_time', c.checkpoint_time + n * interval '1 second'))).* "
        "FROM workflow.agent_checkpoints AS c, generate_series(2, 1100) AS n WHERE c.seq = 1"
    )
    async with at(reader, Role.HUMAN_ADMIN, "boss") as work_of:
        found = await work_of.history(reader.analysis, deadline=soon())
    assert [one.seq for one in found] == list(range(101, 1101))

    code, listed, said = run(reader, "checkpoints", "list", reader.analysis, "--json")
    assert code == 0, said
    assert [one["seq"] for one in json.loads(listed)] == list(range(101, 1101))
    assert said.strip() == "These are the newest 1,000; older ones are not shown."
    assert run(reader, "checkpoints", "show", str(found[0].id))[2] == ""
