"""
Exact encoding of values: what is read is equal to what was put, in value and in type, however deep.

Texts, numbers, lists, and mappings with texts for keys are msgpack's own, so that most states are encoded as LangGraph
does. Every other kind is an extension of one code: a tag of the tables below, and its parts. A kind without a tag is
refused with the path at which it stands. Equal encodings are equal values: sets are ordered by their encoding.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import pathlib
import pickle
import re
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, Flag
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from imem.checkpoints.langgraph import arrays
from imem.checkpoints.langgraph.objects import cached, content_of, content_type, is_plain, state_of
from imem.checkpoints.langgraph.value_types import TypeName, name_of
from imem.journal.errors import UnsupportedType, shown

EXACT: Final = 16
"""Code of our extension; LangGraph's own are 0 to 7."""

DEEPEST: Final = 200
"""Nesting levels at most; also refuses a value that contains itself."""

_TEXT: Final = frozenset({str})
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_SURE: Final = _ATOMS - {str, int}
"""Those of which msgpack has every value: not half of a surrogate pair, and no integer beyond 64 bits."""

_ADDRESSES: Final = (
    ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network,
    ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network,
)  # fmt: skip
ADDRESSES: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in _ADDRESSES}
PATHS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in (pathlib.PosixPath, pathlib.WindowsPath)}
FACTORIES: Final[Mapping[str, Any]] = {
    kind.__name__: kind
    for kind in (
        list, dict, set, frozenset, tuple, str, bytes, int, float, bool,
        collections.deque, collections.Counter, collections.OrderedDict,
    )
}  # fmt: skip
"""The factories that a ``defaultdict`` may call, by name."""


class Unencodable(Exception):
    """
    A value that has no encoding.

    Attributes:
        steps: from the value to what holds it, the innermost first.
        reason: what is wrong.
        mend: what a person can do.
    """

    def __init__(self, reason: str, mend: str = "") -> None:
        super().__init__(reason)
        self.steps: list[str] = []
        self.reason = reason
        self.mend = mend

    def error(self, field: str) -> UnsupportedType:
        """Return it as the error of a value in *field*."""
        path = "".join(reversed(self.steps))
        shortened = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
        return UnsupportedType(field + shortened, self.reason, mend=self.mend)


_LONGEST: Final = 300
"""Characters of a path that is shown."""

_ALLOW: Final = "A type of your own is given to the saver: ImemSaver.open(allow=[…])."
_IMPORTABLE: Final = (
    "Define the class at the top of a module, or inside such a class, and give it to the saver: "
    "ImemSaver.open(allow=[…])."
)
PLAIN: Final = "Store what it is made of instead: texts, numbers, lists, mappings."


class Encoder:
    """
    Encodes one value.

    Args:
        allowed: the classes that may be stored.
        trusted: those of them whose objects are known to come back; any other sets :attr:`uncertain`.
        careful: look at every text and integer; otherwise :meth:`encode` raises TypeError for what msgpack has not.
        comes_back: says of an object of another class whether it comes back as it is; otherwise it is not asked.

    Attributes:
        uncertain: whether an object of another class was met.
    """

    def __init__(
        self,
        allowed: Collection[TypeName],
        trusted: Collection[TypeName],
        *,
        careful: bool = False,
        comes_back: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._allowed = allowed
        self._trusted = trusted
        self._careful = careful
        self._comes_back = comes_back
        self._atoms = _SURE if careful else _ATOMS
        self.uncertain = False

    def encode(self, value: object) -> bytes:
        """
        Return the bytes of a value.

        Raises:
            Unencodable: a part has no encoding.
            TypeError: a text or integer is none of msgpack's, and the encoder is not careful.
        """
        return ormsgpack.packb(self.tree(value, 0))

    def tree(self, value: Any, depth: int) -> Any:
        """Return *value* as msgpack has it; it is the same object where nothing in it is special."""
        kind = type(value)
        if kind in self._atoms:
            return value
        if depth > DEEPEST:
            raise Unencodable(f"lies more than {DEEPEST} levels deep, or contains itself.")
        if kind is list:
            return value if self._atoms.issuperset(map(type, value)) else self.items(value, depth)
        if kind is dict:
            if _TEXT.issuperset(map(type, value)) and not self._careful:
                if self._atoms.issuperset(map(type, value.values())):
                    return value
                return self._fields(value, depth)
            return self._mapping(value, depth)
        tag = _TAGS.get(kind)
        if tag is not None:
            return self._tagged(tag, *_PARTS[tag](self, value, depth))
        return self._other(value, kind, depth)

    def items(self, values: Sequence[Any], depth: int) -> list[Any]:
        """Return *values* as msgpack has them; see :meth:`tree`."""
        if self._atoms.issuperset(map(type, values)):
            return list(values)
        made: list[Any] = []
        try:
            for value in values:
                made.append(self.tree(value, depth + 1))  # noqa: PERF401 - the length is the path of a refusal
        except Unencodable as refused:
            refused.steps.append(f"[{len(made)}]")
            raise
        return made

    def _fields(self, values: dict[str, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        atoms = self._atoms
        # A copy, as another thread may change the state meanwhile.
        for name, value in values.copy().items():
            if type(value) in atoms:  # As in tree; most fields are such, and a call costs more than all the rest.
                made[name] = value
                continue
            try:
                made[name] = self.tree(value, depth + 1)
            except Unencodable as refused:
                refused.steps.append(f".{shown(name)}")
                raise
        return made

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        if self._careful and all(type(key) is str and not _has_surrogates(key) for key in value):
            return self._fields(value, depth)
        return self._tagged("dict", self.pairs(value.copy(), depth))

    def pairs(self, values: Mapping[Any, Any], depth: int) -> list[Any]:
        """Return the keys and values of a mapping, one after the other, as msgpack has them."""
        made: list[Any] = []
        for key, value in values.items():
            try:
                made += [self.tree(key, depth + 1), self.tree(value, depth + 1)]
            except Unencodable as refused:
                refused.steps.append(f".{shown(key)}" if type(key) is str else f"[{shown(repr(key))[:80]}]")
                raise
        return made

    def members(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Return the members of a set as msgpack has them, in the order of their encodings."""
        found = tuple(values)
        if _TEXT.issuperset(map(type, found)):
            return self.items(sorted(found), depth)
        return sorted(self.items(found, depth), key=ormsgpack.packb)

    def _tagged(self, tag: str, *parts: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(EXACT, ormsgpack.packb([tag, *parts]))

    def _text(self, value: str, _: int = 0) -> Any:
        return self._tagged("text", value.encode("utf-8", "surrogatepass")) if _has_surrogates(value) else value

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        if kind is str:
            return self._text(value)
        if kind is int:
            return value if -(2**63) <= value < 2**64 else self._tagged("int", hex(value))
        if arrays.is_array(value):
            return self._array(value, depth)
        if arrays.is_number(value):
            return self._number(value, depth)
        name = name_of(kind)
        if name not in self._allowed:
            raise Unencodable(f"{_shown(name)} is not on the list of types that are stored and built.", _mend(kind))
        if not _is_found(kind):
            raise Unencodable(f"{_shown(name)} is another class there: nothing could be built of it.", _IMPORTABLE)
        made = self._enum(value, kind, depth) if isinstance(value, Enum) else self._object(value, kind, depth)
        if name not in self._trusted:
            self.uncertain = True
            if self._comes_back is not None and not self._comes_back(ormsgpack.packb(made)):
                raise Unencodable(f"this {_shown(name)} would not come back as it is.", PLAIN)
        return made

    def _object(self, value: Any, kind: type, depth: int) -> Any:
        name = name_of(kind)
        if not is_plain(kind):
            raise Unencodable(f"{_shown(name)} holds what only its own program can read.", PLAIN)
        base = content_type(kind)
        content = None if base is None else self.tree(content_of(value, base), depth + 1)
        return self._tagged("object", *name, content, self._fields(state_of(value), depth))

    def _enum(self, value: Enum, kind: type[Enum], depth: int) -> Any:
        content = value._value_
        by_value = type(content) in {str, int} and _by_value(kind, content) is value
        if not by_value and kind.__members__.get(value._name_) is not value:
            raise Unencodable(f"{shown(repr(value))[:80]} is no member of {kind.__qualname__} that can be found again.")
        if by_value:
            return self._tagged("enum", *name_of(kind), self.tree(content, depth + 1))
        return self._tagged("member", *name_of(kind), self.tree(value._name_, depth + 1))

    def _array(self, value: Any, depth: int) -> Any:
        order = arrays.order_of(value)
        if value.dtype.kind == "O":
            items = self.items(value.flatten(order).tolist(), depth)
            return self._tagged("objects", list(value.shape), order, items)
        return self._tagged("array", self._dtype(value, depth), list(value.shape), order, value.tobytes(order))

    def _number(self, value: Any, depth: int) -> Any:
        if isinstance(value, str | bytes):
            plain = str.__str__(value) if isinstance(value, str) else bytes.__getitem__(value, slice(None))
            return self._tagged("numpy", self.tree(plain, depth))
        return self._tagged("number", self._dtype(value, depth), value.tobytes())

    def _dtype(self, value: Any, depth: int) -> Any:
        description = arrays.description_of(value.dtype)
        if description is None:
            raise Unencodable(
                f"an array with elements of {shown(repr(value.dtype))[:120]} has no encoding.",
                "Convert it with astype, or store its elements as a list.",
            )
        return self.tree(description, depth + 1)


def _shown(name: TypeName) -> str:
    return repr(shown(".".join(name)))


def _has_surrogates(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_found(kind: type) -> bool:
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


def _by_value(kind: type[Enum], content: str | int) -> Enum | None:
    # Without the class's own way of finding a member, except for combined flags.
    known = kind._value2member_map_.get(content)
    return kind(content) if known is None and issubclass(kind, Flag) else known


def _mend(kind: type) -> str:
    if not (issubclass(kind, Enum) or is_plain(kind)):
        return _ZONE if issubclass(kind, dt.tzinfo) else PLAIN
    return _ALLOW if _is_found(kind) else _IMPORTABLE


_ZONE: Final = "Use datetime.UTC, datetime.timezone or zoneinfo.ZoneInfo."


# Parts of the kinds that are known exactly

Parts = Callable[[Encoder, Any, int], tuple[Any, ...]]


def _deque(encoder: Encoder, value: collections.deque[Any], depth: int) -> tuple[Any, ...]:
    return encoder.items(tuple(value), depth), value.maxlen


def _defaultdict(encoder: Encoder, value: collections.defaultdict[Any, Any], depth: int) -> tuple[Any, ...]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and FACTORIES.get(name) is not factory:
        raise Unencodable(
            f"its default_factory {shown(repr(factory))[:80]} cannot be stored.",
            f"Take one of {', '.join(FACTORIES)}, or store dict(value).",
        )
    return name, encoder.pairs(value.copy(), depth)


def _datetime(encoder: Encoder, value: dt.datetime, depth: int) -> tuple[Any, ...]:
    return value.replace(tzinfo=None).isoformat(), value.fold, _zone(encoder, value.tzinfo, depth)


def _time(encoder: Encoder, value: dt.time, depth: int) -> tuple[Any, ...]:
    return value.replace(tzinfo=None).isoformat(), value.fold, _zone(encoder, value.tzinfo, depth)


def _zone(encoder: Encoder, zone: dt.tzinfo | None, depth: int) -> Any:
    try:
        return encoder.tree(zone, depth + 1)
    except Unencodable as refused:
        refused.steps.append(".tzinfo")
        raise


def _timezone(encoder: Encoder, value: dt.timezone, depth: int) -> tuple[Any, ...]:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined] # typeshed leaves it out
    return encoder.tree(offset, depth + 1), encoder.tree(name[0], depth + 1) if name else None


def _zoneinfo(_: Encoder, value: zoneinfo.ZoneInfo, __: int) -> tuple[Any, ...]:
    try:
        value.__reduce__()  # A zone does not say otherwise whether its name finds it again.
    except pickle.PicklingError:
        raise Unencodable("a zone that was read from a file is not found again by its name.", _ZONE) from None
    return (value.key,)


def _uuid(_: Encoder, value: uuid.UUID, __: int) -> tuple[Any, ...]:
    return (value.bytes,) if value.is_safe is uuid.SafeUUID.unknown else (value.bytes, value.is_safe.value)


def _own_pairs(encoder: Encoder, value: dict[Any, Any], depth: int) -> tuple[Any, ...]:
    _refuse_attributes(value)
    return (encoder.pairs(value.copy(), depth),)


def _address(_: Encoder, value: Any, __: int) -> tuple[Any, ...]:
    kind, text = type(value), str(value)
    if hasattr(value, "__dict__"):
        _refuse_attributes(value, vars(kind(text)).keys() | cached(kind))
    return kind.__name__, text


def _refuse_attributes(value: Any, known: Collection[str] = ()) -> None:
    for name in vars(value):
        if name not in known:
            kind = type(value).__name__
            refused = Unencodable(f"an attribute that was set on a value of {kind} is not stored.", _BESIDE)
            refused.steps.append(f".{shown(name)}")
            raise refused


_BESIDE: Final = "Delete it, or store it beside the value, as in a tuple of both."


def _pattern(encoder: Encoder, value: re.Pattern[Any], depth: int) -> tuple[Any, ...]:
    return encoder.tree(value.pattern, depth + 1), value.flags


_PARTS: Final[dict[str, Parts]] = {
    "tuple": lambda encoder, value, depth: (encoder.items(value, depth),),
    "bytearray": lambda _, value, __: (bytes(value),),
    "complex": lambda _, value, __: (value.real, value.imag),
    "set": lambda encoder, value, depth: (encoder.members(value, depth),),
    "frozenset": lambda encoder, value, depth: (encoder.members(value, depth),),
    "deque": _deque,
    "defaultdict": _defaultdict,
    "Counter": _own_pairs,
    "OrderedDict": _own_pairs,
    "datetime": _datetime,
    "date": lambda _, value, __: (value.year, value.month, value.day),
    "time": _time,
    "timedelta": lambda _, value, __: (value.days, value.seconds, value.microseconds),
    "timezone": _timezone,
    "zone": _zoneinfo,
    "decimal": lambda _, value, __: (str(value),),
    "uuid": _uuid,
    "pattern": _pattern,
    "delta": lambda encoder, value, depth: (encoder.tree(value.value, depth + 1),),
    "address": _address,
    "path": lambda encoder, value, depth: (type(value).__name__, encoder.tree(str(value), depth + 1)),
}

_TAGS: Final[dict[type, str]] = {
    tuple: "tuple", bytearray: "bytearray", complex: "complex", set: "set", frozenset: "frozenset",
    collections.deque: "deque", collections.defaultdict: "defaultdict", collections.Counter: "Counter",
    collections.OrderedDict: "OrderedDict", dt.datetime: "datetime", dt.date: "date",
    dt.time: "time", dt.timedelta: "timedelta", dt.timezone: "timezone",
    zoneinfo.ZoneInfo: "zone", decimal.Decimal: "decimal", uuid.UUID: "uuid", re.Pattern: "pattern",
    _DeltaSnapshot: "delta",
    **dict.fromkeys(_ADDRESSES, "address"),
    pathlib.PosixPath: "path", pathlib.WindowsPath: "path",
}  # fmt: skip
"""Type → tag, of every kind that is known exactly beside msgpack's own; exact types, no subclasses."""
