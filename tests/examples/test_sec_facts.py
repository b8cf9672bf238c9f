"""The example of filings: every fact of the source is a data point that the loader takes, known after its filing."""

from __future__ import annotations

import json
from datetime import date

from examples.lines import known_at_of_date, read_rows
from imem.kg.load_format.lines import RecordLine, parse_line
from tests.examples.conftest import EXAMPLES, read


def test_every_fact_is_a_data_point_of_its_own() -> None:
    rows = read_rows(EXAMPLES / "sec_facts" / "source" / "facts.csv.gz")
    parsed = [parse_line(json.dumps(line).encode()) for line in read("sec_facts")]
    points = [line for line in parsed if isinstance(line, RecordLine) and line.kind == "DataPoint"]

    assert len({line.key for line in points}) == len(points) == len(rows)
    stated = sorted((line.core["document"], line.core["metric"], line.core["value"]) for line in points if line.core)
    assert stated == sorted((row["accession"], row["metric"], float(row["value"])) for row in rows)


def test_no_fact_is_known_before_the_day_of_its_filing_is_over() -> None:
    rows = read_rows(EXAMPLES / "sec_facts" / "source" / "facts.csv.gz")
    filed = {row["accession"]: row["filed"] for row in rows}
    for line in read("sec_facts"):
        if line["record"] == "DataPoint":
            day = filed[line["core"]["document"]]
            assert (
                line["known_at"]
                == line["core"]["filed_at"]
                == f"{known_at_of_date(date.fromisoformat(day)):%Y-%m-%dT%H:%M:%SZ}"
            )
