"""Many debates in which nobody decides: all of them end, and nothing waits."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import cycle, islice, product
from typing import Any, NamedTuple

import pytest

from imem.debates.service import DebateProgress
from imem.debates.states import Act
from imem.kg.kinds.enums import DebatePriority, DebateState
from imem.review.states import TaskState
from tests.strategies import LONGER

from .conftest import BULL, HOUR, Forum, claimed

DEBATES = 1_008 if LONGER else 48
MINUTE = timedelta(minutes=1)
ROOM = 84
"""Tasks that a reviewer may have at a time, where there are many."""

BEGUN = ("initiated", "level2"), ("initiated", "level1", "level2")
"""States up to level 2, without an acknowledgement and with one."""

LIMITS = (16 * MINUTE, HOUR + MINUTE, 2 * HOUR + 2 * MINUTE, 8 * HOUR + 3 * MINUTE)
"""When the pipelines look: after each limit, the last of which is that of a person (8 h)."""


class Sort(NamedTuple):
    """A sort of debate."""

    priority: DebatePriority
    judge: str | None
    metric: str
    acknowledged: bool

    @property
    def winner(self) -> str | None:
        """Return whose position counts in the end: the lower target; the metric without a direction has none."""
        return "bear" if self.metric == "price_target" else None


SORTS = [
    Sort(*one) for one in product(DebatePriority, (None, "tutor"), ("price_target", "up"), (False, True))
]  # fmt: skip


def _claimed(key: str, metric: str) -> dict[str, Any]:
    """Return a finding on the metric."""
    if metric == "price_target":
        return claimed(key, "bull")
    line = claimed(key, "bull", metric=metric, probability=0.7)
    for name in ("value", "unit"):
        del line["core"][name]
    return line


async def opened(forum: Forum) -> list[tuple[Sort, DebateProgress]]:
    """Open the debates, as many of each sort."""
    sorts = list(islice(cycle(SORTS), DEBATES))
    for start in range(0, DEBATES, 500):
        numbers = range(start, min(start + 500, DEBATES))
        await forum.world.say(*(_claimed(f"n-{at}", sorts[at].metric) for at in numbers))

    async def one(number: int, sort: Sort) -> tuple[Sort, DebateProgress]:
        value = 80.0 if sort.winner else 0.2
        debate = await forum.challenge(f"n-{number}", priority=sort.priority, judge=sort.judge, value=value)
        if sort.acknowledged:
            await forum.act(debate, Act.ACKNOWLEDGE, BULL)
        return sort, debate

    made: list[tuple[Sort, DebateProgress]] = []
    for start in range(0, DEBATES, 4):
        made += await asyncio.gather(*(one(at, sorts[at]) for at in range(start, min(start + 4, DEBATES))))
    return made


@pytest.mark.spec("DB-1", "DB-8", "DB-14")
@pytest.mark.longer
@pytest.mark.parametrize("people", [0, 1])
async def test_all_debates_end_while_nobody_decides(forum: Forum, people: int) -> None:
    """
    With an empty roster, and with reviewers who answer nothing and have room for half of the debates.

    Each has one resolution and an audit row for each transition; hours later nothing has changed.
    """
    room = DEBATES // 2 if people else 0
    for number in range(0, room, ROOM):
        await forum.reviewer(f"eve-{number}", min(ROOM, room - number))
    made = await opened(forum)
    asked: set[str] = set()
    for limit in LIMITS:
        await forum.later(limit)
        states = {debate.debate_id: (await forum.now(debate)).state for _, debate in made}
        asked |= {key for key, state in states.items() if state is DebateState.LEVEL3}

    assert set(states.values()) == {DebateState.PROVISIONAL}
    assert len(asked) == room
    for sort, debate in made:
        state, [end], audit = (
            await forum.state(debate), await forum.resolutions(debate), await forum.audit(debate)
        )  # fmt: skip
        assert (state["state"], state["provisional"]) == ("provisional", True)
        assert (state["resolution_level"], state["resolution_method"]) == ("4_fallback", "conservative_default")
        assert (end.get("winning_agent"), (await forum.now(debate)).counts) == (sort.winner, sort.winner), sort
        position = "price_target 80.0 (bear)" if sort.winner else "uncertain"
        assert (end["winning_position"], state["final_position"].split(":")[0]) == (position, position)
        more = ("level3", "provisional") if debate.debate_id in asked else ("provisional",)
        assert tuple(after for _, _, after in audit) == BEGUN[sort.acknowledged] + more
        acts = {"challenge": "bear", "acknowledge": "bull"}
        assert all(actor == acts.get(action, "SYSTEM") for action, actor, _ in audit), audit

    tasks = await forum.world.rows("SELECT state, count(*) AS n FROM lifecycle WHERE kind = 'task' GROUP BY state")
    assert {row["state"]: row["n"] for row in tasks} == {TaskState.DEFAULTED: DEBATES}
    assert await forum.world.rows("SELECT FROM lifecycle WHERE due_at IS NOT NULL OR request IS NOT NULL") == []
    before = await counted(forum)
    await forum.later(100 * HOUR)
    assert await counted(forum) == before


async def counted(forum: Forum) -> list[int]:
    """Return how many events and audit rows there are."""
    found = await forum.world.rows(
        "SELECT count(*) AS n FROM event UNION ALL SELECT count(*) AS n FROM memory_access_audit"
    )
    return [row["n"] for row in found]
