"""A process that moves lifecycle rows and is killed before a given statement."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

from imem.jobs.lifecycle import advance_due
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from tests.jobs.questions import QUESTIONS, answer_or_close
from tests.kill_points import run_each_line


async def run(url: str, line: str) -> None:
    """Kill this process before its statement of the given number; without one it does its work."""
    import psycopg

    left = int(line)
    execute = psycopg.AsyncCursor.execute

    async def counted(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await execute(self, *given, **named)

    psycopg.AsyncCursor.execute = counted  # type: ignore[method-assign]
    runtime: Any = SimpleNamespace(database=Database(url, size=2), gateway=None)
    await advance_due(runtime, {"question": QUESTIONS.stepping(answer_or_close)}, until=Deadline.after_ms(30_000))
    await runtime.database.close()


if __name__ == "__main__":
    run_each_line(run)
