"""``imem load`` and ``imem schema``: getting data in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.terminal.command import Json

if TYPE_CHECKING:
    from imem.archives.erasing import Erasure
    from imem.services.stores import Stores

app = typer.Typer()


@app.command()
def load(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH…",
            help="JSON Lines, plain or gzipped; folders of them; - for standard input; tables with --map.",
        ),
    ],
    *,
    source: Annotated[
        str | None, typer.Option("--source", help="Name of the source; by default each file's name without its suffix.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Read everything first, and load nothing if any line is bad.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the graph holds what was loaded.")] = True,
    wait_pipelines: Annotated[
        int,
        typer.Option(
            "--wait-pipelines",
            metavar="SECONDS",
            help="Wait also until scores, comparisons and search hold it, at most so long.",
            min=0,
            max=604_800,
        ),
    ] = 0,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE", help="The files are CSV or Parquet, and this makes lines of rows."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the first lines as they would be stored, and every refusal; store nothing."
        ),
    ] = False,
    report: Annotated[Path | None, typer.Option("--report", help="Write every refused line to this file.")] = None,
    as_json: Json = False,
) -> None:
    """
    Load histories: records, links and corrections, one JSON object a line (`imem schema` describes them).

    With --map the files are tables, and a map in TOML says how each row becomes lines.

    A refused line is reported and the others are loaded. Loading the same file again adds nothing, so a load that was
    interrupted continues when it is repeated. The end says what the pipelines still have to do; on a terminal it asks
    whether to wait for them. Exit code 0: everything is loaded; 1: a line was refused, or the load stopped; 3: loaded,
    but the graph does not hold it yet, or the pipelines were not done after --wait-pipelines.
    """
    from imem.commands import load  # noqa: PLC0415 - as below
    from imem.ingest.line_reader import sources_of  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once
    from imem.ingest.table_map import read_map  # noqa: PLC0415 - as below

    try:
        sources = sources_of(paths, source, read_map(map_file) if map_file is not None else None)
    except BadInput as error:
        named = error.field in paths or (map_file is not None and error.field.startswith(str(map_file)))
        reason = f"{error.reason} {error.mend}".strip()
        raise typer.BadParameter(f"{error.field} {reason}" if named else reason) from error
    settings = Settings.read()
    if dry_run:
        code = load.dry_run(settings, sources, report=report, as_json=as_json)
        raise typer.Exit(code)
    if strict and any(one.size_bytes is None for one in sources):
        raise typer.BadParameter("--strict reads everything twice: name files, and neither a pipe nor -.")
    waits = load.Waits(graph=wait, pipelines_s=wait_pipelines, asks=wait and not wait_pipelines)
    code = asyncio.run(load.run(settings, sources, strict=strict, waits=waits, report=report, as_json=as_json))
    if code:
        raise typer.Exit(code)


@app.command()
def schema(
    name: Annotated[str | None, typer.Argument(metavar="[KIND|LINK]", help="Such as Finding or PERFORMED.")] = None,
    *,
    as_json: Json = False,  # noqa: ARG001 - it is JSON anyhow; every command takes the option
) -> None:
    """Print the JSON Schema of the lines that may be loaded: of one kind or link, or of all."""
    from imem.kg.load_format.json_schema import line_schema  # noqa: PLC0415 - as above

    try:
        found = line_schema(name)
    except BadInput as error:
        raise typer.BadParameter(f"{error.reason} {error.mend}".strip()) from error
    typer.echo(json.dumps(found, indent=2))


@app.command()
def erase(
    terms: Annotated[list[str], typer.Argument(metavar="TERM…", help="Names, ids and addresses of the person.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, without the terms.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only count where the terms are.")] = False,
    as_json: Json = False,
) -> None:
    """
    Replace a person's names and ids by a pseudonym, wherever they are stored; then rebuild the graph in place.

    Nothing brings them back. It takes the owner's login of Postgres and the role human_admin. Interrupted, the same
    command continues. Writes wait meanwhile, and answers are poor until the graph is rebuilt.
    """
    from imem.services.stores import Stores  # noqa: PLC0415 - as above
    from imem.terminal import command  # noqa: PLC0415 - as above
    from imem.terminal.progress import events_bar  # noqa: PLC0415 - as above

    async def work(stores: Stores) -> Erasure:
        from imem.services.erasure import erase_everywhere  # noqa: PLC0415 - as above

        with events_bar("Replaying the journal", quiet=as_json) as progress:
            return await erase_everywhere(stores, terms, reason, change=yes, report=progress)

    done = command.run_within(lambda settings: Stores.open(settings, pipelines=True), work)
    command.print_answer(done, lambda: _erased(done, changed=yes), as_json=as_json)


def _erased(done: Erasure, *, changed: bool) -> Iterator[str]:
    verb = "replaced by " + done.pseudonym if changed else "found"
    yield f"{done.events:,} events hold a term. Rows with one, {verb}:"
    for name, number in sorted(done.found.items()):
        yield f"  {name}: {number:,}"
    for name, number in sorted(done.opaque.items()):
        yield f"  {name}: {number:,} rows hold one in binary content, and stay until they expire"
    for pattern in done.archives:
        yield f"  the archive of {pattern} {'was built anew' if changed else 'holds one'}"
    for key in done.files if changed else ():
        yield f"  the copy of a file of data holds one still: {key}"
    if not changed:
        yield "Nothing was changed. --yes replaces them; nothing brings them back."
