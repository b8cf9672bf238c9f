"""Decorator that sets ``late_ms`` of answers that missed their deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from imem.journal.deadline import Deadline
from imem.kg.views import View
from imem.recall.answers import AnswerModel
from imem.recall.model import Rows

P = ParamSpec("P")
A = TypeVar("A")


def reports_lateness(question: Callable[P, Awaitable[A]]) -> Callable[P, Coroutine[Any, Any, A]]:
    """Set ``late_ms`` of the answer of *question*, which takes its ``deadline`` as a keyword argument."""

    @wraps(question)
    async def asked(*given: P.args, **named: P.kwargs) -> A:
        answer = await question(*given, **named)
        # Nothing may be awaited after this line, or late_ms would be too small.
        late_ms = cast("Deadline", named["deadline"]).late_ms()
        return answer if late_ms is None else cast("A", _late(answer, late_ms))

    return asked


def _late(answer: object, late_ms: float) -> object:
    if isinstance(answer, AnswerModel):
        return answer.model_copy(update={"late_ms": late_ms})
    if isinstance(answer, View):
        return replace(answer, late_ms=late_ms)
    if isinstance(answer, Rows):
        answer.late_ms = late_ms
    return answer
