"""
The review of a quarter: biases to propose, overrides, and blind spots (credibility-and-contradictions, 6 and 7).

A bias is looked for by agent, domain and metric, and by sector and regime where what the broader correction leaves is
biased still. A correction that passes the test on newer claims is recorded as a proposal, which a person approves or
rejects. There is one for each agent, domain, metric, sector, regime and kind, whatever its size and whoever recorded
it; once it is retired another may follow. A crash leaves the proposals made before; the next run makes the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any, Final, NamedTuple

import orjson

from imem.credibility.scores.bias import BiasProposal, ValueClaim, corrected, propose
from imem.credibility.scores.overrides import REVIEW_CONTEXT_OUTCOMES
from imem.credibility.scores.reading import AgentScore, agent_scores
from imem.credibility.scores.wilson import wilson
from imem.credibility.track_record import ENOUGH_OBSERVATIONS, track_pairs
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.asof import AsOf, dated
from imem.kg.kinds.enums import BiasKind, BiasStatus, Regime
from imem.kg.kinds.metrics import metric_of
from imem.kg.kinds.trust import BiasCorrection
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of

ACTOR: Final = Actor("credibility-review", Role.LEARNING_ENGINE, may_import=True)
"""The actor that proposes. It approves nothing."""

PAGE: Final = 50
"""Agents and domains that are read at a time."""

PAGE_MS: Final = 120_000
"""How long a page may take, in milliseconds."""

CLAIMS: Final = 2_000
"""The newest claims of values of an agent in a domain in which a bias is looked for."""

NAMED: Final = 10
"""Contexts that a report names of each sort."""

Place = tuple[float, float, str]
"""A context of an agent in a domain: by how much it stands out, on how many observations, and in words."""

PlacedClaim = tuple[str | None, str | None, ValueClaim]
"""A claim with its sector and regime."""


class Bias(NamedTuple):
    """The scope of a correction; *sector* and *regime* are None where it holds for all."""

    agent: str
    domain: str
    metric: str
    sector: str | None
    regime: str | None
    kind: BiasKind


async def review(database: Database, gateway: Gateway, *, halflife_years: float) -> dict[str, Any]:
    """
    Record proposals, and return the report.

    It has the number of scores, new proposals with their ids, how many wait for a person, how many agents' overrides
    are to be reviewed, and the contexts in which people override most and in which agents are worst.

    Args:
        gateway: appends the proposals, as :data:`ACTOR`.
        halflife_years: for agents whose record names none.

    Raises:
        PostgresUnavailable: proposals made before stay.
    """
    [row] = await database.named("database_now", {}, deadline=Deadline.after_ms(PAGE_MS))
    at = AsOf(row["now"].astimezone(UTC))
    pairs = await track_pairs(database, None, deadline=Deadline.after_ms(PAGE_MS))
    proposed: list[str] = []
    waiting, causes = 0, 0
    most: list[Place] = []
    worst: list[Place] = []
    for first in range(0, len(pairs), PAGE):
        page, deadline = pairs[first : first + PAGE], Deadline.after_ms(PAGE_MS)
        scores, _ = await agent_scores(
            database, page, at, context=None, halflife_years=halflife_years, deadline=deadline
        )
        most = nlargest(NAMED, [*most, *(place for one in scores for place in _overridden(one))])
        worst = nlargest(NAMED, [*worst, *(place for one in scores for place in _worse(one))])
        causes += sum(bool(one.people.overrides.reviews) for one in scores)
        new, before = await _propose(database, gateway, page, at, deadline)
        proposed += new
        waiting += len(new) + before
    return {
        "scores": len(pairs), "proposed": proposed, "waiting": waiting, "override_reviews": causes,
        "overridden_most": [text for *_, text in most], "blind_spots": [text for *_, text in worst],
    }  # fmt: skip


# Contexts


def _overridden(score: AgentScore) -> Iterator[Place]:
    """Return the contexts of enough claims in which people overrode the agent."""
    for dimension, values in score.people.overrides.by_context.items():
        for value, of in values.items():
            if of.overrides and of.rate is not None and of.recommendations >= REVIEW_CONTEXT_OUTCOMES:
                text = f"{_place(score, dimension, value)}: {of.rate:.0%} of {of.recommendations} overridden"
                yield of.rate, of.recommendations, text


def _worse(score: AgentScore) -> Iterator[Place]:
    """Return the contexts of enough claims in which the agent is worse than in its domain, by more than chance."""
    overall = score.designed.overall_accuracy
    for dimension, values in score.contexts.items():
        for value, of in values.items():
            if overall is None or of.accuracy is None or of.observations < ENOUGH_OBSERVATIONS:
                continue
            if wilson(min(of.accuracy, 1.0), of.observations).upper < overall:
                text = f"{_place(score, dimension, value)}: {of.accuracy:.0%} of {of.observations:.0f} right"
                yield 1.0 - of.accuracy, of.observations, f"{text}, in all {overall:.0%}"


def _place(score: AgentScore, dimension: str, value: str) -> str:
    return f"{score.record.agent} in {score.record.domain} where {dimension.replace('_', ' ')} is {value}"


# Biases


def biases(agent: str, domain: str, metric: str, claims: Sequence[PlacedClaim]) -> Iterator[tuple[Bias, BiasProposal]]:
    """Return the biases of an agent's claims on a metric, the broadest first."""
    found: dict[tuple[str | None, str | None], BiasProposal] = {}
    for sector, regime in _parts(claims):
        inside = [one for at, during, one in claims if sector in {None, at} and regime in {None, during}]
        broader = [found[one] for one in ((sector, None), (None, regime), (None, None)) if one in found]
        left = inside
        for kind, bias, *_ in broader[:1]:
            left = [one._replace(predicted=corrected(one.predicted, kind, bias)) for one in inside]
        proposal = propose(inside) if propose(left) is not None else None
        if proposal is not None:
            found[sector, regime] = proposal
            yield Bias(agent, domain, metric, sector, regime, proposal.kind), proposal


def _parts(claims: Iterable[PlacedClaim]) -> list[tuple[str | None, str | None]]:
    """Return all, the sectors, the regimes, and both at once, as sector and regime, of which None is all."""
    both = {(sector, regime) for sector, regime, _ in claims}
    sectors = {(sector, None) for sector, _ in both if sector is not None}
    regimes = {(None, regime) for _, regime in both if regime is not None}
    narrow = {(sector, regime) for sector, regime in both if sector is not None and regime is not None}
    return [(None, None), *sorted(sectors), *sorted(regimes), *sorted(narrow)]


async def _propose(
    database: Database, gateway: Gateway, pairs: Sequence[tuple[str, str]], at: AsOf, deadline: Deadline
) -> tuple[list[str], int]:
    """Record what is to be proposed of *pairs*, and return it, and how many proposals waited before."""
    statuses = await _statuses(database, pairs, at, deadline)
    claims = await _claims(database, pairs, at, deadline)
    made = [
        _correction(bias, proposal, len(statuses[bias]), at.at)
        for (agent, domain, metric), of in claims.items()
        for bias, proposal in biases(agent, domain, metric, of)
        if all(status is BiasStatus.RETIRED for status in statuses[bias])
    ]
    waiting = sum(status is BiasStatus.PROPOSED for of in statuses.values() for status in of)
    if not made:
        return [], waiting
    entries = [entry_of(record_of(one)) for one in made]
    receipts = await gateway.append(entries, actor=ACTOR, action=Action.APPEND_CREDIBILITY, deadline=deadline)
    # Of two runs at a time the second is refused what the first recorded.
    return [_text(one) for one, receipt in zip(made, receipts, strict=True) if not receipt.verdict.refused], waiting


async def _claims(
    database: Database, pairs: Sequence[tuple[str, str]], at: AsOf, deadline: Deadline
) -> Mapping[tuple[str, str, str], list[PlacedClaim]]:
    """Return the claims of values by agent, domain and metric."""
    agents, domains = zip(*pairs, strict=True)
    given = {"agents": list(agents), "domains": list(domains), "until": at.known_until, "limit": CLAIMS}
    found: dict[tuple[str, str, str], list[PlacedClaim]] = defaultdict(list)
    for row in await database.named("value_claims", given, deadline=deadline):
        metric = metric_of(row["metric"])
        if metric is not None and metric.tolerance is not None:
            claim = ValueClaim(row["target_at"], row["stated"], row["actual"], metric.tolerance)
            found[(*pairs[row["n"] - 1], row["metric"])].append((row["sector"], row["regime"], claim))
    return found


async def _statuses(
    database: Database, pairs: Sequence[tuple[str, str]], at: AsOf, deadline: Deadline
) -> Mapping[Bias, list[BiasStatus]]:
    """Return what became of the corrections of *pairs* that are recorded."""
    given = {"kinds": ["BiasCorrection"], "agents": sorted({agent for agent, _ in pairs}), **at.limits}
    rows = await database.named("records_about_agents", given, deadline=deadline)
    answer = await dated(database, [(row["kind"], row["key"]) for row in rows], at, deadline=deadline)
    found: dict[Bias, list[BiasStatus]] = defaultdict(list)
    for record in answer.records.values():
        core = record.core
        part = core.get("sector"), core.get("regime")
        bias = Bias(core["agent"], core["domain"], core["of_metric"], *part, BiasKind(core["kind"]))
        if (bias.agent, bias.domain) in pairs:
            found[bias].append(BiasStatus(record.groups.get("state", {}).get("status", BiasStatus.PROPOSED)))
    return found


def _correction(bias: Bias, found: BiasProposal, nth: int, at: datetime) -> BiasCorrection:
    return BiasCorrection(
        id=f"bias:{id_of(orjson.dumps([*bias, nth]).decode())}",
        agent=bias.agent,
        domain=bias.domain,
        of_metric=bias.metric,
        sector=bias.sector,
        regime=None if bias.regime is None else Regime(bias.regime),
        kind=bias.kind,
        bias=found.bias,
        n=found.n,
        accuracy_before=found.before,
        accuracy_after=found.after,
        proposed_at=at,
        state=BiasCorrection.State(status=BiasStatus.PROPOSED, decided_at=at),
    )


def _text(made: BiasCorrection) -> str:
    where = ", ".join([made.of_metric, *(one for one in (made.sector, made.regime) if one is not None)])
    size = f"{made.bias:+.1%}" if made.kind is BiasKind.RELATIVE else f"{made.bias:+g}"
    right = f"of newer claims {made.accuracy_before:.0%} are right, corrected {made.accuracy_after:.0%}"
    return f"{made.id}: {made.agent} in {made.domain}, {where}: {size}; {right}"
