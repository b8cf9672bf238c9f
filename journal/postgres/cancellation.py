"""
Cancellations that a driver swallowed.

Up to Python 3.11 ``asyncio.wait_for`` returns normally when it is cancelled at the moment at which its awaitable is
done, and the drivers use it: the cancellation is lost, and a loop that should end runs for ever.
"""

from __future__ import annotations

import asyncio


def heed_cancellation() -> None:
    """
    End the current task if its cancellation was requested; for every loop that only a cancellation ends.

    Raises:
        asyncio.CancelledError: cancellation was requested and swallowed.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
