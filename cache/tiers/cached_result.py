"""
One cached result.

It lives through ``absent → loading → fresh → stale → loading``; from any of them it may be invalidated or evicted.
Fresh and stale depend on its age. Whether it is still valid is checked at each use: no dependency tag of it, and not
the epoch of the patterns that it shows, may have changed since it was loaded (:mod:`imem.cache.tiers.tag_versions`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import orjson

FORMAT_VERSION: Final = b"1"
"""Version of an encoded entry; another version is read as a miss."""

DECODED_SIZE_FACTOR: Final = 6
"""Size of a decoded value in memory, as a multiple of its encoded size; an entry may hold both."""

_SMALL: Final = 512
"""Values below this many bytes are not compressed."""


class Freshness(StrEnum):
    """How an entry may be used."""

    FRESH = "fresh"
    """It is served."""
    STALE = "stale"
    """It is served only as a fallback, with its age."""
    ABSENT = "absent"
    """It does not exist, is too old, or was invalidated."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """
    A position in the stream of changes.

    Attributes:
        server: run id of the server process that counts changes.
        number: the newest change before the load began.
    """

    server: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """
    One cached result.

    Attributes:
        value: the result, encoded.
        moment: the moment as of which it is valid.
        created_at: when it was loaded, by the loader's clock.
        fresh_until, stale_until: until when it is served, and until when it may be served as a stale fallback.
        bookmark: the changes that it includes.
        tags: its dependency tags.
        epoch: of the patterns that it shows; None where it shows none.
        negative: whether the query had no results.
        decoded_value: the value, once it was decoded in this process; immutable. None before.
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
        """Approximate size in memory: the decoded value takes several times its encoded size."""
        return len(self.value) * DECODED_SIZE_FACTOR + sum(map(len, self.tags)) + 1_000

    def state(self, now: datetime) -> Freshness:
        """Return its freshness by age alone."""
        if now < self.fresh_until:
            return Freshness.FRESH
        return Freshness.STALE if now < self.stale_until else Freshness.ABSENT

    def age_s(self, now: datetime) -> float:
        """Return its age in seconds, never below zero."""
        return max(0.0, (now - self.created_at).total_seconds())

    def encoded(self) -> bytes:
        """Return its encoding for other processes: a header line, then the value, compressed where that is smaller."""
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
        """Return the entry, or None where *data* has another version or is damaged: that counts as a miss."""
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
