"""The public surface, found by looking: what ``imem`` gives to programs, and what that gives in turn."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from imem.alerts.notifiers import verify
from imem.blocking.memory import SyncMemory
from imem.checkpoints.orchestration.programs import program
from imem.checkpoints.versions import CheckpointMigrations
from imem.journal.settings import Settings
from imem.journal.telemetry.correlation import correlated
from imem.kg.kinds.metrics import Metric, register
from imem.langgraph import ImemSaver
from imem.memory import Memory

ROOTS = (Memory, SyncMemory, Settings, ImemSaver, CheckpointMigrations)
CONSTRUCTED = (ImemSaver, CheckpointMigrations, Metric)
"""Classes that programs make objects of by themselves, beside the models."""

FUNCTIONS: tuple[Callable[..., Any], ...] = (correlated, program, register, verify)
"""What programs call that belongs to no class."""

OURS = frozenset(
    {"imem", "journal", "kg", "cache", "checkpoints", "sync", "recall", "postmortem", "debates", "credibility"}
)


@functools.cache
def names_of(module: str) -> Mapping[str, Any]:
    """Every name of *module*, with those that it imports for its annotations alone."""
    found = dict(vars(sys.modules[module]))
    source = sys.modules[module].__file__
    assert source is not None
    for node in ast.parse(Path(source).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                assert line.module is not None
                found |= {one.name: getattr(import_module(line.module), one.name) for one in line.names}
    return found


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of *function*, evaluated."""
    plain = inspect.unwrap(function)
    # A class may have methods that are called like types: ``list``.
    hints = typing.get_type_hints(plain, globalns=dict(names_of(plain.__module__)), include_extras=True)
    for name, hint in list(hints.items()):
        if typing.get_origin(hint) is typing.Unpack:  # Options: each is a parameter of its own.
            del hints[name]
            [options] = typing.get_args(hint)
            hints |= typing.get_type_hints(options, include_extras=True)
    return hints


def classes_in(annotation: Any) -> Iterator[type]:
    """The classes of ours that *annotation* names."""
    if isinstance(annotation, type) and annotation.__module__.partition(".")[0] in OURS:
        yield annotation
    for part in typing.get_args(annotation):
        yield from classes_in(part)


def ours(function: Callable[..., Any]) -> bool:
    """Whether *function* was written here, and not inherited from a library."""
    return str(getattr(inspect.unwrap(function), "__module__", "")).partition(".")[0] in OURS


def getters_of(kind: type) -> Iterator[Callable[..., Any]]:
    """What is called when a public property of *kind* is read."""
    for name, member in inspect.getmembers_static(kind):
        if not name.startswith("_"):
            match member:
                case property(fget=getter) if getter is not None and ours(getter):
                    yield getter
                case functools.cached_property(func=getter) if ours(getter):
                    yield getter


def methods_of(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of *kind* that are ours, as an instance has them; a class method is one of the class."""
    return {
        name: getattr(kind, name)
        for name, member in inspect.getmembers_static(kind)
        if not name.startswith("_")
        and callable(getattr(kind, name))
        and not isinstance(member, type)
        and ours(getattr(kind, name))
    }


@functools.cache
def public_classes() -> tuple[type, ...]:
    """The roots, and every class of ours that a method or property of one of them gives."""
    found: dict[type, None] = {}
    waiting = list(ROOTS)
    while waiting:
        kind = waiting.pop()
        if kind in found:
            continue
        found[kind] = None
        for function in (*methods_of(kind).values(), *getters_of(kind)):
            waiting += classes_in(hints_of(function).get("return"))
    return tuple(sorted(found, key=lambda one: (one.__module__, one.__qualname__)))


def public_methods() -> list[tuple[type, str]]:
    """Every public method of every public class."""
    return [(kind, name) for kind in public_classes() for name in methods_of(kind)]
