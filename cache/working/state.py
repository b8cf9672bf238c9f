"""Owner and state of a working memory; errors for its scripts' refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from imem.cache.keys import checked_agent_id, checked_agent_type, checked_analysis_id
from imem.cache.working.document import CAP_BYTES
from imem.journal.errors import BadInput, ConsistencyError, ImemError, NotOpen, StaleEpoch, TooLarge, UnsupportedType

ACTIVE_TTL: Final = timedelta(days=1)
"""Lifetime of an active agent's memory after its last renewal."""

PAUSED_TTL: Final = timedelta(days=14)
"""Default lifetime for a paused agent, and for one that waits for a human."""

LONGEST_TTL: Final = timedelta(days=30)
"""Longest lifetime, however often a pause is extended."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryState(StrEnum):
    """Whether a memory may be used."""

    OPEN = "OPEN"
    RESTORING = "RESTORING"
    """A restore was begun, and its content has not been verified: it must not be used."""


class ExpiryMode(StrEnum):
    """How the expiry of a memory is set."""

    ACTIVE = "active"
    """24 hours from the last write or heartbeat."""
    GATED = "gated"
    """Waiting for a human: a fixed moment."""
    PAUSED = "paused"
    """A fixed moment: 14 days after the pause."""
    EXTENDED = "extended"
    """A later fixed moment."""
    RESUMED = "resumed"
    """24 hours from now, and active from then on."""


@dataclass(frozen=True, slots=True)
class MemoryIdentity:
    """
    The owner of a memory.

    Attributes:
        agent_id: the instance.
        analysis_id: the analysis that it works in.
        agent_type: its type in that analysis.

    Raises:
        BadInput: one of them is not valid.
    """

    agent_id: str
    analysis_id: str
    agent_type: str

    def __post_init__(self) -> None:
        checked_agent_id(self.agent_id)
        checked_analysis_id(self.analysis_id)
        checked_agent_type(self.agent_type)


@dataclass(frozen=True, slots=True)
class Meta:
    """
    The state of a memory.

    Attributes:
        identity: its owner.
        epoch: of its holder.
        rev: number of writes.
        state: whether it may be used.
        mode: how its expiry is set.
        expires_at: when it expires unless it is renewed.
        size_bytes: its size against the cap.
        keys: how many keys it has.
        checkpoint_seq, digest: of the last checkpoint, if there is one.
        clean_rev: the rev whose content that checkpoint holds.
    """

    identity: MemoryIdentity
    epoch: int
    rev: int
    state: MemoryState
    mode: ExpiryMode
    expires_at: datetime
    size_bytes: int
    keys: int
    checkpoint_seq: int | None
    digest: str | None
    clean_rev: int | None

    @property
    def clean(self) -> bool:
        """Whether nothing was written since the last checkpoint."""
        return self.clean_rev == self.rev

    @classmethod
    def of(cls, agent_id: str, fields: Sequence[bytes], keys: int) -> Meta:
        """
        Return the state from a script's answer.

        Raises:
            ConsistencyError: another program wrote it.
        """
        try:
            found = {name.decode(): value.decode() for name, value in zip(fields[::2], fields[1::2], strict=True)}
            return cls(
                MemoryIdentity(agent_id, found["analysis"], found["type"]),
                epoch=int(found["epoch"]),
                rev=int(found["rev"]),
                state=MemoryState(found["state"]),
                mode=ExpiryMode(found["mode"]),
                expires_at=moment_of(int(found["expires_at"])),
                size_bytes=int(found["size"]),
                keys=keys,
                checkpoint_seq=int(found["seq"]) if found["seq"] else None,
                digest=found["digest"] or None,
                clean_rev=int(found["clean_rev"]) if found["clean_rev"] else None,
            )
        except (KeyError, ValueError, OverflowError, BadInput) as error:
            raise ConsistencyError(f"The record of the working memory of {agent_id} is damaged.") from error


def moment_of(ms: int) -> datetime:
    """Return the moment *ms* milliseconds after 1970, in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def ms_of(moment: datetime) -> int:
    """
    Return *moment* in milliseconds since 1970.

    Raises:
        BadInput: it names no zone.
    """
    if moment.tzinfo is None:
        raise BadInput("at", "must name its zone.")
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def refusal(
    agent_id: str, answer: Sequence[Any], *, epoch: int = 0, names: dict[bytes, str] | None = None
) -> ImemError:
    """
    Return the error to raise for a script's refusal.

    Args:
        answer: the refusal; they are listed in ``common.lua``, ``writing.lua`` and ``reading.lua``.
        epoch: the caller's.
        names: suffix → key as its user calls it.
    """
    whose = f"The working memory of {agent_id}"
    recover = "Recover it from its checkpoint."
    match answer:
        case [b"absent", *_]:
            return NotOpen(f"{whose} does not exist.", mend=f"Open it, or: {recover[0].lower()}{recover[1:]}")
        case [b"restoring", *_]:
            return NotOpen(f"{whose} is being restored, or a restore was broken off.", mend=recover)
        case [b"behind", seen, *_]:
            return NotOpen(f"{whose} has only seen epoch {seen}, not {epoch}.", mend=recover)
        case [b"lost", seen, *_]:
            return NotOpen(
                f"{whose} is at revision {seen}, behind what was acknowledged: the server has lost writes, as after a "
                "crash.",
                mend=recover,
            )
        case [b"stale", seen, *_]:
            return StaleEpoch(f"{whose} has been taken over with epoch {seen}; this one is {epoch}.")
        case [b"other", analysis, kind, *_]:
            return NotOpen(
                f"{whose} belongs to {kind.decode()} in the analysis {analysis.decode()!r}.",
                mend="Choose another agent id, or replace it.",
            )
        case [b"past", *_]:
            return BadInput("at", "is over by the server's clock.", mend="Is the clock of this machine right?")
        case _:
            return _about_a_key(answer, names or {})


def _about_a_key(answer: Sequence[Any], names: dict[bytes, str]) -> ImemError:
    match answer:
        case [b"kind", suffix, found, wanted]:
            holds = {b"zset": "a sorted set"}.get(found, f"a {found.decode()}")
            wants = {b"zset": "a sorted set", b"": "one of the five types"}.get(wanted, f"a {wanted.decode()}")
            return UnsupportedType(_key(names, suffix), f"holds {holds}; this needs {wants}.")
        case [b"large", suffix, size]:
            return TooLarge(
                _key(names, suffix),
                f"would bring working memory to {size:,} bytes; it holds {CAP_BYTES:,}.",
                mend="Delete what is no longer needed, or keep large things elsewhere.",
            )
        case [b"index", suffix, length]:
            return BadInput(_key(names, suffix), f"has no such item: it has {length}.")
        case [b"integer", suffix]:
            return UnsupportedType(_key(names, suffix), "holds no whole number, or the sum would pass 2^53.")
        case [b"nan", suffix]:
            return UnsupportedType(_key(names, suffix), "infinity and minus infinity have no sum.")
        case _:
            return ConsistencyError(f"The server gave an answer that no script gives: {answer!r:.200}.")


def _key(names: dict[bytes, str], suffix: bytes) -> str:
    return names.get(suffix) or suffix.decode(errors="replace")
