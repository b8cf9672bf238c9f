"""
Projects a batch of journal events to rows for the graph's statements. Pure: no I/O, no clock.

Events of one batch are coalesced: of several statements about one core, group or link, only the one that counts is
sent. The statements compare order keys, so that a batch applied late, twice, or concurrently with others has the same
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import UUID

from imem.journal.statements import cypher
from imem.kg.kinds.catalog import (
    ARCHIVE,
    CORE,
    KINDS,
    LABELS,
    LINK_TYPES,
    LINKS,
    PropertySet,
    implied_links,
    link_props,
    subject_id_of,
)

Row = dict[str, Any]

Link = tuple[str, str, str, str, str, str]
"""Type, label and key of the start, label and key of the end, identity (text, or empty)."""

CORRECTION = "correction"

_AFTER_GROUPS = {
    ("Pattern", "status"): "mark_active_patterns",
    ("AgentCredibility", "score"): "project_credibility",
}
"""Statements to run after a group was written; they read its value from the node."""

_AFTER_CORES = {"AgentCredibility": "project_credibility"}
"""Statements to run after a core was written, which may come after its group."""

TERMS = frozenset(
    LABELS
    | LINK_TYPES
    | {info.key for info in KINDS.values()}
    | {f"{group}_order" for info in KINDS.values() for group in (*info.groups, CORRECTION)}
    | {name for link in LINKS.values() for name in link.identity}
)
"""The closed list of terms that statements may be bound with."""


@dataclass(frozen=True, slots=True)
class Event:
    """
    A journal event as the applier reads it.

    Attributes:
        position: its global number.
        event_id: its identity.
        kind: ``record.<Kind>``, ``correct.<Kind>`` or ``link.<TYPE>``.
        key: the record's key, or the link's identity.
        payload: canonical content.
        occurred_at, known_at, recorded_at: its clocks, as RFC 3339 text in UTC.
        order_key: (known_at, actor, agent_seq) as sortable text.
        attempts: how often the graph has refused it.
        actor: the actor in whose order it is applied.
    """

    position: int
    event_id: UUID
    kind: str
    key: str
    payload: Mapping[str, Any]
    occurred_at: str
    known_at: str
    recorded_at: str
    order_key: str
    attempts: int = 0
    actor: str = ""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Event:
        """Return the event of a row of ``claim_due`` or ``events_after``."""
        return cls(
            row["position"],
            row["event_id"],
            row["kind"],
            row["record_key"],
            row["payload"],
            _text(row["occurred_at"]),
            _text(row["known_at"]),
            _text(row["recorded_at"]),
            row["order_key"],
            row["attempts"],
            row["actor"],
        )


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """
    One statement with its rows, sorted by key so that two transactions take locks in one order.

    ``dropped`` holds the properties that a pruned node loses, each with None.
    """

    name: str
    text: LiteralString
    rows: list[Row]
    dropped: Row = field(default_factory=dict)

    @property
    def parameters(self) -> Row:
        """The parameters of the statement beside the time."""
        return {"rows": self.rows, "dropped": self.dropped}


@dataclass(slots=True)
class Projection:
    """The rows that a batch of events writes; grows by :meth:`add`."""

    cores: dict[str, dict[str, Row]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[str, Row]] = field(default_factory=dict)
    links: dict[Link, Row] = field(default_factory=dict)
    named: dict[str, dict[str, Row]] = field(default_factory=dict)
    applied: list[Row] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Add one event."""
        sort, _, name = event.kind.partition(".")
        if sort == "link":
            self._add_link_event(name, event)
        else:
            if CORE in event.payload:
                add = self._add_core if sort == "record" else self._add_correction
                add(name, event)
            for group, value in event.payload.get("groups", {}).items():
                self._add_group(name, group, event, _values(KINDS[name].groups[group], value))
        self.applied.append({"event_id": str(event.event_id), "position": event.position})

    def _add_core(self, kind: str, event: Event) -> None:
        row = {
            "key": event.key,
            "subject": subject_id_of(kind, event.key),
            "order": event.order_key,
            "recorded_at": event.recorded_at,
            "position": event.position,
            "known_at": event.known_at,
            "occurred_at": event.occurred_at,
            **_values(KINDS[kind].core, event.payload[CORE]),
        }
        rows = self.cores.setdefault(kind, {})
        rows[event.key] = _merged_core(rows.get(event.key), row)
        for link in implied_links(kind, event.payload[CORE]):
            self._add_link(
                (link.type, link.from_label, link.from_key, link.to_label, link.to_key, ""),
                event,
                _values(link_props(LINKS[link.type, link.from_label, link.to_label]), link.props),
            )

    def _add_correction(self, kind: str, event: Event) -> None:
        self._add_group(kind, CORRECTION, event, _values(KINDS[kind].core, event.payload[CORE]))

    def _add_group(self, kind: str, group: str, event: Event, values: Row) -> None:
        rows = self.groups.setdefault((kind, group), {})
        standing = rows.get(event.key)
        if standing is not None and event.order_key < standing["order"]:
            return
        clocks = [[f"{group}_known_at", event.known_at], [f"{group}_recorded_at", event.recorded_at]]
        marks = {f"{group}_position": event.position, f"{group}_order": event.order_key}
        if group == ARCHIVE:
            marks["archived"] = True
        rows[event.key] = {
            "key": event.key,
            "subject": subject_id_of(kind, event.key),
            "order": event.order_key,
            "props": values["props"] | marks,
            "times": values["times"] + clocks,
        }

    def _add_link_event(self, type_: str, event: Event) -> None:
        payload = event.payload
        kind = LINKS[type_, payload["from_label"], payload["to_label"]]
        values = _values(link_props(kind), payload["props"])
        identity = str(payload["props"][kind.identity[0]]) if kind.identity else ""
        ends = (payload["from_label"], payload["from_key"], payload["to_label"], payload["to_key"])
        if kind.undirected and ends[1] > ends[3]:
            ends = (*ends[2:], *ends[:2])
        self._add_link((type_, *ends, identity), event, values)

    def _add_link(self, link: Link, event: Event, values: Row) -> None:
        type_, from_label, from_key, to_label, to_key, identity = link
        kind = LINKS[type_, from_label, to_label]
        slot = (type_, from_label, from_key, "", "", "") if kind.replaced else link
        standing = self.links.get(slot)
        latest = standing is None or event.order_key > standing["order"]
        if kind.replaced and standing is not None:
            # The replaced target gets a stub all the same, as if the links had been written one by one.
            label, key = (standing["to_label"], standing["to"]) if latest else (to_label, to_key)
            self.named.setdefault(label, {})[key] = {"key": key, "subject": subject_id_of(label, key)}
        if kind.replaced and not latest:
            return
        row: Row = {
            "from": from_key,
            "to": to_key,
            "to_label": to_label,
            "from_stub": _stub(from_label, from_key),
            "to_stub": _stub(to_label, to_key),
            "order": event.order_key,
            "first_order": event.order_key,
            "recorded_at": event.recorded_at,
            "position": event.position,
            "known_at": event.known_at,
            "occurred_at": event.occurred_at,
            "identity": identity,
            **values,
        }
        self.links[slot] = row if kind.replaced else _merged_link(standing, row)

    def work(self) -> Iterator[BoundStatement]:
        """Yield the statements in the order in which they are run."""
        for kind, rows in sorted(self.cores.items()):
            yield _of_core(kind, list(rows.values()))
        for (kind, group), rows in sorted(self.groups.items()):
            yield _of_group(kind, group, list(rows.values()))
        for kind, rows in sorted(self.named.items()):
            yield _work("write_stubs", list(rows.values()), **_node(kind))
        for shape, linked in sorted(self._by_shape().items()):
            yield _of_links(shape, linked)
        yield from self._following()
        if self.applied:
            yield _of_marks(self.applied)

    def _following(self) -> Iterator[BoundStatement]:
        for slot, statement in _AFTER_GROUPS.items():
            keys = set(self.groups.get(slot, ()))
            if _AFTER_CORES.get(slot[0]) == statement:
                keys |= self.cores.get(slot[0], {}).keys()
            if keys:
                yield _work(statement, [{"key": key} for key in keys])

    def _by_shape(self) -> dict[tuple[str, str, str], list[Row]]:
        shapes: dict[tuple[str, str, str], list[Row]] = {}
        for (type_, from_label, *_), row in self.links.items():
            shapes.setdefault((type_, from_label, row["to_label"]), []).append(row)
        return shapes


def statements_of(kind: str) -> Iterator[BoundStatement]:
    """Yield, in order and without rows, the statements that write records of *kind* and their implied links."""
    yield _of_core(kind, [])
    for group, part in sorted(KINDS[kind].groups.items()):
        if not part.derived:
            yield _of_group(kind, group, [])
    for shape, link in sorted(LINKS.items()):
        if link.implied_by == kind and not link.derived:
            yield _of_links(shape, [])
    yield _of_marks([])


def _of_core(kind: str, rows: list[Row]) -> BoundStatement:
    return replace(_work("write_core", rows, **_node(kind)), dropped=dict.fromkeys(KINDS[kind].detail))


def _of_group(kind: str, group: str, rows: list[Row]) -> BoundStatement:
    work = _work("write_group", rows, order=f"{group}_order", **_node(kind))
    return replace(work, dropped=dict.fromkeys(KINDS[kind].detail))


def _of_links(shape: tuple[str, str, str], rows: list[Row]) -> BoundStatement:
    type_, from_label, to_label = shape
    link = LINKS[shape]
    terms = {"type": type_, **_end("from", from_label), **_end("to", to_label)}
    if link.replaced:
        return _work("replace_links", rows, **terms)
    if link.identity:
        return _work("write_dated_links", rows, identity=link.identity[0], **terms)
    return _work("write_links", rows, **terms)


def _of_marks(rows: list[Row]) -> BoundStatement:
    return _work("mark_applied", rows, sort_by="event_id")


def _merged_core(standing: Row | None, row: Row) -> Row:
    """Return the earliest-known statement of a core, with the position and time of the first that was recorded."""
    if standing is None:
        return row
    known = min(standing, row, key=lambda one: one["order"])
    return known | _first(standing, row)


def _merged_link(standing: Row | None, row: Row) -> Row:
    """Return the latest properties, the earliest clocks and the first commit of two statements of one link."""
    if standing is None:
        return row
    latest = max(standing, row, key=lambda one: one["order"])
    earliest = min(standing, row, key=lambda one: one["first_order"])
    clocks = {name: earliest[name] for name in ("known_at", "occurred_at", "first_order")}
    return latest | clocks | _first(standing, row)


def _first(standing: Row, row: Row) -> Row:
    first = min(standing, row, key=lambda one: one["position"])
    return {"position": first["position"], "recorded_at": first["recorded_at"]}


def _values(part: PropertySet, canonical: Mapping[str, Any]) -> Row:
    """Return the properties of a whole part, absent ones None so that they go, and its times apart."""
    names = _MOMENTS.get(part.name + part.model.__qualname__)
    if names is None:
        names = tuple(name for name, prop in part.properties.items() if prop.type.name == "datetime")
        _MOMENTS[part.name + part.model.__qualname__] = names
    if not names:
        return {"props": part.to_graph(canonical), "times": []}
    props = part.to_graph({name: value for name, value in canonical.items() if name not in names})
    return {"props": props, "times": [[name, canonical[name]] for name in names if name in canonical]}


_MOMENTS: dict[str, tuple[str, ...]] = {}


def _stub(label: str, key: str) -> Row:
    """Return the properties of a stub: a node that a link created before its own event."""
    subject = subject_id_of(label, key)
    return {"stub": True} if subject is None else {"stub": True, "subject_id": subject}


def _node(kind: str) -> dict[str, str]:
    info = KINDS[kind]
    # A kind without a second label sets its own twice.
    return {"label": info.label, "also": info.labels[-1], "key": info.key}


def _end(side: str, kind: str) -> dict[str, str]:
    node = _node(kind)
    return {side: node["label"], f"{side}_also": node["also"], f"{side}_key": node["key"]}


def _work(statement: str, rows: list[Row], *, sort_by: str | None = None, **terms: str) -> BoundStatement:
    by = sort_by or ("key" if rows and "key" in rows[0] else None)
    rows.sort(key=(lambda row: row[by]) if by else (lambda row: (row["from"], row["to"])))
    return BoundStatement(
        f"{statement} {terms.get('type') or terms.get('label') or ''}".strip(), _bound(statement, **terms), rows
    )


_BOUND: dict[tuple[str, ...], LiteralString] = {}


def _bound(statement: str, **terms: str) -> LiteralString:
    """Return the bound text; each binding is made once, so that the server's plan cache sees one text."""
    slot = (statement, *sorted(f"{place}={term}" for place, term in terms.items()))
    if slot not in _BOUND:
        _BOUND[slot] = cypher(statement).bind(TERMS, **terms)
    return _BOUND[slot]
