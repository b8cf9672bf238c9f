"""
Types that a saver stores and builds: those of every saver, and those that a program adds.

A class is known by its module and its qualified name: a class inside a class is ``("module", "Outer.Inner")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

from imem.journal.arguments import CHECKED_INSIDE
from imem.journal.errors import BadInput, shown

TypeName = tuple[str, ...]
"""Module and qualified name of a type."""

Allow = Annotated[Iterable[type | TypeName | str], CHECKED_INSIDE]
"""Types of the user's program: classes, their modules and names, or both in one text as in ``module.Class``."""

_MESSAGES: Final = {
    "base": ("BaseMessage", "BaseMessageChunk"),
    "human": ("HumanMessage", "HumanMessageChunk"),
    "ai": ("AIMessage", "AIMessageChunk"),
    "system": ("SystemMessage", "SystemMessageChunk"),
    "chat": ("ChatMessage", "ChatMessageChunk"),
    "tool": ("ToolMessage", "ToolMessageChunk"),
    "function": ("FunctionMessage", "FunctionMessageChunk"),
    "modifier": ("RemoveMessage",),
}

ALLOWED: Final[frozenset[TypeName]] = frozenset(
    (module, name)
    for module, names in {
        "builtins": ("set", "frozenset"),
        "collections": ("deque",),
        "datetime": ("datetime", "date", "time", "timedelta", "timezone"),
        "decimal": ("Decimal",),
        "ipaddress": (
            "IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network",
        ),
        "pathlib": ("Path", "PosixPath", "WindowsPath"),
        "pathlib._local": ("Path", "PosixPath", "WindowsPath"),
        "re": ("compile",),
        "uuid": ("UUID",),
        "zoneinfo": ("ZoneInfo",),
        "langgraph.store.base": ("Item", "GetOp"),
        "langgraph.types": (
            "Command", "Interrupt", "Overwrite", "PregelTask", "Send", "StateSnapshot", "TimeoutPolicy",
        ),
        "langchain_core.documents.base": ("Document",),
        **{f"langchain_core.messages.{module}": names for module, names in _MESSAGES.items()},
    }.items()
    for name in names
)  # fmt: skip
"""The types that every saver builds: values of the standard library, and what LangGraph's own states are made of."""

OURS: Final[frozenset[TypeName]] = frozenset(
    ("imem.recall.signals.model", name)
    for name in ("AgentMemory", "AgentSignal", "ErrorKind", "SignalDirection", "SubjectKind")
) | {("langchain_core.messages.base", "TextAccessor")}
"""The types in the state of our own nodes (:func:`imem.langgraph.memory_node`), and the text of a message."""


def name_of(kind: type | TypeName) -> TypeName:
    """Return the name by which a class is known."""
    return (kind.__module__, kind.__qualname__) if isinstance(kind, type) else kind


def find(module: str, name: str) -> type | None:
    """
    Return the class of that module and qualified name; None where there is none. Imports the module.

    Raises:
        ImportError, TypeError, ValueError: the module cannot be imported.
    """
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


class TypeNames(frozenset[TypeName]):
    """Modules and names of types that were checked already."""

    __slots__ = ()


def types_of(allow: object) -> TypeNames:
    """
    Return the modules and names of the types in *allow*.

    Each entry is a class, a text such as ``"module.Class"`` or ``"module.Outer.Inner"``, or the pair
    ``(module, name)``. A class that is known by another name than its own counts by both: rows from before a move name
    the old one.

    Raises:
        BadInput: it is no list of these, or an entry is no class that can be imported by its name; names the entry.
    """
    if isinstance(allow, TypeNames):
        return allow
    if isinstance(allow, str | bytes | bytearray | Mapping | type) or not isinstance(allow, Iterable):
        given = "None" if allow is None else "a class" if isinstance(allow, type) else type(allow).__name__
        raise BadInput("allow", f"must be a list of classes, not {given}.", mend="One looks so: allow=[Plan, Verdict].")
    return TypeNames(name for nth, one in enumerate(allow) for name in _importable(f"allow.{nth}", one))


def _importable(field: str, entry: object) -> tuple[TypeName, ...]:
    """
    Return the name in *entry*, and the class's own.

    Raises:
        BadInput: it names no class that can be imported; names *field*.
    """
    match entry:
        case type():
            candidates: Iterable[tuple[str, str]] = [(entry.__module__, entry.__qualname__)]
        case str():
            candidates = _splits(entry)
        case (str() as module, str() as name):
            candidates = [(module, name)]
        case _:
            raise BadInput(
                field, f'must be a class, a text as in "module.Class", or (module, name), not {type(entry).__name__}.'
            )
    cause: Exception | None = None
    shown_as = entry if isinstance(entry, str) else ".".join(next(iter(candidates)))
    for module, name in candidates:
        if (module, name) in ALLOWED:
            return ((module, name),)
        try:
            found = find(module, name)
        except (ImportError, TypeError, ValueError) as error:
            cause = cause or error
            continue
        if found is not None and (not isinstance(entry, type) or found is entry):
            return (module, name), (found.__module__, found.__qualname__)
    raise BadInput(
        field,
        f"{shown(shown_as)} is no class that can be imported: nothing could be built of it.",
        mend="A class is known by its module and its name there, as in shop.states.Plan or shop.states.Plan.Step; "
        "define it at the top of a module or inside such a class.",
    ) from cause


def _splits(text: str) -> Iterator[tuple[str, str]]:
    """Yield each module and name that *text* may mean, the longest module first."""
    parts = text.split(".")
    for at in range(max(len(parts) - 1, 0), -1 if len(parts) == 1 else 0, -1):
        yield ".".join(parts[:at]), ".".join(parts[at:])
