"""How one process of several comes to do some work, and goes on with it through stores that are away."""

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
"""Before the second attempt when a store went away, in seconds; each that fails as well doubles it."""

LONGEST_PAUSE_S: Final = 2.0
"""Between two attempts while a store is away, in seconds."""

STABLE_S: Final = 2.0
"""Work that went on for so long before it failed, in seconds, begins with the first pause again."""

STANDBY_POLL_S: Final = 1.0
"""Between two looks whether somebody else's lease has run out, in seconds."""


async def run_as_leader(
    lease: LeaderLease, work: Callable[[], Coroutine[Any, Any, None]], *, ended: Callable[[], None] | None = None
) -> None:
    """
    Do *work* while *lease* is ours, until cancelled; the lease is still to be dropped then.

    Another process that takes over sends this one back to waiting. A store that is away is waited for: longer each
    time, since an attempt that fails at once costs the server that comes back, and the log, as much as one that works.

    Args:
        work: ends by an error alone.
        ended: called whenever it has ended, before it begins anew.
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
    """Run *work* until any of it ends, end the others, and raise what any of them raised."""
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
