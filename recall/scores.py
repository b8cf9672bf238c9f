"""
Answers about scores: whom to trust, by how much, and what each number rests on.

An answer is read from Postgres each time. When Postgres does not answer in time, the last one that this question had is
returned, marked stale with its age; after a day there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, get_args

import orjson
from pydantic import Field

from imem.cache.tiers.tiered import CacheLookup, Loaded, Query, key_of
from imem.credibility.posterior import KAPPA
from imem.credibility.regimes.readings import market_regime
from imem.credibility.scores import auto_resolve as rule
from imem.credibility.scores.context import DIMENSIONS, HORIZONS, LONGER, ClaimContext
from imem.credibility.scores.reading import AgentScore, BehindScore, agent_scores, claims_behind
from imem.credibility.track_record import dated_pairs, moments_read
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, PostgresUnavailable
from imem.kg.asof import AsOf, AsOfClock, parse_as_of
from imem.kg.kinds.enums import GrowthStage, Regime, SizeClass
from imem.kg.kinds.metrics import SettlingKind
from imem.recall.answers import BriefingSection, Quality
from imem.recall.brief import Recall
from imem.recall.request.context import L3_SHARE
from imem.recall.sections.spec import schema_of
from imem.recall.timing.lateness import reports_lateness

MOST_SCORES: Final = 10_000
"""Most scores of one answer."""

MOST_CLAIMS: Final = 200
"""Most claims that an explanation lists."""

MOST_CACHED: Final = 1_000
"""Most scores or claims of an answer that is held for when Postgres is away."""

NOT_SCORED: Final = "some outcomes are not scored yet"


class ScoresTable(BriefingSection):
    """
    Scores of agents as of a moment, by domain and agent.

    Attributes:
        as_of: the moment of the answer; of a stale one, that of the last answer.
        context: what was asked about; None for whole domains.
        stale: whether something that was recorded is not in the scores: settlement lags, or Postgres did not answer.
        stale_since: since when; None unless *stale*.
    """

    items: list[AgentScore] = Field(default_factory=list)
    as_of: datetime
    context: dict[str, str | None] | None = None
    stale: bool = False
    stale_since: datetime | None = None

    @property
    def listed(self) -> int:
        """How many scores it lists."""
        return len(self.items)


class ScoreExplanation(BriefingSection):
    """
    The evidence of a score.

    Attributes:
        score: the score.
        formula: how it follows from the numbers, one step a line.
        claims: the settled claims, the newest :data:`MOST_CLAIMS`; ``total`` is how many there are.
        as_of, stale, stale_since: as those of :class:`ScoresTable`.
    """

    score: AgentScore
    formula: list[str]
    claims: list[BehindScore] = Field(default_factory=list)
    as_of: datetime
    stale: bool = False
    stale_since: datetime | None = None

    @property
    def listed(self) -> int:
        """How many claims it lists."""
        return len(self.claims)


class AutoResolutionAnswer(BriefingSection):
    """
    Whether two records decide a disagreement.

    Attributes:
        verdict: the one in force: basis, resolved, winner (an agent), differential, threshold, reason.
        verdicts: both, by basis.
        probability_greater: that the share right of the first exceeds that of the second; it decides nothing.
        as_of: the moment of the scores.
    """

    verdict: dict[str, Any]
    verdicts: dict[rule.Basis, dict[str, Any]]
    probability_greater: float
    as_of: datetime


A = TypeVar("A", ScoresTable, ScoreExplanation)


# Reading


@dataclass(frozen=True, slots=True)
class ScoresRequest:
    """
    A question about scores.

    Attributes:
        agents, domains: of whom and in what; None for all that were scored by then.
        context: what is asked about; None for whole domains.
        asked, on: the moment (None: now), and its clock.
    """

    agents: Sequence[str] | None
    domains: Sequence[str] | None
    context: ClaimContext | None
    asked: datetime | None
    on: AsOfClock


def parse_context(context: Mapping[str, str | None] | ClaimContext | None) -> ClaimContext | None:
    """
    Return a context from its values by dimension; None stays None.

    Raises:
        BadInput: a dimension is unknown, or its value is none of those that a claim can have.
    """
    if context is None or isinstance(context, ClaimContext):
        return context
    unknown = sorted(set(context) - set(DIMENSIONS))
    if unknown:
        raise BadInput("context", f"{unknown[0]!r} is none of {', '.join(DIMENSIONS)}.")
    for name, values in _VALUES.items():
        value = context.get(name)
        if value is not None and value not in values:
            raise BadInput(f"context.{name}", f"{value!r} is none of {', '.join(values)}.")
    return ClaimContext(**context)


_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "metric_type": get_args(SettlingKind),
    "time_horizon": (*(name for name, _ in HORIZONS), LONGER),
    "company_size": tuple(SizeClass),
    "growth_stage": tuple(GrowthStage),
    "regime": tuple(Regime),
}
"""Values of the dimensions that have no others: no claim matches another, and a misspelt one would go unnoticed."""


def request_of(
    agents: Sequence[str] | None,
    domains: Sequence[str] | None,
    context: Mapping[str, str | None] | ClaimContext | None,
    as_of: datetime | None,
    clock: str,
) -> ScoresRequest:
    """
    Return a question with its arguments checked.

    Raises:
        BadInput: the moment or the clock is wrong, a dimension of the context or its value is unknown, or more than
            :data:`MOST_SCORES` scores are named.
    """
    if agents is not None and domains is not None and len(agents) * len(domains) > MOST_SCORES:
        raise BadInput("agents", f"times domains must be at most {MOST_SCORES:,}.")
    whom, where = (None if names is None else tuple(dict.fromkeys(names)) for names in (agents, domains))
    return ScoresRequest(whom, where, parse_context(context), *parse_as_of(as_of, clock))


@reports_lateness
async def scores(recall: Recall, request: ScoresRequest, *, deadline: Deadline) -> ScoresTable:
    """
    Return the scores of the agents in the domains asked for, by domain and agent.

    Raises:
        BadInput: more than :data:`MOST_SCORES` scores are asked for.
        PermissionDenied: an agent reads its own alone.
        PostgresUnavailable, BudgetExceeded: there was no answer in time, and no earlier one.
    """
    owners: Sequence[str | None] = (None,) if request.agents is None else request.agents or (recall.actor.id,)
    resources = [Resource(ResourceType.CREDIBILITY, one, owner=one) for one in owners]
    first = next((one for one in resources if not recall.may(one, Action.READ)), resources[0])
    query = _query(recall, "scores", ScoresTable, request)

    async def ask() -> ScoresTable:
        return await _or_last(recall, query, lambda due: _read(recall, request, due), deadline)

    return await recall.authorized(first, Action.READ, ask, deadline=deadline)


async def _or_last(recall: Recall, query: Query[A], read: Callable[[Deadline], Awaitable[A]], deadline: Deadline) -> A:
    """Return what *read* has from Postgres, else the last answer to *query* of this process, marked stale."""
    tiers = recall.sources.tiers
    due = Deadline(deadline.at_s - deadline.left_s() * (1 - L3_SHARE))
    found = CacheLookup()
    if tiers is not None and query.key is not None:
        looked_up = await tiers.lookup([query], deadline=due.within_ms(tiers.cache_timeout_ms))
        found = looked_up.get(query.key, found)
    try:
        answer = await _in_time(read(due), due)
    except (PostgresUnavailable, BudgetExceeded) as error:
        last = None if tiers is None else tiers.stale(query, found, None)
        if last is None:
            raise
        return last.value.model_copy(
            update={
                "quality": Quality.STALE, "reason": str(error), "age_s": last.age_s, "stale": True,
                "stale_since": last.moment, "mode": recall.mode(None, whole=False),
            }
        )  # fmt: skip
    if tiers is not None and found.tag_versions is not None and answer.listed <= MOST_CACHED:
        tiers.put_local(query, Loaded(answer, answer.as_of), found.tag_versions.bookmark)
    return answer


def _query(recall: Recall, kind: str, model: type[A], request: ScoresRequest, **more: int) -> Query[A]:
    """Return the cache query of a question; it has no tags: what it finds is a fallback, however much has changed."""
    context = None if request.context is None else list(request.context)
    own = {"journal": recall.sources.journal, "halflife": recall.sources.halflife_years, "context": context}
    arguments = {**asdict(request), **own, **more}
    key = key_of(kind, schema_of(model), recall.actor.role.value, arguments)
    # Parsed by orjson, since pydantic's own parser may change the last bit of a number.
    return Query(kind, key, _encoded, lambda data: model.model_validate(orjson.loads(data)))


def _encoded(answer: BriefingSection) -> bytes:
    return answer.model_dump_json().encode()


async def _in_time(answer: Awaitable[A], deadline: Deadline) -> A:
    try:
        async with asyncio.timeout(deadline.left_s()):
            return await answer
    except TimeoutError as error:
        raise BudgetExceeded("Postgres did not answer in time.") from error


async def _read(recall: Recall, request: ScoresRequest, deadline: Deadline) -> ScoresTable:
    at, read_horizon = await recall.begin(request.asked, request.on.value, deadline)
    pairs, market = await asyncio.gather(
        _pairs(recall, request, at, deadline), market_regime(recall.database, at, deadline=deadline)
    )
    found, waiting = await agent_scores(
        recall.database,
        pairs,
        at,
        context=request.context,
        regime=market.regime,
        halflife_years=recall.sources.halflife_years,
        deadline=deadline,
    )
    context = None if request.context is None else request.context._asdict()
    table = ScoresTable(items=found, total=len(found), as_of=at.at, context=context, mode=recall.mode(read_horizon))
    if waiting is None or waiting > at.recorded_until:
        return table
    late = {"stale": True, "stale_since": waiting, "quality": Quality.PARTIAL, "reason": NOT_SCORED}
    return table.model_copy(update=late)


async def _pairs(recall: Recall, request: ScoresRequest, at: AsOf, deadline: Deadline) -> list[tuple[str, str]]:
    """Return the pairs asked for, by domain and agent; of what was not named those that were scored by then."""
    agents, domains = request.agents, request.domains
    if agents is not None and domains is not None:
        return [(agent, domain) for domain in sorted(set(domains)) for agent in sorted(set(agents))]
    found = await dated_pairs(recall.database, [at], agents=agents, domains=domains, unscored=False, deadline=deadline)
    if len(found) > MOST_SCORES:
        raise BadInput("agents", f"have more than {MOST_SCORES:,} scores; name some.")
    return sorted(((agent, domain) for agent, domain, _ in found), key=lambda pair: (pair[1], pair[0]))


# Explaining


@reports_lateness
async def explanation(recall: Recall, request: ScoresRequest, *, limit: int, deadline: Deadline) -> ScoreExplanation:
    """
    Return the score of the one agent in the one domain asked for, with the formula and the claims that it rests on.

    Raises:
        BadInput: *limit* is below 1 or over :data:`MOST_CLAIMS`.
        PermissionDenied: an agent reads its own alone.
        PostgresUnavailable, BudgetExceeded: there was no answer in time, and no earlier one.
    """
    if not 1 <= limit <= MOST_CLAIMS:
        raise BadInput("limit", f"must be 1 to {MOST_CLAIMS}.")

    async def read(due: Deadline) -> ScoreExplanation:
        table = await _read(recall, request, due)
        (score,), at = table.items, AsOf(table.as_of, request.on)
        until = min(moments_read(at, table.stale_since))
        claims, total = await claims_behind(
            recall.database, score, at, until, context=request.context, limit=limit, deadline=due
        )
        labels = table.model_dump(include={"quality", "reason", "mode", "stale", "stale_since"})
        return ScoreExplanation(
            score=score, formula=formula(score), claims=claims, total=total, as_of=table.as_of, **labels
        )

    query = _query(recall, "explanation", ScoreExplanation, request, limit=limit)

    async def ask() -> ScoreExplanation:
        return await _or_last(recall, query, read, deadline)

    (agent,) = request.agents or ("",)
    resource = Resource(ResourceType.CREDIBILITY, agent, owner=agent)
    return await recall.authorized(resource, Action.READ, ask, deadline=deadline)


def formula(score: AgentScore) -> list[str]:
    """Return how both scores follow from their numbers, one step a line."""
    body, designed, outside = score.posterior, score.designed, score.weight - score.scope_weight
    evidence = (
        f"posterior: Beta({body.alpha:.4f}, {body.beta:.4f}) from {score.scope_weight:.4f} decayed observations in "
        f"scope and a prior worth {min(KAPPA, 1.0 + outside):.4f} from {outside:.4f} outside; each weighs "
        f"0.5^(age / {score.record.halflife_years:g} years)"
    )
    share = f"mean alpha / (alpha + beta) = {body.mean:.4f}, 95 % {body.lower:.4f} to {body.upper:.4f}"
    if designed.score is None:
        return [evidence, share, "as designed: no outcomes, no score"]
    product = " x ".join(f"{name} {value:.4f}" for name, value in designed.factors.items())
    regime = "" if score.regime is None else f" in {score.regime}"
    return [evidence, share, f"as designed ({designed.formula_version}){regime}: {product} = {designed.score:.4f}"]


# Deciding


@reports_lateness
async def auto_resolution(
    recall: Recall, request: ScoresRequest, *, basis: rule.Basis, deadline: Deadline
) -> AutoResolutionAnswer:
    """
    Return whether the records of the two agents asked for decide between them in the one domain, on both bases.

    Raises:
        BadInput: they are the same agent.
        PermissionDenied: an agent reads its own record alone.
        PostgresUnavailable, BudgetExceeded: there was no answer in time, and no earlier one.
    """
    if len(names := request.agents or ()) != 2:
        raise BadInput("b", "is the same agent.")
    table = await scores(recall, request, deadline=deadline)
    a, b = ({item.record.agent: item for item in table.items}[name] for name in names)
    age = timedelta() if table.stale_since is None else SystemClock().now() - table.stale_since
    found = rule.auto_resolve(a.contender(age), b.contender(age), basis)

    def named(verdict: rule.Verdict) -> dict[str, Any]:
        winner = None if verdict.winner is None else {"a": a, "b": b}[verdict.winner].record.agent
        return {**verdict._asdict(), "winner": winner}

    labels = {"quality": table.quality, "reason": table.reason, "mode": table.mode}
    return AutoResolutionAnswer(
        verdict=named(found.effective),
        verdicts={one.basis: named(one) for one in (found.posterior, found.as_designed)},
        probability_greater=rule.probability_greater(a.posterior, b.posterior),
        as_of=table.as_of,
        **labels,
    )
