"""
The actions of agents in debates: challenge a finding, answer, and end a debate by agreement.

An act is stored in the row of the debate together with its audit row and, where the actor says something, with the
turn that it records, in one transaction. The pipeline decides within seconds what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from math import isfinite
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from imem.debates.defaults import RATING, RATINGS
from imem.debates.states import AT_LEVEL_1, ENDING, KEPT_CHARS, Act, DebateAct, check_act
from imem.debates.stored import RunningDebate, record_of_debate, task_id_of
from imem.jobs.lifecycle import LifecycleRow
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, TransitionRefused, UnknownDebate
from imem.journal.events.entry import AppendStatus, JournalEntry, Tier
from imem.journal.events.ids import id_of
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Settings
from imem.kg.asof import AsOf, dated
from imem.kg.kinds.enums import ENDED_DEBATES, DebatePriority, DebateState
from imem.kg.kinds.fields import shown
from imem.kg.kinds.metrics import metric_of
from imem.kg.kinds.trust import Debate, DebateTurn
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of


class DebateSide(BaseModel):
    """
    A side of a debate.

    Attributes:
        agent: who it is.
        value: its position on the metric, in the metric's unit, or a rating; None: it stated none.
        evidence: ids of findings that it rests on.
        stands: whether it has nothing more to say at level 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str
    value: float | str | None = None
    evidence: tuple[str, ...] = ()
    stands: bool = False


class DebateProgress(BaseModel):
    """
    Where a debate stands.

    Attributes:
        debate_id, finding_id, subject_id, topic, priority, metric, judge: of the debate.
        finding_value: the value of the disputed finding, as it was when it was challenged.
        state: its state; acts have their effect within seconds.
        until: when the time of the state is over; None: it has no limit.
        turn: whose turn it is: a side's at level 1, the judge's at level 2; None: it waits for none of them.
        challenger, challenged: the sides.
        required: evidence that the challenger asks for.
        provisional: whether what counts may still be overridden.
        counts: the side whose position counts; None while nothing does, or where the value is uncertain.
        task_id: of the review task, from level 3 on.
        snapshot_id: of the evidence that the sides argue from; None in the first seconds, and where a side could not be
            synchronised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    debate_id: str
    finding_id: str
    subject_id: str
    topic: str
    priority: DebatePriority
    metric: str | None
    judge: str | None
    finding_value: float | str | None = None
    state: DebateState
    until: datetime | None
    turn: str | None = None
    challenger: DebateSide
    challenged: DebateSide
    required: tuple[str, ...] = ()
    provisional: bool = False
    counts: str | None = None
    task_id: str | None = None
    snapshot_id: str | None = None

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return self.state in ENDED_DEBATES


def progress_of(debate: RunningDebate, task_due: datetime | None = None) -> DebateProgress:
    """Return where *debate* stands; *task_due*: until when a reviewer has time, at level 3."""
    data = debate.row.data

    def side(agent: str) -> DebateSide:
        stands = any(one.by == agent and one.act is Act.STAND for one in debate.acts)
        return DebateSide(agent=agent, value=debate.value(agent), evidence=debate.evidence(agent), stands=stands)

    asked = debate.state in {DebateState.LEVEL3, DebateState.PROVISIONAL}
    return DebateProgress(
        debate_id=debate.row.key,
        finding_id=data["finding_id"],
        subject_id=data["subject_id"],
        topic=data["topic"],
        priority=DebatePriority(data["priority"]),
        metric=debate.metric,
        judge=data.get("judge"),
        finding_value=data.get("finding_value"),
        state=debate.state,
        until=debate.until or task_due,
        turn=_turn_of(debate),
        challenger=side(debate.sides.challenger),
        challenged=side(debate.sides.challenged),
        required=tuple(data.get("wanted", ())),
        provisional=asked,
        counts=data.get("winner") or data.get("counting"),
        task_id=task_id_of(debate.row.key) if asked else None,
        snapshot_id=debate.snapshot_id,
    )


@dataclass(frozen=True, slots=True)
class DebateLimits:
    """
    How long the levels of a debate last, in seconds, as the settings say it: a number, and others by priority.

    Attributes:
        acknowledge: until a challenge is acknowledged.
        evidence: from the challenge until level 1 ends.
        judge: until the judge decides.
        answer: until a reviewer decides.
    """

    acknowledge: str
    evidence: str
    judge: str
    answer: str

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        """Return the limits that *settings* say."""
        names = (each.name for each in fields(cls))
        return cls(**{name: getattr(settings, f"debate_{name}_s") for name in names})

    def of(self, priority: DebatePriority) -> dict[str, float]:
        """Return the limits of a priority, for the row of a debate."""
        return {f"{name}_s": _seconds(text, priority) for name, text in asdict(self).items()}


def _seconds(text: str, priority: DebatePriority) -> float:
    rest, *named = text.split(",")
    by_priority = dict(one.split("=") for one in named)
    return float(by_priority.get(priority.value, rest))


def _turn_of(debate: RunningDebate) -> str | None:
    """Return whose turn it is: the side that the other one spoke to last, unless it stands; the judge at level 2."""
    sides, acts = debate.sides, debate.acts
    if any(one.act in ENDING for one in acts):
        return None
    if debate.state is DebateState.LEVEL2:
        return sides.judge if debate.until is not None else None
    if debate.state not in AT_LEVEL_1:
        return None
    standing = {one.by for one in acts if one.act is Act.STAND}
    spoke = next(one.by for one in reversed(acts) if one.act is not Act.ACKNOWLEDGE)
    return next((one for one in (sides.other(spoke), spoke) if one not in standing), None)


class _IdTaken(BadInput):
    """Somebody else recorded a debate under the id."""


_ATTEMPTS: Final = 8
"""Ids that a challenge tries: anybody may have recorded a debate under the first."""


class Debates:
    """
    Debates of the application: their acts, and what is read of them.

    Args:
        gateway: appends the records.
        limits: how long the levels last.
    """

    def __init__(self, gateway: Gateway, limits: DebateLimits) -> None:
        self._gateway = gateway
        self._database = gateway.database
        self._limits = limits

    async def read(self, debate_id: str, *, deadline: Deadline) -> DebateProgress:
        """
        Return where a debate stands.

        Raises:
            UnknownDebate: no such debate was opened by a challenge.
        """
        [found] = await self._progress([await self._row(debate_id, deadline)], deadline)
        return found

    async def running(
        self, *, agent: str | None, analysis_id: str | None, limit: int, deadline: Deadline
    ) -> list[DebateProgress]:
        """Return the debates that have not ended, those whose time is over first at the top."""
        states = [one.value for one in DebateState if one not in ENDED_DEBATES]
        given = {"states": states, "agent": agent, "analysis_id": analysis_id, "limit": limit}
        found = await self._database.named("debates_running", given, deadline=deadline)
        return await self._progress(found, deadline)

    async def _progress(self, found: Sequence[Row], deadline: Deadline) -> list[DebateProgress]:
        debates = [RunningDebate(LifecycleRow.of(row)) for row in found]
        # At level 3 the time is that of the reviewer's task.
        asked = [task_id_of(one.row.key) for one in debates if one.state is DebateState.LEVEL3]
        due = {}
        if asked:
            rows_ = await self._database.named("tasks_still_open", {"task_ids": asked}, deadline=deadline)
            due = {row["key"]: row["due_at"] for row in rows_}
        return [progress_of(one, due.get(task_id_of(one.row.key))) for one in debates]

    async def challenge(
        self,
        finding_id: str,
        *,
        basis: str,
        value: float | str | None,
        evidence: Sequence[str],
        required: Sequence[str],
        priority: DebatePriority,
        judge: str | None,
        topic: str | None,
        metric: str | None,
        by: Actor,
        deadline: Deadline,
    ) -> DebateProgress:
        """Open a debate; see :meth:`imem.memory.Memory.challenge`."""
        core, moment = await self._finding(finding_id, evidence, deadline)
        challenged = core["agent"]
        if challenged == by.id:
            raise BadInput("finding_id", "is your own finding: state a new one instead of challenging it.")
        if judge in {by.id, challenged}:
            raise BadInput("judge", "is a side of the debate.")
        about = core.get("metric") or metric
        if metric is not None and metric != about:
            raise BadInput("metric", f"is that of the finding, {about}: the positions are values of it.")
        _check_value(about, value)
        said = topic if topic is not None else core["statement"][:200]
        limits = self._limits.of(priority)
        data = {
            "challenger": by.id, "challenged": challenged, "judge": judge, "priority": priority.value, "metric": about,
            "finding_id": finding_id, "finding_value": core.get("value", core.get("probability")),
            "subject_id": core["subject_id"], "domain": core["domain"], "topic": said, "wanted": list(required),
            **limits,
        }  # fmt: skip
        act = DebateAct(
            act=Act.CHALLENGE, by=by.id, role=by.role.value, at=moment, number=1, text=basis[:KEPT_CHARS], value=value,
            evidence=tuple(evidence),
        )  # fmt: skip
        opened = {
            "analysis_id": core["analysis_id"],
            "until": moment + timedelta(seconds=limits["acknowledge_s"]), "data": json(data), "act": json(act.stored()),
            "actor": by.id, "role": by.role.value, "context": context_of(by),
        }  # fmt: skip
        made = partial(record_of_debate, analysis_id=core["analysis_id"], data=data, basis=basis, at=moment)
        return await self._open(finding_id, made, opened, (act, basis), by=by, deadline=deadline)

    async def _open(
        self,
        finding_id: str,
        made: Callable[[str], Debate],
        opened: Row,
        said: tuple[DebateAct, str],
        *,
        by: Actor,
        deadline: Deadline,
    ) -> DebateProgress:
        """Open a debate under the first id under which no stranger has recorded one."""
        act, basis = said
        for attempt in range(_ATTEMPTS):
            debate_id = str(id_of("debate", by.id, finding_id, *([str(attempt)] if attempt else [])))
            core = made(debate_id)
            turn = _turn(debate_id, core.subject_id, act, basis)
            entries = [entry_of(record_of(core)), entry_of(record_of(turn))]
            try:
                async with self._database.transaction(deadline) as conn:
                    found = await rows(conn, "debate_open", {**opened, "debate_id": debate_id})
                    if found:
                        await self._append(conn, entries, by, deadline)
            except _IdTaken:
                continue
            if not found:
                return await self._challenged_before(debate_id, act, deadline)
            await self._gateway.publish_wakeup(tuple(Tier))
            return progress_of(RunningDebate(LifecycleRow.of(found[0])))
        raise BadInput("finding_id", "cannot be challenged: others recorded debates under the ids of the challenge.")

    async def _challenged_before(self, debate_id: str, act: DebateAct, deadline: Deadline) -> DebateProgress:
        """Return the debate that the same challenge opened; refuse another one of the same finding."""
        row = await self._row(debate_id, deadline)
        known = RunningDebate(LifecycleRow.of(row))
        first = known.acts[0]
        if (first.text, first.value, first.evidence) != (act.text, act.value, act.evidence):
            raise BadInput(
                "finding_id", f"was challenged by you before, in the debate {debate_id}, which is {known.state}."
            )
        [found] = await self._progress([row], deadline)
        return found

    async def act(
        self,
        debate_id: str,
        act: Act,
        *,
        text: str | None = None,
        value: float | str | None = None,
        evidence: Sequence[str] = (),
        winner: str | None = None,
        by: Actor,
        deadline: Deadline,
    ) -> DebateProgress:
        """
        Store an act, and return where the debate stands; the same act again changes nothing.

        Raises:
            UnknownDebate: no such debate was opened by a challenge.
            BadInput: the value does not fit the metric, or evidence or the winner is unknown; names the field.
            PermissionDenied: the act is for another side, or for the judge.
            TransitionRefused: the debate is past it.
        """
        while True:
            row = await self._row(debate_id, deadline)
            debate, now = RunningDebate(LifecycleRow.of(row)), row["now"]
            said = text or ""
            repeated = any(
                (one.act, one.by, one.text, one.value, one.evidence, one.winner)
                == (act, by.id, said[:KEPT_CHARS], value, tuple(evidence), winner)
                for one in debate.acts
            )
            if repeated:
                [same] = await self._progress([row], deadline)
                return same
            late = debate.until is not None and now >= debate.until
            check_act(act, by.id, debate.sides, debate.state, debate.acts, late=late)
            sides = debate.sides
            if act is Act.JUDGE and winner not in {sides.challenger, sides.challenged}:
                raise BadInput("winner", f"is {sides.challenger} or {sides.challenged}.")
            if act is Act.JUDGE and debate.row.data["priority"] == DebatePriority.CRITICAL_PATH:
                raise TransitionRefused("A debate on the critical path is decided by a person.")
            if value is not None:
                _check_value(debate.metric, value)
                if debate.state is DebateState.LEVEL3:
                    raise TransitionRefused("A person decides between the values that were stated until level 3.")
            if evidence:
                if debate.row.data["finding_id"] in evidence:
                    raise BadInput("evidence", "names the disputed finding itself.")
                await self._known([*evidence], "evidence", deadline)
            made = DebateAct(
                act=act, by=by.id, role=by.role.value, at=now, number=0, text=said[:KEPT_CHARS], value=value,
                evidence=tuple(evidence), winner=winner,
            )  # fmt: skip
            stored = await self._store(debate, made, said, by, deadline)
            if stored is not None:
                [moved] = await self._progress([stored], deadline)
                return moved
            # Somebody was faster, or the time of the level ended just now: look again, which says what happened.

    async def _store(
        self, debate: RunningDebate, act: DebateAct, text: str, by: Actor, deadline: Deadline
    ) -> Row | None:
        key = debate.row.key
        # By the acts of the row, and not by turns that anybody may have recorded.
        made = replace(act, number=max(one.number for one in debate.acts) + 1)
        async with self._database.transaction(deadline) as conn:
            given = {"debate_id": key, "version": debate.row.version, "act": json(made.stored())}
            who = {"actor": by.id, "role": by.role.value, "context": context_of(by)}
            found = await rows(conn, "debate_act", given | who)
            if not found:
                return None
            if text:
                turn = _turn(key, debate.row.data["subject_id"], made, text)
                await self._append(conn, [entry_of(record_of(turn))], by, deadline)
        await self._gateway.publish_wakeup(tuple(Tier))
        return found[0]

    async def _append(self, conn: Any, entries: Sequence[JournalEntry], by: Actor, deadline: Deadline) -> None:
        for receipt in await self._gateway.append_in(conn, entries, actor=by, deadline=deadline):
            if receipt.verdict is AppendStatus.CORE_CONFLICT:
                raise _IdTaken("debate_id", "is that of a debate that somebody recorded.")
            if receipt.verdict.refused:
                raise BadInput("text", f"could not be recorded: {receipt.verdict.value}.")

    async def _row(self, debate_id: str, deadline: Deadline) -> Row:
        found = await self._database.named("debate_now", {"debate_id": debate_id}, deadline=deadline)
        if not found:
            raise UnknownDebate(debate_id)
        return found[0]

    async def _finding(
        self, finding_id: str, evidence: Sequence[str], deadline: Deadline
    ) -> tuple[Mapping[str, Any], datetime]:
        """Return the core of a finding as it is now, and the present moment."""
        if finding_id in evidence:
            raise BadInput("evidence", "names the disputed finding itself.")
        await self._known([*evidence], "evidence", deadline)
        [now] = await self._database.named("safe_horizon", deadline=deadline)
        read = await dated(self._database, [("Finding", finding_id)], AsOf(now["now"]), deadline=deadline)
        found = read.records.get(("Finding", finding_id))
        if found is None:
            raise BadInput("finding_id", f"no Finding {shown(finding_id)} is recorded.")
        return found.core, now["now"]

    async def _known(self, findings: Sequence[str], field: str, deadline: Deadline) -> None:
        given = {"kinds": ["Finding"] * len(findings), "keys": list(findings)}
        known = {row["key"] for row in await self._database.named("recorded_cores", given, deadline=deadline)}
        for place, finding in enumerate(findings):
            if finding not in known:
                raise BadInput(f"{field}.{place}", f"no Finding {shown(finding)} is recorded.")


def _turn(debate_id: str, subject_id: str, act: DebateAct, text: str) -> DebateTurn:
    """Return the turn that an act records."""
    number = float(act.value) if isinstance(act.value, int | float) else None
    stance = act.value if isinstance(act.value, str) else None
    return DebateTurn(
        subject_id=subject_id, debate_id=debate_id, number=act.number, speaker=act.by, stage=act.act.value,
        stance=stance, value=number, text=text, cites=list(act.evidence),
    )  # fmt: skip


def _check_value(metric: str | None, value: float | str | None) -> None:
    """Refuse a value that the metric of the debate does not permit."""
    if value is None:
        return
    if metric is None:
        raise BadInput("value", "is a position on a metric, and the debate names none.")
    if isinstance(value, str) or metric == RATING:
        if metric != RATING or value not in RATINGS:
            raise BadInput("value", f"is a number, or of the metric {RATING} one of {', '.join(RATINGS)}.")
        return
    known = metric_of(metric)
    if not isfinite(value) or (known is not None and known.kind == "binary" and not 0.0 <= value <= 1.0):
        raise BadInput("value", f"is no value of {metric}.")
