"""
The answers of calls that were paid for, kept in working memory under ``calls:``, so that none is paid for twice.

An answer is written once, under its own key, and never changed: going back to a checkpoint keeps it, while everything
else is what the checkpoint says. It bears a proof of what it is: a digest over the agent, its analysis, its run, the
key and the answer. What is not proven (another run's, another agent's, something that a program wrote there itself) is
no answer, and is treated like any other key.
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
from imem.journal.errors import ConsistencyError, NotOpen, StatementRejected, TooLarge, UnsupportedType

log = structlog.get_logger()

PREFIX: Final = "calls:"
"""What the keys of answers begin with; reserved for them."""

LONGEST_CALL: Final = LONGEST_KEY - len(PREFIX)
"""Characters of the key of a call, at most."""

DURABLE_MS: Final = 2_000
"""How long the durable server may take for an answer where the call does not say, in milliseconds."""

_TAG: Final = b"imem paid call 1\n"
_PREFIX: Final = PREFIX.encode("ascii")
_FIELDS: Final = frozenset({b"form", b"answer", b"proof"})

StoredAnswer = dict[bytes, bytes]
"""An answer as the hash that it is kept as: its form (text, bytes or json), its bytes, and the proof."""


@dataclass(frozen=True, slots=True)
class CallOwner:
    """
    Whose calls they are.

    Attributes:
        identity: the agent.
        run: which of its runs; one that begins clean knows nothing of the one before.
    """

    identity: MemoryIdentity
    run: int

    def proof(self, suffix: bytes, form: bytes, answer: bytes) -> bytes:
        """Return what proves that the call of that key was answered so."""
        of = self.identity
        parts = (of.analysis_id.encode(), of.agent_type.encode(), of.agent_id.encode(), b"%d" % self.run, suffix, form)
        found = hashlib.sha256(_TAG)
        for part in (*parts, answer):
            found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest().encode("ascii")


def key_of(call: object) -> str:
    """
    Return the key of working memory under which the answer of the call named *call* is kept.

    Raises:
        BadInput: it is no text of 1 to 194 characters.
    """
    return PREFIX + checked_text("key", call, LONGEST_CALL)


def kept(key: str, answer: object, owner: CallOwner) -> StoredAnswer:
    """
    Return *answer*, a text, bytes or anything that JSON has a form for, as it is kept under *key*.

    Raises:
        UnsupportedType: it is none of these.
        TooLarge: no working memory could hold it.
    """
    form, body = _formed(key, answer)
    if len(body) > CAP_BYTES:
        raise TooLarge(key, f"takes {len(body):,} bytes; working memory holds {CAP_BYTES:,}.")
    return {b"form": form, b"answer": body, b"proof": owner.proof(suffix_of(key), form, body)}


def _formed(key: str, answer: object) -> tuple[bytes, bytes]:
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
        ConsistencyError: the answer is not what its proof says.
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


# Among everything that a memory holds


def calls_in(contents: Contents, owner: CallOwner) -> dict[bytes, MemoryEntry]:
    """Return the proven answers among *contents*."""
    return {suffix: entry for suffix, entry in contents.items() if _proven(suffix, entry, owner)}


def without_calls(contents: Contents, owner: CallOwner) -> dict[bytes, MemoryEntry]:
    """Return *contents* without the proven answers among them."""
    return {suffix: entry for suffix, entry in contents.items() if not _proven(suffix, entry, owner)}


def joined(contents: Contents, calls: Contents) -> dict[bytes, MemoryEntry]:
    """Return *contents* with *calls*, those of the same key in place of theirs; what passes the cap is left out."""
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
    Return the answers in the live memory of *owner*, whose earlier holders are fenced off first; none without one.

    Remains of a restore count as well, since each answer proves itself. One that *base*, the memory of the checkpoint
    *seq*, holds too is only taken where the live memory follows that very checkpoint.

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


# At work


@dataclass(slots=True)
class PaidCalls:
    """
    The calls of one session.

    Attributes:
        owner: whose they are.
        durable: whether the durable server holds something of them.
    """

    owner: CallOwner
    durable: bool = False
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    # Until the next checkpoint, for a server that loses what it acknowledged, or is away when the answer comes.
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
                answer = kept(key, await make(), self.owner)
            self._paid[key] = answer
            # Paid for: whoever is cancelled now has it kept all the same.
            await asyncio.shield(asyncio.ensure_future(self._keep(memory, key, answer, durable, deadline)))
            return answer_in(key, answer, self.owner)

    async def _durably(self, durable: SnapshotStore, key: str, deadline: Deadline | None) -> StoredAnswer | None:
        """Return the answer that the durable server holds, if it proves itself."""
        agent_id, suffix = self.owner.identity.agent_id, suffix_of(key)
        body = await durable.get_call(agent_id, suffix, deadline=deadline or Deadline.after_ms(DURABLE_MS))
        if body is None or body.count(b"\n") < 2:
            return None
        self.durable = True
        form, proof, answer = body.split(b"\n", 2)
        # Another run's is no answer.
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
        """Forget the answer of *call*; return whether there was one."""
        key = key_of(call)
        async with self._locks.setdefault(key, asyncio.Lock()):
            due = deadline or Deadline.after_ms(DURABLE_MS)
            await durable.put_call(self.owner.identity.agent_id, suffix_of(key), b"", deadline=due)
            self.durable = True
            there = await memory.delete(key, deadline=deadline)
            return self._paid.pop(key, None) is not None or there

    def saved(self, names: Container[str]) -> bool:
        """
        Say which keys a checkpoint holds; return whether the durable server holds answers that it need not any more.

        An answer that came while the checkpoint was being saved waits for the next one.
        """
        for key in [key for key in self._paid if key in names]:
            del self._paid[key]
        if self._paid or not self.durable:
            return False
        self.durable = False
        return True
