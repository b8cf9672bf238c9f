"""
The one error tree. Every class says whether the same call may be repeated.

::

    ImemError
    ├── BadInput                 no   the caller must change something; names the field
    │   ├── CoreConflict         no   the record exists with another core; correct it instead
    │   ├── UnknownSubject       no   nothing is known under that name; nearest names given
    │   ├── AmbiguousSubject     no   several subjects have that name; their ids given
    │   ├── UnknownDebate        no   no debate of that id was known
    │   ├── UnsupportedType      no   a value of that type cannot be held
    │   └── TooLarge             no   the value, or the memory with it, would pass its bound
    ├── PermissionDenied         no   the actor's role does not allow it; a denial row was written
    ├── StoreUnavailable         yes  a server cannot be reached, or refuses work for now
    │   ├── PostgresUnavailable  yes  nothing was written
    │   ├── GraphUnavailable     yes  nothing was written to the graph
    │   ├── ValkeyUnavailable    yes
    │   │   └── ServerFull       yes  it has no memory left; nothing was written and nothing evicted
    │   └── StackStarting        yes  the local stack is starting: nobody knows its addresses yet
    ├── BudgetExceeded           yes  the deadline passed first
    ├── OutcomeUnknown           yes  the connection broke while committing: it may or may not be stored
    │   └── NotRepeatable        no   an append, pop or count of working memory: repeated, it may happen twice
    ├── StatementRejected        no   a server refused the statement or its data
    ├── LeaseLost                no   another process has taken over the work
    │   └── StaleEpoch           no   the store has seen a later epoch than the caller's; nothing was written
    ├── LeaseHeld                yes  another process holds the lease, and it has not run out
    ├── NotOpen                  no   the working memory is not open: never opened, being restored, or lost
    ├── ConsistencyError         no   stored memory is not what its digest says; it must not be used
    ├── NotDelivered             no   a subtask cannot be completed: a store that it names has no result of it
    ├── NotResumable             no   no tier holds a state to go on from, or one that this program understands
    ├── TransitionRefused        no   a pause, plan, batch or delivery may not go from that state to this one
    ├── SettingsError            no   the settings are wrong; names the setting
    ├── SchemaError              no   a migration was changed, or the schema is newer than the program
    └── StackError               no   the local stack cannot do what was asked; says how to mend it

Errors of drivers are translated at the edge, always ``from`` the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class ImemError(Exception):
    """
    Base of every error raised on purpose.

    Attributes:
        retryable: whether the same call may be repeated unchanged with hope of success.
        mend: one sentence saying what a person can do about it, or the empty string.
    """

    retryable: bool = False

    def __init__(self, message: str, *, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.message} {self.mend}".strip()


class BadInput(ImemError):
    """
    Something in the input is wrong; nothing was written.

    Attributes:
        field: dotted path of the offending field, such as ``core.confidence``.
        reason: what is wrong with it.
    """

    def __init__(self, field: str, reason: str, *, mend: str = "") -> None:
        super().__init__(f"{field}: {reason}", mend=mend)
        self.field = field
        self.reason = reason


class CoreConflict(BadInput):
    """A record of that key exists with a different core; a ``correct`` is needed to replace it."""


def shown(text: str) -> str:
    """Return what somebody stored as a terminal may show it: on one line, and nothing that steers it."""
    return text if text.isprintable() else repr(text)


class NameSearch(StrEnum):
    """Where names like an unknown one were looked for."""

    NAMES = "names"
    """Tickers, ids, names and questions."""
    NOTHING = "nothing"
    """Nobody could be asked."""


_NONE_NEAR = {
    NameSearch.NAMES: "Nothing with a similar name is known either.",
    NameSearch.NOTHING: "Similar names could not be searched: no store answered in time.",
}


class UnknownSubject(BadInput):
    """
    Nothing is known of the subject.

    Attributes:
        nearest: names that look like the one asked for, best first.
        searched: where names were looked for; who has not looked cannot say that there is none.
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
        subject_ids: which, sorted; the first of them where they are very many.
    """

    def __init__(self, subject: str, subject_ids: Sequence[str], *, more: bool = False) -> None:
        ids = ", ".join(map(shown, subject_ids)) + (" and others" if more else "")
        super().__init__("subject", f"{subject!r} is the name of {ids}.", mend="Ask for one of them by its id.")
        self.subject = subject
        self.subject_ids = tuple(subject_ids)


class UnknownDebate(BadInput):
    """No debate of that id was known at the moment that was asked for."""

    def __init__(self, debate_id: str) -> None:
        super().__init__("debate", f"nothing is known about {debate_id!r}.")
        self.debate_id = debate_id


class UnsupportedType(BadInput):
    """A value is of a type that working memory cannot hold, or that no serializer knows; the field names its key."""


class TooLarge(BadInput):
    """A value, or the memory that would hold it, passes its bound; the field names its key; nothing was written."""


class PermissionDenied(ImemError):
    """The actor may not do this; one denial row is in the audit."""


class StoreUnavailable(ImemError):
    """A server cannot be reached or refuses work for now."""

    retryable = True


class PostgresUnavailable(StoreUnavailable):
    """Postgres cannot be reached; nothing was written."""


class GraphUnavailable(StoreUnavailable):
    """Neo4j cannot be reached; nothing was written to the graph."""


class ValkeyUnavailable(StoreUnavailable):
    """Valkey cannot be reached."""


class ServerFull(ValkeyUnavailable):
    """The server has no memory left for this write: nothing was written, and nothing was evicted."""


class StackStarting(StoreUnavailable):
    """The local stack is starting, or starting again: the addresses of its servers are not known yet."""


class BudgetExceeded(ImemError):
    """The deadline passed before the work was done; the server was told to stop."""

    retryable = True


class OutcomeUnknown(ImemError):
    """
    The connection broke while a commit was on its way: the write may or may not be stored.

    Writes are idempotent, so that the very same call is repeated until it is answered; what must not be done is to
    report it as failed or as stored.
    """

    retryable = True


class NotRepeatable(OutcomeUnknown):
    """
    A change of working memory that is another change when it is made twice may or may not have been made.

    An append, a pop, a trim or a count: look what stands there before making it again.
    """

    retryable = False


class StatementRejected(ImemError):
    """A server refused a statement or its data; repeating it changes nothing."""


class LeaseLost(ImemError):
    """Another process holds the lease with a later epoch; this one must stop."""


class StaleEpoch(LeaseLost):
    """The store has seen a later epoch than the caller's: somebody has taken over; nothing was written."""


class LeaseHeld(ImemError):
    """Another process holds the lease, or has locked an actor's writes, and that has not run out."""

    retryable = True


class NotOpen(ImemError):
    """
    The working memory cannot be used as it is: never opened, being restored, or behind what was acknowledged.

    Recovery (:mod:`imem.checkpoints.recovery`) opens it again with what is proven, or refuses.
    """


class ConsistencyError(ImemError):
    """What a store holds is not what its digest, or its count of keys, says: it must not be used."""


class NotDelivered(ImemError):
    """
    A subtask cannot be completed: its definition names stores for which it has delivered nothing; nothing was saved.

    Attributes:
        subtask: which.
        stores: the names of the stores.
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
    """No tier holds a state to go on from, or none that this program understands; nothing was started."""


class TransitionRefused(ImemError):
    """A pause, a plan, a batch or a delivery may not go from its state to the one asked for; nothing was changed."""


class SettingsError(ImemError):
    """A setting is unknown or wrong."""


class SchemaError(ImemError):
    """A migration file was changed after it was applied, or the schema is newer than this program."""


class StackError(ImemError):
    """The local stack cannot do what was asked."""
