"""``imem learning``: lessons in every state, and whether one worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.memory import patterns
from imem.commands.memory.ask import run_question
from imem.journal.errors import BadInput, shown
from imem.journal.texts.spelling import says_nothing
from imem.kg.kinds.enums import LessonPriority, LessonSource
from imem.terminal.command import Json, moment, print_answer, wrong_usage

if TYPE_CHECKING:
    from imem.gates.learning.report import LearningReport, Share
    from imem.postmortem.lessons.effect import LessonEffect
    from imem.postmortem.lessons.reading import ListedLesson

app = typer.Typer()
learning_app = typer.Typer(help="List lessons in every state, for people.", no_args_is_help=True)
app.add_typer(learning_app, name="learning")
learning_app.add_typer(patterns.app)

State = Annotated[str | None, typer.Option(help="Only lessons in this state, such as pending_gate6.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="T", help="Only events from then on: a time with its zone, or a day (its end in UTC)."),
]
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


@learning_app.command()
def report(*, since: Since = None, as_json: Json = False) -> None:
    """Show whether what is learned helps: decisions at Gate 6, use of the memory, lessons, calibration by quarter."""
    with wrong_usage():
        begins = moment(since, "--since")
    found = run_question(lambda memory: memory.learning_report(since=begins))
    print_answer(found.model_dump(mode="json"), lambda: _report(found), as_json=as_json)


Said = Annotated[str, typer.Option(help="The insight.")]
Advice = Annotated[str, typer.Option("--do", help="The action to take in future.")]
Category = Annotated[str, typer.Option(help="Its category, such as timing.")]
Domains = Annotated[
    list[str] | None, typer.Option("--domain", metavar="NAME", help="Its agents are those of this domain (repeat).")
]
Urgency = Annotated[LessonPriority, typer.Option(help="How important it is.")]
Sector = Annotated[str | None, typer.Option(help="It speaks of subjects of this sector alone.")]


@learning_app.command()
def add(
    *,
    insight: Said,
    do: Advice,
    category: Category,
    domain: Domains = None,
    priority: Urgency = LessonPriority.HIGH,
    sector: Sector = None,
    as_json: Json = False,
) -> None:
    """
    Record a lesson of your own; the same again is the same lesson.

    Agents of its domains get it as advisory, and at Gate 6 it is approved or rejected.
    """
    from imem.journal.events.ids import id_of  # noqa: PLC0415 - a command imports what it needs
    from imem.kg.model import Lesson  # noqa: PLC0415 - as above

    with wrong_usage():
        for option, text in (("--insight", insight), ("--do", do), ("--category", category)):
            if says_nothing(text):
                raise BadInput(option, "must not be empty.")
        made = Lesson(
            id="lesson", source=LessonSource.HUMAN_INSIGHT, category=category, insight=insight, recommended_action=do,
            affected_domains=domain, priority=priority, scope_sector=sector,
        )  # fmt: skip
    key = f"lesson:{id_of('lesson', category, insight, do)}"
    receipt = run_question(lambda memory: memory.record(made.model_copy(update={"id": key})))
    print_answer({"id": key, "verdict": receipt.verdict.value}, lambda: [f"{key}: {receipt.verdict}"], as_json=as_json)


def _lines(found: Sequence[ListedLesson]) -> Iterator[str]:
    if not found:
        yield "There are none."
    for one in found:
        reviewed = ", reviewed" if one.reviewed else ""
        more = f", {one.waiting} to come" if one.waiting else ""
        by = f" by {shown(one.superseded_by)}" if one.superseded_by else ""
        since = f"{one.state}{by} since {one.since:%Y-%m-%d}"
        yield f"{shown(one.lesson_id)}: {since}{reviewed}; {one.delivered} agents{more}"
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


def _report(found: LearningReport) -> Iterator[str]:
    yield (
        f"Gate 6: {found.due} items were due in {found.packages} packages, {found.answered} of them answered; "
        f"{found.decided} items decided, {found.rolled_over} rolled over."
    )
    cases = ", ".join(f"{count} {state}" for state, count in sorted(found.cases.items())) or "none"
    yield f"Post-mortems: {cases}."
    yield f"Decisions that cite the memory: {_share(found.citing)}."
    for one in found.lessons:
        effect = one.effect
        said = "" if effect.uplift is None else f" {effect.uplift:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})"
        yield f"Lesson {shown(one.lesson_id)}: {effect.verdict}{said}."
    if found.successes:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(found.successes.items()))
        yield f"Successes: {classes}."
    for spoken in found.reinforced:
        yield f"Reinforced {spoken.kind} {shown(spoken.key)}: {spoken.fully} in full, {spoken.partly} in part."
    for quarter in found.calibration:
        name = f"{quarter.begins.year} Q{(quarter.begins.month + 2) // 3}"
        yield f"{name}: accurate {_share(quarter.accurate)}; inside the stated interval {_share(quarter.inside)}."
    yield from found.warnings


def _share(one: Share) -> str:
    counted = f"{one.count:g} of {one.n}"
    return counted if one.share is None else f"{counted}, {one.share:.0%} ({one.low:.0%} to {one.high:.0%})"
