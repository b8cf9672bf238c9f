"""
Answers of paid calls, stored in working memory under ``calls:``, so that no call is paid for twice.

An answer is written once, under its own key, and never changed: a rollback to a checkpoint keeps it. It has a proof: a
digest over the agent, its analysis, its run, the key and the answer. An answer without a valid proof (another run's,
another agent's, or written by the program itself) is treated like any other key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import structlog

from imem.cache.keys import LONGEST_KEY, suffix_of
from imem.cache.working.document import CAP_BYTES, KEY_BYTES, Contents, MemoryEntry, Pairs, Type, size_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.checkpoints.model import checked_text
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ConsistencyError, NotOpen, StatementRejected, TooLarge, UnsupportedType
from imem.journal.texts.json_text import check_exact

log = structlog.get_logger()

PREFIX: Final = "calls:"
"""Reserved prefix of the keys of answers."""

LONGEST_CALL: Final = LONGEST_KEY - len(PREFIX)
"""Characters of the key of a call, at most."""

DURABLE_MS: Final = 2_000
"""Default timeout of the durable server for an answer, in milliseconds."""

_TAG: Final = b"imem paid call 1\n"
_PREFIX: Final = PREFIX.encode("ascii")
_FIELDS: Final = frozenset({b"form", b"answer", b"proof"})

StoredAnswer = dict[bytes, bytes]
"""An answer as a stored hash: its form (text, bytes or json), its bytes, and the proof."""


@dataclass(frozen=True, slots=True)
class CallOwner:
    """
    The owner of calls.

    Attributes:
        identity: the agent.
        run: its run; a clean run does not use the answers of the one before.
    """

    identity: MemoryIdentity
    run: int

    def proof(self, suffix: bytes, form: bytes, answer: bytes) -> bytes:
        """Return the proof of an answer."""
        of = self.identity
        parts = (of.analysis_id.encode(), of.agent_type.encode(), of.agent_id.encode(), b"%d" % self.run, suffix, form)
        found = hashlib.sha256(_TAG)
        for part in (*parts, answer):
            found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest().encode("ascii")


def key_of(call: object) -> str:
    """
    Return the key of working memory for the answer of *call*.

    Raises:
        BadInput: it is no text of 1 to 194 characters.
    """
    return PREFIX + checked_text("key", call, LONGEST_CALL)


def stored_answer(key: str, answer: object, owner: CallOwner) -> StoredAnswer:
    """
    Return *answer*, a text, bytes or a JSON value, as it is stored under *key*.

    Raises:
        UnsupportedType: it is none of these.
        TooLarge: it is larger than the cap of working memory.
    """
    form, body = _formed(key, answer)
    if len(body) > CAP_BYTES:
        raise TooLarge(key, f"takes {len(body):,} bytes; working memory holds {CAP_BYTES:,}.")
    return {b"form": form, b"answer": body, b"proof": owner.proof(suffix_of(key), form, body)}


def _formed(key: str, answer: object) -> tuple[bytes, bytes]:
    try:
        check_exact(answer, key)
    except BadInput as error:
        raise UnsupportedType(error.field, error.reason, mend=error.mend) from error
    match answer:
        case bytes():
            return b"bytes", answer
        case str():
            try:
                return b"text", answer.encode()
            except UnicodeEncodeError:
                raise UnsupportedType(key, "is no text: it holds half of a surrogate pair.") from None
        case _:
            try:
                return b"json", json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")
            except (TypeError, ValueError, RecursionError) as error:
                raise UnsupportedType(
                    key, f"{type(answer).__name__} cannot be kept.", mend="Text, bytes and what JSON knows can be."
                ) from error


def answer_in(key: str, found: object, owner: CallOwner) -> Any:
    """
    Return the answer that *key* holds.

    Raises:
        UnsupportedType: it holds something else; the keys under ``calls:`` are reserved.
        ConsistencyError: the proof does not match the answer.
    """
    if not isinstance(found, Mapping) or found.keys() != _FIELDS:
        raise UnsupportedType(key, f"holds no answer of a call; keys that begin with {PREFIX} are reserved.")
    form, body = found[b"form"], found[b"answer"]
    if owner.proof(suffix_of(key), form, body) != found[b"proof"]:
        raise ConsistencyError(f"The answer under {key!r} is not what its proof says.")
    match form:
        case b"bytes":
            return body
        case b"text":
            return body.decode()
        case _:
            return json.loads(body)


# Answers among a memory's contents


def calls_in(contents: Contents, owner: CallOwner) -> dict[bytes, MemoryEntry]:
    """Return the answers with a valid proof among *contents*."""
    return {suffix: entry for suffix, entry in contents.items() if _proven(suffix, entry, owner)}


def without_calls(contents: Contents, owner: CallOwner) -> dict[bytes, MemoryEntry]:
    """Return *contents* without the answers that have a valid proof."""
    return {suffix: entry for suffix, entry in contents.items() if not _proven(suffix, entry, owner)}


def joined(contents: Contents, calls: Contents) -> dict[bytes, MemoryEntry]:
    """Return *contents* with *calls* in place of equal keys; calls beyond the cap are left out."""
    whole, size, left_out = dict(contents), size_of(contents), 0
    for suffix, entry in calls.items():
        own = KEY_BYTES + len(suffix)
        growth = entry.size_bytes - whole[suffix].size_bytes if suffix in whole else own + entry.size_bytes
        if size + growth > CAP_BYTES:
            left_out += 1
            continue
        whole[suffix], size = entry, size + growth
    if left_out:
        log.warning("calls_left_out", count=left_out, why="the memory of the checkpoint leaves no room for them")
    return whole


def _proven(suffix: bytes, entry: MemoryEntry, owner: CallOwner) -> bool:
    if not suffix.startswith(_PREFIX) or entry.type is not Type.HASH:
        return False
    found = dict(cast("Pairs", entry.leaves))
    if found.keys() != _FIELDS:
        return False
    return owner.proof(suffix, found[b"form"], found[b"answer"]) == found[b"proof"]


async def live_calls(
    working: WorkingStore, owner: CallOwner, epoch: int, seq: int, base: Contents, *, deadline: Deadline
) -> dict[bytes, MemoryEntry]:
    """
    Return the answers in the live memory of *owner*, after fencing off earlier holders; empty without a memory.

    Remains of a restore count as well, since each answer has its proof. An answer whose key is also in *base*, the
    memory of the checkpoint *seq*, is only taken where the live memory follows that checkpoint.

    Raises:
        StaleEpoch: a later epoch was seen.
        ValkeyUnavailable, BudgetExceeded: no answer; retryable.
    """
    agent_id = owner.identity.agent_id
    try:
        meta = await working.meta(agent_id, deadline=deadline)
        if meta is None or meta.identity != owner.identity:
            return {}
        await working.fence(agent_id, epoch, deadline=deadline)
        meta, contents = await working.read(agent_id, deadline=deadline)
    except (NotOpen, ConsistencyError, StatementRejected):
        return {}
    follows = meta.checkpoint_seq == seq
    return {suffix: entry for suffix, entry in calls_in(contents, owner).items() if follows or suffix not in base}


# Calls of a session


@dataclass(slots=True)
class PaidCalls:
    """
    The paid calls of one session.

    Attributes:
        owner: their owner.
        durable: whether the durable server holds answers of them.
    """

    owner: CallOwner
    durable: bool = False
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    # Answers until the next checkpoint, for a working server that loses them or is unreachable.
    _paid: dict[str, StoredAnswer] = field(default_factory=dict)

    async def memoize(
        self,
        memory: WorkingMemory,
        call: str,
        make: Callable[[], Awaitable[Any]],
        *,
        durable: SnapshotStore | None,
        deadline: Deadline | None,
    ) -> Any:
        """Return the answer of *call*; see :meth:`imem.checkpoints.session.Session.memoize`."""
        key = key_of(call)
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = await memory.get(key, raw=True, deadline=deadline)
            if found is not None:
                return answer_in(key, found, self.owner)
            answer = self._paid.get(key)
            if answer is None and durable is not None:
                answer = await self._durably(durable, key, deadline)
            if answer is None:
                answer = stored_answer(key, await make(), self.owner)
            self._paid[key] = answer
            # Paid for: stored even when the caller is cancelled now.
            await asyncio.shield(asyncio.ensure_future(self._keep(memory, key, answer, durable, deadline)))
            return answer_in(key, answer, self.owner)

    async def _durably(self, durable: SnapshotStore, key: str, deadline: Deadline | None) -> StoredAnswer | None:
        """Return the answer on the durable server, if its proof is valid."""
        agent_id, suffix = self.owner.identity.agent_id, suffix_of(key)
        body = await durable.get_call(agent_id, suffix, deadline=deadline or Deadline.after_ms(DURABLE_MS))
        if body is None or body.count(b"\n") < 2:
            return None
        self.durable = True
        form, proof, answer = body.split(b"\n", 2)
        # An answer of another run does not count.
        right = self.owner.proof(suffix, form, answer) == proof
        return {b"form": form, b"answer": answer, b"proof": proof} if right else None

    async def _keep(
        self,
        memory: WorkingMemory,
        key: str,
        answer: StoredAnswer,
        durable: SnapshotStore | None,
        deadline: Deadline | None,
    ) -> None:
        if durable is not None:
            body = b"\n".join((answer[b"form"], answer[b"proof"], answer[b"answer"]))
            due = deadline or Deadline.after_ms(DURABLE_MS)
            self.durable = True
            await durable.put_call(self.owner.identity.agent_id, suffix_of(key), body, deadline=due)
        await memory.set(key, answer, deadline=deadline)

    async def forget(
        self, memory: WorkingMemory, call: str, *, durable: SnapshotStore, deadline: Deadline | None
    ) -> bool:
        """Remove the answer of *call*; return whether there was one."""
        key = key_of(call)
        async with self._locks.setdefault(key, asyncio.Lock()):
            due = deadline or Deadline.after_ms(DURABLE_MS)
            await durable.put_call(self.owner.identity.agent_id, suffix_of(key), b"", deadline=due)
            self.durable = True
            there = await memory.delete(key, deadline=deadline)
            return self._paid.pop(key, None) is not None or there

    def saved(self, names: Container[str]) -> bool:
        """
        Drop the answers that a checkpoint holds; return whether the durable server's answers can be removed.

        An answer that came while the checkpoint was being saved is kept until the next one.
        """
        for key in [key for key in self._paid if key in names]:
            del self._paid[key]
        if self._paid or not self.durable:
            return False
        self.durable = False
        return True
