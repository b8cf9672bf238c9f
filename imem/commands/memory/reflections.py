"""``imem reflections``: what the closed trades of a deployment say, and promoting it to its skill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from imem.commands.memory.ask import AsOf, checked_options, run_question
from imem.terminal.command import Json, print_answer

if TYPE_CHECKING:
    from imem.postmortem.reflection.notes import ReflectionNote

app = typer.Typer()
reflections_app = typer.Typer(help="Notes about closed trades.", no_args_is_help=True)
app.add_typer(reflections_app, name="reflections")


@reflections_app.callback()
def _reflections() -> None:
    """Show notes about closed trades, and promote them."""


@reflections_app.command()
def show(
    deployment: Annotated[str, typer.Argument(metavar="DEPLOYMENT", help="Whose notes.")],
    *,
    prompt: Annotated[bool, typer.Option("--prompt", help="Show what an agent's prompt gets instead.")] = False,
    as_of: AsOf = None,
    as_json: Json = False,
) -> None:
    """Show the notes of a deployment, newest first; the first is active."""
    moment = checked_options(as_of, "known")["as_of"]
    if prompt:
        text = run_question(lambda memory: memory.reflections.prompt_section(deployment, as_of=moment))
        print_answer({"text": text}, lambda: [text], as_json=as_json)
        return
    notes = run_question(lambda memory: memory.reflections.history(deployment, as_of=moment))
    print_answer(
        [note.model_dump(mode="json") for note in notes],
        lambda: [line for note in notes for line in _lines(note)] or ["There is no note."],
        as_json=as_json,
    )


@reflections_app.command()
def promote(
    note: Annotated[UUID, typer.Argument(metavar="ID", help="The note, as `imem reflections show` names it.")],
    *,
    as_json: Json = False,
) -> None:
    """Make a deployment's note the one of its skill, for deployments without one of their own; takes a person."""
    promoted = run_question(lambda memory: memory.reflections.promote(note))
    print_answer({"id": str(promoted)}, lambda: [f"Promoted as {promoted}."], as_json=as_json)


def _lines(note: ReflectionNote) -> Iterator[str]:
    from imem.journal.texts.prompt_text import name, quoted  # noqa: PLC0415 - a command imports what it needs

    about = f"{note.trades_considered:,} trades, by {name(note.model_used)}"
    yield f"{note.generated_at:%Y-%m-%d %H:%M} UTC {note.id} ({note.status}): {about}"
    yield from (f"  {line}" for line in note.lessons_text.splitlines())
    yield from (f"  contradicts {quoted(one.rule)}: {quoted(one.bullet)}" for one in note.contradictions)
