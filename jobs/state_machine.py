"""State machines: which transitions a row may make, and what guards each; one table per machine, pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from imem.journal.errors import TransitionRefused

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C")


class Transition(NamedTuple, Generic[S, C]):
    """
    An allowed transition.

    Attributes:
        event: what happens; a name.
        before: the state that it leaves; None where there is no row yet.
        after: the state that it enters.
        guard: takes the facts, and returns the reason of a refusal, in a sentence, or None.
        when: what the guard demands, for the documentation.
    """

    event: str
    before: S | None
    after: S
    guard: Callable[[C], str | None]
    when: str


class StateMachine(Generic[S, C]):
    """
    The allowed transitions of one kind of row; every other is refused.

    Args:
        name: what is in these states, in errors.
        initial: name of the state without a row.
        transitions: at most one for each pair of states.

    Attributes:
        terminal: states that no transition leaves.
    """

    def __init__(self, name: str, *transitions: Transition[S, C], initial: str) -> None:
        self.name = name
        self.initial = initial
        self.transitions: Sequence[Transition[S, C]] = transitions
        self._by_states = {(one.before, one.after): one for one in transitions}
        self.terminal = frozenset(one.after for one in transitions) - {one.before for one in transitions}

    def name_of(self, state: S | None) -> str:
        """Return the name of a state."""
        return self.initial if state is None else state.value

    def check(self, before: S | None, after: S, facts: C, *, of: str | None = None) -> Transition[S, C]:
        """
        Return a transition; refuse one that is not in the table, or that its guard refuses.

        Args:
            before: the present state; None without a row.
            of: what is in that state, in errors; by default the machine's name.

        Raises:
            TransitionRefused: with both states and the reason.
        """
        subject = f"{of or f'The {self.name}'} is {self.name_of(before)}"
        transition = self._by_states.get((before, after))
        if transition is None:
            raise TransitionRefused(f"{subject}, and cannot become {after.value}.")
        if (reason := transition.guard(facts)) is not None:
            raise TransitionRefused(f"{subject}, and does not become {after.value} now.", mend=reason)
        return transition
