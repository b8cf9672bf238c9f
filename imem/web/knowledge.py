"""The page of what was learned: patterns by status with their tests, and lessons with their measured effect."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from imem.kg.kinds.enums import PatternStatus
from imem.web.guards import read_form
from imem.web.parts import read_parts
from imem.web.visitors import PAGE_MS, Visitor

WITHDRAWN: Final = PatternStatus.REJECTED_HUMAN_OVERRIDE

_ORDER: Final = {status: number for number, status in enumerate(PatternStatus)}


async def show(_: Request, visitor: Visitor) -> Response:
    """Show patterns and lessons; who may not read the one is told so, and sees the other."""
    api = visitor.memory
    parts = await read_parts(
        patterns=api.patterns.all(deadline_ms=PAGE_MS), lessons=api.lessons.all(deadline_ms=PAGE_MS)
    )
    patterns = sorted(parts["patterns"].value or (), key=lambda one: _ORDER[one.status])
    by_status = [(status, list(group)) for status, group in groupby(patterns, lambda one: one.status)]
    ended = {status for status in PatternStatus if status.value.startswith("rejected")}
    return visitor.page("knowledge.html", parts=parts, by_status=by_status, ended=ended)


async def lesson(request: Request, visitor: Visitor) -> Response:
    """Show the measured effect of a lesson."""
    key = request.query_params.get("id", "")
    effect = await visitor.memory.lessons.effect(key, deadline_ms=PAGE_MS)
    return visitor.page("lesson.html", key=key, effect=effect)


async def withdraw(request: Request, visitor: Visitor) -> Response:
    """Withdraw a pattern."""
    form = await read_form(request)
    await visitor.memory.patterns.set_status(
        form.get("id", ""), WITHDRAWN, reason=form.get("reason", ""), deadline_ms=PAGE_MS
    )
    return RedirectResponse("/knowledge", status_code=303)
