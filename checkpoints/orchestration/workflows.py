"""
Workflow checkpoints: the state of a thread after each step, and the results of its parallel branches since.

A step that is saved again under its name leaves one row, with the latest state; :func:`iteration` names the rounds of a
loop. Saves of one thread are serialised, and ordered by ``seq``, never by the clock.

A crash leaves the last saved step, and every branch that finished after it; a resume runs the others.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from uuid_utils.compat import uuid7

from imem.checkpoints.model import (
    LONGEST_ID,
    LONGEST_NAME,
    LONGEST_THREAD,
    WorkflowCheckpoint,
    checked_text,
)
from imem.checkpoints.statements import call, thread_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, NotResumable, StaleEpoch
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import exact_text, value_of

KEEP_FAILED: Final = timedelta(days=30)
"""How long a failed thread is kept."""

NEWEST_VERSION: Final = 1_000_000
"""Highest version of a state's form."""

PAGE: Final = 500
"""Threads that one statement of the clean-up removes at most."""


def iteration(step_name: str, number: int) -> str:
    """
    Return the name of the *number*-th round of a repeated step, from 1: ``debate_round#2``. The first is the bare name.

    Raises:
        BadInput: *number* is below 1.
    """
    if number < 1:
        raise BadInput("number", f"rounds are counted from 1, not {number}.")
    return step_name if number == 1 else f"{step_name}#{number}"


class Workflows:
    """The threads of all workflows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, workflow_id: str, thread_id: str, step_name: str, state: Any, *, state_version: int, deadline: Deadline
    ) -> WorkflowCheckpoint:
        """
        Save the state after a step, with the thread's next ``seq``; earlier results of branches are removed.

        Args:
            state: as JSON; it has to include the results of branches that the next step needs.
            state_version: of the state's form, from 1; raised when the program changes its meaning.

        Raises:
            BadInput: an argument is invalid; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was saved; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        if not 1 <= state_version <= NEWEST_VERSION:
            raise BadInput("state_version", f"must be 1 to {NEWEST_VERSION}, not {state_version}.")
        text = exact_text(state, "state")
        parameters = {
            **thread_of(workflow_id, thread_id),
            "id": uuid7(),
            "step_name": checked_text("step_name", step_name, LONGEST_NAME),
            "state": text,
            "state_version": state_version,
        }
        row = (await call(self._database, "save_step", parameters, deadline=deadline))[0]
        return WorkflowCheckpoint(
            **row,
            workflow_id=workflow_id,
            thread_id=thread_id,
            step_name=step_name,
            state=value_of(text),
            state_version=state_version,
            pending={},
        )

    async def load(
        self, workflow_id: str, thread_id: str, *, understands: Collection[int], deadline: Deadline
    ) -> WorkflowCheckpoint | None:
        """
        Return the latest step of a thread, and the results of branches since; None where there is none.

        Args:
            understands: the versions of the state that the program knows.

        Raises:
            NotResumable: the state is of another version; nothing must be started.
        """
        rows = await self._database.named("latest_step", thread_of(workflow_id, thread_id), deadline=deadline)
        if not rows:
            return None
        found = WorkflowCheckpoint(**rows[0])
        if found.state_version not in understands:
            raise NotResumable(
                f"{thread_id} of {workflow_id} stands at {found.step_name} with a state of version "
                f"{found.state_version}, which this program does not know.",
                mend="Run the program that saved it.",
            )
        return found

    async def finish_branch(
        self, workflow_id: str, thread_id: str, seq: int, task_id: str, payload: Any, *, deadline: Deadline
    ) -> bool:
        """
        Store the result of a parallel branch after the step *seq*; return whether it is new: the first result stays.

        Raises:
            StaleEpoch: the thread is at another step; nothing was written.
        """
        parameters = {
            **thread_of(workflow_id, thread_id),
            "seq": seq,
            "task_id": checked_text("task_id", task_id, LONGEST_THREAD),
            "payload": exact_text(payload, "payload"),
        }
        row = (await call(self._database, "finish_branch", parameters, deadline=deadline))[0]
        if row["status"] == "behind":
            raise StaleEpoch(
                f"{thread_id} of {workflow_id} does not stand at seq {seq}, but at {row['seq'] or 'nothing'}.",
                mend="Load the thread again.",
            )
        return bool(row["status"] == "kept")

    async def complete(self, workflow_id: str, thread_id: str | None = None, *, deadline: Deadline) -> int:
        """Remove a completed workflow, or one thread of it; return how many threads."""
        parameters = _threads(workflow_id, thread_id)
        return int((await call(self._database, "complete_workflow", parameters, deadline=deadline))[0]["threads"])

    async def fail(self, workflow_id: str, thread_id: str | None = None, *, deadline: Deadline) -> int:
        """
        Mark a workflow, or one thread of it, as failed; return how many threads.

        It is kept for 30 days from the first failure on. A save makes the thread current again.
        """
        return len(await call(self._database, "fail_workflow", _threads(workflow_id, thread_id), deadline=deadline))

    async def cleanup_failed(self, *, deadline: Deadline) -> int:
        """Remove threads that failed 30 days ago; return how many. After a crash the next run continues."""
        forgotten = 0
        while True:
            parameters = {"keep_failed": KEEP_FAILED, "limit": PAGE}
            row = (await call(self._database, "forget_failed_workflows", parameters, deadline=deadline))[0]
            forgotten += int(row["threads"])
            if row["due"] < PAGE:
                return forgotten


def _threads(workflow_id: str, thread_id: str | None) -> dict[str, Any]:
    if thread_id is not None:
        return thread_of(workflow_id, thread_id)
    return {"workflow_id": checked_text("workflow_id", workflow_id, LONGEST_ID), "thread_id": None}
