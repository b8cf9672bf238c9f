"""Conversations as actors reach them: one's own alone, through the gateway, with and without ``await``."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from imem import Memory
from imem.blocking.conversations import SyncConversation
from imem.checkpoints.conversations.messages import Message
from imem.checkpoints.conversations.store import Conversations, SummaryOutcome
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, PostgresUnavailable, SettingsError, TooLarge
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.services.conversations import Conversation
from tests.imem.memory.conftest import MemoryHarness

CLOSED_TO = {Role.KNOWLEDGE_BASE_AGENT, Role.DEBATE_FACILITATOR, Role.LEARNING_ENGINE, Role.AGENT}
"""Roles whose actors see nothing of another's thread."""


@asynccontextmanager
async def at(
    harness: MemoryHarness, actor: str = "ann", role: Role = Role.AGENT, thread: str = "t"
) -> AsyncIterator[Conversation]:
    async with Memory.open(harness.of(actor, role)) as memory:
        yield memory.conversation(harness.analysis, thread)


def said(number: int, **more: Any) -> Message:
    return Message(role="user", content=f"message {number}", id=f"m{number}", **more)


def calls_of(talk: Conversation) -> dict[str, Any]:
    """Return everything that can be asked of a thread, by the action that it takes."""
    return {
        "read window": talk.window,
        "read history": talk.history,
        "write message": lambda: talk.add(said(99)),
        "write summary": talk.summarise,
        "delete thread": talk.delete,
    }


async def test_a_thread_of_one_s_own(harness: MemoryHarness) -> None:
    """It begins with its first message, shows a window and all of it, and is gone once deleted."""
    async with at(harness) as talk:
        assert (await talk.window(), await talk.history(), await talk.delete()) == ((), (), 0)
        added = [await talk.add(said(number)) for number in range(1, 22)]

        assert ([one.seq for one in added], added[-1].summarised) == (list(range(1, 22)), SummaryOutcome.NOTHING)
        assert not (await talk.add(said(21))).new
        window = await talk.window()
        assert [message.seq for message in window] == list(range(2, 22)), "no model, no summary: the newest twenty"
        assert [message.content for message in await talk.history(after=19)] == ["message 20", "message 21"]
        assert await talk.summarise() is SummaryOutcome.NOTHING
        assert await talk.delete() == 21
        assert (await talk.window(), await talk.history(), await talk.delete()) == ((), (), 0)
        assert (await talk.add(said(1, agent_id="reader-1"))).seq == 1

    owners = harness.rows("SELECT workflow_id, thread_id, owner FROM workflow.conversation_thread")
    assert [tuple(row.values()) for row in owners] == [(harness.analysis, "t", "ann")]
    assert harness.audited(authorized=False) == []


def test_the_same_without_await(harness: MemoryHarness) -> None:
    public = {name for name, _ in inspect.getmembers(Conversation, inspect.iscoroutinefunction) if name[0] != "_"}
    assert public == {"add", "window", "history", "summarise", "delete"}
    for name in public:
        assert inspect.signature(getattr(SyncConversation, name)) == inspect.signature(getattr(Conversation, name))

    with Memory.sync(harness.of()) as memory:
        talk = memory.conversation(harness.analysis, "t")
        assert (talk.workflow_id, talk.thread_id) == (harness.analysis, "t")
        assert talk.add(said(1)).new
        assert [message.to_chat() for message in talk.window()] == [{"role": "user", "content": "message 1"}]
        assert (len(talk.history()), talk.summarise(), talk.delete()) == (1, SummaryOutcome.NOTHING, 1)
        assert talk.window() == ()


@pytest.mark.parametrize("role", sorted(CLOSED_TO))
async def test_another_s_thread_is_closed(harness: MemoryHarness, role: Role) -> None:
    """Whatever is asked of it, nothing is shown or done, and each denial leaves its one row."""
    async with at(harness) as own:
        await own.add(said(1))

    async with at(harness, "bob", role) as other:
        for call in calls_of(other).values():
            with pytest.raises(PermissionDenied):
                await call()

    denied = [("bob", "workflow", name.partition(" ")[0]) for name in calls_of(own)]
    assert harness.audited(authorized=False) == denied
    async with at(harness) as own:
        assert [message.content for message in await own.history()] == ["message 1"]
    named = harness.rows("SELECT DISTINCT resource_id, request_context ->> 'owner' AS owner FROM memory_access_audit")
    assert [tuple(row.values()) for row in named] == [(f"{harness.analysis}/t", "ann")]


async def test_people_read_and_delete_and_do_not_speak(harness: MemoryHarness) -> None:
    """What was deleted is gone; that somebody did it stays in the audit."""
    async with at(harness) as own:
        await own.add(said(1))

    async with at(harness, "boss", Role.HUMAN_ADMIN) as person:
        assert [message.content for message in await person.window()] == ["message 1"]
        for call in (calls_of(person)["write message"], person.summarise):
            with pytest.raises(PermissionDenied):
                await call()
        assert await person.delete() == 1
        assert await person.history() == ()

    assert harness.audited(authorized=False) == [("boss", "workflow", "write")] * 2
    assert harness.audited(authorized=True) == [("boss", "workflow", "delete")]
    assert harness.rows("SELECT FROM workflow.conversation_messages") == []


async def test_a_role_without_threads_begins_none(harness: MemoryHarness) -> None:
    for actor, role in (("boss", Role.HUMAN_ADMIN), ("engine", Role.LEARNING_ENGINE)):
        async with at(harness, actor, role) as talk:
            with pytest.raises(PermissionDenied):
                await talk.add(said(1))

    assert harness.rows("SELECT FROM workflow.conversation_thread") == []
    assert harness.audited(authorized=False) == [("boss", "workflow", "write"), ("engine", "workflow", "write")]


async def test_threads_begun_without_an_actor_have_no_owner(harness: MemoryHarness) -> None:
    """As threads from before there were owners: a person may look, and delete."""
    assert harness.settings.postgres_url is not None
    database = Database(harness.settings.postgres_url.get_secret_value())
    await Conversations(database).add(harness.analysis, "t", said(1), deadline=Deadline.never())
    await database.close()

    async with at(harness) as agent:
        for call in calls_of(agent).values():
            with pytest.raises(PermissionDenied):
                await call()
    async with at(harness, "boss", Role.HUMAN_ADMIN) as person:
        assert len(await person.window()) == 1
        assert await person.delete() == 1


async def test_of_two_who_begin_a_thread_at_once_one_has_it(harness: MemoryHarness) -> None:
    """The other is denied, by a row, and its message is nowhere."""

    async def attempt(actor: str, thread: str) -> str | None:
        async with at(harness, actor, thread=thread) as talk:
            try:
                await talk.add(Message(role="user", content=actor))
            except PermissionDenied:
                return None
            return actor

    async def race(number: int) -> None:
        thread = f"t{number}"
        winners = [one for one in await asyncio.gather(attempt("ann", thread), attempt("bob", thread)) if one]
        assert len(winners) == 1
        async with at(harness, "boss", Role.HUMAN_ADMIN, thread) as person:
            assert [message.content for message in await person.history()] == winners

    for number in range(8):
        await race(number)

    assert len(harness.audited(authorized=False)) == 8


async def test_a_thread_that_changed_hands_in_between_stays_closed(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann's when the gateway was asked, deleted and begun anew by bob: nothing is shown, added or deleted."""
    async with at(harness) as own, at(harness, "bob") as other:
        await own.add(said(1))
        looked_up = Conversations.owner

        async def late(self: Conversations, *names: Any, **more: Any) -> Any:
            found = await looked_up(self, *names, **more)
            monkeypatch.undo()
            await own.delete()
            await other.add(said(2))
            return found

        def again() -> None:
            monkeypatch.setattr(Conversations, "owner", late)

        again()
        assert await own.window() == ()
        await other.delete()
        await own.add(said(1))
        again()
        with pytest.raises(PermissionDenied):
            await own.add(said(3))
        await other.delete()
        await own.add(said(1))
        again()
        with pytest.raises(PermissionDenied):
            await own.delete()
        assert [message.content for message in await other.history()] == ["message 2"]

    assert harness.audited(authorized=False) == [("ann", "workflow", "write"), ("ann", "workflow", "delete")]


async def test_an_addition_during_a_deletion_comes_before_it_or_begins_a_new_thread(harness: MemoryHarness) -> None:
    """No message is left without its thread, and what is left is numbered from one without gaps."""
    async with at(harness) as talk:

        async def speak(speaker: int) -> None:
            for number in range(12):
                await talk.add(Message(role="user", content=f"{speaker}.{number}"), summarise=number % 4 == 0)

        async def forget() -> int:
            return sum([await talk.delete() for _ in range(12)])

        async with asyncio.TaskGroup() as group:
            forgetting = group.create_task(forget())
            for speaker in range(4):
                group.create_task(speak(speaker))
        left = await talk.history()

    assert [message.seq for message in left] == list(range(1, len(left) + 1))
    assert forgetting.result() + len(left) == 48


async def test_threads_of_two_workflows_have_nothing_in_common(harness: MemoryHarness) -> None:
    async with Memory.open(harness.of()) as memory:
        here, there = memory.conversation("one", "t"), memory.conversation("two", "t")
        await here.add(said(1))
        assert await there.window() == ()
        assert await there.delete() == 0
        assert len(await here.window()) == 1


async def test_what_is_wrong_is_named(harness: MemoryHarness) -> None:
    async with Memory.open(harness.of()) as memory:
        for names, field in (
            (("", "t"), "workflow_id"), (("w", "x" * 256), "thread_id"), (("w", "nul\0"), "thread_id"),
        ):  # fmt: skip
            with pytest.raises(BadInput) as refused:
                memory.conversation(*names)
            assert refused.value.field == field
        talk = memory.conversation("w", "t")
        await talk.add(said(1))
        for wrong, field in (
            (talk.add(Message(role="assistant", content="other", id="m1")), "id"),
            (talk.history(limit=501), "limit"),
            (talk.history(after=-1), "after"),
            (talk.window(deadline_ms=0), "deadline_ms"),
        ):
            with pytest.raises(BadInput) as refused:
                await wrong
            assert refused.value.field == field
        with pytest.raises(TooLarge):
            await talk.add(Message(role="user", content="x" * 300_000))
        assert len(await talk.history()) == 1


async def test_a_model_without_a_name_is_a_wrong_setting(harness: MemoryHarness) -> None:
    settings = harness.of().model_copy(update={"summary_url": SecretStr("http://127.0.0.1:1/v1")})
    async with Memory.open(settings) as memory:
        with pytest.raises(SettingsError, match="SUMMARY_MODEL"):
            memory.conversation("w", "t")


async def test_without_postgres_nothing_is_said_and_nothing_shown(harness: MemoryHarness) -> None:
    """A gateway that cannot be asked denies; the error says that repeating is safe."""
    away = harness.of().model_copy(
        update={"postgres_url": SecretStr(f"postgresql://u@127.0.0.1:1/{uuid4().hex}"), "postgres_curator_url": None}
    )
    async with Memory.open(away) as memory:
        talk = memory.conversation("w", "t")
        asked = talk.add(said(1), deadline_ms=300), talk.window(deadline_ms=300), talk.delete(deadline_ms=300)
        for call in asked:
            with pytest.raises(PostgresUnavailable):
                await call
        begun_s = time.monotonic()
        with pytest.raises(PostgresUnavailable):
            await talk.add(said(1))
        assert time.monotonic() - begun_s < 10, "thirty seconds are for a summary"
