"""
Answers that several callers share cannot be changed by any of them.

Models are frozen already; here their lists and dicts are as well. They stay what they are to everybody who reads,
copies, compares or writes them down, and copies are plain ones that may be changed.
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
    Refuse to change what others see as well.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"An answer is shared with others: copy this {type(self).__bases__[0].__name__} to change it.")


class SealedList(list[Any]):
    """A list that stays as it is; a copy of it is a plain one."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return list, (list(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(one, memo) for one in self]

    def __copy__(self) -> list[Any]:
        return list(self)


class SealedDict(dict[str, Any]):
    """A dict that stays as it is; a copy of it is a plain one."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __copy__(self) -> dict[str, Any]:
        return dict(self)


_PLAIN: Final = frozenset({str, int, float, bool, type(None), datetime})
"""What holds nothing that could be changed; most of an answer."""


def sealed(model: M) -> M:
    """Return *model* itself, whose lists and dicts nobody can change from now on."""
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
    """Return the fields of a model that may hold something that could be changed: few of most."""
    return tuple(name for name, field in make.model_fields.items() if not _is_plain(field.annotation))


@cache
def _is_closed(kind: type) -> bool:
    """Return whether a value of that type is a model that holds nothing which could be changed."""
    return issubclass(kind, BaseModel) and not _open(kind)


def _is_plain(annotation: Any) -> bool:
    """Return whether whatever is of that type cannot be changed."""
    if get_origin(annotation) in {Union, UnionType}:
        return all(map(_is_plain, get_args(annotation)))
    return annotation in _PLAIN or (isinstance(annotation, type) and issubclass(annotation, Enum))
