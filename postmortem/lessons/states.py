"""The states of a lesson, what lets it enter each, and which lessons say the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition
from imem.kg.kinds.enums import LessonState
from imem.kg.kinds.learning import Lesson

ALIKE: Final = 0.9
"""Share of common words from which two lessons of one category say the same."""

SENT_ON: Final = {"financial": "strategy", "business_research": "screening", "valuation": "financial"}
"""Domain of a lesson → the domain whose agents build on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonFacts:
    """
    The facts that guards check.

    Attributes:
        stated: whether whoever recorded the lesson stated its state.
        alike: whether an older lesson says the same.
        decided: whether a person decided.
        delivered: whether every agent that it concerns has it.
    """

    stated: bool = False
    alike: bool = False
    decided: bool = False
    delivered: bool = False


def _stated(facts: LessonFacts) -> str | None:
    return None if facts.stated else "Nobody stated it."


def _alike(facts: LessonFacts) -> str | None:
    return None if facts.alike else "No older lesson says the same."


def _alone(facts: LessonFacts) -> str | None:
    return "An older lesson says the same." if facts.alike else None


def _decided(facts: LessonFacts) -> str | None:
    return None if facts.decided else "No person decided."


def _delivered(facts: LessonFacts) -> str | None:
    return None if facts.delivered else "Not every agent that it concerns has it."


_S = LessonState

_ADOPTED: Final[list[Transition[LessonState, LessonFacts]]] = [
    Transition("adopt", None, state, _stated, "its state was recorded with it")
    for state in LessonState
    if state is not _S.DRAFT
]

LESSON_STATES: Final[StateMachine[LessonState, LessonFacts]] = StateMachine(
    "lesson",
    Transition("record", None, _S.DRAFT, lambda _: None, "a lesson is recorded"),
    *_ADOPTED,
    Transition("propose", _S.DRAFT, _S.PENDING_GATE6, _alone, "no open lesson says the same"),
    Transition("merge", _S.DRAFT, _S.SUPERSEDED, _alike, "an open lesson says the same, and is confirmed by it"),
    Transition("approve", _S.PENDING_GATE6, _S.APPROVED, _decided, "a person approves it at Gate 6"),
    Transition("reject", _S.PENDING_GATE6, _S.REJECTED, _decided, "a person rejects it at Gate 6"),
    Transition("apply", _S.APPROVED, _S.APPLIED, _delivered, "every agent that it concerns has it"),
    *(
        Transition("replace", state, _S.SUPERSEDED, _decided, "a person approves another one in its place")
        for state in (_S.APPROVED, _S.APPLIED)
    ),
    Transition("retire", _S.APPLIED, _S.RETIRED, _decided, "a person retires it at Gate 6"),
    initial="not recorded",
)

OPEN: Final = (_S.PENDING_GATE6, _S.APPROVED, _S.APPLIED)
"""States of lessons that a new one may confirm."""

NEGATIONS: Final = frozenset({"not", "no", "never", "none", "without", "neither", "nor", "cannot"})
"""Words that turn what is said into its opposite."""

_AUXILIARIES: Final = frozenset({"do", "does", "did"})
"""Words that come and go with a negation."""

_WORDS: Final = re.compile(r"[^\W_]+")


def says_the_same(one: Lesson, other: Lesson) -> bool:
    """Return whether two lessons speak of the same in almost the same words, and neither contradicts the other."""
    contradicted = {*(one.contradicting_ids or ()), *(other.contradicting_ids or ())}
    named = not contradicted.isdisjoint((one.id, other.id))
    return not named and _negations(one) == _negations(other) and _alike_but_for_negations(one, other)


def says_the_opposite(one: Lesson, other: Lesson) -> bool:
    """Return whether one lesson names the other as contradicting, or says no in almost the words of the other."""
    if other.id in (one.contradicting_ids or ()) or one.id in (other.contradicting_ids or ()):
        return True
    return _negations(one) != _negations(other) and _alike_but_for_negations(one, other)


def _alike_but_for_negations(one: Lesson, other: Lesson) -> bool:
    left_out = NEGATIONS | _AUXILIARIES
    words, others = set(_words(one)) - left_out, set(_words(other)) - left_out
    return _scope(one) == _scope(other) and len(words & others) >= ALIKE * len(words | others) > 0


def _scope(lesson: Lesson) -> tuple[object, ...]:
    """Return of what a lesson speaks."""
    of = lesson.scope_sector, lesson.scope_regime, lesson.scope_metric
    return lesson.category, frozenset(lesson.affected_domains or ()), *of


def _negations(lesson: Lesson) -> int:
    return sum(word in NEGATIONS for word in _words(lesson))


def _words(lesson: Lesson) -> list[str]:
    said = f"{lesson.insight} {lesson.recommended_action}".lower().replace("\u2019", "'")
    for short, long in (("can't", "can not"), ("won't", "will not"), ("cannot", "can not"), ("n't", " not")):
        said = said.replace(short, long)
    return _WORDS.findall(said)


def concerned(domains: Iterable[str]) -> list[str]:
    """Return *domains* with those whose agents build on them."""
    named = set(domains)
    return sorted(named | {SENT_ON[domain] for domain in named if domain in SENT_ON})
