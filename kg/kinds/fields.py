"""
The types of properties: one annotated type for each, used by kinds, groups and links alike.

Each carries a :class:`PropertyType` with its name, its conversions to canonical JSON and to the graph, and its JSON
Schema. The catalogue reads it from the annotation, so that a model is declared once.

Lengths are in characters. Strings are kept verbatim, except that NUL and lone surrogates, which Postgres cannot store,
are refused. Numbers are finite and -0.0 becomes 0.0; an absent value is None and left out of JSON.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, cast, final

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, StringConstraints
from pydantic_core import PydanticCustomError

from imem.journal.events.canonical import canonical_json
from imem.journal.events.ids import id_of
from imem.kg.kinds.enums import ArchiveContent

KEY_CHARS: Final = 200
SUBJECT_KEY_CHARS: Final = 180
"""A ticker or market id is shorter, so that ``company:…`` and keys derived from it fit."""
NAME_CHARS: Final = 90
"""An agent or domain is shorter and holds no ``/``, so that ``<agent>/<domain>`` fits and can be split."""
STRING_CHARS: Final = 200
TEXT_CHARS: Final = 2000
LONG_CHARS: Final = 4000
LIST_ITEMS: Final = 50
JSON_BYTES: Final = 16_384
BODY_BYTES: Final = 65_536
DEPTH: Final = 16
"""Deepest nesting of an object in a line, and of a json value."""

YEARS: Final = range(1800, 2300)
"""
Years of every time, in UTC.

Times outside are defaults of some program (year 1, 9999) or mistaken units (milliseconds read as seconds).
"""

RFC3339: Final = r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,6}0*)?(?:[Zz]|[+-]\d{2}:\d{2})"
_MOMENT = re.compile(RFC3339, re.ASCII)
NO_NUL: Final = r"^[^\x00]*$"
NAME: Final = r"^[^/\x00]*$"
SUBJECT: Final = r"^(?:company|market):[^\x00]{1,180}$"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PropertyType:
    """
    The type of a property.

    Attributes:
        name: as in the graph's specification, such as ``prob`` or ``strings``.
        schema: JSON Schema of one value in a line.
        encode: converts the model's value to canonical JSON; None where they are the same.
        store: converts the canonical value to the graph's; None where they are the same.
        fetch: converts the graph's value to the canonical one; None where they are the same.
        past: whether it is a time that may not lie in the future.
    """

    name: str
    schema: Schema = field(hash=False)
    encode: Callable[[Any], Any] | None = None
    store: Callable[[Any], Any] | None = None
    fetch: Callable[[Any], Any] | None = None
    past: bool = False


def refuse(where: str, reason: str) -> PydanticCustomError:
    """Return the error by which a validator refuses the field *where* (empty: the validated one)."""
    return PydanticCustomError("refused", "{reason}", {"where": where, "reason": reason})


# Moments


def parse_moment(value: object) -> datetime:
    """
    Return *value*, an aware datetime or RFC 3339 text, in UTC.

    Raises:
        PydanticCustomError: it is something else, names no zone, does not exist, or lies outside :data:`YEARS`.
    """
    if isinstance(value, str):
        return _parse_moment_text(value)
    if not isinstance(value, datetime):
        raise refuse("", "must be a time with its zone, such as 2026-06-01T10:27:49Z.")
    if value.utcoffset() is None:
        raise refuse("", "must name its zone; a time without one is ambiguous.")
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise _beyond() from None
    _check_year(moment)
    # A subclass, such as a data frame library's, may carry nanoseconds that its comparisons do not ignore.
    return moment if type(moment) is datetime else datetime.combine(moment.date(), moment.time(), UTC)


@lru_cache(maxsize=8192)
def _parse_moment_text(text: str) -> datetime:
    """Parse a moment; cached, since one history repeats the same moments."""
    if not _MOMENT.fullmatch(text):
        zoneless = _MOMENT.fullmatch(text + "Z")
        raise refuse(
            "",
            "must name its zone, such as a Z at the end; a time without one is ambiguous."
            if zoneless
            else "must be a time with its zone, such as 2026-06-01T10:27:49Z.",
        )
    try:
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError:
        raise _beyond() from None
    except ValueError:
        raise refuse("", "is a time that does not exist.") from None
    _check_year(moment)
    return moment


def _check_year(moment: datetime) -> None:
    if moment.year not in YEARS:
        raise _beyond()


def _beyond() -> PydanticCustomError:
    return refuse("", f"lies outside the years {YEARS[0]} to {YEARS[-1]}.")


def moment_text(moment: datetime) -> str:
    """Return an aware *moment* in the one canonical form, UTC to the microsecond: ``2026-06-01T10:27:49.000000Z``."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def dated_key(*names: str, at: str, prefix: str = "") -> str:
    """Return a key of *prefix*, names and a moment; of names that would not fit it has a digest."""
    key = f"{prefix}{'/'.join(names)}/{at}"
    return key if len(key) <= KEY_CHARS else f"{prefix}{id_of(*names)}/{at}"


def _native_moment_text(value: Any) -> str:
    """Return the graph's value (the driver's own class, or a datetime) in canonical form."""
    to_native = getattr(value, "to_native", None)
    return moment_text(to_native() if to_native is not None else value)


# JSON objects


@final
class JsonObject(Mapping[str, Any]):
    """
    A JSON object that cannot change: kept, compared and hashed as its canonical text, read as a mapping.

    Attributes:
        text: the canonical JSON.
    """

    __slots__ = ("_parsed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parsed: dict[str, Any] | None = None

    def _value(self) -> dict[str, Any]:
        if self._parsed is None:
            self._parsed = orjson.loads(self.text)
        return cast("dict[str, Any]", self._parsed)

    def __getitem__(self, name: str) -> Any:
        return self._value()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value())

    def __len__(self) -> int:
        return len(self._value())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, JsonObject):
            return self.text == other.text
        return self._value() == other

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"JsonObject({self.text})"

    def __reduce__(self) -> tuple[type[JsonObject], tuple[str]]:
        return JsonObject, (self.text,)


class _DuplicateKeyError(ValueError):
    """A key occurs twice in one object."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of one JSON object; the decoder's hook."""
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return members


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique_keys)


def decode_json(text: str) -> Any:
    """
    Return the value of a JSON text; a NaN in it is left for the field to refuse by name.

    Uses the standard library's decoder, since the fast one silently keeps the last of two equal keys.

    Raises:
        PydanticCustomError: it is no JSON, repeats a key in one object, is nested too deeply, or has too long a number.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise refuse("", f"is no JSON: {error.msg.lower()} at character {error.pos}.") from None
    except RecursionError:
        raise refuse("", f"is nested deeper than {DEPTH} levels.") from None
    except _DuplicateKeyError as error:
        raise refuse(str(error), "stands twice in one object.") from None
    except ValueError:
        raise refuse("", "holds a number of too many digits.") from None


def shown(text: str, limit: int = 60) -> str:
    """Return *text* quoted for a message: escaped where it cannot be printed, and cut to *limit* characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _clean(value: Any, depth: int) -> Any:
    """
    Return *value* made of JSON types alone, every number and string valid.

    Raises:
        PydanticCustomError: it holds what JSON, Postgres or the graph cannot.
    """
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar(value)
    if depth >= DEPTH:
        raise refuse("", f"is nested deeper than {DEPTH} levels.")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise refuse("", "has a key that is no string.")
        return {_clean_string(key): _clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, depth + 1) for item in value]
    for kind in (str, int, float):
        if isinstance(value, kind):
            return _SCALARS[kind](kind(value))
    raise refuse("", f"holds a {type(value).__name__}, for which JSON has no form.")


def _clean_string(text: str) -> str:
    if "\0" in text:
        raise refuse("", "holds a NUL character.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise refuse("", "holds a lone surrogate, which is no character.") from None
    return text


def _clean_integer(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise refuse("", "holds an integer beyond 64 bits.")
    return number


def _clean_float(number: float) -> float:
    if not math.isfinite(number):
        raise refuse("", "holds a number that is not finite.")
    return number + 0.0


def _as_is(value: Any) -> Any:
    return value


_SCALARS: Final[Mapping[type, Callable[[Any], Any]]] = {
    str: _clean_string,
    float: _clean_float,
    int: _clean_integer,
    bool: _as_is,
    type(None): _as_is,
}


def parse_json_object(value: object) -> JsonObject:
    """
    Return *value*, an object or the JSON text of one, in canonical form.

    Raises:
        PydanticCustomError: it is no object, holds what cannot be stored, or its canonical text is over 16,384 bytes.
    """
    if isinstance(value, JsonObject):
        return value
    if isinstance(value, str):
        if len(value) > 4 * JSON_BYTES:
            raise refuse("", f"is longer than {JSON_BYTES:,} bytes.")
        value = decode_json(value)
    if not isinstance(value, Mapping):
        raise refuse("", "must be an object.")
    text = canonical_json(_clean(value, 0))
    if len(text) > JSON_BYTES:
        raise refuse("", f"is longer than {JSON_BYTES:,} bytes.")
    return JsonObject(text.decode())


# The types themselves


def _string(limit: int, *, least: int = 0, pattern: str = NO_NUL) -> Schema:
    schema: Schema = {"type": "string", "maxLength": limit, "pattern": pattern.replace(r"\x00", r"\u0000")}
    return {"minLength": least, **schema} if least else schema


def _strings(item: Schema) -> Schema:
    return {"type": "array", "items": item, "maxItems": LIST_ITEMS}


def _positive_zero(number: float) -> float:
    return number + 0.0


def _list_to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


MOMENT_SCHEMA: Final[Schema] = {"type": "string", "format": "date-time", "pattern": f"^{RFC3339}$"}

Key = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=KEY_CHARS, pattern=NO_NUL),
    PropertyType("key", _string(KEY_CHARS, least=1)),
]
"""A key: 1 to 200 characters."""

SubjectKey = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=SUBJECT_KEY_CHARS, pattern=NO_NUL),
    PropertyType("key", _string(SUBJECT_KEY_CHARS, least=1)),
]
"""A ticker or market id: 1 to 180 characters."""


TICKER_SIGNS: Final = "._-^=&+$#@:!',~"
"""Signs in tickers, as in ``^GSPC``, ``EURUSD=X``, ``BRK.B``, ``M&M.NS`` and ``C:EURUSD``."""


_MARKS: Final = frozenset({"Mn", "Mc"})
"""Categories of vowels and other marks of a letter."""


def is_ticker_part(text: str) -> bool:
    """
    Return whether *text* may stand between two slashes of the ticker of a company whose memories have a namespace.

    That is ``symbol/`` and the ticker. A part has letters of any script with their marks, figures,
    :data:`TICKER_SIGNS`, and single blanks inside; it does not consist of dots alone.
    """
    marks = [unicodedata.category(one) in _MARKS for one in text]
    taken = all(
        mark or one.isalnum() or one in TICKER_SIGNS or one == " " for one, mark in zip(text, marks, strict=True)
    )
    return taken and marks[:1] != [True] and bool(text.strip(".")) and text.split(" ") == text.split()


SubjectId = Annotated[
    str,
    StringConstraints(strict=True, max_length=KEY_CHARS, pattern=SUBJECT),
    PropertyType("key", _string(KEY_CHARS, pattern=SUBJECT)),
]
"""``company:<ticker>`` or ``market:<market_id>``."""

Name = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=NAME_CHARS, pattern=NAME),
    PropertyType("key", _string(NAME_CHARS, least=1, pattern=NAME)),
]
"""The name of an agent or a domain: 1 to 90 characters without ``/``."""

ShortText = Annotated[
    str,
    StringConstraints(strict=True, max_length=STRING_CHARS, pattern=NO_NUL),
    PropertyType("string", _string(STRING_CHARS)),
]
"""At most 200 characters."""

Text = Annotated[
    str,
    StringConstraints(strict=True, max_length=TEXT_CHARS, pattern=NO_NUL),
    PropertyType("text", _string(TEXT_CHARS)),
]
"""At most 2,000 characters."""

Reason = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=TEXT_CHARS, pattern=NO_NUL),
    PropertyType("text", _string(TEXT_CHARS, least=1)),
]
"""Why something was done: 1 to 2,000 characters."""

LongText = Annotated[
    str,
    StringConstraints(strict=True, max_length=LONG_CHARS, pattern=NO_NUL),
    PropertyType("long", _string(LONG_CHARS)),
]
"""At most 4,000 characters."""

Integer = Annotated[
    int,
    Field(strict=True, ge=-(2**63), le=2**63 - 1),
    PropertyType("int", {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
]
"""A whole number of 64 bits."""

Count = Annotated[
    int,
    Field(strict=True, ge=0, le=2**63 - 1),
    PropertyType("int", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}),
]
"""A whole number of 64 bits, zero or more."""

Ordinal = Annotated[
    int,
    Field(strict=True, ge=0, le=2**31 - 1),
    PropertyType("int", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),
]
"""A place in an order: a whole number of 31 bits, zero or more."""

Places = Annotated[
    int,
    Field(strict=True, ge=-30, le=30),
    PropertyType("int", {"type": "integer", "minimum": -30, "maximum": 30}),
]
"""A number of decimal places; below zero, of zeros before the point."""

Number = Annotated[
    float,
    Field(strict=True, allow_inf_nan=False),
    AfterValidator(_positive_zero),
    PropertyType("float", {"type": "number"}, store=float),
]
"""A finite number."""

Prob = Annotated[
    float,
    Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False),
    AfterValidator(_positive_zero),
    PropertyType("prob", {"type": "number", "minimum": 0, "maximum": 1}, store=float),
]
"""A proportion, probability or confidence: a fraction between 0 and 1."""

Flag = Annotated[bool, Field(strict=True), PropertyType("bool", {"type": "boolean"})]
"""True or false, and nothing that looks like it."""

_MOMENT_TYPE: Final = PropertyType(
    "datetime", MOMENT_SCHEMA, encode=moment_text, store=datetime.fromisoformat, fetch=_native_moment_text
)

Moment = Annotated[
    datetime,
    PlainValidator(parse_moment),
    PlainSerializer(moment_text, return_type=str, when_used="json"),
    _MOMENT_TYPE,
]
"""An aware time, kept in UTC to the microsecond; it may lie in the future."""

PastMoment = Annotated[
    datetime,
    PlainValidator(parse_moment),
    PlainSerializer(moment_text, return_type=str, when_used="json"),
    replace(_MOMENT_TYPE, past=True),
]
"""A moment at which something happened: the journal refuses one in the future."""

Strings = Annotated[
    tuple[ShortText, ...],
    BeforeValidator(_list_to_tuple),
    Field(strict=True, max_length=LIST_ITEMS),
    PropertyType("strings", _strings(_string(STRING_CHARS)), encode=list, fetch=list),
]
"""At most 50 strings of at most 200 characters."""

Keys = Annotated[
    tuple[Key, ...],
    BeforeValidator(_list_to_tuple),
    Field(strict=True, max_length=LIST_ITEMS),
    PropertyType("strings", _strings(_string(KEY_CHARS, least=1)), encode=list, fetch=list),
]
"""At most 50 keys."""

Names = Annotated[
    tuple[Name, ...],
    BeforeValidator(_list_to_tuple),
    Field(strict=True, max_length=LIST_ITEMS),
    PropertyType("strings", _strings(_string(NAME_CHARS, least=1, pattern=NAME)), encode=list, fetch=list),
]
"""At most 50 names of agents or domains."""


def _words(values: Any) -> list[str]:
    return [value.value for value in values]


ArchiveContents = Annotated[
    tuple[ArchiveContent, ...],
    BeforeValidator(_list_to_tuple),
    Field(max_length=LIST_ITEMS),
    PropertyType(
        "strings[archive_content]",
        _strings({"enum": [word.value for word in ArchiveContent]}),
        encode=_words,
        fetch=list,
    ),
]
"""The contents of an archive."""

Json = Annotated[
    Mapping[str, Any],
    PlainValidator(parse_json_object),
    PlainSerializer(dict, return_type=dict[str, Any]),
    PropertyType(
        "json",
        {"anyOf": [{"type": "object"}, {"type": "string"}]},
        encode=lambda value: value.text,
    ),
]
"""An object whose canonical JSON is at most 16,384 bytes; given as an object or as its JSON text."""
