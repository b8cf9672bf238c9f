"""
The journal and the graph as a plain list of statements: what the real ones are compared with.

Nothing here is clever. A statement is one value of one group of one record or link; every question is answered by
looking through the whole list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from imem.journal.events.entry import AppendStatus, JournalEntry
from imem.kg.kinds.catalog import ARCHIVE, CORE, KINDS, LINKS, implied_links, link_props

Value = Any
Order = tuple[datetime, str, int]
Node = tuple[str, str]
Link = tuple[str, str, str, str, str, str]


@dataclass(frozen=True)
class Statement:
    """One value of one group."""

    kind: str
    key: str
    group: str
    value: Value
    hash: bytes
    order: Order
    known_at: datetime
    recorded_at: datetime
    occurred_at: datetime
    actor: str
    ref_hash: bytes | None


@dataclass
class Model:
    """Every statement that was accepted, in the order of recording."""

    statements: list[Statement] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str, key: str, group: str) -> list[Statement]:
        return [one for one in self.statements if (one.kind, one.key, one.group) == (kind, key, group)]

    # Writing

    def verdict(self, actor: str, entry: JournalEntry, now: datetime) -> AppendStatus:
        """What the journal ought to answer."""
        if entry.known_at is not None and entry.known_at > now:
            return AppendStatus.FUTURE
        if entry.kind.startswith("correct."):
            cores = self.of(entry.head_kind, entry.key, CORE)
            if not cores:
                return AppendStatus.NOTHING_TO_CORRECT
            if cores[0].ref_hash != entry.ref_hash:
                return AppendStatus.REFERENCE_CHANGED
        before = {group.name: self.of(entry.head_kind, entry.key, group.name) for group in entry.groups}
        if any(group.name == CORE and one.hash != group.hash for group in entry.groups for one in before[group.name]):
            return AppendStatus.CORE_CONFLICT
        if all(self._repeats(actor, entry, before[group.name], group.hash) for group in entry.groups):
            return AppendStatus.IDENTICAL
        return AppendStatus.CHANGED if any(before.values()) else AppendStatus.NEW

    def _repeats(self, actor: str, entry: JournalEntry, before: list[Statement], digest: bytes) -> bool:
        if entry.known_at is None:
            return bool(before) and max(before, key=lambda one: one.order).hash == digest
        return any((one.actor, one.known_at, one.hash) == (actor, entry.known_at, digest) for one in before)

    def accept(self, actor: str, entry: JournalEntry, now: datetime) -> None:
        """Take in a line that was found new or changed."""
        number = self.numbers[actor] = self.numbers.get(actor, 0) + 1
        known_at = entry.known_at or now
        payload = orjson.loads(entry.payload)
        for group in entry.groups:
            self.statements.append(
                Statement(
                    entry.head_kind,
                    entry.key,
                    group.name,
                    _value(payload, group.name),
                    group.hash,
                    (known_at, actor, number),
                    known_at,
                    now,
                    entry.occurred_at or known_at,
                    actor,
                    entry.ref_hash,
                )
            )

    # Asking

    def values_at(self, known_until: datetime, recorded_until: datetime) -> dict[tuple[str, str, str], Value]:
        """Every group of every record and link as it stood, with the moment since when it was known."""
        found: dict[tuple[str, str, str], Statement] = {}
        for one in self.statements:
            if one.known_at > known_until or one.recorded_at > recorded_until:
                continue
            slot = (one.kind, one.key, one.group)
            standing = found.get(slot)
            if standing is None or (one.order < standing.order) == (one.group == CORE):
                found[slot] = one
        return {slot: (one.value, one.known_at) for slot, one in found.items()}

    def graph(self) -> tuple[dict[Node, dict[str, Any]], dict[Link, dict[str, Any]]]:
        """The nodes and links that the graph ought to hold, with canonical properties and clocks."""
        nodes: dict[Node, dict[str, Any]] = {}
        links: dict[Link, dict[str, Any]] = {}
        for kind, key in {(one.kind, one.key) for one in self.statements}:
            if kind.startswith("link."):
                self._link(kind, key, nodes, links)
            else:
                self._record(kind, key, nodes, links)
        return nodes, links

    def _record(
        self, kind: str, key: str, nodes: dict[Node, dict[str, Any]], links: dict[Link, dict[str, Any]]
    ) -> None:
        node = nodes.setdefault((kind, key), {})
        cores = self.of(kind, key, CORE)
        if cores:
            first = min(cores, key=lambda one: one.order)
            corrections = self.of(kind, key, "correction")
            stands = max(corrections, key=lambda one: one.order) if corrections else first
            node |= stands.value
            node |= {"known_at": first.known_at, "occurred_at": first.occurred_at}
            if corrections:
                node["correction_known_at"] = stands.known_at
            for link in implied_links(kind, first.value):
                _put(links, nodes, (*link[:5], ""), link.props, first, first)
        for name in KINDS[kind].groups:
            stated = self.of(kind, key, name)
            if stated:
                latest = max(stated, key=lambda one: one.order)
                node |= latest.value
                node[f"{name}_known_at"] = latest.known_at
        if self.of(kind, key, ARCHIVE):
            for name in KINDS[kind].detail:
                node.pop(name, None)

    def _link(self, kind: str, key: str, nodes: dict[Node, dict[str, Any]], links: dict[Link, dict[str, Any]]) -> None:
        stated = self.of(kind, key, "props")
        latest = max(stated, key=lambda one: one.order)
        value = latest.value
        shape = (kind.removeprefix("link."), value["from_label"], value["to_label"])
        link = LINKS[shape]
        first = latest if link.replaced else min(stated, key=lambda one: one.order)
        ends = (value["from_label"], value["from_key"], value["to_label"], value["to_key"])
        identity = value["props"][link.identity[0]] if link.identity else ""
        _put(links, nodes, (shape[0], *ends, identity), value["props"], first, latest)
        for one in stated:
            nodes.setdefault((one.value["to_label"], one.value["to_key"]), {})


def _put(
    links: dict[Link, dict[str, Any]],
    nodes: dict[Node, dict[str, Any]],
    link: Link,
    props: dict[str, Any],
    first: Statement,
    _latest: Statement,
) -> None:
    nodes.setdefault((link[1], link[2]), {})
    nodes.setdefault((link[3], link[4]), {})
    links[link] = {**props, "known_at": first.known_at, "occurred_at": first.occurred_at}


def _value(payload: dict[str, Any], group: str) -> Value:
    if group in {CORE, "correction"}:
        return payload[CORE]
    return payload if group == "props" else payload["groups"][group]


def canonical_node(kind: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A node of the graph in the model's form: canonical values and the clocks that count."""
    info = KINDS[kind]
    found = dict(info.core.from_graph(properties)) if properties.get("known_at") else {}
    if properties.get("correction_known_at") is not None and not found:
        found = dict(info.core.from_graph(properties))
    for name, group in info.groups.items():
        if not group.derived and properties.get(f"{name}_known_at") is not None:
            found |= group.from_graph(properties)
            found[f"{name}_known_at"] = properties[f"{name}_known_at"].to_native()
    for name in ("known_at", "occurred_at", "correction_known_at"):
        if properties.get(name) is not None:
            found[name] = properties[name].to_native()
    return found


def canonical_link(shape: tuple[str, str, str], properties: dict[str, Any]) -> dict[str, Any]:
    """A link of the graph likewise."""
    found = dict(link_props(LINKS[shape]).from_graph(properties))
    return found | {name: properties[name].to_native() for name in ("known_at", "occurred_at")}


def moments(statements: Iterable[Statement]) -> list[datetime]:
    """Every moment at which an answer may change, on either clock."""
    return sorted({one.known_at for one in statements} | {one.recorded_at for one in statements})
