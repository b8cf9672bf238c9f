"""
One kept answer.

It lives through ``absent → loading → fresh → stale → loading``; from any of them it may be invalidated or evicted.
Fresh and stale are a matter of age; whether it still holds is not: that its tags, and the epoch of the patterns that it
shows, have not changed since it was loaded is asked each time (:mod:`imem.cache.tiers.tag_versions`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import orjson

FORMAT_VERSION: Final = b"1"
"""The form of an encoded entry; one of another form is none."""

DECODED_SIZE_FACTOR: Final = 6
"""How many times larger an answer is in memory than written down, with both kept."""

_SMALL: Final = 512
"""Bytes below which packing gains nothing."""


class Freshness(StrEnum):
    """What an entry is good for."""

    FRESH = "fresh"
    """The answer."""
    STALE = "stale"
    """Better than none, if it says so."""
    ABSENT = "absent"
    """It is not there, too old, or no longer holds."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """
    How much of what changed an answer has seen.

    Attributes:
        server: the process that counts changes.
        number: the newest change before the load began.
    """

    server: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """
    One kept answer.

    Attributes:
        value: the answer, encoded.
        moment: the moment for which it holds.
        created_at: when it was loaded, by the loader's clock.
        fresh_until, stale_until: until when it is the answer, and until when it may stand in for one.
        bookmark: what it has seen.
        tags: what a change of invalidates it.
        epoch: of the patterns that it shows; none where it shows none.
        negative: whether it says that nothing was found.
        decoded_value: the answer itself, once it was decoded in this process, which nobody can change; none before.
    """

    value: bytes
    moment: datetime
    created_at: datetime
    fresh_until: datetime
    stale_until: datetime
    bookmark: Bookmark
    tags: tuple[str, ...]
    epoch: int | None = None
    negative: bool = False
    decoded_value: Any = None

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory: the answer itself takes several times what it takes written down."""
        return len(self.value) * DECODED_SIZE_FACTOR + sum(map(len, self.tags)) + 1_000

    def state(self, now: datetime) -> Freshness:
        """Return what it is good for by its age."""
        if now < self.fresh_until:
            return Freshness.FRESH
        return Freshness.STALE if now < self.stale_until else Freshness.ABSENT

    def age_s(self, now: datetime) -> float:
        """Return its age in seconds, never below zero."""
        return max(0.0, (now - self.created_at).total_seconds())

    def encoded(self) -> bytes:
        """Return it as other processes read it: a head of a line, then the value, packed if that gains."""
        packed = len(self.value) > _SMALL
        head: dict[str, Any] = {
            "m": _us(self.moment),
            "c": _us(self.created_at),
            "f": _us(self.fresh_until),
            "s": _us(self.stale_until),
            "b": [self.bookmark.server, self.bookmark.number],
            "t": self.tags,
            "e": self.epoch,
            "n": self.negative,
            "z": packed,
        }
        body = zlib.compress(self.value, 1) if packed else self.value
        return b"\n".join((FORMAT_VERSION, orjson.dumps(head), body))

    @classmethod
    def decoded(cls, data: bytes) -> CacheEntry | None:
        """Return the entry, or None where *data* is none that this program understands: that counts as a miss."""
        try:
            form, head, body = data.split(b"\n", 2)
            if form != FORMAT_VERSION:
                return None
            fields = orjson.loads(head)
            return cls(
                value=zlib.decompress(body) if fields["z"] else body,
                moment=_moment(fields["m"]),
                created_at=_moment(fields["c"]),
                fresh_until=_moment(fields["f"]),
                stale_until=_moment(fields["s"]),
                bookmark=Bookmark(str(fields["b"][0]), int(fields["b"][1])),
                tags=tuple(map(str, fields["t"])),
                epoch=None if fields["e"] is None else int(fields["e"]),
                negative=bool(fields["n"]),
            )
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, zlib.error):
            return None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _us(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
