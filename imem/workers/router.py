"""
The router, in the applier's process: routes recorded events to agents, and queues the notices.

It has a lease of its own, so that one of several processes routes. After a crash the next holder continues with the
rows that are left.
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
    Route until cancelled; then release the lease.

    Args:
        priority: whether to queue notices at once; else agents find what was routed when they pull.
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
