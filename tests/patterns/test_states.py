"""The statuses of a pattern: only the transitions of the specification, by the roles that it names."""

from __future__ import annotations

from itertools import product

import pytest

from imem.journal.errors import TransitionRefused
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus as S
from imem.patterns.states import PATTERN_STATES, REJECTED, PatternFacts, quarantined

TESTERS = {Role.KNOWLEDGE_BASE_AGENT, Role.LEARNING_ENGINE}
PERSON = {Role.HUMAN_ADMIN}
WATCHERS = {Role.LEARNING_ENGINE, Role.HUMAN_ADMIN}
ENGINE = {Role.LEARNING_ENGINE}
OPEN = [one for one in S if one not in REJECTED]

Allowed = tuple[set[Role], dict[str, object]]

WITHDRAWN: dict[tuple[S | None, S], Allowed] = {(status, S.REJECTED_HUMAN_OVERRIDE): (PERSON, {}) for status in OPEN}

TABLE: dict[tuple[S | None, S], Allowed] = {
    (None, S.CANDIDATE): (TESTERS, {}),
    (S.CANDIDATE, S.REJECTED_HOLDOUT): (TESTERS, {"failed_tier": 1}),
    (S.CANDIDATE, S.REJECTED_BLIND): (TESTERS, {"failed_tier": 2}),
    (S.CANDIDATE, S.REJECTED_STATISTICAL): (TESTERS, {"failed_tier": 3}),
    (S.CANDIDATE, S.REJECTED_INSUFFICIENT): (TESTERS, {"occurrences": 4}),
    (S.CANDIDATE, S.STATISTICALLY_VALIDATED): (TESTERS, {"tiers_passed": True, "verdict": "caveats"}),
    (S.CANDIDATE, S.PROBATIONARY): (TESTERS, {"tiers_passed": True, "verdict": "probation"}),
    (S.STATISTICALLY_VALIDATED, S.HUMAN_APPROVED): (PERSON, {}),
    (S.STATISTICALLY_VALIDATED, S.REJECTED_GATE6): (PERSON, {}),
    (S.STATISTICALLY_VALIDATED, S.PROBATIONARY): (PERSON, {}),
    (S.HUMAN_APPROVED, S.ACTIVE): ({Role.KNOWLEDGE_BASE_AGENT, Role.HUMAN_ADMIN}, {}),
    (S.ACTIVE, S.PROBATIONARY): (WATCHERS, {}),
    (S.ACTIVE, S.DEPRECATED): (WATCHERS, {}),
    (S.PROBATIONARY, S.STATISTICALLY_VALIDATED): (
        ENGINE, {"returns_to": S.STATISTICALLY_VALIDATED, "probation_passed": True},
    ),
    (S.PROBATIONARY, S.ACTIVE): (ENGINE, {"returns_to": S.ACTIVE, "probation_passed": True, "approved": True}),
    (S.PROBATIONARY, S.REJECTED_PROBATION): (ENGINE, {"probation_passed": False}),
    (S.DEPRECATED, S.ACTIVE_FROM_ARCHIVE): (ENGINE, {}),
    (S.ACTIVE_FROM_ARCHIVE, S.ACTIVE): (PERSON, {}),
    (S.ACTIVE_FROM_ARCHIVE, S.DEPRECATED): (WATCHERS, {}),
    **WITHDRAWN,
}  # fmt: skip
"""From → to: who may, and on which facts."""

EVERY_FACT: dict[str, object] = {
    "tiers_passed": True, "verdict": "approve", "occurrences": 4, "probation_passed": True,
}  # fmt: skip


def test_only_these_transitions_succeed_and_for_these_roles() -> None:
    for before, after, role in product([None, *S], S, Role):
        roles, facts = TABLE.get((before, after), (set(), EVERY_FACT))
        if role in roles:
            PATTERN_STATES.check(before, after, PatternFacts(role=role, **facts))  # type: ignore[arg-type]
        else:
            with pytest.raises(TransitionRefused):
                PATTERN_STATES.check(before, after, PatternFacts(role=role, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(("pair", "facts"), [(pair, facts) for pair, (_, facts) in TABLE.items() if facts])
def test_each_demand_is_needed(pair: tuple[S | None, S], facts: dict[str, object]) -> None:
    """Without one of its facts, the role alone makes no transition."""
    for left_out in facts:
        given = {name: value for name, value in facts.items() if name != left_out}
        with pytest.raises(TransitionRefused):
            PATTERN_STATES.check(*pair, PatternFacts(role=Role.LEARNING_ENGINE, **given))  # type: ignore[arg-type]


def test_only_a_person_approves() -> None:
    into = [one for one in PATTERN_STATES.transitions if one.after in {S.HUMAN_APPROVED, S.ACTIVE}]
    for one in into:
        for role in Role:
            facts = PatternFacts(role=role, returns_to=one.after, probation_passed=True)
            if one.guard(facts) is None and role is not Role.HUMAN_ADMIN:
                assert one.before is S.HUMAN_APPROVED, f"{role} approves a pattern that no person approved"


def test_rejected_patterns_stay_so() -> None:
    assert {one.value for one in REJECTED} == {
        "rejected_holdout", "rejected_blind", "rejected_statistical", "rejected_gate6", "rejected_probation",
        "rejected_human_override", "rejected_insufficient",
    }  # fmt: skip
    assert PATTERN_STATES.terminal == REJECTED
    assert [status for status in (None, *S) if not quarantined(status)] == [S.ACTIVE]
