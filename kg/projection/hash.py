"""
The hash of a graph's content: equal for equal facts, whatever the order of their arrival.

It covers every node (label, key, the properties of its core and groups, ``known_at`` of each, ``occurred_at``) and
every link (type, ends, properties, clocks). It leaves out what depends on the order of arrival (``recorded_at``,
positions, order keys), what is derived (counters, settlements, projected headlines, stored similarity), and bookkeeping
(applied events, schema versions, the mark of a stub).

Nodes are read by pages of their key, each with the links of one of its ends, so that neither the server nor this
process holds more than a page. A link is counted at the end with few links: subjects, agents and the like have links
without bound, a finding does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from imem.journal.deadline import Deadline
from imem.journal.events.canonical import canonical_json
from imem.journal.statements import cypher
from imem.kg.engine import Graph
from imem.kg.kinds.catalog import CORE, KINDS, LINKS, KindInfo
from imem.kg.projection.rows import CORRECTION, TERMS

PAGE_NODES: Final = 500
"""Nodes that are read at once."""

PAGE_BUDGET_MS: Final = 60_000
"""Timeout of one page, in milliseconds."""

_REFERENCES: Final = frozenset({"Company", "Market", "Agent", "Human", "Domain", "SourceCredibility"})
"""Kinds with links without bound."""

_UNORDERED: Final = ("recorded_at", "position", "order")
"""Properties that depend on the order of arrival."""

_LINK_HIDDEN: Final = (*_UNORDERED, "first_order")

_KEYS: Final = {label: info.key for label, info in KINDS.items()}


@dataclass(frozen=True, slots=True)
class PartHash:
    """
    The hash of one label or one type of links.

    Attributes:
        count: how many.
        digest: SHA-256 of them, hexadecimal.
    """

    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class GraphHash:
    """
    The hash of a graph.

    Attributes:
        digest: SHA-256 of the whole, hexadecimal.
        nodes, links: how many it covers.
        parts: the same for each label and each type of links, to find where two graphs differ.
    """

    digest: str
    nodes: int
    links: int
    parts: Mapping[str, PartHash] = field(repr=False)

    def differing(self, other: GraphHash) -> list[str]:
        """Return the labels and types in which two graphs differ, with the count of each, in words."""
        found = []
        for name in sorted(self.parts.keys() | other.parts.keys()):
            here, there = self.parts.get(name), other.parts.get(name)
            if here != there:
                counts = f"{here.count if here else 0:,} against {there.count if there else 0:,}"
                same = here is not None and there is not None and here.count == there.count
                found.append(f"{name} ({counts}{', with other content' if same else ''})")
        return found


@dataclass(slots=True)
class _Tally:
    """A running hash of one part."""

    count: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, line: bytes) -> None:
        self.count += 1
        self.digest.update(len(line).to_bytes(8, "big"))
        self.digest.update(line)


async def graph_hash(graph: Graph, *, seen: Callable[[int], None] | None = None, page: int = PAGE_NODES) -> GraphHash:
    """
    Return the hash of *graph*.

    While events are applied the pages are not of one moment: hold the applier's lease, or be alone.

    Args:
        graph: which.
        seen: called after each page with the number of nodes read so far.
        page: nodes that are read at once; the hash does not depend on it.

    Raises:
        GraphUnavailable: the server cannot be reached.
    """
    labels: dict[str, _Tally] = {}
    types: dict[str, _Tally] = {}
    nodes = 0
    used = await graph.read("labels_in_use", deadline=Deadline.after_ms(PAGE_BUDGET_MS))
    for label, info in sorted(KINDS.items()):
        after = ""
        while {"label": label} in used:
            rows = await _page(graph, info, after, page)
            for row in (row for row in rows if "properties" in row):
                line = canonical_json([row["key"], *sorted(row["properties"], key=_name)])
                labels.setdefault(label, _Tally()).add(line)
                for type_, linked in _links(label, row):
                    types.setdefault(type_, _Tally()).add(linked)
            nodes += len(rows)
            if seen is not None:
                seen(nodes)
            if len(rows) < page:
                break
            after = rows[-1]["key"]
    return _sum(labels, types)


async def _page(graph: Graph, info: KindInfo, after: str, limit: int) -> list[dict[str, Any]]:
    """Return the next nodes of a kind after a key, in their order; of one deleted meanwhile its key alone."""
    deadline = Deadline.after_ms(PAGE_BUDGET_MS)
    text = cypher("hash_page").bind(TERMS, label=info.label, key=info.key)
    keys = await graph.read_text("hash_page", text, {"after": after, "limit": limit}, deadline=deadline)
    if not keys:
        return []
    wanted = {"ids": [row["id"] for row in keys], **_SHAPES[info.label]}
    found = {row["id"]: row for row in await graph.read("hash_nodes", wanted, deadline=deadline)}
    return [{**row, **found.get(row["id"], {})} for row in keys]


def _name(pair: list[Any]) -> str:
    return str(pair[0])


def _links(label: str, row: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield type and line of the links that are counted at this node, in a fixed order."""
    found = []
    for way in ("outward", "inward"):
        for type_, other_label, other_key, properties in row[way]:
            ends = [label, row["key"], other_label, other_key]
            ends = ends if way == "outward" else [*ends[2:], *ends[:2]]
            found.append((type_, canonical_json([type_, *ends, *sorted(properties, key=_name)])))
    return iter(sorted(found))


def _sum(labels: Mapping[str, _Tally], types: Mapping[str, _Tally]) -> GraphHash:
    tallies = {**labels, **types}
    parts = {name: PartHash(tallies[name].count, tallies[name].digest.hexdigest()) for name in sorted(tallies)}
    whole = canonical_json([[name, part.count, part.digest] for name, part in parts.items()])
    return GraphHash(
        hashlib.sha256(whole).hexdigest(),
        sum(tally.count for tally in labels.values()),
        sum(tally.count for tally in types.values()),
        MappingProxyType(parts),
    )


def _shape(info: KindInfo) -> dict[str, Any]:
    """Return the parameters that all pages of a kind share."""
    hidden = {"stub", *_UNORDERED, f"{CORE}_order", f"{CORE}_recorded_at"}
    hidden |= {f"{group}_{ending}" for group in (*info.groups, CORRECTION) for ending in _UNORDERED}
    for group in info.groups.values():
        if group.derived:
            hidden |= {*group.properties, f"{group.name}_known_at"}
    outward: set[str] = set()
    inward: set[str] = set()
    for (type_, start, end), link in LINKS.items():
        if link.derived:
            continue
        by_end = start in _REFERENCES and end not in _REFERENCES
        if info.label == (end if by_end else start):
            (inward if by_end else outward).add(type_)
    return {
        "hidden": sorted(hidden),
        "outward": sorted(outward),
        "inward": sorted(inward),
        "link_hidden": list(_LINK_HIDDEN),
        "labels": sorted(KINDS),
        "keys": _KEYS,
    }


_SHAPES: Final = {label: _shape(info) for label, info in KINDS.items()}
