"""Applying what is due without the applier's loops, so that a test knows when it is done."""

from __future__ import annotations

from imem.journal.errors import LeaseLost
from imem.kg.projection.applier import Applier


async def drain(applier: Applier) -> int:
    """Apply everything that is due, and return how many events that was."""
    if not await applier.lease.take():
        raise LeaseLost("Another process applies events.")
    done = 0
    while True:
        found = 0
        for lane in applier._in_use:
            await applier._claim(lane)
            if events := lane.begin():
                found = len(events)
                await applier._apply(lane, events)
                await applier._marked(lane)
                break
        done += found
        if not found and not await applier.derive():
            return done
