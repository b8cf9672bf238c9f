"""What is stated comes back: line, canonical form, graph form and model say the same."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from neo4j.time import DateTime

from imem.journal.events.canonical import canonical_json, content_hash
from imem.kg.kinds.catalog import KINDS, from_graph, link_props
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.load_format.lines import LinkLine, RecordLine, groups_of, link_of, parse_line, record_of
from imem.kg.model import Company
from tests import strategies as given_
from tests.models import to_model

GROUPS = [(label, name) for label, info in KINDS.items() for name in info.groups]


def _as_the_driver_returns(properties: dict[str, Any]) -> dict[str, Any]:
    """Return what a query answers: times in the driver's class, and no property that is null."""
    return {
        name: DateTime.from_native(value) if isinstance(value, datetime) else value
        for name, value in properties.items()
        if value is not None
    }


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("full", [True, False, None])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.longer
def test_a_core_comes_back(kind: str, *, full: bool | None) -> None:
    writer = KINDS[kind].governed

    @given_.examples(6, 25)
    @given(given_.cores_of(kind, full=full))
    def check(core: dict[str, Any]) -> None:
        raw = json.dumps({"record": kind, "core": core}).encode()
        line = parse_line(raw, needs_known_at=False, writer=writer)
        assert isinstance(line, RecordLine)
        assert line.core is not None
        node = _as_the_driver_returns(KINDS[kind].part("core").to_graph(line.core))
        model = from_graph(kind, node)

        assert model is not None
        assert model == to_model(kind, line.core)
        assert model.ref == (kind, line.key)
        again = record_of(model, writer=writer)
        assert canonical_json(again.core) == canonical_json(line.core)
        assert set(line.core) == {name for name, value in core.items() if value is not None} | _derived(kind)

    check()


def _derived(kind: str) -> set[str]:
    return {name for name, info in KINDS[kind].model.model_fields.items() if info.default_factory is not None}


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("kind", "group"), GROUPS)
@pytest.mark.longer
def test_a_group_comes_back(kind: str, group: str, *, full: bool) -> None:
    info = KINDS[kind]
    part = info.groups[group]

    @given_.examples(5, 15)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        core = data.draw(given_.cores_of(kind, full=False))
        stated = data.draw(given_.properties_of(part, full=full))
        writer = info.governed or part.governed
        kept = part.canonical(part.model.model_validate(stated))
        if not part.derived:
            late = json.dumps({"record": kind, "key": core[info.key], "groups": {group: stated}}).encode()
            line = parse_line(late, needs_known_at=False, writer=writer)
            assert isinstance(line, RecordLine)
            assert line.groups == {group: kept}

        base = parse_line(
            json.dumps({"record": kind, "core": core}).encode(), needs_known_at=False, writer=info.governed
        )
        assert isinstance(base, RecordLine)
        assert base.core is not None
        node = KINDS[kind].part("core").to_graph(base.core) | KINDS[kind].part(group).to_graph(kept)
        node[f"{group}_known_at"] = datetime.fromisoformat("2026-06-01T00:00:00Z")
        model = from_graph(kind, _as_the_driver_returns(node))

        assert model == to_model(kind, base.core, {group: kept})
        value = getattr(model, group)
        assert part.canonical(value) == kept
        if not part.derived:
            again = groups_of(info.model, base.key, {group: value}, writer=writer)
            assert content_hash(again.groups[group]) == content_hash(kept)

    check()


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("link", LINK_KINDS, ids=lambda link: f"{link.name}-{link.froms[0]}")
@pytest.mark.longer
def test_the_properties_of_a_link_come_back(link: LinkKind, *, full: bool) -> None:
    part = link_props(link)

    @given_.examples(5, 15)
    @given(given_.properties_of(part, full=full))
    def check(props: dict[str, Any]) -> None:
        kept = part.canonical(part.model.model_validate(props))
        stored = _as_the_driver_returns(part.to_graph(kept))

        assert canonical_json(part.from_graph(stored)) == canonical_json(kept)
        assert set(kept) == set(props)

    check()


@pytest.mark.spec("GR-2")
@pytest.mark.parametrize("link", given_.LOADABLE_LINKS, ids=lambda link: f"{link.name}-{link.froms[0]}")
@pytest.mark.longer
def test_a_link_stated_in_python_is_the_line_of_the_same_link(link: LinkKind) -> None:
    @given_.examples(5, 15)
    @given(given_.link_lines_of(link))
    def check(stated: dict[str, Any]) -> None:
        line = parse_line(json.dumps(stated).encode())
        assert isinstance(line, LinkLine)
        assert line.link is link
        (start,), (end,) = stated["from"].items(), stated["to"].items()
        again = link_of(link.name, start, end, stated["props"], known_at=line.known_at)

        assert again == line
        assert set(line.identity) == set(link.identity)

    check()


@pytest.mark.parametrize("kind", given_.LOADABLE_KINDS)
@pytest.mark.longer
def test_a_record_stated_in_python_is_the_line_of_the_same_record(kind: str) -> None:
    @given_.examples(6, 20)
    @given(given_.lines_of(kind))
    def check(stated: dict[str, Any]) -> None:
        line = parse_line(json.dumps(stated).encode())
        assert isinstance(line, RecordLine)
        assert line.core is not None
        model = to_model(kind, line.core, line.groups)
        again = record_of(model, known_at=line.known_at, occurred_at=line.occurred_at, body=line.body)

        assert (again.core, again.groups, again.key) == (line.core, line.groups, line.key)
        assert (again.known_at, again.occurred_at, again.body) == (line.known_at, line.occurred_at, line.body)

    check()


def test_a_stub_is_no_record() -> None:
    assert from_graph("Agent", {"name": "sentiment_analyst", "stub": True}) is None


def test_a_group_without_values_is_present_when_the_node_says_when_it_was_known() -> None:
    node = {"ticker": "MU", "subject_id": "company:MU"}

    bare = from_graph("Company", node)
    known = from_graph("Company", {**node, "profile_known_at": "2026-06-01T00:00:00Z"})

    assert bare == Company(ticker="MU")
    assert known == Company(ticker="MU", profile=Company.Profile())
