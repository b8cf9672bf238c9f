"""
The supervisor as a process of its own.

``python -m imem.local.daemon FD`` is what ``imem up --detach`` starts. Until everything is ready it tells its parent
through the pipe FD how far it is, one JSON object a line: ``{"state": …}`` on every change, at the end
``{"ready": true}`` or ``{"error": {"message": …, "mend": …}}``; it never writes an endpoint there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from imem.journal.errors import ImemError
from imem.journal.settings import Settings
from imem.local import trial
from imem.local.state import StackState
from imem.local.supervisor import Supervisor
from imem.local.workers import standard
from imem.logs import configure


async def supervise(settings: Settings, report: Callable[[StackState], None]) -> None:
    """
    Run a whole stack in this thread until SIGINT, SIGTERM or SIGHUP.

    Raises:
        ImemError: it does not start.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(one, stop.set)
    trial.check(settings)
    await Supervisor(settings, workers=standard(settings), migrate=_migrate, report=report).run(stop)


def _migrate(settings: Settings) -> list[str]:
    from imem.local.migrate import migrate  # noqa: PLC0415 - slow to import, and the servers start meanwhile

    done = migrate(settings)
    trial.settle(settings)
    return done


class Pipe:
    """The way to the parent, until it has heard how the start ended or is gone itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: dict[str, Any], *, last: bool = False) -> None:
        """Send one line."""
        if self._descriptor < 0:
            return
        try:
            os.write(self._descriptor, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            last = True
        if last:
            os.close(self._descriptor)
            self._descriptor = -1

    def report(self, state: StackState) -> None:
        """Send a new state to the parent."""
        self.send({"state": replace(state, endpoints={}).to_json()})
        if state.ready:
            self.send({"ready": True}, last=True)


def main() -> int:
    """Supervise, and send the result of the start to the parent."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    pipe = Pipe(int(sys.argv[1]))
    try:
        settings = Settings.read()
        configure(settings.log_level)
        asyncio.run(supervise(settings, pipe.report))
    except ImemError as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - a sentence, not a traceback
        pipe.send({"error": {"message": error.message, "mend": error.mend}}, last=True)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, its text may hold a password and must not be logged
        kind, where = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
        logging.getLogger(__name__).error("Something unexpected went wrong (%s).\n%s", kind, where)  # noqa: TRY400
        message = f"Something unexpected went wrong in the supervisor ({kind})."
        pipe.send(
            {"error": {"message": message, "mend": "`imem logs supervisor` shows where; please report it."}}, last=True
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
