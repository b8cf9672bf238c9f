"""
Entry point of the product's own processes: ``python -m imem.worker applier|celery|beat|agents``.

Addresses and passwords come from the settings and the stack's state file, never from the arguments.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from imem.journal.errors import ImemError
from imem.journal.settings import Settings
from imem.local.readiness import clear_ready
from imem.local.state import with_local_endpoints
from imem.logs import configure
from imem.metrics import count_in_files
from imem.tracing import send_traces

ROLES = ("applier", "celery", "beat", "agents")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one role until a stop signal; return the exit code: 0 stopped, 1 could not run, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m imem.worker", description="Run one of the product's processes.")
    parser.add_argument("role", choices=ROLES)
    role = parser.parse_args(argv).role
    # Before numpy is loaded, which reads it then: on a busy machine its threads wait for one another far longer than
    # one alone needs for the little matrices of these processes (measured: eight times as long).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    clear_ready()
    try:
        settings = Settings.read()
        configure(settings.log_level)
        count_in_files(settings.home)
        settings = with_local_endpoints(settings)
        send_the_rest = send_traces(settings, role)
        worker = import_module(f"imem.workers.{role}")
        # Exempt what is loaded now from garbage collection: a full collection would scan it, for 50 ms and more.
        gc.collect()
        gc.freeze()
        try:
            return int(worker.run(settings) or 0)
        finally:
            send_the_rest()
    except ImemError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
