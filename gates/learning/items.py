"""
The items of Gate 6: one declaration for each kind, from which packages, answers and the inbox follow.

Nothing is approved but by a person's answer: without one, an item stays as it is and comes up again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from imem.jobs.lifecycle import Effects
from imem.journal.actors import Actor
from imem.journal.postgres.connection import Connection
from imem.journal.settings import Role
from imem.review.kinds import Fields

APPROVE: Final = "approve"
"""The action that every kind has, and that one answer may give to all that may be approved in bulk."""


class Seen(BaseModel):
    """The view of the reviewer."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=BaseModel)


class ItemPriority(StrEnum):
    """Order of the items of a package."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """
    The facts from which the priority of an item follows; None: not known.

    Attributes:
        impact, confidence: 0 to 1.
        valuation, risk: whether it is about a model of valuation or the assessment of risk.
        disagreement: whether agents disagreed.
        supporting: whether it only supports others.
        n: cases that it rests on.
    """

    impact: float | None = None
    confidence: float | None = None
    valuation: bool = False
    risk: bool = False
    disagreement: bool = False
    supporting: bool = False
    n: int | None = None

    @property
    def priority(self) -> ItemPriority:
        """Return the priority: what makes it high counts first."""
        strong = self.impact is not None and self.impact > 0.8 + 1e-9
        if strong or self.valuation or self.risk or self.disagreement:
            return ItemPriority.HIGH
        unsure = self.confidence is not None and self.confidence < 0.6 - 1e-9
        few = self.n is not None and self.n < 5
        return ItemPriority.LOW if unsure or few or self.supporting else ItemPriority.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingItem(Generic[S]):
    """
    An item that waits.

    Attributes:
        key: of the item, unique in its kind.
        headline: one line that says what is asked.
        seen: what the reviewer sees.
        since: since when it waits.
        importance: what its priority follows from.
        bulk: why it may be approved together with others by one answer; None: it is answered alone.
    """

    key: str
    headline: str
    seen: S
    since: datetime
    importance: Importance
    bulk: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAction:
    """
    A way to answer an item.

    Attributes:
        name: as people type it.
        does: what it does, in a sentence.
        fields: model of what the answer states beside the rationale.
        rationale: whether a rationale is required.
        check: takes what the reviewer sees and the fields, and raises :class:`~imem.journal.errors.BadInput` where they
            do not fit each other.
    """

    name: str
    does: str
    fields: type[Fields] = Fields
    rationale: bool = False
    check: Callable[[Any, Any], None] = lambda _seen, _fields: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnswer:
    """
    A person's answer to an item.

    Attributes:
        action, fields: the action with its fields, checked.
        by: the person.
        rationale: why.
        at: when it was given.
        task_id: the task of the package.
        hasty: whether the package was answered in far less time than it takes.
    """

    action: str
    fields: Fields
    by: str
    rationale: str | None
    at: datetime
    task_id: str
    hasty: bool = False

    @property
    def person(self) -> Actor:
        """Return the actor in whose name the decision is recorded."""
        return Actor(self.by, Role.HUMAN_ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemKind(Generic[S]):
    """
    A kind of item.

    Attributes:
        name: as ``credibility``.
        seen: model of what the reviewer sees.
        actions: by name; one is :data:`APPROVE`.
        minutes: estimated time of an answer.
        decides: fields of *seen* that must say the same when an answer has its effect; else the item is not decided.
        waiting: returns the items that wait, in the transaction of the connection.
        decide: gives the answer to the item of a key its effect, in the transaction of the connection; takes what the
            reviewer saw and the present moment.
    """

    name: str
    seen: type[S]
    actions: Mapping[str, ItemAction]
    minutes: float
    decides: frozenset[str]
    waiting: Callable[[Connection], Awaitable[Sequence[WaitingItem[S]]]]
    decide: Callable[[Connection, str, S, ItemAnswer, datetime], Awaitable[Effects]]

    @staticmethod
    def of(*actions: ItemAction) -> Mapping[str, ItemAction]:
        """Return actions by their names."""
        return MappingProxyType({one.name: one for one in actions})
