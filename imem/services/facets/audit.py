"""The audit: who did what, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.errors import BadInput
from imem.services.facets.facet import Facet
from imem.services.operations import declares_operations, reads

if TYPE_CHECKING:
    from imem.journal.audit import AuditEntry

MOST_ENTRIES: Final = 1_000
"""Most entries of one answer."""


@declares_operations("audit")
class AuditFacet(Facet):
    """The audit; see :attr:`imem.memory.Memory.audit`. Reading it takes a role that the table of rights names."""

    @reads(ResourceType.AUDIT)
    async def list(
        self,
        *,
        actor: str | None = None,
        resource: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int = 200,
        deadline_ms: float | None = None,
    ) -> Sequence[AuditEntry]:
        """
        Return rows of the audit, the newest first.

        Args:
            actor, action: of these alone.
            resource: type or id of what it was about.
            since, until: from the one moment on, and before the other, aware.
            after: the cursor of an entry: what follows it.
            limit: how many at most, 1 to 1,000.

        Raises:
            BadInput: an argument is wrong; names it.
        """
        from imem.journal.audit import audit_entries  # noqa: PLC0415 - few programs read the audit

        if not 1 <= limit <= MOST_ENTRIES:
            raise BadInput("limit", f"must be from 1 to {MOST_ENTRIES:,}.")
        wanted = {"actor": actor, "resource": resource, "action": action, "since": since, "until": until}
        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.AUDIT),
            Action.READ,
            lambda: audit_entries(self._stores.database, wanted, after=after, limit=limit, deadline=due),
            due,
        )
