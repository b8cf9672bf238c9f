"""``imem erase``: a person's names leave every store, and what loads them again adds nothing."""

from __future__ import annotations

import json

import neo4j
import pytest
from redis import Redis

from imem.journal.settings import Role
from tests.imem.ingest.conftest import LoadHarness, analysis, company, finding

HERS = [
    company("MU"),
    {"record": "Agent", "known_at": "2026-06-01T10:00:00Z", "core": {"name": "ann.lee"}},
    analysis("a", summary="Ann Lee asked for it."), finding("f", agent="ann.lee", statement="Ann Lee: it rises."),
    analysis("b", summary="Joann Leeds asked for it."),
]  # fmt: skip


@pytest.fixture
def kate(harness: LoadHarness, graph: neo4j.Driver) -> LoadHarness:
    """Have a person who may erase, and a graph that names another one."""
    loaded = harness.load(harness.file("lines.jsonl", HERS), "--source", "desk")
    assert loaded["code"] == 0, loaded
    assert harness.run("rebuild", "graph", "--in-place").returncode == 0
    assert "Ann Lee" in texts(graph)
    return harness.as_role(Role.HUMAN_ADMIN, "kate")


def texts(graph: neo4j.Driver) -> str:
    """Return all that the graph holds, as text."""
    found = graph.execute_query(
        "MATCH (n) RETURN properties(n) AS p UNION ALL MATCH ()-[r]->() RETURN properties(r) AS p"
    )
    return repr([record["p"] for record in found.records])


def test_every_store_forgets_and_a_rebuild_is_the_same(kate: LoadHarness, graph: neo4j.Driver) -> None:
    assert kate.settings.valkey_cache_url is not None
    before = kate.count("event")
    with Redis.from_url(kate.settings.valkey_cache_url.get_secret_value()) as cache:
        cache.set("answer", "Ann Lee")
        looked = kate.run("erase", "Ann Lee", "ann.lee", "--reason", "She asks.")
        assert (looked.returncode, "Nothing was changed." in looked.stdout) == (0, True)
        assert "Ann Lee" in texts(graph)
        assert cache.exists("answer")

        done = kate.run("erase", "Ann Lee", "ann.lee", "--reason", "She asks.", "--yes", "--json")
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
        assert not cache.exists("answer")
    said = json.loads(done.stdout)
    left = texts(graph)
    assert "ann.lee" not in left.lower()
    assert "Ann Lee" not in left
    assert "Joann Leeds" in left
    assert f"{said['pseudonym']}: it rises." in left
    again = kate.run("rebuild", "graph", "--in-place", "--json")
    assert (again.returncode, json.loads(again.stdout)["same"]) == (0, True)
    assert kate.count("event") == before + 1


def test_what_is_wrong_ends_with_a_sentence(kate: LoadHarness) -> None:
    for words, sentence in (
        (("analysis", "--reason", "She asks."), "is a word that the program itself stores"),
        (("Ann Lee", "--reason", "Ann Lee asks."), "without the terms"),
    ):
        done = kate.run("erase", *words, "--yes")
        assert (done.returncode != 0, sentence in done.stderr.replace("\n", " ")) == (True, True), done.stderr
    denied = kate.as_role(Role.AGENT, "mallory").run("erase", "Ann Lee", "--reason", "She asks.")
    assert (denied.returncode, "may not delete" in denied.stderr) == (1, True), denied.stderr
