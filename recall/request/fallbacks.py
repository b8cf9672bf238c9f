"""
The fallbacks of a load that fails or is late.

A stale copy of the cached result comes first, else at most two fallback retrievers, which read fewer records or a
sample. A fallback is labelled ``stale`` or ``partial``. A section without any is ``unavailable``: its being empty does
not mean that nothing is known.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from imem.cache.tiers.tiered import FRESH_S, JITTER, CacheLookup, Query, TieredCache
from imem.journal.errors import BudgetExceeded, ImemError, PermissionDenied
from imem.recall.answers import AWAY, EXHAUSTED, BriefingSection, Quality
from imem.recall.request.context import RequestContext
from imem.recall.request.horizon import RequestHorizon
from imem.recall.sections.spec import SectionSpec
from imem.recall.timing.latency_watch import AnswerSource

A = TypeVar("A", bound=BriefingSection)

log = structlog.get_logger()

MAX_FALLBACKS: Final = 2
"""Most fallback retrievers tried when the load fails or is late."""

FIRST_FALLBACK_SHARE: Final = 0.6
"""Share of the time left that the first of two fallback retrievers may take."""

REVALIDATE_S: Final = 600.0
"""How long after its expiry an unchanged entry is served as stale while it is revalidated, in seconds."""


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """Answers the sections of one request that could not be loaded."""

    context: RequestContext
    horizon: RequestHorizon

    async def answer(
        self, query: Query[A], spec: SectionSpec[A], found: CacheLookup, epoch: int | None, error: ImemError
    ) -> A:
        """
        Return the cached result marked stale, else the answer of the first fallback retriever that succeeds.

        Raises:
            PermissionDenied: the actor may not read what a fallback reads.
            ImemError: *error*; no fallback succeeded.
        """
        late, sources = isinstance(error, BudgetExceeded), self.context.sources
        if sources.tiers is not None and not await self.horizon.clamps_asked():
            stale = sources.tiers.stale(query, found, epoch)
            if stale is not None:
                self.horizon.moments.append(stale.moment)
                sources.watch.observe(spec.name, AnswerSource.STALE, late=late)
                return mark_stale(stale.value, stale.age_s or 0.0, sentence(str(error)))
        retrievers, deadline = spec.fallbacks[:MAX_FALLBACKS], self.context.deadline
        for number, retriever in enumerate(retrievers, 1):
            share = FIRST_FALLBACK_SHARE if number < len(retrievers) else 1.0
            due = deadline.within_ms(deadline.left_ms() * share)
            try:
                async with asyncio.timeout(due.left_s()):
                    at = await self.horizon.resolve()
                    section = await retriever(self.context.retrieval_request(at, due))
            except PermissionDenied:
                raise
            except (TimeoutError, ImemError):
                continue
            self.horizon.moments.append(at.at)
            sources.watch.observe(spec.name, AnswerSource.REDUCED, depth=number, late=late)
            return section
        sources.watch.observe(spec.name, AnswerSource.NONE, depth=len(retrievers) + 1, late=late)
        subject = self.context.subject_id
        log.warning("recall.exhausted", query=spec.name, subject=subject, error=_code(error), reason=str(error))
        raise error


def may_revalidate(found: CacheLookup, tiers: TieredCache) -> bool:
    """Return whether an expired entry may be served while it is revalidated: at most REVALIDATE_S past expiry."""
    if found.entry is None or found.tag_versions is None:
        return False
    return found.entry.age_s(tiers.clock.now()) < FRESH_S * (1 + JITTER) + REVALIDATE_S


def mark_stale(section: A, age_s: float, reason: str) -> A:
    """Return *section* labelled as an earlier answer, *age_s* old."""
    update = {"quality": Quality.STALE, "age_s": round(age_s, 3), "reason": f"as known {_ago(age_s)}; {reason}"}
    return section.model_copy(update=update)


def _ago(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s ago"
    return f"{age_s / 60:.0f} min ago" if age_s < 7200 else f"{age_s / 3600:.0f} h ago"


def _code(error: ImemError) -> str:
    return EXHAUSTED if isinstance(error, BudgetExceeded) else AWAY


def unavailable(model: type[A], error: ImemError) -> A:
    """Return an empty section labelled unavailable, with the error's code and reason."""
    return model(quality=Quality.UNAVAILABLE, reason=sentence(str(error)), error=_code(error), fallback_exhausted=True)


def sentence(reason: str) -> str:
    """Return *reason* as part of a sentence: without its full stop, on one line."""
    return reason.rstrip(".").replace("\n", " ")
