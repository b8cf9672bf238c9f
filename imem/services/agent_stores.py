"""The resources that all agents of one process share: the Valkeys, the open sessions, and the services over them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from imem.cache.client import Client
from imem.cache.working.store import WorkingStore
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.session import Session, SessionFactory
from imem.journal.clock import MachineClock
from imem.services.stores import Stores, secret

if TYPE_CHECKING:
    from imem.checkpoints.pauses.assembly import PauseServices
    from imem.sync.gates import GateSync
    from imem.sync.snapshots import Snapshots
    from imem.sync.synchronizer import Synchronizer

CONNECTIONS: Final = 32
"""Most connections of a process to each Valkey; all of its agents use them."""


class AgentStores:
    """
    The stores of agents, for one process and one event loop; each is made when first used.

    Args:
        stores: Postgres, the gateway, and the settings with the addresses of the Valkeys.

    Attributes:
        sessions: (actor's id, agent id) → the session that the actor has open in this process.
    """

    def __init__(self, stores: Stores) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}
        self._stores = stores
        self._clients: dict[str, Client] = {}

    def client(self, role: str) -> Client:
        """
        Return the client of the Valkey with the role ``working``, ``durable`` or ``cache``.

        Raises:
            SettingsError: its address is not set.
        """
        if role not in self._clients:
            url = secret(self._stores.settings, f"valkey_{role}_url")
            self._clients[role] = Client(url, name=f"The {role} Valkey", size=CONNECTIONS)
        return self._clients[role]

    async def close(self) -> None:
        """Close the clients of the Valkeys."""
        for client in self._clients.values():
            await client.close()

    @cached_property
    def definitions(self) -> Definitions:
        """The defined agents; SettingsError if the file of agents is wrong."""
        return Definitions.read(self._stores.settings.agents)

    @cached_property
    def session_factory(self) -> SessionFactory:
        """Begins sessions, over leases, checkpoints, working memories and their snapshots."""
        working, durable, cache = (self.client(role) for role in ("working", "durable", "cache"))
        return SessionFactory.over(
            self._stores.database, working, durable, self.definitions, MachineClock(), cache=cache
        )

    @cached_property
    def pauses(self) -> PauseServices:
        """The services of pauses."""
        from imem.checkpoints.pauses.assembly import assemble  # noqa: PLC0415 - who pauses nothing needs no broker
        from imem.services.pauses import sender  # noqa: PLC0415 - as above
        from imem.workers.celery_app import make_app  # noqa: PLC0415 - as above

        send = sender(make_app(self._stores.settings))
        clients = self.client("working"), self.client("durable")
        return assemble(self._stores.database, *clients, self.definitions, send)

    @cached_property
    def synchronizer(self) -> Synchronizer:
        """Pushes, pulls and synchronises."""
        from imem.ingest.recorder import Recorder  # noqa: PLC0415 - who synchronises nothing needs none of it
        from imem.sync.delivery.notices import Notices  # noqa: PLC0415 - as above
        from imem.sync.synchronizer import Synchronizer  # noqa: PLC0415 - as above

        gateway = self._stores.gateway
        return Synchronizer(
            self._stores.database,
            WorkingStore(self.client("working"), MachineClock()),
            Recorder(gateway),
            gateway,
            notices=Notices(self.client("durable")),
        )

    @cached_property
    def snapshots(self) -> Snapshots:
        """Takes and reads the snapshots of debates."""
        from imem.sync.snapshots import Snapshots  # noqa: PLC0415 - as above

        return Snapshots(self._stores.database, self.synchronizer, self.client("durable"))

    @cached_property
    def gate_sync(self) -> GateSync:
        """Synchronises the agents of an analysis before its gates."""
        from imem.sync.gates import GateSync  # noqa: PLC0415 - as above

        return GateSync(self._stores.database, self.synchronizer)
