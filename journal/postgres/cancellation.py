"""
Cancellations that a driver swallowed.

Up to Python 3.11 ``asyncio.wait_for`` returns normally when it is cancelled at the moment at which what it waits for is
done, and the drivers wait through it: the cancellation is lost, and a loop that should end goes round for ever.
"""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """
    End the current task if somebody asked for that; to be called in every loop that only a cancellation ends.

    Raises:
        asyncio.CancelledError: it was asked to end, and has not.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
