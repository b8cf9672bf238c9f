"""What a checkpoint's row must be, whoever writes it: asked of the table itself, as its owner."""

from __future__ import annotations

import json
from typing import Any, Final

import psycopg
import pytest

from .conftest import World

SNAPSHOT: Final = {"l1_snapshot": {}, "l1_snapshot_hash": "0" * 64}
OPENING: Final = {
    "kind": "start", "subtask": None, "completed_subtasks": [], "pending_subtasks": ["fetch"],
    "current_subtask": "fetch",
}  # fmt: skip

FITTING: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"completed_subtasks": ["load", "fetch"]},
    {"completed_subtasks": ["fetch"], "pending_subtasks": [], "current_subtask": None},
    OPENING,
    {**OPENING, "working_memory_hash": None},
    {"kind": "rerun"},
    {"kind": "rerun", "completed_subtasks": ["fetch", "load"]},
    {"kind": "failure", "subtask": "parse", "failure_reason": "why"},
    {"kind": "failure", "subtask": None, "failure_reason": "why"},
    {"kind": "pause", "subtask": None, **SNAPSHOT},
)
UNFIT: Final[tuple[dict[str, Any], ...]] = (
    {"run": 0},
    {"seq": -1},
    {"retry_count": -1},
    {"kind": "other"},
    {"working_memory_hash": None},
    {"working_memory_hash": "0" * 63},
    {"working_memory_hash": "0" * 65},
    {"working_memory_hash": "A" * 64},
    {"working_memory_hash": "0" * 63 + "g"},
    {"working_memory_hash": "0" * 63 + "\n"},
    {"working_memory_hash": "0" * 32 + "g" + "0" * 31},
    {"completed_subtasks": ["parse", "fetch"]},
    {"completed_subtasks": [], "pending_subtasks": [], "current_subtask": None, "subtask": None},
    {"current_subtask": "rank"},
    {"current_subtask": None},
    {"subtask": "parse"},
    {"subtask": None},
    {"completed_subtasks": ["fetch", "load"]},
    {"completed_subtasks": []},
    {"failure_reason": "why"},
    {"l1_snapshot": {}},
    {"l1_snapshot_hash": "0" * 64},
    SNAPSHOT,
    {**OPENING, "completed_subtasks": ["load"]},
    {**OPENING, **SNAPSHOT},
    {"kind": "rerun", "subtask": "parse"},
    {"kind": "rerun", "subtask": None},
    {"kind": "failure", "subtask": "parse"},
    {"kind": "failure", "subtask": "fetch", "failure_reason": "why"},
    {"kind": "failure", "subtask": "parse", "failure_reason": "why", "working_memory_hash": None},
    {"kind": "pause", "subtask": None},
    {"kind": "pause", "subtask": None, "l1_snapshot": {}},
    {"kind": "pause", "subtask": None, "l1_snapshot_hash": "0" * 64},
    {"kind": "pause", "subtask": "fetch", **SNAPSHOT},
)

COPY: Final = """
    INSERT INTO workflow.agent_checkpoints
    SELECT (jsonb_populate_record(c, jsonb_build_object(
        'id', gen_random_uuid(), 'run', 2, 'seq', 2, 'checkpoint_time', now() + interval '1 day') || %s::jsonb)).*
    FROM workflow.agent_checkpoints AS c WHERE c.kind = 'subtask'
"""


async def test_the_table_takes_what_fits_and_nothing_else(world: World) -> None:
    await world.save(await world.acquire(), "fetch")

    with psycopg.connect(world.admin_url) as conn:
        for changes in FITTING:
            with conn.transaction(force_rollback=True):
                assert conn.execute(COPY, (json.dumps(changes),)).rowcount == 1, changes
        for changes in UNFIT:
            with pytest.raises(psycopg.errors.CheckViolation, match="agent_checkpoints_fit"), conn.transaction():
                conn.execute(COPY, (json.dumps(changes),))
