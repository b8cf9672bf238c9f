"""A command is a new process before a person: its reads have ten seconds, unless somebody has set what they have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from imem.journal.settings import Settings
from imem.recall.signals.reader import SignalPolicy
from imem.terminal.command import run_within


@pytest.mark.parametrize(
    ("given", "read_ms", "signals_ms"),
    [
        ({}, 10_000, 5_000),
        ({"IMEM_DEADLINE_MS": "500"}, 500, 5_000),
        ({"IMEM_DEADLINE_MS": "30000"}, 30_000, 5_000),
        ({"IMEM_SIGNALS_TIMEOUT_MS": "400"}, 10_000, 400),
    ],
)
def test_budgets_of_a_command(
    given: Mapping[str, str], read_ms: int, signals_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the command opens; a program's own settings stay as they are."""
    for name in ("IMEM_DEADLINE_MS", "IMEM_SIGNALS_TIMEOUT_MS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[Settings]:
        yield settings

    async def seen(settings: Settings) -> tuple[int, float]:
        return settings.deadline_ms, SignalPolicy.of(settings).timeout_ms

    assert run_within(opened, seen) == (read_ms, signals_ms)
    assert Settings.read({}).deadline_ms == 500
