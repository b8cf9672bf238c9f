"""Active patterns, the most successful first."""

from __future__ import annotations

from typing import Final

from imem.cache.tiers import tags
from imem.credibility.scores.wilson import wilson
from imem.journal.actors import ResourceType
from imem.kg.asof import AsOfClock
from imem.kg.kinds.catalog import subject_ref
from imem.kg.views import OF_NO_SECTOR, TOP_PATTERNS, view
from imem.recall.answers import DatedRecord, RecordsSection
from imem.recall.dated_rows import MOST_PATTERNS
from imem.recall.rendering.formatting import label, quote_lead, share
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, mark_partial, record
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.75
FADING: Final = 0.8
NAME_CHARS: Final = 100
"""Longest quotation of a pattern's name, in characters."""

SAYS_CHARS: Final = 300
"""Longest quotation of its condition and claim, in characters."""

FIRST_PATTERNS: Final = 100
"""Active patterns that the fallback considers."""


# Retrieval


async def load(request: RetrievalRequest) -> RecordsSection:
    """Return the patterns that were active at the moment, of the subject's sector or of none, the best first."""
    return await _answer(request, MOST_PATTERNS)


async def _load_first(request: RetrievalRequest) -> RecordsSection:
    """Return the best of the first :data:`FIRST_PATTERNS` active patterns."""
    reason = f"the deadline passed; only the first {FIRST_PATTERNS} active patterns of its sector were searched"
    return mark_partial(await _answer(request, FIRST_PATTERNS), reason=reason)


async def _answer(request: RetrievalRequest, among: int) -> RecordsSection:
    sector = await _sector(request)
    given = {"sector": sector, "among": among, "limit": request.limits.patterns, **request.at.limits}
    rows = await request.database.named("patterns_at", given, deadline=request.deadline)
    found = (await request.dated(("Pattern", row["key"]) for row in rows)).records
    items = [record(found["Pattern", row["key"]]) for row in rows]
    return RecordsSection(items=items, total=rows[0]["total"] if rows else 0)


async def _sector(request: RetrievalRequest) -> str | None:
    """Return the sector of the subject at the moment; None if unknown."""
    ref = subject_ref(request.subject_id)
    subject = (await request.dated([ref])).records.get(ref)
    if subject is None:
        return None
    sector = subject.groups.get("profile", {}).get("sector") or subject.get("sector")
    return str(sector) if sector is not None else None


async def load_from_view(request: RetrievalRequest) -> RecordsSection:
    """
    Return the most successful active patterns of the subject's sector and of no sector, from the materialised view.

    The view holds the best hundred of each, as of now. With an as-of, or before the view was first built, this is
    :func:`_load_first`.
    """
    if request.at.asked is not None or request.at.clock is not AsOfClock.KNOWN:
        return await _load_first(request)
    sector = await _sector(request)
    keys = [OF_NO_SECTOR] if sector is None else [OF_NO_SECTOR, sector]
    made = [row for key in keys if (row := await view(request.database, TOP_PATTERNS, key, deadline=request.deadline))]
    if not made:
        return await _load_first(request)
    best = [pattern for row in made for pattern in row.value or ()]
    best.sort(key=lambda one: (-float(one["success_rate"] or 0.0), one["pattern_id"]))
    refs = [("Pattern", one["pattern_id"]) for one in best[: request.limits.patterns]]
    found = (await request.dated(refs)).records
    section = RecordsSection(items=[record(found[ref]) for ref in refs if ref in found], total=len(best))
    return mark_partial(section, reason=f"the deadline passed; read from a view made {made[0].age_s:,.0f} s ago")


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the active patterns, the most successful first."""
    answer = context.briefing.patterns
    return rendered_section(
        "Active patterns",
        answer,
        faded(map(pattern_text, answer.items), WORTH, FADING),
        nouns=("pattern", "patterns"),
        nothing="active patterns",
        call=follow_up_call(context.own, "patterns", answer.total),
    )


def pattern_text(record: DatedRecord) -> str:
    """Return a pattern as a list item: its condition and claim in words, its success, and until when it was tested."""
    performance, definition = record.groups.get("performance", {}), record.groups.get("definition", {})
    rate, said = performance.get("success_rate"), definition.get("says")
    seen = performance.get("occurrence_count", 0)
    shown = "" if rate is None else f", success rate {share(rate)} over {seen}"
    if rate is not None and seen:
        interval = wilson(rate, seen)
        shown += f" (95 % interval {share(interval.lower)} to {share(interval.upper)})"
    tested = record.groups.get("validation", {}).get("validated_date")
    until = "" if tested is None else f", tested until {str(tested)[:10]}"
    what = quote_lead(record.core["name"], NAME_CHARS)
    words = "" if said is None else f": {quote_lead(said, SAYS_CHARS)}"
    return f"- {what} ({label(record.core['category'])}){words}{shown}{until} [{label(record.key)}]"


SECTION: Final = SectionSpec(
    name="patterns",
    model=RecordsSection,
    load=load,
    fallbacks=(load_from_view,),
    limits=("patterns",),
    resource=ResourceType.PATTERNS,
    own_record=True,
    tags=lambda _: frozenset({tags.PATTERNS}),
    shows_patterns=True,
    renderers=(render,),
    item_text=pattern_text,
)
