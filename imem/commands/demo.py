"""
``imem demo``: from nothing to a briefing on real data.

It starts missing servers, loads the examples, waits until their outcomes are scored, prints briefings, and stops what
it started. A second run finds everything loaded and only prints. It waits as long as anything moves. If it must give
up, the servers go on, and so does the next run.
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

from imem.ingest.examples import ASK_MS, EXAMPLES, example_files, missing_examples, wait_for_pipelines
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, StackError
from imem.journal.settings import Settings
from imem.local import state, status_view
from imem.local.folders import Folders
from imem.terminal import output
from imem.terminal.command import DEGRADED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from imem.journal.postgres.connection import Row
    from imem.memory import Memory
    from imem.recall.model import Briefing
    from imem.services.stores import Stores

app = typer.Typer()

PATIENCE_MS: Final = 300_000
"""How long a briefing that lacks something is asked for again, in milliseconds."""

_PAUSE_S: Final = 1.0


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

STILL_RUNS: Final = (
    "The servers still run, and what is loaded stays: `imem demo` goes on from here, `imem doctor` checks every "
    "server, and `imem down` stops them."
)
"""The next step after a demo that could not show everything."""

NEXT: Final = (
    ("imem brief company:ORCL --as-of 2026-06-04", "another company, as of another day"),
    ("imem debate trading_desk:MU-20260602/research", "every turn of a debate"),
    ("imem agents FluSight-ensemble", "whom to believe about the flu"),
)


class ForeignData(StackError):
    """The memory holds data that is not the examples'."""


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
    degraded = len(QUESTIONS)
    stops = own and not keep
    try:
        degraded = asyncio.run(_show(settings, console, as_json=as_json))
    except ForeignData:
        raise
    except ImemError:
        stops = False
        console.print(STILL_RUNS, soft_wrap=True)
        raise
    else:
        stops = stops and not degraded
    finally:
        if stops:
            console.print("Stopping what the demo started.")
            _stop(settings)
    console.print(f"Done in {time.monotonic() - started:.0f} s.")
    if not as_json:
        _print_next(running=not stops)
    if degraded:
        console.print(
            f"{degraded} of {len(QUESTIONS)} briefings could not ask everything and say what is missing. {STILL_RUNS}",
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
    from imem.services.stores import Stores  # noqa: PLC0415

    async with Stores.open(settings) as stores:
        await _only_examples(stores)
        missing = await missing_examples(stores.database, example_files())
    if missing:
        await _load(settings, missing)
    else:
        console.print("The examples are loaded already.")
    async with Stores.open(settings) as stores:
        await _scored(stores, settings, console)
        # What has just been filled is asked for the first time: the server would make its plans while we wait.
        await warm(stores.graph)
    async with Memory.open(settings) as memory:
        answers = [(question, await _briefing(memory, question)) for question in QUESTIONS]
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
        ForeignData: the journal holds more than the examples.
    """
    from imem.archives.building import ACTOR as ARCHIVES  # noqa: PLC0415 - as above
    from imem.credibility.pipelines import ACTORS  # noqa: PLC0415 - as above
    from imem.patterns.life import ACTOR as PATTERNS  # noqa: PLC0415 - as above
    from imem.postmortem.cases.facts import ACTOR as CASES  # noqa: PLC0415 - as above
    from imem.postmortem.successes import ACTOR as SUCCESSES  # noqa: PLC0415 - as above

    # What the product itself writes does not count: what its pipelines record, and events of workflows.
    ours = [
        *(f"import:{name}" for name in EXAMPLES),
        *(actor.id for actor in (*ACTORS, ARCHIVES, CASES, PATTERNS, SUCCESSES)),
        "service:workflow",
    ]
    rows = await stores.database.named("other_actors", {"actors": ours}, deadline=Deadline.after_ms(ASK_MS))
    if rows:
        raise ForeignData(
            f"This memory holds data of its own (of {rows[0]['actor']}), with which the examples shall not be mixed.",
            mend="Give the demo a folder of its own: IMEM_HOME=/some/folder imem demo",
        )


async def _load(settings: Settings, files: Sequence[Path]) -> None:
    """
    Load *files*.

    Raises:
        StackError: a line was refused.
    """
    from imem.commands.load import Waits, run  # noqa: PLC0415 - as above
    from imem.ingest.line_reader import sources_of  # noqa: PLC0415

    sources = sources_of([str(file) for file in files])
    # What follows waits for the graph together with all else.
    if await run(settings, sources, strict=False, waits=Waits(graph=False), report=None, as_json=False):
        raise StackError("Lines of the examples were refused.", mend="`imem doctor` checks every server.")


async def _scored(stores: Stores, settings: Settings, console: Console) -> None:
    """Wait until the pipelines have done what the examples give them to do."""
    folders = Folders(settings.home)
    # Servers of one's own have no supervisor here.
    ours = state.running(folders) is not None
    with console.status("Scoring outcomes …") as status:

        def shown(due: Row) -> None:
            status.update(
                f"Scoring outcomes: {due['scores']:,} scores so far, {due['due']:,} rows to go; "
                f"{due['uncompared']:,} statements to compare …"
            )

        due = await wait_for_pipelines(
            stores.database,
            list(example_files()),
            shown=shown,
            runs=lambda: not ours or state.running(folders) is not None,
        )
    console.print(f"{due['scores']:,} scores recorded, computed by the worker.")


async def _briefing(memory: Memory, question: DemoQuestion) -> Briefing:
    """
    Ask with all the time there is, and again while the answer lacks something: the machine may still be busy.

    What was late once is planned and cached by the next time.
    """
    from imem.services.arguments import MOST_BUDGET_MS  # noqa: PLC0415 - as above

    until = Deadline.after_ms(PATIENCE_MS)
    while True:
        answer = await memory.brief(question.subject, as_of=question.as_of, deadline_ms=MOST_BUDGET_MS)
        if not answer.degraded or until.passed:
            return answer
        await asyncio.sleep(_PAUSE_S)


def _print(question: DemoQuestion, answer: Briefing) -> None:
    typer.echo(f"\n{'─' * 100}\n{question.title}\n{'─' * 100}\n")
    typer.echo(answer.to_markdown(max_tokens=question.max_tokens))


def _print_next(*, running: bool) -> None:
    typer.echo(f"{'─' * 100}\nTry next{'' if running else ' (after `imem up --detach`)'}:\n")
    width = max(len(command) for command, _ in NEXT)
    for command, what in NEXT:
        typer.echo(f"{command:<{width}}   # {what}")
