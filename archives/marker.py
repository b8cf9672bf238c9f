"""
The marker of a store of objects: which journal it belongs to.

A folder that is not mounted, or a bucket of another name, looks like an empty store. So the first build stores an
object with the journal's identity, and Postgres notes that it did. From then on a store without it is away: nothing is
archived, verified or deleted.
"""

from __future__ import annotations

from typing import Final

from imem.archives.contents import plain
from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore
from imem.journal.errors import ObjectMissing, ObjectsUnavailable
from imem.journal.postgres.database import Database

MARKER: Final = "journal.json"
"""Key of the marker."""

_MEND: Final = (
    "Check IMEM_OBJECTS_URL, and that the folder is mounted; a store that was copied needs the object journal.json too."
)


async def check_store(database: Database, store: ObjectStore, *, claim: bool = False, deadline: Deadline) -> None:
    """
    Return if the store is the one of this journal.

    Args:
        claim: whether to mark a store as this journal's if it has no marker and this journal has no store yet.

    Raises:
        ObjectsUnavailable: it belongs to another journal, or lacks the marker that was stored in it.
        PostgresUnavailable, BudgetExceeded: retryable.
    """
    [row] = await database.named("object_store", deadline=deadline)
    content = plain({"journal": row["journal"]})
    try:
        found = await store.get(MARKER, deadline=deadline)
    except ObjectMissing:
        if row["marked"]:
            raise ObjectsUnavailable("The store of objects is empty, or another one than before.", mend=_MEND) from None
        if claim:
            await store.put(MARKER, content, deadline=deadline)
    else:
        if found != content:
            raise ObjectsUnavailable("The store of objects belongs to another journal.", mend=_MEND)
    if claim and not row["marked"]:
        await database.execute("object_store_marked", deadline=deadline)
