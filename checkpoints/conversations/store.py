"""
Conversations that stay short without being forgotten.

A thread is one workflow's: threads of two workflows have nothing in common, even under one name. What is said is stored
in order, and deleted only with its whole thread. Once more than twenty messages stand in a thread, the oldest fifteen
are replaced in its window by a summary, which stands where they stood; system messages that the thread began with stay
in every window.

A summary is made outside any transaction, and put into place only if everything that it stands for still stands: of
two who make one at once, one wins. Killed at any moment, the thread stands as before or with the whole summary; a
model that fails, or is silent, costs nothing but the summary: the window then shows the newest twenty.

A thread is that actor's who began it, where somebody says who. Nothing here knows who may do what; :mod:`imem` does.
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
    check_text,
    cut,
    without_orphans,
)
from imem.checkpoints.conversations.summaries import ExtractiveSummariser, Summariser, cleaned
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.postgres.database import Database
from imem.journal.statements import sql

log = structlog.get_logger()

SUMMARY_BUDGET_MS: Final = 30_000
"""Longest wait for a summary, in milliseconds, however patient the caller is."""

_CLAIM_S: Final = 60.0
"""How long others leave a thread to whoever makes its summary, in seconds; more than a summary may take."""

_NOTE_MS: Final = 1000
"""How long noting a failure may take, in milliseconds; the caller's own time may be over by then."""

_ROUNDS: Final = 4
"""Summaries in a row: after a long failure more waits than one of them takes in."""

MOST_HISTORY: Final = 500
"""Most messages of one page of the history."""

_WORKFLOW_CHARS: Final = 200
_THREAD_CHARS: Final = 255

_NAMES: Final = UUID("0d6f3a53-6f0c-5b0e-9a0e-6a3c1b7f2d11")
"""Namespace of the ids of summaries: one set of messages has one."""


class SummaryOutcome(StrEnum):
    """What became of the older part of a thread."""

    NOTHING = "nothing"
    """There was nothing to summarise, or somebody else is about to."""
    DONE = "done"
    OUTRUN = "outrun"
    """Somebody else was faster; theirs stands."""
    FAILED = "failed"
    """None could be made in time; everything stands as before."""


@dataclass(frozen=True, slots=True)
class AddedMessage:
    """
    What became of a message.

    Attributes:
        id, seq: its name and place in the thread.
        new: whether it was added; otherwise it was there already.
        pinned: whether it stays in every window.
        created_at: when it was stored.
        summarised: what became of the older part.
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
    Whose a thread is.

    Attributes:
        owner: the actor; None where it was begun on nobody's behalf.
    """

    owner: str | None


class ForeignThread(ThreadOwner):
    """Says that a thread is not that actor's on whose behalf something was to be done: nothing was."""


class Conversations:
    """
    The threads of every workflow.

    Args:
        database: where they are.
        summariser: makes summaries; by default from the messages' own sentences, without a model.
    """

    def __init__(self, database: Database, summariser: Summariser | None = None) -> None:
        self._database = database
        self._summariser = summariser or ExtractiveSummariser()

    async def add(
        self, workflow_id: str, thread_id: str, message: Message, *, deadline: Deadline, summarise: bool = True
    ) -> AddedMessage:
        """
        Store *message* at the end of a thread, and see to a summary where one is due.

        Adding a message of the same id and content again changes nothing. The message is durable before a summary is
        begun, so that whatever becomes of that is no error; it takes what *deadline* leaves, at most
        :data:`SUMMARY_BUDGET_MS`.

        Args:
            summarise: whether to wait for a summary that is due; otherwise it is left to a later call.

        Raises:
            BadInput: an id is wrong, another message has that id, or no further one may be pinned.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is harmless.
        """
        added = await self.add_of(None, workflow_id, thread_id, message, deadline=deadline, summarise=summarise)
        assert not isinstance(added, ForeignThread)  # noqa: S101 - on nobody's behalf
        return added

    async def add_of(
        self,
        owner: str | None,
        workflow_id: str,
        thread_id: str,
        message: Message,
        *,
        deadline: Deadline,
        summarise: bool = True,
    ) -> AddedMessage | ForeignThread:
        """
        Store *message* as :meth:`add`, on behalf of *owner*: a new thread becomes its own, another's is left alone.

        Args:
            owner: None for any thread, whoever's it is.

        Raises: as :meth:`add`.
        """
        thread = checked_thread(workflow_id, thread_id)
        given = {
            "owner": owner,
            "id": message.id,
            "role": message.role,
            "content": message.content,
            "agent_id": message.agent_id,
            "tool_call_id": message.tool_call_id,
            "metadata": orjson.dumps(message.metadata).decode(),
            "pinned": message.pinned,
            "most_pinned": MOST_PINNED,
            "window": WINDOW,
        }
        async with self._database.transaction(deadline) as conn:
            row = await (await conn.execute(sql("add_message"), {**thread, **given})).fetchone()
        assert row is not None  # noqa: S101 - the function returns one
        if row["status"] == "foreign":
            return ForeignThread(row["owner"])
        if row["status"] == "conflict":
            raise BadInput(
                "id", f"{message.id!r} names another message of this thread.", mend="Give it an id of its own."
            )
        if row["status"] == "full":
            raise BadInput("pinned", f"{MOST_PINNED} messages of this thread are pinned already.")
        done = SummaryOutcome.NOTHING
        if row["over"] and summarise:
            done = await self._summarise_claimed(thread, deadline)
        return AddedMessage(message.id, row["seq"], row["status"] == "new", row["pinned"], row["created_at"], done)

    async def window(
        self, workflow_id: str, thread_id: str, *, owner: str | None = None, deadline: Deadline
    ) -> tuple[StoredMessage, ...]:
        """
        Return what a model has to see of a thread, in order: nothing of a thread that does not exist.

        That is what is pinned and at most :data:`~imem.checkpoints.conversations.messages.WINDOW` others: the summary
        of the older part, if there is one, and the newest. A tool's result whose call is not among them is left out.

        Args:
            owner: show nothing of a thread that is not its own; None for any thread.

        Raises:
            BadInput: an id is wrong.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        given = {**checked_thread(workflow_id, thread_id), "owner": owner, "limit": WINDOW}
        rows = await self._database.named("window_messages", given, deadline=deadline)
        found = [StoredMessage.from_row(row) for row in rows]
        others = [message for message in found if not message.pinned]
        summaries = [message for message in others if message.is_summary]
        said = [message for message in others if not message.is_summary]
        # The summary speaks for everything older, so that it is the last to be left out.
        newest = said[len(summaries) - WINDOW :] if len(said) + len(summaries) > WINDOW else said
        shown = {message.id for message in without_orphans([*summaries, *newest])}
        return tuple(message for message in found if message.pinned or message.id in shown)

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
        Return what was said in a thread, verbatim, a page after the *seq* that was read last; summaries are not shown.

        Args:
            owner: show nothing of a thread that is not its own; None for any thread.
            after: the seq of the last message that is known already; 0 for the beginning.
            limit: most messages, 1 to :data:`MOST_HISTORY`.

        Raises:
            BadInput: an id or a number is wrong.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        if not 1 <= limit <= MOST_HISTORY:
            raise BadInput("limit", f"is a number from 1 to {MOST_HISTORY}.")
        if after < 0:
            raise BadInput("after", "is the seq of a message, or 0.")
        given = {**checked_thread(workflow_id, thread_id), "owner": owner, "after": after, "limit": limit}
        rows = await self._database.named("messages_after", given, deadline=deadline)
        return tuple(StoredMessage.from_row(row) for row in rows)

    async def summarise(self, workflow_id: str, thread_id: str, *, deadline: Deadline) -> SummaryOutcome:
        """
        Summarise the oldest of a thread now, if more stand there than a window holds; earlier failures do not count.

        Raises:
            BadInput: an id is wrong.
            PostgresUnavailable, BudgetExceeded: the summary stands; that the failures are over was not noted.
        """
        thread = checked_thread(workflow_id, thread_id)
        done = await self._attempt(thread, deadline)
        if done is SummaryOutcome.DONE:
            await self._database.execute("summary_ended", thread, deadline=deadline)
        return done

    async def owner(self, workflow_id: str, thread_id: str, *, deadline: Deadline) -> ThreadOwner | None:
        """
        Return whose a thread is; None where there is no such thread.

        Raises:
            BadInput: an id is wrong.
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        rows = await self._database.named("thread_owner", checked_thread(workflow_id, thread_id), deadline=deadline)
        return ThreadOwner(rows[0]["owner"]) if rows else None

    async def delete_of(
        self, owner: str | None, workflow_id: str, thread_id: str, *, deadline: Deadline
    ) -> int | ForeignThread:
        """
        Delete a thread of *owner* with everything that was said in it; return how many messages that were.

        Whoever adds to it at the same time has been before, or begins the thread anew. Repeating it is harmless.

        Args:
            owner: None for a thread that was begun on nobody's behalf.

        Raises:
            BadInput: an id is wrong.
            PostgresUnavailable, BudgetExceeded: nothing was deleted; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is harmless.
        """
        given = {**checked_thread(workflow_id, thread_id), "owner": owner}
        (row,) = await self._database.commit("delete_thread", given, deadline=deadline)
        return ForeignThread(row["owner"]) if row["status"] == "foreign" else int(row["messages"])

    async def _summarise_claimed(self, thread: dict[str, str], deadline: Deadline) -> SummaryOutcome:
        """Summarise unless somebody else does, and again while too much is left."""
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
            # The claim runs out by itself.
            log.warning("conversation.claim_kept", reason=str(error), **thread)
        return done

    async def _attempt(self, thread: dict[str, str], deadline: Deadline) -> SummaryOutcome:
        """Make one summary; what goes wrong is noted, and costs nothing but the summary."""
        try:
            return await self._make(thread, deadline.within_ms(SUMMARY_BUDGET_MS))
        except Exception as error:  # noqa: BLE001 - a summariser may be anybody's, and the message is stored already
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
        # No transaction and no connection is held meanwhile: a model may take its time.
        text = await self._summariser.summarise([StoredMessage.from_row(row) for row in rows], deadline=deadline)
        placed = {
            **thread,
            "ids": ids,
            "id": str(uuid5(_NAMES, orjson.dumps([*thread.values(), *ids]).decode())),
            "content": PREFIX + cleaned(text),
            "metadata": orjson.dumps(SUMMARY).decode(),
        }
        async with self._database.transaction(deadline) as conn:
            row = await (await conn.execute(sql("supersede_messages"), placed)).fetchone()
        return SummaryOutcome.OUTRUN if row is None or row["seq"] is None else SummaryOutcome.DONE


def checked_thread(workflow_id: str, thread_id: str) -> dict[str, str]:
    """
    Return the key of a thread.

    Raises:
        BadInput: one of the two is no text, is too long, or cannot be stored.
    """
    check_text("workflow_id", workflow_id, _WORKFLOW_CHARS)
    check_text("thread_id", thread_id, _THREAD_CHARS)
    return {"workflow_id": workflow_id, "thread_id": thread_id}
