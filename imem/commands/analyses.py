"""``imem start`` and ``imem gates``: start an analysis; open, list and answer gates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from imem.journal.errors import shown
from imem.terminal import command
from imem.terminal.command import Json, print_answer, until

if TYPE_CHECKING:
    from imem.checkpoints.pauses.human_gates import HumanGate
    from imem.services.parts.pause_api import PauseApi

T = TypeVar("T")

ASK_MS = 10_000
"""How long a command may take, in milliseconds."""

Gate = Annotated[str, typer.Argument(metavar="ANALYSIS/N", help="A gate, by its analysis and number: analysis-7/3.")]

app = typer.Typer()
group = typer.Typer(help="Gates: where an analysis waits for a person.")
app.add_typer(group, name="gates")


@app.command()
def start(
    analysis: Annotated[str, typer.Argument(metavar="ANALYSIS", help="Its id, which you choose.")],
    *,
    subject: Annotated[str, typer.Option("--subject", help="Its subject, such as company:MU.")],
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
    state = _run(lambda api: api.start_analysis(analysis, subject, agents, deadline_ms=ASK_MS))
    lines = [f"{shown(state.analysis_id)} of {shown(state.stock_id)}: {state.status}"]
    lines += [f"  {shown(name)}: {where}" for name, where in sorted(state.agents.items())]
    document = {"analysis_id": state.analysis_id, "status": state.status, "agents": dict(state.agents)}
    print_answer(document, lambda: lines, as_json=as_json)


@group.callback(invoke_without_command=True)
def gates(context: typer.Context, *, as_json: Json = False) -> None:
    """List the gates that wait for a person, those due first."""
    if context.invoked_subcommand is not None:
        return
    found = _run(lambda api: api.gates(deadline_ms=ASK_MS))
    print_answer(found, lambda: list(_lines(found)) or ["No gate waits."], as_json=as_json)


@group.command("open")
def open_gate(
    gate: Gate,
    *,
    end: Annotated[
        str | None, typer.Option("--until", help="Until when it may be answered; 24 hours from now by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Open a gate of an analysis that runs; one that was opened before is unchanged."""
    due_at = until(end) if end is not None else None

    async def order(api: PauseApi) -> HumanGate:
        return await api.open_gate(*_gate(gate), due_at=due_at, deadline_ms=ASK_MS)

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

    async def order(api: PauseApi) -> HumanGate:
        return await api.answer_gate(*_gate(gate), answer, reason=reason, deadline_ms=ASK_MS)

    _print_result(_run(order), as_json=as_json)


def _run(work: Callable[[PauseApi], Awaitable[T]]) -> T:
    from imem.services.parts.pause_api import PauseApi  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return command.run(lambda stores: work(PauseApi(stores)))


def _pair(text: str) -> tuple[str, str]:
    name, sign, instance = text.partition("=")
    if not (name and sign and instance):
        raise typer.BadParameter(f"--agent: {shown(text)[:60]} is not TYPE=INSTANCE.")
    return name, instance


def _gate(text: str) -> tuple[str, int]:
    from imem.sync.members import gate_of  # noqa: PLC0415 - as above

    return gate_of(text)


def _print_result(found: HumanGate, *, as_json: bool) -> None:
    print_answer(found, lambda: _lines([found]), as_json=as_json)


def _lines(found: Sequence[HumanGate]) -> Iterator[str]:
    for one in found:
        if one.decided_at is not None:
            when = f"{one.decided_at:%Y-%m-%d %H:%M} UTC"
        else:
            when = "without end" if one.due_at is None else f"until {one.due_at:%Y-%m-%d %H:%M} UTC"
        why = f": {shown(one.reason)}" if one.reason else ""
        yield f"{shown(one.analysis_id)}/{one.gate} of {shown(one.stock_id)}  {one.state.value}  {when}{why}"
