"""One run of ``imem load``: check, load, wait, and say how it ended and what is still to come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

import typer

from imem.ingest.dry_run import CORES, DryCheck
from imem.ingest.line_reader import LoadSource, opened
from imem.ingest.loader import Loader
from imem.jobs.backlog import Waiting
from imem.journal.errors import BudgetExceeded, ImemError, SettingsError, StoreUnavailable
from imem.journal.settings import Settings
from imem.kg.load_format.entries import object_of
from imem.services.health import backlog
from imem.services.stores import Stores, register_metrics
from imem.terminal.command import DEGRADED, FAILURE
from imem.terminal.load_view import LoadView

SHOWN_LINES: Final = 10
"""Lines that a dry run shows as they would be stored."""

POLL_S: Final = 0.5
"""Least interval of counting what the pipelines have to do, in seconds."""

POLL_SHARE: Final = 20.0
"""Least interval as a multiple of the last count's duration."""


def dry_run(settings: Settings, sources: list[LoadSource], *, report: Path | None, as_json: bool) -> int:
    """
    Read everything without a server, show the first lines as they would be stored and every refusal; return the code.

    Refusals that depend on the journal (another core recorded before) are found only by a load with --strict.

    Raises:
        SettingsError: the metrics that *settings* name cannot be read.
    """
    register_metrics(settings)
    check = DryCheck()
    with LoadView.open(sources, as_json=as_json, report=report, every=True) as view:
        first: list[dict[str, Any]] = []
        stored = refused = 0
        for source in sources:
            with opened(source) as batches:
                while (batch := batches.next_batch()) is not None:
                    good, bad = check.judge(source.label, batch)
                    for line in bad:
                        view.refused(line)
                    first += [object_of(one.line) for one in good[: SHOWN_LINES - len(first)]]
                    stored += len(good)
                    refused += len(bad)
        view.close_dry(first, stored, refused, compared=None if check.is_whole else CORES)
    return FAILURE if refused else 0


@dataclass(frozen=True, slots=True)
class Waits:
    """
    The events that a load waits for.

    Attributes:
        graph: until the graph holds it.
        pipelines_s: until the pipelines are done, at most so many seconds.
        asks: whether a person on a terminal is asked whether to wait for the pipelines.
    """

    graph: bool = True
    pipelines_s: float = 0.0
    asks: bool = False


async def run(
    settings: Settings, sources: list[LoadSource], *, strict: bool, waits: Waits, report: Path | None, as_json: bool
) -> int:
    """Load and return the exit code; the view has then said how it ended."""
    left: tuple[Waiting, ...] | None = None
    async with Stores.open(settings) as stores:
        with LoadView.open(sources, as_json=as_json, report=report) as view:
            visible: bool | None = None
            loader = Loader(stores.gateway, view)
            try:
                await loader.authorize()
                bad = await loader.check(sources) if strict else 0
                if not bad:
                    await loader.load(sources)
                    await loader.look_for_references()
                    visible = await loader.wait_visible() if waits.graph else None
                    left = await _left(stores)
                    if waits.pipelines_s and left != ():
                        left = await wait_for_pipelines(stores, view.pipelines, within_s=waits.pipelines_s)
            except ImemError as error:
                view.close(loader.counts, visible=False, error=str(error))
                raise
            except asyncio.CancelledError:
                view.close(loader.counts, visible=bool(visible), left=left, error="Interrupted.")
                raise
            if bad:
                loader.counts.refused = bad
            view.close(loader.counts, visible=visible, checked=bad > 0, left=left)
        if left and waits.asks and view.asks and typer.confirm("Wait for them? Ctrl-C ends the wait and nothing else."):
            with LoadView.open(sources, as_json=False, report=None) as waiting:
                left = await wait_for_pipelines(stores, waiting.pipelines, within_s=inf)
    if loader.counts.refused:
        return FAILURE
    return DEGRADED if visible is False or (waits.pipelines_s and left != ()) else 0


async def _left(stores: Stores) -> tuple[Waiting, ...] | None:
    """Return what the pipelines still have to do; None if that cannot be said now, which fails no load."""
    try:
        return await backlog(stores)
    except (StoreUnavailable, BudgetExceeded, SettingsError):
        return None


async def wait_for_pipelines(
    stores: Stores, shown: Callable[[tuple[Waiting, ...]], None], *, within_s: float
) -> tuple[Waiting, ...] | None:
    """
    Wait until the pipelines have done everything, or for *within_s* seconds; return what is left, None if unknown.

    While Postgres does not answer in time, the wait goes on.

    Args:
        shown: receives what is left at each look.
    """
    over = time.monotonic() + within_s
    left: tuple[Waiting, ...] | None = None
    while True:
        begun = time.monotonic()
        found = await _left(stores)
        if found is not None:
            left = found
            shown(left)
            if not left:
                return left
        # Counting a long queue must not slow down those who work on it.
        pause_s = max(POLL_S, (time.monotonic() - begun) * POLL_SHARE)
        if time.monotonic() + pause_s >= over:
            return left
        await asyncio.sleep(pause_s)
