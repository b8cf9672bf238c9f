"""
Immutable lists and dicts for answers that several callers share.

The models themselves are frozen. The lists and dicts remain subclasses of list and dict, so reading, comparing and
serialising work as before; a copy of one is a plain, mutable one.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    """
    Refuse a mutation.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"An answer is shared with others: copy this {type(self).__bases__[0].__name__} to change it.")


class SealedList(list[Any]):
    """An immutable list; its copies are plain lists."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return list, (list(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(one, memo) for one in self]

    def __copy__(self) -> list[Any]:
        return list(self)


class SealedDict(dict[str, Any]):
    """An immutable dict; its copies are plain dicts."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __copy__(self) -> dict[str, Any]:
        return dict(self)


_PLAIN: Final = frozenset({str, int, float, bool, type(None), datetime})
"""Immutable types that most values of an answer have."""


def sealed(model: M) -> M:
    """Make the lists and dicts of *model* immutable, in place, and return it."""
    values = model.__dict__
    for name in _open(type(model)):
        value = values[name]
        if type(value) not in _PLAIN:
            values[name] = _sealed(value)
    return model


def _sealed(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        plain = all(one in _PLAIN or _is_closed(one) for one in set(map(type, value)))
        return SealedList(value if plain else [one if type(one) in _PLAIN else _sealed(one) for one in value])
    if kind is dict:
        if _PLAIN.issuperset(map(type, value.values())):
            return SealedDict(value)
        return SealedDict({key: one if type(one) in _PLAIN else _sealed(one) for key, one in value.items()})
    return sealed(value) if isinstance(value, BaseModel) else value


@cache
def _open(make: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a model that may hold mutable values."""
    return tuple(name for name, field in make.model_fields.items() if not _is_plain(field.annotation))


@cache
def _is_closed(kind: type) -> bool:
    """Return whether *kind* is a model without mutable fields."""
    return issubclass(kind, BaseModel) and not _open(kind)


def _is_plain(annotation: Any) -> bool:
    """Return whether every value of that type is immutable."""
    if get_origin(annotation) in {Union, UnionType}:
        return all(map(_is_plain, get_args(annotation)))
    return annotation in _PLAIN or (isinstance(annotation, type) and issubclass(annotation, Enum))
