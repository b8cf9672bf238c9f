"""What an earlier version of a program saved is migrated step by step and gone on from, or nothing is started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imem.cache.working.document import contents_of, digest
from imem.checkpoints.model import Checkpoint
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Subtask
from imem.checkpoints.recovery import RecoveryTier
from imem.checkpoints.versions import CheckpointMigrations, resumable
from imem.journal.errors import BadInput, ConsistencyError, NotResumable

from .conftest import World, memory, soon
from .recovering import desk_of


def version(number: str, *subtasks: str) -> Definitions:
    """Return the agent *filer* of that version."""
    agent = AgentDefinition(agent_type="filer", version=number, subtasks=tuple(Subtask(name=name) for name in subtasks))
    return Definitions.of([agent])


ONE = version("1", "fetch", "parse", "rank")
TWO = version("2", "download", "parse", "rank", "report")
THREE = version("3", "download", "check", "parse", "rank", "report")


def renamed(checkpoint: Checkpoint) -> Checkpoint:
    """1 → 2: fetch is called download, a report comes last, and memory says where it is from."""
    names = {"fetch": "download"}
    document, _ = memory(migrated="yes")
    return replace(
        checkpoint,
        completed_subtasks=tuple(names.get(name, name) for name in checkpoint.completed_subtasks),
        pending_subtasks=(*(names.get(name, name) for name in checkpoint.pending_subtasks), "report"),
        working_memory={**checkpoint.working_memory, **document},
        agent_config={**checkpoint.agent_config, "since": 2},
        # None of its business, and not taken over.
        seq=99,
        preserve=True,
    )


def checked(checkpoint: Checkpoint) -> Checkpoint:
    """2 → 3: a check comes after the download."""
    return replace(checkpoint, pending_subtasks=("check", *checkpoint.pending_subtasks))


@pytest.fixture
def migrations() -> CheckpointMigrations:
    known = CheckpointMigrations()
    known.register("filer", "1", "2", renamed)
    known.register("filer", "2", "3", checked)
    return known


@pytest.mark.spec("CK-6")
@pytest.mark.parametrize("left", ["live", "snapshot", "row"])
async def test_a_session_goes_on_from_what_an_older_version_left(
    world: World, migrations: CheckpointMigrations, left: str
) -> None:
    """Whatever of it is left: the memory is the migrated one, and the next save goes on from the migrated lists."""
    old, new = replace(world, definitions=ONE), replace(world, definitions=THREE)
    who: dict[str, Any] = {
        "analysis_id": world.analysis,
        "agent_type": "filer",
        "agent_id": world.agent(),
        "subject_id": "company:MU",
        "owner": "filer",
    }
    async with desk_of(old).begin(**who) as session:
        await session.memory.set("after", "fetch")
        await session.complete("fetch")
        lease = session.lease
    if left != "live":
        await world.memories.clear(lease.agent_id, lease.epoch, deadline=soon())
    if left == "row":
        await world.snapshots.drop(lease.agent_id, deadline=soon())

    async with desk_of(new, migrations=migrations).begin(**who) as session:
        assert session.recovered.migrated
        assert await session.memory.items() == {"after": "fetch", "migrated": "yes"}
        assert session.pending == ("check", "parse", "rank", "report")
        await session.memory.set("checked", "yes")
        saved = await session.complete("check")

    assert (saved.seq, saved.agent_version) == (2, "3")
    assert (saved.completed_subtasks, saved.pending_subtasks) == (("download", "check"), ("parse", "rank", "report"))
    assert set(saved.working_memory) == {"after", "migrated", "checked"}
    async with desk_of(new, migrations=migrations).begin(**who) as session:
        assert (session.recovered.tier, session.recovered.migrated) == (RecoveryTier.LIVE, False)
        assert await session.memory.items() == {"after": "fetch", "migrated": "yes", "checked": "yes"}


@pytest.mark.spec("CK-6")
async def test_a_checkpoint_of_an_older_version_is_migrated_and_resumed(
    world: World, migrations: CheckpointMigrations
) -> None:
    """Two versions on; the next save goes on from what it was migrated to, and the old row stays."""
    old, new = replace(world, definitions=ONE), replace(world, definitions=THREE)
    await old.save(await old.acquire(agent_config={"a": 1}), "fetch")
    stored = await new.load()

    base = resumable(stored, THREE, migrations)

    assert (base.id, base.seq, base.preserve, base.agent_version) == (stored.id, 1, False, "3")
    assert (base.completed_subtasks, base.pending_subtasks) == (("download",), ("check", "parse", "rank", "report"))
    assert base.agent_config == {"since": 2}
    assert set(base.working_memory) == {"after", "migrated"}
    assert base.working_memory_hash == digest(contents_of(base.working_memory))
    assert base.working_memory_hash != stored.working_memory_hash
    lease = await new.acquire()
    with pytest.raises(BadInput, match="another version") as refused:
        await new.save(lease, "check")
    assert refused.value.field == "base"
    saved = await new.save(lease, "check", base=base)
    assert (saved.seq, saved.completed_subtasks) == (2, ("download", "check"))
    assert await new.save(lease, "check", base=base) == saved, "a repeat, as after a lost answer"
    last = await new.save(lease, "parse")
    assert (last.pending_subtasks, last.agent_version) == (("rank", "report"), "3")
    assert await old.checkpoints.get(stored.id, deadline=soon()) == stored
    with pytest.raises(BadInput, match="not the latest"):
        await new.save(lease, "rank", base=base)


@pytest.mark.spec("CK-6")
@pytest.mark.parametrize(
    ("saved_by", "present", "said"),
    [
        (ONE, version("4", "download"), "no step leads from 3 to 4"),
        (THREE, ONE, "newer than this program"),
        (version("0", "fetch"), TWO, "no step leads from 0 to 2"),
        (ONE, version("1", "fetch", "parse"), "not those of filer 1"),
        (ONE, version("1", "fetch", "rank", "parse"), "not those of filer 1"),
        (ONE, version("2", "download", "parse", "rank"), "not those of filer 2"),
    ],
)
async def test_what_cannot_be_migrated_is_refused_and_nothing_is_started(
    world: World, migrations: CheckpointMigrations, saved_by: Definitions, present: Definitions, said: str
) -> None:
    old = replace(world, definitions=saved_by)
    lease = await old.acquire()
    await old.save(lease, saved_by.of_type("filer").names[0])
    before = await everything(world)

    with pytest.raises(NotResumable, match=said):
        resumable(await world.load(), present, migrations)

    assert await everything(world) == before


async def test_a_checkpoint_of_the_present_version_is_taken_as_it_is(world: World) -> None:
    old = replace(world, definitions=ONE)
    saved = await old.save(await old.acquire(), "fetch")

    assert resumable(saved, ONE, CheckpointMigrations()) is saved


async def test_a_start_is_migrated_too(world: World, migrations: CheckpointMigrations) -> None:
    """Nothing was known yet, and nothing is digested."""
    old, new = replace(world, definitions=ONE), replace(world, definitions=TWO)
    await old.acquire()

    base = resumable(await new.load(), TWO, migrations)

    assert base.working_memory_hash is None
    saved = await new.save(await new.acquire(), "download", base=base)
    assert (saved.seq, saved.pending_subtasks) == (1, ("parse", "rank", "report"))


async def test_a_step_that_makes_no_memory_is_found_out(world: World) -> None:
    old = replace(world, definitions=ONE)
    saved = await old.save(await old.acquire(), "fetch")
    wrong = CheckpointMigrations()

    @wrong.step("filer", "1", "2")
    def breaks(checkpoint: Checkpoint) -> Checkpoint:
        return replace(checkpoint, working_memory={"a": 1})

    with pytest.raises(ConsistencyError):
        wrong.migrate(saved, "2")


def test_steps_never_go_round_in_a_circle_and_lead_one_way(migrations: CheckpointMigrations) -> None:
    for start, end in (("1", "3"), ("3", "1"), ("3", "3"), ("3", "2")):
        with pytest.raises(BadInput, match="filer"):
            migrations.register("filer", start, end, checked)
    migrations.register("clerk", "3", "1", checked)


async def everything(world: World) -> list[Any]:
    return await world.rows(
        "SELECT l.epoch, l.holder, (SELECT count(*) FROM workflow.agent_checkpoints) AS rows "
        "FROM workflow.agent_leases AS l"
    )
