"""
Serializer of the saver: plain values, and objects of an allow-list of types.

LangGraph's own serializer builds an object of any class that a row names, by importing its module and calling it.
A writer of rows could have any code called. Here a row may name types of a list; others are refused before they are
imported. The same list is checked when a value is stored, so that a missing type is noticed then, and not on
resuming.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from imem.journal.arguments import CHECKED_INSIDE
from imem.journal.errors import BadInput, UnsupportedType, shown

TypeName = tuple[str, ...]
"""Module and name of a type."""

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
"""What every saver builds: values of the standard library, and what LangGraph's own states are made of."""

OURS: Final[frozenset[TypeName]] = frozenset(
    ("imem.recall.signals.model", name)
    for name in ("AgentMemory", "AgentSignal", "ErrorKind", "SignalDirection", "SubjectKind")
)
"""What the state of our own nodes holds (:func:`imem.langgraph.memory_node`)."""

_METHODS: Final = frozenset({("datetime", "datetime", "fromisoformat")})
"""Methods that a row may name, in addition to constructors."""

_CONSTRUCTORS: Final = frozenset({0, 1, 2, 4, 5})
_METHOD: Final = 3
_ARRAY: Final = 6
_DELTA: Final = 7
"""Codes of objects in LangGraph's msgpack (``langgraph.checkpoint.serde.jsonplus``)."""

_KINDS: Final = frozenset({"null", "bytes", "bytearray", "msgpack"})
"""Kinds of values that this serializer writes and reads."""


class Serializer(JsonPlusSerializer):
    """
    LangGraph's serializer, restricted to a list of types.

    Args:
        allow: types in addition to :data:`ALLOWED` and :data:`OURS`; see :func:`types_of`.
    """

    def __init__(self, allow: Allow = ()) -> None:
        self._names = ALLOWED | OURS | types_of(allow)
        super().__init__(allowed_msgpack_modules=tuple(self._names))

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[TypeName | type]) -> JsonPlusSerializer:
        """Return a serializer that builds *extra_allowlist* as well; LangGraph calls it in strict mode."""
        names = {_name_of(one) for one in extra_allowlist}
        # LangGraph finds them in a graph; classes that no module has are never built.
        return self if names <= self._names else Serializer(TypeNames(self._names | names))

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """
        Return the kind and the bytes of a value.

        Raises:
            UnsupportedType: it holds an object of a type that is not on the list.
        """
        kind, data = super().dumps_typed(obj)
        if kind == "msgpack":
            self._look_through(data)
        return kind, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """
        Return the stored value.

        Raises:
            UnsupportedType: the row names a type that is not on the list, or is of an unknown kind; nothing was
                imported or called.
        """
        kind, packed = data
        if kind not in _KINDS:
            raise UnsupportedType(
                "value", f"a stored value is of the kind {kind[:80]!r}, which this saver never writes."
            )
        if kind == "msgpack":
            self._look_through(packed)
        return super().loads_typed(data)

    def _look_through(self, packed: bytes) -> None:
        """Check every object in *packed*, however deep, and build none."""
        refused: list[str] = []

        def look(code: int, inner: bytes) -> None:
            # msgpack swallows a hook's exception: it is recorded.
            if code == _ARRAY:
                return  # Numbers, by type and shape: names no class.
            header = ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
            if code != _DELTA and not self._is_allowed(code, header):
                names = header[:2] if isinstance(header, list) else [f"an object of the code {code}"]
                refused.append(".".join(map(str, names))[:200])

        ormsgpack.unpackb(packed, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        if refused:
            raise UnsupportedType(
                "value",
                f"{refused[0]!r} is not on the list of types that are stored and built.",
                mend="A type of your own is given to the saver: ImemSaver.open(allow=[…]).",
            )

    def _is_allowed(self, code: int, header: Any) -> bool:
        match header:
            case [str(module), str(name), _, *_] if code in _CONSTRUCTORS:
                return (module, name) in self._names
            case [str(module), str(name), _, str(method)] if code == _METHOD:
                return (module, name, method) in _METHODS
            case _:
                return False


def _name_of(kind: type | TypeName) -> TypeName:
    return (kind.__module__, kind.__name__) if isinstance(kind, type) else kind


class TypeNames(frozenset[TypeName]):
    """Modules and names of types that were checked already."""

    __slots__ = ()


def types_of(allow: object) -> TypeNames:
    """
    Return the modules and names of the types in *allow*.

    Each entry is a class, a text such as ``"module.Class"``, or the pair ``(module, name)``. A class that is known by
    another name than its own counts by both: rows from before a move name the old one.

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
            module, name = entry.__module__, entry.__name__
        case str():
            module, _, name = entry.rpartition(".")
        case (str() as module, str() as name):
            pass
        case _:
            raise BadInput(
                field, f'must be a class, a text as in "module.Class", or (module, name), not {type(entry).__name__}.'
            )
    if (module, name) in ALLOWED:
        return ((module, name),)
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, TypeError, ValueError) as error:
        raise _no_class(field, module, name) from error
    if not isinstance(found, type):
        raise _no_class(field, module, name)
    return (module, name), (found.__module__, found.__name__)


def _no_class(field: str, module: str, name: str) -> BadInput:
    return BadInput(
        field,
        f"{shown(f'{module}.{name}')} is no class that can be imported: nothing could be built of it.",
        mend="A class is known by its module and its name there; define it at the top of a module.",
    )
