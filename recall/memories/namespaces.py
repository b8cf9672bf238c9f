"""
Namespaces of memories, what a search may name of them, and who reads and writes where. Pure.

A namespace is a path of segments below ``global``, ``agent/NAME``, ``symbol/TICKER`` or ``user/NAME``. A search names
one, or with ``/*`` at the end the subtree of one, itself included. Both are compared by segments, never as patterns of
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType, Scope
from imem.journal.errors import BadInput
from imem.kg.kinds.fields import is_ticker_part

ROOTS: Final = ("global", "agent", "symbol", "user")

NAMESPACE_CHARS: Final = 1_000
"""Longest namespace, in characters; the table has the same bound."""

_SEGMENT: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]+")
"""Dots alone are none: elsewhere they mean the folder itself, and the one above."""

_SUBTREE: Final = "*"
_SHARED: Final = ("symbol", "user")
"""Roots below which every agent writes; below ``global`` it reads alone."""


@dataclass(frozen=True, slots=True)
class NamespacePattern:
    """
    The namespaces that a search covers.

    Attributes:
        segments: of a namespace or a root.
        subtree: whether what lies below it is covered too.
    """

    segments: tuple[str, ...]
    subtree: bool = True

    @property
    def scope(self) -> str:
        """Its text, by which Postgres compares (``recall.scopes_v1``)."""
        return "/".join((*self.segments, *([_SUBTREE] if self.subtree else [])))

    def covers(self, segments: tuple[str, ...]) -> bool:
        """Return whether it covers a namespace."""
        return segments == self.segments or (self.subtree and segments[: len(self.segments)] == self.segments)

    def intersection(self, other: NamespacePattern) -> NamespacePattern | None:
        """Return what both cover; None for nothing."""
        if self.segments == other.segments:
            return NamespacePattern(self.segments, self.subtree and other.subtree)
        inner, outer = (self, other) if len(self.segments) > len(other.segments) else (other, self)
        return inner if outer.covers(inner.segments) else None


EVERYTHING: Final = tuple(NamespacePattern((root,)) for root in ROOTS)


def parse_namespace(text: str) -> tuple[str, ...]:
    """
    Return the segments of a namespace.

    Raises:
        BadInput: *text* is no namespace.
    """
    segments = _segments(text)
    if len(segments) < 2 and segments != ("global",):
        raise BadInput("namespace", f"{text!r} lacks a name: {segments[0]}/NAME.")
    return segments


def parse_pattern(text: str) -> NamespacePattern:
    """
    Return what a search names: a namespace, or a subtree such as ``symbol/MU/*``.

    Raises:
        BadInput: it is neither.
    """
    if text.endswith("/" + _SUBTREE):
        return NamespacePattern(_segments(text[:-2]))
    return NamespacePattern(parse_namespace(text), subtree=False)


def _segments(text: str) -> tuple[str, ...]:
    segments = tuple(text.split("/"))
    if len(text) > NAMESPACE_CHARS:
        raise BadInput("namespace", f"has at most {NAMESPACE_CHARS} characters.")
    takes = is_ticker_part if segments[0] == "symbol" else _SEGMENT.fullmatch
    if segments[0] not in ROOTS or not all(map(takes, segments)):
        raise BadInput(
            "namespace",
            f"{text!r} is not one: segments of letters, digits, _, - and ., not of dots alone, separated by slashes.",
            mend=f"The first is {', '.join(ROOTS[:-1])} or {ROOTS[-1]}. Below symbol, segments are tickers.",
        )
    return segments


# Names that are no segments

_ESCAPED: Final = re.compile(r"\.(10[0-9a-f]{4}|[0-9a-f]{1,5})\.")
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")


def segment_of(label: str) -> str:
    """
    Return the segment that a name is written as: each character but letters, digits, ``_`` and ``-`` as ``.HEX.``.

    HEX is its code point, so that no two names are written alike.
    """
    return _UNUSUAL.sub(lambda found: f".{ord(found[0]):x}.", label)


def label_of(segment: str) -> str:
    """Return the name that a segment was written for."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), segment)


# Rights


def own_namespace(actor: Actor) -> tuple[str, ...]:
    """
    Return the namespace that is the actor's own.

    Raises:
        BadInput: its name cannot be a segment, so that it has none.
    """
    if not _SEGMENT.fullmatch(actor.id):
        raise BadInput(
            "namespace", f"is needed: {actor.id!r} has none of its own.", mend="symbol/TICKER and user/NAME are open."
        )
    return ("agent", actor.id)


def resource_of(segments: tuple[str, ...], actor: Actor, action: Action) -> Resource:
    """
    Return the resource that a namespace or root is, for the table of authorization.

    Below ``agent/NAME`` the owner is that agent. Elsewhere, where every agent may do *action*, it is the actor itself.
    """
    if segments[0] == "agent":
        owner: str | None = segments[1] if len(segments) > 1 else actor.id
    else:
        owner = actor.id if action is Action.READ or segments[0] in _SHARED else None
    return Resource(ResourceType.MEMORIES, "/".join(segments), owner)


def readable(actor: Actor) -> tuple[NamespacePattern, ...]:
    """Return everything that *actor* may read."""
    return _covered(actor, Action.READ, [root for root in ROOTS if root != "agent"])


def writable(actor: Actor) -> tuple[NamespacePattern, ...]:
    """Return everything in which *actor* may write."""
    return _covered(actor, Action.WRITE, _SHARED)


def _covered(actor: Actor, action: Action, shared: Iterable[str]) -> tuple[NamespacePattern, ...]:
    scope = AUTHORIZATION.get((actor.role, ResourceType.MEMORIES, action))
    if scope is Scope.ALL:
        return EVERYTHING
    if scope is None:
        return ()
    own = [NamespacePattern(("agent", actor.id))] if _SEGMENT.fullmatch(actor.id) else []
    return (*(NamespacePattern((root,)) for root in shared), *own)


def user_scopes(user: str) -> list[str]:
    """
    Return the subtrees below ``user`` that are a user's: of its name as imports write it, and of the name as it stands.

    The second is left out if the name cannot be a segment, or if imports write another user's name so: ``ann.40.x``
    is ``ann@x``. A name that is too long has none.
    """
    names = [segment_of(user)]
    other = label_of(user)
    # Initials read as the code of a control character, which stands in no name: "j.d.doe".
    if _SEGMENT.fullmatch(user) and not (other != user and segment_of(other) == user and other.isprintable()):
        names.append(user)
    below = [("user", name) for name in dict.fromkeys(names)]
    return [NamespacePattern(segments).scope for segments in below if len("/".join(segments)) <= NAMESPACE_CHARS]


def scopes(asked: NamespacePattern | None, allowed: Iterable[NamespacePattern]) -> list[str]:
    """Return what a search of *asked* (None: of everything) covers of what is *allowed*."""
    found = [pattern if asked is None else asked.intersection(pattern) for pattern in allowed]
    return [pattern.scope for pattern in found if pattern is not None]
