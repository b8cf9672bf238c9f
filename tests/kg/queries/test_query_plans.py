"""How the server answers the named queries: by indexes, without products, with work that follows the rows asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neo4j
import pytest

from imem.journal.statements import cypher
from imem.kg import migrations
from imem.kg.engine import given
from imem.kg.projection.rows import _bound as bound
from imem.kg.projection.rows import _end as end
from imem.kg.projection.rows import _node as node
from imem.kg.queries import named_queries, names_search, topic_search
from tests.kg.queries.build import Row, as_of, at
from tests.kg.queries.conftest import Address, wipe
from tests.kg.queries.seed import grow

pytestmark = pytest.mark.spec("GR-9")

SMALL, LARGE = 500, 5_000

AGGREGATES = {
    "archive_costs": "ArchiveDirectory",
    "patterns_degrading": "ActivePattern",
    "patterns_pending_revision": "ActivePattern",
}
"""Queries over everything of a label, which they name: their work is the label's size."""

ABSENT = {"active_patterns": "ActivePattern"}
"""
Queries that also ask what lacks a property, which no index holds. The label is the index: it is borne exactly by what
agents may see.
"""

SCANS = {"NodeByLabelScan", "PartitionedNodeByLabelScan", "UnionNodeByLabelsScan", "IntersectionNodeByLabelsScan"}
WHOLE = {
    "AllNodesScan",
    "PartitionedAllNodesScan",
    "DirectedAllRelationshipsScan",
    "UndirectedAllRelationshipsScan",
    "DirectedRelationshipTypeScan",
    "UndirectedRelationshipTypeScan",
}
PRODUCTS = {"CartesianProduct"}

ASKED: Row = {
    "subject_id": "company:C3",
    "analysis_id": "a30",
    "agent": "quiet",
    "domain": "domain0",
    "pattern_id": "p30",
    "decision_id": "d30",
    "root_cause": "timing",
    "classification": "lucky_success",
    "file_path": "x30",
    "source": "source103",
    "sector": "sector1",
    "levels": None,
    "active": ["p30"],
    "since": at("11-01"),
    "opened_before": at("06-01"),
    "created_before": at("06-01"),
    "expires_before": at("06-01"),
    "limit": 5,
    "findings_limit": 5,
    "detailed": 2,
    **as_of(),
}

PARTICULAR: dict[str, Row] = {
    "agent_credibility_in": {"agent": "agent1", "domain": "domain1"},
    "contradictions_arbitrated": {"since": at("01-01")},
    "nearest_names": {"search": names_search("Zwirbelwindd")},
    "similar_debates": {"search": topic_search("word30")},
}
"""Where a query asks for something else under the same name."""


def asked(name: str) -> Row:
    values = {**ASKED, **PARTICULAR.get(name, {})}
    return {parameter: values[parameter] for parameter in named_queries()[name].parameters}


class Plan:
    """What the server says of how it runs, or ran, a statement."""

    def __init__(self, root: Any) -> None:
        self.operators: list[tuple[str, str]] = []
        self.db_hits = self.rows = 0
        self._walk(root)
        self.rows = int(root.get("rows", 0))

    def _walk(self, node: Any) -> None:
        self.operators.append((node["operatorType"].partition("@")[0], node["args"].get("Details", "")))
        self.db_hits += int(node.get("dbHits", 0))
        for child in node.get("children", ()):
            self._walk(child)

    def those(self, kinds: set[str]) -> list[tuple[str, str]]:
        return [operator for operator in self.operators if operator[0] in kinds]

    @property
    def uses_index(self) -> bool:
        return any(
            # From 2026 on, one operator finds a node by its unique key or makes it.
            "IndexSeek" in kind
            or "IndexScan" in kind
            or kind == "MergeUniqueNode"
            or (kind == "ProcedureCall" and "fulltext" in details)
            for kind, details in self.operators
        )


def explained(driver: neo4j.Driver, name: str) -> Plan:
    return Plan(
        driver.execute_query(f"EXPLAIN {cypher(name).text}", given(asked(name)), database_="neo4j").summary.plan
    )


def profiled(driver: neo4j.Driver, name: str) -> Plan:
    return Plan(
        driver.execute_query(f"PROFILE {cypher(name).text}", given(asked(name)), database_="neo4j").summary.profile
    )


WRITTEN = {
    "write_core": bound("write_core", **node("Analysis")),
    "write_group": bound("write_group", order="profile_order", **node("Agent")),
    "write_stubs": bound("write_stubs", **node("Finding")),
    "write_links": bound("write_links", type="HAS_FINDING", **end("from", "Analysis"), **end("to", "Finding")),
    "write_dated_links": bound(
        "write_dated_links", type="OVERRODE", identity="at", **end("from", "Human"), **end("to", "DebateResolution")
    ),
    "replace_links": bound("replace_links", type="RESOLVED_BY", **end("from", "Debate"), **end("to", "Agent")),
    "mark_active_patterns": bound("mark_active_patterns"),
    "mark_applied": bound("mark_applied"),
    **{
        name: bound(name)
        for name in (
            "project_credibility",
            "derive_subject_counters",
            "derive_agent_counters",
            "derive_settled_by",
            "derive_similar_to",
        )
    },
}
"""What keeps its first plan, for kinds that stand for all: each has the index of its key."""


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_first_plan_made_on_an_empty_graph_finds_rows_by_their_key(
    address: Address, connection: neo4j.Driver, name: str
) -> None:
    """The applier's plans are not made anew when the graph grows: already the first must be one for a large graph."""
    migrations.migrate(*address)
    wipe(connection)
    connection.execute_query("CALL db.clearQueryCaches()", database_="neo4j")
    assert "replan=skip" in WRITTEN[name]
    answer = connection.execute_query(f"EXPLAIN {WRITTEN[name]}", given(rows=[], dropped={}, now=""), database_="neo4j")
    plan = Plan(answer.summary.plan)
    assert plan.uses_index, plan.operators
    assert plan.those(SCANS | WHOLE) == [], plan.operators


NAMES = sorted(named_queries())
Measured = dict[int, dict[str, tuple[Plan, Plan]]]


@pytest.fixture(scope="module")
def measured(address: Address, connection: neo4j.Driver) -> Iterator[Measured]:
    """Return for each size and query the plan, and the plan with what running it took."""
    migrations.migrate(*address)
    wipe(connection)
    found: Measured = {}
    for start, size in ((0, SMALL), (SMALL, LARGE)):
        grow(connection, start, size)
        # A plan made for the smaller graph, or for none, would be kept.
        connection.execute_query("CALL db.clearQueryCaches()", database_="neo4j")
        found[size] = {name: (explained(connection, name), profiled(connection, name)) for name in NAMES}
    yield found
    wipe(connection)


@pytest.mark.parametrize("name", NAMES)
def test_every_selective_query_uses_an_index_and_none_makes_a_product(measured: Measured, name: str) -> None:
    """Small or large, the server finds the way in; what it scans whole is named above with its label."""
    for size in (SMALL, LARGE):
        plan, _ = measured[size][name]
        assert plan.those(PRODUCTS) == []
        assert plan.those(WHOLE) == []
        label = AGGREGATES.get(name) or ABSENT.get(name)
        assert all(label is not None and details.endswith(f":{label}") for _, details in plan.those(SCANS)), (
            plan.operators
        )
        assert plan.uses_index or name in AGGREGATES, plan.operators


@pytest.mark.parametrize("name", NAMES)
def test_work_follows_the_rows_asked_for_and_not_the_graph(measured: Measured, name: str) -> None:
    """Ten times the graph around the same rows: the same rows, and no more than half as much work again."""
    small, large = measured[SMALL][name][1], measured[LARGE][name][1]
    assert large.rows == small.rows > 0, "what is asked for is there, and the same"
    if name != "archive_costs":  # The one whose label grows here.
        assert large.db_hits <= 1.5 * small.db_hits + 50, f"{small.db_hits} -> {large.db_hits}: {large.operators}"
