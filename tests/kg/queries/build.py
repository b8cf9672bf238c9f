"""
Small histories for tests of the graph, told as records and links and written the way the applier writes them.

Days are written as ``at("06-03")``: noon UTC of that day in 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import neo4j

from imem.journal.statements import cypher
from imem.kg.engine import given
from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.catalog import KINDS, LINKS, link_props
from imem.kg.projection.rows import Event, Projection

LONG_AGO = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When everything is known of which a test does not say when."""

FOREVER = datetime(9999, 12, 31, tzinfo=UTC)

Row = dict[str, Any]


def at(day: str) -> datetime:
    """Return noon UTC of *day* (``MM-DD``) in 2026."""
    month, _, number = day.partition("-")
    return datetime(2026, int(month), int(number), 12, tzinfo=UTC)


def as_of(day: str | None = None, *, clock: str = "known") -> Row:
    """Return the parameters of a query that answers as of *day* on one of the clocks; none is now."""
    until = FOREVER if day is None else at(day)
    return {"known_until": until, "recorded_until": until if clock == "recorded" else FOREVER}


class Story:
    """
    A history under way; every method returns the story, so that calls can be chained.

    ``known`` is when the fact could be known, ``recorded`` when it was recorded (by default at once).
    """

    def __init__(self) -> None:
        self._projection = Projection()
        self._count = 0
        self._derived: list[tuple[str, Row]] = []

    def tell(self, *records: Kind, known: datetime = LONG_AGO, recorded: datetime | None = None) -> Story:
        """State records whole: cores with the groups they carry."""
        for record in records:
            info = KINDS[type(record).__name__]
            payload: Row = {"core": info.core.canonical(record)}
            groups = {name: getattr(record, name) for name in info.groups}
            stated = {name: info.groups[name].canonical(group) for name, group in groups.items() if group is not None}
            if stated:
                payload["groups"] = stated
            self._event(f"record.{info.label}", record.ref[1], payload, known, recorded)
        return self

    def late(
        self, kind: type[Kind], key: str, *, known: datetime, recorded: datetime | None = None, **groups: Group
    ) -> Story:
        """State groups of a record apart from its core."""
        parts = KINDS[kind.__name__].groups
        payload = {"groups": {name: parts[name].canonical(group) for name, group in groups.items()}}
        return self._event(f"record.{kind.__name__}", key, payload, known, recorded)

    def correct(self, record: Kind, *, known: datetime, recorded: datetime | None = None) -> Story:
        """Replace the core of a record."""
        info = KINDS[type(record).__name__]
        payload = {"core": info.core.canonical(record), "reason": "It was wrong."}
        return self._event(f"correct.{info.label}", record.ref[1], payload, known, recorded)

    def link(
        self,
        link: str,
        start: tuple[str, str],
        end: tuple[str, str],
        *,
        known: datetime = LONG_AGO,
        recorded: datetime | None = None,
        **props: Any,
    ) -> Story:
        """State a link that no record implies; ends are (kind, key)."""
        properties = link_props(LINKS[link, start[0], end[0]])
        canonical = properties.canonical(properties.model.model_validate(props))
        payload = {
            "from_label": start[0],
            "from_key": start[1],
            "to_label": end[0],
            "to_key": end[1],
            "props": canonical,
        }
        return self._event(f"link.{link}", f"{start} {end} {canonical.get('at', '')}", payload, known, recorded)

    def settled(self, finding: str, outcome: str, **score: float | None) -> Story:
        """Say how an outcome settled a finding, as the credibility pipeline does."""
        self._derived.append(("settled", {"from": finding, "to": outcome, "props": score}))
        return self

    def similar(self, kind: str, start: str, end: str, **props: Any) -> Story:
        """Say how alike two analyses or debates are, as the similarity pipeline does."""
        self._derived.append((kind, {"from": start, "to": end, "props": props}))
        return self

    def write(self, driver: neo4j.Driver) -> None:
        """Write it all to the graph."""
        with driver.session(database="neo4j") as session:
            for work in self._projection.work():
                if work.name != "mark_applied":
                    session.run(work.text, given(work.parameters)).consume()
            for what, row in self._derived:
                session.run(_DERIVED[what], rows=[row]).consume()
        self._projection, self._derived = Projection(), []

    def _event(
        self, kind: str, key: str, payload: Mapping[str, Any], known: datetime, recorded: datetime | None
    ) -> Story:
        self._count += 1
        micros = (known - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self._projection.add(
            Event(
                position=self._count,
                event_id=UUID(int=self._count),
                kind=kind,
                key=key,
                payload=payload,
                occurred_at=known.isoformat(),
                known_at=known.isoformat(),
                recorded_at=(recorded or known).isoformat(),
                order_key=f"{micros:018}|teller|{self._count:019}",
            )
        )
        return self


_DERIVED = {
    "settled": """
        UNWIND $rows AS row MATCH (f:Finding {id: row.from}) MATCH (o:Outcome {id: row.to})
        MERGE (f)-[r:SETTLED_BY]->(o) SET r = row.props""",
    "Analysis": """
        UNWIND $rows AS row MATCH (a:Analysis {id: row.from}) MATCH (b:Analysis {id: row.to})
        MERGE (a)-[r:SIMILAR_TO]->(b) SET r = row.props""",
    "Debate": """
        UNWIND $rows AS row MATCH (a:Debate {id: row.from}) MATCH (b:Debate {id: row.to})
        MERGE (a)-[r:SIMILAR_TO]->(b) SET r = row.props""",
}


def ask(driver: neo4j.Driver, name: str, **parameters: Any) -> list[Row]:
    """Run a named query and return its rows; the call is checked as the product's own are."""
    from imem.kg.queries import arguments

    result, _, _ = driver.execute_query(cypher(name).text, given(arguments(name, **parameters)), database_="neo4j")
    return [record.data() for record in result]
