"""Contradictions are found in the journal whatever the order of arrival, as of when they could be known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from imem.credibility.disputes.arbitration import ACTOR
from imem.credibility.disputes.detection import find_contradictions
from imem.credibility.disputes.histories import outcomes_of
from imem.credibility.disputes.sources import source_in, tallies_of
from imem.jobs.pipeline import Report
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.kg.asof import END_OF_TIME
from imem.services.task_kinds import TASK_KINDS

from ..conftest import World, corrected, text  # noqa: TID252 - a folder of its own

START = datetime(2020, 1, 1, 12, tzinfo=UTC)
SEC, BLOOMBERG, NEWS = "SEC_EDGAR", "Bloomberg", "News"


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def point(value: float, on: float, source: str = SEC, **core: Any) -> dict[str, Any]:
    core = {
        "subject_id": "company:MU", "metric": "inventory", "period_end": "2019-12-31T00:00:00Z", "unit": "USD",
        "value": value, "source": source, "document": f"{source}/{on:g}", "filed_at": text(day(on)), **core,
    }  # fmt: skip
    return {"record": "DataPoint", "known_at": text(day(on)), "core": core}


async def find(world: World, *, guard: bool = True) -> Report:
    return await find_contradictions(reviewing(world), guard=guard, until=Deadline.never())


def reviewing(world: World) -> Any:
    """Return what the pipelines run with."""
    return SimpleNamespace(database=world.pipelines, gateway=world.engine, task_kinds=TASK_KINDS)


async def found(world: World) -> list[dict[str, Any]]:
    """Return the contradictions as they stand: values, status and the rest of the resolution, outcome, known_at."""
    rows = await world.rows(
        "SELECT c.payload -> 'core' AS core, r.payload #> '{groups,resolution}' AS resolution,"
        " o.payload #> '{groups,outcome}' AS outcome, r.known_at FROM record_head AS h"
        " JOIN event AS c ON c.position = h.position"
        " LEFT JOIN record_head AS l ON l.kind = h.kind AND l.key = h.key AND l.grp = 'resolution'"
        " LEFT JOIN event AS r ON r.position = l.position"
        " LEFT JOIN record_head AS m ON m.kind = h.kind AND m.key = h.key AND m.grp = 'outcome'"
        " LEFT JOIN event AS o ON o.position = m.position"
        " WHERE h.kind = 'DataContradiction' AND h.grp = 'core' ORDER BY c.payload #>> '{core,timestamp}', h.key"
    )
    return [
        {**row["core"], **(row["resolution"] or {}), **(row["outcome"] or {}), "at": row["known_at"]} for row in rows
    ]


def standing(contradictions: list[dict[str, Any]]) -> list[tuple[float, float, str]]:
    return [(one["value_a"], one["value_b"], one["status"]) for one in contradictions if one["status"] != "withdrawn"]


async def test_a_contradiction_is_recorded_with_its_resolution_as_of_when_it_could_be_known(world: World) -> None:
    """Repeating it writes nothing."""
    await world.say(point(100.0, 0), point(105.0, 3, BLOOMBERG), point(105.05, 5), point(105.0, 6, unit="EUR"))
    report = await find(world)
    assert (report["cells"], report["recorded"], report["disagreement"]) == (2, 2, 1), "with its outcome"
    [first] = await found(world)
    assert (first["source_a"], first["source_b"], first["document_b"]) == (SEC, BLOOMBERG, "Bloomberg/3")
    resolved = {name: first[name] for name in ("resolution_level", "resolution_method", "confidence", "status")}
    assert resolved == {
        "resolution_level": "1_evidence",
        "resolution_method": "evidence_based",
        "confidence": 0.95,
        "status": "resolved",
    }
    assert first["final_value"] == 100.0
    assert first["credibility_differential"] == pytest.approx(0.05)
    assert (first["priority"], first["provisional"], first["reviewed_at_gate3"]) == ("MEDIUM", False, False)
    assert first["at"] == day(3)
    assert (first["outcome_label"], first["outcome_provenance"]) == ("b", "later_filing")
    assert first["data_point"] == "inventory 2019-12-31, USD"
    events = await world.rows("SELECT count(*) AS n FROM event")
    await world.say(point(100.0, 0), point(105.0, 3, BLOOMBERG))
    world.owner(
        "INSERT INTO due_row (queue, kind, key) SELECT 'disputes', kind, key FROM record_head"
        " WHERE kind = 'DataPoint' AND grp = 'core'"
    )
    again = await find(world)
    assert (again["cells"], again["recorded"]) == (2, 0)
    assert await world.rows("SELECT count(*) AS n FROM event") == events
    assert await find(world) == {}, "nothing is due"


async def test_every_order_of_arrival_ends_alike(world: World) -> None:
    """A point that arrives late and was known between two others withdraws their contradiction."""
    values = [(100.0, 0, SEC), (110.0, 2, BLOOMBERG), (120.0, 4, SEC), (120.0, 6, NEWS)]
    ends = []
    for number, order in enumerate(permutations(values)):
        for value in order:
            await world.say(point(*value, metric=f"m{number}"))
            await find(world)
        rows = [one for one in await found(world) if one["data_point"].startswith(f"m{number} ")]
        ends.append(standing(rows))
        assert all(one["resolution_level"] and one["confidence"] for one in rows), "a withdrawn one says what it was"
    assert ends == [[(100.0, 110.0, "resolved"), (110.0, 120.0, "resolved")]] * len(ends)


async def test_what_was_withdrawn_is_so_as_of_its_own_day(world: World) -> None:
    await world.say(point(100.0, 0), point(120.0, 4))
    await find(world)
    await world.say(point(110.0, 2, BLOOMBERG))
    await find(world)
    gone = [one for one in await found(world) if one["status"] == "withdrawn"]
    assert [(one["value_a"], one["value_b"], one["at"]) for one in gone] == [(100.0, 120.0, day(4))]
    assert "final_value" not in gone[0]


async def test_a_corrected_point_withdraws_from_the_day_of_the_correction(world: World) -> None:
    wrong = point(150.0, 2, BLOOMBERG)
    await world.say(point(100.0, 0), wrong)
    await find(world)
    await world.say(corrected(wrong, day(9), value=140.0))
    await find(world)
    rows = await found(world)
    assert [(one["value_b"], one["status"], one["at"]) for one in rows] == [
        (150.0, "withdrawn", day(9)), (140.0, "resolved", day(9)),
    ]  # fmt: skip
    await world.say(corrected(wrong, day(11), value=150.0))
    await find(world)
    again = {one["value_b"]: (one["status"], one["at"]) for one in await found(world)}
    assert again == {150.0: ("resolved", day(11)), 140.0: ("withdrawn", day(11))}


@pytest.mark.spec("DC-13")
async def test_other_periods_and_units_never_contradict(world: World) -> None:
    await world.say(
        point(100.0, 0),
        point(200.0, 1, BLOOMBERG, unit="EUR"),
        point(300.0, 2, BLOOMBERG, period_end="2019-09-30T00:00:00Z"),
        point(400.0, 3, BLOOMBERG, period_start="2019-01-01T00:00:00Z"),
        point(500.0, 4, BLOOMBERG, basis="IFRS"),
        point(600.0, 5, BLOOMBERG, metric="cash"),
        point(700.0, 6, BLOOMBERG, subject_id="company:AMD"),
    )
    assert (await find(world))["cells"] == 7
    assert await found(world) == []
    await world.say(point(900.0, 7, BLOOMBERG))
    await find(world)
    assert len(await found(world)) == 1, "the same cell does"


async def test_roundings_signs_and_splits_are_counted_and_are_no_contradictions(world: World) -> None:
    per_share = {"unit": "USD/shares", "metric": "eps"}
    await world.say(
        point(1234.0, 0), point(1230.0, 1), point(-1230.0, 2), point(11.89, 0, **per_share), point(2.97, 1, **per_share)
    )
    report = await find(world)
    assert {name: report[name] for name in ("rounding", "sign", "split")} == {"rounding": 1, "sign": 1, "split": 1}
    assert await found(world) == []


@pytest.mark.spec("DC-15")
@pytest.mark.parametrize(
    ("guard", "level", "value"), [(True, "4_fallback", None), (False, "1_evidence", 9.53)], ids=["on", "off"]
)
async def test_a_slip_is_left_to_people_unless_the_guard_is_off(
    world: World, *, guard: bool, level: str, value: float | None
) -> None:
    """Without reviewers the fallback applies at once."""
    await world.say(point(9.53, 0), point(95.3, 1, BLOOMBERG))
    await find(world, guard=guard)
    [one] = await found(world)
    assert (one["difference"], one["resolution_level"], one.get("final_value")) == ("scale", level, value)
    assert (one["status"], one["provisional"]) == (("uncertain", True) if guard else ("resolved", False))


async def test_what_somebody_reports_gets_its_priority_and_its_resolution(world: World) -> None:
    core = {
        "id": "c", "subject_id": "company:MU", "data_point": "revenue", "source_a": NEWS, "source_b": BLOOMBERG,
        "value_a": 1.0, "value_b": 1.2, "timestamp": text(day(1)),
    }  # fmt: skip
    await world.say({"record": "DataContradiction", "known_at": text(day(1)), "core": core})
    await find(world)
    [one] = await found(world)
    assert (one["priority"], one["resolution_level"], one["final_value"]) == ("CRITICAL", "4_fallback", 1.2)
    assert (one["status"], one["confidence"], one["at"]) == ("provisional", pytest.approx(0.7125), day(1))


async def test_a_later_filing_says_who_was_right(world: World) -> None:
    """Fifteen times Bloomberg was wrong: from then on its score follows from it, and not before."""
    for number in range(15):
        name = {"metric": f"m{number}"}
        await world.say(
            point(100.0, 0, NEWS, **name), point(105.0, 1, BLOOMBERG, **name), point(100.0, 10 + number, SEC, **name)
        )
    await find(world)
    labels = [(one["outcome_label"], one["outcome_provenance"]) for one in await found(world) if "outcome_label" in one]
    assert labels == [("a", "later_filing")] * 15
    rows = await world.database.named(
        "source_outcomes",
        {"sources": [BLOOMBERG], "known_until": END_OF_TIME, "recorded_until": END_OF_TIME},
        deadline=Deadline.never(),
    )
    outcomes = outcomes_of(rows)
    assert source_in(tallies_of(outcomes), BLOOMBERG, day(23)).score == 0.95
    assert source_in(tallies_of(outcomes), BLOOMBERG, day(24)).score == pytest.approx(0.38 + 0.20)
    assert source_in(tallies_of(outcomes), NEWS, day(24)).score == pytest.approx(0.40 + 0.28 + 0.20)


async def test_no_agent_says_how_important_or_resolved_it_is(world: World) -> None:
    line = orjson.dumps({"record": "DataContradiction", "key": "c", "groups": {"resolution": {"priority": "LOW"}}})
    with pytest.raises(BadInput, match="credibility"):
        await world.say(orjson.loads(line))
    rows = await world.rows("SELECT count(*) AS n FROM event WHERE actor = %s", ACTOR.id)
    assert rows[0]["n"] == 0


@pytest.mark.spec("DC-14")
async def test_what_evidence_or_scores_resolve_is_resolved_in_the_round_that_finds_it(world: World) -> None:
    """Nobody is asked, and nothing waits for another round."""
    for number in range(15):
        of = {"metric": f"metric{number}"}
        await world.say(point(150.0, 0, NEWS, **of), point(100.0, 1, "Reuters", **of), point(100.0, 2, SEC, **of))
    await find(world)
    await world.say(
        point(100.0, 10, SEC, metric="one"), point(105.0, 11, BLOOMBERG, metric="one"),
        point(100.0, 10, BLOOMBERG, metric="two"), point(105.0, 11, NEWS, metric="two"),
    )  # fmt: skip
    done = await find(world)
    assert (done["cells"], done["recorded"], done["asked"]) == (2, 2, 0)
    mine = [one for one in await found(world) if one["data_point"].split()[0] in {"one", "two"}]
    assert {(one["resolution_level"], one["status"]) for one in mine} == {
        ("1_evidence", "resolved"),
        ("2_credibility", "resolved"),
    }
    assert await find(world) == {}, "nothing is due"
