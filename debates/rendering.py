"""A debate that runs, as lines for a prompt or a terminal; what others wrote is quoted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from imem.journal.texts.prompt_text import name, quoted
from imem.kg.kinds.enums import DebateState

if TYPE_CHECKING:
    from imem.debates.service import DebateProgress, DebateSide

TOPIC_CHARS: Final = 90

_S = DebateState

_UNDECIDED: Final = frozenset({_S.INITIATED, _S.LEVEL1, _S.LEVEL2, _S.WITHDRAWN})
"""States in which the finding counts as it was recorded."""


def position(debate: DebateProgress) -> tuple[str | None, float | str | None]:
    """
    Return whose position counts now, and its value; both None where the value is uncertain.

    Until level 3, and of a challenge that was withdrawn, that is the finding as it was recorded.
    """
    if debate.state in _UNDECIDED:
        return debate.challenged.agent, debate.finding_value
    side = next((one for one in (debate.challenger, debate.challenged) if one.agent == debate.counts), None)
    return (None, None) if side is None else (side.agent, side.value)


def progress_document(debate: DebateProgress) -> dict[str, Any]:
    """Return the debate as JSON types, with the value that counts now."""
    return {**debate.model_dump(mode="json", exclude_none=True), "counts_now": position(debate)[1]}


def progress_lines(debate: DebateProgress, now: datetime) -> Iterator[str]:
    """Yield where the debate stands: both positions, whose turn it is and until when, and what counts meanwhile."""
    sides = debate.challenger, debate.challenged
    yield (
        f"- {name(sides[0].agent)} challenged {name(sides[1].agent)}: {quoted(debate.topic, TOPIC_CHARS)} "
        f"[{name(debate.debate_id)}]"
    )
    judge = f"; judge {name(debate.judge)}" if debate.judge is not None else ""
    yield f"  finding {name(debate.finding_id)} of {name(debate.subject_id)}; {debate.priority}{judge}"
    yield f"  {_metric(debate)}: {_side(sides[0])} against {_side(sides[1])}"
    if debate.required and not debate.ended:
        yield f"  asked for: {', '.join(map(quoted, debate.required))}"
    yield f"  {debate.state}{_turn(debate, now)}"
    yield f"  counts: {_counts(debate)}"
    if (default := _default(debate)) is not None:
        yield f"  if nobody acts: {default}"


def _metric(debate: DebateProgress) -> str:
    return "positions" if debate.metric is None else name(debate.metric)


def _side(side: DebateSide) -> str:
    value = "no value" if side.value is None else _value(side.value)
    evidence = f", evidence {', '.join(map(name, side.evidence))}" if side.evidence else ""
    stands = ", stands" if side.stands else ""
    return f"{value} ({name(side.agent)}{evidence}{stands})"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.15g}"


def _turn(debate: DebateProgress, now: datetime) -> str:
    if debate.ended:
        return ""
    waits = {_S.LEVEL2: "records are being compared", _S.LEVEL3: "a person decides"}
    whose = "waits for a human gate or a person" if debate.state is _S.PROVISIONAL else waits.get(debate.state)
    if debate.turn is not None:
        whose = f"{name(debate.turn)} is to act"
    if whose is None:
        return ": goes on within seconds"
    until = "" if debate.until is None else f" until {debate.until:%Y-%m-%d %H:%M} UTC ({_left(debate.until, now)})"
    return f": {whose}{until}"


def _left(until: datetime, now: datetime) -> str:
    minutes = int((until - now).total_seconds()) // 60
    if minutes < 0:
        return "over"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min left" if hours else f"{minutes} min left"


def _counts(debate: DebateProgress) -> str:
    agent, value = position(debate)
    if agent is None:
        return "no position, the value is uncertain"
    what = f"the position of {name(agent)}" if value is None else f"{_value(value)} ({name(agent)})"
    if debate.state in _UNDECIDED:
        return f"{what}, the finding as it was recorded"
    return f"{what}, provisionally" if debate.provisional else what


def _default(debate: DebateProgress) -> str | None:
    """Return what happens if nobody acts in time; None where nothing does."""
    match debate.state:
        case _S.INITIATED | _S.LEVEL1:
            judge = "" if debate.judge is None else f", then {name(debate.judge)}"
            return f"level 2, where records decide{judge}, else a person does"
        case _S.LEVEL2:
            return "a person is asked; where nobody has room, the more cautious position counts provisionally"
        case _S.LEVEL3:
            return "what counts now stays, provisionally, until a human gate of the analysis is decided"
        case _S.PROVISIONAL:
            return "what counts now counts for good once a human gate of the analysis is decided"
        case _:
            return None
