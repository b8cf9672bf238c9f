"""A program that records a fact in a trace, applies it and asks for it, and sends its spans; told where on one line."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime

import structlog
from opentelemetry import trace

from imem.journal.settings import Settings
from imem.journal.telemetry.correlation import correlated
from imem.kg.model import Analysis
from imem.kg.projection.applier import Applier
from imem.logs import configure
from imem.memory import Memory
from imem.services.stores import Stores
from imem.tracing import send_traces
from tests.kg.draining import drain
from tests.kg.projection.world import NoWakeups


async def work(settings: Settings) -> None:
    async with Memory.open(settings) as memory, Stores.open(settings, pipelines=True) as stores:
        with trace.get_tracer("caller").start_as_current_span("the caller's own"), correlated("order-17"):
            structlog.get_logger("caller").info("caller.says")
            await memory.record_analysis(
                Analysis(id="a1", subject_id="company:MU", kind="stock", date=datetime(2026, 1, 2, tzinfo=UTC))
            )
        applier = Applier(stores.database, stores.graph, NoWakeups())
        await drain(applier)
        await applier.stop()
        await memory.brief("company:MU", deadline_ms=30_000)


def main() -> None:
    told = json.loads(sys.stdin.readline())
    settings = Settings.read({}, **told)
    configure("INFO")
    send_the_rest = send_traces(settings, "test")
    asyncio.run(work(settings))
    send_the_rest()


if __name__ == "__main__":
    main()
