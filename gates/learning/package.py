"""
Packages of Gate 6: which items one holds, how it is answered, and what an answer does. One task of a person each.

An answer names items with an action each, and may approve all that may be approved in bulk. Items without an answer
come up again in the next package, and so do all of them where nobody answers within two days. An item that is not what
was shown any more, or may not be approved in bulk any more, is not decided when the answer has its effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from pydantic import Field, ValidationError, model_validator

from imem.alerts.store import NewAlert, Severity
from imem.gates.learning.items import (
    APPROVE,
    ItemAction,
    ItemAnswer,
    ItemKind,
    ItemPriority,
    Seen,
    WaitingItem,
)
from imem.gates.learning.lessons import LESSON, RETIREMENT
from imem.gates.learning.patterns import PATTERN
from imem.gates.learning.scores import BIAS, CREDIBILITY
from imem.gates.learning.trigger import Due, Urgency
from imem.jobs.lifecycle import Effects
from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import json, rows
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind

log = structlog.get_logger()

KIND: Final = "learning"

ITEM_KINDS: Final[Mapping[str, ItemKind[Any]]] = {
    one.name: one for one in (CREDIBILITY, BIAS, LESSON, RETIREMENT, PATTERN)
}
"""Kinds of items, by name."""

ANSWER_WITHIN: Final = timedelta(hours=48)
"""How long a package waits for an answer."""

MOST_MINUTES: Final = 240.0
"""Estimated time of a package at most, in minutes; the rest waits for the next."""

HASTY: Final = 0.2
"""A review that takes less than this share of its estimated time is flagged."""

HASTY_ALERT: Final = "HASTY_REVIEW"
"""Kind of the alert about such a review."""

_ORDER: Final = {priority: order for order, priority in enumerate(ItemPriority)}


class PackageItem(Seen):
    """
    An item of a package.

    Attributes:
        kind, key: of the item.
        headline: one line that says what is asked.
        priority: its place.
        minutes: estimated time of an answer.
        bulk: why it may be approved in bulk; None: it is answered alone.
        actions: how it can be answered.
        seen: what is known, by the model of its kind.
    """

    kind: str
    key: str
    headline: str
    priority: ItemPriority
    minutes: float
    bulk: str | None = None
    actions: tuple[str, ...]
    seen: dict[str, Any]

    @property
    def id(self) -> str:
        """Return how an answer may name it, beside its number."""
        return f"{self.kind}:{self.key}"


class LearningPackage(Seen):
    """
    The view of a package's reviewer.

    Attributes:
        number: of the package, from 1.
        urgency: how urgent it is.
        outcomes, days: new outcomes and days since the last validation.
        minutes: estimated time, in minutes.
        left: how many more items wait for the next package.
        items: the items, the most important first.
    """

    number: int
    urgency: Urgency
    outcomes: int
    days: float
    minutes: float
    left: int
    items: tuple[PackageItem, ...]

    def item(self, name: str) -> PackageItem | None:
        """Return an item by its number, from 1, or by its id."""
        numbered = dict(zip(map(str, range(1, len(self.items) + 1)), self.items, strict=True))
        return numbered.get(name) or next((one for one in self.items if one.id == name), None)


def compose(number: int, due: Due, waiting: Sequence[tuple[ItemKind[Any], WaitingItem[Any]]]) -> LearningPackage:
    """
    Return the package of the most important items that wait, of equal ones those that wait longest.

    It ends before the first item with which it would take more than :data:`MOST_MINUTES`.
    """
    items: list[PackageItem] = []
    minutes = 0.0
    for kind, one in sorted(
        waiting, key=lambda two: (_ORDER[two[1].importance.priority], two[1].since, two[0].name, two[1].key)
    ):
        if minutes + kind.minutes > MOST_MINUTES:
            break
        minutes += kind.minutes
        items.append(
            PackageItem(
                kind=kind.name, key=one.key, headline=one.headline, priority=one.importance.priority,
                minutes=kind.minutes, bulk=one.bulk, actions=tuple(kind.actions), seen=one.seen.model_dump(mode="json"),
            )
        )  # fmt: skip
    return LearningPackage(
        number=number, urgency=due.urgency, outcomes=due.outcomes, days=round(due.since / timedelta(days=1), 1),
        minutes=minutes, left=len(waiting) - len(items), items=tuple(items),
    )  # fmt: skip


# Answers


class StatedAnswer(Fields):
    """The answer to one item: its number or id, an action, the action's fields, and why."""

    item: str
    action: str
    fields: dict[str, Any] = Field(default_factory=dict)
    rationale: str | None = Field(None, max_length=2_000)

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, data: Any) -> Any:
        """Take the number of an item as a number, too."""
        item = data.get("item") if isinstance(data, Mapping) else None
        return {**data, "item": str(item)} if isinstance(item, int) and not isinstance(item, bool) else data


class PackageAnswers(Fields):
    """
    The answers to the items of a package.

    Attributes:
        items: one for each item that is answered alone.
        bulk: whether all others that may be are approved.
    """

    items: tuple[StatedAnswer, ...] = ()
    bulk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer to *item* by *action* with its *fields*, checked; *alone*: not with others."""

    item: PackageItem
    action: ItemAction
    fields: Fields
    rationale: str | None
    alone: bool


def answers_given(package: LearningPackage, stated: PackageAnswers, rationale: str | None = None) -> list[GivenAnswer]:
    """
    Return the answers to the items of *package*, in its order.

    Args:
        rationale: of the answers that state none.

    Raises:
        BadInput: there is no such item or action, an item is answered twice or a field is wrong; names it.
    """
    found: dict[str, GivenAnswer] = {}
    for number, one in enumerate(stated.items):
        where, item = f"fields.items.{number}", package.item(one.item)
        if item is None:
            raise BadInput(
                f"{where}.item", f"{one.item!r:.200} is no item; they have the numbers 1 to {len(package.items)}."
            )
        if item.id in found:
            raise BadInput(f"{where}.item", f"{one.item!r:.200} is answered twice.")
        found[item.id] = _checked(where, item, one, one.rationale or rationale)
    if stated.bulk:
        for item in package.items:
            if item.bulk is not None and item.id not in found:
                action = ITEM_KINDS[item.kind].actions[APPROVE]
                found[item.id] = GivenAnswer(
                    item=item, action=action, fields=action.fields(), rationale=rationale, alone=False
                )
    if not found:
        raise BadInput("fields.items", "answers nothing: name items with an action each, or set bulk to true.")
    return [found[item.id] for item in package.items if item.id in found]


def _checked(where: str, item: PackageItem, stated: StatedAnswer, rationale: str | None) -> GivenAnswer:
    kind = ITEM_KINDS[item.kind]
    action = kind.actions.get(stated.action)
    if action is None:
        raise BadInput(f"{where}.action", f"is one of {', '.join(kind.actions)} for an item {item.kind}.")
    try:
        fields = action.fields.model_validate(stated.fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "fields"
        raise BadInput(f"{where}.fields.{name}", f"{first['msg'][:1].lower()}{first['msg'][1:]}.") from error
    if action.rationale and not (stated.rationale or "").strip():
        raise BadInput(f"{where}.rationale", f"is required to {stated.action} an item: say why.")
    action.check(kind.seen.model_validate(item.seen), fields)
    return GivenAnswer(item=item, action=action, fields=fields, rationale=rationale, alone=True)


async def _apply(
    _runtime: Any, conn: Connection, task: Task[LearningPackage], answer: Answer | None, now: datetime
) -> Effects:
    """Give the answers to the items their effect; without an answer nothing happens, and they come up again."""
    if answer is None:
        log.info("learning.not_answered", task=task.task_id, items=len(task.package.items), why=task.why)
        return Effects()
    if not isinstance(answer.fields, PackageAnswers):  # pragma: no cover - the action has no others
        raise TypeError
    given = answers_given(task.package, answer.fields, answer.rationale)
    waiting = {
        f"{kind.name}:{one.key}": one
        for kind in {one.item.kind: ITEM_KINDS[one.item.kind] for one in given}.values()
        for one in await kind.waiting(conn)
    }
    estimate = sum(one.item.minutes for one in given if one.alone)
    hasty = (task.minutes or 0.0) < HASTY * estimate
    effects, over, undecided = Effects(), [], {}
    for one in given:
        if one.item.id not in waiting:
            # It was decided otherwise, or is no question any more.
            over.append(one.item.id)
            continue
        if (why := _undecided(one, waiting[one.item.id])) is not None:
            undecided[one.item.id] = why
            continue
        kind = ITEM_KINDS[one.item.kind]
        decided = ItemAnswer(
            action=one.action.name, fields=one.fields, by=answer.by, rationale=one.rationale, at=answer.at,
            task_id=task.task_id, hasty=hasty,
        )  # fmt: skip
        effects += await kind.decide(conn, one.item.key, kind.seen.model_validate(one.item.seen), decided, now)
    answered = len(given) - len(over) - len(undecided)
    notes = {"answered": answered, "over": over, "undecided": undecided, "hasty": hasty}
    await rows(conn, "learning_noted", {"task_id": task.task_id, "notes": json(notes)})
    # What one actor records is one statement, and actors are locked in one order.
    facts = sorted(effects.facts, key=lambda fact: (fact[0].id, fact[1]))
    alerts = [*effects.alerts, *([_hasty(task, answer, estimate)] if hasty else [])]
    return Effects(facts=facts, alerts=alerts, over=effects.over)


def _undecided(given: GivenAnswer, now: WaitingItem[Any]) -> str | None:
    """Return why an answer to an item, as it is now, decides nothing; None: it does."""
    kind = ITEM_KINDS[given.item.kind]
    shown = kind.seen.model_validate(given.item.seen)
    names = [name for name in kind.seen.model_fields if name in kind.decides]
    if changed := [name for name in names if getattr(shown, name) != getattr(now.seen, name)]:
        return f"it says something else than was shown: {', '.join(changed).replace('_', ' ')}"
    if not given.alone and now.bulk is None:
        return "it may not be approved in bulk any more"
    return None


def _hasty(task: Task[LearningPackage], answer: Answer, estimate: float) -> NewAlert:
    took = "without being looked at" if task.minutes is None else f"in {task.minutes:.1f} minutes"
    reason = f"{answer.by} answered items of package {task.package.number} {took} that take about {estimate:.0f}."
    return NewAlert(
        alert_id=id_of("hasty review", task.task_id), kind=HASTY_ALERT, severity=Severity.MEDIUM,
        payload={"task_id": task.task_id, "reviewer": answer.by, "reason": reason[:2000]},
    )  # fmt: skip


# The task


def _headline(package: LearningPackage) -> str:
    more = f"; {package.left} more wait for the next package" if package.left else ""
    return (
        f"Package {package.number}, {package.urgency} urgency, after {package.outcomes} outcomes in {package.days:g} "
        f"days: {len(package.items)} items, about {package.minutes:.0f} minutes{more}."
    )


def _default(_package: LearningPackage) -> str:
    return "nothing is approved: what is in quarantine stays there, changed scores stay applied, and all come up again."


def _lines(package: LearningPackage) -> Iterator[str]:
    """Yield the package as a person reads it: each item with its number, what is known, and how it can be answered."""
    for number, item in enumerate(package.items, 1):
        yield f"{number}. {item.kind}, {item.priority}: {item.headline}"
        if item.bulk is not None:
            yield f"   may be approved in bulk: {item.bulk}"
        # Postgres orders the members of an object by itself.
        seen = ITEM_KINDS[item.kind].seen.model_validate(item.seen).model_dump(mode="json")
        known = [_known(name.replace("_", " "), value) for name, value in seen.items() if _says(value)]
        yield f"   {'; '.join(known)}"
        yield f"   {', '.join(item.actions)}"
    kinds = {item.kind: ITEM_KINDS[item.kind] for item in package.items}
    for name, kind in kinds.items():
        yield f"Answers to an item {name}:"
        for action in kind.actions.values():
            fields = " ".join(f"{field}=…" for field in action.fields.model_fields)
            why = " It needs a rationale." if action.rationale else ""
            yield f"   {' '.join(filter(None, (action.name, fields)))}: {action.does}{why}"


def _says(value: object) -> bool:
    return value is not None and value is not False and value not in ([], {}, "")


def _known(name: str, value: object) -> str:
    if value is True:
        return name
    if isinstance(value, float):
        return f"{name} {value:.3g}"
    if isinstance(value, dict):
        value = [f"{key} ({said})" if said else key for key, said in value.items()]
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def _check(package: LearningPackage, stated: PackageAnswers) -> None:
    answers_given(package, stated)


LEARNING: Final[TaskKind[Any, LearningPackage]] = TaskKind(
    name=KIND,
    package=LearningPackage,
    actions=TaskKind.of(
        TaskAction(
            name="decide",
            does="Answer items, each by its number or id; bulk=true approves all others that may be approved in bulk.",
            fields=PackageAnswers,
            alone=True,
            check=_check,
        ),
    ),
    headline=_headline,
    default=_default,
    apply=_apply,
    due=ANSWER_WITHIN,
    queued=False,
    minutes=MOST_MINUTES,
    estimate=lambda package: package.minutes,
    lines=_lines,
)
