"""
Workflow checkpoints: the state of a thread after each step, and what its parallel branches have finished since.

A step that is run again under its name leaves one row, with the latest state; who wants each round kept names them
apart (:func:`iteration`). Saves of one thread come one after the other, ordered by ``seq`` and never by the clock.

What a crash leaves: the last step that was saved, and every branch that had finished after it; a resume runs the
others.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from uuid_utils.compat import uuid7

from imem.checkpoints.json_text import json_text, value_of
from imem.checkpoints.model import (
    LONGEST_ID,
    LONGEST_NAME,
    LONGEST_THREAD,
    WorkflowCheckpoint,
    WorkflowStep,
    checked_text,
)
from imem.checkpoints.statements import call
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, NotResumable, StaleEpoch
from imem.journal.postgres.database import Database

KEEP_FAILED: Final = timedelta(days=30)
"""How long a thread that failed is kept."""

LONGEST_LIST: Final = 1000
"""Steps that one listing returns at most."""

NEWEST_VERSION: Final = 1_000_000
"""Of a state's form."""

PAGE: Final = 500
"""Threads that one statement of the clean-up forgets at most."""


def iteration(step_name: str, number: int) -> str:
    """
    Return the name of the *number*-th round of a repeated step, from 1: ``debate_round#2``. The first is the bare name.

    Raises:
        BadInput: there is no such round.
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
        Save the state after a step, with the thread's next ``seq``; what its branches had finished before is forgotten.

        Args:
            state: as JSON; it belongs to the next step what branches have finished, so it holds their results.
            state_version: of the state's form, from 1; raised when the program changes what it means.

        Raises:
            BadInput: an argument does not fit; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was saved; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        if not 1 <= state_version <= NEWEST_VERSION:
            raise BadInput("state_version", f"must be 1 to {NEWEST_VERSION}, not {state_version}.")
        text = json_text(state, "state")
        parameters = {
            **_thread(workflow_id, thread_id),
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
        Return where a thread stands: the step with the highest ``seq``, and what branches have finished since; or None.

        Args:
            understands: the versions of the state that the program knows.

        Raises:
            NotResumable: the state is of another version; nothing is to be started.
        """
        rows = await self._database.named("latest_step", _thread(workflow_id, thread_id), deadline=deadline)
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
        Keep what a parallel branch has finished after the step *seq*; return whether it is new: the first result stays.

        Raises:
            StaleEpoch: the thread stands at another step; nothing was written.
        """
        parameters = {
            **_thread(workflow_id, thread_id),
            "seq": seq,
            "task_id": checked_text("task_id", task_id, LONGEST_THREAD),
            "payload": json_text(payload, "payload"),
        }
        row = (await call(self._database, "finish_branch", parameters, deadline=deadline))[0]
        if row["status"] == "behind":
            raise StaleEpoch(
                f"{thread_id} of {workflow_id} does not stand at seq {seq}, but at {row['seq'] or 'nothing'}.",
                mend="Load the thread again.",
            )
        return bool(row["status"] == "kept")

    async def steps(
        self, workflow_id: str, thread_id: str, *, limit: int = LONGEST_LIST, deadline: Deadline
    ) -> list[WorkflowStep]:
        """Return the steps of a thread in the order in which they were last saved, without their states."""
        parameters = {**_thread(workflow_id, thread_id), "limit": max(1, min(limit, LONGEST_LIST))}
        return [WorkflowStep(**row) for row in await self._database.named("steps_of", parameters, deadline=deadline)]

    async def complete(self, workflow_id: str, thread_id: str | None = None, *, deadline: Deadline) -> int:
        """Forget a workflow that is done with, or one thread of it; return how many threads that were."""
        parameters = _threads(workflow_id, thread_id)
        return int((await call(self._database, "complete_workflow", parameters, deadline=deadline))[0]["threads"])

    async def fail(self, workflow_id: str, thread_id: str | None = None, *, deadline: Deadline) -> int:
        """
        Say that a workflow, or one thread of it, has failed; return how many threads there are.

        It is kept for 30 days from the first time on. A save takes the thread up again, and then it is kept.
        """
        return len(await call(self._database, "fail_workflow", _threads(workflow_id, thread_id), deadline=deadline))

    async def cleanup_failed(self, *, deadline: Deadline) -> int:
        """Forget threads that failed 30 days ago; return how many. What a crash leaves, the next run finds."""
        forgotten = 0
        while True:
            parameters = {"keep_failed": KEEP_FAILED, "limit": PAGE}
            row = (await call(self._database, "forget_failed_workflows", parameters, deadline=deadline))[0]
            forgotten += int(row["threads"])
            if row["due"] < PAGE:
                return forgotten


def _thread(workflow_id: str, thread_id: str) -> dict[str, Any]:
    return {
        "workflow_id": checked_text("workflow_id", workflow_id, LONGEST_ID),
        "thread_id": checked_text("thread_id", thread_id, LONGEST_THREAD),
    }


def _threads(workflow_id: str, thread_id: str | None) -> dict[str, Any]:
    if thread_id is not None:
        return _thread(workflow_id, thread_id)
    return {"workflow_id": checked_text("workflow_id", workflow_id, LONGEST_ID), "thread_id": None}
