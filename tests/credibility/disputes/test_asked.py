"""Who is asked about what sources state differently, until when, and what the answer changes in every face."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from imem.kg.asof import AsOf
from imem.recall.answers import RecordsSection
from imem.recall.rendering.formatting import moment
from imem.recall.rendering.metric_values import value_lines
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.sections import contradictions

from ..conftest import World  # noqa: TID252 - a folder of its own
from .test_arbitration import ENOUGH, answer, filed, reviewer, slip, tasks, value
from .test_detection import find


async def read(world: World) -> RecordsSection:
    """Return the section as the journal has it."""
    at = AsOf(datetime.now(UTC) + timedelta(days=1))
    no_graph = cast("Any", None)
    return await contradictions.load_from_journal(
        RetrievalRequest("company:MU", at, world.database, no_graph, ENOUGH, Limits(), 2.0)
    )


async def shown(world: World) -> list[str]:
    """Return the lines of the section with who is asked."""
    section = await contradictions.with_persons_asked(await read(world), world.database, deadline=ENOUGH)
    return contradictions.SECTION.text(section).splitlines()


async def test_who_decides_is_told_until_it_is_decided(world: World) -> None:
    """The task with its reviewer and its time; then the person, the day, and what counts."""
    await reviewer(world)
    await world.say(filed(), slip(), filed("debt", 4.0), slip(metric="debt", value=40.0))
    await find(world)
    [task] = await tasks(world)
    assert task.due_at is not None

    first, second, asked = await shown(world)
    for line in (first, second):
        assert "no value counts until a person decides (a fallback, 50% sure)" in line
        assert '"SEC_EDGAR" in "10-K"' in line
        assert '"Bloomberg" in "note"' in line
    assert asked.startswith(f'"eve" decides until {moment(task.due_at)} about "')
    assert asked.endswith(f" and 1 more: `imem tasks show {task.task_id}`")

    await answer(world, task, fields={"document": "a"})

    after = await shown(world)
    assert len(after) == 2
    assert '9.53 counts ("ann" decided, 90% sure)' in "\n".join(after)
    [head, stated, rival] = value_lines(await value(world))
    assert head.startswith('9.53 "USD" counts, 90% sure')
    assert '"SEC_EDGAR" (score 1.00) in "10-K"' in stated
    assert '; "ann" decided on ' in rival
    said = (await value(world)).to_dict()["rivals"][0]
    assert (said["decided_by"], said["rule"]) == ("ann", "a person decided")


async def test_without_anybody_to_ask_nobody_is_named(world: World) -> None:
    await world.say(filed(), slip())
    await find(world)
    [line] = await shown(world)
    assert "no value counts for now (level 4, a fallback, 50% sure)" in line
