"""Items of Gate 6 about patterns: those that passed their tests, and what a person's decision does to one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from imem.gates.learning.items import APPROVE, Importance, ItemAction, ItemAnswer, ItemKind, Seen, WaitingItem
from imem.jobs.lifecycle import Effects, LifecycleRow
from imem.journal.actors import Action
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import link_of
from imem.patterns.definition import definition_of
from imem.patterns.evidence.verdicts import DomainClass, domain_class
from imem.patterns.evidence.watching import Counts
from imem.patterns.life import activate, enter, hold, proposal, sent_back, wait_longer
from imem.patterns.states import PatternFacts
from imem.review.kinds import Fields

REJECT: Final = "reject"
MODIFY: Final = "modify"
MORE_EVIDENCE: Final = "request_evidence"


class SeenPattern(Seen):
    """
    The view of a pattern's reviewer.

    Attributes:
        pattern_id, name, category: of the pattern.
        says: condition and claim in words.
        mechanism: why it should be so.
        status: its status.
        training, validation, test: hit rates of the hold-out.
        hold_out_q: q-value of the hold-out, over its mining run.
        blind_score: how many times as often the pattern helped as it hurt; None if it never hurt.
        helped, hurt: comparisons of the blind test.
        p, q: of the control test; q over the tests that ended in this cycle.
        sample_size, occurrences: cases of the tests, and of training.
        search_space_size: candidates that its mining run looked at; None for a proposal by hand.
        proposed_by: who proposed it.
        new_successes, new_cases: seen since its tests, on probation or back from the archive; None: nothing was.
        verdict: what the table of domains says.
        proposed_action: what follows from it.
    """

    pattern_id: str
    name: str
    category: str
    says: str
    mechanism: str
    status: PatternStatus
    training: float | None
    validation: float | None
    test: float | None
    hold_out_q: float | None
    blind_score: float | None
    helped: int
    hurt: int
    p: float | None
    q: float | None
    sample_size: int
    occurrences: int
    search_space_size: int | None
    proposed_by: str
    new_successes: int | None = None
    new_cases: int | None = None
    verdict: str
    proposed_action: str


class Changed(Fields):
    """The definition in whose form a pattern is to be tested anew."""

    definition: dict[str, Any]


def _check_changed(seen: SeenPattern, fields: Changed) -> None:
    if definition_of(fields.definition).key == seen.pattern_id.split("/")[0]:
        raise BadInput("fields.definition", "says the same as the pattern: change its condition or its claim.")


def seen_of(row: LifecycleRow) -> SeenPattern:
    """Return what a reviewer sees of a pattern."""
    data = row.data
    definition = definition_of(data["definition"])
    holdout, blind, control = data["holdout"], data["blind"], data["control"]
    new = _seen_since(row)
    action = {"approve": APPROVE, "caveats": "approve, with caveats"}.get(control["verdict"], MORE_EVIDENCE)
    return SeenPattern(
        pattern_id=row.key, name=definition.name, category=definition.category, says=definition.words,
        mechanism=definition.mechanism, status=PatternStatus(row.state),
        **{name: holdout[name] for name in ("training", "validation", "test")}, hold_out_q=holdout["q"],
        blind_score=blind["ratio"], helped=blind["helped"], hurt=blind["hurt"], p=control["p"], q=control["q"],
        sample_size=data["baseline"]["cases"], occurrences=holdout["occurrences"],
        search_space_size=data["search_space_size"], proposed_by=data["proposed_by"],
        new_successes=new.successes if new else None, new_cases=new.cases if new else None, verdict=control["verdict"],
        proposed_action=APPROVE if new else action,
    )  # fmt: skip


def _seen_since(row: LifecycleRow) -> Counts | None:
    if row.state == PatternStatus.ACTIVE_FROM_ARCHIVE:
        quarters = row.data["restored"]["quarters"]
        return Counts(*(sum(one[name] for one in quarters) for name in Counts._fields))
    return Counts(**row.data["new"]) if "new" in row.data else None


async def _waiting(conn: Connection) -> list[WaitingItem[SeenPattern]]:
    states = [PatternStatus.STATISTICALLY_VALIDATED.value, PatternStatus.ACTIVE_FROM_ARCHIVE.value]
    items = []
    for found in await rows(conn, "patterns_in", {"states": states, "stage": None, "limit": 1_000}):
        row = LifecycleRow.of(found)
        if row.state == PatternStatus.ACTIVE_FROM_ARCHIVE and not row.data["restored"]["held"]:
            continue
        seen = seen_of(row)
        # Patterns are answered alone: none is approved with others by one word.
        items.append(
            WaitingItem(
                key=row.key, headline=f"{seen.name}: {seen.says}", seen=seen, since=row.entered_at,
                importance=Importance(
                    confidence=seen.test, valuation=domain_class(seen.category) is DomainClass.VALUATION,
                    n=seen.sample_size,
                ),
            )
        )  # fmt: skip
    return items


async def _decide(conn: Connection, key: str, _seen: SeenPattern, answer: ItemAnswer, now: datetime) -> Effects:
    row = LifecycleRow.of((await rows(conn, "pattern_rows", {"keys": [key]}))[0])
    facts, person = PatternFacts(role=Role.HUMAN_ADMIN), answer.person
    archived = row.state == PatternStatus.ACTIVE_FROM_ARCHIVE
    if answer.action == APPROVE:
        data = {**row.data, "approved_at": now.isoformat(), "approved_by": answer.by}
        if archived:
            _, effects = await activate(conn, row, facts, now, data=data, reason=answer.rationale)
        else:
            _, effects = await enter(
                conn, row, PatternStatus.HUMAN_APPROVED, facts, data=data, due_at=now, reason=answer.rationale
            )
        return effects + _link("APPROVED_AT_GATE6", key, answer)
    if answer.action == MORE_EVIDENCE:
        if archived:
            await wait_longer(conn, row, now)
            return Effects()
        return (await hold(conn, row, facts, now, reason=answer.rationale))[1]
    status = PatternStatus.DEPRECATED if archived else PatternStatus.REJECTED_GATE6
    kept = sent_back(row, now) if archived else None
    _, effects = await enter(conn, row, status, facts, data=kept, reason=answer.rationale)
    effects += _link("REJECTED_AT_GATE6", key, answer)
    if isinstance(answer.fields, Changed):
        again = definition_of(answer.fields.definition)
        # The person has seen the outcomes until now, so that only later ones test the changed definition.
        effects += Effects(facts=[(person, Action.APPEND, proposal(again, answer.by, since=now))])
    return effects


def _link(name: str, key: str, answer: ItemAnswer) -> Effects:
    props = {"at": answer.at, "rationale": answer.rationale, "task_id": answer.task_id}
    line = link_of(name, ("Pattern", key), ("Human", answer.by), props, writer="gates")
    return Effects(facts=[(answer.person, Action.APPEND_GATES, entry_of(line))])


PATTERN: Final = ItemKind(
    name="pattern",
    seen=SeenPattern,
    actions=ItemKind.of(
        ItemAction(
            name=APPROVE, does="It is activated: agents are shown it from then on, and it is watched.", rationale=True
        ),
        ItemAction(name=REJECT, does="No agent is ever shown it.", rationale=True),
        ItemAction(
            name=MODIFY, does="Reject it, and have another condition or claim tested, on forecasts from now on.",
            fields=Changed, rationale=True, check=_check_changed,
        ),
        ItemAction(
            name=MORE_EVIDENCE, does="Wait for new cases; it comes up again if they agree.", rationale=True
        ),
    ),
    minutes=12.0,
    decides=frozenset(SeenPattern.model_fields),
    waiting=_waiting,
    decide=_decide,
)  # fmt: skip
