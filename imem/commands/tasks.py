"""``imem tasks``: the questions that wait for people, their answers, and the roster of who answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, shown
from imem.terminal import command
from imem.terminal.command import Json, json_object, print_answer, until, wrong_usage

if TYPE_CHECKING:
    from imem.credibility.disputes.rules import StandingRule
    from imem.review.admission import Reviewer
    from imem.review.kinds import Task, TaskAction, TaskKind
    from imem.services.parts.review_api import ReviewApi

T = TypeVar("T")

ASK_MS = 10_000
"""How long a command may take, in milliseconds."""

app = typer.Typer()
group = typer.Typer(help="Questions that wait for people.")
app.add_typer(group, name="tasks")
roster_group = typer.Typer(help="The people who answer tasks.")
group.add_typer(roster_group, name="roster")
rules_group = typer.Typer(help="Answers that count for all later contradictions of a kind.")
group.add_typer(rules_group, name="rules")

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Its id, as `imem tasks` shows it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why.")]
Kind = Annotated[str | None, typer.Option("--kind", help="Only tasks of this kind.")]
ReviewerOption = Annotated[str | None, typer.Option("--reviewer", help="Only tasks of this reviewer.")]
Analysis = Annotated[str | None, typer.Option("--analysis", help="Only tasks of this analysis.")]


@group.callback(invoke_without_command=True)
def tasks(
    context: typer.Context,
    *,
    kind: Kind = None,
    reviewer: ReviewerOption = None,
    analysis: Analysis = None,
    as_json: Json = False,
) -> None:
    """List the tasks that can be answered: open ones first, then defaults to be reviewed; the most urgent first."""
    if context.invoked_subcommand is None:
        list_(kind=kind, reviewer=reviewer, analysis=analysis, as_json=as_json)


@group.command("list")
def list_(
    *, kind: Kind = None, reviewer: ReviewerOption = None, analysis: Analysis = None, as_json: Json = False
) -> None:
    """List the tasks that can be answered, as `imem tasks` does."""
    found = _run(lambda api: api.tasks(kind=kind, reviewer=reviewer, analysis_id=analysis, deadline_ms=ASK_MS))
    print_answer([_document(task) for task in found], lambda: list(_listed(found)), as_json=as_json)


@group.command()
def show(task: TaskId, *, as_json: Json = False) -> None:
    """Show a task whole: what happens if nobody answers, what is known, and how it can be answered."""
    found = _run(lambda api: api.task(task, deadline_ms=ASK_MS))
    print_answer(_document(found), lambda: list(_whole(found)), as_json=as_json)


@group.command()
def answer(
    task: TaskId,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="One of those that `imem tasks show` lists.")],
    *,
    field: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A field of the answer; repeat.")
    ] = None,
    rationale: Annotated[str | None, typer.Option("--rationale", help="Why; required to override a default.")] = None,
    item: Annotated[
        list[str] | None,
        typer.Option(
            "--item",
            metavar="NUMBER='ACTION NAME=VALUE…'",
            help="The answer to one item of a package, by its number or id, with its fields and rationale=…; repeat.",
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A JSON file with the fields of the answer.")
    ] = None,
    always: Annotated[
        bool,
        typer.Option("--always", help="Let the answer count for later contradictions of the kind: `imem tasks rules`."),
    ] = False,
    all_alike: Annotated[
        bool, typer.Option("--all-alike", help="Answer every other task that is like it in the same way.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer a task; the same answer again changes nothing. Exit code 1: it cannot be answered so any more."""
    with wrong_usage():
        fields = ({} if source is None else json_object(source, "--from")) | dict(_pair(text) for text in field or ())
        fields |= {"always": True} if always else {}
        fields |= {"items": [*fields.get("items", ()), *map(_item, item)]} if item else {}
    found = _run(
        lambda api: api.answer(
            task, action, fields=fields, rationale=rationale, all_alike=all_alike, deadline_ms=ASK_MS
        )
    )
    lines = [f"{shown(one.task_id)}: {action}, by {shown(str((one.answer or {}).get('by', '')))}." for one in found]
    print_answer([_document(one) for one in found], lambda: lines, as_json=as_json)


@group.command()
def delegate(
    task: TaskId,
    to: Annotated[str, typer.Argument(metavar="PERSON", help="Somebody on the roster.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Hand an open task over to another reviewer; its time goes on."""
    found = _run(lambda api: api.delegate(task, to, reason=reason, deadline_ms=ASK_MS))
    print_answer(_document(found), lambda: [f"{shown(task)} goes to {shown(to)}."], as_json=as_json)


@rules_group.callback(invoke_without_command=True)
def rules(context: typer.Context, *, as_json: Json = False) -> None:
    """List what people answered for all later contradictions of a kind: rules in force first."""
    if context.invoked_subcommand is not None:
        return
    found = _run(lambda api: api.standing_rules(deadline_ms=ASK_MS))
    print_answer(found, lambda: list(_rules(found)), as_json=as_json)


@rules_group.command()
def revoke(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Its id, as `imem tasks rules` shows it.")],
    *,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Revoke a rule from now on; what it has settled stays settled."""
    found = _run(lambda api: api.revoke_rule(rule, reason=reason, deadline_ms=ASK_MS))
    print_answer(found, lambda: [f"The rule {shown(rule)} is revoked."], as_json=as_json)


@roster_group.callback(invoke_without_command=True)
def roster(context: typer.Context, *, as_json: Json = False) -> None:
    """List who answers tasks, how many at a time, and who is away."""
    if context.invoked_subcommand is not None:
        return
    found = _run(lambda api: api.roster(deadline_ms=ASK_MS))
    print_answer(found, lambda: list(_roster(found)), as_json=as_json)


@roster_group.command("set")
def set_(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The name under which the person answers.")],
    *,
    kind: Annotated[list[str] | None, typer.Option("--kind", help="A kind of task; repeat. All by default.")] = None,
    capacity: Annotated[int, typer.Option("--capacity", help="Tasks at a time.")] = 3,
    away: Annotated[str | None, typer.Option("--away-until", help="Until when the person is away.")] = None,
    deputy: Annotated[str | None, typer.Option("--deputy", help="The person who gets tasks meanwhile.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the person off the roster.")] = False,
) -> None:
    """Put a person on the roster, or change or remove the entry: it is written whole. Requires an admin."""
    end = until(away) if away is not None else None
    _run(
        lambda api: api.set_reviewer(
            person, kinds=kind or (), capacity=capacity, away_until=end, deputy=deputy, removed=remove,
            deadline_ms=ASK_MS,
        )
    )  # fmt: skip
    typer.echo(f"{shown(person)} is {'not on the roster any more' if remove else 'on the roster'}.")


def _run(work: Callable[[ReviewApi], Awaitable[T]]) -> T:
    from imem.services.parts.review_api import ReviewApi  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return command.run(lambda stores: work(ReviewApi(stores)))


def _pair(text: str) -> tuple[str, Any]:
    """Return a field: its value is JSON where it is a number, true, false or null, and a text otherwise."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise BadInput("--set", f"{text!r:.60} is not NAME=VALUE.")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, value if isinstance(parsed, dict | list | str) else parsed


def _item(text: str) -> dict[str, Any]:
    """Return the answer to an item, written as ``3=override score=0.7 rationale='…'``."""
    name, sign, said = text.partition("=")
    try:
        words = shlex.split(said)
    except ValueError as error:
        raise BadInput("--item", f"{text!r:.60}: {error}.") from error
    if not (name and sign and words):
        raise BadInput("--item", f"{text!r:.60} is not NUMBER=ACTION.")
    fields = dict(map(_pair, words[1:]))
    rationale = fields.pop("rationale", None)
    given = {"item": name, "action": words[0], "fields": fields}
    return given if rationale is None else {**given, "rationale": str(rationale)}


def _kind(task: Task[Any]) -> TaskKind[Any, Any]:
    from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - as above

    return TASK_KINDS[task.kind]


def _actions(task: Task[Any]) -> Mapping[str, TaskAction]:
    """Return how the task can be answered now."""
    from imem.review.inbox import possible_actions  # noqa: PLC0415 - as above

    return possible_actions(_kind(task), task, SystemClock().now())


def _document(task: Task[Any]) -> dict[str, Any]:
    kind = _kind(task)
    given = {name: getattr(task, name) for name in task.__slots__ if name != "package"}
    return given | {
        "package": task.package.model_dump(mode="json"),
        "headline": kind.headline(task.package),
        "if_nobody_answers": kind.default(task.package),
        "actions": {name: action.does for name, action in _actions(task).items()},
        "estimated_minutes": kind.minutes_of(task.package),
    }


def _left(task: Task[Any]) -> str:
    """Return what happens if nobody answers, and when."""
    from imem.review.states import ANSWERABLE  # noqa: PLC0415 - as above

    default = _kind(task).default(task.package)
    if task.state not in ANSWERABLE:
        return f"It is {task.state.value}: nothing is to be done."
    if task.why is not None:
        return f"The default applies ({task.why}), until somebody confirms or overrides it: {default}"
    if task.due_at is None:
        return f"If nobody answers, it waits without end: {default}"
    left = max(task.due_at - SystemClock().now(), timedelta())
    hours, minutes = divmod(int(left.total_seconds()) // 60, 60)
    return f"If nobody answers within {hours} h {minutes:02} min, until {task.due_at:%Y-%m-%d %H:%M} UTC: {default}"


def _listed(found: Sequence[Task[Any]]) -> Iterator[str]:
    if not found:
        yield "No task waits."
    for task in found:
        yield f"{shown(task.task_id)}  {task.kind}  {task.state.value}  {shown(task.reviewer or 'nobody')}"
        yield f"  {shown(_kind(task).headline(task.package))}"
        yield f"  {shown(_left(task))}"


def _whole(task: Task[Any]) -> Iterator[str]:
    kind = _kind(task)
    yield shown(_left(task))
    yield ""
    yield shown(kind.headline(task.package))
    if kind.lines is None:
        yield from _table(task.package.model_dump(mode="json"))
    else:
        yield from map(shown, kind.lines(task.package))
    yield ""
    if task.answer is not None:
        yield f"Answered by {shown(str(task.answer['by']))}: {shown(str(task.answer['action']))}."
        for item, why in task.answer.get("undecided", {}).items():
            yield f"  {shown(item)} is not decided and comes up again: {shown(why)}."
    actions = _actions(task)
    if not actions:
        return
    minutes = kind.minutes_of(task.package)
    yield f"About {minutes:.0f} minutes. Answer with `imem tasks answer {shown(task.task_id)} ACTION`:"
    for name, action in actions.items():
        options = {field: f"--set {field}=…" for field in action.fields.model_fields}
        if kind.lines is not None and "items" in options:
            options["items"] = "--item NUMBER='ACTION NAME=VALUE…' (repeat) or --from FILE,"
        fields = " ".join(options.values())
        yield f"  {name} {fields}".rstrip() + f"  {action.does}"


def _table(package: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Return what a reviewer sees: lists of records as columns side by side, everything else a line each."""
    for name, value in package.items():
        title = name.replace("_", " ")
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield f"{indent}{title}:"
            yield from _columns(value, indent + "  ")
        elif isinstance(value, dict):
            yield f"{indent}{title}:"
            yield from _table(value, indent + "  ")
        elif value not in (None, [], ""):
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"{indent}{title}: {shown(text)}"


def _columns(records: Sequence[Mapping[str, Any]], indent: str) -> Iterator[str]:
    names = list(dict.fromkeys(name for record in records for name in record))
    if len(records) > 1:
        # An answer names an item by its number.
        yield (indent + " " * 18 + "".join(f"{number:<30}" for number in range(1, len(records) + 1))).rstrip()
    for name in names:
        cells = [shown(str(record.get(name) if record.get(name) is not None else "–")) for record in records]
        if any(cell != "–" for cell in cells):
            yield indent + f"{name.replace('_', ' '):<18}" + "".join(f"{cell[:28]:<30}" for cell in cells).rstrip()


def _rules(found: Sequence[StandingRule]) -> Iterator[str]:
    if not found:
        yield "There is no rule: `imem tasks answer TASK choose --set document=a --always` makes one."
    for rule in found:
        sources = " and ".join(rule.sources)
        yield shown(f"{rule.rule_id}  {rule.metric}: of {sources}, {rule.preferred} counts ({rule.difference})")
        why = "" if rule.reason is None else f": {rule.reason}"
        yield shown(f"  made by {rule.made_by}, {rule.made_at:%Y-%m-%d %H:%M} UTC{why}")
        if rule.revoked_at is not None:
            ended = f"{rule.revoked_at:%Y-%m-%d %H:%M} UTC: {rule.revoke_reason}"
            yield shown(f"  revoked by {rule.revoked_by}, {ended}")


def _roster(found: Sequence[Reviewer]) -> Iterator[str]:
    if not found:
        yield "Nobody is on the roster: every task falls back to its default at once."
    for one in found:
        kinds = ", ".join(one.kinds) or "all kinds"
        away = f", away until {one.away_until:%Y-%m-%d %H:%M} UTC" if one.away_until is not None else ""
        instead = f", then {shown(one.deputy)}" if one.away_until is not None and one.deputy is not None else ""
        yield f"{shown(one.person)}: {kinds}, {one.capacity} at a time{away}{instead}"
