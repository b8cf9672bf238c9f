"""Two winters of flu forecasts: what is left out before a day, and what is counted by month."""

from __future__ import annotations

from datetime import date

from examples.flusight.winters import convert, months

DAY = date(2025, 2, 14)


def test_nothing_is_written_that_became_known_on_the_day_or_later() -> None:
    """A forecast is there before its outcome, and stands under a later day as well."""
    found, later = convert(DAY), convert(date(2025, 7, 1))

    assert max(line.known_at.date() for line in found) < DAY
    assert {line.to_json() for line in found} < {line.to_json() for line in later}
    kinds = [line.content["record"] for line in found]
    assert kinds.count("Finding") > kinds.count("Outcome") > 53 * kinds.count("Analysis") // 2


def test_months_count_settled_forecasts_within_the_bounds() -> None:
    """The upper bound is excluded, and a forecast whose outcome is not known yet is in no month."""
    all_of = list(months(DAY, 0.0, 1.1))
    settled = sum(line.content["record"] == "Outcome" for line in convert(DAY))

    assert sum(int(line.split()[1]) for line in all_of) == settled
    assert list(months(DAY, 0.2, 0.2)) == []
