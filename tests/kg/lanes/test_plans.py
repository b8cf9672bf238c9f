"""What the statements of an import read grows with what they are asked, whatever Postgres knows of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg

from imem.journal.statements import sql
from tests.kg.lanes.conftest import finding
from tests.kg.projection.world import Journal, Line

FINDINGS: Final = 4_000
DECISIONS: Final = 1_500
ASKED: Final = 100
"""Records of one page."""

MOST_ROWS: Final = 40
"""Rows that a plan may handle for each record that is asked about, in all its steps together."""


def citation(number: int) -> Line:
    """Return the line of a decision's link to a finding."""
    ends = {"from": {"Decision": f"d-{number}"}, "to": {"Finding": f"f-{number}"}}
    return {"link": "CITES", **ends, "props": {"at": "2026-01-01T00:00:00Z", "rank": 1}}


def rows_handled(journal: Journal, name: str, parameters: Mapping[str, Any] | None = None) -> int:
    """Run the named statement, and return how many rows the steps of its plan handled, those dropped included."""
    with psycopg.connect(journal.admin_url) as conn:
        asked = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql(name)}"
        row = conn.execute(asked.encode(), parameters).fetchone()
    assert row is not None
    return int(sum(_handled(row[0][0]["Plan"])))


def _handled(step: Mapping[str, Any]) -> Iterator[float]:
    dropped = sum(step.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Join Filter", "Index Recheck"))
    yield step["Actual Loops"] * (step["Actual Rows"] + dropped)
    for below in step.get("Plans", ()):
        yield from _handled(below)


async def test_the_age_of_what_waits_is_not_looked_for_among_what_is_applied(paper: Journal) -> None:
    await paper.say(*(finding(f"f-{number}") for number in range(FINDINGS)))
    paper.owner("ANALYZE")
    paper.owner(
        "UPDATE delivery SET state = 'applied' WHERE position < (SELECT max(position) - %s FROM delivery)", ASKED
    )
    paper.owner("VACUUM delivery")
    assert rows_handled(paper, "delivery_behind") <= MOST_ROWS


async def test_the_subjects_of_a_batch_are_not_looked_for_among_all_records(paper: Journal) -> None:
    await paper.say(*(finding(f"f-{number}") for number in range(FINDINGS)))
    paper.owner("ANALYZE")
    keys = [f"f-{number}" for number in range(ASKED)]
    asked = {"kinds": ["Finding"] * ASKED, "keys": keys, "subjects": []}
    assert rows_handled(paper, "related_subjects", asked) <= MOST_ROWS * ASKED


async def test_what_decisions_cite_is_not_looked_for_among_all_citations(paper: Journal) -> None:
    await paper.say(*(finding(f"f-{number}") for number in range(FINDINGS)))
    await paper.say(*map(citation, range(DECISIONS)))
    paper.owner("ANALYZE")
    asked = {"decisions": [f"d-{number}" for number in range(ASKED)]}
    assert rows_handled(paper, "citations_of", asked) <= MOST_ROWS * ASKED
