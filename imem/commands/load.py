"""One run of ``imem load``: check, load, wait, and say how it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from imem.ingest.dry_run import CORES, DryCheck
from imem.ingest.line_reader import LoadSource, opened
from imem.ingest.loader import Loader
from imem.journal.errors import ImemError
from imem.journal.settings import Settings
from imem.kg.load_format.entries import object_of
from imem.services.stores import Stores, register_metrics
from imem.terminal.command import DEGRADED, FAILURE
from imem.terminal.load_view import LoadView

SHOWN_LINES: Final = 10
"""Lines that a dry run shows as they would be stored."""


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


async def run(
    settings: Settings, sources: list[LoadSource], *, strict: bool, wait: bool, report: Path | None, as_json: bool
) -> int:
    """Load and return the exit code; the view has then said how it ended."""
    with LoadView.open(sources, as_json=as_json, report=report) as view:
        visible: bool | None = None
        async with Stores.open(settings) as stores:
            loader = Loader(stores.gateway, view)
            try:
                await loader.authorize()
                bad = await loader.check(sources) if strict else 0
                if not bad:
                    await loader.load(sources)
                    await loader.look_for_references()
                    visible = await loader.wait_visible() if wait else None
            except ImemError as error:
                view.close(loader.counts, visible=False, error=str(error))
                raise
            except asyncio.CancelledError:
                view.close(loader.counts, visible=False, error="Interrupted.")
                raise
        if bad:
            loader.counts.refused = bad
        view.close(loader.counts, visible=visible, checked=bad > 0)
    if loader.counts.refused:
        return FAILURE
    return DEGRADED if visible is False else 0
