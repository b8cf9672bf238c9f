"""One process of several works, waits for its turn, and for stores that are away: longer each time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import imem.jobs.leadership
from imem.jobs.leadership import run_as_leader, together
from imem.jobs.lease import LeaderLease
from imem.journal.errors import GraphUnavailable, LeaseLost, StatementRejected


class HeldContext(LeaderLease):
    """A lease that nobody else wants, unless the test says so."""

    taken: int = 0
    lost: bool = False

    def __init__(self) -> None:
        super().__init__(None, "work")  # type: ignore[arg-type]

    async def take(self) -> bool:
        HeldContext.taken += 1
        self.epoch = 1
        return True

    async def renew_until_cancelled(self) -> None:
        if HeldContext.lost:
            HeldContext.lost = False
            raise LeaseLost("Another process does it now.")
        await asyncio.Event().wait()


@pytest.fixture
def lease() -> HeldContext:
    HeldContext.taken, HeldContext.lost = 0, False
    return HeldContext()


class Enough(Exception):
    """Ends a test's work."""


def failing(times: int) -> Any:
    """Return work that fails so often because a store is away, and then ends."""
    left = [times]

    async def work() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Enough
        raise GraphUnavailable("Neo4j cannot be reached.")

    return work


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the pauses that are made, none of which takes any time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return made


async def test_a_store_that_is_away_is_asked_less_and_less_often(lease: HeldContext, pauses: list[float]) -> None:
    """Up to once in two seconds. The lease is to be had all the while, which does not begin the pauses anew."""
    with pytest.raises(Enough):
        await run_as_leader(lease, failing(8))

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert HeldContext.taken == 9


async def test_one_that_went_away_during_work_is_asked_at_once(
    lease: HeldContext, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imem.jobs.leadership, "STABLE_S", -1.0)
    with pytest.raises(Enough):
        await run_as_leader(lease, failing(3))

    assert pauses == [0.05, 0.05, 0.05]


async def test_who_lost_the_lease_begins_as_somebody_else(lease: HeldContext) -> None:
    """What it still had in hand is forgotten each time that work ends."""
    before, begun, forgotten = lease.holder, [], []
    HeldContext.lost = True

    async def work() -> None:
        begun.append((lease.holder, lease.epoch))
        if len(begun) == 2:
            raise Enough
        await asyncio.Event().wait()

    with pytest.raises(Enough):
        await run_as_leader(lease, work, ended=lambda: forgotten.append(len(begun)))

    assert begun[0] == (before, 1)
    assert begun[1][0] != before
    assert forgotten == [1, 2]


async def test_whatever_ends_first_ends_the_other() -> None:
    """And its error is the one that counts."""
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        raise StatementRejected("No.")

    with pytest.raises(StatementRejected):
        await together(waits(), fails())
    assert ended == ["waits"]
