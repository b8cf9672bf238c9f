"""Writes of one actor that come together go to Postgres together, and each hears its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, OutcomeUnknown, PostgresUnavailable, StatementRejected
from imem.journal.events.entry import AppendStatus, JournalEntry, Receipt
from imem.journal.events.group_commit import BATCH_LINES, GroupCommit
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from tests.kg.lanes.conftest import finding
from tests.kg.projection.world import NEVER, Journal, entries_of

PERSON = Actor("bull", Role.HUMAN_ADMIN)


def entry(name: str) -> JournalEntry:
    return entries_of(finding(name))[0]


class Stage:
    """A stand-in for Postgres that holds each statement until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.go = asyncio.Semaphore(0)
        self.fails: dict[str, Exception] = {}

    async def __call__(self, entries: Sequence[JournalEntry], deadline: Deadline) -> list[Receipt]:
        self.groups.append([one.key for one in entries])
        await self.go.acquire()
        deadline.check("a statement")
        for one in entries:
            if one.key in self.fails:
                raise self.fails[one.key]
        return [Receipt(AppendStatus.NEW, None, int(one.key), None, durable=True) for one in entries]

    def release(self, times: int = 100) -> None:
        for _ in range(times):
            self.go.release()


async def test_what_comes_meanwhile_goes_together(paper: Journal) -> None:
    """Fifty writes of one actor take far fewer transactions; order and receipts are each one's own."""
    gateway = Gateway(paper.database, PERSON)
    written = await asyncio.gather(
        *(gateway.append(entries_of(finding(f"f-{number}")), deadline=NEVER) for number in range(50))
    )

    rows = await paper.rows(
        "SELECT record_key, position, xmin::text AS transaction, agent_seq FROM event ORDER BY position"
    )
    assert [row["record_key"] for row in rows] == [f"f-{number}" for number in range(50)]
    assert [row["agent_seq"] for row in rows] == list(range(1, 51))
    assert [receipt.position for (receipt,) in written] == [row["position"] for row in rows]
    assert len({row["transaction"] for row in rows}) <= 5


def profiled(what: str) -> JournalEntry:
    """Return an entry with the same group of one record as the others."""
    profile = {"kind": "model", "specialization": what}
    return entries_of({"record": "Agent", "core": {"name": "bull"}, "groups": {"profile": profile}})[0]


async def test_a_history_that_states_a_group_again_and_again_takes_one_transaction(paper: Journal) -> None:
    """Each statement of the group is an event of its own, in the order given; what a transaction holds is bounded."""
    gateway = Gateway(paper.database, PERSON)
    entries = [profiled(f"{number % 2} of {number // 2 % 2}") for number in range(20)]
    receipts = await gateway.append(entries, deadline=NEVER)

    query = "SELECT position, xmin::text AS transaction, agent_seq, payload, recorded_at FROM event ORDER BY position"
    rows = await paper.rows(query)
    assert [receipt.position for receipt in receipts] == [row["position"] for row in rows]
    assert [row["payload"]["groups"]["profile"]["specialization"] for row in rows] == [
        f"{number % 2} of {number // 2 % 2}" for number in range(20)
    ]
    assert [row["agent_seq"] for row in rows] == list(range(1, 21))
    assert sorted({row["recorded_at"] for row in rows}) == [row["recorded_at"] for row in rows]
    assert len({row["transaction"] for row in rows}) == 1

    await gateway.append([entry(f"f-{number}") for number in range(BATCH_LINES + 1)], deadline=NEVER)
    [row] = await paper.rows("SELECT count(DISTINCT xmin::text) AS n FROM event WHERE kind = 'record.Finding'")
    assert row["n"] == 2


async def test_of_a_transaction_that_fails_nothing_is_written(paper: Journal) -> None:
    """Its earlier statements are undone with the one that failed."""
    gateway = Gateway(paper.database, PERSON)
    wrong = replace(profiled("b"), payload=b"no JSON")
    with pytest.raises(StatementRejected):
        await gateway.append([profiled("a"), wrong], deadline=NEVER)
    assert await paper.rows("SELECT position FROM event") == []


async def test_two_actors_do_not_wait_for_one_another() -> None:
    grouping, stage = GroupCommit(), Stage()
    calls = [
        asyncio.create_task(grouping.commit(who, [entry(str(number))], stage, NEVER))
        for number, who in enumerate(("a", "b", "a", "b"))
    ]
    await asyncio.sleep(0)
    assert stage.groups == [["0"], ["1"]]
    await asyncio.sleep(0)
    stage.release()
    assert [receipt.position for (receipt,) in await asyncio.gather(*calls)] == [0, 1, 2, 3]
    assert grouping._queues == {}


async def test_one_statement_never_holds_a_group_of_a_record_twice() -> None:
    """What one of two equal writes is told, it is told by Postgres."""
    grouping, stage = GroupCommit(), Stage()
    names = ["0", "1", "2", "1", "3"]
    calls = [asyncio.create_task(grouping.commit("a", [entry(name)], stage, NEVER)) for name in names]
    await asyncio.sleep(0)
    stage.release()
    await asyncio.gather(*calls)
    assert stage.groups == [["0"], ["1", "2"], ["1", "3"]]


async def test_a_statement_is_bounded() -> None:
    grouping, stage = GroupCommit(), Stage()
    first = asyncio.create_task(grouping.commit("a", [entry("0")], stage, NEVER))
    await asyncio.sleep(0)
    half = BATCH_LINES // 2
    calls = [
        asyncio.create_task(
            grouping.commit("a", [entry(str(part * half + number)) for number in range(half)], stage, NEVER)
        )
        for part in range(3)
    ]
    await asyncio.sleep(0)
    stage.release()
    await asyncio.gather(first, *calls)
    assert [len(group) for group in stage.groups] == [1, BATCH_LINES, half]


@pytest.mark.parametrize("error", [StatementRejected("No."), BudgetExceeded("Late.")])
async def test_who_is_to_blame_fails_alone(error: Exception) -> None:
    grouping, stage = GroupCommit(), Stage()
    stage.fails["2"] = error
    calls = [asyncio.create_task(grouping.commit("a", [entry(str(number))], stage, NEVER)) for number in range(4)]
    await asyncio.sleep(0)
    stage.release()
    ends: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert ends[2] is error
    assert [end[0].position for end in (ends[0], ends[1], ends[3])] == [0, 1, 3]


@pytest.mark.parametrize("error", [PostgresUnavailable("Gone."), OutcomeUnknown("Who knows."), TypeError("A fault.")])
async def test_what_is_nobodys_fault_all_are_told(error: Exception) -> None:
    grouping, stage = GroupCommit(), Stage()
    stage.fails["2"] = error
    calls = [asyncio.create_task(grouping.commit("a", [entry(str(number))], stage, NEVER)) for number in range(4)]
    await asyncio.sleep(0)
    stage.release()
    ends: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert [end is error for end in ends] == [False, True, True, True]
    assert stage.groups == [["0"], ["1", "2", "3"]]
    assert grouping._queues == {}


async def test_who_gets_no_turn_in_time_is_told_so() -> None:
    """And nothing of it is written afterwards."""
    grouping, stage = GroupCommit(), Stage()
    first = asyncio.create_task(grouping.commit("a", [entry("0")], stage, NEVER))
    await asyncio.sleep(0)
    with pytest.raises(BudgetExceeded, match="nothing was written"):
        await grouping.commit("a", [entry("1")], stage, Deadline.after_ms(20))
    await asyncio.sleep(0)
    stage.release()
    await first
    assert stage.groups == [["0"]]
    assert grouping._queues == {}


async def test_who_is_cancelled_while_waiting_leaves_nothing() -> None:
    grouping, stage = GroupCommit(), Stage()
    calls = [asyncio.create_task(grouping.commit("a", [entry(str(number))], stage, NEVER)) for number in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.gather(calls[1], return_exceptions=True)
    await asyncio.sleep(0)
    stage.release()
    assert [receipt.position for (receipt,) in await asyncio.gather(calls[0], calls[2])] == [0, 2]
    assert stage.groups == [["0"], ["2"]]


async def test_who_comes_after_a_write_that_was_cancelled_is_served() -> None:
    grouping, stage = GroupCommit(), Stage()
    calls = [asyncio.create_task(grouping.commit("a", [entry(str(number))], stage, NEVER)) for number in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.gather(calls[0], return_exceptions=True)
    await asyncio.sleep(0)
    stage.release()
    assert [receipt.position for receipt in await calls[1]] == [1]
