"""
Finds the bullets of a note that contradict the strategy. Pure.

A bullet contradicts a rule of the ``avoid`` list if it begins with ``- Repeat:``, every word of the rule that is not a
filler occurs in it, and no negation stands before the first of them. Words are compared in lower case and without the
endings -s, -es, -ed, -ing: the linter knows no synonyms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from imem.postmortem.reflection.distiller import REPEAT

_WORD: Final = re.compile(r"[^\W_]+(?:['.][^\W_]+)*")

_NEGATING: Final = "avoid avoiding don't never no not nothing skip skipping stop stopping without"

_FILLING: Final = (
    "a all always an and any are as at be by do during for from in into is it of on or our position positions strategy"
    " the their them this to trade trades trading when while with you your"
)

_NEGATIONS: Final = frozenset(_NEGATING.split())

_FILLERS: Final = _NEGATIONS | frozenset(_FILLING.split())

_ENDINGS: Final = ("ing", "es", "ed", "s")

_STEM: Final = 3
"""Letters that are left of a word at least."""


class Contradiction(NamedTuple):
    """
    A bullet that recommends what the strategy forbids.

    Attributes:
        bullet: the line of the note.
        rule: of the ``avoid`` list.
    """

    bullet: str
    rule: str


def contradictions(lessons: str, avoid: Sequence[str]) -> list[Contradiction]:
    """Return every bullet of *lessons* with each rule of *avoid* that it contradicts."""
    rules = [(rule, frozenset(_stem(word) for word in _words(rule) if word not in _FILLERS)) for rule in avoid]
    found = []
    for line in lessons.splitlines():
        if line.startswith(f"- {REPEAT}:"):
            words = _words(line)
            stems = [_stem(word) for word in words]
            for rule, needed in rules:
                if needed and needed.issubset(stems):
                    # A later one denies something else, as in "short it, it never failed".
                    before = words[: min(map(stems.index, needed))]
                    found += [] if _NEGATIONS.intersection(before) else [Contradiction(line, rule)]
    return found


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold().replace("\u2019", "'"))


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word.removesuffix(ending).removesuffix("e")
    return word.removesuffix("e") if len(word) > _STEM else word
