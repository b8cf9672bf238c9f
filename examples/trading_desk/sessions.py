"""
Trading sessions: which one a claim speaks of, when a close was known, and what the returns were.

The source's own ``last_close`` lags behind what a run had read, so nothing is measured from it. A claim speaks of the
first session that *opens* after the run was known, measured from the close before: no part of that session can have
been seen. The source's outcomes name the session from which it measures; where both disagree (one run that ended
next morning, in UTC-12 after that day's close), the later one counts and the earlier return reviews no decision.
"""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

from examples import lines
from examples.lines import Line, present, record

_OPEN, _CLOSE = time(13, 30, tzinfo=UTC), time(20, tzinfo=UTC)
"""09:30 and 16:00 in New York in summer time, which holds for all six days; none of them is a holiday or a half day."""

_SATURDAY = 5


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a gzip CSV file with a header."""
    return list(csv.DictReader(io.StringIO(lines.read_text(path))))


def closes_at(session: date) -> datetime:
    """Return the moment of *session*'s close."""
    return datetime.combine(session, _CLOSE)


def is_session(day: date) -> bool:
    """Tell whether the exchange is open on *day*: a weekday, as no holiday falls into the six days."""
    return day.weekday() < _SATURDAY


def session_before(session: date) -> date:
    """Return the session before *session*."""
    day = session - timedelta(days=1)
    while not is_session(day):
        day -= timedelta(days=1)
    return day


def claimed_session(known_at: datetime) -> date:
    """Return the first session that opens after *known_at*."""
    day = known_at.astimezone(UTC).date()
    while not is_session(day) or datetime.combine(day, _OPEN) <= known_at:
        day += timedelta(days=1)
    return day


def sessions_between(start: date, end: date) -> int:
    """Return how many sessions lie after *start*, up to and with *end*."""
    return sum(is_session(start + timedelta(days=n)) for n in range(1, (end - start).days + 1))


def outcome_lines(data: Path, decided: dict[tuple[str, date], tuple[str, datetime]]) -> list[Line]:
    """
    Return one Outcome per company, horizon and session, from the closes that the source has.

    Where a close is missing (fourteen of 22 tickers have one for the last session) there is no outcome: a stale close
    is never carried forward.

    Args:
        data: folder with ``outcomes.csv.gz`` and ``closes.csv.gz``.
        decided: key and ``known_at`` of the decision, by ticker and day of the run.
    """
    confirmed = {(row["ticker"], row["session"]): row["confirmed"] == "1" for row in read_rows(data / "closes.csv.gz")}
    last = max(date.fromisoformat(session) for _, session in confirmed)
    found: dict[str, Line] = {}
    for row in read_rows(data / "outcomes.csv.gz"):
        ticker, day = row["run_id"].split("-")
        entry = date.fromisoformat(row["entry_session"])
        decision, known_at = decided[ticker, datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date()]
        reviewed = decision if session_before(claimed_session(known_at)) == entry else None
        following = next(entry + timedelta(days=n) for n in range(1, 5) if is_session(entry + timedelta(days=n)))
        for end, column in ((following, "next_close"), (last, "end_close")):
            if not row[column]:
                continue
            span = f"{entry} ({'confirmed' if confirmed[ticker, str(entry)] else 'quoted once'})"
            until = f"{end} ({'confirmed' if confirmed[ticker, str(end)] else 'quoted once'})"
            line = outcome_line(
                ticker,
                entry,
                end,
                Decimal(row[column]) / Decimal(row["entry_close"]) - 1,
                decision=reviewed,
                source=f"closes quoted in the desk's reports, not an exchange record: {span} to {until}",
            )
            found.setdefault(str(line.content["core"]["id"]), line)
    return list(found.values())


def outcome_line(ticker: str, entry: date, end: date, change: Decimal, *, decision: str | None, source: str) -> Line:
    """Return the Outcome from *entry*'s close to *end*'s; a close dated with a day is known at noon of the next."""
    metric = f"return_{sessions_between(entry, end)}s"
    known_at = lines.known_at_of_date(end)
    core = present(
        id=f"trading_desk:{ticker}/{metric}/{end}",
        subject_id=f"company:{ticker}",
        decision_id=decision,
        metric=metric,
        target_at=lines.stamp(closes_at(end)),
        actual=float(round(change, 6)),
        unit="fraction",
        observed_at=lines.stamp(known_at),
        vintage=0,
        source=source,
    )
    return record("Outcome", core, known_at=known_at, occurred_at=closes_at(end))
