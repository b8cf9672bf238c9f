"""All operations and facets of ``Memory``, found by looking; for what is made from them."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from imem.memory import Memory
from imem.services.facets.directory import FacetDirectory
from imem.services.facets.facet import Facet
from imem.services.operations import Operation, operation_of


@functools.cache
def facets() -> Mapping[str, type[Facet]]:
    """Return the facets of ``Memory`` by name: the properties that give one."""
    found = {}
    for name, member in vars(FacetDirectory).items():
        if isinstance(member, property) and not name.startswith("_") and member.fget is not None:
            kind = hints_of(member.fget)["return"]
            if isinstance(kind, type) and issubclass(kind, Facet):
                found[name] = kind
    return found


@functools.cache
def operations() -> Sequence[Operation]:
    """Return all operations: those of ``Memory``, then those of each facet, in the order of their declaration."""
    found = []
    for kind in (*reversed(Memory.__mro__), *facets().values()):
        found += [one for member in vars(kind).values() if (one := operation_of(member)) is not None]
    return tuple(found)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """
    Return the annotations of *function*, evaluated; those of options are of their own.

    Names that its module imports for the type checker alone are imported now.
    """
    plain = inspect.unwrap(function)
    hints = typing.get_type_hints(plain, globalns=dict(_names_of(plain.__module__)), include_extras=True)
    for name, hint in list(hints.items()):
        if typing.get_origin(hint) is typing.Unpack:
            del hints[name]
            [options] = typing.get_args(hint)
            hints |= typing.get_type_hints(options, include_extras=True)
    return hints


@functools.cache
def _names_of(module: str) -> Mapping[str, Any]:
    found = dict(vars(sys.modules[module]))
    source = sys.modules[module].__file__
    if source is None:
        return found
    for node in ast.parse(Path(source).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module is not None:
                    given = import_module(line.module)
                    found |= {one.asname or one.name: getattr(given, one.name) for one in line.names}
    return found
