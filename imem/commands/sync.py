"""``imem sync``: how far the graph is behind; list and retry dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, shown
from imem.terminal.command import DEGRADED, Json, ask, print_answer, run

if TYPE_CHECKING:
    from imem.journal.modes import Mode
    from imem.services.stores import Stores
    from imem.sync.dead_letters import DeadLetters
    from imem.sync.status import DeliveryStatus

BUDGET_MS = 10_000
"""How long an answer may take, in milliseconds."""

POLL_S = 0.5
"""Poll interval of ``--wait``, in seconds."""

app = typer.Typer()
sync_app = typer.Typer(help="Show the delivery of records to the graph and to agents.", no_args_is_help=True)
app.add_typer(sync_app, name="sync")


@sync_app.command()
def status(
    *,
    wait: Annotated[
        int,
        typer.Option("--wait", metavar="SECONDS", help="Wait until the graph holds everything.", min=0, max=86_400),
    ] = 0,
    as_json: Json = False,
) -> None:
    """
    Show what waits for the graph, by tier, and for how long.

    Exit code 3: events wait and no applier is running; or the graph is no projection of this journal.
    """
    end = time.monotonic() + wait
    found, mode, priority = run(_status)
    while not _whole(found) and time.monotonic() < end:
        time.sleep(POLL_S)  # Polling: other processes do the work.
        found, mode, priority = run(_status)
    document = {"mode": mode.value, **found.to_dict(), "priority": priority}
    print_answer(document, lambda: _status_lines(found, mode, priority=priority), as_json=as_json)
    if found.stuck or found.mismatch is not None:
        raise typer.Exit(DEGRADED)


@sync_app.command()
def dead(*, as_json: Json = False) -> None:
    """List the events that the graph refused for good, oldest first, each with the reason."""
    found = run(_dead)
    document = {"total": found.total, "dead": [letter.to_dict() for letter in found.letters]}
    print_answer(document, lambda: _dead_lines(found), as_json=as_json)


@sync_app.command()
def replay(
    events: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EVENT…", help="Positions or event ids, as `imem sync dead` shows them.", show_default=False
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All dead events, the oldest 1,000 of them.")] = False,
    as_json: Json = False,
) -> None:
    """
    Have the graph try dead events again; it takes a person, and an audit row is left for each.

    All that are named or none: one that was applied is refused, and changes nothing.
    """
    if bool(events) is every:
        raise typer.BadParameter("Name events, or say --all.")
    replayed = run(lambda stores: _replay(stores, events or []))
    names = ", ".join(map(str, replayed))
    said = f"On their way again: {names}. `imem sync dead` shows what dies once more." if names else "No event is dead."
    print_answer({"replayed": replayed}, lambda: [said], as_json=as_json)


async def _status(stores: Stores) -> tuple[DeliveryStatus, Mode, bool]:
    from imem.services.health import check_health  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once
    from imem.sync import status as sync_status  # noqa: PLC0415 - as above

    found = await ask(
        stores,
        Resource(ResourceType.GRAPH, "delivery"),
        Action.READ,
        lambda due: sync_status.status(
            stores.database, stores.graph, applier_interval_s=stores.gateway.applier_interval_s, deadline=due
        ),
        budget_ms=BUDGET_MS,
    )
    return found, (await check_health(stores)).mode, stores.settings.sync_priority


async def _dead(stores: Stores) -> DeadLetters:
    from imem.sync.dead_letters import dead_letters  # noqa: PLC0415 - as above

    resource, database = Resource(ResourceType.GRAPH, "dead events"), stores.database
    return await ask(
        stores, resource, Action.READ, lambda due: dead_letters(database, deadline=due), budget_ms=BUDGET_MS
    )


async def _replay(stores: Stores, events: list[str]) -> list[int]:
    from imem.sync import dead_letters as letters  # noqa: PLC0415 - as above

    which, deadline = [_named(text) for text in events], Deadline.after_ms(BUDGET_MS)
    if not which:
        return await letters.replay_all(stores.gateway, deadline=deadline)
    return await letters.replay(stores.gateway, which, deadline=deadline)


def _named(text: str) -> int | UUID:
    """
    Return the position or the event id that *text* is.

    Raises:
        BadInput: it is neither.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return UUID(text)
    except ValueError:
        raise BadInput("event", f"{shown(text)[:60]} is neither a position nor an event id.") from None


def _status_lines(found: DeliveryStatus, mode: Mode, *, priority: bool) -> Iterator[str]:
    yield f"Mode: {mode.value}. {_sentence(found)}"
    if not priority:
        yield "Tiers do not count (IMEM_SYNC_PRIORITY is off): everything is applied once in five minutes."
    if not found.leads:
        yield "No process applies events; `imem status` shows why."
    yield f"{'tier':<16}{'waiting':>10}{'retrying':>10}{'dead':>8}{'oldest':>10}"
    for one in found.tiers:
        oldest = "" if one.oldest_s is None else _ago(one.oldest_s)
        yield f"{one.tier.name.lower():<16}{one.waiting:>10,}{one.retrying:>10,}{one.dead:>8,}{oldest:>10}"


def _whole(found: DeliveryStatus) -> bool:
    """Whether the graph is this journal's and holds all of it that it ever will."""
    return found.compared and found.mismatch is None and not any(one.waiting + one.retrying for one in found.tiers)


def _sentence(found: DeliveryStatus) -> str:
    waiting = sum(one.waiting + one.retrying for one in found.tiers)
    if found.mismatch is not None:
        return f"{found.mismatch} The applier makes it anew when it starts, as after `imem down` and `imem up`."
    if not waiting:
        held = "The graph holds everything that was written."
        return held if found.compared else "Everything that was written was applied; the graph could not be asked."
    stuck = ", and no process applies them" if found.stuck else ""
    return f"{waiting:,} events wait, the oldest for {_ago(found.lag_s)}{stuck}."


def _ago(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def _dead_lines(found: DeadLetters) -> Iterator[str]:
    if not found.letters:
        yield "No event is dead."
    for one in found.letters:
        since = f"{one.since:%Y-%m-%d %H:%M} UTC" if one.since is not None else "an unknown day"
        how = f"{one.tier.name.lower()}, refused {one.attempts} times, since {since}"
        yield f"{one.position}  {one.kind} {shown(one.key)}  {how}"
        yield f"    of {shown(one.actor)}, its number {one.agent_seq}; event {one.event_id}"
        yield f"    {shown(one.reason or 'no reason is known')}"
        if one.replayed_at is not None:
            when = f"{one.replayed_at:%Y-%m-%d %H:%M} UTC"
            yield f"    replayed by {shown(one.replayed_by or '')} on {when} without avail"
    if found.total > len(found.letters):
        yield f"{found.total - len(found.letters):,} more are not shown."
