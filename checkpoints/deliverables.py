"""
Deliverables: results of subtasks, recorded per store and confirmed before checkpoints are cleaned up.

There is one row for each store that the definition names; it may record that there is no result for it. A rerun after a
crash between deliverable and checkpoint replaces the row. Results in the cache may be evicted: the checkpoint stores
them as well, in its interim results under the subtask's name. They count as present while either has them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from imem.cache.client import Client
from imem.cache.scripts import script
from imem.checkpoints.model import (
    LONGEST_ID,
    LONGEST_NAME,
    AgentLease,
    Deliverable,
    checked_digest,
    checked_text,
    checked_uuid,
)
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Location
from imem.checkpoints.statements import call
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StaleEpoch
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import json_text

LONGEST_REFERENCE: Final = 1000
"""Characters of a reference, at most."""


class Deliverables:
    """
    The deliverables of all analyses.

    Args:
        definitions: which subtasks there are.
    """

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def put(
        self,
        lease: AgentLease,
        subtask: str,
        location: Location,
        *,
        reference: str,
        digest: str,
        payload: str | None = None,
        nothing: bool = False,
        deadline: Deadline,
    ) -> Deliverable:
        """
        Record a result, in place of the subtask's earlier one. Idempotent.

        Args:
            reference: in Postgres a name; in the graph ``Kind/key`` of the record; in the cache its key; of a message
                the event's id.
            digest: SHA-256 of the content, in 64 hexadecimal digits.
            payload: of Postgres alone, the result itself, as JSON text.
            nothing: whether the subtask has no result for this store.

        Raises:
            StaleEpoch: another process has taken over; nothing was written.
            BadInput: an argument is invalid, such as a subtask that has not begun; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        if not nothing:
            if (payload is not None) != (location is Location.POSTGRES):
                raise BadInput("payload", "is what Postgres holds, and no other store.")
            _check_reference(location, reference)
        checked_text("subtask", subtask, LONGEST_NAME)
        self._definitions.of_type(lease.agent_type).subtask(subtask)
        whose = {"analysis_id": lease.analysis_id, "agent_type": lease.agent_type, "subtask": subtask}
        stored = {
            "location": location.value,
            "reference": reference,
            "digest": checked_digest("digest", digest),
            "nothing": nothing,
        }
        asked = {**whose, **stored, "payload": payload, "epoch": lease.epoch}
        row = (await call(self._database, "deliver", asked, deadline=deadline))[0]
        if row["status"] == "stale":
            raise StaleEpoch(
                f"{lease.agent_type} in {lease.analysis_id} is no longer at epoch {lease.epoch}.",
                mend="Stop: another process goes on from the latest checkpoint.",
            )
        if row["status"] == "not_begun":
            raise BadInput("subtask", f"{subtask} of {lease.agent_type} in {lease.analysis_id} has not begun yet.")
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


def _check_reference(location: Location, reference: str) -> None:
    checked_text("reference", reference, LONGEST_REFERENCE)
    if location is Location.GRAPH:
        kind, _, key = reference.partition("/")
        if not kind or not key:
            raise BadInput("reference", "must be Kind/key of a record, such as Finding/f-17.")
    elif location is Location.MESSAGE:
        checked_uuid("reference", reference)


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
