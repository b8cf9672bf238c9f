"""
Trading sessions: which one a claim speaks of, when a close was known, and what the returns were.

The source's own ``last_close`` lags behind what a run had read, so nothing is measured from it. A claim speaks of the
first session that *opens* after the run was known, measured from the close before: no part of that session can have
been seen. The source's outcomes name the session from which it measures; where both disagree (one run that ended
next morning, in UTC-12 after that day's close), the later one counts and the earlier return reviews no decision.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from examples import lines
from examples.lines import Line, present, record
from examples.trading_desk.exchange import (
    closes_at,
    is_session,
    opens_at,
    session_after,
    session_before,
    sessions_between,
)


def claimed_session(known_at: datetime) -> date:
    """Return the first session that opens after *known_at*."""
    day = known_at.astimezone(UTC).date()
    return day if is_session(day) and opens_at(day) > known_at else session_after(day)


def outcome_lines(data: Path, decided: dict[str, tuple[str, datetime]]) -> list[Line]:
    """
    Return one Outcome per company, horizon and session, from the closes that the source has.

    Where a close is missing (fourteen of the extract's 22 tickers have one for the last session) there is no outcome: a
    stale close is never carried forward.

    Args:
        data: folder with ``outcomes.csv.gz`` and ``closes.csv.gz``.
        decided: key and ``known_at`` of the decision, by the source's id of the run; a run that decided nothing has
            none.
    """
    closes = lines.read_rows(data / "closes.csv.gz")
    standing = {
        (row["ticker"], row["session"]): "confirmed" if row["confirmed"] == "1" else "quoted once" for row in closes
    }
    last = max((date.fromisoformat(session) for _, session in standing), default=None)
    found: dict[str, Line] = {}
    for row in lines.read_rows(data / "outcomes.csv.gz"):
        if not row["entry_session"] or not row["entry_close"]:
            continue
        ticker = row["run_id"].rpartition("-")[0]
        entry = date.fromisoformat(row["entry_session"])
        decision, known_at = decided.get(row["run_id"], (None, None))
        reviewed = decision if known_at and session_before(claimed_session(known_at)) == entry else None
        for end, column in ((session_after(entry), "next_close"), (last, "end_close")):
            if not row[column] or end is None or end <= entry:
                continue
            span, until = (f"{day} ({standing.get((ticker, str(day)), 'quoted nowhere')})" for day in (entry, end))
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
