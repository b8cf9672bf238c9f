"""Indicators from a file and from an endpoint: when they could be known, what is wrong with them, and what hangs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from imem.credibility.regimes.detect import Indicators
from imem.credibility.regimes.providers import (
    INDICATORS,
    IndicatorRow,
    indicators_at,
    read_indicators,
)
from imem.credibility.regimes.readings import readings_of
from imem.journal.deadline import Deadline
from imem.journal.endpoints.feeds import FileFeed, HttpFeed
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import Regime
from tests.http_server import Answer, serving

DAY = datetime(2024, 6, 3, tzinfo=UTC)
CSV = b"""known_at,sp500_return_12m,fed_funds,vix
2024-06-01T00:00:00Z,0.25,5.33,
2024-06-02,,,12.9
2024-05-01T00:00:00Z,0.20,5.25,40
"""


def test_what_a_day_closed_with_is_known_at_its_end() -> None:
    """Each indicator is the newest that could be known, whatever the order of rows; one too old is missing."""
    rows = INDICATORS.rows_of(CSV, as_json=False)
    assert indicators_at(rows, DAY) == Indicators(0.25, 5.33, 12.9)
    assert indicators_at(rows, DAY - timedelta(microseconds=1)) == Indicators(0.25, 5.33, None)
    assert indicators_at(rows, DAY + timedelta(days=30)) == Indicators(None, 5.33, None)
    assert indicators_at(rows, datetime(2024, 4, 30, tzinfo=UTC)) == Indicators()


BAD = [
    (b'{"known_at": "2024-06-01", "vix": "high"}', "row 1.vix"),
    (b'{"known_at": "2024-06-01", "vix": true}', "row 1.vix"),
    (b'{"known_at": "2024-06-01", "vix": [1]}', "row 1.vix"),
    (b'{"known_at": "2024-06-01", "sp500_return_12m": 12.5}', "row 1.sp500_return_12m"),
    (b'{"known_at": "2024-06-01", "fed_funds": 1e999}', "indicators"),
    (b'[{"known_at": "2024-06-01"}, {"vix": 12}]', "row 2.known_at"),
    (b'{"known_at": "2024-06-01T00:00:00", "vix": 12}', "row 1.known_at"),
    (b'{"known_at": "2024-02-30", "vix": 12}', "row 1.known_at"),
    (b"[1]", "indicators"),
    (b'"x"', "indicators"),
    (b"", "indicators"),
]


@pytest.mark.parametrize(("data", "field"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_named(data: bytes, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        INDICATORS.rows_of(data, as_json=True)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"known_at,vix\n2024-06-01,12\n", "indicators"),
        (b"known_at,sp500_return_12m,fed_funds,vix\n2024-06-01,nan,1,12\n", "row 1.sp500_return_12m"),
        (b"known_at,sp500_return_12m,fed_funds,vix\n2024-06-01,0.1,inf,12\n", "row 1.fed_funds"),
        (b"known_at,sp500_return_12m,fed_funds,vix\n2024-06-01\n", None),
        (b"\xff\xfe", "indicators"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(data: bytes, field: str | None) -> None:
    if field is None:
        assert INDICATORS.rows_of(data, as_json=False) == [IndicatorRow(datetime(2024, 6, 2, tzinfo=UTC), Indicators())]
        return
    with pytest.raises(BadInput) as refused:
        INDICATORS.rows_of(data, as_json=False)
    assert refused.value.field == field


async def test_a_file_is_read_anew(tmp_path: Path) -> None:
    """A file that is away, or wrong, gives no indicators, and says why."""
    provider = FileFeed(tmp_path / "indicators.csv", INDICATORS)
    assert provider.name == "indicators.csv"
    found, reason = await read_indicators(provider, DAY, deadline=Deadline.after_ms(30_000))
    assert (found, reason) == (Indicators(), "The file of indicators cannot be read (FileNotFoundError).")
    provider.path.write_bytes(CSV)
    assert await read_indicators(provider, DAY, deadline=Deadline.after_ms(30_000)) == (
        Indicators(0.25, 5.33, 12.9),
        None,
    )
    provider.path.write_bytes(CSV.replace(b"12.9", b"calm"))
    found, reason = await read_indicators(provider, DAY, deadline=Deadline.after_ms(30_000))
    assert found == Indicators()
    assert reason is not None
    assert "row 2.vix" in reason


GOOD = Answer(200, orjson.dumps({"known_at": "2024-06-02", "sp500_return_12m": 0.2, "fed_funds": 5.0, "vix": 12}))


async def test_an_endpoint_that_is_busy_is_asked_again() -> None:
    """With its key, as a GET, and after the time that it wants."""
    told = iter([Answer(429, headers={"retry-after": "0"}), Answer(503), GOOD])
    with serving(lambda _: next(told)) as server:
        provider = HttpFeed(f"{server.url}/indicators", INDICATORS, "secret")
        found = await read_indicators(provider, DAY, deadline=Deadline.after_ms(30_000))
        assert [one.headers["authorization"] for one in server.asked] == ["Bearer secret"] * 3
        assert "secret" not in repr(provider)
    assert found == (Indicators(0.2, 5.0, 12.0), None)
    assert provider.name == "127.0.0.1"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(silent=True),
        Answer(200, drip=True),
        Answer(200, cut=True),
        Answer(429, headers={"retry-after": "3600"}),
        Answer(401),
        Answer(200, b"<html>"),
        Answer(200, b'{"known_at": "2024-06-02", "vix": {"value": 12}}'),
        Answer(302, headers={"location": "http://127.0.0.1:1/"}),
    ],
    ids=["silent", "drips", "cut", "limited", "refused", "html", "types", "redirect"],
)
async def test_an_endpoint_that_fails_ends_by_the_deadline(answer: Answer) -> None:
    """It gives no indicators, and says why without its address."""
    with serving(lambda _: answer) as server:
        provider = HttpFeed(f"{server.url}/path-of-ours", INDICATORS)
        found, reason = await read_indicators(provider, DAY, deadline=Deadline.after_ms(700))
    assert found == Indicators()
    assert reason
    assert "path-of-ours" not in reason


def test_a_history_gives_a_reading_for_each_moment() -> None:
    """What is missing keeps the regime before; nothing that was known later is used."""
    readings = readings_of(INDICATORS.rows_of(CSV, as_json=False), "indicators.csv")
    assert [(one.observed_at.date().isoformat(), one.regime, one.stale, one.vix) for one in readings] == [
        ("2024-05-01", Regime.HIGH_VOLATILITY, False, 40.0),
        ("2024-06-01", Regime.HIGH_VOLATILITY, True, None),
        ("2024-06-03", Regime.BULL_HIGH_RATES, False, 12.9),
    ]
    assert len({one.id for one in readings}) == 3
    longest = {one.id for name in ("a", "b") for one in readings_of(INDICATORS.rows_of(CSV, as_json=False), name * 200)}
    assert len(longest) == 6, "each reading of each file has its own"
