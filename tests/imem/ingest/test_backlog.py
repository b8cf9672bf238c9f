"""What a load leaves to the pipelines: it is said at its end and by `imem status`, and can be waited for."""

from __future__ import annotations

import json
import re
from typing import Any

from imem.services.health import backlog as backlog_of_stores
from imem.services.stores import Stores
from tests.conftest import Stack
from tests.imem.ingest.conftest import LoadHarness, analysis, company, finding
from tests.servers import kept

LATER = "2026-06-21T10:00:00Z"
LINES = [
    company("MU", name="Micron"),
    analysis("a", summary="Memory is scarce."),
    *(finding(f"f{nth}", metric="up", target_at="2026-06-20T10:00:00Z", probability=0.6) for nth in range(3)),
    {"record": "Outcome", "known_at": LATER, "core": {
        "id": "o", "subject_id": "company:MU", "metric": "up", "target_at": "2026-06-20T10:00:00Z", "actual": 1.0,
        "observed_at": LATER, "vintage": 0}},
]  # fmt: skip


TEXTS = """
    INSERT INTO recall.record_text
        (id, version, kind, key, part, place, ordinal, title, content, before, known_at, model)
    SELECT gen_random_uuid(), 1, 'Analysis', 'a', 0, 'Analysis/a', 1, '', 'Oil.', '', imem_now(), m.model
    FROM (SELECT NULL::smallint AS model UNION ALL SELECT model FROM embedding_model WHERE model_id = 'other') AS m
    RETURNING 1
"""
"""Two texts: one without a vector, one with a vector of another model."""


def by_name(document: dict[str, Any]) -> dict[str, int]:
    return {one["work"]: one["waiting"] for one in document["pipelines"]}


def test_the_end_says_what_is_still_to_come(harness: LoadHarness) -> None:
    path = harness.file("x.jsonl", LINES)
    found = harness.load(path)
    assert found["code"] == 0
    waiting = by_name(found)
    assert waiting["credibility"] >= len(LINES) - 2
    assert waiting["similar"] >= 1
    assert waiting["search"] >= 1
    assert waiting["events"] > 0
    assert all(one["oldest_s"] >= 0 and not one["far_behind"] for one in found["pipelines"])

    done = harness.run("load", "--no-wait", path)
    assert done.returncode == 0
    assert "Still to come" in done.stderr
    assert f"{waiting['credibility']} records to settle, the oldest for " in done.stderr
    assert "--wait-pipelines" in done.stderr


def test_a_wait_for_pipelines_has_a_bound(harness: LoadHarness) -> None:
    """Without workers nothing is done; exit code 3. With nothing left it ends at once."""
    path = harness.file("x.jsonl", LINES)
    found = harness.load("--wait-pipelines", 1, path)
    assert found["code"] == 3
    assert by_name(found)["credibility"] > 0

    harness.rows("DELETE FROM due_row RETURNING 1")
    harness.rows("UPDATE delivery SET state = 'applied', applied_at = imem_now() RETURNING 1")
    found = harness.load("--wait-pipelines", 86_400, path)
    assert (found["code"], found["pipelines"]) == (0, [])


async def test_each_kind_of_work_is_counted(harness: LoadHarness) -> None:
    """Also track records, and texts without a vector or with one of another model; what is set aside is not."""
    harness.load(harness.file("x.jsonl", LINES))
    harness.rows("DELETE FROM due_row WHERE queue <> 'credibility' RETURNING 1")
    harness.rows("UPDATE due_row SET set_aside = 'x' WHERE kind <> 'Outcome' RETURNING 1")
    harness.rows(
        "INSERT INTO track_due (agent, domain, since) VALUES ('ann', 'd', imem_now() - interval '1 h') RETURNING 1"
    )
    harness.rows("INSERT INTO embedding_model (model_id, dimension, unrelated) VALUES ('other', 3, 0) RETURNING 1")
    harness.rows(TEXTS)
    harness.rows(
        "INSERT INTO pipeline_report (pipeline, started_at, finished_at, report, error)"
        " VALUES ('recall.project_texts', imem_now(), imem_now(), '{}', 'StoreUnavailable: no encoder') RETURNING 1"
    )
    async with Stores.open(harness.settings) as stores:
        found = {one.work.name: one for one in await backlog_of_stores(stores)}
    assert {name: one.waiting for name, one in found.items() if name != "events"} == {
        "credibility": 1, "tracks": 1, "vectors": 2,
    }  # fmt: skip
    assert found["tracks"].far_behind
    assert not found["credibility"].far_behind
    assert (found["vectors"].oldest_s, found["vectors"].error) == (None, "StoreUnavailable: no encoder")


def test_status_shows_how_far_pipelines_are(harness: LoadHarness, stack: Stack) -> None:
    """The number that the load said, and whether it is much; a database without a schema is no reason to fail."""
    harness.load(harness.file("x.jsonl", LINES))
    there = harness.having(home=stack.settings.home)
    document = json.loads(there.run("status", "--json").stdout)
    assert (
        by_name(document)["credibility"]
        == harness.rows("SELECT count(*) FROM due_row WHERE queue = 'credibility'")[0][0]
    )
    said = there.run("status").stdout
    assert "Pipelines:\n" in said
    assert re.search(r"\d+ records to settle, the oldest for \d+ s \(credibility\.settle\)", said)

    harness.rows("UPDATE due_row SET created_at = created_at - interval '6 minutes' RETURNING 1")
    assert "Pipelines are far behind, and answers lack what waits:\n" in there.run("status").stdout
    kept(harness.admin_url).execute("DROP TABLE track_due")
    assert "Pipelines: what they have to do could not be counted in time." in there.run("status").stdout
