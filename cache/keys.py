"""
Build every key of Valkey from names that are checked here.

Every key of working memory begins with ``L1:{agent_id}:``. An ``agent_id`` holds no colon and no pattern character, so
that two agents never share a key. The part of a key that users choose is its end (its *suffix*). It is never parsed and
never part of a pattern, so that it may be any text.
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
"""Numbers that tags are hashed to. Two tags that share one are invalidated together, which costs one load at most."""

CHANGES: Final = b"fas:changes"
CHANGE_STREAM: Final = b"fas:changes:stream"
APPLIER_HEARTBEAT: Final = b"fas:changes:alive"
"""Keys of the invalidation of cached results, on the *durable* server (cache/lua/changes.lua)."""


@dataclass(frozen=True, slots=True)
class WorkingKeys:
    """
    The keys of one instance's working memory, on the *working* server.

    Attributes:
        meta: hash: owner, epoch, revision, state, expiry, size.
        index: set: the suffixes of the existing working keys.
        prefix: what each working key begins with; its suffix follows.
        scratch: prefix of the copies on which a script tries a batch; deleted before the script ends.
        knowledge: hash: updates pulled from other agents; in no snapshot and no digest.
        pushed: hash: results of pushes until the holder reads them; in no snapshot and no digest.
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
        meta: hash: owner, epoch and seq, digest, count of keys.
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
    Return the key of the durable results of paid calls of *agent_id*, on the *durable* server.

    Raises:
        BadInput: as :func:`working`.
    """
    return b"fas:l1_calls:" + checked_agent_id(agent_id).encode("ascii")


def notices(agent_id: str) -> tuple[bytes, ...]:
    """
    Return the keys of the pending notices of *agent_id*, by tier, on the *durable* server.

    Raises:
        BadInput: as :func:`working`.
    """
    name = checked_agent_id(agent_id).encode("ascii")
    return tuple(b"imem:notices:%s:%d" % (name, tier) for tier in range(4))


NOTICES_SERVER_RUN: Final = b"imem:notices-run"
"""Key of the run id of the *durable* server for which all notices were queued. After a restart, some are lost."""


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
    Return the key of a subtask's result, on the *cache* server.

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
    Return the key of a cached result, on the *cache* server.

    Args:
        kind: the type of the query.
        schema: version of the value's encoding.
        scope: the owner; two scopes never share a cached result.
        arguments: the query's arguments, in canonical form.

    Raises:
        ValueError: one of the first three is no word of small letters, digits and ``_``.
    """
    for word in (kind, schema, scope):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word!r} cannot be part of a key.")
    digest = hashlib.blake2b(arguments, digest_size=16).hexdigest()
    return f"answer:{kind}:{schema}:{scope}:{digest}".encode("ascii")


def loading(key: bytes) -> bytes:
    """Return the key of the lease to load the cached result *key*."""
    return key + b":loading"


@lru_cache(maxsize=65_536)
def tag_number(tag: str) -> int:
    """Return the number that *tag* is hashed to."""
    return int.from_bytes(hashlib.blake2b(tag.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % TAGS


def suffix_of(key: object) -> bytes:
    """
    Return the suffix of the key that users call *key*.

    Raises:
        BadInput: it is no text of 1 to 200 characters without NUL.
    """
    return _encoded("key", key, LONGEST_KEY)


def name_of(suffix: bytes) -> str:
    """
    Return the user's name of the key that ends with *suffix*.

    Raises:
        ConsistencyError: it is not UTF-8, so that another program wrote it.
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
    """Return *value* as text, shortened for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
