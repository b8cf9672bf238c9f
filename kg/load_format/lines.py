"""
Strict parser of the load format.

A line is one JSON object in UTF-8::

    {"record": "Analysis", "known_at": …, "core": {…}, "groups": {…}, "body": …}    a record
    {"record": "Market", "known_at": …, "key": …, "groups": {"resolution": {…}}}    late groups of one
    {"link": "PERFORMED", "known_at": …, "from": {"Agent": …}, "to": {"Analysis": …}, "props": {…}}
    {"correct": "Analysis", "known_at": …, "core": {…}, "reason": …}

The result is canonical (see :mod:`imem.kg.kinds.catalog`), so that equal contents have equal bytes. Calls from
Python pass through the same checks by :func:`record_of`, :func:`groups_of`, :func:`link_of` and :func:`correction_of`.

Invalid input raises :class:`~imem.journal.errors.BadInput` with the dotted path of the field; nothing is written
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from imem.journal.errors import BadInput
from imem.journal.texts.spelling import says_nothing
from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.catalog import (
    KINDS,
    LINK_TYPES,
    LINKS,
    Canonical,
    KindInfo,
    PropertySet,
    link_props,
    read_properties,
)
from imem.kg.kinds.fields import BODY_BYTES, DEPTH, Text, decode_json, parse_moment, shown
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.kinds.trust import Turn
from imem.kg.load_format.refusals import dotted, refusal, suggestion, unknown_field
from imem.kg.load_format.verdicts import refusal_by, verdict_by_target

LINE_BYTES: Final = 1 << 20
"""Longest line, in bytes; a longer one is refused unparsed."""
TURNS: Final = 500
"""Most turns of one debate in one line."""

_BOM: Final = b"\xef\xbb\xbf"
_RECORD_MEMBERS: Final = frozenset({"record", "key", "known_at", "occurred_at", "core", "groups", "body", "turns"})
_LINK_MEMBERS: Final = frozenset({"link", "from", "to", "props", "known_at", "occurred_at"})
_CORRECT_MEMBERS: Final = frozenset({"correct", "key", "core", "reason", "known_at", "occurred_at"})
_REASON: Final[TypeAdapter[str]] = TypeAdapter(Text)
_TURN: Final = PropertySet("turn", Turn, read_properties(Turn))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLine:
    """
    A record, or late groups of one.

    Attributes:
        kind: its label.
        key: its key.
        core: canonical core; None for late groups.
        groups: canonical groups by name.
        body: long text for Postgres alone.
        turns: canonical turns of a debate, by number.
        occurred_at: when it was true in the world; None means when it was known.
        known_at: the earliest moment it could have been known; None means now.
    """

    kind: str
    key: str
    core: Canonical | None = None
    groups: Mapping[str, Canonical]
    body: str | None = None
    turns: tuple[Canonical, ...] = ()
    occurred_at: datetime | None = None
    known_at: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse an outcome known before its target, and a claim made at or after its target."""
        if (status := verdict_by_target(self.kind, self.core, self.known_at)) is not None:
            raise refusal_by(status, self.kind, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLine:
    """
    A relationship; an undirected one starts at its smaller key.

    Attributes:
        type: the relationship's type.
        from_label, from_key: where it starts.
        to_label, to_key: where it ends.
        props: canonical properties.
        occurred_at, known_at: as of a record.
    """

    type: str
    from_label: str
    from_key: str
    to_label: str
    to_key: str
    props: Canonical
    occurred_at: datetime | None = None
    known_at: datetime | None = None

    @property
    def link(self) -> LinkKind:
        """Its type in the catalogue."""
        return LINKS[self.type, self.from_label, self.to_label]

    @property
    def identity(self) -> Canonical:
        """The properties that are part of its identity."""
        return {name: self.props[name] for name in self.link.identity}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectLine:
    """
    A correction: a new core for a record, and the reason.

    Attributes:
        kind, key: the record.
        core: canonical core, whole.
        reason: why, in words.
        occurred_at, known_at: as of a record.
    """

    kind: str
    key: str
    core: Canonical
    reason: str
    occurred_at: datetime | None = None
    known_at: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse an outcome known before its target."""
        if (status := verdict_by_target(self.kind, self.core, self.known_at, corrects=True)) is not None:
            raise refusal_by(status, self.kind, self.key)


Line = RecordLine | LinkLine | CorrectLine


def parse_line(
    raw: bytes, *, max_bytes: int = LINE_BYTES, needs_known_at: bool = True, writer: str | None = None
) -> Line:
    """
    Parse the line in *raw*.

    Args:
        raw: the line, with or without its end.
        max_bytes: longest line that is read.
        needs_known_at: whether ``known_at`` is required, as for imports: a wrong one would be a look-ahead.
        writer: the subsystem that writes, which may write what it governs.

    Raises:
        BadInput: the line is invalid; names the field, or ``line`` where it cannot be parsed.
    """
    members = _decode(raw, max_bytes)
    named = [name for name in ("record", "link", "correct") if name in members]
    if len(named) != 1:
        rule = 'must have one of the members "record", "link" and "correct"'
        raise BadInput("line", f"{rule}, and has {' and '.join(map(repr, named)) or 'none'}.")
    if needs_known_at and members.get("known_at") is None:
        raise BadInput("known_at", "is required: history must say when it could first be known.")
    if named == ["record"]:
        return _record(members, writer)
    if named == ["link"]:
        return _link(members, writer)
    return _correction(members, writer)


def record_of(
    model: Kind,
    *,
    known_at: datetime | None = None,
    occurred_at: datetime | None = None,
    body: str | None = None,
    turns: Sequence[Turn] = (),
    writer: str | None = None,
) -> RecordLine:
    """
    Return *model* with its groups as a line.

    Raises:
        BadInput: as :func:`parse_line`; a model that was built without validation is validated here.
    """
    info = _kind("record", type(model).__name__, writer)
    values = dict(model.__dict__)
    groups = {name: values.pop(name, None) for name in info.groups}
    stated = {name: group for name, group in groups.items() if group is not None}
    core = _core(info, values, known_by_model=True)
    clocks = _clocks(known_at, occurred_at)
    return _record_line(info, core, stated, clocks, body=body, turns=list(turns) or None, writer=writer)


def groups_of(
    kind: type[Kind],
    key: str,
    groups: Mapping[str, Group],
    *,
    known_at: datetime | None = None,
    occurred_at: datetime | None = None,
    writer: str | None = None,
) -> RecordLine:
    """
    Return late *groups* (by name) of the record *key* as a line.

    Raises:
        BadInput: as :func:`parse_line`.
    """
    info = _kind("record", kind.__name__, writer)
    members = {"key": key, "groups": dict(groups)}
    return _late(info, members, _clocks(known_at, occurred_at), writer)


def link_of(
    type_: str,
    start: Kind | tuple[str, str],
    end: Kind | tuple[str, str],
    props: Mapping[str, Any] | BaseModel | None = None,
    *,
    known_at: datetime | None = None,
    occurred_at: datetime | None = None,
    writer: str | None = None,
) -> LinkLine:
    """
    Return a relationship between two nodes, given as models or as (label, key), as a line.

    Raises:
        BadInput: as :func:`parse_line`.
    """
    ends = [node.ref if isinstance(node, Kind) else node for node in (start, end)]
    stated = dict(props.__dict__ if isinstance(props, BaseModel) else props or {})
    members = {"link": type_, "from": dict([ends[0]]), "to": dict([ends[1]]), "props": stated}
    return _link({**members, "known_at": known_at, "occurred_at": occurred_at}, writer)


def correction_of(
    model: Kind,
    reason: str,
    *,
    known_at: datetime | None = None,
    occurred_at: datetime | None = None,
    writer: str | None = None,
) -> CorrectLine:
    """
    Return the core of *model* as a correction of the record with its key; its groups are ignored.

    Raises:
        BadInput: as :func:`parse_line`.
    """
    info = _kind("correct", type(model).__name__, writer)
    values = {name: value for name, value in model.__dict__.items() if name not in info.groups}
    core = _core(info, values, known_by_model=True)
    return _correct_line(info, core, reason, _clocks(known_at, occurred_at))


# Reading the text


def _decode(raw: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the members of the object that *raw* holds."""
    if len(raw) > max_bytes:
        raise BadInput("line", f"is longer than {max_bytes:,} bytes.")
    try:
        text = raw.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise BadInput("line", f"is not UTF-8: byte {error.start} cannot be read.") from None
    try:
        value = decode_json(text)
    except PydanticCustomError as error:
        where = (error.context or {}).get("where") or "line"
        raise BadInput(dotted(where), error.message()) from None
    if not isinstance(value, dict):
        raise BadInput("line", "must be an object.")
    if text.count("{") + text.count("[") > DEPTH and _too_deep(value):
        raise BadInput("line", f"is nested deeper than {DEPTH} levels.")
    return value


def _too_deep(value: dict[str, Any]) -> bool:
    """Return whether objects and lists in *value* nest deeper than allowed."""
    level: list[Any] = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


# What may be written


def _kind(member: str, name: object, writer: str | None) -> KindInfo:
    if not isinstance(name, str):
        raise BadInput(member, "must be the name of a kind.")
    info = KINDS.get(name)
    if info is None:
        raise BadInput(member, f"{shown(name)} is no kind of record.", mend=suggestion(name, KINDS))
    _allow(member, name, info.governed, writer)
    return info


def _allow(where: str, name: str, governed: str | None, writer: str | None) -> None:
    if governed is not None and governed != writer:
        raise BadInput(where, f"only the {governed} subsystem writes {name}.")


def _only(members: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    if not members.keys() <= known:
        name = next(name for name in members if name not in known)
        raise unknown_field(dotted(name), name, what, known)


def _moment(where: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_moment(value)
    except PydanticCustomError as error:
        raise BadInput(where, error.message()) from None


class _Clocks(TypedDict):
    """``known_at`` and ``occurred_at`` of a line."""

    known_at: datetime | None
    occurred_at: datetime | None


def _clocks(known_at: object, occurred_at: object) -> _Clocks:
    return {"known_at": _moment("known_at", known_at), "occurred_at": _moment("occurred_at", occurred_at)}


def _object(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(where, "must be an object.")
    return value


def _check(part: PropertySet, value: object, where: str, owner: str) -> Canonical:
    """Validate *value* (an object, or an instance of the model) and return its canonical form."""
    try:
        if isinstance(value, part.model):
            # Built without validation, or of a caller's subclass: validate the values again.
            value = dict(value.__dict__)
        return part.canonical(part.model.model_validate(value))
    except ValidationError as error:
        raise refusal(error, where, owner, part.properties) from None


def _core(info: KindInfo, value: object, *, known_by_model: bool = False) -> Canonical:
    if value is None:
        raise BadInput("core", "is required.")
    members = _object("core", value)
    # The model holds groups beside the core's fields; a line keeps them apart.
    if not known_by_model and not members.keys().isdisjoint(info.groups):
        name = next(name for name in members if name in info.groups)
        raise BadInput(f"core.{name}", f'is a group of {info.label}: it belongs under "groups".')
    return _check(info.core, members, "core", info.label)


def _groups(info: KindInfo, members: Mapping[str, Any], writer: str | None) -> dict[str, Canonical]:
    result = {}
    for name, value in members.items():
        where = dotted("groups", name)
        group = info.groups.get(name)
        if group is None:
            raise BadInput(where, f"is no group of {info.label}.", mend=suggestion(name, info.groups))
        if group.derived:
            raise BadInput(where, "is computed by the memory itself and never written.")
        _allow(where, f"the {name} of a record of {info.label}", group.governed, writer)
        result[name] = _check(group, value, where, f"the group {name} of {info.label}")
    return result


def _key(info: KindInfo, where: str, value: object) -> str:
    try:
        return info.key_type.validate_python(value)
    except ValidationError as error:
        raise refusal(error, where, info.label, ()) from None


def _record(members: Mapping[str, Any], writer: str | None) -> RecordLine:
    info = _kind("record", members["record"], writer)
    _only(members, _RECORD_MEMBERS, "a record line")
    clocks = _clocks(members.get("known_at"), members.get("occurred_at"))
    if members.get("core") is None:
        return _late(info, members, clocks, writer)
    core = _core(info, members["core"])
    if members.get("key") not in (None, core[info.key]):
        raise BadInput("key", f"is not the {info.key} that the core states.")
    groups = _object("groups", members["groups"]) if members.get("groups") is not None else {}
    body, turns = members.get("body"), members.get("turns")
    return _record_line(info, core, groups, clocks, body=body, turns=turns, writer=writer)


def _late(info: KindInfo, members: Mapping[str, Any], clocks: _Clocks, writer: str | None) -> RecordLine:
    """Return the line of groups that come after their core."""
    if members.get("key") is None:
        raise BadInput("core", "is required, or else the key of the record whose groups are given.")
    for name in ("body", "turns"):
        if members.get(name) is not None:
            raise BadInput(name, "goes with the core of the record.")
    key = _key(info, "key", members["key"])
    groups = _groups(info, _object("groups", members.get("groups", {})), writer)
    if not groups:
        raise BadInput("groups", "is required where no core is given.")
    return RecordLine(kind=info.label, key=key, groups=groups, **clocks)


def _record_line(
    info: KindInfo,
    core: Canonical,
    groups: Mapping[str, Any],
    clocks: _Clocks,
    *,
    body: object,
    turns: object,
    writer: str | None,
) -> RecordLine:
    return RecordLine(
        kind=info.label,
        key=core[info.key],
        core=core,
        groups=_groups(info, groups, writer) if groups else {},
        body=_body(body) if body is not None else None,
        turns=_turns(info, turns) if turns is not None else (),
        **clocks,
    )


def _body(value: object) -> str:
    if not isinstance(value, str):
        raise BadInput("body", "must be a string.")
    if "\0" in value:
        raise BadInput("body", "holds a NUL character.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput("body", "holds a lone surrogate, which is no character.") from None
    if size > BODY_BYTES:
        raise BadInput("body", f"is longer than {BODY_BYTES:,} bytes.")
    return value


def _turns(info: KindInfo, value: object) -> tuple[Canonical, ...]:
    if info.label != "Debate":
        raise BadInput("turns", "belong to a Debate.")
    if not isinstance(value, list):
        raise BadInput("turns", "must be a list.")
    if len(value) > TURNS:
        raise BadInput("turns", f"has more than {TURNS} items.")
    by_number: dict[int, Canonical] = {}
    for index, item in enumerate(value):
        turn = _check(_TURN, item, f"turns.{index}", "a turn")
        if by_number.setdefault(turn["number"], turn) is not turn:
            raise BadInput(f"turns.{index}.number", "is the number of an earlier turn.")
    return tuple(by_number[number] for number in sorted(by_number))


def _reason(value: object) -> str:
    if value is None:
        raise BadInput("reason", "is required: it must say why the record is corrected.")
    try:
        reason = _REASON.validate_python(value)
    except ValidationError as error:
        raise refusal(error, "reason", "a correction", ()) from None
    if says_nothing(reason):
        raise BadInput("reason", "must say why the record is corrected.")
    return reason


def _correction(members: Mapping[str, Any], writer: str | None) -> CorrectLine:
    info = _kind("correct", members["correct"], writer)
    _only(members, _CORRECT_MEMBERS, "a correction line")
    clocks = _clocks(members.get("known_at"), members.get("occurred_at"))
    core = _core(info, members.get("core"))
    if members.get("key") not in (None, core[info.key]):
        raise BadInput("key", f"is not the {info.key} that the core states.")
    return _correct_line(info, core, members.get("reason"), clocks)


def _correct_line(info: KindInfo, core: Canonical, reason: object, clocks: _Clocks) -> CorrectLine:
    return CorrectLine(kind=info.label, key=core[info.key], core=core, reason=_reason(reason), **clocks)


# Links


def _end(where: str, value: object) -> tuple[str, str]:
    """Return label and key of one end."""
    if not isinstance(value, dict) or len(value) != 1:
        raise BadInput(where, 'must be an object of one member, such as {"Agent": "name"}.')
    ((label, key),) = value.items()
    info = KINDS.get(label) if isinstance(label, str) else None
    if info is None:
        name = str(label)
        raise BadInput(where, f"{shown(name)} is no kind of record.", mend=suggestion(name, KINDS))
    return label, _key(info, dotted(where, label), key)


def _link(members: Mapping[str, Any], writer: str | None) -> LinkLine:
    type_ = members["link"]
    if not isinstance(type_, str):
        raise BadInput("link", "must be the name of a link.")
    if type_ not in LINK_TYPES:
        raise BadInput("link", f"{shown(type_)} is no kind of link.", mend=suggestion(type_, LINK_TYPES))
    _only(members, _LINK_MEMBERS, "a link line")
    clocks = _clocks(members.get("known_at"), members.get("occurred_at"))
    from_label, from_key = _end("from", members.get("from"))
    to_label, to_key = _end("to", members.get("to"))
    link = LINKS.get((type_, from_label, to_label))
    if link is None:
        raise BadInput("to", f"{type_} does not lead from {from_label} to {to_label}, but {_ends_of(type_)}.")
    _allow("link", type_, link.governed, writer)
    if link.implied_by is not None:
        raise BadInput("link", f"{type_} is written with the {link.implied_by} that implies it, not apart from it.")
    if link.derived:
        raise BadInput("link", f"{type_} between these is computed by the memory itself and never written.")
    if (from_label, from_key) == (to_label, to_key) and not link.loop:
        raise BadInput("to", "is the node that the link starts from.")
    stated = members.get("props")
    props = _check(link_props(link), stated if stated is not None else {}, "props", type_)
    if link.undirected and to_key < from_key:
        from_key, to_key = to_key, from_key
    return LinkLine(
        type=type_,
        from_label=from_label,
        from_key=from_key,
        to_label=to_label,
        to_key=to_key,
        props=props,
        **clocks,
    )


def _ends_of(type_: str) -> str:
    """Return the labels that a type may join, in words."""
    shapes: Iterable[LinkKind] = (link for link in LINK_KINDS if link.name == type_)
    return ", or ".join(f"from {' or '.join(link.froms)} to {' or '.join(link.tos) or 'the same'}" for link in shapes)
