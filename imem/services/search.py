"""
Authorized search over everything.

Records are open to who may read the graph, patterns to who may read patterns, memories by their namespaces; what the
actor may not read is left out within the query, and a search that names it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Final

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.kg.asof import AsOfClock, parse_as_of
from imem.recall.brief import Recall
from imem.recall.memories.namespaces import NamespacePattern, parse_pattern, readable, scopes
from imem.recall.read_horizon import fetch_read_horizon
from imem.recall.search.model import SearchKind, SearchQuery, SearchSection, kinds_of
from imem.recall.subjects import PRESENT, SubjectName
from imem.services.stores import Stores

_NOWHERE: Final = NamespacePattern((), subtree=False)
"""Covers no namespace."""


async def search(
    stores: Stores,
    recall: Recall,
    query: str,
    *,
    kinds: Collection[str] | None,
    subject: str | None,
    recent_days: float | None,
    limit: int,
    as_of: datetime | None,
    deadline: Deadline,
) -> SearchSection:
    """Search for the actor of *recall*; see :meth:`imem.memory.Memory.search`."""
    actor, gateway = recall.actor, stores.gateway
    until = parse_as_of(as_of, AsOfClock.KNOWN)[0]
    asked = kinds_of(kinds) if kinds is not None else frozenset(SearchKind)
    wanted = SearchQuery(query, asked, recent_days=recent_days, limit=limit, until=until)
    if kinds is None:
        may = {kind for kind in SearchKind if gateway.may(_resource(kind, actor.id), Action.READ, actor=actor)}
        asked = frozenset(may or SearchKind)
    resources = sorted({_resource(kind, actor.id) for kind in asked}, key=lambda one: one.type)
    allowed = (gateway.authorize(resource, Action.READ, deadline=deadline, actor=actor) for resource in resources)
    (until, about), _ = await asyncio.gather(
        _moment_and_subject(stores, recall, until, subject, deadline), asyncio.gather(*allowed)
    )
    subject_id = about.subject_id if about is not None else None
    where = scopes(_of_subject(subject_id), readable(actor))
    found = replace(wanted, kinds=asked, scopes=where, subject_id=subject_id, until=until)
    section = await stores.search.search(found, deadline=deadline)
    return section if about is None else section.model_copy(update={"subject_label": about.label})


async def _moment_and_subject(
    stores: Stores, recall: Recall, asked: datetime | None, subject: str | None, deadline: Deadline
) -> tuple[datetime | None, SubjectName | None]:
    """Return the as-of to use, clamped to the horizon, and the subject as it was named then."""
    at = PRESENT
    if asked is not None:
        horizon = await fetch_read_horizon(stores.database, AsOfClock.KNOWN, deadline=deadline)
        at = horizon.resolve(asked, AsOfClock.KNOWN)
    about = None if subject is None else await recall.found_subject(subject, at, deadline=deadline)
    return None if asked is None else at.at, about


def _resource(kind: SearchKind, actor: str) -> Resource:
    match kind:
        case SearchKind.MEMORY:
            return Resource(ResourceType.MEMORIES, None, actor)
        case SearchKind.PATTERN:
            return Resource(ResourceType.PATTERNS, None)
        case _:
            return Resource(ResourceType.GRAPH, None)


def _of_subject(subject_id: str | None) -> NamespacePattern | None:
    """Return where memories of a subject are; None for anywhere. Those of what is no symbol are nowhere."""
    if subject_id is None:
        return None
    root, _, key = subject_id.partition(":")
    try:
        return parse_pattern(f"symbol/{key}/*") if root == "company" else _NOWHERE
    except BadInput:
        return _NOWHERE
