"""Panels: several agents' answers to one question, pooled with equal weights and by their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from pydantic import Field

from imem.cache.tiers import tags
from imem.credibility.panels.choice import POOLS, PanelWeights, PoolName, PoolRecord
from imem.credibility.panels.evidence import baselines_as_of, weights_as_of
from imem.credibility.panels.pooling import AgentWeight, Pool, finite, pooled, pooled_value
from imem.credibility.settlement import SIGNS
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import ENOUGH_OBSERVATIONS
from imem.journal.arguments import checks_arguments
from imem.journal.postgres.connection import Row
from imem.kg.kinds.metrics import metric_of, unit_of
from imem.recall.answers import AnswerModel, BriefingSection, Quality
from imem.recall.rendering.formatting import Topic, label, number, share, when, with_noun
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.96
FADING: Final = 0.6

MOVERS: Final = 3
"""Most agents named as those that move the weighted answer."""

SELDOM: Final = 0.005
"""Least share of the whole scale by which an agent moves the answer to be named."""

SHOWN_BIAS: Final = 0.005
"""Least mean signed error that is shown."""

WORTH_NAMING: Final = 0.1
"""Least part of its weight that an agent loses to those that err as it does to be named."""

Kind = Literal["probability", "votes", "value"]


class WeightItem(AnswerModel):
    """
    The weight of an agent, and what it rests on.

    Attributes:
        weight: its share; those of a panel sum to 1.
        observations: those with questions that others of the panel answered too; claims with one ``target_at`` are one.
        loss, peer_loss: decayed mean squared error, and that of the others on the same questions.
        bias: decayed mean signed error: of a probability in its unit, of a value relative.
        advantage: what it saves of the typical loss after shrinkage, as a fraction; above zero is better.
        shared_with: agents that it matches so closely that they share one weight.
        resemblance: the part of its weight that it lost since others of the panel err as it does; below zero it gained.
        earlier: observations in earlier seasons.
        better_half: whether it is of the half that did best in them; None where there is no such half.
        baseline: whether it is a baseline, which is shown and never pooled.
        reason: why it has this weight, in words.
    """

    agent: str
    weight: float
    observations: int
    loss: float | None
    peer_loss: float | None
    bias: float | None
    advantage: float
    shared_with: list[str] = Field(default_factory=list)
    resemblance: float = 0.0
    earlier: int = 0
    better_half: bool | None = None
    baseline: bool = False
    reason: str


class DatedWeight(WeightItem):
    """The weight of an agent as of a moment: the one asked for, or the earlier one to which it was clamped."""

    as_of: datetime


@checks_arguments
class WeightsTable(BriefingSection):
    """Weights of the agents asked for, by moment, in the order of the agents."""

    items: list[DatedWeight] = Field(default_factory=list)

    def at(self, as_of: datetime) -> dict[str, float]:
        """Return the share of each agent as of one of the moments."""
        return {item.agent: item.weight for item in self.items if item.as_of == as_of}


class PanelAnswer(WeightItem):
    """
    The newest answer of one agent.

    Attributes:
        domain: the domain of its claim.
        finding: the claim's key.
        answer: the probability, 1 or 0 for a vote, or the value.
        answered_at: when the claim could first be known.
        moves: by how much its weight moves the pooled answer.
    """

    domain: str
    finding: str
    answer: float
    answered_at: datetime
    moves: float


class PooledAnswer(AnswerModel):
    """A pooled answer and its 95 % interval; None for a single answer."""

    value: float
    lower: float | None = None
    upper: float | None = None


class PoolItem(AnswerModel):
    """
    One way to pool the answers, and its record beside equal weights.

    Attributes:
        pool: ``equal``, ``median``, ``record`` (weights by record) or ``seasons`` (weights by earlier seasons).
        answer: None without evidence for it.
        observations: on which it could be scored; questions with one ``target_at`` are one.
        loss, equal_loss: decayed mean squared error, and that of equal weights on the same questions.
        gain, lower, upper: how much smaller the first is, as a fraction, with its 95 % interval over observations.
    """

    pool: PoolName
    answer: PooledAnswer | None = None
    observations: int = 0
    loss: float | None = None
    equal_loss: float | None = None
    gain: float | None = None
    lower: float | None = None
    upper: float | None = None


class PanelItem(AnswerModel):
    """
    All agents' newest answers to one question.

    Attributes:
        metric, unit, period_start, target_at: the question about the subject.
        domain: that of most of the answers, of several the first by name; in it the records of all agents count.
        kind: ``probability``, ``votes`` (the share that says up) or ``value``.
        equal, weighted: the pooled answers: means, and of values medians; None if only baselines answered.
        best: the pool that *weighted* comes from.
        trust: how much of it is in *weighted*, 0 to 1; the rest is equal weights.
        pools: all of them, each with its record.
        evidence: of the best known agent: ``none`` without an observation, ``little`` below fifteen, else ``enough``.
        answers: by weight, greatest first.
    """

    metric: str
    unit: str | None = None
    period_start: datetime | None = None
    target_at: datetime
    domain: str
    kind: Kind
    equal: PooledAnswer | None
    weighted: PooledAnswer | None
    best: PoolName = "record"
    trust: float = 1.0
    pools: list[PoolItem] = Field(default_factory=list)
    evidence: Literal["none", "little", "enough"]
    answers: list[PanelAnswer]


class PanelsSection(BriefingSection):
    """Panels on the questions about a subject, the last to be answered first."""

    items: list[PanelItem] = Field(default_factory=list)


# Retrieval


class Question(NamedTuple):
    """A question about a subject: the metric with its unit and period, and when it is true."""

    metric: str
    unit: str | None
    period_start: datetime | None
    target_at: datetime


async def load(
    request: RetrievalRequest, *, metric: str | None = None, target_at: datetime | None = None
) -> PanelsSection:
    """
    Return the panels on the newest questions about the subject, of *metric* and *target_at* where these are given.

    An actor that may read the claims may read their weights (docs/decisions/0012).
    """
    of = {"subject_id": request.subject_id, "metric": metric, "target_at": target_at}
    given = {**of, "limit": request.limits.panels, **request.at.limits}
    found = await request.database.named("claims_of_subject", given, deadline=request.deadline)
    panels: dict[Question, dict[str, Row]] = {}
    for row in found:
        unit = unit_of(row["metric"], row["unit"])
        answers = panels.setdefault(Question(row["metric"], unit, row["period_start"], row["target_at"]), {})
        # By when they were made: the newest claim of an agent is its answer, and one that takes no side takes it back.
        if _answer(row) is not None:
            answers[row["agent"]] = row
        elif row["direction"] == "neutral":
            answers.pop(row["agent"], None)
    questions = sorted(filter(panels.get, panels), key=lambda one: (one.target_at, *map(str, one)), reverse=True)
    everybody = {agent for question in questions for agent in panels[question]}
    baselines = await baselines_as_of(request.database, everybody, request.at, deadline=request.deadline)
    domains = [_domain(panels[question], baselines) for question in questions]
    of_each = [
        [TrackRecordKey(agent, domain) for agent in sorted(panels[question])]
        for question, domain in zip(questions, domains, strict=True)
    ]
    weights, waiting = await weights_as_of(
        request.database, of_each, [request.at], seasons=request.seasons, deadline=request.deadline
    )
    items = [
        panel_of(question, panels[question], by_moment[0][0])
        for question, by_moment in zip(questions, weights, strict=True)
    ]
    section = PanelsSection(items=items, total=max([len(items), *(row["total"] for row in found)]))
    if waiting is not None and waiting <= request.at.recorded_until and items:
        return section.model_copy(update={"quality": Quality.PARTIAL, "reason": "some outcomes are not scored yet"})
    return section


def _domain(claims: Mapping[str, Row], baselines: Collection[str]) -> str:
    """Return the domain of a panel: a baseline has no part in it, unless nobody else answered."""
    return domain_of([claim for agent, claim in claims.items() if agent not in baselines] or claims.values())


def domain_of(claims: Iterable[Row]) -> str:
    """Return the domain of most of the agents' answers: no agent chooses which of its records counts."""
    counts = Counter(str(claim["domain"]) for claim in claims)
    return min(counts, key=lambda domain: (-counts[domain], domain))


def _answer(claim: Row) -> float | None:
    """Return the answer of a claim as a number; None if it took no side."""
    metric = metric_of(claim["metric"])
    match metric.kind if metric is not None else None:
        case "binary":
            answer: float | None = claim["probability"]
        case "value":
            answer = claim["value"]
        case _:
            sign = SIGNS.get(claim["direction"] or "", 0.0)
            answer = None if sign == 0.0 else (sign + 1.0) / 2.0
    return answer


_KINDS: Final[Mapping[str, Kind]] = {"binary": "probability", "direction": "votes", "value": "value"}


def panel_of(question: Question, claims: Mapping[str, Row], weights: PanelWeights) -> PanelItem:
    """Return the panel of the agents' *claims* on a question."""
    metric = metric_of(question.metric)
    kind = _KINDS[metric.kind if metric is not None else "binary"]
    weights = weights.of_values() if kind == "value" else weights
    given = {agent: value for agent, claim in claims.items() if (value := _answer(claim)) is not None}
    pools = _pools(kind, given, weights)
    equal = next((one.answer for one in pools if one.pool == "equal"), None)
    count = sum(not one.baseline for one in weights.answer)
    answers = [
        PanelAnswer(
            **weight_item(one).model_dump(),
            domain=claims[one.agent]["domain"],
            finding=claims[one.agent]["key"],
            answer=given[one.agent],
            answered_at=claims[one.agent]["said_at"],
            moves=0.0 if equal is None or one.baseline else finite(more * given[one.agent] - more * equal.value),
        )
        for one in sorted(weights.answer, key=lambda one: (one.baseline, -one.weight, one.agent))
        for more in (one.weight - 1.0 / max(count, 1),)
    ]
    most = max((one.observations for one in weights.answer), default=0)
    return PanelItem(
        metric=question.metric,
        unit=question.unit,
        period_start=question.period_start,
        target_at=question.target_at,
        domain=_domain(claims, {one.agent for one in weights.answer if one.baseline}),
        kind=kind,
        equal=equal,
        weighted=_weighted(kind, given, weights, pools),
        best=weights.best,
        trust=weights.trust,
        pools=pools,
        evidence="none" if most == 0 else "little" if most < ENOUGH_OBSERVATIONS else "enough",
        answers=answers,
    )


def _pools(kind: Kind, given: Mapping[str, float], weights: PanelWeights) -> list[PoolItem]:
    """Return the pools of the answers *given*, in the order of :data:`POOLS`; values have no other pool by median."""
    pool = pooled_value if kind == "value" else pooled
    voices = {one.agent: given[one.agent] for one in weights.answer if not one.baseline}
    found = []
    for name in POOLS:
        answer: Pool | None = None
        if name == "median" and kind == "value":
            continue
        if voices and name == "median":
            answer = pooled_value(voices)
        elif voices and name == "equal":
            answer = pool(voices)
        elif voices and name in weights.by_pool:
            shares = zip(weights.answer, weights.by_pool[name], strict=True)
            answer = pool(voices, {one.agent: one._replace(weight=share) for one, share in shares})
        record = weights.records.get(name, PoolRecord())
        found.append(PoolItem(pool=name, answer=None if answer is None else _shown(answer), **record._asdict()))
    return found


def _weighted(
    kind: Kind, given: Mapping[str, float], weights: PanelWeights, pools: Sequence[PoolItem]
) -> PooledAnswer | None:
    """Return the panel's answer."""
    by_name = {one.pool: one.answer for one in pools}
    equal, median = by_name["equal"], by_name.get("median")
    if equal is None:
        return None
    if weights.best == "median" and median is not None:
        part = weights.trust
        pairs = ((median.value, equal.value), (median.lower, equal.lower), (median.upper, equal.upper))
        value, lower, upper = (
            None if one is None or other is None else part * one + (1.0 - part) * other for one, other in pairs
        )
        return equal if value is None else PooledAnswer(value=value, lower=lower, upper=upper)
    pool = pooled_value if kind == "value" else pooled
    voices = {one.agent: one for one in weights.answer if not one.baseline}
    return _shown(pool({agent: given[agent] for agent in voices}, voices))


def _shown(pool: Pool) -> PooledAnswer:
    return PooledAnswer(value=pool.value, lower=pool.lower, upper=pool.upper)


def weight_item(one: AgentWeight) -> WeightItem:
    """Return a weight as an answer shows it."""
    return WeightItem(
        agent=one.agent, weight=one.weight, observations=one.observations, loss=one.loss, peer_loss=one.peer_loss,
        bias=one.bias, advantage=one.advantage, shared_with=list(one.shared_with), resemblance=one.resemblance,
        earlier=one.earlier, better_half=one.better_half, baseline=one.baseline, reason=reason_of(one),
    )  # fmt: skip


def reason_of(one: AgentWeight) -> str:
    """Return why an agent has its weight."""
    if one.baseline:
        return "a baseline, which is never pooled"
    if one.loss is None or one.peer_loss is None:
        return "no outcome yet on a question that other agents of the panel answered at about the same time"
    little = ", little evidence" if one.observations < ENOUGH_OBSERVATIONS else ""
    found = (
        f"mean squared error {one.loss:.3f}, other agents {one.peer_loss:.3f} on the same questions, "
        f"in {one.observations} {'observation' if one.observations == 1 else 'observations'}{little}"
    )
    if one.shared_with:
        matched = ", ".join(map(label, one.shared_with))
        found += f"; same answers as {matched}: they share one weight, and the first to answer gets more of it"
    elif one.resemblance >= WORTH_NAMING:
        found += f"; its errors are like those of other agents, which reduces its weight by {one.resemblance:.0%}"
    if one.better_half is not None:
        half = "of the better half" if one.better_half else "not of the better half"
        found += f"; {half} in earlier seasons ({with_noun(one.earlier, ('observation', 'observations'))})"
    return found


def _tags(section: PanelsSection) -> frozenset[str]:
    return frozenset(tags.agent(answer.agent) for item in section.items for answer in item.answers)


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the panels: the consensus, the weighted answer, and the agents that move it."""
    answer = context.briefing.panels
    shown = [item for item in answer.items if len(item.answers) > 1]
    return rendered_section(
        "Pooled answers of the agents",
        answer.model_copy(update={"items": shown, "total": answer.total - len(answer.items) + len(shown)}),
        faded(map(panel_text, shown), WORTH, FADING),
        nouns=("question with several answers", "questions with several answers"),
        call=follow_up_call(context.own, "panel", answer.total),
    )


def panel_text(item: PanelItem) -> str:
    """Return a panel as a list item of up to four lines."""
    topic = Topic(item.metric, item.unit, item.period_start, item.target_at)
    what = "share of votes for up" if item.kind == "votes" else "median" if item.kind == "value" else "mean probability"
    voices = [one for one in item.answers if not one.baseline]
    left = len(item.answers) - len(voices)
    who = f"{topic.text}, {with_noun(len(voices), ('agent', 'agents'))}"
    if item.equal is None or item.weighted is None:
        return (
            f"- {topic.text}: only {with_noun(left, ('baseline', 'baselines'))} answered, so there is no pooled answer."
        )
    without = f", without {with_noun(left, ('baseline', 'baselines'))}" if left else ""
    lines = [f"- {who}: {what} {_pool_text(item, item.equal)} with equal weights{without}."]
    if item.evidence == "none":
        none = "no agent has one yet on questions that other agents of the panel answered"
        lines.append(f"  Weighted by track record: {none}, so the weights are equal.")
        return "\n".join(lines)
    times = sorted(one.weight * len(voices) for one in voices)
    range_text = f"{times[0]:.2f} to {times[-1]:.2f} times the equal weight"
    little = f"; little evidence, so the weights are {range_text}" if item.evidence == "little" else ""
    lines.append(f"  {_best_text(item)}: {_pool_text(item, item.weighted)}{little}.")
    scored = [text for one in item.pools if (text := _record_text(item, one))]
    if scored:
        lines.append(f"  Squared error beside equal weights so far: {'; '.join(scored)}.")
    movers = sorted(voices, key=lambda one: (-abs(one.moves), one.agent))[:MOVERS]
    scale = abs(item.equal.value) if item.kind == "value" else 1.0
    named = [
        f"{label(one.agent)} ({_value(item, one.answer)}, {one.weight * len(voices):.2f} times the equal weight)"
        for one in movers
        if abs(one.moves) >= SELDOM * scale
    ]
    if named:
        lines.append(f"  Moved most by {', '.join(named)}.")
    return "\n".join(lines)


def _best_text(item: PanelItem) -> str:
    """Return in words which pool the answer comes from."""
    match item.best:
        case "seasons":
            return f"Weighted by earlier seasons (better half, {item.trust:.0%}; the rest equal)"
        case "median":
            return f"Median, which did better than weights by then ({item.trust:.0%}; the rest equal)"
        case "equal":
            return "Equal weights, which did better than the other pools"
        case _:
            return "Weighted by track record"


_NAMES: Final[Mapping[PoolName, str]] = {
    "equal": "equal weights", "median": "median", "record": "by track record", "seasons": "by earlier seasons",
}  # fmt: skip


def _record_text(item: PanelItem, one: PoolItem) -> str:
    """Return a pool with its answer and record; nothing for equal weights, and without either."""
    if one.pool == "equal" or one.answer is None or one.gain is None:
        return ""
    text = f"{_NAMES[one.pool]} ({_pool_value(item, one.answer.value)}) {0.0 - one.gain:+.1%}"
    if one.lower is not None and one.upper is not None:
        text += f" [{0.0 - one.upper:+.1%}, {0.0 - one.lower:+.1%}]"
    return f"{text} in {with_noun(one.observations, ('observation', 'observations'))}"


def panel_lines(item: PanelItem) -> list[str]:
    """Return a panel with every answer and the reason of its weight."""
    lines = [panel_text(item), ""]
    for one in item.answers:
        answer = f"{when(one.answered_at)} {label(one.agent)}: {_value(item, one.answer)}"
        lines.append(f"  {answer}, weight {one.weight:.3f}; {one.reason}{_bias_text(item, one)}.")
    return lines


def _bias_text(item: PanelItem, one: PanelAnswer) -> str:
    """Return by how much an agent is too high or too low on average; nothing of votes, and of what is shown as zero."""
    size = abs(one.bias or 0.0)
    if size < SHOWN_BIAS or item.kind == "votes":
        return ""
    text = f"{size:.0%}" if item.kind == "value" else share(size)
    return f"; on average {text} too {'high' if (one.bias or 0.0) > 0.0 else 'low'}"


def _value(item: PanelItem, value: float) -> str:
    if item.kind == "votes":
        return "up" if value > 0.5 else "down"
    return number(value) if item.kind == "value" else share(value)


def _pool_value(item: PanelItem, value: float) -> str:
    return number(value) if item.kind == "value" else share(value)


def _pool_text(item: PanelItem, pool: PooledAnswer) -> str:
    show = number if item.kind == "value" else share
    if pool.lower is None or pool.upper is None:
        return show(pool.value)
    return f"{show(pool.value)} [{show(pool.lower)}, {show(pool.upper)}]"


SECTION: Final = SectionSpec(
    name="panels",
    model=PanelsSection,
    load=load,
    limits=("panels",),
    tags=_tags,
    renderers=(render,),
    item_text=panel_text,
)
