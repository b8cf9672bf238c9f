"""
Debates that run: what follows from the acts of the sides, from the time, from records and from a reviewer.

A debate is one lifecycle row. :data:`DEBATES` moves it, in one transaction with the audit rows, the task of a reviewer
and what is recorded: the state of the debate, its resolution, and what a decision against a finding means for its
agent and for the analyses that rest on it. A crash leaves the row as it was; the next round makes up for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from imem.alerts.store import NewAlert, Severity
from imem.credibility.pipelines import CredibilityRuntime
from imem.credibility.regimes.runs import CHANGED, SCORES
from imem.credibility.scores.auto_resolve import Basis
from imem.credibility.scores.auto_resolve import Verdict as ScoreVerdict
from imem.credibility.scores.reading import AgentScore, agent_scores
from imem.debates.cases import RANKS, SHOWN_DEPENDANTS, ChosenSide, DebateCase, SeenScore, SeenSide, debate_kind
from imem.debates.defaults import ConservativeDefault, DefaultReason, StatedPosition, conservative_default
from imem.debates.impact import Impact, impact
from imem.debates.levels import Level2Verdict, level2_verdict
from imem.debates.states import AT_LEVEL_1, DEBATE_STATES, Act, DebateAct, DebateFacts, Sides
from imem.jobs.due import make_due
from imem.jobs.lifecycle import Effects, Lifecycle, LifecycleRow, TransitionRequest, move
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import (
    DebatePriority,
    DebateState,
    OverrideReason,
    ResolutionLevelDebate,
    ResolutionMethod,
)
from imem.kg.kinds.trust import Debate, DebateResolution, HumanOverride
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, link_of, record_of
from imem.review.kinds import Answer, Task
from imem.review.states import TaskState
from imem.review.tasks import open_task, withdraw_task

KIND: Final = "debate"
"""Kind of the lifecycle rows."""

FACILITATOR: Final = Actor("debates", Role.DEBATE_FACILITATOR)
"""The actor that records what becomes of debates."""

OVERRIDDEN_ALERT: Final = "POSITION_OVERRIDDEN"
"""Kind of the alert about an analysis that rests on a finding which lost a debate."""

DEPENDANTS: Final = 1_000
"""Most analyses that one decision is told to."""

SCORES_MS: Final = 5_000
"""Budget of reading the scores of both sides, in milliseconds."""

_M, _L = ResolutionMethod, ResolutionLevelDebate


class DebatesRuntime(CredibilityRuntime, Protocol):
    """A runtime that says which score decides."""

    auto_resolution_basis: Basis


@dataclass(frozen=True, slots=True)
class RunningDebate:
    """The row of a debate, read."""

    row: LifecycleRow

    @property
    def state(self) -> DebateState:
        """Return its state."""
        return DebateState(self.row.state)

    @property
    def sides(self) -> Sides:
        """Return who takes part."""
        data = self.row.data
        return Sides(challenger=data["challenger"], challenged=data["challenged"], judge=data.get("judge"))

    @property
    def acts(self) -> list[DebateAct]:
        """Return the acts, in order."""
        return [DebateAct.of(one) for one in self.row.data["acts"]]

    @property
    def until(self) -> datetime | None:
        """Return when the time of the state is over; None for a state without a limit."""
        stored = self.row.data.get("until")
        return None if stored is None else datetime.fromisoformat(stored)

    @property
    def snapshot_id(self) -> str | None:
        """Return the snapshot that the sides argue from; None before it was taken."""
        found: str | None = (self.row.data.get("snapshot") or {}).get("id")
        return found

    @property
    def unreachable(self) -> str | None:
        """Return why there will be no snapshot: a side cannot be synchronised, and a person is to decide."""
        found: str | None = (self.row.data.get("snapshot") or {}).get("unreachable")
        return found

    @property
    def metric(self) -> str | None:
        """Return what the positions are values of."""
        found: str | None = self.row.data.get("metric")
        return found

    def value(self, agent: str) -> float | str | None:
        """Return the last position that a side stated; that of the disputed finding for the challenged side."""
        stated = [one.value for one in self.acts if one.by == agent and one.value is not None]
        if stated:
            return stated[-1]
        found: float | str | None = self.row.data.get("finding_value") if agent == self.sides.challenged else None
        return found

    def seen(self, agent: str, score: AgentScore | None) -> SeenSide:
        """Return a side as a reviewer sees it."""
        its = [one for one in self.acts if one.by == agent]
        texts = [one.text for one in its if one.text and one.act in {Act.CHALLENGE, Act.RESPOND}]
        found = None
        if score is not None:
            mean = score.posterior
            found = SeenScore(n=score.scope_n, score=mean.mean, lower=mean.lower, upper=mean.upper)
        return SeenSide(
            agent=agent,
            text=texts[-1] if texts else "",
            value=self.value(agent),
            evidence=tuple(dict.fromkeys(key for one in its for key in one.evidence)),
            score=found,
        )

    def default(self) -> ConservativeDefault:
        """Return the cautious position: what counts while nobody has decided."""
        sides = self.sides
        positions: list[StatedPosition] = []
        for agent in (sides.challenger, sides.challenged):
            value = self.value(agent)
            if value is None:
                return ConservativeDefault(None, tuple(positions), None, DefaultReason.NOT_COMPARABLE)
            positions.append(StatedPosition(agent, value))
        return conservative_default(self.metric, positions)


# Steps


async def _step(runtime: DebatesRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects | None:
    """Move a debate as far as acts, time and records say."""
    debate = RunningDebate(row)
    end = next((one for one in debate.acts if one.act in {Act.ACCEPT, Act.WITHDRAW}), None)
    if end is not None and end.act is Act.WITHDRAW:
        return await _withdraw(conn, debate, end)
    if debate.state in AT_LEVEL_1:
        if end is not None:
            return await _agree(conn, debate, end, now)
        debate = await _level1(conn, debate, now)
        if debate.state in AT_LEVEL_1:
            return _recorded(debate) if debate.row is not row else await _rest(conn, debate)
    if debate.state is DebateState.LEVEL2:
        return await _level2(runtime, conn, debate, now)
    return await _rest(conn, debate)


async def _rest(conn: Connection, debate: RunningDebate) -> Effects:
    """Let a debate in which nothing follows from an act wait until its time is over."""
    await rows(conn, "debate_wait", {"debate_id": debate.row.key, "until": debate.until})
    return Effects()


def _asked(debate: RunningDebate, act: DebateAct, after: DebateState) -> LifecycleRow:
    """Return the row with *act* as its request, so that the audit names who did it."""
    text = act.text or act.act.value
    request = TransitionRequest(state=after.value, actor=act.by, role=act.role, reason=text, details={}, at=act.at)
    return replace(debate.row, request=request)


async def _level1(conn: Connection, debate: RunningDebate, now: datetime) -> RunningDebate:
    """Take note of an acknowledgement, and end level 1 when its time is over or both sides stand."""
    challenged = debate.sides.challenged
    answer = next(
        (one for one in debate.acts if one.by == challenged and one.act in {Act.ACKNOWLEDGE, Act.RESPOND}), None
    )
    if debate.state is DebateState.INITIATED and answer is not None:
        until = debate.row.opened_at + timedelta(seconds=debate.row.data["evidence_s"])
        after = DebateState.LEVEL1
        debate = await _moved(conn, debate, after, DebateFacts(act=answer.act), until=until, by=answer)
    standing = {one.by for one in debate.acts if one.act is Act.STAND}
    both = {debate.sides.challenger, debate.sides.challenged} <= standing
    late = debate.until is not None and now >= debate.until
    lost = debate.unreachable
    if not (late or both or lost):
        return debate
    reason = lost or ("Both sides stand." if both else f"The time of {debate.state} is over.")
    facts = DebateFacts(late=late, both_stand=both, unreachable=lost is not None)
    return await _moved(conn, debate, DebateState.LEVEL2, facts, until=None, reason=reason)


async def _moved(
    conn: Connection,
    debate: RunningDebate,
    after: DebateState,
    facts: DebateFacts,
    *,
    until: datetime | None = None,
    by: DebateAct | None = None,
    reason: str | None = None,
    **data: Any,
) -> RunningDebate:
    row = debate.row if by is None else _asked(debate, by, after)
    kept = {**debate.row.data, **data, "until": None if until is None else until.isoformat()}
    return RunningDebate(await move(conn, DEBATE_STATES, row, after, facts, due_at=until, data=kept, reason=reason))


async def _agree(conn: Connection, debate: RunningDebate, act: DebateAct, now: datetime) -> Effects:
    """Close a debate of which a side accepts the other's position."""
    winner = debate.sides.other(act.by)
    closed = await _moved(
        conn, debate, DebateState.CLOSED, DebateFacts(act=act.act), by=act, level=_L.AGENT, method=_M.CONSENSUS,
        winner=winner,
    )  # fmt: skip
    return await _decided(conn, closed, winner, now)


async def _withdraw(conn: Connection, debate: RunningDebate, act: DebateAct) -> Effects:
    effects = await withdraw_task(conn, task_id_of(debate.row.key), "The challenge was withdrawn.")
    moved = await _moved(conn, debate, DebateState.WITHDRAWN, DebateFacts(act=act.act), by=act)
    return effects + _recorded(moved)


async def _level2(runtime: DebatesRuntime, conn: Connection, debate: RunningDebate, now: datetime) -> Effects:
    """Let records decide, or the judge; else ask a person."""
    data = debate.row.data
    judgment = next((one for one in debate.acts if one.act is Act.JUDGE), None)
    if judgment is not None:
        closed = await _moved(
            conn, debate, DebateState.CLOSED, DebateFacts(act=judgment.act), by=judgment,
            level=_L.FACILITATOR, method=_M.JUDGED, winner=judgment.winner,
        )  # fmt: skip
        return await _decided(conn, closed, str(judgment.winner), now)
    compared = await _compared(runtime, debate, now)
    if compared.verdict.winner is not None and debate.unreachable is None:
        sides = debate.sides
        winner = {"a": sides.challenger, "b": sides.challenged}[compared.verdict.winner]
        closed = await _moved(
            conn, debate, DebateState.CLOSED, DebateFacts(decided=True), level=_L.FACILITATOR,
            method=_M.CREDIBILITY_WEIGHTED, differential=compared.differential, winner=winner,
            reason=f"The scores differ by {compared.differential:.2f}.",
        )  # fmt: skip
        return compared.facts(debate) + await _decided(conn, closed, winner, now)
    judged = debate.sides.judge is not None and data["priority"] != DebatePriority.CRITICAL_PATH
    entered, limit = debate.row.entered_at, timedelta(seconds=data["judge_s"])
    if judged and debate.unreachable is None and now < entered + limit:
        if data.get("until") is not None:
            return await _rest(conn, debate)
        [waiting] = await rows(conn, "debate_wait", {"debate_id": debate.row.key, "until": entered + limit})
        return compared.facts(debate) + _recorded(RunningDebate(LifecycleRow.of(waiting)))
    effects = compared.facts(debate)
    asked = {"finding_id": data["finding_id"], "analysis_id": debate.row.about, "limit": SHOWN_DEPENDANTS}
    resting = [row["analysis_id"] for row in await rows(conn, "dependants_of_finding", asked)]
    package = _case(debate, compared, resting)
    task, more = await open_task(
        runtime, conn, DEBATE, package, task_id=task_id_of(debate.row.key), rank=RANKS[package.priority],
        analysis_id=debate.row.about, subject_ids=[package.subject_id], due=timedelta(seconds=data["answer_s"]),
    )  # fmt: skip
    if task.state is not TaskState.OPEN:
        return effects + more
    waiting_for = await _moved(
        conn, debate, DebateState.LEVEL3, DebateFacts(), level=_L.HUMAN, reason=compared.verdict.reason.value,
        **_counting(package),
    )  # fmt: skip
    return effects + more + _recorded(waiting_for)


def task_id_of(debate_id: str) -> str:
    """Return the id of the review task of a debate."""
    return str(id_of("debate task", debate_id))


# Records of the sides


@dataclass(frozen=True, slots=True)
class Compared:
    """The scores of both sides in the domain of the finding, and what they say."""

    scores: tuple[AgentScore | None, AgentScore | None]
    verdict: Level2Verdict

    @property
    def in_force(self) -> ScoreVerdict | None:
        """Return the verdict in force; None where a side has no record."""
        return None if self.verdict.scores is None else self.verdict.scores.effective

    @property
    def differential(self) -> float | None:
        """Return by how much the scores differ."""
        return None if self.in_force is None else self.in_force.differential

    def facts(self, debate: RunningDebate) -> Effects:
        """Return what was compared, on both bases, as a group of the debate."""
        found = self.verdict.scores
        values: dict[str, Any] = {"reason": self.verdict.reason.value, "domain": debate.row.data["domain"]}
        for name, score in zip(("challenger", "challenged"), self.scores, strict=True):
            if score is not None:
                mean = score.posterior
                values |= {f"{name}_n": score.scope_n, f"{name}_score": mean.mean}
                values |= {f"{name}_lower": mean.lower, f"{name}_upper": mean.upper}
        if found is not None:
            values["basis"] = found.effective.basis.value
            for verdict in (found.posterior, found.as_designed):
                prefix = verdict.basis.value
                values[f"{prefix}_resolved"] = verdict.resolved
                values |= {
                    f"{prefix}_{name}": value
                    for name in ("differential", "threshold")
                    if (value := getattr(verdict, name)) is not None
                }
        return _facts(groups_of(Debate, debate.row.key, {"records": Debate.Records(**values)}))


async def _compared(runtime: DebatesRuntime, debate: RunningDebate, now: datetime) -> Compared:
    data, sides = debate.row.data, debate.sides
    agents = (sides.challenger, sides.challenged)
    pairs = [(agent, data["domain"]) for agent in agents]
    found, waiting = await agent_scores(
        runtime.database, pairs, AsOf(now), context=None, halflife_years=runtime.halflife_years,
        deadline=Deadline.after_ms(SCORES_MS),
    )  # fmt: skip
    by_agent = {one.record.agent: one for one in found}
    scores = by_agent.get(agents[0]), by_agent.get(agents[1])
    age = timedelta() if waiting is None else now - waiting
    a, b = (None if one is None else one.contender(age) for one in scores)
    evidence = all(any(one.by == agent and one.evidence for one in debate.acts) for agent in agents)
    verdict = level2_verdict(
        a, b, priority=DebatePriority(data["priority"]), evidence=evidence, basis=runtime.auto_resolution_basis
    )
    return Compared(scores, verdict)


# What a reviewer sees, and what an answer means


def _case(debate: RunningDebate, compared: Compared, resting: Sequence[str]) -> DebateCase:
    data, sides, default = debate.row.data, debate.sides, debate.default()
    verdict, (first, second) = compared.in_force, compared.scores
    recommended: Literal["challenger", "challenged"] | None = None
    if first is not None and second is not None and first.posterior.mean != second.posterior.mean:
        recommended = "challenger" if first.posterior.mean > second.posterior.mean else "challenged"
    taken = default.position
    return DebateCase(
        debate_id=debate.row.key,
        topic=data["topic"],
        subject_id=data["subject_id"],
        priority=DebatePriority(data["priority"]),
        metric=debate.metric,
        finding_id=data["finding_id"],
        challenger=debate.seen(sides.challenger, first),
        challenged=debate.seen(sides.challenged, second),
        wanted=tuple(data.get("wanted", ())),
        escalated=compared.verdict.reason,
        differential=compared.differential,
        threshold=None if verdict is None else verdict.threshold,
        recommended=recommended,
        default_side=None if taken is None else _side_of(sides, taken.agent),
        default_reason=default.reason.value,
        dependants=tuple(resting),
    )


def _side_of(sides: Sides, agent: str) -> Literal["challenger", "challenged"]:
    return "challenger" if agent == sides.challenger else "challenged"


def _counting(case: DebateCase) -> dict[str, Any]:
    """Return what counts while nobody has decided, for the row."""
    taken = case.side(case.default_side)
    return {"counting": None if taken is None else taken.agent, "default_reason": case.default_reason}


async def _apply(
    _runtime: DebatesRuntime, conn: Connection, task: Task[DebateCase], answer: Answer | None, now: datetime
) -> Effects:
    """Give an answer, or its absence, its effect on the debate."""
    [found] = await rows(conn, "debate_lock", {"debate_id": task.package.debate_id})
    debate = RunningDebate(LifecycleRow.of(found))
    if task.state is TaskState.CLOSED:
        return await _close_window(conn, debate, now)
    if answer is None:
        return await _apply_default(conn, debate, task, now)
    by = DebateAct(act=Act.JUDGE, by=answer.by, role=answer.role, at=answer.at, number=0, text=answer.rationale or "")
    late = debate.state is DebateState.PROVISIONAL
    if answer.action == "redebate":
        return await _again(conn, debate, by, now)
    facts = DebateFacts(decided=True)
    if answer.action == "confirm":
        closed = await _moved(conn, debate, DebateState.CLOSED, facts, by=by, window_closed=now.isoformat())
        return _recorded(closed)
    level, method = (_L.GATE_REVIEW, _M.OVERRIDE) if late else (_L.HUMAN, _M.HUMAN_BINDING)
    chosen = task.package.side(answer.fields.side) if isinstance(answer.fields, ChosenSide) else None
    winner = None if chosen is None else chosen.agent
    window = now.isoformat() if late else None
    closed = await _moved(
        conn, debate, DebateState.CLOSED, facts, by=by, level=level, method=method, counting=None, winner=winner,
        window_closed=window,
    )  # fmt: skip
    return await _decided(conn, closed, winner, now, answer=answer, late=late)


async def _apply_default(conn: Connection, debate: RunningDebate, task: Task[DebateCase], now: datetime) -> Effects:
    provisional = await _moved(
        conn, debate, DebateState.PROVISIONAL, DebateFacts(default=True), level=_L.FALLBACK,
        method=_M.CONSERVATIVE_DEFAULT, defaulted_at=now.isoformat(), reason=None if task.why is None else task.why,
        **_counting(task.package),
    )  # fmt: skip
    return _recorded(provisional) + _resolution(provisional, provisional.row.data["counting"], now)


async def _close_window(conn: Connection, debate: RunningDebate, now: datetime) -> Effects:
    facts, reason = DebateFacts(decided=True), "A human gate of its analysis was decided."
    return _recorded(
        await _moved(conn, debate, DebateState.CLOSED, facts, reason=reason, window_closed=now.isoformat())
    )


async def _again(conn: Connection, debate: RunningDebate, by: DebateAct, now: datetime) -> Effects:
    """Supersede the debate by a next round between the same sides."""
    old = await _moved(
        conn, debate, DebateState.SUPERSEDED, DebateFacts(decided=True), by=by, window_closed=now.isoformat()
    )
    data = old.row.data
    number, root = data.get("round", 1) + 1, data.get("root", old.row.key)
    key = f"{root}/{number}"
    until = now + timedelta(seconds=data["acknowledge_s"])
    kept = {name: data[name] for name in _KEPT if name in data}
    values = {**kept, "root": root, "round": number, "until": until.isoformat(), "acts": [data["acts"][0]]}
    opened = {"debate_id": key, "about": old.row.about, "now": now, "until": until, "data": json(values)}
    await rows(conn, "debate_next_round", opened)
    sides = old.sides
    core = Debate(
        id=key, subject_id=data["subject_id"], analysis_id=old.row.about, topic=data["topic"],
        challenger_agent=sides.challenger, challenged_agent=sides.challenged,
        participants=sorted({sides.challenger, sides.challenged}), disputed_finding=data["finding_id"],
        challenge_basis=debate.acts[0].text or None, timestamp=now, priority=DebatePriority(data["priority"]),
        judge=sides.judge, metric=old.metric,
    )  # fmt: skip
    link = link_of("SUPERSEDES", ("Debate", key), ("Debate", old.row.key))
    return _recorded(old) + _facts(record_of(core), link)


_KEPT: Final = (
    "challenger", "challenged", "judge", "priority", "metric", "finding_id", "finding_value", "subject_id", "domain",
    "topic", "wanted", "acknowledge_s", "evidence_s", "judge_s", "answer_s",
)  # fmt: skip
"""What the next round of a debate takes over."""


# What is recorded


def _facts(*lines: Any) -> Effects:
    return Effects(facts=[(FACILITATOR, Action.APPEND_DEBATES, entry_of(line)) for line in lines])


def _recorded(debate: RunningDebate) -> Effects:
    """Return the state of the debate as a group of its record."""
    data, state = debate.row.data, debate.state
    counting, default = data.get("counting"), data.get("default_reason")
    position = _position(debate, data.get("winner") or counting)
    if position is None and default is not None and "winner" not in data:
        position = f"uncertain: {default}"
    closed = data.get("window_closed")
    values = Debate.State(
        state=state,
        resolution_level=data.get("level"),
        resolution_method=data.get("method"),
        final_position=position,
        provisional=state in {DebateState.LEVEL3, DebateState.PROVISIONAL},
        override_window_closed=None if closed is None else datetime.fromisoformat(closed),
        defaulted_at=None if data.get("defaulted_at") is None else datetime.fromisoformat(data["defaulted_at"]),
        level_deadline=debate.until,
        snapshot_id=debate.snapshot_id,
        version=debate.row.version,
    )
    return _facts(groups_of(Debate, debate.row.key, {"state": values}))


def _position(debate: RunningDebate, agent: str | None) -> str | None:
    """Return the position of a side as a text."""
    if agent is None:
        return None
    value, metric = debate.value(agent), debate.metric
    if value is not None:
        return f"{metric or 'value'} {value} ({agent})"
    return f"the position of {agent}"


def _resolution_id(debate: RunningDebate) -> str:
    return f"{debate.row.key}/{debate.row.version}"


def _resolution(debate: RunningDebate, winner: str | None, now: datetime) -> Effects:
    data = debate.row.data
    taken = DebateResolution(
        id=_resolution_id(debate),
        debate_id=debate.row.key,
        winning_position=_position(debate, winner) or "uncertain",
        winning_agent=winner,
        credibility_differential=data.get("differential"),
        resolution_time_seconds=max(0, round((now - debate.row.opened_at).total_seconds())),
    )
    return _facts(record_of(taken))


async def _decided(
    conn: Connection,
    debate: RunningDebate,
    winner: str | None,
    now: datetime,
    *,
    answer: Answer | None = None,
    late: bool = False,
) -> Effects:
    """Record a decision, and what it means for the finding that it goes against."""
    sides, data = debate.sides, debate.row.data
    effects = _recorded(debate) + _resolution(debate, winner, now)
    if winner != sides.challenger:
        told: Sequence[str] = ()
        changed = None
    else:
        before, after = data.get("finding_value"), debate.value(sides.challenger)
        known = before is not None and after is not None
        changed = impact(debate.metric or "", before, after) if known else None  # type: ignore[arg-type]
        asked = {"finding_id": data["finding_id"], "analysis_id": debate.row.about, "limit": DEPENDANTS}
        told = [row["analysis_id"] for row in await rows(conn, "dependants_of_finding", asked)]
        effects += Effects(alerts=list(_reruns(debate, told, changed)))
        # A lost challenge is a critical trigger: the scores of the side are published anew.
        await make_due(conn, SCORES, CHANGED, [f"{sides.challenged}/{data['domain']}"])
    if answer is not None:
        effects += _reviewed(debate, answer, told, changed, against=winner == sides.challenger, late=late, now=now)
    return effects


def _reruns(debate: RunningDebate, told: Sequence[str], changed: Impact | None) -> Iterator[NewAlert]:
    """Yield an alert for each analysis that is to be computed again; a small change is noted alone."""
    if changed is not None and not changed.rerun:
        return
    for analysis in told:
        reason = f"It rests on the finding {debate.row.data['finding_id']}, which lost the debate {debate.row.key}."
        yield NewAlert(
            alert_id=id_of("position overridden", _resolution_id(debate), analysis), kind=OVERRIDDEN_ALERT,
            severity=Severity.HIGH, subject=debate.row.data["subject_id"], analysis_id=analysis,
            payload={"debate_id": debate.row.key, "reason": reason[:2000]},
        )  # fmt: skip


def _reviewed(
    debate: RunningDebate,
    answer: Answer,
    told: Sequence[str],
    changed: Impact | None,
    *,
    against: bool,
    late: bool,
    now: datetime,
) -> Effects:
    """Return what a person's decision records in the person's name: the review, and the override of the finding."""
    person = Actor(answer.by, Role.HUMAN_ADMIN)
    verb = "rerun" if changed is None or changed.rerun else "noted"
    review = DebateResolution.Review(
        human_override=late,
        override_rationale=answer.rationale,
        downstream_impact=[f"{verb}: {analysis}" for analysis in told] or None,
    )
    line = groups_of(DebateResolution, _resolution_id(debate), {"review": review}, writer="gates")
    effects = Effects(facts=[(person, Action.APPEND_GATES, entry_of(line))])
    if not against:
        return effects
    data = debate.row.data
    override = HumanOverride(
        id=f"debate:{_resolution_id(debate)}", agent=debate.sides.challenged, domain=data["domain"],
        finding_id=data["finding_id"], reason=OverrideReason.OTHER,
        rationale=answer.rationale or f"The debate {debate.row.key} was decided for {debate.sides.challenger}.",
        overridden_at=min(answer.at, now),
    )  # fmt: skip
    return effects + Effects(facts=[(person, Action.APPEND, entry_of(record_of(override)))])


DEBATES: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)

DEBATE: Final = debate_kind(_apply)
