"""The page of the state of the system: stores, what is behind, alerts, pauses and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from imem.alerts.store import AlertBoard, Alerts
from imem.jobs.backlog import Waiting
from imem.jobs.reports import StoredReport, stored_reports
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.services.health import backlog, check_health
from imem.web.guards import read_form
from imem.web.parts import read_parts
from imem.web.visitors import PAGE_MS, Visitor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def show(_: Request, visitor: Visitor) -> Response:
    """Show everything that the person may read; a part that cannot be read says why."""
    stores = visitor.server.stores
    parts = await read_parts(
        health=check_health(stores),
        behind=_behind(visitor),
        alerts=_alerts(visitor),
        pauses=visitor.memory.pauses.list(deadline_ms=PAGE_MS),
        jobs=_jobs(visitor),
    )
    return visitor.page("operations.html", parts=parts)


async def _behind(visitor: Visitor) -> tuple[Waiting, ...]:
    return await _allowed(
        visitor, Resource(ResourceType.GRAPH, "backlog"), Action.READ, lambda _: backlog(visitor.server.stores)
    )


async def _alerts(visitor: Visitor) -> AlertBoard:
    alerts = Alerts(visitor.server.stores.database)
    return await _allowed(
        visitor, Resource(ResourceType.WORKFLOW, "alerts"), Action.READ, lambda due: alerts.cards(deadline=due)
    )


async def _jobs(visitor: Visitor) -> dict[str, StoredReport]:
    """Return the newest report of each pipeline, by its name."""
    found = await _allowed(
        visitor,
        Resource(ResourceType.GRAPH, "reports of pipelines"),
        Action.READ,
        lambda due: stored_reports(visitor.server.stores.database, None, deadline=due),
    )
    newest: dict[str, StoredReport] = {}
    for report in found:
        known = newest.get(report.pipeline)
        if known is None or report.finished_at > known.finished_at:
            newest[report.pipeline] = report
    return dict(sorted(newest.items()))


async def acknowledge(request: Request, visitor: Visitor) -> Response:
    """Acknowledge an alert in the name of the person: it is not sent again; nothing else changes."""
    form = await read_form(request)
    try:
        alert = UUID(form.get("id", ""))
    except ValueError:
        raise BadInput("id", "is no id of an alert.") from None
    alerts = Alerts(visitor.server.stores.database)
    await _allowed(
        visitor,
        Resource(ResourceType.WORKFLOW, f"alert {alert}"),
        Action.ACKNOWLEDGE,
        lambda due: alerts.acknowledge(alert, visitor.actor, deadline=due),
    )
    return RedirectResponse("/operations", status_code=303)


async def resume(request: Request, visitor: Visitor) -> Response:
    """Resume a paused analysis."""
    form = await read_form(request)
    await visitor.memory.pauses.resume(form.get("id", ""), deadline_ms=PAGE_MS)
    return RedirectResponse("/operations", status_code=303)


async def _allowed(
    visitor: Visitor, resource: Resource, action: Action, operation: Callable[[Deadline], Awaitable[T]]
) -> T:
    """Run an operation if the person may; else PermissionDenied, and one denial row."""
    due = Deadline.after_ms(PAGE_MS)
    return await visitor.server.stores.gateway.authorize_and_execute(
        resource, action, lambda: operation(due), deadline=due, actor=visitor.actor
    )
