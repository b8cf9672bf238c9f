"""What a program that has not configured its logs gets to see, and what a person at the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

SAYS = """
import sys
import structlog
import imem.commands
from imem.logs import by_default
imem.commands.speaking = sys.argv[1] == "command"
by_default(sys.argv[2])
for level in ("info", "warning", "error"):
    getattr(structlog.get_logger(), level)("said " + level)
"""


@pytest.mark.parametrize(
    ("who", "level", "heard"),
    [
        ("program", "INFO", ["info", "warning", "error"]),
        ("program", "WARNING", ["warning", "error"]),
        ("command", "INFO", ["error"]),
    ],
)
def test_what_is_logged_where_nobody_configured_it(who: str, level: str, heard: list[str]) -> None:
    """On standard error alone, from the level of the settings on; a command speaks itself."""
    done = subprocess.run([sys.executable, "-c", SAYS, who, level], cwd=TOP, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert [word for word in ("info", "warning", "error") if f"said {word}" in done.stderr] == heard
