"""Whether a picture of the documentation is the one that the code makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def check_picture(path: Path, made: str) -> None:
    """Fail if a stored picture is not the one that was made, to a pixel: libraries may differ in the last bit."""
    found = path.read_text("utf-8")
    assert re.sub(r"[\d.]+", "", found) == re.sub(r"[\d.]+", "", made)
    numbers = [list(map(float, re.findall(r"\d+(?:\.\d+)?", text))) for text in (found, made)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.2)
