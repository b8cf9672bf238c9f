"""Follows traced events into the graph: a span in the trace of each writer, beside the one of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import structlog
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.database import Database
from imem.journal.telemetry.tracing import TRACER, context_of, traced
from imem.kg.projection.rows import Event

log = structlog.get_logger()

BUDGET_MS: Final = 1_000.0
"""How long the look-up of traces may take, in milliseconds; without it nobody is followed, and all is applied."""


class EventSpans:
    """The spans of one batch, from when it is written to the graph until that is done."""

    def __init__(self, events: Sequence[Event], headers: dict[int, str]) -> None:
        self._events = events
        self._headers = headers
        self._stack = ExitStack()
        self._spans: list[trace.Span] = []

    def __enter__(self) -> Self:
        """Begin them."""
        batch = self._stack.enter_context(
            TRACER.start_as_current_span(
                "imem.apply", kind=SpanKind.CONSUMER, attributes={"imem.events": len(self._events)}
            )
        )
        links = [Link(batch.get_span_context())]
        for event in self._events:
            if event.position in self._headers:
                context = context_of(self._headers[event.position])
                attributes: dict[str, str | int] = {
                    "db.system.name": "neo4j",
                    "imem.event_id": str(event.event_id),
                    "imem.position": event.position,
                    "imem.kind": event.kind,
                }
                self._spans.append(
                    TRACER.start_span(
                        "imem.apply.event", context, SpanKind.CONSUMER, links=links, attributes=attributes
                    )
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End them, with the error if there was one."""
        for span in self._spans:
            if error is not None:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            span.end()
        self._stack.__exit__(kind, error, traceback)


async def event_spans(database: Database, events: Sequence[Event]) -> EventSpans:
    """Return what follows *events*, of which those that somebody traces; nothing is looked up where nobody records."""
    if not traced():
        return EventSpans(events, {})
    try:
        rows = await database.named(
            "event_traces", {"positions": [event.position for event in events]}, deadline=Deadline.after_ms(BUDGET_MS)
        )
    except ImemError as error:
        log.warning("applier.not_followed", reason=str(error))
        rows = []
    return EventSpans(events, {row["position"]: row["traceparent"] for row in rows})
