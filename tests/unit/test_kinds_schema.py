"""What `imem schema` prints: every line that the parser takes is valid by it."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from imem.journal.errors import BadInput
from imem.kg.kinds.catalog import KINDS, LINK_TYPES
from imem.kg.kinds.links import LinkKind
from imem.kg.load_format.json_schema import line_schema
from imem.kg.load_format.lines import parse_line
from tests import strategies as given_

KNOWN = "2026-06-01T10:27:49Z"


@cache
def _validator(name: str | None = None) -> Draft202012Validator:
    schema = line_schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _complaints(validator: Draft202012Validator, line: dict[str, Any]) -> list[str]:
    parse_line(json.dumps(line).encode())
    return [error.message for error in validator.iter_errors(json.loads(json.dumps(line)))]


@pytest.mark.parametrize("kind", given_.LOADABLE_KINDS)
@pytest.mark.longer
def test_every_line_that_is_taken_is_valid(kind: str) -> None:
    validator = _validator(kind)
    groups = [name for name, group in KINDS[kind].groups.items() if not group.governed and not group.derived]
    late = [given_.late_lines_of(kind, name) for name in groups]

    @given_.examples(6, 25)
    @given(st.one_of(given_.lines_of(kind), given_.corrections_of(kind), *late))
    def check(line: dict[str, Any]) -> None:
        assert _complaints(validator, line) == []

    check()


@pytest.mark.parametrize("link", given_.LOADABLE_LINKS, ids=lambda link: f"{link.name}-{link.froms[0]}")
@pytest.mark.longer
def test_every_link_that_is_taken_is_valid(link: LinkKind) -> None:
    validator = _validator(link.name)

    @given_.examples(4, 10)
    @given(given_.link_lines_of(link))
    def check(line: dict[str, Any]) -> None:
        assert _complaints(validator, line) == []

    check()


def test_the_schema_of_all_lines_holds_every_variant() -> None:
    names = {
        variant["properties"][key]["const"]
        for variant in line_schema()["anyOf"]
        for key in ("record", "link", "correct")
        if key in variant["properties"]
    }

    assert names == set(given_.LOADABLE_KINDS) | {link.name for link in given_.LOADABLE_LINKS}
    assert not list(_validator().iter_errors({"record": "Agent", "known_at": KNOWN, "core": {"name": "a"}}))


@pytest.mark.parametrize(
    "line",
    [
        {"record": "Agent", "core": {"name": "a"}},
        {"record": "Agent", "known_at": "2026-06-01T10:27:49", "core": {"name": "a"}},
        {"record": "Agent", "known_at": KNOWN, "core": {"name": "a" * 91}},
        {"record": "Agent", "known_at": KNOWN, "core": {"name": "a", "mood": "x"}},
        {"record": "Agent", "known_at": KNOWN, "core": {"name": "a"}, "groups": {"counters": {}}},
        {"record": "Agent", "known_at": KNOWN, "key": "a", "groups": {}},
        {"record": "Agent", "known_at": KNOWN, "key": "a", "groups": {"profile": {"specialization": "x", "kind": "y"}}},
        {"record": "Agent", "known_at": KNOWN, "core": {"name": "a"}, "turns": []},
        {"record": "AgentCredibility", "known_at": KNOWN, "core": {"agent_id": "a", "domain": "b"}},
        {"link": "CITES", "known_at": KNOWN, "from": {"Finding": "a"}, "to": {"Finding": "b"}},
        {"link": "PERFORMED", "known_at": KNOWN, "from": {"Human": "a"}, "to": {"Analysis": "b"}},
        {"link": "STATED", "known_at": KNOWN, "from": {"Agent": "a"}, "to": {"Finding": "b"}},
        {"correct": "Agent", "known_at": KNOWN, "core": {"name": "a"}},
    ],
)
def test_what_is_refused_for_its_form_is_invalid(line: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_line(json.dumps(line).encode())
    assert list(_validator().iter_errors(line))


def test_what_cannot_be_loaded_has_no_schema_but_a_reason() -> None:
    closed = {}
    for name in (*KINDS, *LINK_TYPES):
        if _closed(name):
            with pytest.raises(BadInput) as caught:
                line_schema(name)
            closed[name] = str(caught.value)

    assert (
        closed["AgentCredibility"]
        == "kind: AgentCredibility cannot be loaded: only the credibility subsystem writes it."
    )
    assert "written with the Finding" in closed["STATED"]
    assert "it is computed" in closed["SETTLED_BY"]
    assert "gates subsystem" in closed["OVERRODE"]
    assert {name for name in closed if name in KINDS} == set(KINDS) - set(given_.LOADABLE_KINDS)


def _closed(name: str) -> bool:
    return name not in given_.LOADABLE_KINDS and name not in {link.name for link in given_.LOADABLE_LINKS}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"'Analisis' is no kind of record or link. Did you mean Analysis\?"):
        line_schema("Analisis")
