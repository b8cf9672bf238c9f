"""
Serializer of the saver: values come back equal in value and type, or are refused when they are stored.

LangGraph's own serializer stores what it does not know exactly as something near it (a tuple as a list, a private
attribute not at all), and builds an object of any class that a row names, by importing its module and calling it. Here
each kind of values has an exact encoding (:mod:`.encoding`), and a row may name classes of a list; others are refused
before they are imported. The same list is checked when a value is stored, so that a missing type is noticed then, and
not on resuming. Rows that LangGraph's serializer wrote are read as it reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from imem.checkpoints.langgraph.decoding import decode
from imem.checkpoints.langgraph.encoding import PLAIN, Encoder, Unencodable
from imem.checkpoints.langgraph.value_types import ALLOWED, OURS, Allow, TypeName, TypeNames, name_of, types_of
from imem.journal.errors import UnsupportedType

_KINDS: Final = frozenset({"null", "bytes", "bytearray", "msgpack"})
"""Kinds of values that this serializer writes and reads."""

_TRUSTED: Final = ALLOWED | OURS
"""Classes whose objects are known to come back as they were."""


class Serializer(JsonPlusSerializer):
    """
    LangGraph's serializer with exact values, restricted to a list of types.

    Args:
        allow: types in addition to :data:`.value_types.ALLOWED` and :data:`.value_types.OURS`; see
            :func:`.value_types.types_of`.
    """

    def __init__(self, allow: Allow = ()) -> None:
        self._names = _TRUSTED | types_of(allow)
        super().__init__(allowed_msgpack_modules=tuple(self._names))

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[TypeName | type]) -> JsonPlusSerializer:
        """Return a serializer that builds *extra_allowlist* as well; LangGraph calls it in strict mode."""
        names = {name_of(one) for one in extra_allowlist}
        # LangGraph finds them in a graph; classes that no module has are never built.
        return self if names <= self._names else Serializer(TypeNames(self._names | names))

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """
        Return the kind and the bytes of a value.

        Raises:
            UnsupportedType: a part of it would not come back as it is; the field is its path, from ``value`` on.
        """
        kind = type(obj)
        if obj is None:
            return "null", b""
        if kind is bytes or kind is bytearray:
            return kind.__name__, obj
        try:
            return "msgpack", self._packed(obj)
        except Unencodable as refused:
            raise refused.error("value") from None
        except RecursionError:
            raise UnsupportedType("value", "lies too deep for this call, or contains itself.") from None

    def _packed(self, value: object) -> bytes:
        encoder = Encoder(self._names, _TRUSTED)
        try:
            packed = encoder.encode(value)
        except TypeError:  # A text or integer that msgpack has not; else the second attempt says what.
            encoder = Encoder(self._names, _TRUSTED, careful=True)
            packed = encoder.encode(value)
        if encoder.uncertain and not self._comes_back(packed):
            # Once more, object by object: the error names the one.
            Encoder(self._names, _TRUSTED, careful=True, comes_back=self._comes_back).encode(value)
            raise Unencodable("would not come back as it is.", PLAIN)
        return packed

    def _comes_back(self, packed: bytes) -> bool:
        """Whether a value with objects of a program's own classes is the same when it is read."""
        try:
            read = decode(packed, self._names, self._unpack_ext_hook)
            return Encoder(self._names, _TRUSTED, careful=True).encode(read) == packed
        except (UnsupportedType, Unencodable):
            return False

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
        return decode(packed, self._names, self._unpack_ext_hook) if kind == "msgpack" else super().loads_typed(data)
