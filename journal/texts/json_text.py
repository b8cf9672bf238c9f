"""
JSON texts of callers' values that Postgres and the copy return unchanged.

JSONB keeps numbers as decimals and texts without NUL: a float beyond 1e16 would come back as an integer, NaN and NUL
not at all, and a non-text key under another name. So floats are written without an exponent and always with a point,
and whatever has no form is refused, by name, before anything is written.

:func:`json_text` changes two things, on purpose: a tuple becomes a list, as a text or number of a class of its own
becomes a plain one, and negative zero becomes zero. Values that must come back in their types are checked by
:func:`check_exact` as well, or made by :func:`exact_text`; negative zero is equal to zero there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, cast

from imem.journal.errors import BadInput, TooLarge

MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of UTF-8 of one value at most."""

DEEPEST: Final = 64
"""Nesting levels at most; also refuses a value that contains itself."""

LONGEST_NUMBER_BITS: Final = 4096
"""Bits of an integer at most: what every JSON reader in Python accepts."""


_Container = Mapping[Any, object] | list[object] | tuple[object, ...]


def json_text(value: object, field: str) -> str:
    """
    Return *value* as JSON text; keys are sorted, so that equal content is equal text.

    Raises:
        BadInput: a part of it has no form in JSON; names where, beginning with *field*.
        TooLarge: it takes more than :data:`MOST_BYTES`.
    """
    parts: list[str] = []
    _add(value, field, 0, parts)
    text = "".join(parts)
    size = len(text) if text.isascii() else len(text.encode())
    if size > MOST_BYTES:
        raise TooLarge(field, f"takes {size} bytes as JSON, more than {MOST_BYTES}.")
    return text


def object_text(value: object, field: str) -> str:
    """
    Return *value*, which must be an object, as JSON text.

    Raises:
        BadInput, TooLarge: as :func:`json_text`.
    """
    if not isinstance(value, Mapping):
        raise BadInput(field, f"must be an object, not {type(value).__name__}.")
    return json_text(value, field) if value else "{}"


def exact_text(value: object, field: str) -> str:
    """
    Return *value* as JSON text that comes back equal in value and type.

    Raises:
        BadInput, TooLarge: as :func:`json_text`, and as :func:`check_exact`.
    """
    check_exact(value, field)
    return json_text(value, field)


def exact_object_text(value: object, field: str) -> str:
    """
    Return *value*, which must be an object, as JSON text that comes back equal in value and type.

    Raises:
        BadInput, TooLarge: as :func:`exact_text`.
    """
    check_exact(value, field)
    return object_text(value, field)


def check_exact(value: object, field: str, depth: int = 0) -> None:
    """
    Check that JSON returns *value* in the types that it has.

    They are ``dict`` with texts for keys, ``list``, ``str``, ``int``, ``float``, ``bool`` and None, and no class made
    from them. A type that JSON has no form for is left to the encoder.

    Raises:
        BadInput: a part would come back as another type, or lies too deep; names where, beginning with *field*.
    """
    kind = type(value)
    if kind in _EXACT:
        return
    if depth == DEEPEST:
        raise BadInput(field, f"lies more than {DEEPEST} levels deep.")
    if kind is list:
        for number, one in enumerate(cast("list[object]", value)):
            if type(one) not in _EXACT:
                check_exact(one, f"{field}[{number}]", depth + 1)
    elif kind is dict:
        for key, one in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise BadInput(field, f"has a key of the type {type(key).__name__}; keys are text.")
            if type(one) not in _EXACT:
                check_exact(one, f"{field}.{key}", depth + 1)
    else:
        _refuse_class(value, field)


def _refuse_class(value: object, field: str) -> None:
    plain = next((name for base, name in _PLAIN if isinstance(value, base)), None)
    if plain is not None:
        named = type(value).__name__
        raise BadInput(field, f"is of the type {named}, which would come back as {plain}.", mend=f"Give it as {plain}.")


_EXACT: Final = frozenset({str, int, float, bool, type(None)})
_PLAIN: Final = (
    (str, "a text (str)"), (int, "a number (int)"), (float, "a number (float)"),
    (list | tuple, "a list"), (Mapping, "a dict"),
)  # fmt: skip


def value_of(text: str) -> Any:
    """Return the value of a text made by :func:`json_text`."""
    return json.loads(text) if text != "{}" else {}


def _add(value: object, field: str, depth: int, parts: list[str]) -> None:
    match value:
        case None:
            parts.append("null")
        case bool():
            parts.append("true" if value else "false")
        case str():
            parts.append(_text(value, field))
        case int():
            if value.bit_length() > LONGEST_NUMBER_BITS:
                raise BadInput(field, f"is an integer of more than {LONGEST_NUMBER_BITS} bits; write it as text.")
            parts.append(int.__repr__(value))
        case float():
            parts.append(_number(value, field))
        case Mapping() | list() | tuple():
            if depth == DEEPEST:
                raise BadInput(field, f"lies more than {DEEPEST} levels deep.")
            _add_all(value, field, depth + 1, parts)
        case _:
            raise BadInput(field, f"is of the type {type(value).__name__}, which JSON has no form for.")


def _add_all(value: _Container, field: str, depth: int, parts: list[str]) -> None:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadInput(field, f"has a key of the type {type(key).__name__}; keys are text.")
        parts.append("{")
        # Sorted, as JSONB has an order of its own: equal content is equal text.
        for number, key in enumerate(sorted(value)):
            parts += ["," if number else "", _text(key, field), ":"]
            _add(value[key], f"{field}.{key}", depth, parts)
        parts.append("}")
    else:
        parts.append("[")
        for number, one in enumerate(value):
            parts.append("," if number else "")
            _add(one, f"{field}[{number}]", depth, parts)
        parts.append("]")


def _text(text: str, field: str) -> str:
    if "\0" in text:
        raise BadInput(field, "holds a NUL character, which Postgres cannot keep.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(field, "holds half of a surrogate pair, which is no text.") from None
    return json.dumps(str(text), ensure_ascii=False)


def _number(number: float, field: str) -> str:
    if not math.isfinite(number):
        raise BadInput(field, "is not a finite number, which JSON has no form for.")
    text = float.__repr__(number + 0.0)
    if "e" in text:
        text = format(Decimal(text), "f")
    return text if "." in text else f"{text}.0"
