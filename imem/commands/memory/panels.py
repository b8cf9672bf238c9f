"""``imem panel``: what several agents said about one question, pooled with equal weights and by their records."""

from __future__ import annotations

from typing import Annotated

import typer

from imem.commands.memory.ask import AsOf, Limit, OnClock, Subject, checked_options, run_question
from imem.journal.errors import shown
from imem.terminal.command import Json, moment, print_section, wrong_usage

app = typer.Typer()


@app.command()
def panel(
    subject: Subject,
    *,
    metric: Annotated[str | None, typer.Option("--metric", help="Questions about this metric alone.")] = None,
    target_at: Annotated[
        str | None, typer.Option("--target-at", metavar="T", help="The question of this time alone, with its zone.")
    ] = None,
    as_of: AsOf = None,
    clock: OnClock = "known",
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """
    Pool the agents' newest answers to each question on a subject, and show the weight of each with its reason.

    Exit code 0: everything was asked; 3: something could not be asked, or is not scored yet.
    """
    options = checked_options(as_of, clock)
    with wrong_usage():
        at = moment(target_at, "--target-at")
    answer = run_question(lambda memory: memory.panel(subject, metric=metric, target_at=at, limit=limit, **options))

    def lines() -> list[str]:
        from imem.recall.sections.panels import panel_lines  # noqa: PLC0415 - a command imports what it needs

        nothing = (
            f"No agent answered a question on {shown(subject)}." if answer.reason is None else "Nothing could be asked."
        )
        return [line for item in answer.items for line in panel_lines(item)] or [nothing]

    print_section(answer, lines, as_json=as_json)
