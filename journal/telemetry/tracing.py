"""
Traces, by OpenTelemetry's interface: whoever runs the program decides whether there are any.

A write is followed from the call through the streams and the applier into the graph. What ties the parts together is
the W3C context (https://www.w3.org/TR/trace-context/), kept beside the event: streams carry no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER: Final = trace.get_tracer("imem")
"""Makes nothing until the program has set up a provider."""

_NO_PROVIDERS: Final = (trace.NoOpTracerProvider, trace.ProxyTracerProvider)

_W3C: Final = TraceContextTextMapPropagator()
_NAME: Final = "traceparent"


def traced() -> bool:
    """Return whether the program has set up a provider, so that spans go somewhere."""
    return not isinstance(trace.get_tracer_provider(), _NO_PROVIDERS)


def traceparent() -> str | None:
    """Return the context of the span that is under way, in the form of the header; None where none is recorded."""
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get(_NAME)


def context_of(header: str) -> Context:
    """Return the context that *header* states; an empty one where it states none."""
    carrier: Mapping[str, str] = {_NAME: header}
    return _W3C.extract(carrier)
