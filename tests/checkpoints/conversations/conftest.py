"""Conversations in a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest_asyncio

from imem.checkpoints.conversations.messages import Message, StoredMessage
from imem.checkpoints.conversations.store import AddedMessage, Conversations
from imem.checkpoints.conversations.summaries import Summariser
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from tests.servers import asked, cloned

LATER = datetime(2026, 1, 1, tzinfo=UTC)


class Counting:
    """A summariser that says how many messages it got, and keeps them."""

    def __init__(self) -> None:
        self.got: list[tuple[StoredMessage, ...]] = []

    async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
        deadline.check("a summary")
        self.got.append(tuple(messages))
        return f"summary of {len(messages)}"


class Threads(Conversations):
    """Conversations whose threads belong to nobody."""

    async def add(self, *given: Any, **named: Any) -> AddedMessage:
        added = await super().add(*given, **named)
        assert isinstance(added, AddedMessage)
        return added


@dataclass
class Talk:
    """
    A journal to talk in.

    Attributes:
        url, admin_url: the database, as the application and as its owner.
        database: as the application.
    """

    url: str
    admin_url: str
    database: Database

    def with_summariser(self, summariser: Summariser) -> Threads:
        return Threads(self.database, summariser)

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=Deadline.never())

    def owner(self, query: str, *parameters: Any) -> None:
        asked(self.admin_url, query, parameters)

    async def said(self, thread: str = "t", workflow: str = "w") -> list[int]:
        """Return the numbers of everything that was ever said in a thread, in order."""
        rows = await self.rows(
            "SELECT seq FROM workflow.conversation_messages WHERE workflow_id = %s AND thread_id = %s AND depth = 0 "
            "ORDER BY seq",
            workflow,
            thread,
        )
        return [row["seq"] for row in rows]

    async def summaries(self, thread: str = "t", workflow: str = "w") -> int:
        (row,) = await self.rows(
            "SELECT count(*) AS found FROM workflow.conversation_messages WHERE workflow_id = %s AND thread_id = %s "
            "AND depth > 0 AND superseded_by IS NULL",
            workflow,
            thread,
        )
        return int(row["found"])


@pytest_asyncio.fixture
async def talk(light_stack: Any, light_template: str) -> AsyncIterator[Talk]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        database = Database(url, size=8)
        yield Talk(url, admin_url, database)
        await database.close()


def stored(number: int, content: str, role: Any = "user", **more: Any) -> StoredMessage:
    """Return a message as if it had been stored."""
    values = {
        "id": f"m{number}", "seq": number, "depth": 0, "role": role, "content": content, "agent_id": None,
        "tool_call_id": None, "metadata": {}, "pinned": False, "superseded_by": None, "created_at": LATER,
    }  # fmt: skip
    return StoredMessage(**{**values, **more})


def calling(*calls: str, content: str = "", **more: Any) -> Message:
    """Return an assistant's message that makes tool calls."""
    found = [{"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call in calls]
    return Message(role="assistant", content=content, metadata={"tool_calls": found}, **more)


def result(call: str, content: str = "42", **more: Any) -> Message:
    return Message(role="tool", content=content, tool_call_id=call, **more)


def assert_a_model_takes(window: Sequence[StoredMessage]) -> None:
    """Assert what chat models ask for: each call is followed by one result of each of its ids, and by nothing else."""
    rest = list(window)
    while rest:
        head = rest.pop(0)
        assert head.role != "tool", "a result without its call"
        results = [rest.pop(0) for _ in head.calls if rest]
        assert sorted(one.tool_call_id or "" for one in results) == sorted(head.calls), "a call without its results"
        assert {one.role for one in results} <= {"tool"}
