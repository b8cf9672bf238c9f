"""Immutable values: leases, checkpoints, deliverables, and steps of workflows; each is built from rows in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Self
from uuid import UUID

import orjson

from imem.cache.working.document import Contents, contents_of, digest
from imem.cache.working.snapshots import SnapshotMeta
from imem.cache.working.state import MemoryIdentity
from imem.checkpoints.orchestration.definitions import Location
from imem.journal.errors import BadInput, ConsistencyError
from imem.journal.texts.json_text import json_text

LONGEST_ID: Final = 200
"""Characters of the id of an analysis, a subject, a workflow, an owner or a holder, at most."""

LONGEST_THREAD: Final = 255
"""Characters of the id of a thread or of a branch's task, at most."""

LONGEST_NAME: Final = 100
"""Characters of the name of a step or a subtask, at most."""

_HEX: Final = re.compile(r"[0-9a-f]{64}")
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""Characters that Postgres refuses in a text: NUL, and halves of surrogate pairs."""


def checked_text(field: str, text: object, longest: int) -> str:
    """
    Return *text*.

    Raises:
        BadInput: it is no text of 1 to *longest* characters without NUL; names *field*.
    """
    if not isinstance(text, str):
        raise BadInput(field, f"must be text, not {type(text).__name__}.")
    if not 1 <= len(text) <= longest:
        raise BadInput(field, f"must have 1 to {longest} characters, not {len(text)}.")
    if UNSTORABLE.search(text):
        raise BadInput(field, "must not hold NUL or half of a surrogate pair.")
    return text


def checked_digest(field: str, digest: object) -> str:
    """
    Return *digest*.

    Raises:
        BadInput: it is no SHA-256 in 64 hexadecimal digits.
    """
    if not isinstance(digest, str) or not _HEX.fullmatch(digest):
        raise BadInput(field, "must be a SHA-256 in 64 hexadecimal digits.")
    return digest


def checked_uuid(field: str, value: object) -> UUID:
    """
    Return *value* as an id.

    Raises:
        BadInput: it is no UUID; names *field*.
    """
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise BadInput(field, f"{str(value)[:80]!r} is no UUID.") from None


class CheckpointKind(StrEnum):
    """Reason of a checkpoint."""

    START = "start"
    """A run begins, with nothing completed and an empty memory."""
    SUBTASK = "subtask"
    """A subtask is completed."""
    FAILURE = "failure"
    """A subtask failed, before the agent shut down."""
    RERUN = "rerun"
    """A subtask was completed once more: its result had been lost."""
    PAUSE = "pause"
    """The analysis is being paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLease:
    """
    The right of one process to run one agent in one analysis.

    Attributes:
        analysis_id, agent_type: of the agent.
        agent_id: the instance; names its working memory.
        subject_id: the subject of the analysis.
        holder: the process; None after the agent was fenced off.
        epoch: grows with each new holder; writes with a lower one are refused everywhere.
        expires_at: from then on another process may take over; until then, and until one does, it is the holder's.
    """

    analysis_id: str
    agent_type: str
    agent_id: str
    subject_id: str
    holder: str | None
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskFailure:
    """
    Why a subtask failed.

    Attributes:
        reason: in one sentence.
        details: for diagnosis, as JSON.
        retry_count: number of retries before.
    """

    reason: str
    details: Mapping[str, Any] | None = None
    retry_count: int = 0


def _typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a checkpoint with immutable lists."""
    return {
        **row,
        "kind": CheckpointKind(row["kind"]),
        "completed_subtasks": tuple(row["completed_subtasks"]),
        "pending_subtasks": tuple(row["pending_subtasks"]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """
    The state of an agent at a checkpoint, without documents.

    Attributes:
        id: of the checkpoint.
        run: counts clean restarts, from 1.
        seq: its number among the agent's checkpoints in the analysis, from 0 without gaps, over all runs.
        epoch: of the lease that it was saved under.
        subtask: of a subtask or rerun row the completed one, of a failure row the failed one.
        checkpoint_time: strictly increasing with *seq*; *created_at* is the clock's time.
        progress_pct: 100 × completed ÷ all.
        completed_subtasks, pending_subtasks: disjoint; together they are the definition's.
        working_memory_hash: digest of the working memory; None of a start row.
        agent_version: of the agent's program.
        failure_reason, retry_count: of a failure row.
        preserve: exempt from clean-up.
    """

    id: UUID
    analysis_id: str
    agent_type: str
    agent_id: str
    subject_id: str
    run: int
    seq: int
    epoch: int
    kind: CheckpointKind
    subtask: str | None
    checkpoint_time: datetime
    created_at: datetime
    progress_pct: Decimal
    completed_subtasks: tuple[str, ...]
    pending_subtasks: tuple[str, ...]
    agent_version: str
    failure_reason: str | None = None
    retry_count: int = 0
    working_memory_hash: str | None
    preserve: bool = False

    @property
    def identity(self) -> MemoryIdentity:
        """The agent, as its working memory names it."""
        return MemoryIdentity(self.agent_id, self.analysis_id, self.agent_type)

    @property
    def current_subtask(self) -> str | None:
        """The next subtask, or the failed one; None when all are completed."""
        return self.pending_subtasks[0] if self.pending_subtasks else None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of a statement about checkpoints as a value."""
        return cls(**_typed(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary(CheckpointHeader):
    """
    A checkpoint without its documents.

    Attributes (beside those of :class:`CheckpointHeader`):
        stored_bytes: approximate size of its documents in Postgres.
    """

    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(CheckpointHeader):
    """
    A checkpoint with its documents.

    Attributes (beside those of :class:`CheckpointHeader`):
        working_memory: its typed document; empty in a start row.
        interim_results: findings that are not in the graph yet.
        agent_config: configuration of the agent.
        error_details: of a failure row.
        l1_snapshot, l1_snapshot_hash: of a pause row, the working memory and its digest once more.
    """

    working_memory: Mapping[str, Any]
    interim_results: Mapping[str, Any]
    agent_config: Mapping[str, Any]
    error_details: Mapping[str, Any] | None = None
    l1_snapshot: Mapping[str, Any] | None = None
    l1_snapshot_hash: str | None = None

    @property
    def clean(self) -> bool:
        """Whether a run begins here: no memory is to be restored."""
        return self.kind is CheckpointKind.START

    def contents(self) -> Contents:
        """
        Return its working memory; empty in a start row.

        Raises:
            ConsistencyError: it is not what its digest says.
        """
        found = contents_of(self.working_memory)
        if self.working_memory_hash not in {None, digest(found)}:
            raise ConsistencyError(f"The checkpoint {self.seq} of {self.agent_id} does not match its digest.")
        return found

    def body(self) -> bytes:
        """Return the whole row as JSON: the copy in Valkey."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        head = orjson.dumps({**plain, "progress_pct": str(self.progress_pct)})
        parts = [head[:-1]]
        for name in _DOCUMENTS:
            parts += [f',"{name}":'.encode(), orjson.dumps(getattr(self, name))]
        for name in _FREE:
            parts += [f',"{name}":'.encode(), json_text(getattr(self, name), name).encode()]
        return b"".join([*parts, b"}"])

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """
        Return the checkpoint that :meth:`body` encoded.

        Raises:
            ConsistencyError: *body* is damaged.
        """
        try:
            row = json.loads(body)
            row["id"] = UUID(row["id"])
            row["progress_pct"] = Decimal(row["progress_pct"])
            for name in ("checkpoint_time", "created_at"):
                row[name] = datetime.fromisoformat(row[name])
            return cls.from_row(row)
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            raise ConsistencyError("The copy of a checkpoint is not what was written.") from error


def snapshot_of(checkpoint: Checkpoint, *, taken_at: datetime, protects_until: datetime | None) -> SnapshotMeta:
    """Return the metadata of the snapshot of a checkpoint's working memory."""
    return SnapshotMeta(
        checkpoint.identity,
        epoch=checkpoint.epoch,
        seq=checkpoint.seq,
        checkpoint_id=str(checkpoint.id),
        digest=checkpoint.working_memory_hash or "",
        key_count=len(checkpoint.working_memory),
        taken_at=taken_at,
        protects_until=protects_until,
    )


_DOCUMENTS: Final = ("working_memory", "l1_snapshot")
_FREE: Final = ("interim_results", "agent_config", "error_details")
_PLAIN: Final = tuple(
    name for name in Checkpoint.__dataclass_fields__ if name not in {*_DOCUMENTS, *_FREE, "progress_pct"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverable:
    """
    A result of a subtask, in one of the stores that its definition names.

    Attributes:
        reference: in Postgres a name; in the graph ``Kind/key`` of a record; in the cache its key; of a message the id
            of the journal's event.
        digest: SHA-256 of the content, in 64 hexadecimal digits.
        nothing: whether the subtask has no result for this store.
    """

    analysis_id: str
    agent_type: str
    subtask: str
    location: Location
    reference: str
    digest: str
    delivered_at: datetime
    nothing: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of ``deliverables_of`` as a value."""
        return cls(**{**row, "location": Location(row["location"])})


class AnalysisOutcome(StrEnum):
    """How an analysis ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisStatus:
    """
    The status of an analysis.

    Attributes:
        outcome, ended_at: None while it is running or paused.
        reason: why it failed.
        purged_at: when the last of its unpreserved checkpoints was removed.
        cleared_at: when its keys in Valkey were removed.
    """

    analysis_id: str
    subject_id: str
    began_at: datetime
    outcome: AnalysisOutcome | None
    ended_at: datetime | None
    reason: str | None
    purged_at: datetime | None
    cleared_at: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of ``analysis`` as a value."""
        return cls(**{**row, "outcome": AnalysisOutcome(row["outcome"]) if row["outcome"] else None})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCheckpoint:
    """
    The state of a workflow's thread after a step.

    Attributes:
        seq: its number among the saves of the thread; the highest is the latest.
        parent_seq: of the step before; None for the first.
        state_version: of the state's form; a program that does not know it must not continue.
        pending: task → its result since; a resume runs only the others.
    """

    id: UUID
    workflow_id: str
    thread_id: str
    step_name: str
    seq: int
    parent_seq: int | None
    state: Any
    state_version: int
    created_at: datetime
    pending: Mapping[str, Any]
