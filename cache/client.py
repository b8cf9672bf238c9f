"""
Run scripts on a Valkey or Redis within deadlines, and translate the driver's errors.

A script is one command: it reaches the server whole or not at all. Until the first byte was sent nothing can have
changed. After that, a lost reply to a writing script means that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Self

import hiredis
import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from imem.cache.scripts import Script
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    ImemError,
    OutcomeUnknown,
    ServerFull,
    StatementRejected,
    ValkeyUnavailable,
)
from imem.journal.postgres.connection import BACKGROUND_TIMEOUT_S

Argument = bytes | str | int

_MEND: Final = "Is it running? `imem doctor` checks every server."
_NO_LONGER: Final = "Repeat the call when it answers again; nothing was written."

_REFUSALS: Final[dict[str, tuple[str, str]]] = {
    "MISCONF": ("cannot write to its disk", "Free some space there, or see its log; nothing was written."),
    "BUSY": ("is busy with a script that does not end", _NO_LONGER),
    "READONLY": ("is a replica, which takes no writes", "Set the URL of the primary; nothing was written."),
    "LOADING": ("is still loading its data", _NO_LONGER),
    "MASTERDOWN": ("is a replica that has lost its primary", _NO_LONGER),
    "NOREPLICAS": ("has too few replicas to write", _NO_LONGER),
    "CLUSTERDOWN": ("is part of a cluster that is down", _NO_LONGER),
}
"""The first word of a server's error → what it means, and what to do."""


READ_BYTES: Final = 1 << 20
"""Bytes taken from the socket at once: a whole memory in few steps."""


class Client:
    """
    A bounded number of connections of one process and one event loop to one server.

    Connects lazily: the constructor touches no network, so that a server that is down is an error of the call.

    The driver's connection pool is not used: it takes as long as the rest of a call.

    Attributes:
        name: the server's name in error messages.
    """

    def __init__(self, url: str, *, name: str = "Valkey", size: int = 8) -> None:
        self.name = name
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False
        # Callers set deadlines; the driver's own timeout would close a connection that another call still waits on.
        self._made_by: Any = redis.asyncio.ConnectionPool.from_url(
            url,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            client_name="imem",
            # By default every new connection reads the package's metadata from disk on the loop, 3 ms each.
            driver_info=None,
            socket_read_size=READ_BYTES,
        )

    async def close(self) -> None:
        """Close every connection; one that a call is using, when the call ends."""
        self._closed = True
        while self._idle:
            await self._idle.pop().disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self, deadline: Deadline) -> None:
        """
        Connect, unless an idle connection is there; the connection is kept for the next call.

        Raises:
            ValkeyUnavailable, BudgetExceeded: the server cannot be reached, or not in time.
        """
        try:
            async with asyncio.timeout(deadline.left_s()), self._slots:
                await self._return_connection(await self._acquire_connection(), whole=True)
        except TimeoutError as error:
            raise self._deadline_error(deadline, unknown=False) from error
        except (redis.exceptions.RedisError, OSError) as error:
            raise self._connection_error(unknown=False) from error

    async def run(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], *, deadline: Deadline
    ) -> Any:
        """
        Run *script* and return its answer, in bytes.

        Raises:
            ValkeyUnavailable: the server cannot be reached, or refuses work for now; nothing was written.
            ServerFull: it has no memory left; nothing was written.
            BudgetExceeded: *deadline* passed before the script was sent, or while it read.
            OutcomeUnknown: the connection broke, or *deadline* passed, while it may have written.
            StatementRejected: the server refused the script.
        """
        return (await self._run(script, keys, arguments, deadline, flush=False))[0]

    async def run_flushed(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], *, deadline: Deadline
    ) -> tuple[Any, bool]:
        """
        Run *script*, wait for the append-only file, and return the answer and whether that file holds the write.

        False for a server before 7.2, or one without an append-only file: it cannot tell.
        """
        return await self._run(script, keys, arguments, deadline, flush=True)

    async def _run(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        deadline: Deadline,
        *,
        flush: bool,
    ) -> tuple[Any, bool]:
        deadline.check("a call of a server")
        connection: Any = None
        whole = False
        try:
            async with asyncio.timeout(min(deadline.left_s(), BACKGROUND_TIMEOUT_S)), self._slots:
                try:
                    connection = await self._acquire_connection()
                    answer = await _evaluate(connection, script, keys, arguments)
                    flushed = flush and await _wait_for_flush(connection, deadline)
                    whole = True
                except redis.exceptions.ResponseError:
                    whole = True  # An error reply is complete: the connection can be reused.
                    raise
                finally:
                    if connection is not None:
                        await self._return_connection(connection, whole=whole)
        except TimeoutError as error:
            raise self._deadline_error(deadline, unknown=connection is not None and script.writes) from error
        except redis.exceptions.RedisError as error:
            raise self._translate_error(error, unknown=connection is not None and script.writes) from error
        except OSError as error:
            raise self._connection_error(unknown=connection is not None and script.writes) from error
        return answer, flushed

    async def _acquire_connection(self) -> Any:
        """Return a connection that the server has not closed: the one used last, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            # Unread data on an idle connection is its end, or nothing that belongs to this call.
            if connection.is_connected and not await _has_unread_data(connection):
                return connection
            await connection.disconnect(nowait=True)
        connection = self._made_by.make_connection()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _return_connection(self, connection: Any, *, whole: bool) -> None:
        """Keep *connection* for the next call if its last reply was read *whole*; disconnect it otherwise."""
        if whole and not self._closed:
            self._idle.append(connection)
        else:
            await connection.disconnect(nowait=True)

    def _deadline_error(self, deadline: Deadline, *, unknown: bool) -> ImemError:
        if unknown:
            return OutcomeUnknown(f"{self.name} did not confirm a write in time.")
        if deadline.at_s == float("inf"):
            return ValkeyUnavailable(f"{self.name} did not answer for {BACKGROUND_TIMEOUT_S:.0f} s.", mend=_MEND)
        return BudgetExceeded(f"{self.name} did not answer before the deadline.")

    def _connection_error(self, *, unknown: bool) -> ImemError:
        if unknown:
            return OutcomeUnknown(f"The connection to {self.name} broke before it confirmed a write.")
        return ValkeyUnavailable(f"{self.name} cannot be reached.", mend=_MEND)

    def _translate_error(self, error: redis.exceptions.RedisError, *, unknown: bool) -> ImemError:
        """Return the :class:`ImemError` for *error*; *unknown* if the script may have been executed."""
        match error:
            case redis.exceptions.OutOfMemoryError():
                return ServerFull(
                    f"{self.name} has no memory left.",
                    mend="Nothing was written or evicted; clear what is no longer needed, or raise its maxmemory.",
                )
            case redis.exceptions.AuthenticationError():
                return ValkeyUnavailable(
                    f"{self.name} refused the password.", mend="Check the URL's user and password."
                )
            case redis.exceptions.NoPermissionError():
                return StatementRejected(f"{self.name} does not allow this user to do that.")
            case redis.exceptions.BusyLoadingError():
                return self._refusal("LOADING")
            case redis.exceptions.ReadOnlyError():
                return self._refusal("READONLY")
            case redis.exceptions.MasterDownError():
                return self._refusal("MASTERDOWN")
            case redis.exceptions.ConnectionError() | redis.exceptions.TimeoutError():
                return self._connection_error(unknown=unknown)
            case _:
                return self._refusal(str(error).partition(" ")[0])

    def _refusal(self, code: str) -> ImemError:
        if code in _REFUSALS:
            what, mend = _REFUSALS[code]
            return ValkeyUnavailable(f"{self.name} {what}.", mend=mend)
        return StatementRejected(f"{self.name} refused a statement ({code[:40]}).")


async def _evaluate(connection: Any, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument]) -> Any:
    """Run *script* by its hash, or by its text where the server does not know the hash and has run nothing."""
    try:
        return await _send_command(connection, b"EVALSHA", script.sha1, len(keys), *keys, *arguments)
    except redis.exceptions.NoScriptError:
        return await _send_command(connection, b"EVAL", script.text, len(keys), *keys, *arguments)


async def _wait_for_flush(connection: Any, deadline: Deadline) -> bool:
    """Wait until the server's append-only file holds what this connection wrote; return whether it does."""
    left_ms = max(1, int(min(deadline.left_s(), BACKGROUND_TIMEOUT_S) * 900))
    try:
        local, _ = await _send_command(connection, b"WAITAOF", 1, 0, left_ms)
    except redis.exceptions.ResponseError:
        return False
    return bool(local)


async def _send_command(connection: Any, *command: Argument) -> Any:
    """Send one command and return its answer."""
    words: Any = command  # Its stub takes tuples of one.
    await connection.send_packed_command([hiredis.pack_command(words)], check_health=False)
    return await connection.read_response()


async def _has_unread_data(connection: Any) -> bool:
    """Return whether an idle connection has unread data; the driver renamed this method in 8.0."""
    look = getattr(connection, "can_read", None) or connection.can_read_destructive
    try:
        return bool(await look())
    except (redis.exceptions.RedisError, OSError):
        return True
