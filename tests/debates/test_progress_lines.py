"""What the lines about a debate say in each of its states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.debates.rendering import position, progress_document, progress_lines
from imem.debates.service import DebateProgress, DebateSide
from imem.kg.kinds.enums import DebateState

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
RECORDED = '1234567.89 ("bull"), the finding as it was recorded'


def debate(state: str, **more: Any) -> DebateProgress:
    sides = {"challenger": DebateSide(agent="bear", value=9.6e9), "challenged": DebateSide(agent="bull", value=0.1)}
    about = {"debate_id": "d", "finding_id": "f", "subject_id": "company:MU", "topic": 'Is it? "Yes."'}
    fields = {"priority": "supporting", "metric": "revenue", "judge": None, "until": None, "finding_value": 1234567.89}
    return DebateProgress.model_validate({**about, **sides, **fields, "state": state, **more})


def lines(state: str, **more: Any) -> list[str]:
    return [line.strip() for line in progress_lines(debate(state, **more), NOW)]


@pytest.mark.parametrize(
    ("given", "state", "counts", "default"),
    [
        (
            {"state": "initiated", "turn": "bull", "until": NOW + timedelta(minutes=15)},
            'initiated: "bull" is to act until 2026-06-01 12:15 UTC (15 min left)', RECORDED,
            "level 2, where records decide, else a person does",
        ),
        (
            {"state": "level1", "turn": None, "until": NOW - timedelta(seconds=1), "judge": "tutor"},
            "level1: goes on within seconds", RECORDED,
            'level 2, where records decide, then "tutor", else a person does',
        ),
        (
            {"state": "level1", "turn": "bear", "until": NOW - timedelta(seconds=1)},
            'level1: "bear" is to act until 2026-06-01 11:59 UTC (over)', RECORDED,
            "level 2, where records decide, else a person does",
        ),
        ({"state": "level2"}, "level2: records are being compared", RECORDED, "a person is asked"),
        (
            {"state": "level2", "turn": "tutor", "until": NOW + timedelta(minutes=61)},
            'level2: "tutor" is to act until 2026-06-01 13:01 UTC (1 h 01 min left)', RECORDED, "a person is asked",
        ),
        (
            {"state": "level3", "counts": "bear", "provisional": True, "until": NOW + timedelta(hours=6)},
            "level3: a person decides until 2026-06-01 18:00 UTC (6 h 00 min left)",
            '9600000000 ("bear"), provisionally', "what counts now stays",
        ),
        (
            {"state": "provisional", "counts": None, "provisional": True},
            "provisional: waits for a human gate or a person", "no position, the value is uncertain",
            "what counts now counts for good",
        ),
        ({"state": "closed", "counts": "bull"}, "closed", '0.1 ("bull")', None),
        ({"state": "closed", "counts": None}, "closed", "no position, the value is uncertain", None),
        ({"state": "withdrawn"}, "withdrawn", RECORDED, None),
        ({"state": "superseded", "counts": "bear"}, "superseded", '9600000000 ("bear")', None),
    ],
)  # fmt: skip
def test_lines_of_each_state(given: dict[str, Any], state: str, counts: str, default: str | None) -> None:
    """Who is to act and until when, what counts, and what happens if nobody acts."""
    said = lines(**given)
    assert said[0] == '- "bear" challenged "bull": "Is it? \\"Yes.\\"" ["d"]'
    assert said[2] == '"revenue": 9600000000 ("bear") against 0.1 ("bull")'
    assert said[3:5] == [state, f"counts: {counts}"]
    assert [line.startswith(f"if nobody acts: {default}") for line in said[5:]] == ([] if default is None else [True])


def test_every_state_has_lines() -> None:
    """Each document has the value that counts, also where that is uncertain."""
    for state in DebateState:
        assert len(lines(state.value)) >= 5
        document = progress_document(debate(state.value))
        assert document["counts_now"] == position(debate(state.value))[1]


def test_without_values_positions_are_named() -> None:
    sides = {"challenger": DebateSide(agent="bear"), "challenged": DebateSide(agent="bull", evidence=("e-1",))}
    said = lines("closed", **sides, metric=None, counts="bull", required=("The 10-K",))
    assert 'positions: no value ("bear") against no value ("bull", evidence "e-1")' in said
    assert 'counts: the position of "bull"' in said
    assert not any(line.startswith("asked for") for line in said)
