"""Commands that print single sections: those that a briefing's last lines name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from imem.commands.ask import DEGRADED, AsOf, Json, Limit, OnClock, Subject, checked_options, print_answer, run_question

if TYPE_CHECKING:
    from imem.memory import Memory
    from imem.recall.model import HistorySection, RecordsSection

A = TypeVar("A", "HistorySection", "RecordsSection")

app = typer.Typer()


def _part(question: Callable[[Memory], Awaitable[A]], shown: Callable[[A], Sequence[str]], *, as_json: bool) -> None:
    """Print one section; exit code 3 if it is not exact."""
    answer = run_question(question)
    nothing = "Nothing is known." if answer.reason is None else "Nothing could be asked."
    value: Any = answer.model_dump(mode="json", exclude_none=True)
    print_answer(value, as_json=as_json, text=lambda: "\n".join(shown(answer)) or nothing)
    if answer.reason is not None:
        typer.echo(f"Incomplete: {answer.reason}.", err=True)
        raise typer.Exit(DEGRADED)


@app.command()
def history(
    subject: Subject, *, as_of: AsOf = None, clock: OnClock = "known", limit: Limit = None, as_json: Json = False
) -> None:
    """List the analyses of a subject, newest first, with findings, decisions and outcomes."""
    options = checked_options(as_of, clock)

    def text(answer: HistorySection) -> list[str]:
        from imem.recall.sections.newest import analysis_text  # noqa: PLC0415 - a command imports what it needs

        return [analysis_text(item) for item in answer.items]

    _part(lambda memory: memory.history(subject, limit=limit, **options), text, as_json=as_json)


@app.command()
def contradictions(
    subject: Subject, *, as_of: AsOf = None, clock: OnClock = "known", limit: Limit = None, as_json: Json = False
) -> None:
    """List where sources disagreed about a subject's data, open ones first, by priority, and how that was resolved."""
    options = checked_options(as_of, clock)

    def text(answer: RecordsSection) -> list[str]:
        from imem.recall.sections.contradictions import contradiction_text  # noqa: PLC0415 - as above

        return [contradiction_text(one) for one in answer.items]

    _part(lambda memory: memory.contradictions(subject, limit=limit, **options), text, as_json=as_json)


@app.command()
def patterns(
    subject: Subject, *, as_of: AsOf = None, clock: OnClock = "known", limit: Limit = None, as_json: Json = False
) -> None:
    """List the active patterns of a subject's sector, and of none, the most successful first."""
    options = checked_options(as_of, clock)

    def text(answer: RecordsSection) -> list[str]:
        from imem.recall.sections.knowledge import pattern_text  # noqa: PLC0415 - as above

        return [pattern_text(one) for one in answer.items]

    _part(lambda memory: memory.patterns(subject, limit=limit, **options), text, as_json=as_json)


@app.command()
def lessons(
    subject: Subject, *, as_of: AsOf = None, clock: OnClock = "known", limit: Limit = None, as_json: Json = False
) -> None:
    """List the lessons that bear on a subject, newest first."""
    options = checked_options(as_of, clock)

    def text(answer: RecordsSection) -> list[str]:
        from imem.recall.sections.knowledge import lesson_text  # noqa: PLC0415 - as above

        return [lesson_text(one) for one in answer.items]

    _part(lambda memory: memory.lessons(subject, limit=limit, **options), text, as_json=as_json)
