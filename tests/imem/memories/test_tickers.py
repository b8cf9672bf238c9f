"""A company of whatever ticker is loaded has memories, and what is no ticker is neither."""

from __future__ import annotations

import psycopg
import pytest

from imem.journal.errors import BadInput
from imem.journal.settings import Role
from imem.kg.model import Company
from imem.memory import Memory
from imem.recall.memories.namespaces import parse_namespace
from tests.imem.memories.conftest import memory_of
from tests.imem.memory.conftest import MemoryHarness

TICKERS = [
    "MU", "^GSPC", "EURUSD=X", "BRK.B", "BRK/B", "BRK-B", "600519.SS", "M&M.NS", "GC=F", "C:EURUSD", "BTC-USD", "ES_F",
    "$SPX", "@ES#", "AAPL US Equity", "A+", "NASDAQ:AAPL", "9984.T", "トヨタ", "Ørsted", "टाटा", "ทีทีบี", "x" * 180,
]  # fmt: skip

NONE = [
    "", " ", "..", "a/..", "/", "/a", "a/", "a//b", "a  b", " a", "a ", "a\tb", "a\nb", "a\u00a0b", "a\u200bb", "*",
    "a*", "%2e", 'a"b', "a\\b", "a`b", "(a)", "\u2024\u2024", "x" * 181,
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("places")


@pytest.mark.parametrize("ticker", TICKERS)
async def test_a_company_of_that_ticker_has_memories(harness: MemoryHarness, ticker: str) -> None:
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"deadline_ms": 30_000})
    async with Memory.open(settings) as kate:
        await kate.record(Company(ticker=ticker))
    async with memory_of(harness) as ann:
        await ann.remember("Margins rise.", namespace=f"symbol/{ticker}")
        await ann.remember("Margins fall.", namespace=f"symbol/{ticker}/notes")
        found = await ann.memories.search("margins", namespace=f"symbol/{ticker}/*")
        assert {item.content for item in found.items} == {"Margins rise.", "Margins fall."}
        assert len((await ann.search("margins", subject=f"company:{ticker}", kinds=["memory"])).items) == 2
        assert len((await ann.memories.list(namespace=f"symbol/{ticker}")).items) == 1


@pytest.mark.parametrize("ticker", ["^GSPC", "EURUSD=X", "AAPL US Equity"])
async def test_memories_are_enough_to_know_a_ticker(harness: MemoryHarness, ticker: str) -> None:
    async with memory_of(harness) as ann:
        await ann.remember("Margins rise.", namespace=f"symbol/{ticker}")
        assert (await ann.brief(ticker)).subject.subject_id == f"company:{ticker}"


@pytest.mark.parametrize("text", NONE)
async def test_what_is_no_ticker_is_none_anywhere(harness: MemoryHarness, text: str) -> None:
    if len(text) <= 180:
        with pytest.raises(BadInput, match="namespace"):
            parse_namespace(f"symbol/{text}")
        with pytest.raises(psycopg.errors.CheckViolation):
            harness.rows("INSERT INTO recall.memory_namespace (namespace) VALUES (%s) RETURNING 1", f"symbol/{text}")
