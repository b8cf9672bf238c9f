"""The code's closed lists equal the specification's, in both directions."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml

from imem.journal.errors import BadInput
from imem.kg import model
from imem.kg.kinds import enums, fields
from imem.kg.kinds.base import Kind
from imem.kg.kinds.catalog import KINDS, LABELS, SUBJECT, PropertySet, link_props
from imem.kg.kinds.links import LINK_KINDS
from imem.kg.kinds.metrics import metrics
from imem.kg.load_format.lines import parse_line

SPEC: dict[str, Any] = yaml.safe_load((Path(__file__).parent.parent / "data" / "graph.yaml").read_text("utf-8"))


def _types(part: PropertySet) -> dict[str, str]:
    return {name: prop.type.name + "!" * prop.required for name, prop in part.properties.items()}


def _spec_types(properties: dict[str, Any]) -> dict[str, str]:
    return {name: type_ for name, type_ in properties.items() if not name.startswith("_")}


@pytest.mark.spec("GR-1")
def test_kinds_are_those_of_the_specification() -> None:
    assert set(KINDS) == set(SPEC["nodes"])
    assert {kind.__name__ for kind in Kind.__subclasses__()} == set(KINDS)
    assert all(getattr(model, name) is info.model for name, info in KINDS.items())


@pytest.mark.spec("GR-1")
@pytest.mark.parametrize("label", SPEC["nodes"])
def test_a_kind_is_as_specified(label: str) -> None:
    spec, info = SPEC["nodes"][label], KINDS[label]

    assert info.key == spec["key"]
    assert list(info.labels) == [label, *spec.get("labels", [])]
    assert info.governed == spec.get("governed")
    assert {name: f"{prop} = {value}" for name, (_, prop, value) in info.labels_when.items()} == spec.get(
        "labels_when", {}
    )
    assert _types(info.core) == _spec_types(spec["core"])
    assert set(info.groups) == set(spec.get("groups", {}))
    for name, group in spec.get("groups", {}).items():
        assert _types(info.groups[name]) == _spec_types(group), name
        assert info.groups[name].governed == group.get("_governed"), name
        assert info.groups[name].derived == group.get("_derived", False), name


@pytest.mark.spec("GR-1")
def test_labels_are_those_of_the_specification() -> None:
    extra = {
        label for node in SPEC["nodes"].values() for label in (*node.get("labels", []), *node.get("labels_when", {}))
    }

    assert set(SPEC["nodes"]) | extra == LABELS
    assert SUBJECT in LABELS


@pytest.mark.spec("GR-1")
def test_words_are_those_of_the_specification() -> None:
    there = [one for one in vars(enums).values() if isinstance(one, type) and one.__module__ == enums.__name__]
    ours = [one for one in there if issubclass(one, StrEnum)]
    assert ours
    assert {enums.name_of(one): [word.value for word in one] for one in ours} == SPEC["enums"]


@pytest.mark.spec("GR-1")
def test_relationships_are_those_of_the_specification() -> None:
    def ends(value: str | list[str]) -> list[str]:
        return [] if value == "same" else [value] if isinstance(value, str) else value

    def fields_of(via: str | None) -> list[str]:
        return via.split(", ") if via else []

    specified = [
        {
            "type": type_,
            "from": ends(shape["from"]),
            "to": ends(shape["to"]),
            "props": shape.get("props", {}),
            "implied_by": shape.get("implied_by"),
            "via": fields_of(shape.get("via")),
            "identity": shape.get("identity", []),
            "undirected": shape.get("undirected", False),
            "replaced": shape.get("replaced", False),
            "governed": shape.get("governed"),
            "derived": shape.get("derived", False),
        }
        for type_, shapes in SPEC["relationships"].items()
        for shape in shapes
    ]
    coded = [
        {
            "type": link.name,
            "from": list(link.froms),
            "to": list(link.tos),
            "props": _types(link_props(link)),
            "implied_by": link.implied_by,
            "via": list(link.via),
            "identity": list(link.identity),
            "undirected": link.undirected,
            "replaced": link.replaced,
            "governed": link.governed,
            "derived": link.derived,
        }
        for link in LINK_KINDS
    ]

    assert coded == specified


@pytest.mark.spec("GR-1")
def test_metrics_are_those_of_the_specification() -> None:
    coded = [
        {
            name: value
            for name in ("match", "kind", "unit", "tolerance", "meaning", "cautious", "floor")
            if (value := getattr(metric, name)) is not None
        }
        for metric in metrics()
    ]

    assert coded == SPEC["metrics"]


@pytest.mark.spec("GR-1")
def test_limits_are_those_of_the_specification() -> None:
    assert SPEC["limits"] == {
        "key": fields.KEY_CHARS,
        "ticker": fields.SUBJECT_KEY_CHARS,
        "market_id": fields.SUBJECT_KEY_CHARS,
        "agent": fields.NAME_CHARS,
        "domain": fields.NAME_CHARS,
        "string": fields.STRING_CHARS,
        "text": fields.TEXT_CHARS,
        "long": fields.LONG_CHARS,
        "strings": fields.LIST_ITEMS,
        "json_bytes": fields.JSON_BYTES,
        "body_bytes": fields.BODY_BYTES,
    }


NAMES_OF_AGENTS = {"agent", "agent_id", "challenger_agent", "challenged_agent", "winning_agent", "speaker", "domain"}


@pytest.mark.spec("GR-1")
def test_every_field_has_the_limit_of_what_it_names() -> None:
    """A key that names an agent, a domain or a subject is as short as that one's own key must be."""
    shorter = {"ticker": 180, "market_id": 180, **dict.fromkeys(NAMES_OF_AGENTS, 90)}
    by_type = {"key": 200, "string": 200, "text": 2000, "long": 4000}

    for info in KINDS.values():
        for part in (info.core, *info.groups.values()):
            for prop in part.properties.values():
                if prop.type.name not in by_type:
                    continue
                own_name = prop.name == "name" and info.label in {"Agent", "Domain"} and part is info.core
                want = 90 if own_name else shorter.get(prop.name, by_type[prop.type.name])
                assert prop.type.schema["maxLength"] == want, (info.label, part.name, prop.name)


@pytest.mark.spec("GR-1")
def test_no_value_of_a_node_hides_another() -> None:
    """Core, groups and bookkeeping lie side by side on one node, each under a name of its own."""
    for info in KINDS.values():
        names = [name for part in (info.core, *info.groups.values()) for name in part.properties]
        kept = {f"{group}_{end}" for group in info.groups for end in ("known_at", "recorded_at", "position", "order")}
        kept |= {"known_at", "recorded_at", "occurred_at", "position", "stub", "core_order", "core_recorded_at"}
        assert len(names) == len(set(names)), info.label
        assert kept.isdisjoint(names), info.label


@pytest.mark.spec("GR-1")
def test_nothing_but_the_closed_lists_can_be_written() -> None:
    known_at = "2026-06-01T00:00:00Z"
    for line in (
        {"record": "Thing", "core": {"id": "x"}},
        {"record": "AppliedEvent", "core": {"event_id": "x"}},
        {"record": "Subject", "core": {"subject_id": "company:MU"}},
        {"record": "Human", "core": {"id": "x", "stub": True}},
        {"link": "KNOWS", "from": {"Human": "x"}, "to": {"Human": "y"}},
        {"link": "PEER_OF", "from": {"Company": "x"}, "to": {"Company": "y"}, "props": {"position": 1}},
    ):
        with pytest.raises(BadInput):
            parse_line(json.dumps({**line, "known_at": known_at}).encode())
