"""
Debates that run: what follows from the acts of the sides, from the time, from records and from a reviewer.

A debate is one lifecycle row. :data:`DEBATES` moves it, in one transaction with the audit rows, the task of a reviewer
and what is recorded: the state of the debate, its resolution, and what a decision against a finding means for its
agent and for the analyses that rest on it. A crash leaves the row as it was; the next round makes up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from imem.credibility.pipelines import CredibilityRuntime
from imem.credibility.scores.auto_resolve import Basis
from imem.credibility.scores.auto_resolve import Verdict as ScoreVerdict
from imem.credibility.scores.reading import AgentScore, agent_scores
from imem.debates.cases import RANKS, SHOWN_DEPENDANTS, ChosenSide, DebateCase, SeenSide, debate_kind
from imem.debates.levels import Level2Verdict, level2_verdict
from imem.debates.recording import decided, facts_of, recorded_state, resolution
from imem.debates.states import AT_LEVEL_1, DEBATE_STATES, Act, DebateAct, DebateFacts, Sides
from imem.debates.stored import KIND, RunningDebate, record_of_debate, task_id_of
from imem.jobs.lifecycle import Effects, Lifecycle, LifecycleRow, TransitionRequest, move
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import json, rows
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import (
    ENDED_DEBATES,
    DebatePriority,
    DebateState,
    ResolutionLevelDebate,
    ResolutionMethod,
)
from imem.kg.kinds.trust import Debate
from imem.kg.load_format.lines import groups_of, link_of, record_of
from imem.review.kinds import Answer, Task
from imem.review.states import TaskState
from imem.review.tasks import open_task, withdraw_task

SCORES_MS: Final = 5_000
"""Budget of reading the scores of both sides, in milliseconds."""

_M, _L = ResolutionMethod, ResolutionLevelDebate


class DebatesRuntime(CredibilityRuntime, Protocol):
    """A runtime that says which score decides."""

    auto_resolution_basis: Basis


# Steps


async def _step(runtime: DebatesRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects | None:
    """Move a debate as far as acts, time and records say."""
    debate = RunningDebate(row)
    if debate.state in ENDED_DEBATES:
        return await _rest(conn, debate)
    end = next((one for one in debate.acts if one.act in {Act.ACCEPT, Act.WITHDRAW}), None)
    if end is not None and end.act is Act.WITHDRAW:
        return await _withdraw(conn, debate, end)
    if debate.state in AT_LEVEL_1:
        if end is not None:
            return await _agree(conn, debate, end, now)
        debate = await _level1(conn, debate, now)
        if debate.state in AT_LEVEL_1:
            return recorded_state(debate) if debate.row is not row else await _rest(conn, debate)
    if debate.state is DebateState.LEVEL2:
        return await _level2(runtime, conn, debate, now)
    return await _rest(conn, debate)


async def _rest(conn: Connection, debate: RunningDebate) -> Effects:
    """Let a debate wait in which nothing follows from an act; show its reviewer what was said."""
    if debate.state is DebateState.LEVEL3:
        for stored in await rows(conn, "task_package", {"task_id": task_id_of(debate.row.key)}):
            case = DebateCase.model_validate(stored["package"])
            sides = {name: _said_since(debate, getattr(case, name)) for name in ("challenger", "challenged")}
            given = {"task_id": stored["task_id"], "package": case.model_copy(update=sides).model_dump_json()}
            await rows(conn, "task_said", given)
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
    closed = await _moved(
        conn, debate, DebateState.CLOSED, DebateFacts(act=act.act), by=act, level=_L.AGENT, method=_M.CONSENSUS,
        winner=debate.sides.other(act.by),
    )  # fmt: skip
    return await decided(conn, closed, now)


async def _withdraw(conn: Connection, debate: RunningDebate, act: DebateAct) -> Effects | None:
    task_id = task_id_of(debate.row.key)
    if await rows(conn, "task_package", {"task_id": task_id}):
        free = await rows(conn, "task_try_lock", {"task_id": task_id})
        if not free or free[0]["requested_at"] is not None:
            # An answer that was stored before counts first.
            return None
    effects = await withdraw_task(conn, task_id, "The challenge was withdrawn.")
    # The default counts no more: the finding stands as it was recorded.
    moved = await _moved(
        conn, debate, DebateState.WITHDRAWN, DebateFacts(act=act.act), by=act, counting=None, default_reason=None
    )
    if debate.state is DebateState.PROVISIONAL:
        effects += resolution(moved, debate.sides.challenged, act.at)
    return effects + recorded_state(moved)


async def _level2(runtime: DebatesRuntime, conn: Connection, debate: RunningDebate, now: datetime) -> Effects:
    """Let records decide, or the judge; else ask a person."""
    data = debate.row.data
    judgment = next((one for one in debate.acts if one.act is Act.JUDGE), None)
    if judgment is not None:
        closed = await _moved(
            conn, debate, DebateState.CLOSED, DebateFacts(act=judgment.act), by=judgment,
            level=_L.FACILITATOR, method=_M.JUDGED, winner=judgment.winner,
        )  # fmt: skip
        return await decided(conn, closed, now)
    compared = await _compared(runtime, debate, now)
    if compared.verdict.winner is not None and debate.unreachable is None:
        sides = debate.sides
        winner = {"a": sides.challenger, "b": sides.challenged}[compared.verdict.winner]
        closed = await _moved(
            conn, debate, DebateState.CLOSED, DebateFacts(decided=True), level=_L.FACILITATOR,
            method=_M.CREDIBILITY_WEIGHTED, differential=compared.differential, winner=winner,
            reason=f"The scores differ by {compared.differential:.2f}.",
        )  # fmt: skip
        return compared.facts(debate) + await decided(conn, closed, now)
    judged = debate.sides.judge is not None and data["priority"] != DebatePriority.CRITICAL_PATH
    entered, limit = debate.row.entered_at, timedelta(seconds=data["judge_s"])
    if judged and debate.unreachable is None and now < entered + limit:
        if data.get("until") is not None:
            return await _rest(conn, debate)
        [waiting] = await rows(conn, "debate_wait", {"debate_id": debate.row.key, "until": entered + limit})
        return compared.facts(debate) + recorded_state(RunningDebate(LifecycleRow.of(waiting)))
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
    return effects + more + recorded_state(waiting_for)


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
        return facts_of(groups_of(Debate, debate.row.key, {"records": Debate.Records(**values)}))


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
    evidence = all(map(debate.evidence, agents))
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


def _said_since(debate: RunningDebate, seen: SeenSide) -> SeenSide:
    """Return a side as the reviewer saw it, with what it has said since; its value is the one stated until then."""
    now = debate.seen(seen.agent, None)
    return seen.model_copy(update={"text": now.text, "evidence": now.evidence})


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
    if answer.by in {debate.sides.challenger, debate.sides.challenged}:
        raise TransitionRefused(f"{answer.by!r:.200} is a side of the debate, and does not decide it.")
    by = DebateAct(act=Act.JUDGE, by=answer.by, role=answer.role, at=answer.at, number=0, text=answer.rationale or "")
    late = debate.state is DebateState.PROVISIONAL
    if answer.action == "redebate":
        return await _again(conn, debate, by, now)
    facts = DebateFacts(decided=True)
    if answer.action == "confirm":
        closed = await _moved(conn, debate, DebateState.CLOSED, facts, by=by, window_closed=now.isoformat())
        return recorded_state(closed)
    level, method = (_L.GATE_REVIEW, _M.OVERRIDE) if late else (_L.HUMAN, _M.HUMAN_BINDING)
    chosen = task.package.side(answer.fields.side) if isinstance(answer.fields, ChosenSide) else None
    closed = await _moved(
        conn, debate, DebateState.CLOSED, facts, by=by, level=level, method=method, counting=None,
        winner=None if chosen is None else chosen.agent, window_closed=now.isoformat() if late else None,
    )  # fmt: skip
    return await decided(conn, closed, now, answer=answer, late=late)


async def _apply_default(conn: Connection, debate: RunningDebate, task: Task[DebateCase], now: datetime) -> Effects:
    provisional = await _moved(
        conn, debate, DebateState.PROVISIONAL, DebateFacts(default=True), level=_L.FALLBACK,
        method=_M.CONSERVATIVE_DEFAULT, defaulted_at=now.isoformat(), reason=None if task.why is None else task.why,
        **_counting(task.package),
    )  # fmt: skip
    return recorded_state(provisional) + resolution(provisional, provisional.row.data["counting"], now)


async def _close_window(conn: Connection, debate: RunningDebate, now: datetime) -> Effects:
    facts, reason = DebateFacts(decided=True), "A human gate of its analysis was decided."
    return recorded_state(
        await _moved(conn, debate, DebateState.CLOSED, facts, reason=reason, window_closed=now.isoformat())
    )


async def _again(conn: Connection, debate: RunningDebate, by: DebateAct, now: datetime) -> Effects:
    """Supersede the debate by a next round between the same sides."""
    old = await _moved(
        conn, debate, DebateState.SUPERSEDED, DebateFacts(decided=True), by=by, window_closed=now.isoformat()
    )
    data = old.row.data
    number, root = data.get("round", 1) + 1, data.get("root", old.row.key)
    keys = [f"{root}/{number}", *(f"{root}/{number}.{again}" for again in range(2, 10))]
    known = await rows(conn, "recorded_cores", {"kinds": ["Debate"] * len(keys), "keys": keys})
    # Anybody may have recorded a debate under the next id.
    key = next(one for one in keys if one not in {row["key"] for row in known})
    until = now + timedelta(seconds=data["acknowledge_s"])
    kept = {name: data[name] for name in _KEPT}
    values = {**kept, "root": root, "round": number, "until": until.isoformat(), "acts": [data["acts"][0]]}
    opened = {"debate_id": key, "about": old.row.about, "now": now, "until": until, "data": json(values)}
    await rows(conn, "debate_next_round", opened)
    core = record_of_debate(key, old.row.about, data, debate.acts[0].text or None, now)
    link = link_of("SUPERSEDES", ("Debate", key), ("Debate", old.row.key))
    return recorded_state(old) + facts_of(record_of(core), link)


_KEPT: Final = (
    "challenger", "challenged", "judge", "priority", "metric", "finding_id", "finding_value", "subject_id", "domain",
    "topic", "wanted", "acknowledge_s", "evidence_s", "judge_s", "answer_s",
)  # fmt: skip
"""The values that the next round of a debate takes over."""


DEBATES: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)

DEBATE: Final = debate_kind(_apply)
