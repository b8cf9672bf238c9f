"""
States of a debate that runs, and the acts of its sides. Pure: no clock, no store.

A side acts; what follows from the acts and from the time is decided by :mod:`imem.debates.running`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from imem.jobs.state_machine import StateMachine, Transition
from imem.journal.errors import PermissionDenied, TransitionRefused
from imem.kg.kinds.enums import ENDED_DEBATES, DebateState


class Act(StrEnum):
    """An action of a side, or of the judge, in a debate."""

    CHALLENGE = "challenge"
    ACKNOWLEDGE = "acknowledge"
    """The challenged side has seen the challenge."""
    RESPOND = "respond"
    """A side states its position, or evidence for it."""
    ACCEPT = "accept"
    """A side accepts the position of the other one."""
    STAND = "stand"
    """A side has no more to say at level 1."""
    WITHDRAW = "withdraw"
    """The challenger takes the challenge back."""
    JUDGE = "judge"
    """The judge decides for a side."""


ENDING: Final = frozenset({Act.ACCEPT, Act.WITHDRAW, Act.JUDGE})
"""Acts that end a debate: after one of them no other counts."""

AT_LEVEL_1: Final = frozenset({DebateState.INITIATED, DebateState.LEVEL1})

_STATES: Final[Mapping[Act, frozenset[DebateState]]] = {
    Act.ACKNOWLEDGE: AT_LEVEL_1,
    Act.RESPOND: AT_LEVEL_1 | {DebateState.LEVEL2, DebateState.LEVEL3},
    Act.ACCEPT: AT_LEVEL_1,
    Act.STAND: AT_LEVEL_1,
    Act.WITHDRAW: frozenset(DebateState) - ENDED_DEBATES,
    Act.JUDGE: frozenset({DebateState.LEVEL2}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DebateAct:
    """
    An act that was stored.

    Attributes:
        act: what was done.
        by, role: by whom.
        at: when it was stored.
        number: of the turn that it recorded.
        text: its beginning, at most :data:`KEPT_CHARS` characters; the turn has all of it.
        value: the position of the side, in the unit of the metric or a rating; None: unchanged.
        evidence: ids of findings that it rests on.
        winner: the side that a judge decides for.
    """

    act: Act
    by: str
    role: str
    at: datetime
    number: int
    text: str
    value: float | str | None = None
    evidence: tuple[str, ...] = ()
    winner: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return an act as Postgres stores it."""
        return cls(
            **{
                **stored,
                "act": Act(stored["act"]),
                "at": datetime.fromisoformat(stored["at"]),
                "evidence": tuple(stored.get("evidence", ())),
            }
        )

    def stored(self) -> dict[str, Any]:
        """Return it as JSON types, without the moment, which Postgres sets."""
        return {name: value for name, value in asdict(self).items() if name != "at" and value is not None}


KEPT_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The participants of a debate."""

    challenger: str
    challenged: str
    judge: str | None = None

    def other(self, side: str) -> str:
        """Return the side that *side* argues with."""
        return self.challenged if side == self.challenger else self.challenger


def check_act(act: Act, by: str, sides: Sides, state: DebateState, acts: Sequence[DebateAct], *, late: bool) -> None:
    """
    Check that *by* may do *act* now.

    Args:
        late: whether the time of the state is over.

    Raises:
        PermissionDenied: it is for another side, or for the judge.
        TransitionRefused: the debate is past it, or has been ended.
    """
    may = {
        Act.ACKNOWLEDGE: (sides.challenged,),
        Act.WITHDRAW: (sides.challenger,),
        Act.JUDGE: (sides.judge,),
    }.get(act, (sides.challenger, sides.challenged))
    if by not in may:
        who = " or ".join(one for one in may if one is not None) or "nobody: the debate names no judge"
        raise PermissionDenied(f"{by!r:.200} may not {act} in this debate; who may: {who}.")
    end = next((one for one in acts if one.act in ENDING), None)
    if end is not None:
        raise TransitionRefused(f"{end.by} has ended the debate: {end.act}.")
    if state not in _STATES[act]:
        raise TransitionRefused(f"The debate is at {state}, and it is too late to {act}.")
    if late and act is not Act.WITHDRAW:
        raise TransitionRefused(f"The time of {state} is over, and it is too late to {act}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DebateFacts:
    """
    The facts that guards check.

    Attributes:
        act: what ends or moves the debate; None: the time, the rule or a reviewer does.
        late: whether the time of the state is over.
        both_stand: whether both sides have nothing more to say.
        unreachable: whether a side could not be synchronised for the snapshot.
        decided: whether records or a person decide.
        default: whether the default applies.
    """

    act: Act | None = None
    late: bool = False
    both_stand: bool = False
    unreachable: bool = False
    decided: bool = False
    default: bool = False


def _by(*acts: Act) -> Any:
    def guard(facts: DebateFacts) -> str | None:
        return None if facts.act in acts else "Nobody who takes part has done so."

    return guard


def _go_on(facts: DebateFacts) -> str | None:
    if facts.late or facts.both_stand or facts.unreachable:
        return None
    return "Its time is not over, and not both sides stand."


def _decided(facts: DebateFacts) -> str | None:
    return None if facts.decided or facts.act is Act.JUDGE else "Nobody has decided."


def _default(facts: DebateFacts) -> str | None:
    return None if facts.default else "The default does not apply."


_S, _A = DebateState, Act

DEBATE_STATES: Final[StateMachine[DebateState, DebateFacts]] = StateMachine(
    "debate",
    Transition("challenge", None, _S.INITIATED, lambda _: None, "a side challenges a finding"),
    Transition("acknowledge", _S.INITIATED, _S.LEVEL1, _by(_A.ACKNOWLEDGE, _A.RESPOND), "the challenged side answers"),
    Transition("agree", _S.INITIATED, _S.CLOSED, _by(_A.ACCEPT), "a side accepts the other's position"),
    Transition("agree", _S.LEVEL1, _S.CLOSED, _by(_A.ACCEPT), "a side accepts the other's position"),
    Transition("escalate", _S.INITIATED, _S.LEVEL2, _go_on, "nobody acknowledged in time, or both stand"),
    Transition("escalate", _S.LEVEL1, _S.LEVEL2, _go_on, "its time is over, or both sides stand"),
    Transition("decide", _S.LEVEL2, _S.CLOSED, _decided, "records or the judge decide"),
    Transition("ask", _S.LEVEL2, _S.LEVEL3, lambda _: None, "a reviewer has room"),
    Transition("default", _S.LEVEL2, _S.PROVISIONAL, _default, "the queue is full, or nobody is there"),
    Transition("decide", _S.LEVEL3, _S.CLOSED, _decided, "a person decides"),
    Transition("default", _S.LEVEL3, _S.PROVISIONAL, _default, "nobody decided in time"),
    Transition("review", _S.PROVISIONAL, _S.CLOSED, _decided, "a person confirms or overrides, or a gate was decided"),
    Transition("reopen", _S.PROVISIONAL, _S.SUPERSEDED, _decided, "a person asks for another debate"),
    *(
        Transition("withdraw", state, _S.WITHDRAWN, _by(_A.WITHDRAW), "the challenger takes it back")
        for state in (_S.INITIATED, _S.LEVEL1, _S.LEVEL2, _S.LEVEL3, _S.PROVISIONAL)
    ),
    initial="not open",
)
