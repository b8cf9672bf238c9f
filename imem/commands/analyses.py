"""``imem start`` and ``imem gates``: start an analysis; open, list and answer gates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from imem.journal.errors import BadInput, shown
from imem.journal.settings import Settings

if TYPE_CHECKING:
    from imem.checkpoints.pauses.human_gates import HumanGate
    from imem.journal.deadline import Deadline
    from imem.services.pauses import AuthorizedPauseService

T = TypeVar("T")

ASK_MS = 10_000
"""How long a command may take, in milliseconds."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Gate = Annotated[str, typer.Argument(metavar="ANALYSIS/N", help="A gate, by its analysis and number: analysis-7/3.")]

app = typer.Typer()
group = typer.Typer(help="Gates: where an analysis waits for a person.")
app.add_typer(group, name="gates")


@app.command()
def start(
    analysis: Annotated[str, typer.Argument(metavar="ANALYSIS", help="Its id, which you choose.")],
    *,
    subject: Annotated[str, typer.Option("--subject", help="What it is about, such as company:MU.")],
    agent: Annotated[
        list[str],
        typer.Option("--agent", metavar="TYPE=INSTANCE", help="An agent type, and the instance that does it; repeat."),
    ],
    as_json: Json = False,
) -> None:
    """
    Start an analysis: the workers run each agent once all that it waits for have completed.

    The same again changes nothing. Agents need programs: IMEM_AGENT_PROGRAMS names their module.
    """
    agents = dict(_pair(text) for text in agent)
    state = _run(lambda service, deadline: service.start(analysis, subject, agents, deadline=deadline))
    if as_json:
        _print({"analysis_id": state.analysis_id, "status": state.status, "agents": dict(state.agents)})
        return
    typer.echo(f"{shown(state.analysis_id)} of {shown(state.stock_id)}: {state.status}")
    for name, where in sorted(state.agents.items()):
        typer.echo(f"  {shown(name)}: {where}")


@group.callback(invoke_without_command=True)
def gates(context: typer.Context, *, as_json: Json = False) -> None:
    """List the gates that wait for a person, those due first."""
    if context.invoked_subcommand is not None:
        return
    found = _run(lambda service, deadline: service.gates(deadline=deadline))
    if as_json:
        _print([one.to_dict() for one in found])
    else:
        typer.echo("\n".join(_lines(found)) or "No gate waits for anybody.")


@group.command("open")
def open_gate(
    gate: Gate,
    *,
    until: Annotated[
        str | None, typer.Option("--until", help="Until when somebody may answer; 24 hours from now by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Open a gate of an analysis that runs; one that was opened before is unchanged."""
    due_at = _moment(until) if until is not None else None

    async def order(service: AuthorizedPauseService, deadline: Deadline) -> HumanGate:
        analysis_id, number = _gate(gate)
        return await service.open_gate(analysis_id, number, due_at=due_at, deadline=deadline)

    _print_result(_run(order), as_json=as_json)


@group.command("answer")
def answer_gate(
    gate: Gate,
    answer: Annotated[
        str,
        typer.Argument(help="validate (it goes on), reject (it is paused), or reject_for_good (it has failed)."),
    ],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why.")],
    as_json: Json = False,
) -> None:
    """Answer a gate; the same answer again changes nothing. Exit code 1: it cannot be answered any more."""

    async def order(service: AuthorizedPauseService, deadline: Deadline) -> HumanGate:
        analysis_id, number = _gate(gate)
        return await service.answer_gate(analysis_id, number, answer, reason=reason, deadline=deadline)

    _print_result(_run(order), as_json=as_json)


def _run(work: Callable[[AuthorizedPauseService, Deadline], Awaitable[T]]) -> T:
    """Run *work* with the pause service; a wrong argument ends with exit code 2."""
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above
    from imem.services.pauses import open_pause_service  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once
    from imem.services.stores import Stores  # noqa: PLC0415 - as above

    async def run() -> T:
        async with Stores.open(Settings.read()) as stores, open_pause_service(stores) as service:
            return await work(service, Deadline.after_ms(ASK_MS))

    try:
        return asyncio.run(run())
    except BadInput as error:
        raise typer.BadParameter(f"{error.field}: {error.reason} {error.mend}".strip()) from error


def _pair(text: str) -> tuple[str, str]:
    name, sign, instance = text.partition("=")
    if not (name and sign and instance):
        raise typer.BadParameter(f"--agent: {shown(text)[:60]} is not TYPE=INSTANCE.")
    return name, instance


def _gate(text: str) -> tuple[str, int]:
    from imem.sync.members import gate_of  # noqa: PLC0415 - as above

    return gate_of(text)


def _moment(text: str) -> datetime:
    from imem.commands.ask import moment  # noqa: PLC0415 - as above

    try:
        at = moment(text)
    except BadInput as error:
        raise typer.BadParameter(f"--until: {error.reason}") from error
    if at is None:
        raise typer.BadParameter("--until names a time.")
    return at


def _print_result(found: HumanGate, *, as_json: bool) -> None:
    if as_json:
        _print(found.to_dict())
    else:
        typer.echo("\n".join(_lines([found])))


def _lines(found: Sequence[HumanGate]) -> Iterator[str]:
    for one in found:
        when = (
            f"until {one.due_at:%Y-%m-%d %H:%M} UTC"
            if one.decided_at is None
            else f"{one.decided_at:%Y-%m-%d %H:%M} UTC"
        )
        why = f": {shown(one.reason)}" if one.reason else ""
        yield f"{shown(one.analysis_id)}/{one.gate} of {shown(one.stock_id)}  {one.state.value}  {when}{why}"


def _print(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
