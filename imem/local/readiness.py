"""
Readiness notification of a process: it makes the file that ``NOTIFY_FILE`` names.

The supervisor polls for the file, and so does the health check of a container. The variable is no setting: it belongs
to one process. The supervisor's files lie in a private folder, so that no other user can make them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

VARIABLE = "NOTIFY_FILE"


def clear_ready() -> None:
    """Remove the file that an earlier process left; an OSError is ignored."""
    if file := os.environ.get(VARIABLE):
        with suppress(OSError):
            Path(file).unlink(missing_ok=True)


def notify_ready() -> None:
    """Make the file; an OSError is ignored."""
    if file := os.environ.get(VARIABLE):
        with suppress(OSError):
            Path(file).touch(mode=0o600)
