"""Whoever settles contradictions is killed around each transition: each ends once, with its records and its audit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from imem.review import inbox
from imem.services.task_kinds import TASK_KINDS
from tests.killed_programs import killed_program

from ..conftest import World  # noqa: TID252 - a folder of its own
from ..running.killed import POINTS, killed_at  # noqa: TID252 - the same program
from .test_arbitration import ADMIN, ENOUGH, advance, reviewer, tasks
from .test_detection import BLOOMBERG, SEC, find, point
from .test_reviewed import OVER

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 2
"""At each point of each transition."""

Prepare = Callable[[World, int], Awaitable[None]]


async def stated(world: World, number: int) -> None:
    """Have a filing and a slip of a vendor, of a subject and a metric of their own, so that each is a task."""
    of = {"metric": f"metric{number}", "subject_id": f"company:C{number}"}
    await world.say(point(9.53, 0, SEC, document="10-K", **of), point(95.3, 3, BLOOMBERG, document="note", **of))


async def asked(world: World, number: int) -> None:
    await stated(world, number)
    await find(world)


async def overdue(world: World, number: int) -> None:
    await asked(world, number)
    world.owner(f"{OVER} AND state = 'open'")


def answering(action: str, **fields: Any) -> Prepare:
    async def prepare(world: World, number: int) -> None:
        await asked(world, number)
        [task] = [one for one in await tasks(world) if one.package.items[0].metric == f"metric{number}"]
        await inbox.answer_task(
            world.database, TASK_KINDS, task.task_id, action, fields=fields, rationale="Seen.", by=ADMIN,
            deadline=ENOUGH,
        )  # fmt: skip

    return prepare


@dataclass(frozen=True)
class Move:
    """
    What a round of the pipelines does to a contradiction.

    Attributes:
        operation: which pipeline does it.
        prepare: makes a contradiction of a number that the round moves.
        statuses: of its resolutions, to the end of the round.
        people: whether a reviewer has room.
    """

    operation: str
    prepare: Prepare
    statuses: tuple[str, ...]
    people: bool = True


MOVES: Final = {
    "asked": Move("find", stated, ("queued",)),
    "nobody there": Move("find", stated, ("uncertain",), people=False),
    "answered": Move("advance", answering("choose", document="a"), ("queued", "resolved")),
    "answered for good": Move("advance", answering("choose", document="a", always=True), ("queued", "resolved")),
    "own value": Move("advance", answering("value", value=9.6), ("queued", "resolved")),
    "not answered": Move("advance", overdue, ("queued", "uncertain")),
    "overridden": Move("advance", answering("choose", document="b"), ("uncertain", "resolved"), people=False),
    "confirmed": Move("advance", answering("confirm"), ("uncertain", "uncertain"), people=False),
}


async def statuses(world: World, number: int) -> tuple[str, ...]:
    found = await world.rows(
        "SELECT e.payload #>> '{groups,resolution,status}' AS status FROM record_history AS y"
        " JOIN event AS e ON e.position = y.position JOIN record_head AS h ON h.key = y.key AND h.grp = 'core'"
        " JOIN event AS c ON c.position = h.position"
        " WHERE y.kind = 'DataContradiction' AND h.kind = y.kind AND y.grp = 'resolution'"
        " AND split_part(c.payload #>> '{core,data_point}', ' ', 1) = %s ORDER BY y.order_key",
        f"metric{number}",
    )
    return tuple(row["status"] for row in found)


@pytest.mark.longer
@pytest.mark.spec("DC-7", "DC-8")
@pytest.mark.parametrize("name", MOVES)
async def test_killed_around_a_transition(world: World, name: str) -> None:
    """
    Killed before the commit it has moved nothing, and after it everything; the next round makes up for the first.

    In the end there is what an undisturbed round leaves, once: events, audit rows, alerts and rows.
    """
    move, numbers = MOVES[name], count()
    if move.people:
        for person in ("eve", "joe"):
            await reviewer(world, person, 100)

    async def run(point: str | None) -> Counter[str]:
        """Return what one contradiction adds."""
        number, empty = next(numbers), await world.written()
        await move.prepare(world, number)
        before = await world.written()
        after = before
        if point is not None:
            after = await killed_at(world, program, point, move.operation, before)
        await (find(world) if move.operation == "find" else advance(world))
        assert point != "after_commit" or await world.written() == after
        assert await statuses(world, number) == move.statuses
        # A person's own value is compared with the others, once.
        await find(world)
        last = await world.written()
        assert await find(world) == {}
        assert await world.written() == last
        assert await world.rows("SELECT FROM due_row WHERE queue = 'disputes'") == []
        last.subtract(empty)
        return Counter({what: n for what, n in last.items() if n})

    async with killed_program("tests.credibility.running.killed", world.pipeline_url) as program:
        undisturbed = await run(None)
        for point in POINTS:
            for _ in range(KILLS):
                assert await run(point) == undisturbed, point
