"""
Standing rules: "always, for this metric, these two sources and this difference, the value of that source counts".

A person makes one with an answer, and anybody who answers such tasks revokes it. It settles, at level 1, the
contradictions that could be known from when it was made until it was revoked; those of earlier days stay as they are,
and what it has settled stays settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from imem.credibility.disputes.cells import Point
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.enums import DataDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRule:
    """
    A rule.

    Attributes:
        rule_id: its id.
        metric: of the data points.
        sources: the two sources, by name.
        difference: how their values differ.
        preferred: the source whose value counts.
        made_by, made_at: who made it, and since when it counts.
        task_id: the review task whose answer made it.
        reason: why.
        revoked_by, revoked_at, revoke_reason: who revoked it, when, and why; None while it is in force.
    """

    rule_id: str
    metric: str
    sources: tuple[str, str]
    difference: DataDifference
    preferred: str
    made_by: str
    made_at: datetime
    task_id: str
    reason: str | None = None
    revoked_by: str | None = None
    revoked_at: datetime | None = None
    revoke_reason: str | None = None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the rule of a row of ``standing_rule``."""
        names = ("rule_id", "metric", "preferred", "made_by", "task_id", "reason", "revoked_by", "revoke_reason")
        revoked_at = None if row["revoked_at"] is None else row["revoked_at"].astimezone(UTC)
        return cls(
            **{name: row[name] for name in names},
            sources=(row["source_a"], row["source_b"]),
            difference=DataDifference(row["difference"]),
            made_at=row["made_at"].astimezone(UTC),
            revoked_at=revoked_at,
        )


def covers(rule: StandingRule, a: Point, b: Point, difference: DataDifference) -> bool:
    """Return whether *rule* settles a contradiction of two points of its metric; *b* became known later."""
    in_force = rule.made_at <= b.known_at and (rule.revoked_at is None or b.known_at < rule.revoked_at)
    return in_force and difference is rule.difference and {a.source, b.source} == set(rule.sources)


NO_RULES: Final[Sequence[StandingRule]] = ()


def rules_of(found: Iterable[Row], metric: str) -> list[StandingRule]:
    """Return the rules of *metric* from rows of ``standing_rules``."""
    return [StandingRule.from_row(row) for row in found if row["metric"] == metric]


async def read_rules(database: Database, *, deadline: Deadline) -> list[StandingRule]:
    """Return all rules: those in force first, the newest first."""
    wanted = {"metrics": None, "made_until": END_OF_TIME}
    return [StandingRule.from_row(row) for row in await database.named("standing_rules", wanted, deadline=deadline)]


async def revoke_rule(database: Database, rule_id: str, reason: str, *, by: Actor, deadline: Deadline) -> StandingRule:
    """
    Revoke a rule from now on, with the audit row, and return it; what it has settled stays settled.

    Raises:
        BadInput: no rule of that id is in force, or *reason* is empty.
    """
    if not reason.strip():
        raise BadInput("reason", "is required here: say why.")
    who = {"actor": by.id, "role": by.role.value, "reason": reason.strip(), "context": context_of(by)}
    found = await database.commit("revoke_rule", {"rule_id": rule_id, **who}, deadline=deadline)
    if not found:
        raise BadInput("rule_id", f"no rule {rule_id!r:.200} is in force.", mend="`imem tasks rules` lists them.")
    return StandingRule.from_row(found[0])
