"""The committed examples, read once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

Lines = list[dict[str, Any]]
EXAMPLES = Path(__file__).parents[2] / "examples"


def read(name: str) -> Lines:
    with gzip.open(EXAMPLES / name / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="session")
def desk_lines() -> Lines:
    return read("trading_desk")


@pytest.fixture(scope="session")
def flu_lines() -> Lines:
    return read("flusight")


@pytest.fixture(scope="session", params=["trading_desk", "flusight"])
def any_lines(request: pytest.FixtureRequest) -> Lines:
    return read(request.param)
