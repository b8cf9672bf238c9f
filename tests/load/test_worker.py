"""The applier's process: it applies, asks for settling, and goes cleanly."""

from __future__ import annotations

import signal
import time
from typing import Any

import neo4j
import psycopg
import redis

from tests.load.conftest import KNOWN, Desk, analysis, company

PATIENCE_S = 60.0

LATER = "2026-06-02T10:00:00Z"


def until(desk: Desk, query: str) -> list[tuple[Any, ...]]:
    """Look until the journal has rows for *query*."""
    end = time.monotonic() + PATIENCE_S
    with psycopg.connect(desk.admin_url, autocommit=True) as conn:
        while time.monotonic() < end:
            rows = conn.execute(query).fetchall()
            if rows:
                return list(rows)
            time.sleep(0.01)  # Between two looks at what another process does.
    raise AssertionError(f"nothing within {PATIENCE_S} s for {query}")


def test_the_process_applies_asks_and_lets_its_lease_go(desk: Desk, graph: neo4j.Driver) -> None:
    """What is loaded reaches the graph, an outcome asks for a settling, and SIGTERM leaves no lease behind."""
    assert desk.settings.valkey_durable_url is not None
    broker = redis.Redis.from_url(desk.settings.valkey_durable_url.get_secret_value())
    outcome = {
        "record": "Outcome",
        "known_at": KNOWN,
        "core": {
            "id": "o",
            "subject_id": "company:MU",
            "metric": "return_1s",
            "target_at": KNOWN,
            "actual": 0.1,
            "observed_at": KNOWN,
            "vintage": 0,
        },
    }
    before = broker.llen("imem:celery:imem")
    with desk.applier() as process:
        done = desk.run("load", desk.file("desk.jsonl", [company("MU", name="Micron"), outcome]))
        until(desk, "SELECT 1 FROM lease WHERE name = 'applier' AND expires_at > imem_now()")
        end = time.monotonic() + PATIENCE_S
        while broker.llen("imem:celery:imem") == before and time.monotonic() < end:
            time.sleep(0.01)  # Between two looks at what another process does.
        asked = broker.llen("imem:celery:imem")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    broker.close()

    assert done.returncode == 0, done.stderr
    assert "The graph holds all of it." in done.stderr
    assert asked > before
    assert desk.rows("SELECT expires_at < imem_now() FROM lease WHERE name = 'applier'") == [(True,)]
    assert desk.rows("SELECT DISTINCT state FROM delivery") == [("applied",)]
    with graph.session() as session:
        row = session.run("MATCH (o:Outcome)-[:OUTCOME_OF]->(c:Company) RETURN c.name AS name").single()
    assert row is not None
    assert row["name"] == "Micron"


def test_the_process_has_the_analyses_of_a_company_compared_anew(desk: Desk) -> None:
    """When what is known of the company changes, and not only when somebody analyses it again."""
    with desk.applier() as process:
        first = desk.file("first.jsonl", [company("MU", sector="tech"), analysis("a")])
        assert desk.run("load", first).returncode == 0
        with psycopg.connect(desk.admin_url, autocommit=True) as conn:
            # What a worker would have done with the analysis itself.
            assert conn.execute("DELETE FROM similarity_due").rowcount > 0
        moved = {**company("MU", sector="energy"), "known_at": LATER}
        assert desk.run("load", desk.file("moved.jsonl", [moved])).returncode == 0
        assert until(desk, "SELECT key FROM similarity_due") == [("a",)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
