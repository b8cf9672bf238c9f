"""
Track records: an agent's share right in a domain with its 95 % interval, and its skill, as of a moment.

The share right misleads where one answer is nearly always right. So the record also holds the skill of stated
probabilities: against the baseline agents on the same questions, or, where no baseline answered, against the agent's
own earlier base rate. Baselines have no skill and come last. Records are sorted by name, not ranked, since two agents
are comparable on common questions only.

Records are read from ``track_step``. For another half-life than that of the stored steps they are computed from the
scores, which is slower and gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from imem.credibility import store
from imem.credibility.posterior import DecayedEvidence, Posterior, decay, posteriors, years_between
from imem.credibility.skill import BrierComparison, Skill, skill
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_steps import TrackRecordStep, steps_of
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import AsOf, AsOfClock

ENOUGH_OBSERVATIONS: Final = 15
"""Observations below which there is little evidence (credibility-and-contradictions, section 2)."""

BASELINE = "baseline"

Reference = Literal["baselines", "own base rate"]

EvidenceLevel = Literal["none", "little", "enough"]
"""No observation, fewer than :data:`ENOUGH_OBSERVATIONS`, or as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRecord:
    """
    The record of one agent in one domain.

    Attributes:
        agent, domain: its identity.
        kind: kind of the agent: model, human, ensemble, baseline; None if it was not described.
        n: observations; claims with the same ``target_at`` are one, their mean.
        rows: claims scored.
        right: claims that were right.
        abstained: claims that abstained; counted, not scored.
        weight: decayed number of observations, from which the interval is computed.
        effective_n: effective number of observations; at most *n*.
        mean, lower, upper: posterior share right and its 95 % interval, fractions.
        halflife_years: age at which an observation weighs half.
        brier, log_score: mean over the scored claims that gave a probability; None without any. Lower is better.
        skill: ``1 - Brier/Brier of the reference`` on the claims that both answered, decayed with age like *mean*;
            above zero is better than the reference. None without a reference.
        skill_lower, skill_upper: its 95 % interval; None with a single observation.
        reference: what *skill* is measured against.
        reference_rows: number of claims compared.
    """

    agent: str
    domain: str
    kind: str | None
    n: int
    rows: int
    right: int
    abstained: int
    weight: float
    effective_n: float
    mean: float
    lower: float
    upper: float
    halflife_years: float
    brier: float | None
    log_score: float | None
    skill: float | None
    skill_lower: float | None
    skill_upper: float | None
    reference: Reference | None
    reference_rows: int

    @property
    def baseline(self) -> bool:
        """Whether the agent is a baseline: a reference for others, not ranked."""
        return self.kind == BASELINE

    @property
    def evidence(self) -> EvidenceLevel:
        """Level of evidence, by the number of observations."""
        if self.n == 0:
            return "none"
        return "little" if self.n < ENOUGH_OBSERVATIONS else "enough"


@dataclass(frozen=True, slots=True)
class TrackRecords:
    """
    An answer about track records.

    Attributes:
        records: by domain and agent, baselines last within a domain.
        as_of: the moment of the records: the one asked for; on the recorded clock clamped to the scored horizon, so
            that the same request has the same answer later.
        waiting_since: when the oldest statement that is not scored yet was recorded; None if none waits.
    """

    records: tuple[TrackRecord, ...]
    as_of: datetime
    waiting_since: datetime | None


async def track_records(
    database: Database, pairs: Sequence[tuple[str, str]], as_of: AsOf, *, halflife_years: float, deadline: Deadline
) -> TrackRecords:
    """
    Return the records of the given agents in the given domains, one for each pair, empty ones too.

    Args:
        database: the journal.
        pairs: (agent, domain).
        as_of: the moment, and on which clock.
        halflife_years: for agents whose credibility record names none.
        deadline: when the answer is due; also the server's statement timeout.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    wanted = [(agent, domain, as_of) for agent, domain in dict.fromkeys((one, other) for one, other in pairs)]
    found, waiting = await dated_records(database, wanted, halflife_years=halflife_years, deadline=deadline)
    records = sorted((record for _, record in found), key=lambda one: (one.domain, one.baseline, one.agent))
    return TrackRecords(tuple(records), moments_read(as_of, waiting)[0], waiting)


async def dated_records(
    database: Database, asked: Sequence[tuple[str, str, AsOf]], *, halflife_years: float, deadline: Deadline
) -> tuple[list[tuple[AsOf, TrackRecord]], datetime | None]:
    """
    Return the record of each agent and domain as of each moment, in one statement and in the order asked.

    Args:
        asked: (agent, domain, moment); all moments on one clock.

    Returns:
        The moments as asked, each with its record; and the oldest statement that is not scored yet.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    if not asked:
        return [], None
    clock = asked[0][2].clock
    async with database.connection(deadline) as conn:
        waiting = (await rows(conn, "settled_horizon"))[0]["waiting_since"]
        moments = [moments_read(as_of, waiting) for _, _, as_of in asked]
        found = await rows(
            conn,
            "track_records",
            {
                "agents": [agent for agent, _, _ in asked],
                "domains": [domain for _, domain, _ in asked],
                "clock": clock.value,
                "known_until": [known for known, _ in moments],
                "recorded_until": [recorded for _, recorded in moments],
            },
        )
        read = [
            await _read(conn, row, clock, min(moment), halflife_years)
            for row, moment in zip(found, moments, strict=True)
        ]
    bodies = posteriors(
        [_evidence(step, halflife, known) for (step, halflife), (known, _) in zip(read, moments, strict=True)]
    )
    records = [
        (as_of, _record(row, step, halflife, body))
        for (_, _, as_of), row, (step, halflife), body in zip(asked, found, read, bodies, strict=True)
    ]
    return records, waiting


async def track_pairs(database: Database, agents: Sequence[str] | None, *, deadline: Deadline) -> list[tuple[str, str]]:
    """Return (agent, domain) of every record that the given agents have, by name; of all agents for None."""
    found = await database.named("track_pairs", {"agents": None if agents is None else list(agents)}, deadline=deadline)
    return [(row["agent"], row["domain"]) for row in found]


async def dated_pairs(
    database: Database,
    moments: Sequence[AsOf],
    *,
    agents: Sequence[str] | None,
    domains: Sequence[str] | None,
    unscored: bool,
    deadline: Deadline,
) -> list[tuple[str, str, AsOf]]:
    """
    Return (agent, domain, moment) of every record that there was as of each moment, by moment, agent and domain.

    Args:
        moments: all on one clock.
        agents, domains: which to include; None for all.
        unscored: whether to include agents none of whose claims was settled.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    if not moments:
        return []
    async with database.connection(deadline) as conn:
        waiting = (await rows(conn, "settled_horizon"))[0]["waiting_since"]
        untils = [moments_read(as_of, waiting) for as_of in moments]
        given = {
            "agents": None if agents is None else list(agents),
            "domains": None if domains is None else list(domains),
            "known_until": [known for known, _ in untils],
            "recorded_until": [recorded for _, recorded in untils],
        }
        found = await rows(conn, "dated_pairs", {**given, "clock": moments[0].clock.value})
        if unscored:
            found += await rows(conn, "claimed_pairs", given)
    pairs = sorted({(row["n"], row["agent"], row["domain"]) for row in found})
    return [(agent, domain, moments[number - 1]) for number, agent, domain in pairs]


async def scores_as_of(
    database: Database, findings: Sequence[str], as_of: AsOf, *, deadline: Deadline
) -> dict[str, Mapping[str, Any]]:
    """
    Return the scores of the given findings as of the moment; findings without one are left out.

    Columns: vintage, outcome_id, stated, actual, y (1 right, 0 wrong, None abstained), abstained, brier, log_score,
    reference, known_at, recorded_at.

    Raises:
        PostgresUnavailable, BudgetExceeded: nothing could be read in time; retryable.
    """
    async with database.connection(deadline) as conn:
        given = {"findings": list(findings), "clock": as_of.clock.value, "until": await _scores_until(conn, as_of)}
        found = await rows(conn, "scores_as_of", given)
    return {row.pop("finding_id"): row for row in found}


async def scores_until(database: Database, as_of: AsOf, *, deadline: Deadline) -> datetime:
    """
    Return the latest moment, on the clock of *as_of*, of scores that count as of it.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    if as_of.clock is AsOfClock.KNOWN:
        return min(as_of.known_until, as_of.recorded_until)
    async with database.connection(deadline) as conn:
        return await _scores_until(conn, as_of)


async def _scores_until(conn: Connection, as_of: AsOf) -> datetime:
    if as_of.clock is AsOfClock.KNOWN:
        return min(as_of.known_until, as_of.recorded_until)
    return min(moments_read(as_of, (await rows(conn, "settled_horizon"))[0]["waiting_since"]))


def moments_read(as_of: AsOf, waiting: datetime | None) -> tuple[datetime, datetime]:
    """Return the moments to read at; on the recorded clock clamped to before the oldest unscored statement."""
    known_until, recorded_until = as_of.known_until, as_of.recorded_until
    if as_of.clock is AsOfClock.RECORDED and waiting is not None:
        settled = waiting - timedelta(microseconds=1)
        known_until, recorded_until = min(known_until, settled), min(recorded_until, settled)
    return known_until, recorded_until


async def _read(
    conn: Connection, row: Row, clock: AsOfClock, until: datetime, halflife_years: float
) -> tuple[TrackRecordStep | None, float]:
    """Return the step valid at *until*, computed with the wanted half-life, and that half-life."""
    halflife = row["wanted_halflife_years"] or halflife_years
    if row["at"] is None:
        return None, halflife
    if row["halflife_years"] == halflife:
        return store.step_of(row), halflife
    found = steps_of(await store.scores_of(conn, TrackRecordKey(row["agent"], row["domain"])), clock, halflife)
    return next((step for step in reversed(found.steps) if step.at <= until), None), halflife


def _evidence(step: TrackRecordStep | None, halflife_years: float, moment: datetime) -> DecayedEvidence:
    if step is None:
        return DecayedEvidence(0.0, 0.0)
    fade = decay(years_between(step.at, moment), halflife_years)
    return DecayedEvidence(step.successes * fade, step.weight * fade)


def _record(row: Row, step: TrackRecordStep | None, halflife_years: float, body: Posterior) -> TrackRecord:
    sums = step or TrackRecordStep(datetime.min.replace(tzinfo=UTC))
    brier, log_score = None, None
    gained: tuple[Skill | None, Reference | None, int] = None, None, 0
    if sums.probabilities:
        brier, log_score = sums.brier_sum / sums.probabilities, sums.log_sum / sums.probabilities
        if row["kind"] != BASELINE:
            gained = _skill(sums)
    found, reference, compared = gained
    return TrackRecord(
        agent=row["agent"],
        domain=row["domain"],
        kind=row["kind"],
        n=sums.observations,
        rows=sums.scored,
        right=sums.correct,
        abstained=sums.abstained,
        weight=0.0 if step is None else _evidence_weight(body),
        effective_n=min(sums.weight**2 / sums.squares, float(sums.observations)) if sums.squares > 0.0 else 0.0,
        mean=body.mean,
        lower=body.lower,
        upper=body.upper,
        halflife_years=halflife_years,
        brier=brier,
        log_score=log_score,
        skill=None if found is None else found.value,
        skill_lower=None if found is None else found.lower,
        skill_upper=None if found is None else found.upper,
        reference=reference,
        reference_rows=compared,
    )


def _evidence_weight(body: Posterior) -> float:
    """Return the decayed weight behind a posterior whose evidence is all inside its scope."""
    return body.alpha + body.beta - 1.0


def _skill(sums: TrackRecordStep) -> tuple[Skill | None, Reference, int]:
    if sums.common:
        against_baselines = BrierComparison(
            sums.common_sum, sums.reference_sum, sums.common_squares, sums.common_cross, sums.reference_squares
        )
        return skill(against_baselines), "baselines", sums.common
    against_base_rate = BrierComparison(
        sums.own_sum, sums.base_sum, sums.own_squares, sums.own_cross, sums.base_squares
    )
    return skill(against_base_rate), "own base rate", sums.probabilities
