"""Spans of traced events: one in each writer's trace, linked to the span of the batch."""

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
"""Timeout of the look-up of traces, in milliseconds; when it is missed, the batch is applied without spans."""


class EventSpans:
    """The spans of one batch, from the beginning of its write to its end."""

    def __init__(self, events: Sequence[Event], headers: dict[int, str]) -> None:
        self._events = events
        self._headers = headers
        self._stack = ExitStack()
        self._spans: list[trace.Span] = []

    def __enter__(self) -> Self:
        """Start the spans."""
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
        """End the spans, with the error if there was one."""
        for span in self._spans:
            if error is not None:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            span.end()
        self._stack.__exit__(kind, error, traceback)


async def event_spans(database: Database, events: Sequence[Event]) -> EventSpans:
    """Return the spans of *events* that have a trace; without a provider, nothing is looked up."""
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
