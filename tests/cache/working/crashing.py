"""
Restorers that kill themselves: a program, told where on its first line, and on each further line what to restore and
after how many steps.

A step lies before and after each script that a restore runs. Each life is a fork of this process, so that a hundred of
them cost seconds. For each it answers with how the life ended: the number of the signal, or 0.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from imem.cache.client import Client
from imem.cache.working.document import contents_of, digest
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from tests.kill_points import run_each_line


class Stepwise(Client):
    """A client for which each script is two steps."""

    left = 0

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run(self, *arguments: Any, **named: Any) -> Any:
        self.step()
        answer = await super().run(*arguments, **named)
        self.step()
        return answer


async def run(url: str, told: dict[str, Any]) -> None:
    """Restore until killed, or to the end."""
    contents = contents_of(told["document"])
    async with Stepwise(url) as client:
        client.left = told["steps"]
        store = WorkingStore(client, SystemClock())
        identity = MemoryIdentity(*told["identity"])
        await store.restore(identity, contents, digest(contents), told["epoch"], told["seq"], deadline=Deadline.never())


if __name__ == "__main__":
    run_each_line(lambda url, line: run(url, json.loads(line)))
