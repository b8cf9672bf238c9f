"""
Deliverables: results of subtasks, recorded per store and confirmed before checkpoints are cleaned up.

There is one row for each store that the definition names; it may record that there is no result for it. A rerun after a
crash between deliverable and checkpoint replaces the row. Results in the cache may be evicted: the checkpoint stores
them as well, in its interim results under the subtask's name. They count as present while either has them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from imem.cache.client import Client
from imem.cache.scripts import script
from imem.checkpoints.json_text import json_text
from imem.checkpoints.model import LONGEST_ID, LONGEST_NAME, AgentLease, Deliverable, checked_digest, checked_text
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Location
from imem.checkpoints.statements import call
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StaleEpoch
from imem.journal.postgres.database import Database

LONGEST_REFERENCE: Final = 1000
"""Characters of a reference, at most."""

_NONE: Final = "nothing"
"""The reference of a row without a result."""


class Deliverables:
    """
    The deliverables of all analyses.

    Args:
        definitions: which subtasks there are.
    """

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def store(
        self, lease: AgentLease, subtask: str, payload: Any, *, reference: str | None = None, deadline: Deadline
    ) -> Deliverable:
        """
        Store a result in Postgres, in place of the subtask's earlier one.

        Args:
            payload: as JSON.
            reference: a name for it; the subtask's where none is given.

        Raises: as :meth:`note`.
        """
        text = json_text(payload, "payload")
        its = _content(Location.POSTGRES, reference or subtask, digest_of(text), text)
        return await self._deliver(lease, subtask, its, deadline)

    async def note(
        self, lease: AgentLease, subtask: str, location: Location, *, reference: str, digest: str, deadline: Deadline
    ) -> Deliverable:
        """
        Record a result that is stored elsewhere, in place of the subtask's earlier one. Idempotent.

        Args:
            reference: in the graph ``Kind/key`` of the record; in the cache its key; of a message the event's id.
            digest: SHA-256 of the content, in 64 hexadecimal digits.

        Raises:
            StaleEpoch: another process has taken over; nothing was written.
            BadInput: an argument is invalid, such as a subtask that has not begun; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        if location is Location.POSTGRES:
            raise BadInput("location", "what Postgres holds is given as a payload.")
        return await self._deliver(lease, subtask, _content(location, reference, digest), deadline)

    async def none(self, lease: AgentLease, subtask: str, location: Location, *, deadline: Deadline) -> Deliverable:
        """
        Record that a subtask has no result for a store, in place of its earlier one.

        Raises: as :meth:`note`.
        """
        its = {"location": location.value, "reference": _NONE, "digest": digest_of(_NONE), "payload": None}
        return await self._deliver(lease, subtask, {**its, "nothing": True}, deadline)

    async def _deliver(
        self, lease: AgentLease, subtask: str, content: Mapping[str, Any], deadline: Deadline
    ) -> Deliverable:
        checked_text("subtask", subtask, LONGEST_NAME)
        self._definitions.of_type(lease.agent_type).subtask(subtask)
        whose = {"analysis_id": lease.analysis_id, "agent_type": lease.agent_type, "subtask": subtask}
        asked = {**whose, **content, "epoch": lease.epoch}
        row = (await call(self._database, "deliver", asked, deadline=deadline))[0]
        if row["status"] == "stale":
            raise StaleEpoch(
                f"{lease.agent_type} in {lease.analysis_id} is no longer at epoch {lease.epoch}.",
                mend="Stop: another process goes on from the latest checkpoint.",
            )
        if row["status"] == "not_begun":
            raise BadInput("subtask", f"{subtask} of {lease.agent_type} in {lease.analysis_id} has not begun yet.")
        stored = {name: content[name] for name in ("location", "reference", "digest", "nothing")}
        return Deliverable.from_row({**whose, **stored, "delivered_at": row["delivered_at"]})

    async def of(self, analysis_id: str, *, deadline: Deadline) -> list[Deliverable]:
        """Return the deliverables of an analysis, by agent, subtask and location."""
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await self._database.named("deliverables_of", parameters, deadline=deadline)
        return [Deliverable.from_row(row) for row in rows]

    async def under(self, lease: AgentLease, subtask: str, *, deadline: Deadline) -> set[Location]:
        """Return the stores to which a subtask has delivered under this lease."""
        whose = {"analysis_id": lease.analysis_id, "agent_type": lease.agent_type, "subtask": subtask}
        rows = await self._database.named("delivered_under", {**whose, "epoch": lease.epoch}, deadline=deadline)
        return {Location(row["location"]) for row in rows}


def digest_of(text: str) -> str:
    """Return the digest of a result, given as JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _content(location: Location, reference: str, digest: str, payload: str | None = None) -> dict[str, Any]:
    """Return a deliverable as parameters."""
    return {
        "location": location.value,
        "reference": _checked_reference(location, reference),
        "digest": checked_digest("digest", digest),
        "payload": payload,
        "nothing": False,
    }


def _checked_reference(location: Location, reference: str) -> str:
    checked_text("reference", reference, LONGEST_REFERENCE)
    if location is Location.GRAPH:
        kind, _, key = reference.partition("/")
        if not kind or not key:
            raise BadInput("reference", "must be Kind/key of a record, such as Finding/f-17.")
    elif location is Location.MESSAGE:
        try:
            UUID(reference)
        except ValueError as error:
            raise BadInput("reference", "must be the id of an event.") from error
    return reference


# Checks


class ResultChecks:
    """
    Finds results in their stores.

    Args:
        cache: a client of the shared cache; without one, only checkpoints count there.
    """

    def __init__(self, database: Database, cache: Client | None) -> None:
        self._database = database
        self._cache = cache

    async def lost(self, wanted: Iterable[Deliverable], *, deadline: Deadline) -> set[Deliverable]:
        """
        Return those of *wanted*, all of one analysis, that are missing.

        Raises:
            StoreUnavailable: a store could not be read.
        """
        groups: dict[Location, list[Deliverable]] = defaultdict(list)
        for one in wanted:
            if not one.nothing:
                groups[one.location].append(one)
        missing: set[Deliverable] = set()
        for location, group in sorted(groups.items()):
            missing |= set(group) - await self.there(location, group, deadline)
        return missing

    async def there(self, location: Location, wanted: Sequence[Deliverable], deadline: Deadline) -> set[Deliverable]:
        """Return those of *wanted*, all of that store, that are present."""
        match location:
            case Location.POSTGRES:
                return await self._payloads(wanted, deadline)
            case Location.GRAPH:
                # The graph follows the journal.
                names = {one: one.reference.partition("/")[::2] for one in wanted}
                asked = {"kinds": [kind for kind, _ in names.values()], "keys": [key for _, key in names.values()]}
                rows = await self._database.named("records_there", asked, deadline=deadline)
                known: set[Any] = {(row["kind"], row["key"]) for row in rows}
                return {one for one, name in names.items() if name in known}
            case Location.MESSAGE:
                ids = {one: UUID(one.reference) for one in wanted}
                rows = await self._database.named("events_there", {"ids": list(ids.values())}, deadline=deadline)
                known = {row["event_id"] for row in rows}
                return {one for one, its in ids.items() if its in known}
            case Location.CACHE:
                return await self._cached(wanted, deadline)

    async def _payloads(self, wanted: Sequence[Deliverable], deadline: Deadline) -> set[Deliverable]:
        """Return those whose payload still has its digest."""
        rows = await self._database.named("payloads_of", {"analysis_id": wanted[0].analysis_id}, deadline=deadline)
        sound = {
            (row["agent_type"], row["subtask"]): row["digest"]
            for row in rows
            if digest_of(json_text(row["payload"], "payload")) == row["digest"]
        }
        return {one for one in wanted if sound.get((one.agent_type, one.subtask)) == one.digest}

    async def _cached(self, wanted: Sequence[Deliverable], deadline: Deadline) -> set[Deliverable]:
        """Return those that are in the cache, or in the interim results of a checkpoint under their subtask."""
        there: set[Deliverable] = set()
        if self._cache is not None:
            keys = [one.reference.encode() for one in wanted]
            found = await self._cache.run(script("keys_there"), keys, (), deadline=deadline)
            there = {one for one, holds in zip(wanted, found, strict=True) if holds}
        lost = [one for one in wanted if one not in there]
        for agent_type in sorted({one.agent_type for one in lost}):
            its = {one.subtask: one for one in lost if one.agent_type == agent_type}
            asked = {"analysis_id": lost[0].analysis_id, "agent_type": agent_type, "subtasks": list(its)}
            rows = await self._database.named("results_in_interim", asked, deadline=deadline)
            there.update(its[row["subtask"]] for row in rows)
        return there


def undelivered(
    definition: AgentDefinition, completed: Iterable[str], delivered: Iterable[Deliverable]
) -> set[tuple[str, Location]]:
    """Return the *completed* subtasks with the stores to which they never delivered."""
    known = {(one.subtask, one.location) for one in delivered if one.agent_type == definition.agent_type}
    stores = {subtask.name: subtask.stores for subtask in definition.subtasks}
    return {(subtask, store) for subtask in completed for store in stores.get(subtask, ())} - known
