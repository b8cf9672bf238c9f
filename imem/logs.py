"""Logs of the product's processes: one JSON object a line."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog
from opentelemetry import trace

import imem.commands


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send structlog's events and the standard library's to *stream* (standard error) as JSON, from *level* on."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _with_trace,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _with_trace(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Name the trace that is under way, so that a log and a trace can be looked at side by side."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"], event["span_id"] = f"{span.trace_id:032x}", f"{span.span_id:016x}"
    return event


def by_default(level: str) -> None:
    """
    Configure default logging in a program that has not configured structlog.

    Warnings and errors go to standard error, none below *level*. In the ``imem`` command only errors do, since its
    output is its results.
    """
    if not structlog.is_configured():
        least = logging.ERROR if imem.commands.is_command else logging.WARNING
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(max(least, logging.getLevelNamesMapping()[level])),
            # Looked up for each event: a program may put another stream in its place, and close the first.
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
