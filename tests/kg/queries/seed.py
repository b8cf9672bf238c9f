"""Grows the generated graph of ``seed.cypher`` to a size."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import neo4j

from imem.journal.statements import parse
from tests.kg.queries.build import LONG_AGO, at

BATCH: Final = 1500
"""Analyses made in one transaction; a multiple of 100."""

ONCE: Final = ("agents", "domains", "sources", "humans", "credibility", "quiet_agent")
GROWN: Final = ("subjects", "peers", "analyses", "similar_analyses", "disputes", "patterns", "learning")

SETTLED: Final = ("CALL db.awaitIndexes(300)", "CALL db.resampleOutdatedIndexes()", "CALL db.prepareForReplanning(60)")
"""What makes indexes and statistics know what was written."""


def grow(driver: neo4j.Driver, start: int, end: int) -> None:
    """Grow the graph from *start* to *end* analyses (multiples of 100)."""
    path = Path(__file__).with_name("seed.cypher")
    statements = parse(path.read_text(encoding="utf-8"), path)
    times = {"t": LONG_AGO, "applied": at("11-20"), "late": at("12-01")}
    with driver.session(database="neo4j") as session:
        for name in ONCE if start == 0 else ():
            session.run(statements[name].text, times).consume()
        for begin in range(start, end, BATCH):
            bounds = {"from": begin, "to": min(end, begin + BATCH)}
            for name in GROWN:
                session.run(statements[name].text, {**times, **bounds}).consume()
        for statement in SETTLED:
            session.run(statement).consume()
