"""
``imem demo``: from nothing to a briefing on real data.

It starts missing servers, loads the examples, waits until their outcomes are scored, prints briefings, and stops what
it started. A second run finds everything loaded and only prints.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from imem.journal.errors import StackError
from imem.journal.settings import Settings
from imem.journal.statements import root_of
from imem.local import state, status_view
from imem.local.folders import Folders
from imem.terminal import output
from imem.terminal.command import DEGRADED

if TYPE_CHECKING:
    from imem.journal.postgres.connection import Row
    from imem.recall.model import Briefing
    from imem.services.stores import Stores

app = typer.Typer()

EXAMPLES: Final = ("trading_desk", "flusight")

STALLED_S: Final = 120.0
"""Time without progress of the pipelines after which the demo fails, in seconds; a busy machine takes minutes."""

POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """
    A question that the demo asks.

    Attributes:
        title: what it shows.
        subject: about what.
        as_of: for which moment.
        max_tokens: how much of the answer is printed.
    """

    title: str
    subject: str
    as_of: datetime
    max_tokens: int = 1900


QUESTIONS: Final = (
    DemoQuestion(
        "What a desk of analysts knew about Micron on the morning of 2 June 2026",
        "company:MU",
        datetime(2026, 6, 2, 12, tzinfo=UTC),
    ),
    DemoQuestion(
        "Four days later: outcomes are known, and six days are little evidence for anyone",
        "company:MU",
        datetime(2026, 6, 6, tzinfo=UTC),
    ),
    DemoQuestion(
        "Will flu admissions rise in Texas? After a whole season of forecasts there are track records, with intervals",
        "market:flusight:48-2025-01-11-1",
        datetime(2025, 7, 1, tzinfo=UTC),
    ),
)

NEXT: Final = (
    ("imem brief company:ORCL --as-of 2026-06-04", "another company, as of another day"),
    ("imem debate trading_desk:MU-20260602/research", "every turn of a debate"),
    ("imem agents FluSight-ensemble", "whom to believe about the flu"),
)


@app.command()
def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave running what the demo started.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """
    Start everything, load the examples, print briefings on real data, and stop again.

    Exit code 0: everything was asked; 3: something could not be asked, and its briefing says what; 1: it failed.
    """
    settings = Settings.read()
    console = output.console(stderr=True)
    started = time.monotonic()
    own = state.running(Folders(settings.home)) is None
    if own:
        console.print(
            "Starting Neo4j, Postgres, three Valkeys and the workers; the first time their files are fetched."
        )
        _start(settings, console)
    try:
        degraded = asyncio.run(_show(settings, console, as_json=as_json))
    finally:
        if own and not keep:
            console.print("Stopping what the demo started.")
            _stop(settings)
    console.print(f"Done in {time.monotonic() - started:.0f} s.")
    if not as_json:
        _print_next(running=keep or not own)
    if degraded:
        console.print(
            f"{degraded} of {len(QUESTIONS)} briefings could not ask everything and say what is missing. "
            "`imem doctor` checks every server; the demo can be run again.",
            soft_wrap=True,
        )
        raise typer.Exit(DEGRADED)


def _start(settings: Settings, console: Console) -> None:
    from imem.commands.stack import start_detached  # noqa: PLC0415 - a command imports what it needs

    with status_view.watching(console) as report:
        start_detached(settings, report)


def _stop(settings: Settings) -> None:
    from imem.commands.stack import stop_running  # noqa: PLC0415 - as above

    running = state.running(Folders(settings.home))
    if running is not None:
        stop_running(running.supervisor)


async def _show(settings: Settings, console: Console, *, as_json: bool) -> int:
    """Load, wait, ask and print; return how many briefings could not ask everything."""
    from imem.kg.projection.plan_warming import warm  # noqa: PLC0415
    from imem.memory import Memory  # noqa: PLC0415
    from imem.services.arguments import MOST_BUDGET_MS  # noqa: PLC0415 - as above
    from imem.services.stores import Stores  # noqa: PLC0415

    async with Stores.open(settings) as stores:
        await _only_examples(stores)
    await _load(settings)
    async with Stores.open(settings) as stores:
        await _scored(stores, console)
        # What has just been filled is asked for the first time: the server would make its plans while we wait.
        await warm(stores.graph)
    async with Memory.open(settings) as memory:
        answers = [
            # The machine may still be busy with what was just loaded.
            (question, await memory.brief(question.subject, as_of=question.as_of, deadline_ms=MOST_BUDGET_MS))
            for question in QUESTIONS
        ]
    if as_json:
        found = [{"title": question.title, "briefing": answer.to_dict()} for question, answer in answers]
        typer.echo(json.dumps({"briefings": found}, indent=2, ensure_ascii=False))
    else:
        for question, answer in answers:
            _print(question, answer)
    return sum(answer.degraded for _, answer in answers)


async def _only_examples(stores: Stores) -> None:
    """
    Check that the journal holds no data but the examples.

    Raises:
        StackError: the journal holds more than the examples.
    """
    from imem.credibility.pipelines import ACTORS  # noqa: PLC0415 - as above
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above

    # What the product itself writes does not count: what its pipelines record, and events of workflows.
    ours = [*(f"import:{name}" for name in EXAMPLES), *(actor.id for actor in ACTORS), "service:workflow"]
    rows = await stores.database.named("other_actors", {"actors": ours}, deadline=Deadline.after_ms(10_000))
    if rows:
        raise StackError(
            f"This memory holds data of its own (of {rows[0]['actor']}), with which the examples shall not be mixed.",
            mend="Give the demo a folder of its own: IMEM_HOME=/some/folder imem demo",
        )


async def _load(settings: Settings) -> None:
    """
    Load the examples.

    Raises:
        StackError: a line was refused, or the graph did not follow.
    """
    from imem.commands.load import run  # noqa: PLC0415 - as above
    from imem.ingest.line_reader import sources_of  # noqa: PLC0415

    folder = root_of("imem", "examples")
    sources = sources_of([str(folder / name / f"{name}.jsonl.gz") for name in EXAMPLES])
    code = await run(settings, sources, strict=False, wait=True, report=None, as_json=False)
    if code:
        raise StackError("The examples could not be loaded whole.", mend="`imem doctor` checks every server.")


async def _scored(stores: Stores, console: Console) -> None:
    """
    Wait until the pipelines have scored what was loaded, and computed similarity.

    Raises:
        StackError: nothing moved for :data:`STALLED_S`.
    """
    from imem.journal.deadline import Deadline  # noqa: PLC0415 - as above

    async def look() -> Row:
        return (await stores.database.named("pipelines_due", deadline=Deadline.after_ms(10_000)))[0]

    moved, before = time.monotonic(), None
    with console.status("Scoring outcomes …") as status:
        while (due := await look())["due"] or due["uncompared"]:
            status.update(
                f"Scoring outcomes: {due['scores']:,} scores so far, {due['due']:,} rows to go; "
                f"{due['uncompared']:,} statements to compare …"
            )
            if due != before:
                moved, before = time.monotonic(), due
            if time.monotonic() - moved > STALLED_S:
                raise StackError("The outcomes were not scored in time.", mend="`imem logs celery` shows why.")
            await asyncio.sleep(POLL_S)
    console.print(f"{due['scores']:,} scores recorded, computed by the worker.")


def _print(question: DemoQuestion, answer: Briefing) -> None:
    typer.echo(f"\n{'─' * 100}\n{question.title}\n{'─' * 100}\n")
    typer.echo(answer.to_markdown(max_tokens=question.max_tokens))


def _print_next(*, running: bool) -> None:
    typer.echo(f"{'─' * 100}\nTry next{'' if running else ' (after `imem up --detach`)'}:\n")
    width = max(len(command) for command, _ in NEXT)
    for command, what in NEXT:
        typer.echo(f"{command:<{width}}   # {what}")
