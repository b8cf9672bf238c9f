"""``imem learning``: lessons in every state, and whether one worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.memory.ask import run_question
from imem.journal.errors import shown
from imem.terminal.command import Json, print_answer

if TYPE_CHECKING:
    from imem.postmortem.lessons.effect import LessonEffect
    from imem.postmortem.lessons.reading import ListedLesson

app = typer.Typer()
learning_app = typer.Typer(help="What was learned, in every state: for people.", no_args_is_help=True)
app.add_typer(learning_app, name="learning")

State = Annotated[str | None, typer.Option(help="Of this state alone, such as pending_gate6.")]
LessonId = Annotated[str, typer.Argument(metavar="LESSON", help="The id of a lesson.")]


@learning_app.command()
def lessons(*, state: State = None, as_json: Json = False) -> None:
    """List lessons, the newest first, with their states."""
    found = run_question(lambda memory: memory.all_lessons(state=state))
    print_answer([one.model_dump(mode="json") for one in found], lambda: _lines(found), as_json=as_json)


@learning_app.command()
def effect(lesson: LessonId, *, as_json: Json = False) -> None:
    """Show whether a lesson made its agents' decisions more accurate."""
    found = run_question(lambda memory: memory.lesson_effect(lesson))
    print_answer(found.model_dump(mode="json"), lambda: _effect(found), as_json=as_json)


def _lines(found: Sequence[ListedLesson]) -> Iterator[str]:
    if not found:
        yield "There are none."
    for one in found:
        reviewed = ", reviewed" if one.reviewed else ""
        more = f", {one.waiting} to come" if one.waiting else ""
        yield f"{shown(one.lesson_id)}: {one.state} since {one.since:%Y-%m-%d}{reviewed}; {one.delivered} agents{more}"
        yield f"  {shown(one.insight)}"


def _effect(found: LessonEffect) -> Iterator[str]:
    cells = (
        ("in scope before", found.before_in_scope), ("in scope after", found.after_in_scope),
        ("outside before", found.before_outside), ("outside after", found.after_outside),
    )  # fmt: skip
    for name, cell in cells:
        accuracy = "" if cell.accuracy is None else f", accuracy {cell.accuracy:.2f}"
        yield f"{name}: {cell.decisions} decisions{accuracy}"
    if found.uplift is None:
        yield "Too few decisions: ten are needed in each."
    else:
        yield f"uplift {found.uplift:+.2f} (95 % interval {found.low:+.2f} to {found.high:+.2f}): {found.verdict}"
