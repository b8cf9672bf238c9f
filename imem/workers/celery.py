"""
The Celery worker.

Tasks run in child processes. Each has one event loop in a thread of its own, with connections to the stores that are
made after the fork. Each child also starts the pipelines that must run without the broker
(:mod:`imem.jobs.fallback_rounds`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from celery import Celery, signals

from imem.alerts.notifiers import notifiers_of
from imem.cache.client import Client
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.store import WorkingStore
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.deliverables import ResultChecks
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.pauses.assembly import assemble
from imem.checkpoints.pauses.pipelines import register_run_agent
from imem.credibility.prices.providers import price_provider_of
from imem.credibility.regimes.providers import provider_of
from imem.credibility.scores.auto_resolve import Basis
from imem.credibility.settling import ACTOR
from imem.ingest.recorder import Recorder
from imem.jobs.celery_tasks import register
from imem.jobs.fallback_rounds import FallbackWatch, fallback_rounds, note_begun
from imem.jobs.runtime import slot
from imem.journal.clock import MachineClock
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.gateway import Gateway
from imem.journal.notifications.wakeups import WakeupPublisher
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.local.readiness import notify_ready
from imem.logs import configure
from imem.patterns.life import GateMode
from imem.patterns.shadows import shadow_runner_of
from imem.postmortem.cases.model_analyst import model_analyst_of
from imem.postmortem.cases.priorities import PriorityPolicy
from imem.postmortem.reflection.model_distiller import distillers_of
from imem.recall.memories.upkeep import UpkeepRules
from imem.services.embedders import embedder_of
from imem.services.pauses import sender
from imem.services.stores import pipeline_url, register_metrics, secret
from imem.services.task_kinds import TASK_KINDS
from imem.sync.delivery.notices import Notices
from imem.sync.gates import GateSync
from imem.sync.snapshots import Snapshots
from imem.sync.synchronizer import Synchronizer
from imem.workers.celery_app import AGENTS_QUEUE, QUEUE, make_app
from imem.workers.pipelines import LIFECYCLES, PIPELINES

T = TypeVar("T")

NICENESS = 10
"""Niceness of task processes, so that writers and readers on the same machine come first."""

CONCURRENCY = 4
"""Worker slots: settlement, similarity and reconciliation take minutes; alerts and pauses must not wait for them."""

POOL_SIZE = 8
"""Most connections to Postgres of one worker process: four steps of pauses at a time, each with a read beside it."""

VALKEYS = "working", "durable", "cache"
"""The roles of the Valkeys; a worker needs all three."""


class LoopThread:
    """
    The event loop of a worker process, with the runtime of every pipeline.

    Args:
        settings: with the address of every server.
        postgres_url: of the role as which the journal is opened.

    Attributes:
        database, gateway: Postgres, and the gateway of the pipelines' actor.
        halflife_years: for agents whose record names none.
        contradiction_guard: whether values that look mistyped go to a person.
        postmortem_priority: what orders the queue of post-mortems.
        postmortem_model: remarks on them for their reviewers; None if no model is set.
        pattern_gate_mode: which gates patterns must pass.
        shadow_runner, shadow_runs_per_month: make the forecasts of blind tests; so many of 30 days at most.
        auto_resolution_basis: which score decides between two agents.
        indicators: provides those of the market's regime; None if none is set.
        prices: provides those that forecasts are compared with; None if none is set.
        cleanup: of checkpoints.
        pause_services: the services of pauses.
        lifecycles, task_kinds: the kinds of lifecycle rows, and of review tasks.
        notifiers: the channels of alerts.
        valkeys: the address of each Valkey, by its role.
        synchronizer, gate_sync: synchronisation of agents.
        snapshots: takes the snapshots of debates.
        objects: the store of archives.
        embedder: makes vectors of analyses; loaded on first use.
        distiller_of: makes lessons of closed trades, by the model that is configured.
        memory_rules: when memories are merged, decay and are deleted.
        situations: whether contexts of trading decisions get vectors.
        signal_retention: how long signals are kept.
    """

    def __init__(self, settings: Settings, postgres_url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="imem-loop", daemon=True)
        self.lifecycles = LIFECYCLES
        self.task_kinds = TASK_KINDS
        self.notifiers = notifiers_of(settings)
        self.valkeys = {role: secret(settings, f"valkey_{role}_url") for role in VALKEYS}
        self.objects = ObjectStore.of(settings)
        self.embedder = embedder_of(settings)
        self.distiller_of = distillers_of(settings)
        self.memory_rules = UpkeepRules.of(settings)
        self.situations = settings.situations_enabled
        self.indicators = provider_of(settings)
        self.prices = price_provider_of(settings)
        self.halflife_years = settings.credibility_halflife_years
        self.contradiction_guard = settings.contradiction_guard
        self.postmortem_priority = PriorityPolicy(settings.postmortem_priority)
        self.postmortem_model = model_analyst_of(settings)
        self.pattern_gate_mode = GateMode(settings.pattern_gate_mode)
        self.shadow_runner = shadow_runner_of(settings)
        self.shadow_runs_per_month = settings.shadow_runs_per_month
        self.auto_resolution_basis = Basis(settings.auto_resolution_basis)
        self.signal_retention = timedelta(days=settings.signals_retention_days)
        self.database = Database(postgres_url, size=POOL_SIZE)
        self._wakeup_publisher = WakeupPublisher(self.valkeys["durable"])
        self.gateway = Gateway(self.database, ACTOR, self._wakeup_publisher.publish_wakeup)
        self._clients = [Client(url, size=POOL_SIZE) for url in self.valkeys.values()]
        working, durable, cache = self._clients
        memories, snapshots = WorkingStore(working, MachineClock()), SnapshotStore(durable, MachineClock())
        definitions = Definitions.read(settings.agents)
        checks = ResultChecks(self.database, cache)
        self.cleanup = Cleanup(
            self.database, definitions, checks, snapshots, memories, archive=settings.archive_checkpoints
        )
        send = sender(make_app(settings))
        self.pause_services = assemble(
            self.database, working, durable, definitions, send, cache=cache, cleanup=self.cleanup, tools=self
        )
        its = Recorder(self.gateway, own_role=False), self.gateway
        self.synchronizer = Synchronizer(self.database, memories, *its, notices=Notices(durable))
        self.gate_sync = GateSync(self.database, self.synchronizer)
        self.snapshots = Snapshots(self.database, self.synchronizer, durable)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the loop, wait for it, and return its result or raise its error."""

        async def call() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def stop(self) -> None:
        """Close the connections and end the thread."""
        self.run(self.database.close)
        self.run(self._wakeup_publisher.close)
        for client in self._clients:
            self.run(client.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def register_tasks(app: Celery, queue: str) -> None:
    """Register the tasks of *queue*: whoever reaches the broker has no agent's code run beside pipelines."""
    if queue == AGENTS_QUEUE:
        register_run_agent(app)
    else:
        register(app, PIPELINES)


def run(settings: Settings, *, concurrency: int = CONCURRENCY, queue: str = QUEUE) -> int:
    """
    Serve the tasks of *queue* until SIGTERM; running ones are finished first.

    Those of agents' queue run code that is not ours, and so under the application's role; all others run pipelines.

    Raises:
        SettingsError: a setting is wrong that a task would meet only later.
    """
    postgres_url = secret(settings, "postgres_url") if queue == AGENTS_QUEUE else pipeline_url(settings)
    register_metrics(settings)
    # Report a wrong file once, before the fork, and not in every child.
    Definitions.read(settings.agents)
    notifiers_of(settings)
    embedder_of(settings)
    shadow_runner_of(settings)
    app = make_app(settings)
    register_tasks(app, queue)
    rounds = fallback_rounds(PIPELINES, settings) if queue == QUEUE else ()
    started: list[LoopThread] = []
    watches: list[FallbackWatch] = []

    def begin(**_: Any) -> None:
        os.nice(NICENESS)
        runtime = LoopThread(settings, postgres_url)
        runtime.start()
        slot.install(runtime)
        started.append(runtime)
        watches.append(FallbackWatch(rounds))
        watches[-1].start()

    def end(**_: Any) -> None:
        while watches:
            watches.pop().stop()
        slot.install(None)
        while started:
            started.pop().stop()

    def log(**_: Any) -> None:
        configure(settings.log_level)

    def ready(**_: Any) -> None:
        notify_ready()

    signals.task_prerun.connect(note_begun(rounds), weak=False)
    signals.worker_process_init.connect(begin, weak=False)
    signals.worker_process_shutdown.connect(end, weak=False)
    # A receiver of this signal tells Celery to leave logging alone.
    signals.setup_logging.connect(log, weak=False)
    signals.worker_ready.connect(ready, weak=False)
    worker = app.Worker(
        pool="prefork",
        concurrency=concurrency,
        queues=[queue],
        loglevel=settings.log_level,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
