"""The memory without await is made, not written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).resolve().parent.parent.parent


def make_sync() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sync", TOP / "tools" / "make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up there.
    import sys

    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


MADE = make_sync()


@pytest.mark.parametrize("target", MADE.TARGETS)
def test_a_twin_is_what_the_generator_makes(target: str) -> None:
    """After a change of a source its twin was made anew."""
    assert (TOP / target).read_text(encoding="utf-8") == MADE.generated(target)
