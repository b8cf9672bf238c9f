"""
Snapshots of working memory and copies of checkpoints, on the *durable* server.

Only the latest snapshot of each agent is stored: the one with the highest (epoch, seq), whatever the order of writes.
Postgres is authoritative; these copies are faster to read and may be lost.

A crash of the caller leaves the whole new snapshot, body and meta, or the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from imem.cache import keys
from imem.cache.client import Argument, Client
from imem.cache.scripts import script
from imem.cache.working.state import MemoryIdentity, moment_of, ms_of, refusal
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ConsistencyError

SNAPSHOT_TTL: Final = timedelta(days=14)
"""How long a snapshot lives; longer where its working memory does."""

COPY_TTL: Final = timedelta(days=7)
"""How long the copy of a checkpoint lives; after that it is read from Postgres."""


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """
    The metadata of a snapshot.

    Attributes:
        identity: the owner of the memory.
        epoch: of the holder that took it.
        seq: of the checkpoint that it belongs to.
        checkpoint_id: that checkpoint.
        digest: of the document's contents.
        key_count: how many keys there are.
        taken_at: when it was taken.
        protects_until: when its working memory expires, where that is known.
    """

    identity: MemoryIdentity
    epoch: int
    seq: int
    checkpoint_id: str
    digest: str
    key_count: int
    taken_at: datetime
    protects_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class SnapshotWrite:
    """
    The result of writing a snapshot.

    Attributes:
        kept: whether it was stored; False where a later one is there. Also the truth value.
        flushed: whether the append-only file holds it, where that was requested and the server can tell.
    """

    kept: bool
    flushed: bool = False

    def __bool__(self) -> bool:
        return self.kept


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """
    The copy of an agent's latest checkpoint.

    Attributes:
        epoch, seq: of the checkpoint; the reader compares them with those in Postgres.
        body: the row, as JSON.
    """

    epoch: int
    seq: int
    body: bytes


class SnapshotStore:
    """
    The snapshots and copies on one server.

    Every method ends by its deadline, with one of the errors of :meth:`imem.cache.client.Client.run` if there is no
    answer.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def put(
        self, meta: SnapshotMeta, document: dict[str, Any], *, flush: bool = False, deadline: Deadline
    ) -> SnapshotWrite:
        """
        Store *document* unless a snapshot with a higher (epoch, seq) is there. Idempotent.

        It lives 14 days from now, or until ``meta.protects_until`` if that is later; its expiry never moves back.

        Args:
            flush: wait until the append-only file holds it, so that it survives a power failure: for pauses.

        Raises:
            ConsistencyError: it belongs to another analysis; :meth:`drop` removes it.
            BadInput: this machine's clock is two weeks behind the server's.
        """
        its, identity = keys.snapshot(meta.identity.agent_id), meta.identity
        ends = ms_of(self._clock.now() + SNAPSHOT_TTL)
        if meta.protects_until is not None:
            ends = max(ends, ms_of(meta.protects_until))
        arguments: list[Argument] = [identity.analysis_id, identity.agent_type, meta.epoch, meta.seq, ends]
        arguments += [orjson.dumps(document), "timestamp", meta.taken_at.isoformat(), "hash", meta.digest]
        arguments += ["checkpoint_id", meta.checkpoint_id, "key_count", meta.key_count]
        flushed, at = False, (its.body, its.meta)
        if flush:
            answer, flushed = await self._client.run_flushed(script("put_snapshot"), at, arguments, deadline=deadline)
        else:
            answer = await self._client.run(script("put_snapshot"), at, arguments, deadline=deadline)
        if answer[0] == b"other":
            raise ConsistencyError(
                f"The snapshot of {identity.agent_id} belongs to the analysis {answer[1].decode()!r}.",
                mend="Choose another agent id.",
            )
        if answer[0] != b"ok":
            raise refusal(identity.agent_id, answer, epoch=meta.epoch)
        return SnapshotWrite(bool(answer[1]), flushed)

    async def get(self, agent_id: str, *, deadline: Deadline) -> tuple[SnapshotMeta, dict[str, Any]] | None:
        """
        Return the snapshot of *agent_id*; None where there is none.

        ``protects_until`` is the expiry of the snapshot itself. The document is not compared with the digest.

        Raises:
            ConsistencyError: it is damaged, or one of its two parts is missing.
        """
        its = keys.snapshot(agent_id)
        _, body, fields, ends = await self._client.run(
            script("get_snapshot"), (its.body, its.meta), (), deadline=deadline
        )
        if body is None and not fields:
            return None
        found = dict(zip(fields[::2], fields[1::2], strict=True))
        try:
            meta = SnapshotMeta(
                MemoryIdentity(agent_id, found[b"analysis_id"].decode(), found[b"agent_type"].decode()),
                epoch=int(found[b"epoch"]),
                seq=int(found[b"seq"]),
                checkpoint_id=found[b"checkpoint_id"].decode(),
                digest=found[b"hash"].decode(),
                key_count=int(found[b"key_count"]),
                taken_at=datetime.fromisoformat(found[b"timestamp"].decode()),
                protects_until=moment_of(ends) if ends >= 0 else None,
            )
            document = orjson.loads(body if body is not None else b"")
        except (KeyError, ValueError, BadInput) as error:
            raise ConsistencyError(f"The snapshot of {agent_id} is damaged.") from error
        if not isinstance(document, dict):
            raise ConsistencyError(f"The snapshot of {agent_id} is damaged.")
        return meta, document

    async def expire(self, agent_id: str, at: datetime, *, deadline: Deadline) -> bool:
        """Extend the snapshot's expiry to *at*, never shorten it; return whether there is one."""
        its = keys.snapshot(agent_id)
        every = (its.body, its.meta, keys.calls(agent_id))
        _, there = await self._client.run(script("expire_snapshot"), every, (ms_of(at),), deadline=deadline)
        return bool(there)

    async def drop(self, agent_id: str, *, deadline: Deadline) -> bool:
        """Remove the snapshot and the answers of calls; return whether there was anything."""
        its = keys.snapshot(agent_id)
        every = (its.body, its.meta, keys.calls(agent_id))
        _, count = await self._client.run(script("drop"), every, (), deadline=deadline)
        return bool(count)

    # Answers of paid calls, until a checkpoint holds them

    async def put_call(self, agent_id: str, name: bytes, answer: bytes, *, deadline: Deadline) -> None:
        """Store the answer of a call for as long as a snapshot, and wait for the append-only file if possible."""
        ends = ms_of(self._clock.now() + SNAPSHOT_TTL)
        await self._client.run_flushed(
            script("put_call"), (keys.calls(agent_id),), (ends, name, answer), deadline=deadline
        )

    async def get_call(self, agent_id: str, name: bytes, *, deadline: Deadline) -> bytes | None:
        """Return the answer of a call; None where there is none."""
        _, answer = await self._client.run(script("get_call"), (keys.calls(agent_id),), (name,), deadline=deadline)
        return answer if answer is None else bytes(answer)

    async def drop_calls(self, agent_id: str, *, deadline: Deadline) -> None:
        """Remove the answers of calls: a checkpoint holds them."""
        await self._client.run(script("drop"), (keys.calls(agent_id),), (), deadline=deadline)

    # Copies of checkpoints

    async def put_checkpoint(
        self, analysis_id: str, agent_type: str, *, epoch: int, seq: int, body: bytes, deadline: Deadline
    ) -> bool:
        """
        Store a checkpoint's copy for seven days unless a higher (epoch, seq) is there; return whether it was stored.

        Raises:
            BadInput: one of the ids is not valid, or this machine's clock is a week behind the server's.
        """
        key, ends = keys.checkpoint(analysis_id, agent_type), ms_of(self._clock.now() + COPY_TTL)
        answer = await self._client.run(script("put_copy"), (key,), (epoch, seq, ends, body), deadline=deadline)
        if answer[0] != b"ok":
            raise refusal(agent_type, answer, epoch=epoch)
        return bool(answer[1])

    async def get_checkpoint(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> CheckpointCopy | None:
        """
        Return the copy; None where there is none.

        Raises:
            ConsistencyError: it is damaged.
        """
        key = keys.checkpoint(analysis_id, agent_type)
        _, (epoch, seq, body) = await self._client.run(script("get_copy"), (key,), (), deadline=deadline)
        if epoch is None and seq is None and body is None:
            return None
        try:
            return CheckpointCopy(int(epoch), int(seq), bytes(body))
        except (TypeError, ValueError) as error:
            raise ConsistencyError(f"The copy of the checkpoint of {agent_type} is damaged.") from error

    async def drop_checkpoint(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> bool:
        """Remove the copy; return whether there was one."""
        key = keys.checkpoint(analysis_id, agent_type)
        _, count = await self._client.run(script("drop"), (key,), (), deadline=deadline)
        return bool(count)
