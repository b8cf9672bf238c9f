"""``imem load`` and ``imem schema``: getting data in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.terminal.command import Json

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
    interrupted continues when it is repeated. Exit code 0: everything is loaded; 1: a line was refused, or the load
    stopped; 3: loaded, but the graph does not hold it yet.
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
    code = asyncio.run(load.run(settings, sources, strict=strict, wait=wait, report=report, as_json=as_json))
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
