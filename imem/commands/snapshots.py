"""``imem snapshot`` and ``imem sync gate``: snapshots of debates, and synchronisation before gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.sync import sync_app
from imem.journal.errors import shown
from imem.terminal.command import DEGRADED, Json, print_answer, run

if TYPE_CHECKING:
    from imem.services.stores import Stores
    from imem.sync.gates import AgentLag, GateReport
    from imem.sync.snapshots import MemorySnapshot

BUDGET_MS = 5000
"""How long a read may take, in milliseconds."""

SHOWN_CHARS = 100
"""Characters of a statement that a line shows."""

app = typer.Typer()
snapshot_app = typer.Typer(help="Snapshots that debates argue from.", no_args_is_help=True)
app.add_typer(snapshot_app, name="snapshot")


@snapshot_app.command("show")
def show(
    snapshot: Annotated[str, typer.Argument(metavar="ID", help="The snapshot's id.")], *, as_json: Json = False
) -> None:
    """
    Show a snapshot, verified: who argues from it, how far each had written, and every record in it.

    Exit code 3: it is stale, or could not be compared with what Postgres says.
    """
    found = run(lambda stores: _read(stores, snapshot))
    print_answer(found, lambda: _lines(found), as_json=as_json)
    if found.stale_reason is not None or not found.confirmed:
        raise typer.Exit(DEGRADED)


async def _read(stores: Stores, snapshot: str) -> MemorySnapshot:
    from imem.services.parts.sync_api import SyncApi  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return await SyncApi(stores).read_snapshot(snapshot, deadline_ms=BUDGET_MS)


def _lines(found: MemorySnapshot) -> Iterator[str]:
    yield f"{shown(found.topic) or 'A debate'} ({shown(found.debate_id)}) in {shown(found.analysis_id)}"
    yield f"taken {found.created_at:%Y-%m-%d %H:%M:%S} UTC, SHA-256 {found.sha256}"
    if found.stale_reason is not None:
        yield f"STALE since: {shown(found.stale_reason)}"
    if not found.confirmed:
        yield "Postgres does not answer: whether it is stale by now cannot be said."
    if found.degraded:
        yield "The graph did not hold all of it when it was taken."
    for agent_id in found.participants:
        at = found.seqs[agent_id]
        yield f"  {agent_id}: {shown(at['actor'])} at {at['pushed_seq']}, in the graph up to {at['applied_seq']}"
    for one in found.excluded:
        yield f"  {one.agent_id}: excluded. {shown(one.reason)}"
    yield f"{len(found.body['records'])} records, {len(found.body['citations'])} citations"
    for record in found.body["records"]:
        core = record["content"].get("core") or {}
        text = core.get("statement") or core.get("topic") or core.get("summary") or core.get("action") or ""
        mark = "" if record["in_graph"] else "  (not in the graph then)"
        yield f"  {shown(record['node'])} v{record['version']}  {shown(str(text)[:SHOWN_CHARS])}{mark}"


@sync_app.command("gate")
def gate(
    gate: Annotated[str, typer.Argument(metavar="ID", help="The gate: its analysis and number, such as analysis-7/3.")],
    *,
    last: Annotated[bool, typer.Option("--last", help="Show the newest report instead of making one.")] = False,
    as_json: Json = False,
) -> None:
    """
    Synchronise the agents of a gate's analysis, and show what each has not pushed, applied or pulled.

    Exit code 3: an agent is behind.
    """
    report = run(lambda stores: _gate(stores, gate, last=last))
    if report is None:
        typer.echo("null" if as_json else "There is no report of that gate yet.")
        return
    print_answer(report.to_dict(), lambda: _report(report), as_json=as_json)
    if not report.consistent:
        raise typer.Exit(DEGRADED)


async def _gate(stores: Stores, gate: str, *, last: bool) -> GateReport | None:
    from imem.services.parts.sync_api import SyncApi  # noqa: PLC0415 - as above

    sync = SyncApi(stores)
    if last:
        return await sync.gate_report(gate, deadline_ms=BUDGET_MS)
    return await sync.sync_gate(gate)


def _report(report: GateReport) -> Iterator[str]:
    opens = f", opens {report.opens_at:%Y-%m-%d %H:%M} UTC" if report.opens_at is not None else ""
    yield f"Gate {shown(report.gate)}{opens}; report of {report.made_at:%Y-%m-%d %H:%M:%S} UTC ({report.phase})"
    yield "No agent is behind." if report.consistent else "Some agents are behind:"
    for lag in report.lags:
        yield f"  {lag.agent_id}: {_behind(lag)}"
        if lag.reason:
            yield f"    {shown(lag.reason)}"
    since = report.delta["since"]
    yield f"{report.delta['count']} records published {f'since {since}' if since else 'so far'}"


def _behind(lag: AgentLag) -> str:
    parts = [
        "its memory cannot be asked" if lag.unpushed is None else f"{lag.unpushed} published and not pushed",
        f"{lag.waiting} not in the graph" + (f" (oldest {lag.oldest_s:.0f} s)" if lag.oldest_s is not None else ""),
        f"{lag.dead} refused by the graph",
        f"{lag.unpulled} not pulled",
    ]
    said = [part for part in parts if not part.startswith("0 ")]
    return f"lag {'unknown' if lag.total is None else lag.total}" + (f": {', '.join(said)}" if said else "")
