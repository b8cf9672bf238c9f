"""Sends the traces of the product's own processes to a collector; a program that uses ``imem`` sets up its own."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from opentelemetry import trace

from imem.journal.errors import SettingsError
from imem.journal.settings import PREFIX, Settings

_NAME = f"{PREFIX}OTLP_ENDPOINT"


def send_traces(settings: Settings, role: str) -> Callable[[], None]:
    """
    Send the spans of this process, as the service ``imem-ROLE``, to the collector that the settings name.

    Sending happens in a thread of its own; spans that a collector does not take are dropped, and nothing waits for it.

    Returns:
        A function that flushes the remaining spans; call it when the process ends.

    Raises:
        SettingsError: the address is no URL of a collector, or the packages for it are not installed.
    """
    if settings.otlp_endpoint is None:
        return lambda: None
    address = urlsplit(settings.otlp_endpoint)
    if address.scheme not in {"http", "https"} or not address.hostname or "@" in address.netloc:
        raise SettingsError(
            f"{_NAME} is no URL of a collector.",
            mend="Such as http://HOST:4318; its credentials go into OTEL_EXPORTER_OTLP_HEADERS.",
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"{_NAME} is set, but what sends traces is not installed.",
            mend="pip install 'institutional-memory[tracing]'",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"imem-{role}"}))
    exporter = OTLPSpanExporter(endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider.shutdown
