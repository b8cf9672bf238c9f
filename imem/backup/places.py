"""Where backups are, and how the database of the journal is reached for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from imem.journal.endpoints import urls
from imem.journal.endpoints.objects import FOLDER, ObjectStore
from imem.journal.errors import BadInput, SettingsError, StackStarting
from imem.journal.settings import Settings
from imem.local import state
from imem.local.folders import Folders
from imem.local.supervisor import LocalStack

NO_OWNER: Final = SettingsError(
    "IMEM_POSTGRES_ADMIN_URL is not set: only the owner of the database reads all of it, and restores it.",
    mend="Set it to the URL with which `imem migrate` is run.",
)


def place_of(text: str) -> str:
    """
    Return the folder, absolute, or the URL that a person wrote.

    Raises:
        BadInput: it can be neither.
    """
    try:
        folder = None if "://" in text else Path(text).expanduser().absolute()
        if folder is not None and folder.exists() and not folder.is_dir():
            raise BadInput("PLACE", "is a file; name a folder.")
        return urls.objects(text if folder is None else str(folder)).rstrip("/")
    except (ValueError, OSError, RuntimeError) as error:
        raise BadInput("PLACE", f"{error}.") from None


def refuse_store(place: str, settings: Settings) -> None:
    """
    Refuse a place in which the objects are: each backup would copy the ones before.

    Raises:
        BadInput: it is one.
    """
    objects = (settings.objects_url or str(settings.home / FOLDER)).rstrip("/")
    if f"{place}/".startswith(f"{objects}/"):
        raise BadInput("PLACE", "lies among the objects themselves; name another folder.")


def store_of(place: str) -> ObjectStore:
    """Return the store at *place*."""
    return ObjectStore(place)


def owner_url(settings: Settings) -> str:
    """
    Return the URL of the database's owner.

    Raises:
        SettingsError: it is not known.
    """
    if settings.postgres_admin_url is None:
        raise SettingsError(NO_OWNER.message, mend=NO_OWNER.mend)
    return settings.postgres_admin_url.get_secret_value()


def is_local(settings: Settings) -> bool:
    """Return whether the journal is the local stack's; *settings* are those of the environment."""
    return settings.postgres_url is None


def runs(settings: Settings) -> bool:
    """Return whether a stack runs on the home, or is starting."""
    return state.supervised(Folders(settings.home))


@contextmanager
def journal_open(settings: Settings) -> Iterator[Settings]:
    """
    Yield *settings* with the addresses that are known; where the journal is local and down, Postgres alone is started.

    Raises:
        StackError: it does not start.
        StackStarting: a stack is starting; retryable.
    """
    if is_local(settings) and not runs(settings):
        with LocalStack(settings, servers={"postgres"}, workers=False) as alone:
            yield alone.settings
        return
    running = state.running(Folders(settings.home))
    filled = settings if running is None else state.fill(settings, running.endpoints)
    if filled.postgres_url is None:
        raise StackStarting(f"The stack on {settings.home} is starting.", mend="`imem status` shows how far it is.")
    yield filled
