"""Authorized reads of materialised views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.kg import views
from imem.kg.views import BUILDS, View
from imem.recall.brief import Recall
from imem.recall.timing.lateness import reports_lateness

_OPENS: Final[Mapping[str, ResourceType]] = MappingProxyType(
    {
        "top_patterns": ResourceType.PATTERNS,
        "agent_credibility": ResourceType.CREDIBILITY,
        "company_summaries": ResourceType.GRAPH,
        "peer_comparisons": ResourceType.GRAPH,
    }
)
"""View → resource type that the actor must be allowed to read; an agent reads its own credibility alone."""

_OF_SUBJECTS: Final = "company_summaries"
"""The view whose keys are subjects."""


@reports_lateness
async def row_of(recall: Recall, name: str, key: str, *, deadline: Deadline) -> View | None:
    """
    Return a row of a view as last built, with its age; None if it was never built.

    For a view of subjects *key* may be a ticker or name.

    Raises:
        BadInput: there is no such view.
        UnknownSubject: nothing is known under that name; nearest names are given.
        PermissionDenied: the actor's role does not allow it; a denial row was written.
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    if name not in BUILDS:
        raise BadInput("view", f"{name!r} is none of {', '.join(BUILDS)}.")
    known = await recall.subject(key, deadline=deadline) if name == _OF_SUBJECTS else key
    resource = Resource(_OPENS[name], known, known if _OPENS[name] is ResourceType.CREDIBILITY else None)
    ask = partial(views.view, recall.sources.gateway.database, name, known, deadline=deadline)
    row = await recall.authorized(resource, Action.READ, ask, deadline=deadline)
    return row and replace(row, mode=await recall.mode_now(deadline))
