"""``imem rebuild graph --in-place``: for a graph that is no folder of ours, and so cannot be exchanged."""

from __future__ import annotations

import json

import neo4j
import pytest

from tests.imem.ingest.conftest import LoadHarness, analysis, company


@pytest.mark.spec("GR-6")
def test_what_does_not_belong_is_gone(harness: LoadHarness, graph: neo4j.Driver) -> None:
    """It says in what the old graph differed, and the one that is there now is the journal's."""
    harness.load(harness.file("lines.jsonl", [company("MU"), analysis("a1"), analysis("a2")]))
    assert harness.run("rebuild", "graph", "--in-place").returncode == 0
    graph.execute_query("CREATE (:Human {id: 'not-in-the-journal'})")

    done = harness.run("rebuild", "graph", "--in-place")

    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    assert "Human (" in done.stdout
    assert "in use now" in done.stdout
    found = graph.execute_query("MATCH (n:Human|Analysis) RETURN labels(n) AS labels").records
    assert [record["labels"] for record in found] == [["Analysis"], ["Analysis"]]
    again = harness.run("rebuild", "graph", "--in-place", "--json")
    assert (again.returncode, json.loads(again.stdout)["same"]) == (0, True)
