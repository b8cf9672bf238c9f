"""Leader election: one of several processes runs the work, and retries while a store is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from imem.jobs.lease import LeaderLease
from imem.journal.errors import ImemError, LeaseLost
from imem.journal.postgres.cancellation import heed_cancellation

log = structlog.get_logger()

FIRST_PAUSE_S: Final = 0.05
"""Pause before the second attempt while a store is away, in seconds; doubled after each failure."""

LONGEST_PAUSE_S: Final = 2.0
"""Longest pause between two attempts, in seconds."""

STABLE_S: Final = 2.0
"""A run at least this long, in seconds, resets the pause."""

STANDBY_POLL_S: Final = 1.0
"""How often a standby tries to acquire the lease, in seconds."""


async def run_as_leader(
    lease: LeaderLease, work: Callable[[], Coroutine[Any, Any, None]], *, ended: Callable[[], None] | None = None
) -> None:
    """
    Run *work* while this process holds *lease*, until cancelled; the caller then drops the lease.

    When another process takes over, this one becomes a standby. While a store is away, attempts are repeated with a
    growing pause, which spares the returning server and the log.

    Args:
        work: ends by an error alone.
        ended: called whenever *work* has ended, before it begins anew.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        heed_cancellation()
        begun_s = time.monotonic()
        try:
            if await lease.take():
                await together(lease.renew_until_cancelled(), work())
            await asyncio.sleep(STANDBY_POLL_S)
        except LeaseLost as lost:
            log.warning("lease.lost", work=lease.name, reason=str(lost))
            lease.reset_holder()
        except ImemError as error:
            if time.monotonic() - begun_s > STABLE_S:
                pause_s = FIRST_PAUSE_S
            log.warning("lease.waiting", work=lease.name, reason=str(error), pause_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        else:
            pause_s = FIRST_PAUSE_S
        finally:
            if ended is not None:
                ended()


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run *work* concurrently until any of it ends, cancel the others, and raise the first error."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
