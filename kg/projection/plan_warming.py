"""
Plans Neo4j's statements ahead of their first use.

Neo4j plans a statement when it first sees its text, and again when the graph has grown to several times its size.
Either takes longer than the deadline of a read or a write. So the applier's process runs the queries of a briefing with
parameters that match nothing, when it starts and after the graph has grown. It also runs the statements that write
events, without rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, LiteralString

import neo4j
import structlog

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.statements import cypher
from imem.kg.engine import Graph, given
from imem.kg.projection.rows import statements_of
from imem.kg.queries import AS_OF, NamedQuery, named_queries

log = structlog.get_logger()

BUDGET_MS: Final = 20_000
"""Timeout of one plan, in milliseconds."""

AWAITED: Final = ("Finding", "Debate", "Decision", "Analysis")
"""Kinds of records whose writes agents wait for most, the first of them most."""

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NO_KEY: Final = "-"
_EXAMPLES: Final[dict[str, Any]] = {"int": 1, "list": []}
"""Values of parameters that are no text, by type."""


async def has_analyses(graph: Graph) -> bool:
    """Return whether the graph holds any analysis; false if it does not answer."""
    try:
        return bool((await graph.read("holds_analyses", deadline=Deadline.after_ms(BUDGET_MS)))[0]["holds"])
    except ImemError as error:
        log.info("graph.not_warmed", reason=str(error))
        return False


async def warm(graph: Graph) -> int:
    """Run every as-of query once, and return how many succeeded; errors are logged and ignored."""
    done = 0
    for query in named_queries().values():
        if not query.as_of:
            continue
        try:
            await graph.read(query.name, example(query), deadline=Deadline.after_ms(BUDGET_MS))
            done += 1
        except ImemError as error:
            log.info("graph.not_warmed", query=query.name, reason=str(error))
    return done


def example(query: NamedQuery) -> dict[str, Any]:
    """Return parameters of an as-of query that match nothing."""
    kinds = query.parameters.items()
    values: dict[str, Any] = {name: _EXAMPLES.get(kind.split()[0].rstrip(","), _NO_KEY) for name, kind in kinds}
    return {**values, **dict.fromkeys(AS_OF, _LONG_AGO)}


class _Rollback(Exception):
    """Rolls back a transaction that was run for its plans alone."""


async def warm_writing(graph: Graph, kinds: Collection[str]) -> int:
    """
    Plan the statements that write records of *kinds*, and return for how many kinds that succeeded.

    Nothing is written; errors are logged and ignored. Neo4j has one plan for the first statement of a transaction, and
    another for those after it, which see earlier changes. So the first statement runs before a change that is rolled
    back, and all of them after it, without rows. EXPLAIN alone would leave a third of the work to the first writer.
    """
    done = 0
    for kind in kinds:
        texts = [work.text for work in statements_of(kind)]
        try:
            await graph.write("plan", partial(_planned, texts), deadline=Deadline.after_ms(BUDGET_MS))
        except _Rollback:
            done += 1
        except ImemError as error:
            # The other kinds would fail as well: the graph is away, or busy.
            log.info("graph.not_warmed", kind=kind, reason=str(error))
            break
    return done


async def _planned(texts: Sequence[LiteralString], transaction: neo4j.AsyncTransaction) -> None:
    nothing = given(rows=[], dropped={}, now=_LONG_AGO.isoformat())
    for text in (texts[0], cypher("change_nothing").text, *texts):
        await (await transaction.run(text, nothing)).consume()
    raise _Rollback
