"""The stores of a process: Postgres, Neo4j, the tiered cache, and wake-up and visibility notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.errors import SettingsError
from imem.journal.gateway import Gateway
from imem.journal.notifications.visibility import VisibilitySubscriber
from imem.journal.notifications.wakeups import WakeupPublisher
from imem.journal.postgres.database import Database
from imem.journal.settings import PREFIX, Settings
from imem.kg.kinds.metrics import prefer, read_metrics
from imem.local.state import with_local_endpoints
from imem.logs import by_default

if TYPE_CHECKING:
    from imem.cache.tiers.tiered import TieredCache
    from imem.kg.engine import Graph
    from imem.recall.memories.store import MemoryTable
    from imem.recall.search.store import SearchIndex
    from imem.recall.signals.reader import SignalReader
    from imem.services.agent_stores import AgentStores
    from imem.services.connections import Connections


_CREATE_ROLE = (
    "As a superuser: CREATE ROLE imem_{role}s LOGIN PASSWORD '…'; set IMEM_POSTGRES_{variable}_URL to its URL, then run"
    " `imem migrate`, which gives it its rights."
)
CREATE_PIPELINE_ROLE = _CREATE_ROLE.format(role="pipeline", variable="PIPELINE")
CREATE_CURATOR_ROLE = _CREATE_ROLE.format(role="curator", variable="CURATOR")


@dataclass
class Stores:
    """
    The stores of one process and one event loop; each connects when first used.

    Attributes:
        settings: with the address of every server.
        database: Postgres.
        gateway: authorizes each call for its actor; that of calls which name none is the one of the settings.
        wakeup_publisher: wakes the applier.
        closing: closes what was made, the latest first.
    """

    settings: Settings
    database: Database
    gateway: Gateway
    wakeup_publisher: WakeupPublisher
    closing: AsyncExitStack = field(default_factory=AsyncExitStack, repr=False)

    @cached_property
    def graph(self) -> Graph:
        """
        The Neo4j client, made on first use: its driver takes longer to import than a small load takes to run.

        Raises:
            SettingsError: its address is not set.
        """
        from imem.kg.engine import Graph  # noqa: PLC0415 - see above

        settings = self.settings
        graph = Graph(
            _named(settings.neo4j_url, "neo4j_url"),
            settings.neo4j_user,
            settings.neo4j_password.get_secret_value() if settings.neo4j_password is not None else "",
            pool_size=settings.neo4j_pool_size,
            concurrency=settings.graph_concurrency,
            slow_ms=settings.slow_query_ms,
        )
        self.closing.push_async_callback(graph.close)
        return graph

    @cached_property
    def tiers(self) -> TieredCache | None:
        """The tiered cache, made on first use; None if the durable or the cache Valkey is not set."""
        settings = self.settings
        if settings.valkey_durable_url is None or settings.valkey_cache_url is None:
            return None
        from imem.cache.client import Client  # noqa: PLC0415 - as above
        from imem.cache.tiers.invalidation import InvalidationSubscriber  # noqa: PLC0415 - as above
        from imem.cache.tiers.local import LocalCache  # noqa: PLC0415 - as above
        from imem.cache.tiers.shared import SharedCache  # noqa: PLC0415 - as above
        from imem.cache.tiers.tag_versions import TagVersionReader  # noqa: PLC0415 - as above
        from imem.cache.tiers.tiered import TieredCache  # noqa: PLC0415 - as above

        durable = Client(secret(settings, "valkey_durable_url"), name="The durable Valkey")
        shared = Client(secret(settings, "valkey_cache_url"), name="The cache Valkey")
        clock = SystemClock()
        local = LocalCache(clock, most_bytes=settings.local_cache_mb * 1024 * 1024)
        changes = TagVersionReader(durable)
        listen = InvalidationSubscriber(changes, local).run
        tiers = TieredCache(local, SharedCache(shared), changes, clock, listen=listen)
        for one in (durable, shared, tiers):
            self.closing.push_async_callback(one.close)
        return tiers

    @cached_property
    def connections(self) -> Connections:
        """The first connections of the process, for which no deadline pays."""
        from imem.services.connections import Connections  # noqa: PLC0415 - as above

        connections = Connections(self)
        self.closing.push_async_callback(connections.close)
        return connections

    @property
    def journal(self) -> str:
        """The journal's id: host, port and name of its database."""
        url = secret(self.settings, "postgres_url")
        return f"{_database_of(url)}?{urlsplit(url).query}"

    @cached_property
    def agents(self) -> AgentStores:
        """The resources that agents of this process share, made on first use."""
        from imem.services.agent_stores import AgentStores  # noqa: PLC0415 - as above

        agents = AgentStores(self)
        self.closing.push_async_callback(agents.close)
        return agents

    @cached_property
    def memories(self) -> MemoryTable:
        """
        The table of memories, made on first use; all actors of the process share it, as its encoder.

        Raises:
            SettingsError: the settings name an endpoint for vectors, and no model.
        """
        from imem.recall.memories.store import MemoryTable  # noqa: PLC0415 - as above
        from imem.services.embedders import embedder_of  # noqa: PLC0415 - as above

        settings = self.settings
        embedder = embedder_of(settings)
        memories = MemoryTable(
            self.database,
            embedder,
            near_duplicate=settings.memory_duplicate_similarity,
            namespace_limit=settings.memory_namespace_limit,
        )
        self.closing.push_async_callback(memories.close)
        return memories

    @property
    def search(self) -> SearchIndex:
        """
        Search over everything, by the encoder of memories.

        Raises:
            SettingsError: as :attr:`memories`.
        """
        from imem.recall.search.store import SearchIndex  # noqa: PLC0415 - as above

        return SearchIndex(self.database, self.memories)

    @cached_property
    def signals(self) -> SignalReader:
        """The reader of agents' signals, made on first use; all actors of the process share its watch and its audit."""
        from imem.recall.signals.reader import SignalPolicy, SignalReader  # noqa: PLC0415 - as above

        signals = SignalReader(self.gateway, SignalPolicy.of(self.settings))
        self.closing.push_async_callback(signals.close)
        return signals

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, pipelines: bool = False) -> AsyncIterator[Self]:
        """
        Make the stores that *settings* name (the environment's by default), and close them at the end.

        Args:
            pipelines: whether the journal is opened under the role of pipelines, which write what follows from it.

        Raises:
            SettingsError: a setting is wrong.
            StackError: a server is not named and no local stack runs.
        """
        settings = with_local_endpoints(settings or Settings.read())
        by_default(settings.log_level)
        register_metrics(settings)
        wakeup_publisher = WakeupPublisher(secret(settings, "valkey_durable_url"))
        url = pipeline_url(settings) if pipelines else journal_url(settings)
        database = Database(url, size=settings.postgres_pool_size, slow_ms=settings.slow_query_ms)
        listener = VisibilitySubscriber(secret(settings, "valkey_durable_url"))
        gateway = Gateway(
            database,
            Actor.from_settings(settings),
            wakeup_publisher.publish_wakeup,
            visibility=listener,
            waits=settings.sync_priority,
        )
        async with AsyncExitStack() as closing:
            for one in (wakeup_publisher, listener, database):
                closing.push_async_callback(one.close)
            yield cls(settings, database, gateway, wakeup_publisher, closing)


def register_metrics(settings: Settings) -> None:
    """
    Register the metrics of the file and the module that are set; every process that loads or settles needs them.

    Raises:
        SettingsError: the file is wrong, or the module cannot be imported.
    """
    prefer(read_metrics(settings.metrics_file) if settings.metrics_file is not None else ())
    if settings.metrics is None:
        return
    try:
        import_module(settings.metrics)
    except ImportError as error:
        raise SettingsError(
            f"IMEM_METRICS names {settings.metrics}, which cannot be imported.",
            mend="It is the name of a Python module that calls imem.kg.kinds.metrics.register.",
        ) from error


def journal_url(settings: Settings) -> str:
    """
    Return the URL under which the actor of *settings* reads and states facts.

    That is the curators' for an actor who may state more than an agent's own, where it is set, else the application's,
    whose login the database refuses what is for curators.

    Raises:
        SettingsError: the application's URL is not set, or the curators' names another database.
    """
    application, curators = secret(settings, "postgres_url"), settings.postgres_curator_url
    if curators is None or not Actor.from_settings(settings).states_for_others:
        return application
    if _database_of(curators.get_secret_value()) != _database_of(application):
        raise SettingsError("IMEM_POSTGRES_CURATOR_URL and IMEM_POSTGRES_URL name two databases.")
    return curators.get_secret_value()


def _database_of(url: str) -> str:
    """Return hosts, ports and name of the database of *url*, without who logs in and how."""
    found = conninfo_to_dict(url)
    return f"{found.get('host')}:{found.get('port') or 5432}/{found.get('dbname')}"


def pipeline_url(settings: Settings) -> str:
    """
    Return the URL of the role under which pipelines write.

    Raises:
        SettingsError: it is not set. The application's role is none instead: it may not write what pipelines do.
    """
    if settings.postgres_pipeline_url is None:
        raise no_pipeline_role()
    return settings.postgres_pipeline_url.get_secret_value()


def no_pipeline_role() -> SettingsError:
    """Return the sentence for pipelines without a role."""
    return SettingsError(
        "IMEM_POSTGRES_PIPELINE_URL is not set: pipelines write scores under a role of their own.",
        mend=CREATE_PIPELINE_ROLE,
    )


def secret(settings: Settings, name: str) -> str:
    """
    Return a secret setting in clear.

    Raises:
        SettingsError: it is not set.
    """
    value: SecretStr | None = getattr(settings, name)
    return _named(value.get_secret_value() if value is not None else None, name)


def _named(value: str | None, name: str) -> str:
    if not value:
        raise SettingsError(
            f"{PREFIX}{name.upper()} is not set.", mend="Set it, or start a local stack with `imem up`."
        )
    return value
