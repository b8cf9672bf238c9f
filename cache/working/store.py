"""
Working memory on its server: one script for each operation (``cache/lua``), and nothing but scripts.

A script is atomic: a caller that crashes has run it whole or not at all, and a server that is killed recovers all of it
or nothing. It may lose the last two seconds of acknowledged writes (``appendfsync everysec``, which writes late while
the disk is busy). The caller detects that: it passes the last revision that was acknowledged to it.

Only a restore takes two scripts; between them the memory is ``RESTORING``, which everything else refuses.

Keys are never searched by a pattern: the index lists them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from imem.cache import keys
from imem.cache.client import Argument, Client
from imem.cache.scripts import script
from imem.cache.working.changes import LARGEST_WRITE_BYTES, PUBLISHED, Change
from imem.cache.working.document import CAP_BYTES, Contents, MemoryEntry, digest, size_of
from imem.cache.working.published import PublishedItem, PushResult, decode_push_result, decoded, encode_push_result
from imem.cache.working.state import (
    ACTIVE_TTL,
    LONGEST_TTL,
    PAUSED_TTL,
    ExpiryMode,
    MemoryIdentity,
    Meta,
    moment_of,
    ms_of,
    refusal,
)
from imem.cache.working.values import entry_from
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ConsistencyError, NotOpen, NotRepeatable, OutcomeUnknown, StaleEpoch, TooLarge

MOST_KNOWN: Final = 500
"""Updates stored beside a memory at most; older ones are in the graph and in the journal."""

MOST_KNOWN_BYTES: Final = 2 * 1024 * 1024
"""Bytes of these updates at most."""

_NOTED: Final = 500
"""Push results stored by one call."""

_NONE: Final = b"none"
"""The servers' type of a missing key."""

_WHOLE: Final = ("put", "default", "delete", "take")
_WRITING: Final = {
    "": "write",
    "clear": "write",
    **dict.fromkeys(_WHOLE, "one_whole"),
    "string": "one_string",
    "list": "one_list",
    "hash": "one_hash",
    "set": "one_set",
    "zset": "one_zset",
}
"""Type of a single change → its script; "" is the script for several."""

_FREEING: Final = {
    "": "free",
    "clear": "free",
    **dict.fromkeys(_WHOLE, "free_whole"),
    "list": "free_list",
    "hash": "free_hash",
    "set": "free_set",
    "zset": "free_zset",
}
"""The same for changes that only remove."""

_TYPES: Final = frozenset({b"string", b"list", b"hash", b"set", b"zset"})


@dataclass(frozen=True, slots=True)
class WriteResult:
    """
    An acknowledged write.

    Attributes:
        rev: the new revision.
        size_bytes: the size of the memory after it.
        results: of each change, in order; see :mod:`imem.cache.working.changes`.
    """

    rev: int
    size_bytes: int
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyContent:
    """
    The content of one key, or a part of it.

    Attributes:
        kind: the key's type on the server, ``none`` where there is none.
        found: the requested part, as the server returns it; None where there is nothing.
    """

    kind: bytes
    found: Any


@dataclass(frozen=True, slots=True)
class PublishedItems:
    """
    The published items of an agent.

    Attributes:
        items: in the order of publishing, those with a push result included.
        push_results: of items, where the holder has not read them yet.
    """

    items: list[PublishedItem]
    push_results: dict[UUID, PushResult]


class WorkingStore:
    """
    The working memories on one server.

    Every method ends by its deadline, with one of the errors of :meth:`imem.cache.client.Client.run` if there is no
    answer. Those that take an epoch raise :class:`~imem.journal.errors.StaleEpoch` where a later one was seen.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    # Ownership

    async def open(self, identity: MemoryIdentity, epoch: int, *, replace: bool = False, deadline: Deadline) -> Meta:
        """
        Open the memory of *identity* for the holder of *epoch*: a new one, or its own, whose expiry is renewed.

        The content is not verified: :meth:`verify` does that, and :mod:`imem.checkpoints.recovery` decides.

        Args:
            replace: start empty, whatever is there: its own old content, another analysis', an unfinished restore.

        Raises:
            NotOpen: it belongs to another analysis, or a restore has not ended.
            StaleEpoch: its own memory has seen a later epoch.
            BadInput: this machine's clock is more than a day behind the server's.
        """
        its = keys.working(identity.agent_id)
        arguments = (its.prefix, identity.analysis_id, identity.agent_type, epoch, self._now_ms(), int(replace))
        _, fields, count = await self._run(
            identity.agent_id, "open", (its.meta, its.index, its.scratch), arguments, epoch=epoch, deadline=deadline
        )
        return Meta.of(identity.agent_id, fields, count)

    async def meta(self, agent_id: str, *, deadline: Deadline) -> Meta | None:
        """Return the state of the memory of *agent_id*; None where there is none."""
        its = keys.working(agent_id)
        answer = await self._client.run(script("stand"), (its.meta, its.index), (), deadline=deadline)
        return Meta.of(agent_id, answer[1], answer[2]) if answer[0] == b"ok" else None

    async def fence(self, agent_id: str, epoch: int, *, deadline: Deadline) -> bool:
        """
        Raise the epoch, so that holders of an earlier one are refused; return whether there is such a memory.

        A full server accepts it as well. Idempotent.
        """
        its = keys.working(agent_id)
        answer = await self._run(agent_id, "fence", (its.meta,), (epoch,), epoch=epoch, absent=True, deadline=deadline)
        return bool(answer[0] == b"ok")

    async def mark(self, agent_id: str, epoch: int, *, seq: int, digest: str, rev: int, deadline: Deadline) -> bool:
        """
        Store that checkpoint *seq* holds the content of *rev*; return False where a later one is stored.

        Raises:
            NotOpen: there is no such memory, it is being restored, or has not seen *rev* or *epoch*.
        """
        its = keys.working(agent_id)
        _, marked = await self._run(
            agent_id, "mark", (its.meta,), (epoch, seq, digest, rev), epoch=epoch, deadline=deadline
        )
        return bool(marked)

    # Expiry

    async def expire(
        self,
        agent_id: str,
        mode: ExpiryMode,
        at: datetime | None = None,
        *,
        epoch: int | None = None,
        deadline: Deadline,
    ) -> datetime | None:
        """
        Move the expiry of all keys together, and set its mode.

        Args:
            at: when all keys expire. By default 24 hours from now for an active or resumed agent and 14 days for one
                that is paused or waits for a human; required for an extension.
            epoch: the holder's; None for a paused agent, which has none.

        Returns:
            The expiry; None where there is no such memory.

        Raises:
            BadInput: *at* is missing, is over, or is more than 30 days away.
            NotOpen: the memory has not seen *epoch*.
        """
        now, active = self._clock.now(), mode in {ExpiryMode.ACTIVE, ExpiryMode.RESUMED}
        if at is None:
            if mode is ExpiryMode.EXTENDED:
                raise BadInput("at", "an extension states until when.")
            at = now + (ACTIVE_TTL if active else PAUSED_TTL)
        if not ms_of(now) < ms_of(at) <= ms_of(now + LONGEST_TTL):
            raise BadInput("at", f"{at.isoformat()} is not within the {LONGEST_TTL.days} days to come.")
        its = keys.working(agent_id)
        kept = ExpiryMode.ACTIVE if active else mode
        arguments = (its.prefix, "" if epoch is None else epoch, kept.value, ms_of(at), ms_of(now))
        names = (its.meta, its.index, its.scratch)
        answer = await self._run(agent_id, "expire", names, arguments, epoch=epoch or 0, absent=True, deadline=deadline)
        return at if answer[0] == b"ok" else None

    async def heartbeat(self, agent_id: str, epoch: int, *, deadline: Deadline) -> datetime:
        """
        Renew the expiry of all keys: 24 hours for an active agent, otherwise the fixed moment; return it.

        Called every hour while the agent runs; a full server accepts it as well. The caller renews the snapshot too:
        :meth:`imem.cache.working.snapshots.SnapshotStore.expire`.

        Raises:
            NotOpen: there is no such memory, it is being restored, or has not seen *epoch*.
        """
        its = keys.working(agent_id)
        arguments = (its.prefix, epoch, self._now_ms())
        _, at_ms = await self._run(
            agent_id, "heartbeat", (its.meta, its.index), arguments, epoch=epoch, deadline=deadline
        )
        return moment_of(int(at_ms))

    async def clear(self, agent_id: str, epoch: int, *, deadline: Deadline) -> int:
        """Remove the memory; return how many keys were removed. Idempotent."""
        its = keys.working(agent_id)
        arguments = (its.prefix, epoch)
        _, count = await self._run(agent_id, "clear", (its.meta, its.index), arguments, epoch=epoch, deadline=deadline)
        return int(count)

    # Content

    async def write(
        self, agent_id: str, epoch: int, changes: Sequence[Change], *, least_rev: int = 0, deadline: Deadline
    ) -> WriteResult:
        """
        Apply all *changes*, in their order, or none.

        Repeating it after an :class:`~imem.journal.errors.OutcomeUnknown` is safe. Changes that append, pop or count
        could be applied twice: they raise :class:`~imem.journal.errors.NotRepeatable`; read first.

        Args:
            least_rev: the last revision that was acknowledged to the caller.

        Raises:
            BadInput: a list has no such item, or *changes* is empty.
            UnsupportedType: a key has another type than a change works on.
            TooLarge: the memory would pass its cap; names the key.
            NotOpen: there is no such memory, it is being restored, has not seen *epoch*, or has lost writes.
            ServerFull: the server has no memory left; batches that only remove are accepted.
        """
        if not changes:
            raise BadInput("changes", "names nothing to do.")
        if len(changes) > 1:
            _bounded(changes)
        its = keys.working(agent_id)
        arguments: list[Argument] = [its.prefix, its.scratch, epoch, least_rev, self._now_ms(), CAP_BYTES]
        for change in changes:
            arguments += change.words()
        names = _FREEING if all(change.frees for change in changes) else _WRITING
        name = names[changes[0].operation.partition("_")[0]] if len(changes) == 1 else names[""]
        try:
            answer = await self._client.run(script(name), (its.meta, its.index), arguments, deadline=deadline)
        except OutcomeUnknown as error:
            if all(change.repeatable for change in changes):
                raise
            raise NotRepeatable(error.message, mend="Read the value before you repeat the change.") from error
        if answer[0] != b"ok":
            raise refusal(agent_id, answer, epoch=epoch, names={change.suffix: change.key for change in changes})
        return WriteResult(answer[1], answer[2], tuple(answer[3]))

    async def look(
        self,
        agent_id: str,
        epoch: int,
        key: str,
        part: str,
        *arguments: Argument,
        kind: str = "",
        least_rev: int = 0,
        deadline: Deadline,
    ) -> KeyContent:
        """
        Read one key, or a *part* of it; the parts are listed in ``cache/lua/reading.lua``.

        Args:
            kind: the type that it must have, if it exists.

        Raises:
            UnsupportedType: it has another type.
            NotOpen: as of :meth:`write`.
        """
        its, suffix = keys.working(agent_id), keys.suffix_of(key)
        answer = await self._client.run(
            script("look"),
            (its.meta, its.prefix + suffix),
            (epoch, least_rev, part, kind, *arguments),
            deadline=deadline,
        )
        if answer[0] == b"kind":
            answer = [b"kind", suffix, *answer[1:]]
        if answer[0] != b"ok":
            raise refusal(agent_id, answer, epoch=epoch, names={suffix: key})
        return KeyContent(answer[1], answer[2])

    async def names(self, agent_id: str, epoch: int, *, least_rev: int = 0, deadline: Deadline) -> list[bytes]:
        """
        Return the suffixes of all keys, in no order.

        Raises:
            NotOpen: as of :meth:`write`.
        """
        its = keys.working(agent_id)
        _, suffixes = await self._run(
            agent_id, "names", (its.meta, its.index), (epoch, least_rev), epoch=epoch, deadline=deadline
        )
        return list(suffixes)

    async def read(
        self, agent_id: str, *, epoch: int | None = None, least_rev: int = 0, deadline: Deadline
    ) -> tuple[Meta, dict[bytes, MemoryEntry]]:
        """
        Return everything as of one moment.

        Args:
            epoch: the holder's; without it everything is read, also an unfinished restore.
            least_rev: with an epoch, the last revision that was acknowledged to its holder.

        Raises:
            NotOpen: there is no such memory; or, with an epoch, it is being restored or has not seen it.
            ConsistencyError: a key of the index is missing, or another program wrote there.
        """
        its = keys.working(agent_id)
        arguments = (its.prefix, "" if epoch is None else epoch, least_rev)
        _, fields, count, found = await self._run(
            agent_id, "read", (its.meta, its.index), arguments, epoch=epoch or 0, deadline=deadline
        )
        meta, now_ms = Meta.of(agent_id, fields, count), self._now_ms()
        contents: dict[bytes, MemoryEntry] = {}
        for suffix, kind, at_ms, leaves in zip(found[::4], found[1::4], found[2::4], found[3::4], strict=True):
            if kind not in _TYPES:
                what = "is gone" if kind == _NONE else f"holds a {kind.decode()}"
                name = suffix.decode(errors="replace")
                raise ConsistencyError(f"The working memory of {agent_id} is damaged: {name!r} {what}.")
            contents[suffix] = entry_from(kind, leaves, max(0, at_ms - now_ms) if at_ms >= 0 else None)
        return meta, contents

    # Beside the content

    async def published(self, agent_id: str, *, deadline: Deadline) -> PublishedItems:
        """
        Return the published items; callers need not hold the memory.

        Raises:
            NotOpen: there is no such memory, or it is being restored.
            UnsupportedType: the key of published items holds a value of the user's program.
            ConsistencyError: an item is damaged.
        """
        its, suffix = keys.working(agent_id), keys.suffix_of(PUBLISHED)
        where = (its.meta, its.prefix + suffix, its.pushed)
        answer = await self._client.run(script("published"), where, (), deadline=deadline)
        if answer[0] == b"kind":
            answer = [b"kind", suffix, answer[1], b"hash"]
        if answer[0] != b"ok":
            raise refusal(agent_id, answer)
        items = [decoded(name, text) for name, text in zip(answer[1][::2], answer[1][1::2], strict=True)]
        push_results = zip(answer[2][::2], answer[2][1::2], strict=True)
        return PublishedItems(
            sorted(items, key=lambda item: item.id),
            {UUID(name.decode()): decode_push_result(text) for name, text in push_results},
        )

    async def note_pushed(self, agent_id: str, push_results: Mapping[UUID, PushResult], *, deadline: Deadline) -> None:
        """
        Store the results of pushes, for the holder to read; callers need not hold the memory.

        Raises:
            NotOpen: the memory and its items were removed.
        """
        its, noted = keys.working(agent_id), list(push_results.items())
        for first in range(0, len(noted), _NOTED):
            page = noted[first : first + _NOTED]
            arguments = [word for item, fate in page for word in (str(item), encode_push_result(fate))]
            await self._run(agent_id, "note_pushed", (its.meta, its.pushed), arguments, epoch=0, deadline=deadline)

    async def forget_pushed(self, agent_id: str, items: Sequence[UUID], *, deadline: Deadline) -> None:
        """Remove the push results of items that are no longer published."""
        its = keys.working(agent_id)
        for first in range(0, len(items), _NOTED):
            page = [str(item) for item in items[first : first + _NOTED]]
            await self._client.run(script("forget_pushed"), (its.pushed,), page, deadline=deadline)

    async def learn(self, agent_id: str, updates: Mapping[int, bytes], *, deadline: Deadline) -> int:
        """
        Add pulled updates, by number, each as JSON; return how many are stored. Beyond the bound the oldest go.

        Raises:
            NotOpen: there is no such memory.
        """
        its = keys.working(agent_id)
        arguments: list[Argument] = [MOST_KNOWN, MOST_KNOWN_BYTES]
        for number, update in updates.items():
            arguments += [f"{number:019d}", update]
        answer = await self._run(agent_id, "learn", (its.meta, its.knowledge), arguments, epoch=0, deadline=deadline)
        return int(answer[1])

    async def known(self, agent_id: str, *, deadline: Deadline) -> list[dict[str, Any]]:
        """Return the pulled updates, oldest first."""
        its = keys.working(agent_id)
        found = await self._client.run(script("known"), (its.knowledge,), (), deadline=deadline)
        pairs = sorted(zip(found[::2], found[1::2], strict=True))
        return [orjson.loads(update) for _, update in pairs]

    # Restoring and comparing

    async def restore(
        self,
        identity: MemoryIdentity,
        contents: Contents,
        digest: str,
        epoch: int,
        seq: int,
        *,
        marked: str | None = None,
        replace: bool = False,
        deadline: Deadline,
    ) -> Meta:
        """
        Replace the content by *contents*, those of checkpoint *seq*, and open the memory.

        *contents* are compared with *digest* first, and the server compares what it stored with what it was sent.

        A crash leaves the old content; or the new content as ``RESTORING``, which everything but another restore,
        :meth:`clear` and ``open(…, replace=True)`` refuses; or the new content, open.

        Args:
            marked: the checkpoint's digest, where *contents* hold more than it does: the memory then counts as written
                to since.
            replace: replace another analysis' memory as well.

        Raises:
            ConsistencyError: *contents* do not have *digest*, and nothing was changed; or the stored content differs,
                and it was cleared.
            StaleEpoch: a later epoch was seen, or another restore ran in between.
            NotOpen: it belongs to another analysis.
            TooLarge: they exceed the cap.
            OutcomeUnknown: the end of it was not confirmed; restoring again is safe.
        """
        _compare(contents, digest, "The snapshot to restore")
        if (size := size_of(contents)) > CAP_BYTES:
            raise TooLarge("contents", f"take {size:,} bytes; working memory holds {CAP_BYTES:,}.")
        its, agent_id, mark = keys.working(identity.agent_id), identity.agent_id, secrets.token_hex(16)
        arguments: list[Argument] = [its.prefix, identity.analysis_id, identity.agent_type, epoch, self._now_ms()]
        arguments += [mark, seq, marked or digest, int(replace), size, int(marked in {None, digest})]
        given: list[bytes] = []
        for suffix, entry in contents.items():
            flat = entry.flat()
            given += (suffix, entry.type.value.encode("ascii"), b"%d" % len(flat), *flat)
        arguments.append(hashlib.sha1(b"\0".join(given), usedforsecurity=False).hexdigest())
        arguments += given
        names = (its.meta, its.index, its.scratch)
        answer = await self._client.run(script("restore"), names, arguments, deadline=deadline)
        if answer[0] == b"differs":
            raise ConsistencyError(f"The snapshot restored as {agent_id} differs from the given one.")
        if answer[0] != b"ok":
            raise refusal(agent_id, answer, epoch=epoch)
        try:
            _, fields, count = await self._run(
                agent_id, "settle", (its.meta, its.index), (epoch, mark), epoch=epoch, deadline=deadline
            )
        except NotOpen as error:
            raise StaleEpoch(f"The working memory of {agent_id} was removed while it was restored.") from error
        return Meta.of(agent_id, fields, count)

    async def verify(
        self, agent_id: str, digest: str, *, key_count: int | None = None, epoch: int | None = None, deadline: Deadline
    ) -> Meta:
        """
        Compare the content with *digest* and, where it is given, *key_count*; return the state.

        Raises:
            ConsistencyError: it differs.
            NotOpen: there is no such memory; or, with an epoch, it is being restored or has not seen it.
        """
        meta, contents = await self.read(agent_id, epoch=epoch, deadline=deadline)
        whose = f"The working memory of {agent_id}"
        if key_count is not None and key_count != len(contents):
            raise ConsistencyError(f"{whose} has {len(contents)} keys, not {key_count}.")
        _compare(contents, digest, whose)
        return meta

    async def _run(
        self,
        agent_id: str,
        name: str,
        at: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        epoch: int,
        absent: bool = False,
        deadline: Deadline,
    ) -> Any:
        """Return what a script answers; that there is no such memory is an answer where *absent* says so."""
        answer = await self._client.run(script(name), at, arguments, deadline=deadline)
        if answer[0] != b"ok" and not (absent and answer[0] == b"absent"):
            raise refusal(agent_id, answer, epoch=epoch)
        return answer

    def _now_ms(self) -> int:
        return ms_of(self._clock.now())


def _bounded(changes: Sequence[Change]) -> None:
    total = 0
    for change in changes:
        total += change.size_bytes
        if total > LARGEST_WRITE_BYTES:
            raise TooLarge(change.key, f"brings one write to more than {LARGEST_WRITE_BYTES:,} bytes.")


def _compare(contents: Contents, wanted: str, whose: str) -> None:
    if digest(contents) != wanted:
        raise ConsistencyError(f"{whose} does not match its digest.")
