"""
Durable threads and a store for LangGraph, on the Postgres of the stack, and nodes for signals and debates.

::

    from imem.langgraph import ImemSaver, MemoryStore

    with ImemSaver.open() as saver, MemoryStore.open() as store:  # or: async with
        graph = builder.compile(checkpointer=saver, store=store)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from imem.journal.actors import only_reads
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput, SettingsError
from imem.journal.postgres.migrations import applied_migrations, migrate, pending, postgres_migrations
from imem.journal.settings import Settings
from imem.local.state import with_local_endpoints
from imem.recall.signals.nodes import SignalState, memory_node, remembering
from imem.services.stores import secret

try:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from imem.checkpoints.langgraph.executors import TaskExecutor, ThreadExecutor
    from imem.checkpoints.langgraph.saver import Saver
    from imem.checkpoints.langgraph.value_types import Allow, TypeName, types_of
    from imem.debates.nodes import DebateGraphState, ReadyThread, debate_node, ready_threads
    from imem.services.memory_store import MemoryStore
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"langgraph", "langchain_core"}:
        raise
    raise ImportError(
        "imem.langgraph needs LangGraph, which is not installed: pip install 'institutional-memory[langgraph]'."
    ) from error

__all__ = [
    "DebateGraphState",
    "ImemSaver",
    "MemorySaver",
    "MemoryStore",
    "ReadyThread",
    "SignalState",
    "debate_node",
    "memory_node",
    "ready_threads",
    "remembering",
]

S = TypeVar("S", bound="ImemSaver")


@checks_arguments
class ImemSaver(Saver):
    """
    LangGraph's checkpointer on the Postgres of the stack; see :class:`imem.checkpoints.langgraph.saver.Saver`.

    Made by :meth:`open`, by :meth:`from_conn_string`, or from pools of psycopg's.
    """

    def __init__(
        self,
        pool: ConnectionPool[Any] | AsyncConnectionPool[Any] | ThreadExecutor,
        async_pool: AsyncConnectionPool[Any] | TaskExecutor | None = None,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
        address: SaverDatabase | None = None,
    ) -> None:
        super().__init__(pool, async_pool, serde=serde, allow=allow)
        self._address = address

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
    ) -> SaverContext[Self]:
        """
        Return what ``with`` and ``async with`` make a saver of, for the Postgres that *settings* name.

        The environment's settings by default; without ``IMEM_POSTGRES_URL`` the local stack's server.

        Args:
            allow: types of your own that states hold: classes, ``"module.Class"``, or pairs of module and name.

        Raises:
            BadInput: an argument is of the wrong type, or *allow* names what cannot be imported; names the argument.

        Raises, on entering:
            SettingsError: a setting is wrong, or the role only reads.
            StackError: no server is named and no local stack runs.
            StackStarting: one runs that has not got so far yet; retryable.
        """

        def found() -> SaverDatabase:
            given = Settings.read() if settings is None else settings
            if only_reads(given.role):
                raise SettingsError(
                    f"IMEM_ROLE is {given.role}, which only reads: it saves no checkpoints.", mend="Use the role agent."
                )
            if given.postgres_url is None:
                given = with_local_endpoints(given)
            admin = given.postgres_admin_url
            return SaverDatabase(
                url=secret(given, "postgres_url"),
                admin_url=admin.get_secret_value() if admin is not None else None,
                size=given.postgres_pool_size,
            )

        return SaverContext(cls, found, serde, types_of(allow))

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
        pool_size: int = 8,
    ) -> SaverContext[Self]:
        """
        Return what ``with`` and ``async with`` make a saver of, for any Postgres, named as libpq does.

        Args:
            allow: as of :meth:`open`.
            pool_size: most connections of threads, and as many of the event loop.

        Raises:
            BadInput: an argument is wrong; names it.
        """
        try:
            conninfo_to_dict(conn_string)
        except psycopg.ProgrammingError:
            # Not from the driver's error, which quotes the URL.
            raise BadInput("conn_string", "is no URL or connection string of Postgres.") from None
        if pool_size < 1:
            raise BadInput("pool_size", "must be 1 or more.")
        address = SaverDatabase(url=conn_string, admin_url=None, size=pool_size)
        return SaverContext(cls, lambda: address, serde, types_of(allow))

    def setup(self) -> SetupDone:
        """
        Make the tables where they are missing; ``await`` it or not.

        Nothing to do where ``imem up`` or ``imem migrate`` did it already. Otherwise it brings the database to the
        schema of this program, which takes the rights of its owner.

        Raises:
            SettingsError: the saver was made from a pool, which says nothing of an owner.
            StatementRejected: the user may not make tables.
        """
        if self._address is None:
            raise SettingsError(
                "A saver made from a pool cannot make its tables.",
                mend="Run `imem migrate` once, or ImemSaver.from_conn_string with the owner's URL.",
            )
        self._address.setup()
        return SetupDone()


MemorySaver = ImemSaver
"""The same class, beside :class:`MemoryStore`. LangGraph's class of this name keeps nothing when its process ends."""


@dataclass(frozen=True, slots=True)
class SaverDatabase:
    """
    Where a saver's tables are.

    Attributes:
        url: with the user that reads and writes.
        admin_url: with the user that may make tables, if that is another one.
        size: most connections of each half.
    """

    url: str = field(repr=False)
    admin_url: str | None = field(repr=False)
    size: int

    def setup(self) -> None:
        admin_url = self.admin_url or self.url
        if pending(postgres_migrations(), applied_migrations(admin_url)):
            role = conninfo_to_dict(self.url).get("user")
            other = role != conninfo_to_dict(admin_url).get("user")
            migrate(admin_url, application_role=str(role) if role and other else None)


class SetupDone:
    """An awaitable that is already completed."""

    def __await__(self) -> Generator[Any, None, None]:
        """Return at once."""
        yield from ()


class SaverContext(Generic[S]):
    """A saver to be: ``with`` gives one to threads, ``async with`` one to the tasks of the running loop as well."""

    def __init__(
        self,
        kind: type[S],
        find: Callable[[], SaverDatabase],
        serde: SerializerProtocol | None,
        allow: frozenset[TypeName],
    ) -> None:
        self._kind = kind
        self._find = find
        self._serde = serde
        self._allow = allow
        self._made: list[tuple[ThreadExecutor, TaskExecutor | None]] = []

    def _make(self, *, loop: bool) -> S:
        address = self._find()
        threads = ThreadExecutor.to(address.url, address.size)
        tasks = TaskExecutor.to(address.url, address.size) if loop else None
        self._made.append((threads, tasks))
        return self._kind(threads, tasks, serde=self._serde, allow=self._allow, address=address)

    def __enter__(self) -> S:
        return self._make(loop=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        threads, _ = self._made.pop()
        threads.close()

    async def __aenter__(self) -> S:
        return self._make(loop=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        threads, tasks = self._made.pop()
        try:
            if tasks is not None:
                await tasks.close()
        finally:
            await asyncio.to_thread(threads.close)
