"""
Items of Gate 6 about agents: changes of their published scores, and corrections of their biases.

A change of a score applies at once. It is an item while the mean of the posterior differs from what a person was shown
last, or, where nobody has seen the score, from the first that was published. People state which agents are on
probation, by the group ``standing`` of their records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import orjson
from pydantic import Field

from imem.alerts.store import NewAlert, Severity
from imem.gates.learning.items import APPROVE, Importance, ItemAction, ItemAnswer, ItemKind, Seen, WaitingItem
from imem.jobs.lifecycle import Effects
from imem.journal.actors import Action
from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import rows
from imem.kg.kinds.enums import BiasKind, BiasStatus, TrendDirection
from imem.kg.kinds.trust import AgentCredibility, BiasCorrection, CredibilityPin
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, record_of
from imem.review.kinds import Fields

TOLERANCE: Final = 1e-9
"""Float noise decides no boundary."""

SMALLEST: Final = 0.005
"""A smaller change of a score is not shown by two decimals, and is no item: scores age a little each day."""

SMALL, SMALL_N = 0.05, 20
"""A change below it on so many observations may be approved in bulk, where the score is stable."""

SMALLER, SMALLER_N = 0.03, 10
"""A change below it on so many may be, whatever its trend."""

VALUATION: Final = "valuation"
"""The domain whose changes are answered one by one; names that contain it count as well."""

REGIME_N: Final = 10
"""Fewest observations in a regime to which a score is reset."""

ERROR_ANALYSIS: Final = "ERROR_ANALYSIS"
"""Kind of the alert to those who look after the data: a person wants to know why an agent errs."""

WRITER: Final = "credibility"
"""The subsystem that owns the record of a score."""


# Changes of scores


class ScoreChange(Seen):
    """
    A change of a published score, as the reviewer sees it.

    Attributes:
        agent, domain: whose score.
        old, new: the mean of the posterior, when it was seen last and now.
        reason: why it changed.
        n: observations that it rests on.
        lower, upper: the interval of 95 %.
        time_weighted_score, overall_score: the decayed mean of its outcomes, and the score as designed.
        stable: whether its trend of 52 weeks is neither upward nor downward; False where no trend is known.
        pinned_at: the score at which a person holds it.
        regime, regime_score, regime_n: the regime of the market, and the agent's accuracy in it.
        disputed: whether the agent was a side of a debate in the domain since.
        on_probation: whether a person stated that the agent is.
        proposed_corrections: corrections of its biases that wait as well.
    """

    agent: str
    domain: str
    old: float
    new: float
    reason: str
    n: int
    lower: float | None = None
    upper: float | None = None
    time_weighted_score: float | None = None
    overall_score: float | None = None
    stable: bool = False
    pinned_at: float | None = None
    regime: str | None = None
    regime_score: float | None = None
    regime_n: float | None = None
    disputed: bool = False
    on_probation: bool = False
    proposed_corrections: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """Return by how much the score rose."""
        return self.new - self.old

    @property
    def of_valuation(self) -> bool:
        """Return whether it is about valuation."""
        return VALUATION in self.domain.casefold()

    @property
    def headline(self) -> str:
        """Return the change in one line."""
        return (
            f"{self.agent} in {self.domain}: {self.old:.3f} → {self.new:.3f} ({self.change:+.3f}), "
            f"{self.n} observations, {self.reason}"
        )

    @property
    def bulk(self) -> str | None:
        """Return why it may be approved in bulk; None: it is answered alone."""
        size = abs(self.change)
        if self.of_valuation or self.on_probation:
            return None
        if size < SMALL - TOLERANCE and self.n >= SMALL_N and self.stable:
            return f"a change below {SMALL} on at least {SMALL_N} observations, without a trend"
        if size < SMALLER - TOLERANCE and self.n >= SMALLER_N:
            return f"a change below {SMALLER} on at least {SMALLER_N} observations"
        return None


class HeldScore(Fields):
    """The score that shall count: the old one by default, for so many days or until it is taken out."""

    score: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    days: Annotated[int, Field(ge=1, le=3_650)] | None = None


class ResetScore(Fields):
    """For how many days the score in the present regime counts."""

    days: Annotated[int, Field(ge=1, le=3_650)] = 90


def _check_regime(seen: ScoreChange, _fields: object) -> None:
    if seen.regime is None or seen.regime_score is None or (seen.regime_n or 0.0) < REGIME_N:
        raise BadInput("action", f"takes {REGIME_N} observations in the regime of the market; override states a score.")


def change_of(row: Row, corrections: tuple[str, ...] = ()) -> ScoreChange | None:
    """Return the change that a row of ``published_changes`` says; None where there is none to be shown."""
    score, review, first = row["score"], row["review"], row["first"]
    agent, domain = row["key"].split("/", 1)
    before = (review["reviewed_score"], review["reviewed_n"]) if review else _headline_of(first or score)
    new, n = _headline_of(score)
    if before[0] is None or new is None or abs(new - before[0]) < SMALLEST - TOLERANCE:
        return None
    in_regime = _object(score.get("regime_credibility")).get(score.get("regime"), {})
    return ScoreChange(
        agent=agent,
        domain=domain,
        old=before[0],
        new=new,
        reason=_reason(n - before[1]),
        n=n,
        lower=score.get("posterior_lower"),
        upper=score.get("posterior_upper"),
        time_weighted_score=score.get("time_weighted_score"),
        overall_score=score.get("overall_score"),
        stable=score.get("trend_direction") == TrendDirection.STABLE,
        pinned_at=_object(score.get("pin")).get("score"),
        regime=score.get("regime"),
        regime_score=in_regime.get("accuracy"),
        regime_n=in_regime.get("sample_size"),
        disputed=row["disputed"],
        on_probation=row["on_probation"],
        proposed_corrections=corrections,
    )


def _headline_of(score: Mapping[str, Any]) -> tuple[float | None, int]:
    return score.get("posterior_mean"), score["sample_size"]


def _object(stored: Any) -> Mapping[str, Any]:
    return (orjson.loads(stored) if isinstance(stored, str) else stored) or {}


def _reason(more: int) -> str:
    if more == 0:
        return "none of them new: they are older, or revised"
    return f"{more} of them new" if more > 0 else f"{-more} fewer than before"


async def _changes(conn: Connection) -> list[WaitingItem[ScoreChange]]:
    proposed: dict[str, list[str]] = defaultdict(list)
    for bias in await _biases(conn):
        proposed[f"{bias.seen.agent}/{bias.seen.domain}"].append(bias.headline)
    found = []
    for row in await rows(conn, "published_changes"):
        seen = change_of(row, tuple(proposed[row["key"]]))
        if seen is None:
            continue
        risk = "risk" in seen.domain.casefold()
        importance = Importance(valuation=seen.of_valuation, risk=risk, disagreement=seen.disputed, n=seen.n)
        since = (row["reviewed_at"] or row["first_at"]).astimezone(UTC)
        found.append(
            WaitingItem(
                key=row["key"], headline=seen.headline, seen=seen, since=since, importance=importance, bulk=seen.bulk
            )
        )
    return found


async def _decide_change(_conn: Connection, key: str, seen: ScoreChange, answer: ItemAnswer, _now: datetime) -> Effects:
    if answer.action == "error_analysis":
        return Effects(alerts=[_wanted(key, seen, answer)])
    review = AgentCredibility.Review(
        reviewed_score=seen.new,
        reviewed_n=seen.n,
        review_action=answer.action,
        reviewed_by=answer.by,
        reviewed_at=answer.at,
        review_task=answer.task_id,
        review_hasty=answer.hasty or None,
    )
    lines = [groups_of(AgentCredibility, key, {"review": review}, writer=WRITER)]
    held: tuple[float, int | None] | None = None
    if isinstance(answer.fields, HeldScore):
        held = (seen.old if answer.fields.score is None else answer.fields.score), answer.fields.days
    elif isinstance(answer.fields, ResetScore):
        _check_regime(seen, answer.fields)
        held = seen.regime_score or 0.0, answer.fields.days
    if held is not None:
        score, days = held
        pin = CredibilityPin(
            id=f"pin:{id_of('gate 6', answer.task_id, key)}", agent=seen.agent, domain=seen.domain, score=score,
            reason=answer.rationale or f"{answer.action} at Gate 6", pinned_at=answer.at,
            until=None if days is None else answer.at + timedelta(days=days),
        )  # fmt: skip
        lines.append(record_of(pin))
    return Effects(facts=[(answer.person, Action.APPEND_GATES, entry_of(line)) for line in lines])


def _wanted(key: str, seen: ScoreChange, answer: ItemAnswer) -> NewAlert:
    why = f" {answer.rationale}" if answer.rationale else ""
    reason = f"{answer.by} asks why the score changed: {seen.headline}.{why}"
    return NewAlert(
        alert_id=id_of("error analysis", answer.task_id, key), kind=ERROR_ANALYSIS, severity=Severity.HIGH,
        payload={"agent": seen.agent, "domain": seen.domain, "task_id": answer.task_id, "reason": reason[:2000]},
    )  # fmt: skip


CREDIBILITY: Final = ItemKind(
    name="credibility",
    seen=ScoreChange,
    actions=ItemKind.of(
        ItemAction(name=APPROVE, does="The change stands, as it does already."),
        ItemAction(
            name="override",
            does="Another score counts, the old one by default, for some days or until the pin is taken out.",
            fields=HeldScore,
            rationale=True,
        ),
        ItemAction(
            name="error_analysis",
            does="Ask those who look after the data why the agent errs; the change stands and comes up again.",
        ),
        ItemAction(
            name="reset_for_regime",
            does="The agent's accuracy in the present regime counts, for 90 days by default.",
            fields=ResetScore,
            rationale=True,
            check=_check_regime,
        ),
    ),
    minutes=6.0,
    # The decision is about the score that was shown; what changed since is the next change.
    decides=frozenset(),
    waiting=_changes,
    decide=_decide_change,
)


# Corrections of biases


class SeenBias(Seen):
    """
    A proposed correction of a bias, as the reviewer sees it; see :class:`~imem.kg.kinds.trust.BiasCorrection`.

    Attributes:
        accuracy_before, accuracy_after: shares right of the newer claims, as stated and corrected.
    """

    agent: str
    domain: str
    metric: str
    sector: str | None = None
    regime: str | None = None
    kind: BiasKind
    bias: float
    n: int
    accuracy_before: float
    accuracy_after: float

    @property
    def headline(self) -> str:
        """Return the correction in one line."""
        where = ", ".join(filter(None, (self.metric, self.sector, self.regime)))
        size = f"{self.bias:+.1%}" if self.kind is BiasKind.RELATIVE else f"{self.bias:+g}"
        right = f"{self.accuracy_before:.0%} of newer claims right, corrected {self.accuracy_after:.0%}"
        return f"{self.agent} in {self.domain} errs by {size} on {where}, of {self.n} observations; {right}"


async def _biases(conn: Connection) -> list[WaitingItem[SeenBias]]:
    found = []
    for row in await rows(conn, "biases_waiting"):
        core = row["core"]
        names = {name: core.get(name) for name in SeenBias.model_fields if name != "metric"}
        seen = SeenBias(metric=core["of_metric"], **names)
        risk, valuation = ("risk" in seen.domain.casefold()), VALUATION in seen.domain.casefold()
        found.append(
            WaitingItem(
                key=row["key"], headline=seen.headline, seen=seen, since=row["proposed_at"].astimezone(UTC),
                importance=Importance(valuation=valuation, risk=risk, n=seen.n),
            )
        )  # fmt: skip
    return found


async def _decide_bias(_conn: Connection, key: str, _seen: SeenBias, answer: ItemAnswer, _now: datetime) -> Effects:
    status = BiasStatus.APPROVED if answer.action == APPROVE else BiasStatus.REJECTED
    state = BiasCorrection.State(status=status, decided_at=answer.at, rationale=answer.rationale)
    line = groups_of(BiasCorrection, key, {"state": state})
    return Effects(facts=[(answer.person, Action.APPEND_GATES, entry_of(line))])


BIAS: Final = ItemKind(
    name="bias",
    seen=SeenBias,
    actions=ItemKind.of(
        ItemAction(name=APPROVE, does="The corrected value is shown beside the agent's claims; no claim changes."),
        ItemAction(name="reject", does="The correction is not applied, nor proposed again.", rationale=True),
    ),
    minutes=6.0,
    decides=frozenset(SeenBias.model_fields),
    waiting=_biases,
    decide=_decide_bias,
)
"""Never approved in bulk: no rule of the specification says so."""
