"""
Precedents of a debate, with the search, the patterns and the scores that lie on other floors.

The parts run at once and end before the budget does; what fails is named in the answer. Only a wrong argument and a
missing right are raised: a debate never waits for its precedents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from imem.credibility.scores.auto_resolve import Basis
from imem.debates.levels import level2_verdict
from imem.debates.precedents.model import (
    UNAVAILABLE,
    BasisVerdict,
    Level2Outlook,
    PatternRate,
    PrecedentQuestion,
    Precedents,
    PrecedentWeights,
    SideRecord,
)
from imem.debates.precedents.ranking import with_rates
from imem.debates.precedents.reader import CANDIDATES, TextMatch, find, opened, question_of
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, PermissionDenied
from imem.kg.asof import AsOf, AsOfClock, parse_as_of
from imem.kg.kinds.enums import DebatePriority
from imem.recall.brief import Recall
from imem.recall.memories.model import check_content
from imem.recall.retrievers import Limits, RetrievalRequest
from imem.recall.scores import request_of, scores
from imem.recall.search.model import SearchKind, SearchQuery
from imem.recall.search.store import SearchIndex
from imem.recall.sections import patterns
from imem.services.stores import Stores

PARTS_SHARE: Final = 0.9
"""Share of the budget in which every part has to end; the rest is for assembling the answer."""

PLACE: Final = "Debate/"
"""Prefix of the place in which the texts of a debate stand."""

T = TypeVar("T")


async def find_precedents(
    stores: Stores, recall: Recall, what: str, *, k: int, as_of: datetime | None, deadline: Deadline
) -> Precedents:
    """Find precedents for the actor of *recall*; see :meth:`imem.memory.Memory.find_precedents`."""
    parse_as_of(as_of, AsOfClock.KNOWN)
    check_content("debate_or_topic", what)
    if not 1 <= k <= CANDIDATES:
        raise BadInput("k", f"must be a whole number from 1 to {CANDIDATES}.")
    finder = PrecedentFinder(stores, recall, k, deadline.within_ms(deadline.left_ms() * PARTS_SHARE))
    resource = Resource(ResourceType.GRAPH, what[:200])
    try:
        async with asyncio.timeout(deadline.left_s()):
            return await recall.authorized(
                resource, Action.READ, lambda: finder.answer(what, as_of), deadline=finder.deadline
            )
    except (BadInput, PermissionDenied):
        raise
    except (ImemError, TimeoutError) as error:
        return Precedents(available=False, reason=f"{UNAVAILABLE}: {_sentence(error)}")


@dataclass(frozen=True, slots=True)
class PrecedentFinder:
    """One search for precedents: the stores, who asks, how many are wanted, and when every part has to end."""

    stores: Stores
    recall: Recall
    k: int
    deadline: Deadline

    async def answer(self, what: str, as_of: datetime | None) -> Precedents:
        """Return precedents, patterns and the outlook of level 2, all as of the moment before the debate."""
        database, settings = self.recall.database, self.stores.settings
        at, _ = await self.recall.begin(as_of, AsOfClock.KNOWN.value, self.deadline)
        question = await question_of(database, what, at, deadline=self.deadline)
        at = opened(at, question)
        weights = PrecedentWeights(
            settings.precedent_text_weight,
            settings.precedent_subject_weight,
            settings.precedent_agents_weight,
            settings.precedent_domain_weight,
        )
        search = find(
            database, self._search, question, at=at, k=self.k, weights=weights, deadline=self.deadline
        )  # fmt: skip
        (found, no_search), (shown, no_patterns), (level2, no_scores) = await asyncio.gather(
            self._in_time(search),
            self._in_time(self._patterns(question, at)),
            self._in_time(self._level2(question, at)),
        )
        items, incomplete = found or ([], None)
        reasons = [
            f"{UNAVAILABLE}: {no_search}" if no_search else incomplete,
            f"no patterns: {no_patterns}" if no_patterns else None,
            f"no scores: {no_scores}" if no_scores else None,
        ]
        return with_rates(
            Precedents(
                available=found is not None,
                reason="; ".join(filter(None, reasons)) or None,
                as_of=at.at,
                items=items,
                patterns=shown or [],
                level2=level2,
            )
        )

    async def _in_time(self, part: Coroutine[None, None, T]) -> tuple[T | None, str | None]:
        """Return what *part* returns by the deadline, else why it does not."""
        try:
            async with asyncio.timeout(self.deadline.left_s()):
                return await part, None
        except (ImemError, TimeoutError) as error:
            return None, _sentence(error)

    async def _search(
        self, text: str, *, subject_id: str | None, at: AsOf, limit: int, deadline: Deadline
    ) -> tuple[list[TextMatch], str | None]:
        index: SearchIndex = self.stores.search
        query = SearchQuery(
            text, {SearchKind.DEBATE}, records=("Debate",), subject_id=subject_id, limit=limit, until=at.at
        )
        section = await index.search(query, deadline=deadline)
        found = [TextMatch(one.part_of.removeprefix(PLACE), one.score, one.similarity) for one in section.items]
        return found, section.reason

    async def _patterns(self, question: PrecedentQuestion, at: AsOf) -> list[PatternRate]:
        resource = Resource(ResourceType.PATTERNS, question.subject_id)
        if question.subject_id is None or not self.recall.may(resource, Action.READ):
            return []
        sources = self.recall.sources
        request = RetrievalRequest(
            question.subject_id,
            at,
            self.recall.database,
            sources.graph,
            self.deadline,
            Limits(),
            sources.halflife_years,
        )
        section = await self.recall.authorized(
            resource, Action.READ, lambda: patterns.load(request), deadline=self.deadline
        )
        return [
            PatternRate(pattern_id=one.key, name=one.core["name"], **_performance(one.groups.get("performance", {})))
            for one in section.items
        ]

    async def _level2(self, question: PrecedentQuestion, at: AsOf) -> Level2Outlook | None:
        """Return whether scores may decide the debate; None of a topic, and for who may not read both scores."""
        a, b, domain = question.challenger, question.challenged, question.domain
        if a is None or b is None or domain is None:
            return None
        resources = (Resource(ResourceType.CREDIBILITY, one, owner=one) for one in (a, b))
        if not all(self.recall.may(one, Action.READ) for one in resources):
            return None
        asked = at.at if at.asked is not None or question.before is not None else None
        request = request_of([a, b], [domain], None, asked, AsOfClock.KNOWN.value)
        table = await scores(self.recall, request, deadline=self.deadline)
        by_agent = {one.record.agent: one for one in table.items}
        age = timedelta() if table.stale_since is None else SystemClock().now() - table.stale_since
        sides = [by_agent[a].contender(age), by_agent[b].contender(age)] if {a, b} <= by_agent.keys() else [None, None]
        basis = Basis(self.stores.settings.auto_resolution_basis)
        priority = None if question.priority is None else DebatePriority(question.priority)
        verdict = level2_verdict(sides[0], sides[1], priority=priority, evidence=True, basis=basis)
        both = () if verdict.scores is None else (verdict.scores.posterior, verdict.scores.as_designed)
        return Level2Outlook(
            domain=domain,
            records=[
                SideRecord(
                    agent=one,
                    decisions=by_agent[one].scope_n,
                    score=by_agent[one].posterior.mean,
                    lower=by_agent[one].posterior.lower,
                    upper=by_agent[one].posterior.upper,
                )
                for one in (a, b)
                if one in by_agent
            ],
            eligible=verdict.resolved,
            reason=verdict.reason,
            winner=None if verdict.winner is None else {"a": a, "b": b}[verdict.winner],
            basis=basis,
            verdicts={
                one.basis: BasisVerdict(resolved=one.resolved, differential=one.differential, threshold=one.threshold)
                for one in both
            },
        )


def _performance(group: dict[str, float | int | None]) -> dict[str, float | int | None]:
    return {name: group.get(name) for name in ("success_rate", "occurrence_count")}


def _sentence(error: Exception) -> str:
    """Return *error* as a reason within a sentence."""
    return "it was not there in time" if isinstance(error, TimeoutError) else str(error).rstrip(".")
