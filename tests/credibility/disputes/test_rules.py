"""Standing rules: made by an answer, applied to later contradictions of the kind, listed and revoked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from imem.credibility.disputes.reading import MetricValue
from imem.credibility.disputes.rules import StandingRule, read_rules, revoke_rule
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import DataDifference
from imem.review.kinds import Task
from imem.review.states import TaskState

from ..conftest import World, text  # noqa: TID252 - a folder of its own
from .test_arbitration import ADMIN, ENOUGH, answer, reviewer, tasks, value
from .test_detection import BLOOMBERG, NEWS, SEC, find, found, point


def at_odds(name: str, value: float = 95.3, metric: str = "revenue", other: str = BLOOMBERG) -> list[dict[str, Any]]:
    """Return two documents that are known now, and differ as by a slip."""
    known = text(datetime.now(UTC))
    subject = {"subject_id": f"company:{name}", "metric": metric}
    points = (
        point(9.53, 0, SEC, document=f"{name}-1", **subject),
        point(value, 0, other, document=f"{name}-2", **subject),
    )
    return [{**one, "known_at": known} for one in points]


async def asked(world: World, *lines: dict[str, Any]) -> list[Task[Any]]:
    """Record data points, and return the tasks that are open then."""
    await world.say(*lines)
    await find(world)
    return await tasks(world, TaskState.OPEN)


async def prefer(world: World, task: Task[Any], source: str) -> None:
    """Answer that the values of *source* count, always."""
    side = "ab"[[one.source for one in task.package.documents].index(source)]
    await answer(world, task, fields={"document": side, "always": True}, rationale="It slips.")


async def made(world: World, source: str = SEC) -> StandingRule:
    """Make a rule by an answer, and return it."""
    await reviewer(world, capacity=9)
    [task] = await asked(world, *at_odds("AA"))
    await prefer(world, task, source)
    [rule] = await read_rules(world.database, deadline=ENOUGH)
    return rule


async def counts(world: World, name: str, at: datetime | None = None) -> MetricValue:
    return await value(world, at=at, subject=f"company:{name}")


async def test_a_rule_settles_later_contradictions_of_its_kind(world: World) -> None:
    """At level 1, before the guard; another metric, source or difference is asked about."""
    rule = await made(world, BLOOMBERG)
    assert (rule.metric, rule.sources, rule.difference) == ("revenue", (BLOOMBERG, SEC), DataDifference.SCALE)
    assert (rule.preferred, rule.made_by, rule.reason) == (BLOOMBERG, "ann", "It slips.")

    assert await asked(world, *at_odds("BB")) == []
    [settled] = [one for one in await found(world) if one["subject_id"] == "company:BB"]
    stored = ("status", "resolution_level", "resolution_method", "confidence", "final_value")
    assert [settled[name] for name in stored] == ["resolved", "1_evidence", "standing_rule", 0.90, 95.3]
    now = await counts(world, "BB")
    assert (now.value, now.confidence, now.provisional) == (95.3, 0.90, False)
    assert (now.to_dict()["level"], now.to_dict()["method"]) == ("1_evidence", "standing_rule")

    others = [
        *at_odds("CC", metric="debt"), *at_odds("DD", other="Reuters"), *at_odds("EE", value=30.0),
    ]  # fmt: skip
    assert {one.package.subject_id for one in await asked(world, *others)} == {"company:CC", "company:DD", "company:EE"}


async def test_a_rule_counts_from_when_it_was_made_until_it_was_revoked(world: World) -> None:
    """What could be known before is asked about, and what it settled stays settled; with audit rows."""
    before = at_odds("BEFORE")
    rule = await made(world)
    assert [one.package.subject_id for one in await asked(world, *before)] == ["company:BEFORE"]
    assert await asked(world, *at_odds("WITHIN")) == await tasks(world, TaskState.OPEN)
    within = datetime.now(UTC)
    assert (await counts(world, "WITHIN", within)).value == 9.53

    revoked = await revoke_rule(world.database, rule.rule_id, "It was Bloomberg's slip.", by=ADMIN, deadline=ENOUGH)
    assert (revoked.revoked_by, revoked.revoke_reason) == ("ann", "It was Bloomberg's slip.")
    assert {one.package.subject_id for one in await asked(world, *at_odds("AFTER"))} == {
        "company:BEFORE",
        "company:AFTER",
    }
    assert (await counts(world, "AFTER")).provisional is True
    assert (await counts(world, "WITHIN")).value == 9.53
    with pytest.raises(BadInput, match="in force"):
        await revoke_rule(world.database, rule.rule_id, "Again.", by=ADMIN, deadline=ENOUGH)
    audited = await world.rows(
        "SELECT action, actor_id, action_reason AS reason FROM memory_access_audit WHERE resource_id = %s ORDER BY id",
        rule.rule_id,
    )
    assert [(row["action"], row["actor_id"], row["reason"]) for row in audited] == [
        ("make_rule", "ann", "It slips."),
        ("revoke_rule", "ann", "It was Bloomberg's slip."),
    ]


async def test_the_last_rule_of_a_kind_is_in_force(world: World) -> None:
    """One that prefers the other source revokes it; the same again is one rule."""
    await reviewer(world, capacity=9)
    tasks_ = await asked(world, *at_odds("AA"), *at_odds("BB"), *at_odds("CC"))
    for task, source in zip(tasks_, (SEC, BLOOMBERG, BLOOMBERG), strict=True):
        await prefer(world, task, source)
    rules = await read_rules(world.database, deadline=ENOUGH)
    assert [(rule.preferred, rule.revoked_at is None) for rule in rules] == [(BLOOMBERG, True), (SEC, False)]
    assert rules[1].revoked_at == rules[0].made_at


async def test_where_no_rule_can_be_made_the_answer_is_refused(world: World) -> None:
    await reviewer(world)
    line = {"metric": "revenue"}
    [task] = await asked(
        world, point(9.53, 0, SEC, document="10-Q", **line), point(95.3, 3, SEC, document="10-K", **line)
    )
    with pytest.raises(BadInput) as refused:
        await answer(world, task, fields={"document": "a", "always": True})
    assert refused.value.field == "fields.always"
    await answer(world, task, fields={"document": "a"})
    core = {
        "id": "c", "subject_id": "company:ZZ", "data_point": "revenue", "source_a": NEWS, "source_b": "blog",
        "value_a": 100.0, "value_b": 103.0, "timestamp": "2020-01-06T00:00:00Z",
    }  # fmt: skip
    [task] = await asked(world, {"record": "DataContradiction", "known_at": "2020-01-06T00:00:00Z", "core": core})
    with pytest.raises(BadInput, match="reported"):
        await answer(world, task, fields={"document": "a", "always": True})
