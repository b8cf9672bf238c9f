"""``imem postmortems``: decisions that were off, in review or waiting for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.memory.ask import run_question
from imem.journal.errors import shown
from imem.terminal.command import Json, print_answer

if TYPE_CHECKING:
    from imem.postmortem.cases.reading import CaseSummary

app = typer.Typer()

All = Annotated[bool, typer.Option("--all", help="Also those that were completed, timed out or withdrawn.")]


@app.command()
def postmortems(*, every: All = False, as_json: Json = False) -> None:
    """List decisions that were off: those in review, then those that wait; `imem tasks` answers them."""
    found = run_question(lambda memory: memory.postmortems(every=every))
    print_answer([one.model_dump(mode="json") for one in found], lambda: _lines(found), as_json=as_json)


def _lines(found: Sequence[CaseSummary]) -> Iterator[str]:
    if not found:
        yield "No decision was off by more than noise, or all such were reviewed; `imem forecasts` shows the others."
    for one in found:
        worst = one.checkpoints[0]
        until = "" if one.review_due_at is None else f" until {one.review_due_at:%Y-%m-%d %H:%M} UTC"
        task = "" if one.task_id is None or one.status != "in_review" else f" [{one.task_id}]"
        yield (
            f"{one.status}{until}: {shown(one.decision_id)}, {worst.days} days: {shown(worst.metric)} "
            f"{worst.predicted:g} was forecast, and it was {worst.actual:g} (deviation {worst.deviation:.2f}){task}"
        )
