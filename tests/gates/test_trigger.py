"""When a package of Gate 6 is due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.gates.learning.trigger import Urgency, due_package

HIGH, NORMAL = Urgency.HIGH, Urgency.NORMAL


@pytest.mark.spec("GT-1", "PV-25")
@pytest.mark.parametrize(
    ("days", "outcomes", "urgency"),
    [
        (5, 60, None),
        (7, 50, NORMAL),
        (30, 12, NORMAL),
        (31, 55, NORMAL),
        (7, 49, None),
        (29, 49, None),
        (6.99, 500, None),
        (7, 75, HIGH),
        (7, 74, NORMAL),
        (45, 0, HIGH),
        (44.9, 0, NORMAL),
    ],
)
def test_outcomes_or_days_and_a_week_of_rest(days: float, outcomes: int, urgency: Urgency | None) -> None:
    due = due_package(outcomes, timedelta(days=days))

    assert (due and due.urgency) == urgency
