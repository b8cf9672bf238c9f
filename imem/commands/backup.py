"""``imem backup``, ``restore``, ``verify`` and ``export``: copies of the whole installation, and back."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, TypeVar, cast

import typer

from imem.journal.actors import Action, Actor, Resource, ResourceType, allowed, denial
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, StackError, shown
from imem.journal.settings import Settings
from imem.terminal import output
from imem.terminal.command import DEGRADED, FAILURE, Json, print_answer, wrong_usage

if TYPE_CHECKING:
    from imem.backup.creation import Report
    from imem.backup.manifest import Manifest
    from imem.backup.restoration import ReplayedGraph, Restored
    from imem.backup.verification import Verification
    from imem.ingest.export import ExportCounts

T = TypeVar("T")

AUTHORIZE_MS: Final = 10_000
"""Budget of the authorization, in milliseconds."""

EVERY_S: Final = 2.0
"""Between two lines of progress, in seconds."""

SHOWN: Final = 20
"""Findings that are shown; --json has all."""

app = typer.Typer()

Place = Annotated[
    str, typer.Argument(metavar="DIR|URL", help="A folder, or s3://BUCKET/PREFIX; one place holds one backup.")
]


def _reporter(*, quiet: bool) -> Report:
    """Return what prints a line for each part of the work, and one now and then while it lasts."""
    console = output.console(stderr=True)
    last: tuple[str, float] = ("", 0.0)

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if quiet or (what == last[0] and done != total and now - last[1] < EVERY_S):
            return
        last = (what, now)
        console.print(f"{what}: {done:,} of {total:,}" if total else f"{what} …", highlight=False, soft_wrap=True)

    return report


async def _authorize(settings: Settings, what: str, *, audited: bool = True) -> None:
    """Refuse an actor who may not copy everything; without *audited* there is no journal that could hold the row."""
    actor, resource = Actor.from_settings(settings), Resource(ResourceType.JOURNAL, what)
    if not audited:
        if not allowed(actor, resource, Action.BACKUP):
            raise denial(actor, resource, Action.BACKUP)
        return
    from imem.backup.places import owner_url  # noqa: PLC0415 - a command imports what it needs
    from imem.journal.gateway import Gateway  # noqa: PLC0415 - as above
    from imem.journal.postgres.database import Database  # noqa: PLC0415 - as above

    database = Database(owner_url(settings), size=1)
    try:
        await Gateway(database, actor).authorize(resource, Action.BACKUP, deadline=Deadline.after_ms(AUTHORIZE_MS))
    finally:
        await database.close()


def _settings() -> Settings:
    """Return the settings of the environment, with logs as they say."""
    from imem.logs import by_default  # noqa: PLC0415 - as above

    settings = Settings.read()
    by_default(settings.log_level)
    return settings


def _run(what: str, work: Callable[[Settings], Awaitable[T]], *, audited: bool = True) -> T:
    """Run *work* with the journal open, if the actor may."""
    from imem.backup.places import journal_open  # noqa: PLC0415 - as above

    settings = _settings()

    async def ran(opened: Settings) -> T:
        await _authorize(opened, what, audited=audited)
        return await work(opened)

    with wrong_usage(), journal_open(settings) as opened:
        return asyncio.run(ran(opened))


@app.command()
def backup(place: Place, *, as_json: Json = False) -> None:
    """
    Back up everything that is recorded: the database of the journal, and the objects; the graph follows from them.

    Work goes on meanwhile. Cut off, it leaves no backup, and the same command repeats it. It takes the owner's login of
    Postgres and the role human_admin.
    """

    async def work(settings: Settings) -> Manifest:
        from imem.backup.creation import back_up  # noqa: PLC0415 - as above
        from imem.backup.places import place_of, refuse_store, store_of  # noqa: PLC0415 - as above

        where = place_of(place)
        refuse_store(where, settings)
        return await back_up(settings, store_of(where), report=_reporter(quiet=as_json))

    manifest = _run("backup", work)
    print_answer(_document(manifest), lambda: _made(manifest), as_json=as_json)


@app.command()
def verify(
    place: Place,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Compare the hashes alone; restore nothing.")] = False,
    as_json: Json = False,
) -> None:
    """
    Verify a backup: compare every hash, restore it into a database of a moment, and count its rows.

    Exit code 1: it is incomplete, or not what its manifest says.
    """

    async def work(settings: Settings) -> Verification:
        from imem.backup.places import place_of, store_of  # noqa: PLC0415 - as above
        from imem.backup.verification import compare_hashes  # noqa: PLC0415 - as above
        from imem.backup.verification import verify as verify_whole  # noqa: PLC0415 - as above

        store, report = store_of(place_of(place)), _reporter(quiet=as_json)
        return await (compare_hashes(store, report=report) if quick else verify_whole(settings, store, report=report))

    if quick:
        settings = _settings()

        async def hashes() -> Verification:
            await _authorize(settings, "verify", audited=False)
            return await work(settings)

        with wrong_usage():
            found = asyncio.run(hashes())
    else:
        found = _run("verify", work, audited=False)  # It reads nothing of a journal, and there may be none yet.
    document = {
        **_document(found.manifest), "ok": found.ok, "missing": found.missing, "changed": found.changed,
        "tables_differing": found.tables,
    }  # fmt: skip
    print_answer(document, lambda: _found(found), as_json=as_json)
    if not found.ok:
        raise typer.Exit(FAILURE)


@app.command()
def restore(
    place: Place,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Replay the graph as well, and compare its hash with the backup's.")
    ] = False,
    as_json: Json = False,
) -> None:
    """
    Restore a backup into an empty installation, whose stack is down; `imem up` then goes on from there.

    Without --wait the applier replays the graph when it starts. Exit code 1: with --wait, the graph's hash is another
    one. It takes the owner's login of Postgres and the role human_admin.
    """
    from imem.backup import places  # noqa: PLC0415 - as above

    settings = _settings()
    local = places.is_local(settings)
    report = _reporter(quiet=as_json)

    async def work(opened: Settings) -> Restored:
        from imem.backup.restoration import restore_backup  # noqa: PLC0415 - as above

        await _authorize(opened, "restore", audited=False)
        return await restore_backup(opened, places.store_of(places.place_of(place)), local=local, report=report)

    with wrong_usage():
        if places.runs(settings):
            raise StackError(
                "A stack runs on this home.", mend="Stop it with `imem down`; nothing may use the database."
            )
        with places.journal_open(settings) as opened:
            done = asyncio.run(work(opened))
    graph = _replayed(settings, done.manifest, quiet=as_json) if wait else None
    document = {
        **_document(done.manifest), "migrated": done.migrated, "graph_same": None if graph is None else graph.same,
        "graph_differing": [] if graph is None else graph.differing,
    }  # fmt: skip
    print_answer(document, lambda: _restored(done, graph), as_json=as_json)
    if graph is not None and graph.same is False:
        raise typer.Exit(FAILURE)


def _replayed(settings: Settings, manifest: Manifest, *, quiet: bool) -> ReplayedGraph:
    """Replay the graph, with the local Postgres and Neo4j alone where they are local: nothing else may write."""
    from imem.backup.restoration import replay_graph  # noqa: PLC0415 - as above
    from imem.local.migrate import migrate  # noqa: PLC0415 - as above
    from imem.local.supervisor import LocalStack  # noqa: PLC0415 - as above
    from imem.terminal.progress import events_bar  # noqa: PLC0415 - as above

    with ExitStack() as closing:
        opened = settings
        if settings.postgres_url is None or settings.neo4j_url is None:
            servers = LocalStack(settings, servers={"postgres", "neo4j"}, workers=False, migrate=migrate)
            opened = closing.enter_context(servers).settings
        report = closing.enter_context(events_bar("Replaying the journal", quiet=quiet))
        return asyncio.run(replay_graph(opened, manifest, report))


@app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file to write, or - for standard output.")],
    *,
    memories: Annotated[
        Path | None,
        typer.Option("--memories", metavar="FILE", help="Write memories to this file, for `imem memories import`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """
    Export the journal as lines that `imem load` takes back: records, links and corrections, in their order.

    Exit code 3: an event cannot be stated as a line; it is named, and the rest is written. It takes the role
    human_admin.
    """

    async def work(settings: Settings) -> ExportCounts:
        from imem.backup.places import owner_url  # noqa: PLC0415 - as above
        from imem.ingest.export import export_events, export_memories  # noqa: PLC0415 - as above
        from imem.services.stores import register_metrics  # noqa: PLC0415 - as above
        from imem.terminal.progress import events_bar  # noqa: PLC0415 - as above

        register_metrics(settings)
        with ExitStack() as closing:
            target = closing.enter_context(_created(file)) if file != "-" else cast("IO[bytes]", _StandardOutput())
            more = closing.enter_context(_created(str(memories))) if memories is not None else None
            report = closing.enter_context(events_bar("Exporting the journal", quiet=as_json))
            counts = await export_events(owner_url(settings), target, report)
            if more is not None:
                await export_memories(owner_url(settings), more, counts)
            target.flush()
        return counts

    counts = _run("export", work)
    for one in counts.left_out[:SHOWN]:
        typer.echo(f"Left out {shown(one.file)}: {shown(one.field)} {shown(one.reason)}", err=True)
    document = {
        "events": counts.events, "memories": counts.memories,
        "left_out": [{"event": one.file, "field": one.field, "reason": one.reason} for one in counts.left_out],
    }  # fmt: skip
    if file != "-":
        print_answer(document, lambda: [_exported(counts)], as_json=as_json)
    if counts.left_out:
        raise typer.Exit(DEGRADED)


class _StandardOutput:
    """Standard output for lines of JSON; the command's stream escapes what a terminal would obey, as JSON does."""

    def write(self, line: bytes) -> None:
        """Write a line."""
        sys.stdout.write(line.decode())

    def flush(self) -> None:
        """Write what is buffered."""
        sys.stdout.flush()


def _created(name: str) -> IO[bytes]:
    """
    Return a new file for writing.

    Raises:
        BadInput: there is one of that name, or none can be made.
    """
    try:
        return Path(name).open("xb")
    except (OSError, ValueError) as error:
        raise BadInput("FILE", f"{shown(name)} cannot be made: {getattr(error, 'strerror', None) or error}.") from error


def _document(manifest: Manifest) -> dict[str, Any]:
    return {
        "created_at": manifest.created_at, "program": manifest.program, "schema": max(manifest.migrations, default=0),
        "journal": manifest.journal, "position": manifest.position, "rows": manifest.rows, "tables": manifest.tables,
        "objects": len(manifest.objects), "bytes": manifest.size,
        "graph_hash": None if manifest.graph is None else manifest.graph.digest,
        "graph_unknown": manifest.graph_unknown,
    }  # fmt: skip


def _made(manifest: Manifest) -> Iterator[str]:
    yield (
        f"{manifest.rows:,} rows up to position {manifest.position:,}, and {len(manifest.files):,} objects: "
        f"{manifest.size / 1e6:,.1f} MB."
    )
    if manifest.graph is not None:
        yield f"Hash of the graph: {manifest.graph.digest}."
    else:
        yield f"No hash of the graph: {manifest.graph_unknown}"


def _found(found: Verification) -> Iterator[str]:
    yield from (f"Missing: {shown(key)}" for key in found.missing[:SHOWN])
    yield from (f"Changed: {shown(key)}" for key in found.changed[:SHOWN])
    yield from (shown(one) for one in (found.tables or ())[:SHOWN])
    if found.ok:
        restored = "" if found.tables is None else f", and {found.manifest.rows:,} rows were restored"
        yield f"{len(found.manifest.objects):,} objects are what was stored{restored}."


def _restored(done: Restored, graph: ReplayedGraph | None) -> Iterator[str]:
    manifest = done.manifest
    yield f"Restored {manifest.rows:,} rows up to position {manifest.position:,}, and {len(manifest.files):,} objects."
    if graph is None:
        yield "Start the stack (`imem up`); the applier replays the graph. `imem sync status` shows how far it is."
    elif graph.same is None:
        yield f"The graph was replayed; the backup has no hash of it: {manifest.graph_unknown}"
    elif graph.same:
        yield f"The graph was replayed, and has the backup's hash: {graph.found.digest}."
    else:
        yield "The graph was replayed, and differs from the backup's in:"
        yield from (f"  {one}" for one in graph.differing[:SHOWN])


def _exported(counts: ExportCounts) -> str:
    memories = f", {counts.memories:,} memories" if counts.memories else ""
    return f"{counts.events:,} events{memories}."
