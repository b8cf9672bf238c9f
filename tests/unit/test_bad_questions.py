"""What is wrong with a question or a write is said by its name before any server is asked: none runs here."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from imem import Memory
from imem.cli import app
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.kg.model import Company

NOWHERE = {
    "IMEM_POSTGRES_URL": "postgresql://u:p@127.0.0.1:1/d",
    "IMEM_NEO4J_URL": "bolt://127.0.0.1:1",
    "IMEM_VALKEY_WORKING_URL": "redis://127.0.0.1:1/0",
    "IMEM_VALKEY_DURABLE_URL": "redis://127.0.0.1:1/0",
    "IMEM_VALKEY_CACHE_URL": "redis://127.0.0.1:1/0",
}
NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest_asyncio.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    """Open a memory whose servers are away."""
    async with Memory.open(Settings.read({**NOWHERE, "IMEM_HOME": str(tmp_path)})) as opened:
        yield opened


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["brief", "MU", "--as-of", "9999-12-31"], "--as-of"),
        (["brief", "MU", "--as-of", "0001-01-01T00:00:00+14:00"], "as_of"),
        (["brief", "MU", "--as-of", NOT_UTF8], "--as-of"),
        (["brief", NOT_UTF8], "subject"),
        (["brief", "MU", "--for-agent", NOT_UTF8], "for_agent"),
        (["debates", NOT_UTF8], "subject"),
        (["debates", "MU", "--limit", "0"], "limit"),
        (["debate", NOT_UTF8], "debate"),
        (["agents", NOT_UTF8], "agent"),
        (["agents", "ann", "--domain", NOT_UTF8], "domain"),
        (["text", "Analysis", NOT_UTF8], "key"),
        (["text", NOT_UTF8, "a"], "kind"),
        (["view", "everything", "a"], "view"),
        (["view", NOT_UTF8, "a"], "view"),
        (["view", "top_patterns", NOT_UTF8], "key"),
        (["query", NOT_UTF8], "query"),
        (["query", "company_history", "-s", "limit=abc"], "limit"),
        (["query", "company_history", "-s", "limit=null"], "limit"),
        (["query", "company_history", "-s", "limit=true"], "limit"),
        (["query", "company_history", "-s", "limit=2.5"], "limit"),
        (["query", "company_history", "-s", "limit=" + "9" * 5000], "limit"),
        (["query", "company_history", "-s", "limit=" + "9" * 500], "limit"),
        (["query", "company_history", "-s", "limit=201"], "limit"),
        (["query", "company_history", "-s", "known_until=0001-01-01T00:00:00+14:00"], "known_until: lies outside"),
        (["query", "company_history", "-s", "known_until=9999-12-31T23:59:59-14:00"], "known_until: lies outside"),
        (["query", "company_history", "-s", "subject_id=" + "[" * 100_000], "subject_id"),
        (["query", "company_history", "-s", "subject_id=[[1]]"], "subject_id"),
        (["query", "company_history", "-s", f"subject_id={NOT_UTF8}"], "subject_id"),
        (["query", "company_history", "-s", 'subject_id="\\ud800"'], "subject_id"),
    ],
)
def test_a_wrong_question_is_one_sentence_that_names_the_field(
    words: list[str], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2."""
    for name, value in {**NOWHERE, "IMEM_HOME": str(tmp_path), "COLUMNS": "1000"}.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, words)

    assert (done.exit_code, field in done.stderr) == (2, True), (done.exception, done.stderr)
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize("deadline_ms", [0, -1, 2**31, 1e12, float("nan"), float("inf"), True, "500"])
async def test_a_deadline_that_cannot_be_kept(memory: Memory, deadline_ms: Any) -> None:
    """Neither of a write nor of a question."""
    with pytest.raises(BadInput, match=r"^deadline_ms: "):
        await memory.record_company(Company(ticker="MU"), deadline_ms=deadline_ms)
    with pytest.raises(BadInput, match=r"^deadline_ms: "):
        await memory.brief("MU", deadline_ms=deadline_ms)


@pytest.mark.parametrize(
    "as_of",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2026, 6, 1),  # noqa: DTZ001 - the point
    ],
)
async def test_a_moment_beyond_the_calendar(memory: Memory, as_of: datetime) -> None:
    """In UTC it has no year that anybody can write."""
    with pytest.raises(BadInput, match=r"^as_of: "):
        await memory.brief("MU", as_of=as_of)


async def test_types_of_parameters(memory: Memory) -> None:
    """Each is of the type that the query states; a time names its zone."""
    for name, query, value in (
        ("limit", "company_history", "20"),
        ("subject", "brief", 7),
        ("subject", "brief", "a\0b"),
        ("subject", "brief", "x" * 100_000),
    ):
        with pytest.raises(BadInput, match=f"^{name}: "):
            await (memory.brief(value) if query == "brief" else memory.query(query, {name: value}))  # type: ignore[arg-type]


def test_the_earliest_moment_is_one() -> None:
    """What lies within the calendar is taken."""
    from imem.terminal.command import moment

    assert moment("9999-12-30") == datetime(9999, 12, 31, tzinfo=UTC)
    assert moment("0001-01-01") == datetime(1, 1, 2, tzinfo=UTC)
