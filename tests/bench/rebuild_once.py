"""
One rebuild in a process of its own, so that its memory can be weighed: ``python -m tests.bench.rebuild_once``.

Prints JSON: seconds in all; events done and seconds between the first page and the last; and the most memory held, in
bytes.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from imem.journal.settings import Settings
from imem.services.graph_rebuild import beside
from imem.services.stores import Stores


async def main() -> dict[str, float]:
    """Make the graph of the home's stack anew beside the one in use, and return what it took."""
    marks: list[tuple[float, int]] = []
    begun = time.perf_counter()
    async with Stores.open(Settings.read(), pipelines=True) as stores:
        result = await beside(stores, lambda done, _: marks.append((time.perf_counter(), done)))
    seconds = time.perf_counter() - begun
    if not result.taken_over:
        raise SystemExit("The graph made anew says something else.")
    # From the first page on: before it, the second server starts.
    (first_s, first), (last_s, last) = marks[0], marks[-1]
    return {"seconds": seconds, "events": last - first, "replay_s": last_s - first_s, "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Return the most memory that this program held; what getrusage says counts the process that started it as well."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))  # noqa: T201 - a program
