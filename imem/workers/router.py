"""
The router, beside the applier in its process: finds out who is told of what was recorded, and queues the notices.

It has a lease of its own, so that of several processes one routes. Killed at any point it leaves rows that the next one
takes.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from imem.cache.client import Client
from imem.journal.errors import ImemError
from imem.journal.notifications.wakeups import IntervalWakeups, WakeupSubscriber
from imem.services.stores import Stores, secret
from imem.sync.delivery.notices import Notices
from imem.sync.delivery.routing import Router

log = structlog.get_logger()


async def routing(stores: Stores, *, priority: bool) -> None:
    """
    Route until cancelled; the lease is let go on the way out.

    Args:
        priority: whether agents are told at once; else they find what was routed in a cycle when they pull.
    """
    durable = secret(stores.settings, "valkey_durable_url")
    wakeups = WakeupSubscriber(durable) if priority else IntervalWakeups()
    client = Client(durable, name="The durable Valkey")
    router = Router(stores.database, Notices(client) if priority else None)
    log.info("router.started")
    try:
        await router.run(wakeups)
    finally:
        with suppress(ImemError):
            await router.stop()
        await wakeups.close()
        await client.close()
