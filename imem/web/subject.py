"""The page of a subject: the briefing as an agent gets it, as of any day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from fastapi import Request
from fastapi.responses import Response

from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput
from imem.recall.model import Briefing
from imem.web.rendering import words
from imem.web.visitors import PAGE_MS, Visitor


async def show(request: Request, visitor: Visitor) -> Response:
    """Show the briefing about a subject, as of the end of a day; without a name, the question for one."""
    asked = request.query_params
    name, agent = asked.get("name", "").strip(), asked.get("agent", "").strip()
    day = _day(asked.get("day", ""))
    today = SystemClock().now().astimezone(UTC).date()
    if not name:
        return visitor.page("subject.html", briefing=None, name="", agent="", day=None, today=today)
    # The end of this day is in the future: what is known now is what is known of it.
    as_of = None if day is None or day == today else datetime.combine(day, time.max, UTC)
    briefing = await visitor.memory.brief(name, for_agent=agent or None, as_of=as_of, deadline_ms=PAGE_MS)
    shown = day or today
    return visitor.page(
        "subject.html",
        briefing=briefing,
        name=name,
        agent=agent,
        day=day,
        today=today,
        before=shown - timedelta(days=1),
        after=shown + timedelta(days=1) if shown < today else None,
        markdown=briefing.to_markdown(),
        timeline=_timeline(briefing),
        sections=[(words(key), section) for key, section in briefing.sections.items()],
    )


def _day(text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadInput("day", "is no day, such as 2026-06-01.") from None


def _timeline(briefing: Briefing) -> list[tuple[str, str]]:
    """Return the analyses with the moments at which they were known, the newest first."""
    return [
        (
            f"{item.analysis.known_at:%Y-%m-%d}",
            f"{item.analysis.key}: {item.analysis.core.get('summary') or 'analysis'}",
        )
        for item in briefing.history.items
    ]
