"""
The one place where keys are built, from names that were checked here.

Every key of working memory begins with ``L1:{agent_id}:``. An ``agent_id`` holds no colon and no character that a
pattern could mean something by, so that no two agents ever share a key, and none can name another's. What users call
their keys is the end of a key (its *suffix*): it is never looked at and never part of a pattern, so that it may be
any text.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from imem.journal.errors import BadInput, ConsistencyError

LONGEST_KEY: Final = 200
"""Characters of a user's key, at most."""

LONGEST_ID: Final = 200
"""Characters of the id of an analysis, at most."""

_AGENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_AGENT_TYPE: Final = re.compile(r"[A-Za-z0-9_-]{1,50}")
_SUBTASK: Final = re.compile(r"[A-Za-z0-9_.#-]{1,100}")
_WORD: Final = re.compile(r"[a-z0-9_]{1,60}")

TAGS: Final = 65_536
"""Among how many numbers tags are spread; two that share one are told of together, which costs a load at most."""

CHANGES: Final = b"fas:changes"
CHANGE_STREAM: Final = b"fas:changes:told"
APPLIER_HEARTBEAT: Final = b"fas:changes:alive"
"""The keys of what has changed, on the *durable* server (cache/lua/changes.lua)."""


@dataclass(frozen=True, slots=True)
class WorkingKeys:
    """
    The keys of one instance's working memory, on the *working* server.

    Attributes:
        meta: hash: whose it is, epoch, revision, state, expiry, size.
        index: set: the suffixes of the working keys that there are.
        prefix: what each working key begins with; its suffix follows.
        scratch: what the names of copies begin with on which a script tries a batch; none outlives its script.
        knowledge: hash: what was pulled from others; beside the working keys, in no snapshot and no digest.
        pushed: hash: what became of published items, until the holder takes note; beside them likewise.
    """

    meta: bytes
    index: bytes
    prefix: bytes
    scratch: bytes
    knowledge: bytes
    pushed: bytes


@dataclass(frozen=True, slots=True)
class SnapshotKeys:
    """
    The keys of one instance's snapshot, on the *durable* server.

    Attributes:
        body: string: the document as JSON.
        meta: hash: whose it is, epoch and seq, digest, count of keys.
    """

    body: bytes
    meta: bytes


@lru_cache(maxsize=1024)
def working(agent_id: str) -> WorkingKeys:
    """
    Return the keys of the working memory of *agent_id*.

    Raises:
        BadInput: it is not 1 to 64 letters, digits, ``_`` and ``-``.
    """
    start = f"L1:{checked_agent_id(agent_id)}:".encode("ascii")
    names = (b"meta", b"keys", b"working:", b"scratch:", b"knowledge", b"pushed")
    return WorkingKeys(*(start + name for name in names))


def snapshot(agent_id: str) -> SnapshotKeys:
    """
    Return the keys of the snapshot of *agent_id*.

    Raises:
        BadInput: as :func:`working`.
    """
    name = checked_agent_id(agent_id).encode("ascii")
    return SnapshotKeys(b"fas:l1_snapshot:" + name, b"fas:l1_snapshot_meta:" + name)


def calls(agent_id: str) -> bytes:
    """
    Return the key of the durable answers of *agent_id*, on the *durable* server.

    Raises:
        BadInput: as :func:`working`.
    """
    return b"fas:l1_calls:" + checked_agent_id(agent_id).encode("ascii")


def notices(agent_id: str) -> tuple[bytes, ...]:
    """
    Return the keys of the notices that wait for *agent_id*, by tier, on the *durable* server.

    Raises:
        BadInput: as :func:`working`.
    """
    name = checked_agent_id(agent_id).encode("ascii")
    return tuple(b"imem:notices:%s:%d" % (name, tier) for tier in range(4))


NOTICES_SERVER_RUN: Final = b"imem:notices-told"
"""The run of the *durable* server for which everything that waits was queued; another run has lost some of it."""


def memory_snapshot(snapshot_id: UUID) -> bytes:
    """Return the key of the copy of a debate's snapshot, on the *durable* server."""
    return f"imem:snapshot:{snapshot_id}".encode("ascii")


def checkpoint(analysis_id: str, agent_type: str) -> bytes:
    """
    Return the key of the copy of the latest checkpoint of *agent_type* in *analysis_id*, on the *durable* server.

    The type holds no colon, so that the last one separates the two whatever the id of the analysis holds.

    Raises:
        BadInput: one of them is no such name.
    """
    analysis, kind = checked_analysis_id(analysis_id), checked_agent_type(agent_type)
    return f"checkpoint:{analysis}:{kind}".encode()


def result(analysis_id: str, agent_type: str, subtask: str) -> bytes:
    """
    Return the key of what a subtask has left in the *cache*.

    Neither type nor subtask holds a colon: the last two separate the three whatever the id of the analysis holds.

    Raises:
        BadInput: one of them is no such name.
    """
    analysis, kind = checked_analysis_id(analysis_id), checked_agent_type(agent_type)
    if not _SUBTASK.fullmatch(subtask):
        raise BadInput("subtask", f"must be 1 to 100 letters, digits, '_', '.', '#' and '-', not {_shown(subtask)}.")
    return f"result:{analysis}:{kind}:{subtask}".encode()


def answer(kind: str, schema: str, scope: str, arguments: bytes) -> bytes:
    """
    Return the key of a kept answer, on the *cache* server.

    Args:
        kind: the type of the query.
        schema: which form its value has.
        scope: whose: no two scopes ever share an answer.
        arguments: what was asked, in canonical form.

    Raises:
        ValueError: one of the first three is no word of small letters, digits and ``_``.
    """
    for word in (kind, schema, scope):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word!r} cannot be part of a key.")
    digest = hashlib.blake2b(arguments, digest_size=16).hexdigest()
    return f"answer:{kind}:{schema}:{scope}:{digest}".encode("ascii")


def loading(key: bytes) -> bytes:
    """Return the key of the lease to load the answer *key*."""
    return key + b":loading"


@lru_cache(maxsize=65_536)
def tag_number(tag: str) -> int:
    """Return the number under which changes of *tag* are counted."""
    return int.from_bytes(hashlib.blake2b(tag.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % TAGS


def suffix_of(key: object) -> bytes:
    """
    Return what the key that users call *key* ends with.

    Raises:
        BadInput: it is no text of 1 to 200 characters without NUL.
    """
    return _encoded("key", key, LONGEST_KEY)


def name_of(suffix: bytes) -> str:
    """
    Return what users call the key that ends with *suffix*.

    Raises:
        ConsistencyError: it is no text, so that something else than this product wrote it.
    """
    try:
        return suffix.decode()
    except UnicodeDecodeError as error:
        raise ConsistencyError(f"Working memory holds a key whose name is no text: {suffix[:80]!r}.") from error


def checked_agent_id(agent_id: object) -> str:
    """
    Return *agent_id*.

    Raises:
        BadInput: it is not 1 to 64 letters, digits, ``_`` and ``-``.
    """
    if not isinstance(agent_id, str) or not _AGENT_ID.fullmatch(agent_id):
        raise BadInput("agent_id", f"must be 1 to 64 letters, digits, '_' and '-', not {_shown(agent_id)}.")
    return agent_id


def checked_agent_type(agent_type: object) -> str:
    """
    Return *agent_type*.

    Raises:
        BadInput: it is not 1 to 50 letters, digits, ``_`` and ``-``.
    """
    if not isinstance(agent_type, str) or not _AGENT_TYPE.fullmatch(agent_type):
        raise BadInput("agent_type", f"must be 1 to 50 letters, digits, '_' and '-', not {_shown(agent_type)}.")
    return agent_type


def checked_analysis_id(analysis_id: str) -> str:
    """
    Return *analysis_id*.

    Raises:
        BadInput: it is no text of 1 to 200 characters without NUL.
    """
    _encoded("analysis_id", analysis_id, LONGEST_ID)
    return analysis_id


def _encoded(field: str, text: object, longest: int) -> bytes:
    if not isinstance(text, str):
        raise BadInput(field, f"must be text, not {type(text).__name__}.")
    if not 1 <= len(text) <= longest:
        raise BadInput(field, f"must have 1 to {longest} characters, not {len(text)}.")
    if "\0" in text:
        raise BadInput(field, "must not hold NUL.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(field, "must not hold half of a surrogate pair.") from error


def _shown(value: object) -> str:
    """Return what stood there, cut to what a message can show."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
