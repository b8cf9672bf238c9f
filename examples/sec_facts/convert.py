"""
Facts of SEC filings as a history that ``imem load`` reads.

Each fact becomes a DataPoint: what one filing states as the value of a metric of a company. The same metric and period
stand in several filings, and do not always have the same value.

Choices where the source leaves one:

- The metric is the XBRL tag, the document the accession number, the source SEC_EDGAR.
- A day of filing is read as late as it allows: a point is known, and filed, at 12:00 UTC of the next day. Beginning and
  end of a period are 00:00 UTC of their days.
- The source does not say to how many decimals a value is rounded, so that is left out.
- The name of a company is dated with its first filing in the data.

Run it with ``python examples/sec_facts/convert.py [--data DIR] [--out FILE]``; the standard library is enough.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

if __name__ == "__main__":  # a script finds its own folder only; the shared module lies two above
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from examples import lines
from examples.lines import Line, known_at_of_date, present, record, stamp

HERE = Path(__file__).resolve().parent
SOURCE = "SEC_EDGAR"


def convert(folder: Path) -> list[Line]:
    """Return the lines of the facts in *folder*, in the order in which they became known."""
    rows = lines.read_rows(folder / "facts.csv.gz")
    return lines.in_order([*companies(rows), *map(point, rows)])


def companies(rows: list[dict[str, str]]) -> Iterator[Line]:
    """Yield a line for each company, dated with its first filing."""
    for ticker in sorted({row["ticker"] for row in rows}):
        own = [row for row in rows if row["ticker"] == ticker]
        first = min(own, key=lambda row: row["filed"])
        known_at = known_at_of_date(date.fromisoformat(first["filed"]))
        profile = {"profile": {"name": first["company"]}}
        yield record("Company", {"ticker": ticker}, known_at=known_at, groups=profile)


def point(row: dict[str, str]) -> Line:
    """Return the line of a fact."""
    known_at = known_at_of_date(date.fromisoformat(row["filed"]))
    core = present(
        subject_id=f"company:{row['ticker']}",
        metric=row["metric"],
        period_start=_midnight(row["period_start"]),
        period_end=_midnight(row["period_end"]),
        unit=row["unit"],
        value=float(row["value"]),
        source=SOURCE,
        document=row["accession"],
        filed_at=stamp(known_at),
    )
    return record("DataPoint", core, known_at=known_at)


def _midnight(day: str) -> str | None:
    return f"{day}T00:00:00Z" if day else None


def main(arguments: list[str] | None = None) -> None:
    """Convert what the arguments name."""
    parser = argparse.ArgumentParser(description="Convert facts of SEC filings into a history that imem load reads.")
    parser.add_argument("--data", type=Path, default=HERE / "source", help="folder of facts.csv.gz")
    parser.add_argument(
        "--out", type=Path, default=HERE / "sec_facts.jsonl.gz", help="file to write; - for the terminal"
    )
    given = parser.parse_args(arguments)
    lines.write(convert(given.data), None if str(given.out) == "-" else given.out)


if __name__ == "__main__":
    main()
