"""
The applier's process: projects the journal into the graph, under a lease.

Any number may run; one applies, the others stand by. A crash leaves no batch half-applied; another process takes over
when the lease has expired, or at once after a clean stop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import kombu.exceptions
import structlog
from celery import Celery

from imem.cache.client import Client
from imem.cache.tiers.invalidation import InvalidationPublisher, ProjectionInvalidator
from imem.credibility.settled_links import SettledBy
from imem.jobs.celery_tasks import EXPIRES_S
from imem.jobs.lease import LeaderLease
from imem.jobs.pipeline import Every, Pipeline
from imem.journal.errors import SettingsError
from imem.journal.notifications.visibility import VisibilityPublisher
from imem.journal.notifications.wakeups import IntervalWakeups, WakeupSubscriber
from imem.journal.settings import Settings
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from imem.kg.projection.plan_warming import AWAITED, has_analyses, warm, warm_writing
from imem.kg.projection.rows import Event
from imem.kg.projection.verification import ensure
from imem.kg.similarity.index import SimilarTo
from imem.kg.similarity.lag_watch import watch_similar
from imem.local.readiness import notify_ready
from imem.metrics import keep_serving
from imem.services.embedders import embedder_of
from imem.services.graph_rebuild import REDERIVED
from imem.services.stores import Stores, secret
from imem.sync.dead_letters import DeadLetterAlerts
from imem.sync.status import watch_queue
from imem.workers.celery_app import make_app
from imem.workers.pipelines import PIPELINES
from imem.workers.router import routing

log = structlog.get_logger()

ASK_EVERY_S: Final = 1.0
"""Least time between two requests for one task, in seconds: an import applies many batches in one."""

QUIET_S: Final = 1.0
"""Time without new batches after which query plans are warmed, in seconds: an import needs the processor itself."""

PLAN_WITHIN_S: Final = 60.0
"""Longest wait for such a pause, in seconds; then plans are warmed anyway."""

PLAN_EVERY_S: Final = 15.0
"""Least time between two warmings, in seconds: longer than the server keeps a plan unconditionally."""

CLOSING_S: Final = 0.5
"""Timeout of closing connections at the end, in seconds."""


class PlanWarmer:
    """
    Warms Neo4j's query plans, so that no caller waits for planning.

    Plans of write statements are warmed at the start. Plans of a briefing's queries are warmed also after the graph
    has grown, since the server then drops them.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._grown = asyncio.Event()

    def applied(self) -> None:
        """Note that a batch was applied."""
        self._grown.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Warm plans, call *ready*, and warm again after the graph has grown, until cancelled."""
        await _plan_quietly(warm_writing(self._graph, AWAITED[:1]))
        await _plan_quietly(self._warm_if_worth())
        ready()
        # These statements are less urgent, and planning all of them would delay the start.
        await _plan_quietly(warm_writing(self._graph, AWAITED[1:]))
        while True:
            await self._grown.wait()
            await self._wait_until_quiet()
            await _plan_quietly(warm(self._graph))
            await asyncio.sleep(PLAN_EVERY_S)
            # Again: the server does not replace plans younger than PLAN_EVERY_S. Plans that are warm cost little.
            await _plan_quietly(warm(self._graph))

    async def _warm_if_worth(self) -> None:
        if await has_analyses(self._graph):
            await warm(self._graph)

    async def _wait_until_quiet(self) -> None:
        """Wait for QUIET_S without a new batch, at most PLAN_WITHIN_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PLAN_WITHIN_S):
                while self._grown.is_set():
                    self._grown.clear()
                    await asyncio.sleep(QUIET_S)


async def _plan_quietly(planning: Awaitable[object]) -> None:
    """Await *planning* and log its failure: the first query is slower then, and the applier must go on."""
    try:
        await planning
    except Exception as error:  # noqa: BLE001 - see above
        log.warning("applier.not_planned", reason=type(error).__name__)


class TaskRequester:
    """
    Requests runs of one pipeline from the Celery worker; a lost request only delays, since due rows decide.

    Args:
        app: the Celery application.
        pipeline: the pipeline, with the kinds of events that wake it.
        settings: give its cadence, after which a request expires.
    """

    def __init__(self, app: Celery, pipeline: Pipeline[Any], settings: Settings) -> None:
        self._app = app
        self._pipeline = pipeline
        cadence = pipeline.cadence_of(settings)
        self._expires_s = cadence.seconds if isinstance(cadence, Every) else EXPIRES_S
        self._due = asyncio.Event()

    def applied(self, kinds: frozenset[str]) -> None:
        """Note the kinds of events in an applied batch."""
        if not self._pipeline.wakes_on.isdisjoint(kinds):
            self._due.set()

    async def run(self) -> None:
        """Send requests until cancelled, at most one in :data:`ASK_EVERY_S`."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await asyncio.to_thread(self._send)
            except (kombu.exceptions.KombuError, OSError) as error:
                log.warning("applier.task_request_failed", task=self._pipeline.name, reason=type(error).__name__)
            await asyncio.sleep(ASK_EVERY_S)

    def _send(self) -> None:
        # It expires while no worker runs: beat sends as many.
        self._app.send_task(self._pipeline.name, ignore_result=True, retry=False, expires=self._expires_s)


def run(settings: Settings) -> int:
    """Apply events until SIGTERM or SIGINT; then release the lease."""
    asyncio.run(_serve(settings))
    return 0


@dataclass(slots=True)
class _ApplierProcess:
    """
    The parts of the applier's process.

    Attributes:
        applier: writes the graph.
        warmer: warms query plans.
        work: coroutines that run until the process stops.
        open: connections that are closed then.
    """

    applier: Applier
    warmer: PlanWarmer
    work: tuple[Coroutine[Any, Any, None], ...]
    open: tuple[AsyncCloseable, ...]


class AsyncCloseable(Protocol):
    """An object with an asynchronous ``close``."""

    async def close(self) -> None:
        """Close it."""


def _assemble(stores: Stores) -> _ApplierProcess:
    settings = stores.settings
    address, priority = secret(settings, "valkey_durable_url"), settings.sync_priority
    wakeups = WakeupSubscriber(address) if priority else IntervalWakeups()
    visibility_publisher, durable = VisibilityPublisher(address), Client(address, name="The durable Valkey")
    app = make_app(settings)
    requesters = tuple(TaskRequester(app, one, settings) for one in PIPELINES if one.wakes_on)
    warmer = PlanWarmer(stores.graph)

    async def applied(events: Sequence[Event]) -> None:
        warmer.applied()
        for requester in requesters:
            requester.applied(frozenset(event.kind for event in events))

    async def prepare(lease: LeaderLease) -> None:
        await ensure(stores.database, stores.graph, lease, rederived=REDERIVED)

    invalidator = ProjectionInvalidator(
        stores.database, InvalidationPublisher(durable, lambda: bool(applier.lease.epoch))
    )
    applier = Applier(
        stores.database,
        stores.graph,
        wakeups,
        prepare=prepare,
        written=invalidator.written,
        applied=applied,
        derived=invalidator.derived,
        announce=visibility_publisher.publish,
        on_dead=DeadLetterAlerts(),
        lanes=priority,
        derivers={"settled_by": SettledBy(), "similar_to": SimilarTo()},
        batch=settings.apply_batch,
    )
    work = (
        applier.run(),
        *(requester.run() for requester in requesters),
        invalidator.publisher.run(),
        watch_queue(stores.database, lambda: applier.yielding),
        *_watching_similar(stores),
        routing(stores, priority=priority),
    )
    return _ApplierProcess(applier, warmer, work, (wakeups, visibility_publisher, durable, stores.graph))


def _watching_similar(stores: Stores) -> tuple[Coroutine[Any, Any, None], ...]:
    """Return the watch over similarity; empty if its settings are wrong, which must not stop the applier."""
    try:
        embedder = embedder_of(stores.settings)
    except SettingsError as error:
        log.warning("applier.not_watching", what="similar", reason=str(error))
        return ()
    return (watch_similar(stores.database, embedder),)


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Stores.open(settings, pipelines=True) as stores:
        post = _assemble(stores)
        log.info("applier.started", batch=settings.apply_batch, priority=stores.settings.sync_priority)
        work = [asyncio.create_task(one) for one in post.work]
        beside = [asyncio.create_task(post.warmer.run(notify_ready))]
        if settings.prometheus_port is not None:
            beside.append(asyncio.create_task(keep_serving(settings.home, settings.prometheus_port)))
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([*work, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*work, *beside, stopping):
                task.cancel()
            await asyncio.gather(*work, *beside, stopping, return_exceptions=True)
            await post.applier.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    for one in post.open:
                        await one.close()
        for task in done - {stopping}:
            task.result()
        log.info("applier.stopped")
