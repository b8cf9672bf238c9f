"""
The store of objects, over fsspec: a folder by default, or a service such as S3 by URL.

A writer of several objects that belong together stores a manifest of their hashes last. Without its manifest a set is
incomplete: readers ignore it, and the writer repeats it. One object is stored whole or not at all.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import uuid4

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, ConsistencyError, ObjectMissing, ObjectsUnavailable, shown
from imem.journal.settings import Settings

T = TypeVar("T")

FOLDER: Final = "objects"
"""Folder of the objects below the home of the installation, if no URL is set."""

PART: Final = ".part"
"""Suffix of files that are being written; they are no objects."""

CALL_S: Final = 30
"""Longest wait for one answer of a service, in seconds: a thread cannot be stopped earlier."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """
    An object that was stored and read back.

    Attributes:
        key: its name, parts separated by slashes.
        sha256: of its content, hexadecimal.
        size: in bytes.
    """

    key: str
    sha256: str
    size: int


_IMPOSSIBLE: Final = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""Errors of a folder that hold for a key alone: none of the store's other objects is concerned."""


class _ImpossibleKey(Exception):
    """No object can have the key."""


class ObjectStore:
    """
    Stores, reads, lists and deletes objects; connected on first use.

    Args:
        url: a folder, or a URL that fsspec supports, such as ``s3://bucket/prefix``. Its credentials and endpoint come
            from where the service's client looks for them.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._opened: tuple[int, Any, str] | None = None

    @classmethod
    def of(cls, settings: Settings) -> ObjectStore:
        """Return the store that *settings* name."""
        return cls(settings.objects_url or str(settings.home / FOLDER))

    async def put(self, key: str, content: bytes, *, deadline: Deadline) -> StoredObject:
        """
        Store *content* under *key*, in place of what is there, read it back, and compare the hashes.

        A crash leaves the earlier object or this one, and perhaps a file ``….part``, which is no object.

        Raises:
            ConsistencyError: what was read back is something else.
            BadInput: the store has no place for such a key, as where a part of it is another object.
            ObjectsUnavailable, BudgetExceeded: it may be stored or not; retryable.
        """
        stored = StoredObject(key, sha256_of(content), len(content))

        def write(fs: Any, path: str) -> bytes:
            if "file" in _protocols(fs):
                _replace_file(fs, path, content)
            else:
                fs.pipe_file(path, content)
            read: bytes = fs.cat_file(path)
            return read

        try:
            _check(key, await self._call(write, key, deadline), stored.sha256)
        except ObjectMissing as error:
            if isinstance(error.__cause__, _ImpossibleKey):
                raise BadInput("key", f"no object can be stored as {shown(key)}.") from error
            raise ObjectsUnavailable(f"The store of objects lost {shown(key)}, or has no such bucket.") from error
        return stored

    async def get(self, key: str, *, sha256: str | None = None, deadline: Deadline) -> bytes:
        """
        Return the content of an object.

        Args:
            sha256: what the hash of the content must be.

        Raises:
            ObjectMissing: there is none of that key.
            ConsistencyError: the content has another hash.
            ObjectsUnavailable, BudgetExceeded: retryable.
        """
        content: bytes = await self._call(lambda fs, path: fs.cat_file(path), key, deadline)
        if sha256 is not None:
            _check(key, content, sha256)
        return content

    async def keys(self, prefix: str, *, deadline: Deadline) -> dict[str, datetime]:
        """
        Return the keys below *prefix*, a key without its last parts, and when each was stored; sorted.

        Raises:
            ObjectsUnavailable, BudgetExceeded: retryable.
        """

        def find(fs: Any, path: str) -> dict[str, datetime]:
            found = fs.find(path, detail=True)
            return {
                f"{prefix}/{name.removeprefix(path).lstrip('/')}": fs.modified(name)
                for name in sorted(found)
                if not name.endswith(PART)
            }

        return await self._call(find, prefix, deadline)

    async def delete(self, key: str, *, deadline: Deadline) -> None:
        """
        Delete an object; none of that key is no error.

        Raises:
            ObjectsUnavailable, BudgetExceeded: retryable.
        """

        def remove(fs: Any, path: str) -> None:
            if fs.exists(path):
                fs.rm_file(path)

        with suppress(ObjectMissing):
            await self._call(remove, key, deadline)

    async def _call(self, work: Callable[[Any, str], T], key: str, deadline: Deadline) -> T:
        """Do *work* in a thread, with the file system and the path of *key*; translate its errors."""
        if not is_key(key):
            raise ValueError(f"{key!r} is no key of an object.")

        def run() -> T:
            fs, root = self._connected()
            fs.invalidate_cache()
            try:
                return work(fs, f"{root}/{key}")
            except OSError as error:
                if error.errno in _IMPOSSIBLE:
                    raise _ImpossibleKey from error
                raise

        deadline.check("a call of the store of objects")
        try:
            return await asyncio.wait_for(asyncio.to_thread(run), min(deadline.left_s(), 10 * CALL_S))
        except (FileNotFoundError, _ImpossibleKey) as error:
            raise ObjectMissing(key) from error
        except TimeoutError as error:
            raise BudgetExceeded(f"The store of objects did not answer in time about {key}.") from error
        except Exception as error:  # what a service's client raises is known to the client alone
            raise ObjectsUnavailable(
                f"The store of objects failed ({type(error).__name__}).",
                mend="Check IMEM_OBJECTS_URL, its credentials, and whether the service or the folder can be reached.",
            ) from error

    def _connected(self) -> tuple[Any, str]:
        """Return the file system and its root; a forked process makes a client of its own."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                import fsspec  # noqa: PLC0415 - most processes store no objects

                more: dict[str, Any] = {}
                if self._url.startswith("s3://"):
                    limits = {"connect_timeout": CALL_S // 3, "read_timeout": CALL_S, "retries": {"max_attempts": 2}}
                    more = {"config_kwargs": limits, "use_listings_cache": False}
                fs, root = fsspec.core.url_to_fs(self._url, skip_instance_cache=True, **more)
                self._opened = os.getpid(), fs, root.rstrip("/")
            return self._opened[1:]


def is_key(text: str) -> bool:
    """
    Return whether *text* may be the key of an object.

    None names a place outside of the store, or an older version of an object, as clients of S3 read ``?versionId=``.
    """
    return "?versionId=" not in text and not any(part in {"", ".", ".."} for part in text.split("/"))


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of *content*, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _check(key: str, content: bytes, sha256: str) -> None:
    if sha256_of(content) != sha256:
        raise ConsistencyError(f"The object {key} is not what was stored: its SHA-256 is not {sha256}.")


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _replace_file(fs: Any, path: str, content: bytes) -> None:
    """Write a file beside *path*, on the disk, and rename it: who reads sees the file before or after."""
    part = f"{path}.{uuid4().hex}{PART}"
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    with fs.open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)  # noqa: PTH105 - fsspec's paths are texts
