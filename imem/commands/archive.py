"""``imem archive``: archived patterns, their archives, and why files are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, shown
from imem.terminal import command
from imem.terminal.command import FAILURE, Json, print_answer

if TYPE_CHECKING:
    from imem.archives.access import Archives
    from imem.services.stores import Stores

T = TypeVar("T")

ASK_MS = 10_000
"""How long a command may take that asks Postgres alone, in milliseconds."""

OBJECTS_MS = 600_000
"""How long a command may take that reads objects, in milliseconds."""

app = typer.Typer()
archive_app = typer.Typer(help="Archived patterns, their archives, and why files are kept.", no_args_is_help=True)
app.add_typer(archive_app, name="archive")

Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="The pattern's id.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The file's path, as its record has it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why.")]
Regime = Annotated[list[str] | None, typer.Option("--regime", help="A regime in which it was tested; repeat.")]
Industry = Annotated[list[str] | None, typer.Option("--industry", help="An industry; repeat.")]


def _run(ask: Callable[[Archives], Awaitable[T]]) -> T:
    async def asked(stores: Stores) -> T:
        from imem.archives.access import Archives  # noqa: PLC0415 - a command imports what it needs
        from imem.journal.endpoints.objects import ObjectStore  # noqa: PLC0415 - as above

        return await ask(Archives(stores.gateway, ObjectStore.of(stores.settings)))

    return command.run(asked)


async def _authorized(stores: Stores, what: str, work: Callable[[Deadline], Awaitable[T]]) -> T:
    """Run *work* if the actor may archive; the pipelines' login, under which *work* runs, does not decide that."""
    from imem.journal.actors import Action, Resource, ResourceType  # noqa: PLC0415 - as above

    return await command.ask(stores, Resource(ResourceType.PATTERNS, what), Action.ARCHIVE, work, budget_ms=OBJECTS_MS)


def _soon() -> Deadline:
    return Deadline.after_ms(ASK_MS)


@archive_app.command("list")
def list_(
    *,
    regime: Regime = None,
    industry: Industry = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Least confidence, 0 to 1.")] = 0.0,
    accuracy: Annotated[float, typer.Option("--accuracy", help="Least accuracy, 0 to 1.")] = 0.0,
    requested: Annotated[
        int | None, typer.Option("--requested", help="Deprecated ones that so many actors retrieved within 30 days.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List archived patterns, by one criterion; without one those that have a confidence and an accuracy."""

    async def ask(archives: Archives) -> list[dict[str, Any]]:
        if requested is not None:
            return await archives.candidates(requested, deadline=_soon())
        if regime:
            return await archives.by_regime(regime, deadline=_soon())
        if industry:
            return await archives.by_industry(industry, deadline=_soon())
        return await archives.by_metrics(confidence, accuracy, deadline=_soon())

    found = _run(ask)
    print_answer(found, lambda: [_line(one) for one in found] or ["No archived pattern."], as_json=as_json)


@archive_app.command()
def show(pattern: Pattern, *, as_json: Json = False) -> None:
    """Show what the index says of a pattern; its archive is not read."""
    found = _run(lambda archives: archives.entry(pattern, deadline=_soon()))
    print_answer(found, lambda: [_line(found), f"  {shown(found['archive_location'])}"], as_json=as_json)


@archive_app.command()
def get(
    pattern: Pattern,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where its files go; new or empty.")],
    *,
    as_json: Json = False,
) -> None:
    """Copy the archives of a pattern into a folder; each file is compared with the manifest."""
    try:
        usable = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    except (OSError, ValueError):  # Too long, or with a character that no name has.
        usable = False
    if not usable:
        raise typer.BadParameter("is no empty folder.", param_hint="FOLDER")
    number = _run(lambda archives: archives.retrieve(pattern, folder, deadline=Deadline.after_ms(OBJECTS_MS)))
    print_answer({"files": number}, lambda: [f"{number:,} files in {shown(str(folder))}."], as_json=as_json)


@archive_app.command()
def verify(pattern: Pattern, *, as_json: Json = False) -> None:
    """Compare the archives of a pattern with their manifest. Exit code 1: one is not what it says."""
    found = _run(lambda archives: archives.verify(pattern, deadline=Deadline.after_ms(OBJECTS_MS)))
    value = {str(tier): {"ok": one.ok, **asdict(one)} for tier, one in found.items()}

    def lines() -> Iterator[str]:
        for tier, one in found.items():
            yield f"tier {tier}: {'intact' if one.ok else 'not what its manifest says'}"
            yield from (f"  missing: {shown(key)}" for key in one.missing)
            yield from (f"  changed: {shown(key)}" for key in one.mismatched)

    print_answer(value, lambda: list(lines()), as_json=as_json)
    if not all(one.ok for one in found.values()):
        raise typer.Exit(FAILURE)


@archive_app.command()
def rebuild(*, as_json: Json = False) -> None:
    """Build the index anew from the manifests of all archives."""
    from imem.services.stores import Stores  # noqa: PLC0415 - as above

    async def build(stores: Stores) -> int:
        from imem.archives.building import rebuild_index  # noqa: PLC0415 - as above
        from imem.journal.endpoints.objects import ObjectStore  # noqa: PLC0415 - as above

        store = ObjectStore.of(stores.settings)
        return await _authorized(stores, "index", lambda due: rebuild_index(stores.database, store, deadline=due))

    number = command.run_within(lambda settings: Stores.open(settings, pipelines=True), build)
    print_answer({"patterns": number}, lambda: [f"{number:,} archived patterns."], as_json=as_json)


@archive_app.command()
def prune(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be pruned; change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Reduce unused records in the graph to stubs; the journal keeps the whole records."""
    if dry_run:
        found, number = _run(lambda archives: archives.prunable(deadline=Deadline.after_ms(OBJECTS_MS)))
        value = {"number": number, "records": [asdict(one) for one in found]}

        def lines() -> Iterator[str]:
            yield from (f"{one.kind} {shown(one.key)}: {', '.join(one.grounds)}" for one in found)
            yield f"{number:,} records would be pruned."

        print_answer(value, lines, as_json=as_json)
        return
    from imem.services.stores import Stores  # noqa: PLC0415 - as above

    async def work(stores: Stores) -> dict[str, Any]:
        from imem.archives.pruning import prune as pruned  # noqa: PLC0415 - as above

        return dict(await _authorized(stores, "graph", lambda due: pruned(stores.database, stores.gateway, until=due)))

    report = command.run_within(lambda settings: Stores.open(settings, pipelines=True), work)
    print_answer(report, lambda: [f"{sum(report.values()):,} records are pruned from the graph."], as_json=as_json)


@archive_app.command()
def detail(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Analysis, Debate or Finding.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The record's id.")],
    *,
    as_json: Json = False,
) -> None:
    """Show the whole of a record, as the journal has it, also after it was pruned from the graph."""
    found = _run(lambda archives: archives.detail(kind, key, deadline=_soon()))

    def lines() -> Iterator[str]:
        yield f"{kind} {shown(key)}, known since {found['known_at']:%Y-%m-%d}"
        for name, value in [*found["core"].items(), ("body", found["body"])]:
            if value is not None:
                yield f"  {name}: {shown(str(value))}"

    print_answer(found, lines, as_json=as_json)


@archive_app.command()
def file(name: File, *, as_json: Json = False) -> None:
    """Say why a file is kept, or that it may be deleted."""
    found = _run(lambda archives: archives.explain(name, deadline=_soon()))
    value = [asdict(one) for one in found]

    def lines() -> Iterator[str]:
        for one in found:
            until = f" until {one.until:%Y-%m-%d}" if one.until is not None else ""
            about = f"pattern {shown(one.pattern_id)}" if one.pattern_id is not None else "the file"
            yield f"{about}: {one.rule.value.replace('_', ' ')}{until}"
        yield "It is kept." if any(one.keeps for one in found) else "No rule keeps it."

    print_answer(value, lambda: list(lines()), as_json=as_json)


@archive_app.command()
def restore(name: File, *, reason: Reason, as_json: Json = False) -> None:
    """Restore a file that is marked for deletion."""
    _run(lambda archives: archives.restore(name, reason, deadline=_soon()))
    print_answer({"restored": name}, lambda: [f"{shown(name)} is restored."], as_json=as_json)


@archive_app.command()
def holds(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were released.")] = False,
    as_json: Json = False,
) -> None:
    """List holds, the newest first."""
    found = _run(lambda archives: archives.holds(released=everything, deadline=_soon()))
    print_answer(found, lambda: [_hold(one) for one in found] or ["Nothing is held."], as_json=as_json)


@archive_app.command()
def hold(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="legal, post_mortem, validation or manual.")],
    subject: Annotated[str, typer.Argument(metavar="TYPE", help="file, pattern, company or decision.")],
    name: Annotated[str, typer.Argument(metavar="ID", help="Its path or id.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Hold what a file, a pattern, a company or a decision needs: nothing of it is deleted until the release."""

    async def place(archives: Archives) -> dict[str, Any]:
        from imem.archives.access import HoldKind, HoldSubject  # noqa: PLC0415 - as above

        if kind not in set(HoldKind):
            raise BadInput("KIND", f"must be one of {', '.join(HoldKind)}.")
        if subject not in set(HoldSubject):
            raise BadInput("TYPE", f"must be one of {', '.join(HoldSubject)}.")
        return await archives.hold(HoldKind(kind), HoldSubject(subject), name, reason, deadline=_soon())

    found = _run(place)
    print_answer(found, lambda: [_hold(found), f"  It covers {found['files']:,} files."], as_json=as_json)


@archive_app.command()
def release(
    hold_id: Annotated[int, typer.Argument(metavar="NUMBER", help="The hold's, as `imem archive holds` shows it.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Release a hold."""
    found = _run(lambda archives: archives.release(hold_id, reason, deadline=_soon()))
    print_answer(found, lambda: [_hold(found)], as_json=as_json)


@archive_app.command()
def runs(*, as_json: Json = False) -> None:
    """List the runs of retention: how many files each would mark, and why it marked none."""
    found = _run(lambda archives: archives.runs(deadline=_soon()))
    print_answer(found, lambda: list(_runs(found)) or ["No run yet."], as_json=as_json)


@archive_app.command()
def approve(
    run_id: Annotated[int, typer.Argument(metavar="NUMBER", help="The run's, as `imem archive runs` shows it.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Let the next run mark as many files as one that halted at the cap."""
    _run(lambda archives: archives.approve(run_id, reason, deadline=_soon()))
    print_answer({"approved": run_id}, lambda: [f"The next run may mark what run {run_id} proposed."], as_json=as_json)


def _line(one: dict[str, Any]) -> str:
    values = [
        f"{name} {one[name]:.2f}" if isinstance(one[name], float) else f"{name} unknown"
        for name in ("confidence", "accuracy")
    ]
    tags = [*one["regime_tags"], *one["industry_tags"]]
    words = [one["status"], f"tier {one['archive_tier']}", *values, *tags]
    return f"{shown(one['pattern_id'])}  {shown(one['pattern_name'])}: {', '.join(map(shown, words))}"


def _hold(one: dict[str, Any]) -> str:
    end = f", released {one['released_at']:%Y-%m-%d} by {shown(one['released_by'])}" if one["released_at"] else ""
    about = f"{one['subject_type']} {shown(one['subject_id'])}"
    since = f"{one['placed_at']:%Y-%m-%d} by {shown(one['placed_by'])}"
    return f"{one['id']}  {one['kind']}: {about}, since {since}{end}. {shown(one['reason'])}"


def _runs(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in found:
        halted = f", halted: {one['halted']}" if one["halted"] else ""
        approved = f", approved by {shown(one['approved_by'])}" if one["approved_by"] else ""
        yield (
            f"{one['id']}  {one['run_at']:%Y-%m-%d %H:%M} UTC: {one['proposed']:,} of {one['cold']:,} cold files"
            f"{halted}{approved}"
        )
