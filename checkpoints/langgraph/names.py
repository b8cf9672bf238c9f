"""
Encoding of ids of any characters for Postgres, and of metadata for searches.

Postgres' text holds neither NUL nor a lone surrogate, and its jsonb no NaN. Names are written with a backslash before
such characters and before the backslash itself: different names are written differently, and names without any of these
are unchanged, so that they are readable in the tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from imem.journal.arguments import CHECKED_INSIDE
from imem.journal.errors import BadInput, TooLarge, UnsupportedType

Name = Annotated[str, CHECKED_INSIDE]
"""A name of any characters; other types are converted to text, as LangGraph does."""

LONGEST: Final[Mapping[str, int]] = {
    "thread_id": 512,
    "checkpoint_ns": 1024,
    "checkpoint_id": 256,
    "channel": 512,
    "version": 128,
    "task_id": 256,
    "task_path": 100_000,
    "run_id": 512,
}
"""Name of a field → bytes as written at most: a key of an index holds 2,704 of them in all."""

_REFUSED: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_WRITTEN: Final = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def _write_one(found: re.Match[str]) -> str:
    character = found[0]
    match character:
        case "\\":
            return "\\\\"
        case "\x00":
            return "\\0"
        case _:
            return f"\\u{ord(character):04x}"


def _read_one(found: re.Match[str]) -> str:
    code = found[1]
    return "\\" if code == "\\" else "\x00" if code == "0" else chr(int(code[1:], 16))


def escaped(text: str) -> str:
    """Return *text* with every character escaped that Postgres refuses."""
    return _REFUSED.sub(_write_one, text) if _REFUSED.search(text) else text


def written(field: str, value: object) -> str:
    """
    Return a name as it is stored; other types, such as numbers and UUIDs, are converted to text, as LangGraph does.

    Raises:
        BadInput: it is None, bytes, or a collection.
        TooLarge: it is longer than :data:`LONGEST` allows.
    """
    if not isinstance(value, str) and isinstance(value, None | bytes | bytearray | Collection):
        raise BadInput(field, f"must be text, not {'None' if value is None else type(value).__name__}.")
    text = escaped(value if type(value) is str else str(value))
    longest = LONGEST[field]
    if len(text) > longest or (not text.isascii() and len(text.encode()) > longest):
        raise TooLarge(field, f"is longer than {longest:,} bytes")
    return text


def read(text: str) -> str:
    """Return the name that was stored as *text*."""
    return _WRITTEN.sub(_read_one, text) if "\\" in text else text


def packed(serde: SerializerProtocol, field: str, value: object) -> tuple[str, bytes]:
    """
    Return the kind and the bytes of a value by *serde*.

    Raises:
        UnsupportedType: *serde* cannot encode it, such as a function; names the part of *field*.
    """
    try:
        return serde.dumps_typed(value)
    except UnsupportedType as error:
        raise UnsupportedType(f"{field}{error.field.removeprefix('value')}", error.reason, mend=error.mend) from error
    except TypeError as error:
        raise UnsupportedType(field, f"cannot be serialized: {error}") from error


def version(value: object) -> str:
    """Return a channel's version as it is stored; a number is never equal to its text."""
    match value:
        case str():
            return written("version", value)
        case int() | float():
            return f"\\n{value!r}"
        case _:
            raise BadInput("channel_versions", f"{type(value).__name__} is no type of a version")


def searchable(metadata: Mapping[str, Any], serde: SerializerProtocol) -> str:
    """
    Return *metadata* as JSON that jsonb holds: equal values become equal JSON, and different ones different JSON.

    What JSON cannot hold becomes a text that no other text is written as (one backslash): a NaN or infinity, bytes, and
    for any other object the digest of its encoding by the serializer.
    """
    return json.dumps(_askable(metadata, serde), allow_nan=False)


def _askable(value: Any, serde: SerializerProtocol) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return escaped(str(value))
        case float():
            return value if value - value == 0 else f"\\f{value!r}"
        case list() | tuple():
            return [_askable(one, serde) for one in value]
        case Mapping():
            return {_key(key): _askable(one, serde) for key, one in value.items()}
        case bytes():
            return f"\\b{value.hex()}"
        case _:
            kind, body = packed(serde, "metadata", value)
            return f"\\o{kind}:{hashlib.sha256(body).hexdigest()}"


def _key(key: object) -> str:
    return escaped(key) if isinstance(key, str) else f"\\k{escaped(repr(key))}"
