"""
Checks arguments of public methods against their signatures, before a store is asked or written.

The signature is the only declaration: a parameter annotated ``datetime | None`` takes an aware datetime or None, and
everything else is :class:`~imem.journal.errors.BadInput` that names the parameter. Constraints that a type cannot
express (a bound, a key that must exist) are checked where they are used.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import EllipsisType, FunctionType, NoneType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from imem.journal.errors import BadInput

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

LONGEST_TEXT: Final = 10_000
"""Longest text argument, in characters."""

LARGEST_INT: Final = 2**63
"""Bound of whole numbers, in either direction: 64 bits, as the stores hold them."""

CHECKED_INSIDE: Final = "checked inside"
"""Marks an annotation whose values the method itself checks, with errors of its own."""

LongText = Annotated[str, CHECKED_INSIDE]
"""Text whose bound the method itself checks."""


@dataclass(frozen=True, slots=True)
class Check:
    """
    The check of one annotation.

    Attributes:
        what: the type in words, for a message.
        fits: whether a value is of the type.
        content: refuses a value of the type that cannot be used; None where every one can.
    """

    what: str
    fits: Callable[[Any], bool]
    content: Callable[[str, Any], None] | None = None

    def __call__(self, name: str, value: Any) -> None:
        """
        Check *value*.

        Raises:
            BadInput: it is of another type, or cannot be used; names *name*.
        """
        if not self.fits(value):
            given = "None" if value is None else type(value).__name__
            raise BadInput(name, f"must be {self.what}, not {given}.")
        if self.content is not None:
            self.content(name, value)


def checks_arguments(kind: C) -> C:
    """Make every public method that the class *kind* defines check its arguments."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(kind, name, _checking(member))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(_checking(cast("FunctionType", member.__func__))))
    return kind


def checks_call(function: F) -> F:
    """Make *function*, which is no method, check its arguments."""
    checks = functools.cache(lambda: Checks.of(cast("FunctionType", function), own=0))

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        checks()(given, named)
        return function(*given, **named)

    return cast("F", called)


@dataclass(frozen=True, slots=True)
class Checks:
    """
    The checks of the arguments of one method or function.

    Attributes:
        positional: of the positional parameters, with their names.
        rest: of a variadic parameter.
        by_name: by parameter.
        names: of all parameters.
    """

    positional: Sequence[tuple[str, Check | None]]
    rest: tuple[str, Check | None]
    by_name: Mapping[str, Check]
    names: frozenset[str]

    @classmethod
    def of(cls, method: FunctionType, *, own: int = 1) -> Checks:
        """Return the checks that the signature of *method* declares; its first *own* parameters are skipped."""
        # Without the return type, which may be imported for the type checker only.
        hints = _hints_of(method, {name for name in method.__annotations__ if name != "return"})
        signature = signature_of(method)
        # Options have their annotations in the signature.
        found = {
            name: check_of(hints.get(name, one.annotation))
            for name, one in signature.parameters.items()
            if one.annotation is not one.empty
        }
        positional, rest = [], ("", cast("Check | None", None))
        for name, parameter in list(signature.parameters.items())[own:]:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                positional.append((name, found.get(name)))
            elif parameter.kind is parameter.VAR_POSITIONAL:
                rest = (name, found.get(name))
        by_name = {name: check for name, check in found.items() if check is not None}
        return cls(positional, rest, by_name, frozenset(signature.parameters))

    def __call__(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """
        Check the arguments of a call.

        Raises:
            BadInput: one is wrong; names the parameter.
            TypeError: a keyword is none of the parameters.
        """
        if unknown := sorted(named.keys() - self.names):
            raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}")
        for (name, one), value in zip(self.positional, given, strict=False):
            if one is not None:
                one(name, value)
        name, one = self.rest
        if one is not None:
            for value in given[len(self.positional) :]:
                one(name, value)
        for name, value in named.items():
            if name in self.by_name:
                self.by_name[name](name, value)


def _checking(method: FunctionType) -> Callable[..., Any]:
    """Return *method*, preceded by its checks, which are built on the first call and not on import."""
    checks = functools.cache(lambda: Checks.of(method))

    @functools.wraps(method)
    async def awaited(self: Any, /, *given: Any, **named: Any) -> Any:
        checks()(given, named)
        return await method(self, *given, **named)

    @functools.wraps(method)
    def called(self: Any, /, *given: Any, **named: Any) -> Any:
        checks()(given, named)
        return method(self, *given, **named)

    checking = awaited if inspect.iscoroutinefunction(method) else called
    if inspect.unwrap(method).__code__.co_flags & inspect.CO_VARKEYWORDS:
        checking.__signature__ = signature_of(method)  # type: ignore[union-attr] # what inspect looks for
    return checking


class _LeftOut:
    """What stands for the default of an option in a signature, as in a stub."""

    def __repr__(self) -> str:
        return "..."


_LEFT_OUT: Final = _LeftOut()


def signature_of(method: FunctionType) -> inspect.Signature:
    """Return the signature of *method*; options that a typed dictionary declares are parameters of their own."""
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        [options] = get_args(_hints_of(method, {parameters.pop().name}).popitem()[1])
        for name, note in get_type_hints(options, include_extras=True).items():
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_LEFT_OUT, annotation=note)
            )
    return signature.replace(parameters=parameters)


def _hints_of(method: FunctionType, names: Collection[str]) -> dict[str, Any]:
    """Return the annotations of *names*, evaluated."""
    annotations = types.SimpleNamespace(__annotations__={name: method.__annotations__[name] for name in names})
    # A decorator such as contextmanager belongs to another module.
    return get_type_hints(annotations, globalns=inspect.unwrap(method).__globals__, include_extras=True)


# From annotations to checks


def check_of(annotation: Any) -> Check | None:
    """
    Return the check of *annotation*; None where every value is allowed or the method itself checks.

    Raises:
        TypeError: the annotation is not supported.
    """
    origin = get_origin(annotation)
    if origin is not None:
        return _check_of_generic(annotation, origin, get_args(annotation))
    if annotation in (Any, object) or isinstance(annotation, TypeVar):
        return None
    if not isinstance(annotation, type):
        raise TypeError(f"Nothing is known about arguments of the type {annotation!r}.")
    if hasattr(annotation, "__required_keys__"):  # A TypedDict, from whichever module: no object is one.
        return _mapping(None, None)
    return _SIMPLE.get(annotation) or Check(f"a {annotation.__name__}", lambda value: isinstance(value, annotation))


def _check_of_generic(annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Check | None:
    if origin is Annotated:
        return None if CHECKED_INSIDE in arguments else check_of(arguments[0])
    if origin in (Union, types.UnionType):
        return _either([check_of(one) for one in arguments])
    if origin is type:
        return _subclass(arguments[0])
    if origin is tuple and arguments[-1] is not ...:
        return _tuple([check_of(one) for one in arguments])
    if origin is collections.abc.Callable:
        return Check("something to call", callable)
    if issubclass(origin, Mapping):
        return _mapping(*map(check_of, arguments))
    if issubclass(origin, Iterable):
        return _several(check_of(arguments[0]))
    raise TypeError(f"Nothing is known about arguments of the type {annotation!r}.")


def _either(alternatives: Sequence[Check | None]) -> Check | None:
    checks = [one for one in alternatives if one is not None]
    if len(checks) < len(alternatives):
        return None

    def content(name: str, value: Any) -> None:
        next(one for one in checks if one.fits(value))(name, value)

    words = [one.what for one in checks if one is not _SIMPLE[NoneType]]
    return Check(" or ".join(words), lambda value: any(one.fits(value) for one in checks), content)


def _subclass(base: Any) -> Check:
    def fits(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, base)

    return Check(f"a class of {base.__name__}", fits)


def _tuple(parts: Sequence[Check | None]) -> Check:
    def content(name: str, value: Any) -> None:
        if len(value) != len(parts):
            raise BadInput(name, f"must be a tuple of {len(parts)}, not of {len(value)}.")
        for position, (one, part) in enumerate(zip(value, parts, strict=True)):
            if part is not None:
                part(f"{name}.{position}", one)

    return Check(f"a tuple of {len(parts)}", lambda value: isinstance(value, tuple), content)


def _several(item: Check | None) -> Check:
    def fits(value: Any) -> bool:
        # A text is a sequence of texts itself: most likely one item was passed in place of a list.
        return isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | Mapping)

    def content(name: str, value: Any) -> None:
        if item is not None:
            for position, one in enumerate(value):
                item(f"{name}.{position}", one)

    return Check("a list", fits, content)


def _mapping(key: Check | None, item: Check | None) -> Check:
    def content(name: str, value: Any) -> None:
        for each, one in value.items():
            if key is not None:
                key(name, each)
            if item is not None:
                item(f"{name}.{each}"[:LONGEST_TEXT], one)

    return Check("a mapping", lambda value: isinstance(value, Mapping), content)


# Simple types


def check_text(name: str, value: Any) -> None:
    """
    Check text that every store can hold.

    Raises:
        BadInput: it is no text, too long, or holds NUL or half of a surrogate pair; names *name*.
    """
    _SIMPLE[str](name, value)


def check_int(name: str, value: Any) -> None:
    """
    Let pass a whole number that every store can hold.

    Raises:
        BadInput: it is none, or has more than 64 bits; names *name*.
    """
    _SIMPLE[int](name, value)


def check_number(name: str, value: Any) -> None:
    """
    Check a number, whole or not.

    Raises:
        BadInput: it is none, or NaN; names *name*.
    """
    _SIMPLE[float](name, value)


def _usable_text(name: str, value: str) -> None:
    if len(value) > LONGEST_TEXT:
        raise BadInput(name, f"is longer than {LONGEST_TEXT:,} characters.")
    if "\0" in value:
        raise BadInput(name, "holds a NUL character.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(name, "is not UTF-8: it holds half of a surrogate pair.") from None


def _usable_int(name: str, value: int) -> None:
    if not -LARGEST_INT <= value < LARGEST_INT:
        raise BadInput(name, "must be a whole number of at most 64 bits.")


def _usable_float(name: str, value: float) -> None:
    try:
        number = float(value)
    except OverflowError:
        raise BadInput(name, "is too large a number.") from None
    if math.isnan(number):
        raise BadInput(name, "must be a number, not NaN.")


def usable_moment(name: str, value: datetime) -> None:
    """
    Check a moment.

    Raises:
        BadInput: it names no zone, or lies outside the calendar in UTC; names *name*.
    """
    try:
        if value.utcoffset() is None:
            raise BadInput(name, "must name its zone; a time without one is ambiguous.")
        value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise BadInput(name, "lies outside the years 1 to 9999 in UTC.") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SIMPLE: Final[Mapping[type, Check]] = {
    NoneType: Check("None", lambda value: value is None),
    EllipsisType: Check("...", lambda value: value is ...),
    str: Check("text", lambda value: isinstance(value, str), _usable_text),
    bytes: Check("bytes", lambda value: isinstance(value, bytes)),
    bool: Check("True or False", lambda value: isinstance(value, bool)),
    int: Check("a whole number", lambda value: _is_number(value) and isinstance(value, int), _usable_int),
    float: Check("a number", _is_number, _usable_float),
    datetime: Check(
        "a datetime with its zone, such as datetime(2026, 6, 1, tzinfo=UTC)",
        lambda value: isinstance(value, datetime),
        usable_moment,
    ),
}
