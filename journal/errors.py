"""
The one error tree. Every class says whether the same call may be repeated.

::

    ImemError
    ├── BadInput                 no   the caller must change something; names the field
    │   ├── CoreConflict         no   the record exists with another core; correct it instead
    │   ├── UnknownSubject       no   nothing is known under that name; nearest names given
    │   ├── AmbiguousSubject     no   several subjects have that name; their ids given
    │   ├── UnknownDebate        no   no debate of that id was known
    │   ├── ObjectMissing        no   the store holds no object of that key
    │   ├── UnsupportedType      no   a value of that type cannot be held
    │   └── TooLarge             no   the value, or the memory with it, would pass its bound
    ├── PermissionDenied         no   the actor's role does not allow it; a denial row was written
    ├── StoreUnavailable         yes  a server cannot be reached, or refuses work for now
    │   ├── PostgresUnavailable  yes  nothing was written
    │   ├── GraphUnavailable     yes  nothing was written to the graph
    │   │   └── GraphDeadlock    yes  another writer held what this one needed; repeat it at once
    │   ├── ValkeyUnavailable    yes
    │   │   └── ServerFull       yes  it has no memory left; nothing was written and nothing evicted
    │   ├── ObjectsUnavailable   yes  the store of objects: a folder, or a service
    │   └── StackStarting        yes  the local stack is starting: its addresses are not known yet
    ├── BudgetExceeded           yes  the deadline passed first
    ├── OutcomeUnknown           yes  the connection broke while committing: it may or may not be stored
    │   └── NotRepeatable        no   an append, pop or count of working memory: repeated, it may happen twice
    ├── StatementRejected        no   a server refused the statement or its data
    ├── LeaseLost                no   another process has taken over the work
    │   └── StaleEpoch           no   the store has seen a later epoch than the caller's; nothing was written
    ├── LeaseHeld                yes  another process holds the lease, and it has not expired
    ├── NotOpen                  no   the working memory is not open: never opened, being restored, or lost
    ├── ConsistencyError         no   stored memory is not what its digest says; it must not be used
    ├── NotDelivered             no   a subtask cannot be completed: a store that it names has no result of it
    ├── NotResumable             no   no tier holds a state to resume from, or none that this program can read
    ├── TransitionRefused        no   a pause, plan, batch or delivery may not go from that state to this one
    ├── SettingsError            no   the settings are wrong; names the setting
    ├── SchemaError              no   the schema is newer than the program, or not made by its files
    └── StackError               no   the local stack cannot do what was asked; says what to do

Driver errors are translated where the driver is called, always ``from`` the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final


class ImemError(Exception):
    """
    Base of every error raised on purpose.

    Attributes:
        retryable: whether repeating the same call unchanged may succeed.
        mend: one sentence saying what a person can do about it, or the empty string.
        retry_after_s: how long the server asks to wait before the call is repeated, in seconds.
    """

    retryable: bool = False
    retry_after_s: float = 0.0

    def __init__(self, message: str, *, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.message} {self.mend}".strip()


class BadInput(ImemError):
    """
    The input is wrong; nothing was written.

    Attributes:
        field: dotted path of the offending field, such as ``core.confidence``.
        reason: what is wrong with it.
    """

    def __init__(self, field: str, reason: str, *, mend: str = "") -> None:
        super().__init__(f"{field}: {reason}", mend=mend)
        self.field = field
        self.reason = reason


class CoreConflict(BadInput):
    """A record of that key exists with a different core; only a ``correct`` replaces it."""


def shown(text: str) -> str:
    """Return *text* safe for a terminal: on one line, control characters escaped."""
    return text if text.isprintable() else repr(text)


class NameSearch(StrEnum):
    """Where names similar to an unknown one were searched."""

    NAMES = "names"
    """Tickers, ids, names and questions."""
    NOTHING = "nothing"
    """No store answered."""


_NONE_NEAR = {
    NameSearch.NAMES: "Nothing with a similar name is known either.",
    NameSearch.NOTHING: "Similar names could not be searched: no store answered in time.",
}


class UnknownSubject(BadInput):
    """
    Nothing is known of the subject.

    Attributes:
        nearest: similar names, best first.
        searched: where names were searched; without a search similar names may still exist.
    """

    def __init__(self, subject: str, nearest: Sequence[str] = (), searched: NameSearch = NameSearch.NAMES) -> None:
        hint = f"Did you mean {', '.join(map(shown, nearest))}?" if nearest else _NONE_NEAR[searched]
        super().__init__("subject", f"nothing is known about {subject!r}.", mend=hint)
        self.subject = subject
        self.nearest = tuple(nearest)
        self.searched = searched


class AmbiguousSubject(BadInput):
    """
    Several subjects have that name.

    Attributes:
        subject_ids: of those subjects, sorted; cut when there are very many.
    """

    def __init__(self, subject: str, subject_ids: Sequence[str], *, more: bool = False) -> None:
        ids = ", ".join(map(shown, subject_ids)) + (" and others" if more else "")
        super().__init__("subject", f"{subject!r} is the name of {ids}.", mend="Ask for one of them by its id.")
        self.subject = subject
        self.subject_ids = tuple(subject_ids)


class UnknownDebate(BadInput):
    """No debate of that id was known at the moment asked for."""

    def __init__(self, debate_id: str) -> None:
        super().__init__("debate", f"nothing is known about {debate_id!r}.")
        self.debate_id = debate_id


class ObjectMissing(BadInput):
    """The store holds no object of that key."""

    def __init__(self, key: str) -> None:
        super().__init__("key", f"no object {shown(key)} is stored.")
        self.key = key


class UnsupportedType(BadInput):
    """A value is of a type that working memory cannot hold or no serializer supports; the field names its key."""


class TooLarge(BadInput):
    """A value, or the memory that would hold it, exceeds its bound; the field names its key; nothing was written."""


class PermissionDenied(ImemError):
    """The actor may not do this; one denial row is in the audit."""


class StoreUnavailable(ImemError):
    """A server cannot be reached or refuses work for now."""

    retryable = True


class PostgresUnavailable(StoreUnavailable):
    """Postgres cannot be reached; nothing was written."""


class GraphUnavailable(StoreUnavailable):
    """Neo4j cannot be reached; nothing was written to the graph."""


class GraphDeadlock(GraphUnavailable):
    """Neo4j ended a transaction that waited for another one in a circle; nothing was written to the graph."""


class ValkeyUnavailable(StoreUnavailable):
    """Valkey cannot be reached."""


class ServerFull(ValkeyUnavailable):
    """The server has no memory left for this write: nothing was written, and nothing was evicted."""


class ObjectsUnavailable(StoreUnavailable):
    """The store of objects cannot be reached, or refused the call."""


class StackStarting(StoreUnavailable):
    """The local stack is starting or restarting: the addresses of its servers are not known yet."""


class BudgetExceeded(ImemError):
    """The deadline passed before the work was done; the server was asked to stop."""

    retryable = True


class OutcomeUnknown(ImemError):
    """
    The connection broke during a commit: the write may or may not be stored.

    Writes are idempotent: the caller repeats the same call until it is answered, and meanwhile reports it neither as
    failed nor as stored.
    """

    retryable = True


UNANSWERED: Final = (StoreUnavailable, BudgetExceeded, OutcomeUnknown)
"""Errors of a store that gave no answer in time; a later attempt may get one."""


class NotRepeatable(OutcomeUnknown):
    """
    A change of working memory that is not idempotent may or may not have been made.

    An append, a pop, a trim or a count: read the value before making the change again.
    """

    retryable = False


class StatementRejected(ImemError):
    """A server refused a statement or its data; repeating it changes nothing."""


class LeaseLost(ImemError):
    """Another process holds the lease with a later epoch; this process must stop."""


class StaleEpoch(LeaseLost):
    """The store has seen a later epoch than the caller's: another process has taken over; nothing was written."""


class LeaseHeld(ImemError):
    """Another process holds the lease, or has locked an actor's writes, and it has not expired."""

    retryable = True


class NotOpen(ImemError):
    """
    The working memory cannot be used: never opened, being restored, or behind what was acknowledged.

    Recovery (:mod:`imem.checkpoints.recovery`) restores it to what is proven and opens it, or refuses.
    """


class ConsistencyError(ImemError):
    """Stored memory does not match its digest or its count of keys; it must not be used."""


class NotDelivered(ImemError):
    """
    A subtask cannot be completed: it has delivered nothing to stores that its definition names; nothing was saved.

    Attributes:
        subtask: its id.
        stores: the names of those stores.
    """

    def __init__(self, subtask: str, stores: Sequence[str]) -> None:
        names = ", ".join(stores)
        super().__init__(
            f"{subtask} has delivered nothing to {names}.",
            mend="Deliver its result before completing it; deliver NOTHING to a store that it has no result for.",
        )
        self.subtask = subtask
        self.stores = tuple(stores)


class NotResumable(ImemError):
    """No tier holds a state to resume from, or none that this program can read; nothing was started."""


class TransitionRefused(ImemError):
    """A pause, plan, batch or delivery may not go from its state to the requested one; nothing was changed."""


class SettingsError(ImemError):
    """A setting is unknown or wrong."""


class SchemaError(ImemError):
    """
    The schema of a store is not one that this program can bring forward.

    It is newer than this program, or of a version from before the first release, or a file was changed after it was
    applied.
    """


class StackError(ImemError):
    """The local stack cannot do what was asked."""
