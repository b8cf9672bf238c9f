"""The facts that the steps of a case append to the journal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from imem.jobs.lifecycle import Effects, LifecycleRow
from imem.journal.actors import Action, Actor
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import LessonPriority, LessonSource, PostmortemStatus, RootCause
from imem.kg.kinds.learning import FailureAnalysis, HumanInsight, Lesson, PostMortem
from imem.kg.kinds.patterns import Pattern
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, record_of
from imem.postmortem.cases.analyst import REMEDIES
from imem.postmortem.cases.package import PostmortemCase, SixAnswers
from imem.postmortem.cases.priorities import PriorityPolicy
from imem.review.kinds import Answer

ACTOR: Final = Actor("postmortem", Role.LEARNING_ENGINE)
"""The actor that records cases."""

WRITER: Final = "postmortem"
"""The subsystem that owns the governed groups written here."""

LONGEST: Final = 2_000
"""Characters of a text that is recorded."""

ITEM: Final = 200
"""Characters of an item of a list that is recorded."""

LONGEST_ID: Final = 160
"""Characters of a decision's id from which on the ids of its records are made of a hash."""


def case_id_of(decision_id: str, number: int) -> str:
    """Return the id of a case, to which the ids of its records add some characters."""
    if len(decision_id) > LONGEST_ID:
        return str(id_of("postmortem", decision_id, number))
    return f"{decision_id}/{number}"


def appended(*lines: Any) -> Effects:
    """Return what appends *lines* in the name of the pipeline."""
    return Effects(facts=[(ACTOR, Action.APPEND_POSTMORTEM, entry_of(line)) for line in lines])


def stated(row: LifecycleRow, policy: PriorityPolicy, completed: datetime | None = None) -> Effects:
    """Return what records the state of a case."""
    values = PostMortem.State(
        status=PostmortemStatus(row.state), priority=row.data[policy.column], impact_score=row.data["impact"],
        completion_date=completed,
    )  # fmt: skip
    return appended(groups_of(PostMortem, row.key, {"state": values}, writer=WRITER))


async def investigated(conn: Connection, row: LifecycleRow, *, under: bool) -> Effects:
    """Return what records that the patterns of a decision are under investigation, or are no more by any case."""
    found = await rows(conn, "patterns_of_decision", {"decision_id": row.about, "case_id": row.key})
    values = {"investigation": Pattern.Investigation(under_investigation=under)}
    return appended(
        *(groups_of(Pattern, one["key"], values, writer=WRITER) for one in found if under or not one["elsewhere"])
    )


def analysed(case: PostmortemCase) -> Effects:
    """Return what records the automatic cause."""
    found = FailureAnalysis(
        id=f"{case.case_id}/analysis/{case.attempt}", postmortem_id=case.case_id, root_cause_category=case.cause,
        root_cause_details=_quoted(case), foreseeability_rating=1 if case.cause is RootCause.BLACK_SWAN else 3,
        unexpected_changes=_said(case, RootCause.REGIME_CHANGE, RootCause.DATA_QUALITY),
        missing_factors=_said(case, RootCause.MISSING_FACTORS), warning_signs=_said(case, RootCause.MODEL_ASSUMPTIONS),
    )  # fmt: skip
    return appended(record_of(found, writer=WRITER))


def _said(case: PostmortemCase, *causes: RootCause) -> Sequence[str] | None:
    return [f"{one.record}: {one.says}"[:ITEM].strip() for one in case.evidence if one.cause in causes] or None


def _quoted(case: PostmortemCase) -> str:
    lines = [f"{one.cause}: {one.record}: {one.says}" for one in case.evidence]
    return "\n".join(lines)[:LONGEST].strip() or "No record speaks for another cause."


def insight_of(case: PostmortemCase, said: SixAnswers, answer: Answer, now: datetime) -> Effects:
    """Return what a person's answers record in the person's name: the insight, and the lesson that waits for Gate 6."""
    insight = HumanInsight(
        id=f"{case.case_id}/insight/{case.attempt}", postmortem_id=case.case_id,
        primary_reason=said.primary_reason.value, factors_missed=said.factors_missed,
        warning_signs_missed=said.warning_signs_missed, future_actions=said.future_actions,
        patterns_to_revise=said.patterns or None, foreseeability_rating=said.foreseeability,
        review_date=min(answer.at, now),
    )  # fmt: skip
    lesson = Lesson(
        id=f"{case.case_id}/lesson/{case.attempt}", source=LessonSource.HUMAN_INSIGHT, postmortem_id=case.case_id,
        category=said.primary_reason.value, insight=said.factors_missed, recommended_action=said.future_actions,
        affected_domains=list(case.domains) or None, priority=LessonPriority.HIGH,
    )  # fmt: skip
    person = Actor(answer.by, Role.HUMAN_ADMIN)
    return Effects(
        facts=[
            (person, Action.APPEND_POSTMORTEM, entry_of(record_of(insight, writer=WRITER))),
            (person, Action.APPEND, entry_of(record_of(lesson))),
        ]
    )


def automatic_lesson(case: PostmortemCase) -> Effects:
    """Return the facts of the automatic lesson of an unreviewed case: its cause, and the recommendation for it."""
    insight = f"{case.decision_id} was off: {case.cause}. {_quoted(case)}"[:LONGEST].strip()
    lesson = Lesson(
        id=f"{case.case_id}/automatic/{case.attempt}", source=LessonSource.AI_ANALYSIS, postmortem_id=case.case_id,
        category=case.cause.value, insight=insight,
        recommended_action=REMEDIES[case.cause], affected_domains=list(case.domains) or None,
        priority=LessonPriority.LOW,
    )  # fmt: skip
    return Effects(facts=[(ACTOR, Action.APPEND, entry_of(record_of(lesson)))])
