"""
Blocking counterparts of asynchronous classes: each method runs the coroutine of the same name in the loop's thread.

::

    class SyncList(Twin[ListHandle]):
        append = blocking(ListHandle.append)

Type checkers see the parameters and the result of the original; ``help()`` shows its signature and its docstring,
without ``await``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from imem.blocking.portal import CoroutineRunner

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_ASYNC: Final = re.compile(r"\basync (?=def|with|for)|\bawait ")
"""The words that only the example of the coroutine has."""


class Twin(Generic[T]):
    """
    A blocking counterpart.

    Args:
        caller: runs the coroutines.
        inner: the original, made in the loop's thread.
    """

    def __init__(self, caller: CoroutineRunner, inner: T) -> None:
        self._caller = caller
        self._inner = inner


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the counterpart of a coroutine method; an override of the original's class is called, if it has one."""
    name = method.__name__

    @wraps(method)
    def called(self: Twin[Any], /, *given: P.args, **named: P.kwargs) -> R:
        result: R = self._caller.call(getattr(self._inner, name)(*given, **named))
        return result

    called.__doc__ = _ASYNC.sub("", method.__doc__ or "")
    return called
