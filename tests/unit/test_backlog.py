"""When a pipeline counts as far behind."""

from __future__ import annotations

import pytest

from imem.jobs import backlog
from imem.jobs.backlog import MANY, WORK, Waiting, far_behind


@pytest.mark.parametrize(
    ("waiting", "oldest_s", "error", "far"),
    [(1, 1.0, None, False), (MANY, 1.0, None, True), (1, 301.0, None, True), (1, None, "ImemError: away", True),
     (1, 61.0, "ImemError: away", True), (1, 59.0, "ImemError: away", False),
     (MANY - 1, None, None, False)],
)  # fmt: skip
def test_far_behind(waiting: int, oldest_s: float | None, error: str | None, *, far: bool) -> None:
    """Much, for long, or failing."""
    [work] = [one for one in WORK if one.name == "credibility"]
    one = Waiting(work=work, waiting=waiting, oldest_s=oldest_s, error=error)
    assert one.far_behind is far
    assert far_behind([one], {"credibility.settle"}) is far
    assert not far_behind([one], {"kg.similar"})


def test_rounds_that_are_rare_are_late_later() -> None:
    """Patterns are tested every ten minutes: after six none is behind."""
    [work] = [one for one in WORK if one.name == "patterns"]
    assert not Waiting(work=work, waiting=1, oldest_s=backlog.LATE_S + 60, error=None).far_behind
