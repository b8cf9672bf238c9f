"""Many who talk and summarise at once, and programs that are killed while they do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from imem.checkpoints.conversations.messages import WINDOW, Message, StoredMessage
from imem.checkpoints.conversations.store import SummaryOutcome
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from tests.killed_programs import printed

from .conftest import Counting, Talk, Threads

NEVER = Deadline.never()


class Meeting:
    """A summariser that waits until so many are at it at once."""

    def __init__(self, url: str, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)
        self._url = url
        self.open_transactions: list[int] = []

    async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
        async with asyncio.timeout(deadline.left_s()):
            await self._barrier.wait()
        # On a connection of its own, and not through the pool, whose own use would be counted.
        with psycopg.connect(self._url, autocommit=True) as conn:
            row = conn.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
            ).fetchone()
        assert row is not None
        self.open_transactions.append(row[0])
        # Neither stores anything before both have looked.
        await self._barrier.wait()
        return f"summary of {len(messages)}"


def said(number: int) -> Message:
    return Message(role="user", content=f"message {number}", id=f"m{number}")


@pytest.mark.spec("CK-44")
async def test_two_summarisers_leave_one_summary(talk: Talk) -> None:
    """Two make one at the same time: one stands, the other knows; no transaction is open while a model works."""
    meeting = Meeting(talk.url, 2)
    conversations = talk.with_summariser(meeting)
    for number in range(1, 22):
        await conversations.add("w", "t", said(number), deadline=NEVER, summarise=False)

    ended = await asyncio.gather(*(conversations.summarise("w", "t", deadline=NEVER) for _ in range(2)))

    assert sorted(ended) == [SummaryOutcome.DONE, SummaryOutcome.OUTRUN]
    assert meeting.open_transactions == [0, 0]
    assert await talk.summaries() == 1
    window = await conversations.window("w", "t", deadline=NEVER)
    assert [message.seq for message in window] == [1, *range(16, 22)]
    assert await talk.said() == list(range(1, 22))


@pytest.mark.spec("CK-44")
async def test_a_summary_of_what_was_summarised_otherwise_meanwhile_is_not_placed(talk: Talk) -> None:
    """Somebody is slow, and the thread has moved on by two summaries: theirs is dropped."""
    conversations = talk.with_summariser(Counting())
    for number in range(1, 22):
        await conversations.add("w", "t", said(number), deadline=NEVER, summarise=False)

    class Slow:
        async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
            deadline.check("a summary")
            for number in range(22, 50):
                await conversations.add("w", "t", said(number), deadline=NEVER)
            return f"late summary of {len(messages)}"

    assert await talk.with_summariser(Slow()).summarise("w", "t", deadline=NEVER) is SummaryOutcome.OUTRUN
    window = await conversations.window("w", "t", deadline=NEVER)
    assert not any("late" in message.content for message in window)
    assert await talk.summaries() == 1
    assert await talk.said() == list(range(1, 50))


@pytest.mark.spec("CK-44")
async def test_a_summary_of_which_one_message_does_not_stand_any_more_is_not_placed(talk: Talk) -> None:
    """All of what it stands for, or nothing: the others are neither marked nor hidden behind it."""
    conversations = talk.with_summariser(Counting())
    for number in range(1, 22):
        await conversations.add("w", "t", said(number), deadline=NEVER)
    late = {"workflow_id": "w", "thread_id": "t", "ids": ["m15", "m16"], "id": "late", "content": "x", "metadata": "{}"}

    assert await talk.database.named("supersede_messages", late, deadline=NEVER) == [{"seq": None}]

    window = await conversations.window("w", "t", deadline=NEVER)
    assert [message.seq for message in window] == [1, *range(16, 22)]
    assert (await talk.rows("SELECT superseded_by FROM workflow.conversation_messages WHERE id = 'm15'"))[0] == {
        "superseded_by": window[0].id
    }


@pytest.mark.spec("CK-44", "CK-46")
async def test_many_who_talk_at_once_leave_no_gap(talk: Talk) -> None:
    """Twelve talk into one thread, each message twice: numbers have no gap, nothing is lost or there twice."""
    summariser = Counting()
    databases = [Database(talk.url, size=2) for _ in range(4)]

    async def speak(speaker: int) -> None:
        conversations = Threads(databases[speaker % 4], summariser)
        for number in range(15):
            message = Message(role="user", content="x", id=f"{speaker}.{number}")
            for _ in range(2):
                await conversations.add("w", "t", message, deadline=NEVER)
            window = await conversations.window("w", "t", deadline=NEVER)
            assert len(window) <= WINDOW
            assert [one.seq for one in window] == sorted({one.seq for one in window})

    await asyncio.gather(*(speak(speaker) for speaker in range(12)))

    for database in databases:
        await database.close()
    assert await talk.said() == list(range(1, 181))
    (row,) = await talk.rows(
        "SELECT count(DISTINCT id) AS ids, count(*) FILTER (WHERE superseded_by IS NULL) AS standing "
        "FROM workflow.conversation_messages WHERE depth = 0"
    )
    assert row["ids"] == 180
    assert await talk.summaries() == 1
    (marked,) = await talk.rows(
        "SELECT count(*) AS found FROM workflow.conversation_messages AS m WHERE m.superseded_by IS NOT NULL "
        "AND NOT EXISTS (SELECT FROM workflow.conversation_messages AS s WHERE s.id = m.superseded_by "
        "AND s.workflow_id = m.workflow_id AND s.thread_id = m.thread_id)"
    )
    assert marked["found"] == 0


async def test_whoever_adds_while_a_summary_is_made_does_not_pay_for_another(talk: Talk) -> None:
    """One model call at a time, unless somebody asks for one by name."""
    calls = 0
    conversations: Threads

    class Busy:
        async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
            nonlocal calls
            calls += 1
            deadline.check("a summary")
            added = await conversations.add("w", "t", said(100 + calls), deadline=NEVER)
            assert added.summarised is SummaryOutcome.NOTHING
            return f"summary of {len(messages)}"

    conversations = talk.with_summariser(Busy())
    for number in range(1, 22):
        await conversations.add("w", "t", said(number), deadline=NEVER)

    assert calls == 1
    assert len(await conversations.window("w", "t", deadline=NEVER)) == 8


@pytest.mark.spec("CK-44")
@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=pytest.mark.chaos)])
async def test_killed_at_every_point(talk: Talk, kills: int) -> None:
    """
    A program that talks dies before or after any of its statements, again and again.

    What it was told is stored, is stored once; numbers have no gap; every summary stands for messages that are there.
    """
    out = await printed("tests.checkpoints.conversations.killed", given=f"{talk.url}\n", TALK_KILLS=str(kills))
    killed, told = map(int, out.split())
    assert killed == kills
    said_ = await talk.said()
    assert said_ == list(range(1, len(said_) + 1))
    (row,) = await talk.rows(
        "SELECT count(*) FILTER (WHERE depth = 0) AS said, "
        "count(*) FILTER (WHERE depth > 0 AND superseded_by IS NULL) AS summaries, "
        "count(*) FILTER (WHERE superseded_by IS NULL AND NOT pinned) AS standing, "
        "count(*) FILTER (WHERE pinned) AS pinned FROM workflow.conversation_messages"
    )
    assert row["said"] == told
    assert (row["summaries"], row["pinned"]) == (1, 1)
    (left,) = await talk.rows(
        "SELECT count(*) AS found FROM workflow.conversation_messages AS m WHERE depth > 0 AND NOT EXISTS "
        "(SELECT FROM workflow.conversation_messages AS o WHERE o.superseded_by = m.id)"
    )
    assert left["found"] == 0
