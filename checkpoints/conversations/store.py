"""
Conversations: threads of messages with bounded windows and summaries.

A thread belongs to one workflow: threads of two workflows are separate, even under one name. Messages are stored in
order, and deleted only with their whole thread. Once a thread has more than twenty messages, a summary replaces the
oldest fifteen in its window. System messages at the beginning of a thread stay in every window.

A summary is made outside any transaction, and stored only if all messages that it replaces are still unreplaced: of two
concurrent ones, one is stored. A crash leaves the thread with the whole summary or without it. Without a summariser, or
where it fails or does not answer, the window shows the newest twenty messages.

A thread belongs to the actor that began it, where one is given. Authorisation is left to :mod:`imem`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid5

import orjson
import structlog

from imem.checkpoints.conversations.messages import (
    MOST_PINNED,
    PREFIX,
    SUMMARY,
    WINDOW,
    Message,
    MessageOutline,
    StoredMessage,
    cut,
)
from imem.checkpoints.conversations.summaries import Summariser, cleaned
from imem.checkpoints.conversations.windows import window_of
from imem.checkpoints.statements import thread_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import object_text

log = structlog.get_logger()

SUMMARY_BUDGET_MS: Final = 30_000
"""Longest timeout of a summary, in milliseconds."""

_CLAIM_S: Final = 60.0
"""Lifetime of the claim to summarise a thread, in seconds; longer than a summary may take."""

_NOTE_MS: Final = 1000
"""Timeout of recording a failure, in milliseconds; the caller's own deadline may have passed by then."""

_ROUNDS: Final = 4
"""Summaries in a row: after a long failure, one is not enough."""

MOST_HISTORY: Final = 500
"""Messages of one page of the history at most."""

_NAMES: Final = UUID("0d6f3a53-6f0c-5b0e-9a0e-6a3c1b7f2d11")
"""Namespace of the ids of summaries: the same messages always give the same id."""


class SummaryOutcome(StrEnum):
    """The outcome of summarising a thread."""

    NOTHING = "nothing"
    """There was nothing to summarise, nothing to do it with, or another process has the claim."""
    DONE = "done"
    OUTRUN = "outrun"
    """A concurrent summary was stored first."""
    FAILED = "failed"
    """No summary was made in time; nothing was changed."""


@dataclass(frozen=True, slots=True)
class AddedMessage:
    """
    The result of adding a message.

    Attributes:
        id, seq: its id and number in the thread.
        new: whether it was added; False where it was there already.
        pinned: whether it stays in every window.
        created_at: when it was stored.
        summarised: the outcome of summarising the older messages.
    """

    id: str
    seq: int
    new: bool
    pinned: bool
    created_at: datetime
    summarised: SummaryOutcome


@dataclass(frozen=True, slots=True)
class ThreadOwner:
    """
    The owner of a thread.

    Attributes:
        owner: the actor; None where the thread was begun without one.
    """

    owner: str | None


class ForeignThread(ThreadOwner):
    """The thread belongs to another actor than the given one; nothing was changed."""


class Conversations:
    """
    The threads of every workflow.

    Args:
        database: the threads.
        summariser: makes summaries; without one, the window shows the newest messages alone.
    """

    def __init__(self, database: Database, summariser: Summariser | None = None) -> None:
        self._database = database
        self._summariser = summariser

    async def add(
        self,
        workflow_id: str,
        thread_id: str,
        message: Message,
        *,
        owner: str | None = None,
        deadline: Deadline,
        summarise: bool = True,
    ) -> AddedMessage | ForeignThread:
        """
        Store *message* at the end of a thread, and make a summary where one is due.

        Idempotent for the same id and content. The message is durable before a summary is begun, so that a failed
        summary is no error. The summary takes what *deadline* leaves, at most :data:`SUMMARY_BUDGET_MS`.

        Args:
            owner: a new thread becomes its own, and another actor's is not changed; None for any thread.
            summarise: whether to make a summary that is due; otherwise a later call does.

        Raises:
            BadInput: an id is invalid, another message has that id, or too many are pinned.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        thread = thread_of(workflow_id, thread_id)
        given = {
            "owner": owner,
            "id": message.id,
            "role": message.role,
            "content": message.content,
            "agent_id": message.agent_id,
            "tool_call_id": message.tool_call_id,
            "metadata": object_text(message.metadata, "metadata"),
            "pinned": message.pinned,
            "most_pinned": MOST_PINNED,
            "window": WINDOW,
        }
        [row] = await self._database.commit("add_message", {**thread, **given}, deadline=deadline)
        if row["status"] == "foreign":
            return ForeignThread(row["owner"])
        if row["status"] == "conflict":
            raise BadInput(
                "id", f"{message.id!r} names another message of this thread.", mend="Give it an id of its own."
            )
        if row["status"] == "full":
            raise BadInput("pinned", f"{MOST_PINNED} messages of this thread are pinned already.")
        done = SummaryOutcome.NOTHING
        if row["over"] and summarise and self._summariser is not None:
            done = await self._summarise_claimed(thread, deadline)
        return AddedMessage(message.id, row["seq"], row["status"] == "new", row["pinned"], row["created_at"], done)

    async def window(
        self, workflow_id: str, thread_id: str, *, owner: str | None = None, deadline: Deadline
    ) -> tuple[StoredMessage, ...]:
        """
        Return the messages that a model needs of a thread, in order; empty where there is no such thread.

        These are the pinned ones and at most :data:`~imem.checkpoints.conversations.messages.WINDOW` others: the last
        user message, the summary of the older messages, if there is one, and the newest. A call is followed by its
        results, also by those that came later; a marker stands in the place of one that is missing. A result without a
        call is left out.

        Args:
            owner: return nothing of another actor's thread; None for any thread.

        Raises:
            BadInput: an id is invalid.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        given = {**thread_of(workflow_id, thread_id), "owner": owner, "limit": WINDOW}
        rows = await self._database.named("window_messages", given, deadline=deadline)
        return window_of([StoredMessage.from_row(row) for row in rows])

    async def history(
        self,
        workflow_id: str,
        thread_id: str,
        *,
        owner: str | None = None,
        after: int = 0,
        limit: int = 100,
        deadline: Deadline,
    ) -> tuple[StoredMessage, ...]:
        """
        Return the messages of a thread, verbatim, one page after the given *seq*; without summaries.

        Args:
            owner: return nothing of another actor's thread; None for any thread.
            after: the seq of the last message that was read; 0 for the beginning.
            limit: messages at most, 1 to :data:`MOST_HISTORY`.

        Raises:
            BadInput: an id or a number is invalid.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        if not 1 <= limit <= MOST_HISTORY:
            raise BadInput("limit", f"is a number from 1 to {MOST_HISTORY}.")
        if after < 0:
            raise BadInput("after", "is the seq of a message, or 0.")
        given = {**thread_of(workflow_id, thread_id), "owner": owner, "after": after, "limit": limit}
        rows = await self._database.named("messages_after", given, deadline=deadline)
        return tuple(StoredMessage.from_row(row) for row in rows)

    async def summarise(self, workflow_id: str, thread_id: str, *, deadline: Deadline) -> SummaryOutcome:
        """
        Summarise the oldest messages of a thread now, if there are too many for a window; ignores earlier failures.

        Raises:
            BadInput: an id is invalid.
            PostgresUnavailable, BudgetExceeded: the summary is stored; the delay after failures was not reset.
        """
        thread = thread_of(workflow_id, thread_id)
        done = await self._attempt(thread, deadline)
        if done is SummaryOutcome.DONE:
            await self._database.execute("summary_ended", thread, deadline=deadline)
        return done

    async def owner(self, workflow_id: str, thread_id: str, *, deadline: Deadline) -> ThreadOwner | None:
        """
        Return the owner of a thread; None where there is no such thread.

        Raises:
            BadInput: an id is invalid.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        rows = await self._database.named("thread_owner", thread_of(workflow_id, thread_id), deadline=deadline)
        return ThreadOwner(rows[0]["owner"]) if rows else None

    async def delete_of(
        self, owner: str | None, workflow_id: str, thread_id: str, *, deadline: Deadline
    ) -> int | ForeignThread:
        """
        Delete a thread of *owner* with all its messages; return how many.

        A concurrent message is deleted with it, or begins the thread anew. Idempotent.

        Args:
            owner: None for a thread without an owner.

        Raises:
            BadInput: an id is invalid.
            PostgresUnavailable, BudgetExceeded: nothing was deleted; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        given = {**thread_of(workflow_id, thread_id), "owner": owner}
        (row,) = await self._database.commit("delete_thread", given, deadline=deadline)
        return ForeignThread(row["owner"]) if row["status"] == "foreign" else int(row["messages"])

    async def _summarise_claimed(self, thread: dict[str, str], deadline: Deadline) -> SummaryOutcome:
        """Claim the thread and summarise it, repeatedly while too much is left."""
        done = SummaryOutcome.NOTHING
        try:
            if not await self._database.named("claim_summary", {**thread, "seconds": _CLAIM_S}, deadline=deadline):
                return done
            for _ in range(_ROUNDS):
                latest = await self._attempt(thread, deadline)
                if latest is SummaryOutcome.NOTHING:
                    break
                done = latest
                if done is not SummaryOutcome.DONE:
                    break
            if done is not SummaryOutcome.FAILED:
                await self._database.execute("summary_ended", thread, deadline=deadline)
        except ImemError as error:
            # The claim expires by itself.
            log.warning("conversation.claim_kept", reason=str(error), **thread)
        return done

    async def _attempt(self, thread: dict[str, str], deadline: Deadline) -> SummaryOutcome:
        """Make one summary; errors are logged and counted."""
        try:
            return await self._make(thread, deadline.within_ms(SUMMARY_BUDGET_MS))
        except Exception as error:  # noqa: BLE001 - a summariser may be the user's, and the message is stored already
            log.warning(
                "conversation.not_summarised",
                reason=str(error) if isinstance(error, ImemError) else type(error).__name__,
                **thread,
            )
        try:
            await self._database.execute("summary_failed", thread, deadline=Deadline.after_ms(_NOTE_MS))
        except ImemError as error:
            log.warning("conversation.failure_not_noted", reason=str(error), **thread)
        return SummaryOutcome.FAILED

    async def _make(self, thread: dict[str, str], deadline: Deadline) -> SummaryOutcome:
        if self._summariser is None:
            return SummaryOutcome.NOTHING
        turns = [
            MessageOutline.from_row(row)
            for row in await self._database.named("active_turns", thread, deadline=deadline)
        ]
        if len(turns) <= WINDOW:
            return SummaryOutcome.NOTHING
        ids = [turn.id for turn in turns[: cut(turns)]]
        if not ids:
            return SummaryOutcome.NOTHING
        rows = await self._database.named("messages_by_id", {**thread, "ids": ids}, deadline=deadline)
        # No transaction and no connection is held meanwhile: a model may be slow.
        text = await self._summariser.summarise([StoredMessage.from_row(row) for row in rows], deadline=deadline)
        placed = {
            **thread,
            "ids": ids,
            "id": str(uuid5(_NAMES, orjson.dumps([*thread.values(), *ids]).decode())),
            "content": PREFIX + cleaned(text),
            "metadata": orjson.dumps(SUMMARY).decode(),
        }
        [row] = await self._database.commit("supersede_messages", placed, deadline=deadline)
        return SummaryOutcome.OUTRUN if row["seq"] is None else SummaryOutcome.DONE
