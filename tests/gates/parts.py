"""A pattern that passed its tests long ago, as the pipelines keep it."""

from __future__ import annotations

import json
from typing import Any

from tests.patterns.parts import DAY, NOW, definition

LONG_AGO = NOW - 800 * DAY

ROW = """
    INSERT INTO lifecycle (kind, key, about, state, data)
    VALUES ('pattern', %s::text, %s::text, 'deprecated', %s::jsonb)"""


def kept(**changes: Any) -> str:
    """Return what the pipelines keep of a pattern that passed its tests long ago."""
    return json.dumps(
        {
            "definition": definition(**changes).model_dump(mode="json"), "proposed_by": "miner", "attempt": 1,
            "search_space_size": None, "stage": "blind", "baseline": {"successes": 17, "cases": 20},
            "holdout": {"training": 0.8, "validation": 0.85, "test": 0.85, "q": 0.01, "occurrences": 60},
            "blind": {"ratio": 3.0, "helped": 9, "hurt": 3},
            "control": {"p": 0.001, "q": 0.001, "verdict": "approve", "at": LONG_AGO.isoformat()},
        }
    )  # fmt: skip
