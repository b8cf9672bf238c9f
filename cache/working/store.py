"""
Working memory on its server: one script for each operation (``cache/lua``), and nothing but scripts.

A script is atomic: a caller that crashes has either run it whole or not at all, and a server that is killed comes back
with all of it or nothing. At most the last two seconds of its acknowledged writes are missing then (``appendfsync
everysec``, which writes late while the disk is busy). Who can tell that they are is the caller: it passes the last
revision that was acknowledged to it.

Only a restore takes two scripts; between them the memory is ``RESTORING``, which everything else refuses.

No operation looks for keys by a pattern: the index says which there are.
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
"""Updates from others that lie beside a memory at most; older ones are in the graph and in the journal."""

MOST_KNOWN_BYTES: Final = 2 * 1024 * 1024
"""Bytes of them."""

_NOTED: Final = 500
"""Fates noted in one call."""

_NONE: Final = b"none"
"""What servers call the type of a key that is not there."""

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
"""What a single change works on → the script for it; that for several has no name."""

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
    A write that was acknowledged.

    Attributes:
        rev: the revision that it made.
        size_bytes: what the memory counts for after it.
        results: of each change, in their order; what a change of that kind gives is said in
            :mod:`imem.cache.working.changes`.
    """

    rev: int
    size_bytes: int
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyContent:
    """
    One key, or a part of it.

    Attributes:
        kind: the type that the key has on the server, ``none`` where there is none.
        found: what was asked for, as the server gives it; None where there is nothing.
    """

    kind: bytes
    found: Any


@dataclass(frozen=True, slots=True)
class PublishedItems:
    """
    What an agent has published.

    Attributes:
        items: in the order of publishing, those with a fate included.
        push_results: what became of items, where the holder has not taken note of it yet.
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

    # Who holds it

    async def open(self, identity: MemoryIdentity, epoch: int, *, replace: bool = False, deadline: Deadline) -> Meta:
        """
        Take the memory of *identity* for the holder of *epoch*: a new one, or its own, whose expiry is renewed.

        Opening proves nothing of what is there: :meth:`verify` does, and :mod:`imem.checkpoints.recovery` decides.

        Args:
            replace: begin empty, whatever is there: its own from before, another analysis', a restore that was broken
                off.

        Raises:
            NotOpen: another analysis' memory is there, or a restore that was not ended.
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
        """Return how the memory of *agent_id* stands; None where there is none."""
        its = keys.working(agent_id)
        answer = await self._client.run(script("stand"), (its.meta, its.index), (), deadline=deadline)
        return Meta.of(agent_id, answer[1], answer[2]) if answer[0] == b"ok" else None

    async def fence(self, agent_id: str, epoch: int, *, deadline: Deadline) -> bool:
        """
        Raise the epoch, so that whoever holds an earlier one is refused; return whether there is such a memory.

        A full server does it as well. Twice is once.
        """
        its = keys.working(agent_id)
        return await self._run_if_there(agent_id, "fence", (its.meta,), (epoch,), epoch=epoch, deadline=deadline)

    async def mark(self, agent_id: str, epoch: int, *, seq: int, digest: str, rev: int, deadline: Deadline) -> bool:
        """
        Remember that checkpoint *seq* holds the content of revision *rev*; return whether it was remembered.

        It is not where a later checkpoint was.

        Raises:
            NotOpen: there is no such memory, it is being restored, or has not seen *rev* or *epoch*.
        """
        its = keys.working(agent_id)
        _, marked = await self._run(
            agent_id, "mark", (its.meta,), (epoch, seq, digest, rev), epoch=epoch, deadline=deadline
        )
        return bool(marked)

    # How long it lives

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
        Move the expiry of everything together, and keep it by *mode* from now on.

        Args:
            at: when everything ends. By default 24 hours from now for an active or resumed agent and 14 days for one
                that is paused or waits for a person; an extension has to state it.
            epoch: the holder's; None for a paused agent, which has none.

        Returns:
            When everything ends; None where there is no such memory, so that nothing had to be moved.

        Raises:
            BadInput: *at* is missing, is over, or is more than 30 days off.
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
        there = await self._run_if_there(
            agent_id, "expire", (its.meta, its.index, its.scratch), arguments, epoch=epoch or 0, deadline=deadline
        )
        return at if there else None

    async def heartbeat(self, agent_id: str, epoch: int, *, deadline: Deadline) -> datetime:
        """
        Renew the expiry of everything: 24 hours for an active agent, otherwise the moment that was set; return which.

        To be called every hour while the agent lives; a full server does it as well. The snapshot has to live as long:
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
        """Remove the memory: it succeeded, or its time is over. Return how many keys went; twice is once."""
        its = keys.working(agent_id)
        arguments = (its.prefix, epoch)
        _, count = await self._run(agent_id, "clear", (its.meta, its.index), arguments, epoch=epoch, deadline=deadline)
        return int(count)

    # What is in it

    async def write(
        self, agent_id: str, epoch: int, changes: Sequence[Change], *, least_rev: int = 0, deadline: Deadline
    ) -> WriteResult:
        """
        Make all *changes*, in their order, or none.

        Repeating it after an :class:`~imem.journal.errors.OutcomeUnknown` is safe. What appends, pops or counts may
        then happen twice, and raises :class:`~imem.journal.errors.NotRepeatable`: read first.

        Args:
            least_rev: the last revision that was acknowledged to the caller.

        Raises:
            BadInput: a list has no such item, or there is nothing to do.
            UnsupportedType: a key holds another type than a change works on.
            TooLarge: the memory would pass its cap; names the key.
            NotOpen: there is no such memory, it is being restored, has not seen *epoch*, or has lost writes.
            ServerFull: the server has no memory left; batches that only remove are still taken.
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
            raise NotRepeatable(error.message, mend="Look what stands there before making the change again.") from error
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
            kind: the type that it must have, if it is there at all.

        Raises:
            UnsupportedType: it holds another type.
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
        Return everything as it stands at one moment.

        Args:
            epoch: the holder's; without it, whatever is there is read, remains of a restore among it.
            least_rev: with an epoch, the last revision that was acknowledged to its holder.

        Raises:
            NotOpen: there is no such memory; or, with an epoch, it is being restored or has not seen it.
            ConsistencyError: a key of the index is gone, or something else than this product wrote there.
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

    # What lies beside

    async def published(self, agent_id: str, *, deadline: Deadline) -> PublishedItems:
        """
        Return what the agent has published, whoever asks.

        Raises:
            NotOpen: there is no such memory, or it is being restored.
            UnsupportedType: the key of published items holds something that a program wrote there itself.
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
        Note what became of published items, for the holder; who notes it need not be the holder.

        Raises:
            NotOpen: the memory is gone, and the items with it.
        """
        its, noted = keys.working(agent_id), list(push_results.items())
        for first in range(0, len(noted), _NOTED):
            page = noted[first : first + _NOTED]
            arguments = [word for item, fate in page for word in (str(item), encode_push_result(fate))]
            await self._run(agent_id, "note_pushed", (its.meta, its.pushed), arguments, epoch=0, deadline=deadline)

    async def forget_pushed(self, agent_id: str, items: Sequence[UUID], *, deadline: Deadline) -> None:
        """Forget what became of items that are published no longer."""
        its = keys.working(agent_id)
        for first in range(0, len(items), _NOTED):
            page = [str(item) for item in items[first : first + _NOTED]]
            await self._client.run(script("forget_pushed"), (its.pushed,), page, deadline=deadline)

    async def learn(self, agent_id: str, updates: Mapping[int, bytes], *, deadline: Deadline) -> int:
        """
        Add what was pulled, by number, each as JSON; return how many are known now. The oldest make room.

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
        """Return what was pulled, oldest first."""
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
        Put *contents*, which are those of checkpoint *seq*, in place of whatever is there, and open it.

        They are compared with *digest* before anything is touched, and the server compares what it holds afterwards
        with what it was sent.

        A crash leaves either what was there before, or the new content as ``RESTORING``, which everything but another
        restore, :meth:`clear` and ``open(…, replace=True)`` refuses; or the new content, open.

        Args:
            marked: the digest of the checkpoint, where *contents* hold more than it does: the memory then counts as
                written to since.
            replace: put it in place of another analysis' memory as well.

        Raises:
            ConsistencyError: *contents* are not what *digest* says, and nothing was touched; or what was read back is
                not, and it was cleared.
            StaleEpoch: a later epoch was seen, or another restore came in between and has the memory.
            NotOpen: another analysis' memory is there.
            TooLarge: they pass the cap.
            OutcomeUnknown: the end of it was not confirmed; restoring again is safe.
        """
        _compare(contents, digest, "What should be restored")
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
            raise ConsistencyError(f"What was restored as {agent_id} is not what was given.")
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
        Compare what is there with *digest* and, where it is given, *key_count*; return how it stands.

        Raises:
            ConsistencyError: it is something else.
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
        deadline: Deadline,
    ) -> Any:
        answer = await self._client.run(script(name), at, arguments, deadline=deadline)
        if answer[0] != b"ok":
            raise refusal(agent_id, answer, epoch=epoch)
        return answer

    async def _run_if_there(
        self,
        agent_id: str,
        name: str,
        at: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        epoch: int,
        deadline: Deadline,
    ) -> bool:
        answer = await self._client.run(script(name), at, arguments, deadline=deadline)
        if answer[0] not in {b"ok", b"absent"}:
            raise refusal(agent_id, answer, epoch=epoch)
        return bool(answer[0] == b"ok")

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
        raise ConsistencyError(f"{whose} is not what its digest says.")
