"""Erasure of a person's data in all stores: Postgres, archives, graph, caches."""

from __future__ import annotations

from collections.abc import Sequence

from redis.asyncio import Redis

from imem.archives.erasing import Erasure, erase
from imem.cache.tiers.invalidation import InvalidationPublisher
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import SettingsError
from imem.journal.postgres.database import Database
from imem.kg.projection.rebuild import ReportProgress
from imem.services import graph_rebuild
from imem.services.stores import Stores


async def erase_everywhere(
    stores: Stores, terms: Sequence[str], reason: str, *, change: bool, report: ReportProgress
) -> Erasure:
    """
    Replace a person's names and ids (:func:`~imem.archives.erasing.erase`), rebuild the graph, and drop caches.

    A crash in between leaves a graph and caches with the old names; the same call rebuilds them.

    Raises:
        SettingsError: the owner's login of Postgres is not known.
        BadInput, PermissionDenied, StoreUnavailable: see there.
    """
    settings = stores.settings
    if settings.postgres_admin_url is None:
        raise SettingsError("IMEM_POSTGRES_ADMIN_URL is not set: only the owner of the database may erase.")
    owner = Database(settings.postgres_admin_url.get_secret_value(), size=2)
    try:
        done = await erase(
            owner, ObjectStore.of(settings), stores.gateway.actor, terms, reason, change=change,
            deadline=Deadline.never(),
        )  # fmt: skip
    finally:
        await owner.close()
    if change:
        await graph_rebuild.in_place(stores, report)
        await _drop_caches(stores)
    return done


async def _drop_caches(stores: Stores) -> None:
    """Empty the shared cache, and tell every process to forget what it holds."""
    settings = stores.settings
    if settings.valkey_cache_url is not None:
        async with Redis.from_url(settings.valkey_cache_url.get_secret_value()) as cache:
            await cache.flushdb()
    if settings.valkey_durable_url is not None:
        await InvalidationPublisher(stores.agents.client("durable"), lambda: True).publish((), everything=True)
