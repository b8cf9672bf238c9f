"""``imem alerts``: list alerts, and acknowledge them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.errors import shown
from imem.terminal.command import Json, ask, print_answer, run

if TYPE_CHECKING:
    from imem.alerts.store import Alert, AlertBoard, Card
    from imem.services.stores import Stores

BUDGET_MS = 5000
"""How long the answer may take, in milliseconds."""

app = typer.Typer()
alerts_app = typer.Typer(help="List conditions that people have to look at.")
app.add_typer(alerts_app, name="alerts")


@alerts_app.callback(invoke_without_command=True)
def alerts(context: typer.Context, *, as_json: Json = False) -> None:
    """
    Show what needs attention: one card for each subject, until what it is about is over.

    Acknowledging stops the reminders; only resuming or cancelling changes a pause.
    """
    if context.invoked_subcommand is not None:
        return
    board = run(_board)
    print_answer(board.to_dict(), lambda: _lines(board), as_json=as_json)


@alerts_app.command()
def ack(
    alert: Annotated[UUID, typer.Argument(metavar="ID", help="The alert's id, as `imem alerts` shows it.")],
    *,
    as_json: Json = False,
) -> None:
    """Acknowledge an alert in the name of IMEM_ACTOR: it is not sent again; nothing else changes."""
    found, first = run(lambda stores: _acknowledge(stores, alert))
    said = (
        f"Acknowledged: {_title(found)}. It is not sent again; what it is about goes on as it was."
        if first
        else f"{shown(found.acknowledged_by or '')} had acknowledged it before: {_title(found)}."
    )
    print_answer({"acknowledged_now": first, "alert": found}, lambda: [said], as_json=as_json)


async def _board(stores: Stores) -> AlertBoard:
    from imem.alerts.store import Alerts  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    resource, alerts = Resource(ResourceType.WORKFLOW, "alerts"), Alerts(stores.database)
    return await ask(stores, resource, Action.READ, lambda due: alerts.cards(deadline=due), budget_ms=BUDGET_MS)


async def _acknowledge(stores: Stores, alert: UUID) -> tuple[Alert, bool]:
    from imem.alerts.store import Alerts  # noqa: PLC0415 - as above

    resource, acknowledge = Resource(ResourceType.WORKFLOW, f"alert {alert}"), Alerts(stores.database).acknowledge
    return await ask(
        stores,
        resource,
        Action.ACKNOWLEDGE,
        lambda due: acknowledge(alert, stores.gateway.actor, deadline=due),
        budget_ms=BUDGET_MS,
    )


def _lines(board: AlertBoard) -> Iterator[str]:
    if not board.cards:
        yield "Nothing needs attention."
    if board.banner is not None:
        yield f"{board.banner.text} {board.banner.action}: {len(board.banner.analyses)} analyses."
        yield ""
    for card in board.cards:
        yield from _card(card)
    on_cards = sum(len(card.alerts) for card in board.cards)
    if board.total > on_cards:
        yield f"{board.total - on_cards:,} more alerts are not shown."
    for one in board.undelivered:
        yield (
            f"The channel {one.channel} did not take everything: {one.waiting} to be tried again, {one.failed} given up"
            f" since yesterday. {shown(one.error or '')}".rstrip()
        )


def _card(card: Card) -> Iterator[str]:
    state = "acknowledged" if card.acknowledged else "escalated" if card.escalated else "new"
    yield f"{shown(card.subject)}  {card.severity.value}  {state}"
    for alert in card.alerts:
        yield f"  {alert.raised_at:%Y-%m-%d %H:%M} UTC  {_title(alert)}"
        yield f"    id {alert.alert_id}"
        if alert.acknowledged_by is not None:
            yield f"    acknowledged by {shown(alert.acknowledged_by)}"
        yield from _situation(alert)


def _title(alert: Alert) -> str:
    of = f" of {shown(alert.analysis_id)}" if alert.analysis_id is not None else ""
    return f"{alert.kind}{of}"


def _situation(alert: Alert) -> Iterator[str]:
    payload = alert.payload
    what = payload.get("reason") or payload.get("message")
    if what:
        yield f"    {shown(str(what))}"
    known = [
        f"{payload['progress_pct']} % done" if payload.get("progress_pct") is not None else "",
        f"phase {shown(str(payload['phase']))}" if payload.get("phase") else "",
        f"day {payload['day']}" if payload.get("day") is not None else "",
        f"checkpoint {shown(str(payload['checkpoint_id']))}" if payload.get("checkpoint_id") else "",
    ]
    if any(known):
        yield f"    {', '.join(one for one in known if one)}"
    for name, title in (("completed", "done"), ("pending", "to do")):
        subtasks = payload.get(name)
        if isinstance(subtasks, list) and subtasks:
            yield f"    {title}: {', '.join(shown(str(one)) for one in subtasks)}"
