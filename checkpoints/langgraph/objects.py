"""
The state of objects of classes written in Python, and objects made of such a state.

The state is what the object holds: the value of the type of Python that its class is made from (such as the text of a
subclass of ``str``), its attributes and its slots. An object is made without calling its class, so that fields that the
constructor does not take, private attributes and frozen fields come back as they were, and nothing of the class runs.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from types import MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

_HEAP_TYPE: Final = 1 << 9
"""Flag of all classes that are written in Python, and of some that are not (``Py_TPFLAGS_HEAPTYPE``)."""

_FRESH: Final = (str, int, float, bytes, tuple, frozenset)
"""Types whose value is given when the object is made."""

_FILL: Final[dict[type, Callable[[Any, Any], Any]]] = {list: list.extend, set: set.update, dict: dict.update}

CONTENTS: Final = (*_FRESH, *_FILL)
"""Types of Python that a class may be made from."""


def _remembered(function: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Return a function of a class that remembers its results."""
    return cast("Callable[[type[Any]], T]", functools.lru_cache(maxsize=4096)(function))


@_remembered
def _is_python(kind: type[Any]) -> bool:
    """Whether a class is written in Python: one in C has methods of C that are its own."""
    own = (vars(kind).values()) if kind.__flags__ & _HEAP_TYPE else ()
    return bool(own) and not any(isinstance(one, _METHODS_OF_C) and one.__objclass__ is kind for one in own)


_METHODS_OF_C: Final = (MethodDescriptorType, WrapperDescriptorType)


@_remembered
def is_plain(kind: type[Any]) -> bool:
    """Whether the state of objects of the class is known: it is written in Python, and made from one type of it."""
    bases = [one for one in kind.__mro__ if not _is_python(one) and one not in {object, typing.Generic}]
    return not issubclass(kind, Enum | type) and (not bases or (len(bases) == 1 and bases[0] in CONTENTS))


@_remembered
def content_type(kind: type[Any]) -> type | None:
    """Return the type of Python that a class is made from; None where it is ``object``."""
    return next((one for one in kind.__mro__ if one in CONTENTS), None)


@_remembered
def _slots(kind: type[Any]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for one in kind.__mro__:
        if _is_python(one):
            members = {name: member for name, member in vars(one).items() if isinstance(member, MemberDescriptorType)}
            found = members | found
    return found


@_remembered
def cached(kind: type[Any]) -> frozenset[str]:
    """Return the attributes in which the class keeps what it computed once."""
    members = (member for one in kind.__mro__ for member in vars(one).items())
    return frozenset(name for name, found in members if isinstance(found, functools.cached_property))


def state_of(value: Any) -> dict[str, Any]:
    """
    Return the attributes and slots of an object by name; those that are not set are left out.

    A ``cached_property`` that was computed is among them: another call may give another value.
    """
    kind, state = type(value), dict[str, Any]()
    for name, slot in _slots(kind).items():
        try:
            state[name] = slot.__get__(value, kind)
        except AttributeError:
            continue
    attributes = _attributes(value)
    if attributes is not None:
        state |= attributes.copy()
    return state


def content_of(value: Any, base: type) -> Any:
    """Return what an object holds as the type that its class is made from, as exactly that type."""
    return _AS[base](value)


_AS: Final[Mapping[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}


def made(kind: type, content: Any, state: Mapping[str, Any]) -> Any:
    """
    Return an object of the class with that content and state.

    Fields that the class got since take their defaults, and fields of a pydantic model that it lost are left out.

    Raises:
        TypeError: the class has no place for a part of the state; names it.
    """
    base: Any = content_type(kind)
    value: Any
    if base in _FRESH:
        value = base.__new__(kind, _completed(kind, content) if base is tuple else content)
    elif base is not None:
        value = base.__new__(kind)
        _FILL[base](value, content)
    else:
        value = object.__new__(kind)
    slots, attributes = _slots(kind), _attributes(value)
    fields = getattr(kind, "__pydantic_fields__", None)
    for name, held in (_defaults(kind, state) | dict(state)).items():
        if name in slots:
            slots[name].__set__(value, held)
        elif attributes is None:
            raise TypeError(f"{kind.__qualname__} has no attribute {name!r} any more")
        elif fields is None or name in fields or name in cached(kind):
            attributes[name] = held
    return value


def _attributes(value: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found


def _completed(kind: type, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the items of a named tuple, with the defaults of fields that its class got since."""
    defaults = getattr(kind, "_field_defaults", {})
    later = getattr(kind, "_fields", ())[len(items) :]
    return items + tuple(defaults[name] for name in later if name in defaults)


def _defaults(kind: type, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of fields that the state lacks, except those that the class has as its attributes."""
    found: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        slots = _slots(kind)
        for field in dataclasses.fields(kind):
            if field.name in state:
                continue
            if field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory()
            elif field.default is not dataclasses.MISSING and field.name in slots:
                found[field.name] = field.default
    for name, info in (getattr(kind, "__pydantic_fields__", None) or {}).items():
        if name not in state and not info.is_required():
            found[name] = info.get_default(call_default_factory=True)
    return found
