"""``imem graph hash`` and ``imem rebuild graph``: hash the graph, and rebuild it from the journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imem.journal.settings import Settings
from imem.terminal.command import FAILURE, Json, print_answer, run

if TYPE_CHECKING:
    from imem.kg.projection.hash import GraphHash
    from imem.kg.projection.rebuild import ReportProgress
    from imem.services.graph_rebuild import RebuildResult

app = typer.Typer()
graph_app = typer.Typer(help="The graph as a whole.", no_args_is_help=True)
rebuild_app = typer.Typer(help="Make anew what the journal can tell.", no_args_is_help=True)
app.add_typer(graph_app, name="graph")
app.add_typer(rebuild_app, name="rebuild")


@graph_app.command("hash")
def graph_hash(*, as_json: Json = False) -> None:
    """
    Print one hash for everything that the graph says.

    Equal facts have equal hashes, whatever the order in which they arrived. While events are being applied the hash
    is that of no single moment.
    """
    from imem.kg.projection import hash as hashing  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    found = run(lambda stores: hashing.graph_hash(stores.graph))
    line = f"{found.digest}  {found.nodes:,} nodes, {found.links:,} links"
    print_answer(_hash(found), lambda: [line], as_json=as_json)


def _hash(found: GraphHash) -> dict[str, Any]:
    parts = {name: {"count": part.count, "digest": part.digest} for name, part in found.parts.items()}
    return {"digest": found.digest, "nodes": found.nodes, "links": found.links, "parts": parts}


@rebuild_app.command("graph")
def rebuild_graph(
    *,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Empty the graph in use and fill it again; answers are poor meanwhile.")
    ] = False,
    as_json: Json = False,
) -> None:
    """
    Rebuild the graph from the journal and compare it with the one in use.

    For a local stack a second Neo4j is filled while the one in use keeps serving; if their hashes are equal, the new
    one replaces it. Interrupted, the same command continues where it stopped. Exit code 0: both are equal; 1: they
    differ, and the report says in what; the one in use stays, unless it was rebuilt in place.
    """
    result = asyncio.run(_run(Settings.read(), in_place=in_place, quiet=as_json))
    _print(result, as_json=as_json)
    if not result.rebuilt.same:
        raise typer.Exit(FAILURE)


async def _run(settings: Settings, *, in_place: bool, quiet: bool) -> RebuildResult:
    from imem.services import graph_rebuild  # noqa: PLC0415 - as above
    from imem.services.stores import Stores  # noqa: PLC0415 - as above

    async with Stores.open(settings, pipelines=True) as stores:
        with _progress(quiet=quiet) as report:
            return await (graph_rebuild.in_place if in_place else graph_rebuild.beside)(stores, report)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[ReportProgress]:
    """Show a bar on a terminal, and a line now and then elsewhere."""
    from imem.terminal.progress import events_bar  # noqa: PLC0415 - as above

    with events_bar("Replaying the journal", quiet=quiet) as report:
        yield report


def _print(result: RebuildResult, *, as_json: bool) -> None:
    rebuilt = result.rebuilt
    differing = rebuilt.before.differing(rebuilt.after)
    if as_json:
        document = {
            "same": rebuilt.same,
            "taken_over": result.taken_over,
            "events": rebuilt.events,
            "left_out": rebuilt.left_out,
            "refused": list(rebuilt.refused),
            "before": _hash(rebuilt.before),
            "after": _hash(rebuilt.after),
            "differing": differing,
        }
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(f"{rebuilt.events:,} events: {rebuilt.after.nodes:,} nodes, {rebuilt.after.links:,} links.")
    if rebuilt.left_out:
        typer.echo(f"{rebuilt.left_out:,} events were refused again and left out; `imem doctor` lists them.")
    if not rebuilt.same:
        typer.echo("The two graphs differ (before against now) in:")
        for line in differing:
            typer.echo(f"  {line}")
    if result.taken_over:
        typer.echo(f"Hash {rebuilt.after.digest}: this graph is in use now.")
    else:
        typer.echo("The graph in use stays. The new one is kept as well.")
