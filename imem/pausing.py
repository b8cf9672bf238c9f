"""
Pauses for people and programs: who may order what, and the parts over this process's stores.

Looking is for whom the table allows to read workflows, ordering for people.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import kombu.exceptions
from celery import Celery

from cache.client import Client
from checkpoints.assembly import Pausing, assemble
from checkpoints.cleanup import Cleanup
from checkpoints.definitions import Definitions
from checkpoints.orchestrator import LOST_AFTER, Message, Send
from checkpoints.pause_tasks import RUN_AGENT
from imem.celery_app import AGENTS_QUEUE, make_app
from imem.stores import Stores, secret
from journal.actors import Action, Resource, ResourceType
from journal.deadline import Deadline
from journal.errors import ValkeyUnavailable
from journal.gateway import Gateway

T = TypeVar("T")


def sender(app: Celery) -> Send:
    """Return what puts the message that starts an agent into Celery's queue of agents."""

    def send(message: Message) -> None:
        app.send_task(
            RUN_AGENT,
            args=(message.analysis_id, message.agent_type, message.dispatch),
            queue=AGENTS_QUEUE,
            ignore_result=True,
            retry=False,
            # Sent again by then, if nobody has started it.
            expires=LOST_AFTER.total_seconds(),
        )

    async def put(message: Message) -> None:
        try:
            await asyncio.to_thread(send, message)
        except (kombu.exceptions.KombuError, OSError) as error:
            raise ValkeyUnavailable(
                "The broker cannot be reached.", mend="`imem doctor` checks every server."
            ) from error

    return put


@asynccontextmanager
async def opened(stores: Stores, *, cleanup: Cleanup | None = None) -> AsyncIterator[Pausing]:
    """
    Lend the parts of pauses over *stores*; their clients of the Valkeys are closed at the end.

    Raises:
        SettingsError: an address is not set, or the file of agents is wrong.
    """
    settings = stores.settings
    definitions = Definitions.read(settings.agents)
    working = Client(secret(settings, "valkey_working_url"), name="The working Valkey")
    durable = Client(secret(settings, "valkey_durable_url"), name="The durable Valkey")
    try:
        yield assemble(stores.database, working, durable, definitions, sender(make_app(settings)), cleanup=cleanup)
    finally:
        await working.close()
        await durable.close()


async def ordered(
    gateway: Gateway, action: Action, what: str, operation: Callable[[], Awaitable[T]], *, deadline: Deadline
) -> T:
    """
    Run *operation* if the actor may do *action* to workflows.

    Raises:
        PermissionDenied: it may not; one denial row was written.
    """
    resource = Resource(ResourceType.WORKFLOW, what)
    return await gateway.authorize_and_execute(resource, action, operation, deadline=deadline)
