"""One run of ``imem load``: check, load, wait, and say how it ended."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from imem.commands.load_view import View
from imem.loading import Loader
from imem.reading import Source, twice_readable
from imem.stores import Stores
from journal.errors import ImemError
from journal.settings import Settings

FAILURE: Final = 1
DEGRADED: Final = 3


async def run(
    settings: Settings, sources: list[Source], *, strict: bool, wait: bool, report: Path | None, as_json: bool
) -> int:
    """Load and return the exit code; the view has then said how it ended."""
    with ExitStack() as stack:
        if strict:
            sources = stack.enter_context(twice_readable(sources))
        view = stack.enter_context(View.open(sources, as_json=as_json, report=report))
        visible: bool | None = None
        async with Stores.open(settings) as stores:
            loader = Loader(stores.gateway, view)
            try:
                await loader.authorize()
                bad = await loader.check(sources) if strict else 0
                if not bad:
                    await loader.load(sources)
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
