"""
A program that writes without end: ``python -m tests.cache.working.writer '{"url": …, "identity": […]}'``.

Each write sets twenty keys, a list and a hash to its own number, which is also the revision that it makes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from imem.cache.client import Client
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline


async def write(told: dict[str, Any]) -> None:
    async with Client(told["url"]) as client:
        store = WorkingStore(client, SystemClock())
        memory = WorkingMemory(store, await store.open(MemoryIdentity(*told["identity"]), 1, deadline=Deadline.never()))
        number = memory.rev
        while True:
            number += 1
            text = str(number)
            values: dict[str, Any] = {f"k{one}": text for one in range(20)}
            values["list"] = [str(one) for one in range(number, number + 10)]
            values["hash"] = {"number": text}
            await memory.update(values, deadline=Deadline.never())
            if number == 1:
                sys.stdout.write("writing\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(json.loads(sys.argv[1])))
