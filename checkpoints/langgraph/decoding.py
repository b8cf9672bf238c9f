"""
Decoding of values: of our extension (:mod:`.encoding`), and of the rows that LangGraph's own serializer would write.

A row may name classes of a list. All of a row is checked before any of it is built: what it must not name is not even
imported.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import re
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Mapping
from enum import Enum, Flag
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from imem.checkpoints.langgraph import arrays
from imem.checkpoints.langgraph.encoding import ADDRESSES, EXACT, FACTORIES, PATHS
from imem.checkpoints.langgraph.objects import is_plain, made
from imem.checkpoints.langgraph.value_types import TypeName, find
from imem.journal.errors import ImemError, UnsupportedType

_METHODS: Final = frozenset({("datetime", "datetime", "fromisoformat")})
"""Methods that a row of LangGraph's may name, in addition to constructors."""

_CONSTRUCTORS: Final = frozenset({0, 1, 2, 4, 5})
_METHOD: Final = 3
_ARRAY: Final = 6
_DELTA: Final = 7
"""Codes of objects in LangGraph's msgpack (``langgraph.checkpoint.serde.jsonplus``)."""

_CLASSES: Final = frozenset({"object", "enum", "member"})
"""Tags of our extension that a module and a name follow."""

Hook = Callable[[int, bytes], Any]


def decode(packed: bytes, allowed: Collection[TypeName], theirs: Hook) -> Any:
    """
    Return a value.

    Args:
        allowed: the classes that may be built.
        theirs: builds what LangGraph's serializer wrote.

    Raises:
        UnsupportedType: the row names another class, or its class does not take what is stored; names it.
    """
    looked = _Look(allowed)
    plain = _unpacked(packed, looked)
    if not looked.met:
        return plain
    if looked.refused:
        raise UnsupportedType(
            "value",
            f"{looked.refused[0]!r} is not on the list of types that are stored and built.",
            mend="A type of your own is given to the saver: ImemSaver.open(allow=[…]).",
        )
    return _Build(theirs).value(packed)


def _unpacked(packed: bytes, hook: Hook) -> Any:
    return ormsgpack.unpackb(packed, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)


def _tag_of(header: Any) -> str | None:
    return header[0] if isinstance(header, list) and header and isinstance(header[0], str) else None


class _Look:
    """
    A hook that checks every object, however deep, and builds none.

    Attributes:
        met: whether there is any.
        refused: the names of those that must not be built. They are recorded, as msgpack swallows a hook's exception.
    """

    def __init__(self, allowed: Collection[TypeName]) -> None:
        self._allowed = allowed
        self.met = False
        self.refused: list[str] = []

    def __call__(self, code: int, inner: bytes) -> None:
        self.met = True
        if code == _ARRAY:
            return  # Numbers, by type and shape: names no class.
        header = _unpacked(inner, self)
        if (
            code == EXACT
            and isinstance(header, list)
            and header
            and isinstance(header[0], str)
            and header[0] in _SIMPLE
        ):
            return
        if code != _DELTA and not self._is_allowed(code, header):
            names: list[Any] = header if isinstance(header, list) else [f"an object of the code {code}"]
            of_class = code == EXACT and _tag_of(header) in _CLASSES
            names = names[1:3] if of_class else names[:2]
            self.refused.append(".".join(map(str, names))[:200])

    def _is_allowed(self, code: int, header: Any) -> bool:
        if code == EXACT and _tag_of(header) in _SIMPLE:
            return True  # Most of them; quicker than a pattern.
        match header:
            case [str(tag), str(module), str(name), *_] if code == EXACT and tag in _CLASSES:
                return (module, name) in self._allowed
            case [str(module), str(name), _, *_] if code in _CONSTRUCTORS:
                return (module, name) in self._allowed
            case [str(module), str(name), _, str(method)] if code == _METHOD:
                return (module, name, method) in _METHODS
            case _:
                return False


class _Build:
    """Builds what was looked through."""

    def __init__(self, theirs: Hook) -> None:
        self._theirs = theirs
        self._errors: list[ImemError] = []

    def value(self, packed: bytes) -> Any:
        try:
            return _unpacked(packed, self._hook)
        except Exception:  # raised again, or what the hook raised: msgpack says only that a hook failed
            if self._errors:
                raise self._errors[0] from None
            raise

    def _hook(self, code: int, inner: bytes) -> Any:
        if code == _DELTA:
            return _DeltaSnapshot(_unpacked(inner, self._hook))
        if code != EXACT:
            return self._theirs(code, inner)
        tag, *parts = _unpacked(inner, self._hook)
        try:
            return _BUILDERS[tag](*parts)
        except Exception as error:  # a class's own code may raise anything: it is raised again, with the class's name
            named = ".".join(map(str, parts[:2])) if tag in _CLASSES else tag
            self._errors.append(
                UnsupportedType(
                    "value",
                    f"a stored {named[:200]!r} cannot be built: {error}.",
                    mend="Read it with the version of the program that stored it.",
                )
            )
            raise


def _class(module: str, name: str) -> type:
    found = find(module, name)
    if found is None:
        raise TypeError("there is no such class any more")
    return found


def _object(module: str, name: str, content: Any, state: Mapping[str, Any]) -> Any:
    kind = _class(module, name)
    if not is_plain(kind):
        raise TypeError("it is not made of attributes")
    return made(kind, content, state)


def _enum(module: str, name: str, content: Any) -> Any:
    kind = _class(module, name)
    if not issubclass(kind, Enum):
        raise TypeError("it is no enumeration any more")
    known = kind._value2member_map_.get(content)
    if known is None:
        if not issubclass(kind, Flag):
            raise TypeError(f"it has no member of the value {content!r} any more")
        return kind(content)
    return known


def _member(module: str, name: str, member: str) -> Any:
    kind = _class(module, name)
    if not issubclass(kind, Enum) or member not in kind.__members__:
        raise TypeError(f"it has no member {member!r} any more")
    return kind.__members__[member]


def _dict(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _timezone(offset: dt.timedelta, name: str | None) -> dt.timezone:
    return dt.timezone(offset) if name is None else dt.timezone(offset, name)


_BUILDERS: Final[Mapping[str, Callable[..., Any]]] = {
    "object": _object,
    "enum": _enum,
    "member": _member,
    "text": lambda data: data.decode("utf-8", "surrogatepass"),
    "int": lambda digits: int(digits, 16),
    "dict": _dict,
    "tuple": tuple,
    "bytearray": bytearray,
    "complex": complex,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "defaultdict": lambda name, flat: collections.defaultdict(None if name is None else FACTORIES[name], _dict(flat)),
    "Counter": lambda flat: collections.Counter(_dict(flat)),
    "OrderedDict": lambda flat: collections.OrderedDict(_dict(flat)),
    "datetime": lambda text, fold, zone: dt.datetime.fromisoformat(text).replace(fold=fold, tzinfo=zone),
    "date": dt.date,
    "time": lambda text, fold, zone: dt.time.fromisoformat(text).replace(fold=fold, tzinfo=zone),
    "timedelta": dt.timedelta,
    "timezone": _timezone,
    "zone": zoneinfo.ZoneInfo,
    "decimal": decimal.Decimal,
    "uuid": lambda data, safe=None: uuid.UUID(bytes=data, is_safe=uuid.SafeUUID(safe)),
    "pattern": re.compile,
    "delta": _DeltaSnapshot,
    "address": lambda name, text: ADDRESSES[name](text),
    "path": lambda name, text: PATHS[name](text),
    "array": arrays.array_of,
    "objects": arrays.objects_of,
    "number": arrays.number_of,
    "numpy": arrays.text_of,
}
"""Tag → what builds a value of its parts."""

_SIMPLE: Final = frozenset(_BUILDERS) - _CLASSES
"""Tags that name no class."""
