"""
Plans made before anybody waits for them.

Neo4j plans a statement when it first meets its text, and again when the graph has grown to several times its size;
either takes longer than a question may, or a write that somebody waits for. So the process that writes the graph asks
the questions of a briefing, about nothing, when it starts and after the graph has grown; and it writes nothing with
each statement that it writes events with.
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
from imem.kg.queries import AS_OF, named_queries

log = structlog.get_logger()

BUDGET_MS: Final = 20_000
"""How long one plan may take, in milliseconds."""

AWAITED: Final = ("Finding", "Debate", "Decision", "Analysis")
"""Kinds of records that agents wait for more than for others, the first of them most."""

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NO_KEY: Final = "-"
_EXAMPLES: Final[dict[str, Any]] = {"int": 1, "list": []}
"""By type, where a parameter is no text."""


async def has_analyses(graph: Graph) -> bool:
    """Return whether the graph holds anything that one may ask about; one that does not answer is not."""
    try:
        return bool((await graph.read("holds_analyses", deadline=Deadline.after_ms(BUDGET_MS)))[0]["holds"])
    except ImemError as error:
        log.info("graph.not_warmed", reason=str(error))
        return False


async def warm(graph: Graph) -> int:
    """Have every query that answers as of a day planned, and return how many were; trouble is only noted."""
    done = 0
    for query in named_queries().values():
        if not query.as_of:
            continue
        kinds = query.parameters.items()
        values: dict[str, Any] = {name: _EXAMPLES.get(kind.split()[0].rstrip(","), _NO_KEY) for name, kind in kinds}
        values |= dict.fromkeys(AS_OF, _LONG_AGO)
        try:
            await graph.read(query.name, values, deadline=Deadline.after_ms(BUDGET_MS))
            done += 1
        except ImemError as error:
            log.info("graph.not_warmed", query=query.name, reason=str(error))
    return done


class _Rollback(Exception):
    """Rolls a transaction back of which nothing was wanted but the plans."""


async def warm_writing(graph: Graph, kinds: Collection[str]) -> int:
    """
    Have the statements planned that write records of *kinds*, and return of how many kinds they were.

    Nothing is written, and trouble is only noted. Neo4j has one plan for the first statement of a transaction, and
    another for those after it, which see what was changed before: so they are run as they will be, but without rows,
    and around a change that is rolled back. EXPLAIN alone would leave a third of the work to the first who writes.
    """
    done = 0
    for kind in kinds:
        texts = [work.text for work in statements_of(kind)]
        try:
            await graph.write("plan", partial(_planned, texts), deadline=Deadline.after_ms(BUDGET_MS))
        except _Rollback:
            done += 1
        except ImemError as error:
            # The others would fare no better: the graph is away, or busy.
            log.info("graph.not_warmed", kind=kind, reason=str(error))
            break
    return done


async def _planned(texts: Sequence[LiteralString], transaction: neo4j.AsyncTransaction) -> None:
    nothing = given(rows=[], now=_LONG_AGO.isoformat())
    for text in (texts[0], cypher("change_nothing").text, *texts):
        await (await transaction.run(text, nothing)).consume()
    raise _Rollback
