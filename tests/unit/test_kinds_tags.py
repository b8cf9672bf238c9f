"""Every kind and every link declares its dependency tags, if only that it has none."""

from __future__ import annotations

import gc
import types
from typing import Any, get_args

import pytest

from imem.kg.kinds.base import Kind, Tag, TagName
from imem.kg.kinds.catalog import KINDS
from imem.kg.kinds.links import LINK_KINDS, LinkKind


def test_a_kind_without_tags_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="tags"):
        types.new_class("Untagged", (Kind,))
    gc.collect()  # Of the class that was refused, so that it is no subclass any more.


def test_a_link_without_tags_cannot_be_defined() -> None:
    untagged: dict[str, Any] = {"name": "NAMES", "froms": ("Agent",), "tos": ("Agent",)}
    with pytest.raises(TypeError, match="tags"):
        LinkKind(**untagged)
    assert LinkKind(**untagged, tags=()).tags == ()


def test_every_name_of_a_tag_is_declared_by_a_kind() -> None:
    assert {tag.name for info in KINDS.values() for tag in info.tags} == set(get_args(TagName))


@pytest.mark.parametrize("link", LINK_KINDS, ids=lambda link: f"{link.name}-{link.froms[0]}")
def test_a_link_names_tags_of_its_ends(link: LinkKind) -> None:
    ends = [info for info in KINDS.values() if not set(info.labels).isdisjoint((*link.froms, *link.tos))]
    assert {tag for tag in link.tags if isinstance(tag, str)} <= {tag.name for info in ends for tag in info.tags}


@pytest.mark.parametrize("link", LINK_KINDS, ids=lambda link: f"{link.name}-{link.froms[0]}")
def test_a_tag_of_a_link_is_completed_by_a_field_of_its_start(link: LinkKind) -> None:
    for tag in link.tags:
        if isinstance(tag, Tag):
            assert all(tag.field in KINDS[label].core.properties for label in link.froms)
