"""
Processes killed by SIGKILL at every named point, again and again: what survived is counted.

Every run but the last of a piece of work is ended at a point that its turn names; each one takes over from the one
before with nothing but what the stores hold.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from imem.checkpoints.store import Checkpoints
from tests.killed_programs import KilledProgram, killed_program

from .conftest import DEFINITIONS, World, memory, soon
from .killed import POINTS
from .test_cleanup import left_keys, rows, worked

LASTS_S = 31
KILLS = [25, pytest.param(1000, marks=pytest.mark.chaos)]
SUBTASKS = ("fetch", "parse", "rank")


@dataclass
class KillCounter:
    """
    Runs the program that is killed at a given step.

    Attributes:
        killed: how often it was killed, by point.
    """

    program: KilledProgram
    killed: Counter[str]
    ahead_s: int = 0

    async def run_once(self, world: World, operation: str, point: str | None) -> bool:
        """Run once, after every lease of the run before has expired; return whether it came to its end."""
        self.ahead_s += LASTS_S
        told = {
            "url": world.url, "admin_url": world.admin_url, "analysis": world.analysis, "operation": operation,
            "point": point, "ahead_s": self.ahead_s,
        }  # fmt: skip
        ended = await self.program.ended(json.dumps(told))
        assert ended in {-signal.SIGKILL, 0}, ended
        if ended != 0:
            assert point is not None
            self.killed[point] += 1
        return ended == 0


@asynccontextmanager
async def counted(world: World) -> AsyncIterator[KillCounter]:
    names = (f"valkey_{name}_url" for name in ("durable", "working", "cache"))
    first = {name: getattr(world.settings, name).get_secret_value() for name in names}
    async with killed_program("tests.checkpoints.killed", first) as program:
        yield KillCounter(program, Counter())


def another(world: World) -> World:
    """Return the same stores with another analysis."""
    return replace(world, analysis=f"analysis:{uuid4().hex[:12]}")


async def seq_of(world: World) -> int:
    found = await world.checkpoints.load(world.analysis, "filer", deadline=soon())
    return -1 if found is None else found.seq


@pytest.mark.spec("CK-1", "CK-2", "CK-3")
@pytest.mark.parametrize("kills", KILLS)
async def test_an_agent_killed_at_every_point_goes_on_from_what_it_had(world: World, kills: int) -> None:
    """
    Rows without gaps, one for each subtask; one deliverable each; nothing done twice in what it remembers.

    After a commit the newer state is what is restored, whether or not the copy was written.
    """
    points, turn, finished = POINTS["save"], 0, 0
    async with counted(world) as program:
        while program.killed.total() < kills:
            its, before, slack = another(world), -1, 0
            while True:
                point = points[turn % len(points)]
                # A point that this piece of work no longer came to has its turn in the next one.
                if await program.run_once(its, "save", point):
                    break
                turn += 1
                after = await seq_of(its)
                begun = max(before, 0)
                committed = point in {"after_commit", "in_copy", "after_copy"}
                least = begun + committed
                # Whether a statement that was just sent is carried out is the server's choice, and it takes its time.
                most = least + slack + (point == "in_commit")
                assert least <= after <= most, point
                before, slack = after, int(point == "in_commit" and after == begun)
            finished += await finished_once(its)

    assert min(program.killed[point] for point in points) >= kills // len(points) // 2, program.killed
    assert finished > 0


async def finished_once(world: World) -> int:
    """See that an agent's work is there once, in both tiers; return 1."""
    history = await world.checkpoints.history(world.analysis, "filer", deadline=soon())
    assert [one.seq for one in history] == [0, 1, 2, 3]
    assert [one.subtask for one in history] == [None, *SUBTASKS]
    delivered = await world.deliverables.of(world.analysis, deadline=soon())
    assert sorted(one.subtask for one in delivered) == sorted(SUBTASKS)
    latest, row = (
        await world.load(),
        await Checkpoints(world.database, DEFINITIONS).load(world.analysis, "filer", deadline=soon()),
    )
    assert latest == row
    assert latest.working_memory_hash == memory(steps=",".join(SUBTASKS))[1]
    assert latest.interim_results == {"steps": list(SUBTASKS)}
    return 1


@pytest.mark.parametrize("kills", KILLS)
async def test_a_lease_and_its_start_checkpoint_come_together_or_not_at_all(world: World, kills: int) -> None:
    points = POINTS["lease"]
    async with counted(world) as program:
        while program.killed.total() < kills:
            its = another(world)
            for number in range(2 * len(points)):
                await program.run_once(its, "lease", points[number % len(points)])
                (found,) = await its.rows(
                    "SELECT (SELECT count(*) FROM workflow.agent_leases AS l WHERE l.analysis_id = a.id) AS leases, "
                    "(SELECT count(*) FROM workflow.agent_checkpoints AS c WHERE c.analysis_id = a.id) AS starts "
                    "FROM (SELECT %s::text AS id) AS a",
                    its.analysis,
                )
                assert found["leases"] == found["starts"]
            assert await program.run_once(its, "lease", None)
            current = await its.lease_of("filer")
            assert current is not None
            # Of six runs two died before they asked, two may or may not have got it, two did; and one ended.
            assert 3 <= current.epoch <= 5
            assert await rows(its) == [0]


@pytest.mark.spec("CK-11")
@pytest.mark.parametrize("kills", KILLS)
async def test_a_workflow_killed_between_any_two_steps_does_each_thing_once(world: World, kills: int) -> None:
    """The state in the end is that of an undisturbed run; a branch that had finished is not run again."""
    points, turn = POINTS["step"], 0
    async with counted(world) as program:
        while program.killed.total() < kills:
            its = another(world)
            while not await program.run_once(its, "step", points[turn % len(points)]):
                turn += 1
            found = await its.workflows.load(its.analysis, "thread", understands=(1,), deadline=soon())
            assert found is not None
            assert found.state == {
                "rounds": 4,
                "done": [f"{number}{branch}" for number in range(4) for branch in "abc"],
            }
            steps = await its.steps(its.analysis, "thread")
            assert [one["step_name"] for one in steps] == [f"join#{number}" for number in range(5)]
            assert (
                await its.rows("SELECT FROM workflow.workflow_pending_writes WHERE workflow_id = %s", its.analysis)
                == []
            )


@pytest.mark.spec("CK-7")
@pytest.mark.parametrize("kills", KILLS)
async def test_a_clean_up_killed_anywhere_leaves_nothing_in_the_end(world: World, kills: int) -> None:
    points = POINTS["cleanup"]
    async with counted(world) as program:
        while program.killed.total() < kills:
            its = another(world)
            await worked(its)
            for point in points:
                await program.run_once(its, "cleanup", point)
            assert await program.run_once(its, "cleanup", None)
            assert await rows(its) == []
            assert await left_keys(its) == []
            assert await its.rows("SELECT FROM workflow.agent_leases WHERE analysis_id = %s", its.analysis) == []
            assert len(await its.deliverables.of(its.analysis, deadline=soon())) == 4


def test_every_point_is_reached_in_turn() -> None:
    """So that none of them is only named."""
    named: Any = [point for points in POINTS.values() for point in points]
    assert len(named) == len(set(named))
