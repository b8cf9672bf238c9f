"""The memory without await is made, not written."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def test_the_twin_is_what_the_generator_makes() -> None:
    """After a change of Memory its twin was made anew."""
    spec = importlib.util.spec_from_file_location("make_sync", TOP / "tools" / "make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    make_sync = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_sync)

    assert make_sync.TARGET.read_text() == make_sync.generated(make_sync.SOURCE.read_text())
