"""``imem pause``, ``resume``, ``extend`` and ``pauses``: pause and resume analyses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from imem.journal.deadline import Deadline
from imem.journal.errors import shown
from imem.terminal import command
from imem.terminal.command import FAILURE, Json, print_answer, print_json, until

if TYPE_CHECKING:
    from imem.checkpoints.pauses.batch_runs import BatchState
    from imem.checkpoints.pauses.rows import Pause
    from imem.services.pauses import PauseCommands

T = TypeVar("T")

UNFINISHED = command.DEGRADED

ASK_MS = 5_000
"""Budget of a read, in milliseconds."""

WAIT_S = 90
"""How long the command carries out a batch before it leaves the rest to the workers, in seconds."""

ROUND_MS = 1_000
"""Interval of lines of progress, in milliseconds."""

HELD_BACK_S = 0.5
"""Interval of polling a batch of which nothing is under way, in seconds."""

PLAN_CHARS = 100_000
"""Longest plan, in characters: a file may be a device without an end."""

What = Annotated[str, typer.Argument(metavar="ANALYSIS|STOCK", help="An analysis, or a stock such as company:MU.")]
Several = Annotated[
    list[str], typer.Argument(metavar="ANALYSIS|STOCK…", help="Analyses or stocks; several make a batch.")
]
Wait = Annotated[int, typer.Option("--wait", metavar="SECONDS", help="How long to carry it out here.", min=0, max=3600)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Analyses at a time, in a batch.", min=1, max=100)]

app = typer.Typer()
group = typer.Typer(help="List pauses.")
app.add_typer(group, name="pauses")


@app.command()
def pause(
    what: Several,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    limit: Limit = 5,
    wait: Wait = WAIT_S,
    as_json: Json = False,
) -> None:
    """
    Pause analyses: their agents stop at a safe point, and their memories are kept and proven.

    Exit code 0: everything is paused; 3: it is under way, and the workers go on with it; 1: an analysis refused.
    """
    if len(what) > 1:

        async def all_of_them(service: PauseCommands, deadline: Deadline) -> BatchState:
            return await service.pause_batch(what, reason, limit=limit, within_ms=2 * ROUND_MS, deadline=deadline)

        _batch("Pausing", all_of_them, wait, as_json=as_json)
        return

    async def order(service: PauseCommands) -> Pause:
        return (await service.pause(what[0], reason, deadline_ms=_budget_ms(wait))).pause

    _print_result(_run(order), as_json=as_json, done="PAUSED")


@app.command()
def resume(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="ANALYSIS|STOCK…", help="Analyses or stocks; several make a batch."),
    ] = None,
    *,
    plan: Annotated[
        str | None, typer.Option("--plan", help="The steps of each agent, as JSON, or @ and the name of a file.")
    ] = None,
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="SIGNATURE", help="Say that this cause is over; what waits for it resumes."),
    ] = None,
    notify: Annotated[bool, typer.Option("--notify/--no-notify", help="Tell people when it runs.")] = True,
    limit: Limit = 5,
    wait: Wait = WAIT_S,
    as_json: Json = False,
) -> None:
    """
    Resume paused analyses: each agent goes on where its plan says, once its memory is proven.

    A plan is {"restart": {"AGENT": "checkpoint" or "clean"}, "skip": [...], "wait": [...]}; agents that it does not
    name do what they would. Exit code 0: everything runs; 3: it is under way, and the workers go on with it; 1: an
    analysis is paused again, or refused.
    """
    names = what or []
    if (cause is None) == (not names):
        raise typer.BadParameter("Name analyses or stocks, or a cause with --cause.")
    if cause is not None:
        _resolve(cause, as_json=as_json)
        return
    if len(names) > 1:
        if plan is not None:
            raise typer.BadParameter("--plan is for one analysis.")

        async def all_of_them(service: PauseCommands, deadline: Deadline) -> BatchState:
            return await service.resume_batch(names, limit=limit, within_ms=2 * ROUND_MS, deadline=deadline)

        _batch("Resuming", all_of_them, wait, as_json=as_json)
        return
    given = _plan(plan)

    async def order(service: PauseCommands) -> Pause:
        return (await service.resume(names[0], given, notify=notify, deadline_ms=_budget_ms(wait))).pause

    _print_result(_run(order), as_json=as_json, done="RESUMED")


@app.command()
def extend(
    what: What,
    *,
    end: Annotated[str, typer.Option("--until", metavar="T", help="A time with its zone, or a day (its end in UTC).")],
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    as_json: Json = False,
) -> None:
    """Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long."""
    at = until(end)
    found = _run(lambda service: service.extend_pause(what, at, reason, deadline_ms=ASK_MS))
    _print_result(found, as_json=as_json, done="PAUSED")


@group.callback(invoke_without_command=True)
def pauses(
    context: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Those that were resumed of late as well.")] = False,
    as_json: Json = False,
) -> None:
    """List paused analyses: since when, why, when they become stale or expire, and what prevents resuming."""
    if context.invoked_subcommand is not None:
        return
    found = _run(lambda service: service.paused(everything=everything, deadline_ms=ASK_MS))
    print_answer(
        [one.to_dict() for one in found],
        lambda: [line for one in found for line in _lines(one)] or ["Nothing is paused."],
        as_json=as_json,
    )


@group.command()
def show(what: What, *, as_json: Json = False) -> None:
    """Show whether an analysis is paused, and how its last pause ended."""
    state = _run(lambda service: service.pause_state(what, deadline_ms=ASK_MS))
    if as_json:
        print_json(state.to_dict())
        return
    typer.echo(f"{shown(state.analysis_id)} of {shown(state.stock_id)}: {state.to_dict()['status']}")
    if state.pause is not None:
        typer.echo("\n".join(_lines(state.pause)))
    for one in state.failures:
        typer.echo(f"  {one.failed_at:%Y-%m-%d %H:%M} UTC  {shown(one.agent_type)}: {shown(one.message)}")
        if one.external:
            typer.echo(f"    from outside; once it is over: imem resume --cause {one.signature[:12]}")


@group.command()
def cancel(what: What, *, reason: Annotated[str, typer.Option("--reason", help="Why.")], as_json: Json = False) -> None:
    """Give a paused analysis up: it has failed, its memories go at once, its checkpoints in 30 days."""
    name = _run(lambda service: service.cancel_pause(what, reason, deadline_ms=ASK_MS))
    document = {"analysis_id": name, "status": "EXPIRED"}
    print_answer(document, lambda: [f"{shown(name)} is given up."], as_json=as_json)


@group.command()
def batches(
    batch: Annotated[str | None, typer.Argument(metavar="[ID]", help="One of them, with its analyses.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the newest batches, or show one: how many analyses are through, which failed, and why."""

    async def ask(service: PauseCommands) -> list[BatchState]:
        if batch is None:
            return await service.batches(deadline=Deadline.after_ms(ASK_MS))
        return [await service.batch(batch, deadline=Deadline.after_ms(ASK_MS))]

    found = _run(ask)
    print_answer(
        [one.to_dict() for one in found] if batch is None else found[0].to_dict(),
        lambda: [line for one in found for line in _batch_lines(one)] or ["There is no batch."],
        as_json=as_json,
    )


# Within


def _run(work: Callable[[PauseCommands], Awaitable[T]]) -> T:
    from imem.services.pauses import PauseCommands  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return command.run(lambda stores: work(PauseCommands(stores)))


def _budget_ms(wait_s: int) -> int:
    """Return the budget of an order that is carried out here for *wait_s*, in milliseconds."""
    return 1_000 * (wait_s + 5)


def _resolve(cause: str, *, as_json: bool) -> None:
    pattern = _run(lambda service: service.resolve(cause, deadline=Deadline.after_ms(ASK_MS)))
    said = f"Noted: {shown(pattern)} is over. What waits for nothing else is resumed by the workers."
    print_answer({"resolved": pattern}, lambda: [said], as_json=as_json)


def _batch(
    title: str,
    order: Callable[[PauseCommands, Deadline], Awaitable[BatchState]],
    wait_s: int,
    *,
    as_json: bool,
) -> None:
    """Order a batch, show its progress, and exit with a code for its result."""
    from imem.terminal.progress import events_bar  # noqa: PLC0415 - as above

    async def work(service: PauseCommands) -> BatchState:
        deadline = Deadline.after_ms(_budget_ms(wait_s))
        with events_bar(title, quiet=as_json, what="analyses") as report:
            state = await order(service, deadline)
            report(state.done, state.total)
            while state.completed_at is None and not deadline.passed:
                if not state.running:
                    # Blocked, or claimed by another process: polled until that may have changed.
                    await asyncio.sleep(min(HELD_BACK_S, deadline.left_s()))
                state = await service.carry_out(state, within_ms=ROUND_MS, deadline=Deadline.after_ms(ASK_MS))
                report(state.done, state.total)
        return state

    state = _run(work)
    print_answer(state.to_dict(), lambda: _batch_lines(state), as_json=as_json)
    if state.failed:
        raise typer.Exit(FAILURE)
    if state.completed_at is None:
        raise typer.Exit(UNFINISHED)


def _print_result(found: Pause, *, as_json: bool, done: str) -> None:
    print_answer(found.to_dict(), lambda: _lines(found), as_json=as_json)
    if found.status.value == done:
        return
    raise typer.Exit(UNFINISHED if found.status.value in {"PAUSING", "RESUMING"} else FAILURE)


def _plan(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        if text.startswith("@"):
            with Path(text[1:]).open(encoding="utf-8") as file:
                text = file.read(PLAN_CHARS + 1)
        if len(text) > PLAN_CHARS:
            raise typer.BadParameter(f"--plan is longer than {PLAN_CHARS:,} characters.")
        found = json.loads(text)
    except OSError as error:
        raise typer.BadParameter(f"--plan: {text[1:]} cannot be read.") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter("--plan is no JSON.") from error
    if not isinstance(found, dict):
        raise typer.BadParameter("--plan is an object with the lists restart, skip and wait.")
    return found


def _lines(one: Pause) -> Iterator[str]:
    days = f"since {one.paused_at:%Y-%m-%d %H:%M} UTC"
    yield f"{shown(one.analysis_id)} of {shown(one.stock_id)}  {one.status.value}  {days}"
    by = "" if one.created_by == "SYSTEM" else f" by {shown(one.created_by)}"
    yield f"  {one.trigger.value}{by}: {shown(one.reason)}"
    if one.failed_agent is not None:
        yield f"  failed: {shown(one.failed_agent)}"
    if one.status.value in {"PAUSED", "STALE"}:
        stale = "" if one.status.value == "STALE" else f"stale {one.stale_at:%Y-%m-%d %H:%M} UTC, "
        yield f"  unless resumed: {stale}expires {one.expires_at:%Y-%m-%d %H:%M} UTC"
    if one.last_trouble is not None:
        yield f"  held up: {shown(one.last_trouble)}"
    plan = one.plan.to_dict()
    if one.status.value in {"RESUMING", "RESUMED"} and any(plan.values()):
        restart = plan["restart"]
        how = [f"{name} ({begin})" for name, begin in restart.items()] if isinstance(restart, dict) else []
        yield f"  restarts: {', '.join(how) or 'nothing'}; kept: {', '.join(plan['skip']) or 'nothing'}"
    if one.batch_id is not None:
        yield f"  batch {one.batch_id}"


def _batch_lines(state: BatchState) -> Iterator[str]:
    yield (
        f"{state.batch_id}  {shown(state.name)}  {state.status.value}: {state.done} of {state.total} through, "
        f"{state.failed} failed"
    )
    if state.held_back is not None:
        yield f"  held back: {shown(state.held_back)}"
    for name, (member, trouble) in state.members.items():
        if trouble is not None:
            yield f"  {shown(name)} {member.value}: {shown(trouble)}"
