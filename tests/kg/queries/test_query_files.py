"""The statement files: what each says of itself is true, every one is used, and the server has nothing to object."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import LiteralString

import neo4j
import pytest

from imem.journal.settings import Settings
from imem.journal.statements import Statement, cypher, load, root_of
from imem.kg.engine import given
from imem.kg.queries import AREAS, AS_OF, arguments, named_queries, names_search, read_header, topic_search
from imem.recall.section_registry import DATED_QUERIES
from tests.conftest import Stack
from tests.frame.test_contracts import FLOORS
from tests.kg.queries.build import Row, as_of, ask, at
from tests.kg.queries.conftest import Address

TOP = Path(__file__).resolve().parents[3]
PACKAGES = (*FLOORS, "imem")

SPECIFIED = {
    "subjects": {
        "company_history", "peers", "debates_of_subject", "contradictions_of_subject", "lessons_of_subject",
        "similar_analyses", "nearest_names",
    },
    "agents": {"agent_credibility_in", "accuracy_full_scan"},
    "patterns": {
        "patterns_ready_for_gate6", "pattern_validation_history", "patterns_failed_blind", "validation_pass_rates",
        "patterns_degrading", "active_patterns",
    },
    "debates": {"similar_debates", "conservative_defaults_overridden", "facilitator_success_rate"},
    "learning": {
        "postmortems_pending", "postmortem_of_decision", "lessons_by_cause", "success_validation_stats",
        "patterns_pending_revision", "lesson_effect",
    },
    "evidence": {
        "tier2_candidates", "files_deletable", "active_patterns_of_file", "evidence_at_risk", "archive_costs",
        "patterns_missing_archive",
    },
    "contradictions": {
        "source_credibility", "contradictions_for_gate3", "source_win_rate", "contradictions_arbitrated",
    },
}  # fmt: skip
"""Every query that the specification names, by area."""

OURS = {"speakers_of_subject"}
"""Queries that it does not name."""

KEYS = (
    "subject_id", "analysis_id", "agent", "domain", "pattern_id", "decision_id", "root_cause", "classification",
    "file_path", "source", "search", "sector",
)  # fmt: skip
DAYS = ("since", "opened_before", "created_before", "expires_before")
EXAMPLES: Row = {
    **dict.fromkeys(KEYS, "none"),
    **dict.fromkeys(DAYS, at("06-01")),
    **dict.fromkeys(("limit", "findings_limit", "detailed"), 5),
    "levels": None,
    "active": [],
    **as_of(),
}
"""A value for every parameter there is."""

AGGREGATES = {
    "speakers_of_subject": [{"speakers": []}],
    "facilitator_success_rate": [{"debates": 0, "mean_correctness": None}],
    "success_validation_stats": [
        {"classification": "none", "validations": 0, "mean_skill_ratio": None, "mean_market_contribution": None}
    ],
}
"""What has an answer where there is nothing: a count of none, or an empty list."""

NAMES = sorted(named_queries())


def example(name: str) -> Row:
    return {parameter: EXAMPLES[parameter] for parameter in named_queries()[name].parameters}


def statements() -> dict[str, Statement]:
    return dict(load(root_of("kg", "cypher") / "queries", ".cypher"))


@pytest.mark.spec("GR-8")
def test_every_query_of_the_specification_stands_in_its_area() -> None:
    found = {area: {query.name for query in named_queries().values() if query.area == area} for area in AREAS}
    assert {area: names - OURS for area, names in found.items()} == SPECIFIED


@pytest.mark.spec("GR-8")
@pytest.mark.parametrize("name", NAMES)
def test_what_a_query_says_it_takes_is_what_it_takes(name: str) -> None:
    query = named_queries()[name]
    body = re.sub(r"^\s*//.*$", "", cypher(name).text, flags=re.MULTILINE)
    used = set(re.findall(r"\$given\.([a-z_]+)", body))
    assert set(re.findall(r"\$([a-z_]+)", body)) == {"given"}, "one map, so that one plan serves every size"
    assert set(query.parameters) == used
    assert "limit" in used, "every query is bounded by its caller"
    assert query.as_of == (used >= AS_OF)
    assert query.as_of == (name in DATED_QUERIES), "rows of a moment are dated before anybody sees them"
    assert query.purpose.endswith("."), "a sentence says what it is for"


@pytest.mark.spec("GR-8")
@pytest.mark.parametrize("name", NAMES)
def test_every_query_answers_on_the_empty_graph(driver: neo4j.Driver, name: str) -> None:
    """Nothing is known, nothing is returned; the columns are those it names."""
    assert ask(driver, name, **example(name)) == AGGREGATES.get(name, [])
    result = driver.execute_query(cypher(name).text, given(example(name)), database_="neo4j")
    assert result.keys == list(named_queries()[name].columns)


@pytest.mark.spec("GR-15")
def test_the_server_is_the_release_that_was_asked_for(driver: neo4j.Driver, stack: Stack) -> None:
    """Every other test of the graph says something of that release alone: the LTS, or what the one variable names."""
    wanted = os.environ.get("IMEM_TEST_NEO4J") or Settings.model_fields["neo4j_version"].default
    [row] = driver.execute_query(
        "CALL dbms.components() YIELD name, versions WHERE name = 'Neo4j Kernel' RETURN versions"
    ).records
    assert row["versions"] == [wanted]
    assert stack.settings.neo4j_version == wanted


@pytest.mark.spec("GR-8", "GR-15")
@pytest.mark.usefixtures("vocabulary")
def test_the_server_warns_of_nothing(address: Address) -> None:
    """
    No deprecated form, no name that the graph does not have, no product without a join: such a notice fails the build.
    """
    noticed = []
    with neo4j.GraphDatabase.driver(address.url, auth=(address.user, address.password)) as talkative:
        for name in NAMES:
            summary = talkative.execute_query(
                f"EXPLAIN {cypher(name).text}", given(example(name)), database_="neo4j"
            ).summary
            noticed += [
                (name, n.gql_status, n.status_description) for n in summary.gql_status_objects if n.is_notification
            ]
    assert noticed == []


@pytest.mark.spec("GR-8")
def test_every_statement_is_used_and_every_use_exists() -> None:
    """
    A statement that is no named query must be run by the product by its name, or by the beginning that a family shares;
    and no name that is run may be missing.

    The named queries are themselves an interface: ``Graph.read`` takes each, by the catalogue that reads their files.
    """
    sources = [path.read_text() for package in PACKAGES for path in sorted((TOP / package).rglob("*.py"))]
    code = "\n".join(sources)
    known = statements()
    inner = {name for name, one in known.items() if one.path.stem not in AREAS}
    families = [prefix for prefix in re.findall(r"\bcypher\(f\"(\w+)\{", code) if prefix]
    assert {name for name in inner if f'"{name}"' not in code and not name.startswith(tuple(families))} == set()
    uses = set(re.findall(r"\bcypher\(\s*\"(\w+)\"", code)) | set(re.findall(r"\bgraph\.read\(\s*\"(\w+)\"", code))
    assert uses - set(known) == set()
    assert uses, "the pattern still finds uses"


@pytest.mark.spec("GR-8")
def test_a_call_with_a_wrong_parameter_is_refused_before_the_server_sees_it() -> None:
    assert arguments("peers", subject_id="company:MU", limit=5) == {"subject_id": "company:MU", "limit": 5}
    with pytest.raises(TypeError, match=r"^peers: missing parameters limit; unknown parameters limits\.$"):
        arguments("peers", subject_id="company:MU", limits=5)
    with pytest.raises(TypeError, match=r"^peers: missing parameters limit, subject_id\.$"):
        arguments("peers")
    with pytest.raises(KeyError):
        arguments("no_such_query")


@pytest.mark.parametrize(
    "text",
    [
        "// A purpose.\n// parameters: limit (int)\n// columns: n (int)\n// order: n\nRETURN 1 AS n",
        "// A purpose.\n// parameters: limit (int)\n// columns: n (int)\n// order: n\n// as_of: perhaps\nRETURN 1 AS n",
        "// A purpose.\n// parameters:\n// columns: n (int)\n// order: n\n// as_of: no\nRETURN 1 AS n",
    ],
)
def test_a_comment_that_lacks_something_is_refused(text: LiteralString) -> None:
    with pytest.raises(ValueError, match="one"):
        read_header(Statement("one", text, Path("subjects.cypher")))


def test_a_comment_may_go_on_over_several_lines() -> None:
    text = (
        "// What it\n// is for.\n// parameters: a, b (int, of something),\n//   limit (int)\n"
        "// columns: n (list of {x, y: z}; by (x)),\n//   m (int)\n// order: n\n// as_of: no (for a reason)\nRETURN 1"
    )
    query = read_header(Statement("one", text, Path("subjects.cypher")))
    assert query.purpose == "What it is for."
    assert query.parameters == {"a": "int, of something", "b": "int, of something", "limit": "int"}
    assert query.columns == {"n": "list of {x, y: z}; by (x)", "m": "int"}
    assert query.as_of is False


def test_what_people_type_becomes_words_and_nothing_else() -> None:
    """Operators go, words stay; long texts are cut, so that no search walks the index for ever."""
    assert (
        names_search('market:NVIDIA OR (x) "y"~')
        == "nvidia^4 nvidia*^2 nvidia~1 or^4 or*^2 or~1 x^4 x*^2 x~1 y^4 y*^2 y~1"
    )
    assert topic_search("Gross margin: +gross -margin?") == "gross margin"
    assert len(topic_search(" ".join(f"w{n}" for n in range(1000))).split()) == 12
    assert len(topic_search("x" * 1000)) == 40
    assert names_search("microsoft a b c d e f g").split()[2::3] == ["microsoft~2", "a~1", "b~1", "c~1", "d~1", "e~1"]
    assert names_search("_ ?!") == topic_search("") == ""
