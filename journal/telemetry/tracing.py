"""
Traces through the OpenTelemetry API; without a provider set up by the program they cost nothing.

A write is traced from the call through the applier into the graph. Its W3C context
(https://www.w3.org/TR/trace-context/) is stored beside the event, since streams carry no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER: Final = trace.get_tracer("imem")
"""Makes no spans until the program has set up a provider."""

_NO_PROVIDERS: Final = (trace.NoOpTracerProvider, trace.ProxyTracerProvider)

_W3C: Final = TraceContextTextMapPropagator()
_NAME: Final = "traceparent"


def traced() -> bool:
    """Return whether the program has set up a provider, so that spans go somewhere."""
    return not isinstance(trace.get_tracer_provider(), _NO_PROVIDERS)


def traceparent() -> str | None:
    """Return the header of the current span; None where none is recorded."""
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get(_NAME)


def context_of(header: str) -> Context:
    """Return the context in *header*; an empty one if it is invalid."""
    carrier: Mapping[str, str] = {_NAME: header}
    return _W3C.extract(carrier)
