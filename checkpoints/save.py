"""A save: its validation, its parameters, and its result. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from uuid_utils.compat import uuid7

from imem.checkpoints.model import (
    LONGEST_NAME,
    AgentLease,
    Checkpoint,
    CheckpointKind,
    SubtaskFailure,
    checked_digest,
    checked_text,
)
from imem.journal.errors import BadInput, ImemError, StaleEpoch
from imem.journal.postgres.connection import Row
from imem.journal.texts.json_text import exact_object_text, value_of

LONGEST_REASON: Final = 10_000
"""Characters of the reason of a failure, at most."""

MOST_RETRIES: Final = 1_000_000
"""Largest retry count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """
    The arguments of one save; see :meth:`imem.checkpoints.store.Checkpoints.save`.

    The constructor refuses invalid combinations, by field.

    Attributes:
        version, names: of the agent's program, and its subtasks.
    """

    lease: AgentLease
    version: str
    names: tuple[str, ...]
    kind: CheckpointKind
    subtask: str | None
    document: Mapping[str, Any] | None
    digest: str | None
    interim_results: Mapping[str, Any] | None
    agent_config: Mapping[str, Any] | None
    failure: SubtaskFailure | None
    base: Checkpoint | None
    id: UUID = field(default_factory=uuid7)

    def __post_init__(self) -> None:
        self._check_subtask()
        self._check_memory()
        if (self.failure is not None) != (self.kind is CheckpointKind.FAILURE):
            raise BadInput("failure", "is for a checkpoint of the kind failure, and for that alone.")
        if self.failure is not None:
            checked_text("failure.reason", self.failure.reason, LONGEST_REASON)
            if not 0 <= self.failure.retry_count <= MOST_RETRIES:
                raise BadInput("failure.retry_count", f"must be 0 to {MOST_RETRIES}, not {self.failure.retry_count}.")

    def _check_subtask(self) -> None:
        if self.subtask is not None:
            checked_text("subtask", self.subtask, LONGEST_NAME)
            if self.kind in {CheckpointKind.START, CheckpointKind.PAUSE}:
                raise BadInput("subtask", f"is not for a checkpoint of the kind {self.kind.value}.")
        elif self.kind in {CheckpointKind.SUBTASK, CheckpointKind.RERUN}:
            raise BadInput("subtask", "must name the subtask that was completed.")

    def _check_memory(self) -> None:
        if self.kind is CheckpointKind.START:
            if self.document or self.digest is not None:
                raise BadInput("document", "is not for a checkpoint of the kind start, at which nothing is known yet.")
        elif self.document is None:
            raise BadInput("document", "must be the working memory's.")
        else:
            checked_digest("digest", self.digest)

    def parameters(self) -> dict[str, Any]:
        """
        Return the parameters of the statement.

        Raises:
            BadInput, TooLarge: a value has no form in JSON, or is too large; names it.
        """
        failure, base = self.failure, self.base
        pending = self.names if self.kind is CheckpointKind.START else base.pending_subtasks if base else None
        details = failure.details if failure is not None else None
        return {
            "id": self.id,
            "analysis_id": self.lease.analysis_id,
            "agent_type": self.lease.agent_type,
            "epoch": self.lease.epoch,
            "kind": self.kind.value,
            "subtask": self.subtask,
            # Texts alone, and bounded when the memory was written: not validated again.
            "working_memory": orjson.dumps(self.document or {}).decode(),
            "working_memory_hash": self.digest,
            "interim_results": exact_object_text(self.interim_results or {}, "interim_results"),
            "agent_config": exact_object_text(self.agent_config or {}, "agent_config"),
            "agent_version": self.version,
            "failure_reason": failure.reason if failure is not None else None,
            "error_details": exact_object_text(details, "failure.details") if details is not None else None,
            "retry_count": failure.retry_count if failure is not None else 0,
            "base": base.id if base is not None else None,
            "completed": list(base.completed_subtasks) if base is not None else None,
            "pending": list(pending) if pending is not None else None,
        }

    def saved(self, row: Row, parameters: Mapping[str, Any]) -> Checkpoint:
        """Return the checkpoint from the statement's row."""
        given = (
            "kind", "subtask", "working_memory_hash", "agent_version", "failure_reason", "retry_count", "analysis_id",
            "agent_type",
        )  # fmt: skip
        found = {name: parameters[name] for name in given} | {name: row[name] for name in row if name != "status"}
        document, details = self.document or {}, parameters["error_details"]
        if self.kind is CheckpointKind.PAUSE:
            found |= {"l1_snapshot": document, "l1_snapshot_hash": self.digest}
        return Checkpoint.from_row(
            {
                **found,
                "working_memory": document,
                "interim_results": value_of(parameters["interim_results"]),
                "agent_config": value_of(parameters["agent_config"]),
                "error_details": value_of(details) if details is not None else None,
            }
        )

    def refusal(self, row: Row) -> ImemError:
        """Return the error for a row that says that nothing was saved."""
        agent = f"{self.lease.agent_type} in {self.lease.analysis_id}"
        match row["status"]:
            case "stale":
                newest = f"it is at {row['epoch']}" if row["epoch"] is not None else "its analysis is over"
                return StaleEpoch(
                    f"{agent} is no longer at epoch {self.lease.epoch}: {newest}.",
                    mend="Stop: another process goes on from the latest checkpoint.",
                )
            case "completed":
                return BadInput("subtask", f"{self.subtask} of {agent} is completed already, with another content.")
            case "not_pending":
                if self.kind is CheckpointKind.RERUN:
                    return BadInput("subtask", f"{self.subtask} of {agent} is not completed: nothing is run again.")
                first = row["pending_subtasks"][0] if row["pending_subtasks"] else "none"
                return BadInput("subtask", f"the next one of {agent} is {first}, not {self.subtask}.")
            case "base":
                return BadInput("base", f"is not the latest checkpoint of {agent}, which has seq {row['seq']}.")
            case _:
                return BadInput(
                    "base",
                    f"the latest checkpoint of {agent} is of another version of its program.",
                    mend="Migrate it, and pass what it was migrated to.",
                )
