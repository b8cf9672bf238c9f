"""``imem signals``: what an agent concluded before about a subject."""

from __future__ import annotations

from typing import Annotated

import typer

from imem.commands.memory.ask import AsOf, OnClock, Subject, checked_options, run_question
from imem.terminal.command import Json, print_section

MOST_CHARS = 10_000
"""Room for five signals, in characters."""

app = typer.Typer()


@app.command()
def signals(
    subject: Subject,
    *,
    agent: Annotated[str | None, typer.Option("--agent", help="Whose; the actor's own by default.")] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    limit: Annotated[int | None, typer.Option("--limit", help="How many, at most 5.")] = None,
    deadline_ms: Annotated[
        int | None, typer.Option("--deadline-ms", help="When the answer is due, 10 to 5,000 ms; 5,000 by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """
    Show the newest signals of an agent about a subject, oldest first, as it is told them.

    Exit code 0: they could be read; 3: they could not, and the answer says why.
    """
    options = checked_options(as_of, clock, deadline_ms)
    answer = run_question(lambda memory: memory.signals(subject, agent=agent, limit=limit, **options))

    def lines() -> list[str]:
        from imem.recall.signals import format_memory  # noqa: PLC0415 - a command imports what it needs

        return [format_memory(answer, MOST_CHARS, include_metadata=True).text]

    print_section(answer, lines, as_json=as_json)
