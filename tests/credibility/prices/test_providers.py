"""Prices from a file and from an endpoint: what they state, and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import orjson
import pytest

from imem.credibility.prices.providers import PRICES, PriceRow, RefusedPrice, price_provider_of
from imem.journal.deadline import Deadline
from imem.journal.endpoints.feeds import HttpFeed
from imem.journal.errors import BadInput, StoreUnavailable
from imem.journal.settings import Settings
from tests.http_server import Answer, serving

CSV = b"""subject_id,session,close,dividend,split,known_at,delisted
company:MU,2024-06-03,100.5,,,,
company:MU,2024-06-04,50,0.25,2,2024-06-05T09:00:00Z,false
company:MU,2024-06-05,0,,,2024-06-05,true
"""
MU = [
    PriceRow("company:MU", date(2024, 6, 3), datetime(2024, 6, 3, 20, tzinfo=UTC), 100.5),
    PriceRow("company:MU", date(2024, 6, 4), datetime(2024, 6, 5, 9, tzinfo=UTC), 50.0, 0.25, 2.0),
    PriceRow("company:MU", date(2024, 6, 5), datetime(2024, 6, 6, tzinfo=UTC), 0.0, delisted=True),
]
GOOD = {"subject_id": "company:MU", "session": "2024-06-03", "close": 100.5}


async def test_a_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    provider = price_provider_of(Settings.read(env={"IMEM_PRICE_FILE": str(path)}))
    assert provider is not None
    with pytest.raises(StoreUnavailable, match="The file of prices cannot be read"):
        await provider.rows(deadline=Deadline.never())
    path.write_bytes(CSV)
    assert await provider.rows(deadline=Deadline.never()) == MU


async def test_an_endpoint_is_asked_with_its_key() -> None:
    with serving(lambda _: Answer(200, orjson.dumps([GOOD]))) as server:
        provider = HttpFeed(f"{server.url}/prices", PRICES, "secret")
        assert await provider.rows(deadline=Deadline.after_ms(30_000)) == MU[:1]
        assert [one.headers["authorization"] for one in server.asked] == ["Bearer secret"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"close": 0}, "close"),
        ({"close": None}, "close"),
        ({"close": -1.0}, "close"),
        ({"close": "cheap"}, "close"),
        ({"close": -1.0, "delisted": True}, "close"),
        ({"close": None, "delisted": True}, "close"),
        ({"session": "2024-06-01"}, "session"),
        ({"session": "2024-07-04"}, "session"),
        ({"session": "2024-06-03T20:00:00Z"}, "session"),
        ({"session": None}, "session"),
        ({"known_at": "2024-06-04T10:00:00"}, "known_at"),
        ({"known_at": "2024-06-03T19:59:00Z"}, "known_at"),
        ({"subject_id": "MU"}, "subject_id"),
        ({"dividend": -0.1}, "dividend"),
        ({"split": 0}, "split"),
        ({"delisted": "perhaps"}, "delisted"),
        ({"delisted": [1]}, "delisted"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_field(changed: dict[str, object], field: str) -> None:
    first, second = PRICES.rows_of(orjson.dumps([GOOD, {**GOOD, **changed}]), as_json=True)
    assert first == MU[0]
    assert isinstance(second, RefusedPrice)
    assert second.subject_id == (None if field == "subject_id" else "company:MU")
    assert f"row 2.{field}" in second.reason


def test_a_table_without_closes_is_refused() -> None:
    with pytest.raises(BadInput, match="close"):
        PRICES.rows_of(b"subject_id,session\ncompany:MU,2024-06-03\n", as_json=False)
