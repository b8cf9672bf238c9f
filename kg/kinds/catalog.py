"""
The catalogue of every kind, property group and relationship that may be written.

Values have three forms. A *model* is what users handle. Its *canonical* form is a dictionary of JSON types, with times
as ``2026-06-01T10:27:49.000000Z`` and without absent values: the journal stores and hashes it. The *graph* form is what
the driver gets: the fields of the core and of all groups as properties of one node, with native times. So no two fields
of a kind may share a name with each other or with the bookkeeping of the node; building the catalogue checks that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from imem.kg.kinds import data_points, learning, patterns, subjects, trust, work
from imem.kg.kinds.archiving import DETAIL_TYPES
from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.enums import name_of
from imem.kg.kinds.fields import PropertyType
from imem.kg.kinds.links import LINK_KINDS, LinkKind, LinkProps

Canonical = dict[str, Any]

CORE: Final = "core"
ARCHIVE: Final = "archive"
"""The group with which a record is pruned from the graph."""
SUBJECT: Final = "Subject"
NODE_BOOKKEEPING: Final = frozenset({"known_at", "recorded_at", "occurred_at", "position", "stub", "archived"})
"""Properties that the applier adds to nodes and links."""
GROUP_BOOKKEEPING: Final = ("known_at", "recorded_at", "position", "order", "actor", "agent_seq")
"""Suffixes of the properties that the applier adds for each group: ``<group>_known_at`` and so on."""
JOURNAL_GROUPS: Final = ("core", "correction", "body", "turns", "props")
"""Names of the journal's own groups, reserved."""


@dataclass(frozen=True, slots=True)
class Property:
    """
    One property.

    Attributes:
        name: in the model, in canonical JSON and in the graph.
        type: its type.
        required: whether it must be stated.
        description: its meaning, where the name does not say it.
    """

    name: str
    type: PropertyType
    required: bool
    description: str | None


@dataclass(frozen=True, slots=True)
class PropertySet:
    """
    Properties that are written together: a core, a group, or those of a link.

    Attributes:
        name: ``core``, the group's name, or the name of the link's model.
        model: the model that validates them.
        properties: by name, in the order of the model.
        governed: the only subsystem that writes them, if any.
        derived: computed here, outside history and hash.
        unowned: whether no agent may append them.
    """

    name: str
    model: type[BaseModel]
    properties: Mapping[str, Property]
    governed: str | None = None
    derived: bool = False
    unowned: bool = False
    _encoders: tuple[tuple[str, Callable[[Any], Any] | None], ...] = field(init=False, repr=False, compare=False)
    _stores: tuple[tuple[str, Callable[[Any], Any]], ...] = field(init=False, repr=False, compare=False)
    _fetches: tuple[tuple[str, Callable[[Any], Any]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the conversions, which run for every line."""
        types = [(prop.name, prop.type) for prop in self.properties.values()]
        object.__setattr__(self, "_encoders", tuple((name, kind.encode) for name, kind in types))
        object.__setattr__(self, "_stores", tuple((name, kind.store) for name, kind in types if kind.store))
        object.__setattr__(self, "_fetches", tuple((name, kind.fetch) for name, kind in types if kind.fetch))

    def canonical(self, instance: BaseModel) -> Canonical:
        """Return the canonical form of a valid *instance*."""
        values = instance.__dict__
        result = {}
        for name, encode in self._encoders:
            value = values[name]
            if value is not None:
                result[name] = value if encode is None else encode(value)
        return result

    def to_graph(self, canonical: Mapping[str, Any]) -> dict[str, Any]:
        """Return the graph form: every property, None where absent, so that ``SET +=`` replaces the whole."""
        result = dict.fromkeys(self.properties)
        result.update(canonical)
        for name, store in self._stores:
            if result[name] is not None:
                result[name] = store(result[name])
        return result

    def from_graph(self, stored: Mapping[str, Any]) -> Canonical:
        """Return the canonical form of a node's or link's properties; others are ignored."""
        result = {name: stored[name] for name in self.properties if stored.get(name) is not None}
        for name, fetch in self._fetches:
            if name in result:
                result[name] = fetch(result[name])
        return result


class ImpliedLink(NamedTuple):
    """A link that a record's own event writes."""

    type: str
    from_label: str
    from_key: str
    to_label: str
    to_key: str
    props: Canonical


@dataclass(frozen=True, slots=True)
class Implication:
    """
    How a record implies a link.

    Attributes:
        link: the link.
        via: field of the core that names the other end; it may be absent, or hold several names.
        outward: whether the link starts from the record.
        other: label of the other end; ``Subject`` where the field says which.
        props: fields of the core that the link carries as well.
    """

    link: LinkKind
    via: str
    outward: bool
    other: str
    props: tuple[str, ...]

    def links(self, label: str, key: str, core: Mapping[str, Any]) -> Iterator[ImpliedLink]:
        """Yield the links of the record *label* *key*."""
        named = core.get(self.via)
        if named is None:
            return
        for name in dict.fromkeys(named) if isinstance(named, list) else (named,):
            other = subject_ref(name) if self.other == SUBJECT else (self.other, name)
            props = {prop: core[prop] for prop in self.props if prop in core}
            start, end = ((label, key), other) if self.outward else (other, (label, key))
            yield ImpliedLink(self.link.name, start[0], start[1], end[0], end[1], props)


@dataclass(frozen=True, slots=True)
class KindInfo:
    """
    The declaration of one kind.

    Attributes:
        label: its name and first label.
        model: its model.
        key: the property that identifies a node.
        key_type: validates a key alone.
        labels: all its labels, its own first.
        labels_when: label → (group, property, value): set exactly while that property has that value.
        governed: the only subsystem that writes the kind, if any.
        tags: its dependency tags, beside that of the record.
        occurred: field of the core with its default ``occurred_at``, if any.
        fixed: fields of the core that a correction may not change.
        settles: whether a record says what a metric turned out to be; another kind with a metric and a
            target_at claims it.
        reference: whether scores are computed by it, so that it takes the import right or a person to record it.
        owner: field of the core with its owner or owners; None if who records it owns it.
        unowned: whether no agent may append it.
        core: its core.
        groups: its groups by name, derived ones included.
        implies: the links that its records imply.
    """

    label: str
    model: type[Kind]
    key: str
    key_type: TypeAdapter[str]
    labels: tuple[str, ...]
    labels_when: Mapping[str, tuple[str, str, str]]
    governed: str | None
    tags: tuple[Tag, ...]
    occurred: str | None
    fixed: tuple[str, ...]
    settles: bool
    reference: bool
    owner: str | None
    unowned: bool
    core: PropertySet
    groups: Mapping[str, PropertySet]
    implies: tuple[Implication, ...]

    @property
    def detail(self) -> tuple[str, ...]:
        """The properties that a stub lacks after the record was pruned; empty for kinds that are never pruned."""
        if ARCHIVE not in self.groups:
            return ()
        parts = (self.core, *(group for name, group in self.groups.items() if name != ARCHIVE))
        return tuple(name for part in parts for name, prop in part.properties.items() if prop.type.name in DETAIL_TYPES)

    def part(self, name: str) -> PropertySet:
        """Return the core or the group *name*; KeyError when there is none."""
        return self.core if name == CORE else self.groups[name]


# Reading the models


def _annotated_type(annotation: Any) -> tuple[PropertyType | type[Group] | None, bool]:
    """Return what an annotation holds (a property's type or a group's model) and whether None is refused."""
    if get_origin(annotation) in (Union, UnionType):
        inner, _ = _annotated_type(next(arm for arm in get_args(annotation) if arm is not type(None)))
        return inner, False
    if get_origin(annotation) is Annotated:
        return next((mark for mark in annotation.__metadata__ if isinstance(mark, PropertyType)), None), True
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        words = {"enum": [word.value for word in annotation]}
        return PropertyType(name_of(annotation), words, encode=attrgetter("value")), True
    if isinstance(annotation, type) and issubclass(annotation, Group):
        return annotation, True
    return None, True


def _read(model: type[BaseModel]) -> tuple[dict[str, Property], dict[str, type[Group]]]:
    """Return the properties and the groups that a model's own annotations name."""
    properties: dict[str, Property] = {}
    groups: dict[str, type[Group]] = {}
    for name, info in model.model_fields.items():
        kind, required = _annotated_type(model.__annotations__[name])
        if isinstance(kind, PropertyType):
            properties[name] = Property(name, kind, required, info.description)
        elif kind is not None:
            groups[name] = kind
        else:
            raise TypeError(f"{model.__qualname__}.{name} has no type that a property may have.")
    return properties, groups


def read_properties(model: type[BaseModel]) -> Mapping[str, Property]:
    """Return the properties of a model without groups, in its order."""
    return MappingProxyType(_read(model)[0])


def _implications(label: str, properties: Mapping[str, Property]) -> tuple[Implication, ...]:
    found = []
    for link in LINK_KINDS:
        if link.implied_by != label or link.derived:
            continue
        outward = link.froms == (label,)
        (other,) = link.tos if outward else link.froms
        carried = tuple(name for name in link.props.model_fields if name in properties)
        found += [Implication(link, via, outward, other, carried) for via in link.via]
    return tuple(found)


def _check_names(label: str, parts: list[PropertySet]) -> None:
    """Refuse a kind in which two values would share one name on the node."""
    names = [part.name for part in parts[1:]]
    if not set(names).isdisjoint(JOURNAL_GROUPS):
        raise TypeError(f"{label}: a group bears a name that the journal keeps for itself.")
    taken = {f"{group}_{ending}" for group in (*names, *JOURNAL_GROUPS) for ending in GROUP_BOOKKEEPING}
    taken |= NODE_BOOKKEEPING
    for part in parts:
        for name in part.properties:
            if name in taken:
                raise TypeError(f"{label}: the name {name} of the group {part.name} is taken.")
            taken.add(name)


def _describe(model: type[Kind]) -> KindInfo:
    label = model.__name__
    properties, group_models = _read(model)
    groups = {
        name: PropertySet(name, group, read_properties(group), group.GOVERNED, group.DERIVED, group.UNOWNED)
        for name, group in group_models.items()
    }
    core = PropertySet(CORE, model, MappingProxyType(properties))
    _check_names(label, [core, *groups.values()])
    if unknown := [tag.field for tag in model.TAGS if tag.field is not None and tag.field not in properties]:
        raise TypeError(f"{label}: a dependency tag names {unknown[0]}, which is no field of its core.")
    return KindInfo(
        label=label,
        model=model,
        key=model.KEY,
        key_type=TypeAdapter(model.__annotations__[model.KEY]),
        labels=model.LABELS,
        labels_when=model.LABELS_WHEN,
        governed=model.GOVERNED,
        tags=model.TAGS,
        occurred=model.OCCURRED,
        fixed=model.FIXED,
        settles=model.SETTLES,
        reference=model.REFERENCE,
        owner=model.OWNER,
        unowned=model.UNOWNED,
        core=core,
        groups=MappingProxyType(groups),
        implies=_implications(label, properties),
    )


def _kinds() -> Iterator[type[Kind]]:
    for module in (subjects, work, patterns, trust, data_points, learning):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Kind) and value.__module__ == module.__name__:
                yield value


KINDS: Final[Mapping[str, KindInfo]] = MappingProxyType({model.__name__: _describe(model) for model in _kinds()})
"""Every kind by its label."""

LABELS: Final = frozenset(label for info in KINDS.values() for label in (*info.labels, *info.labels_when))
"""Every label that a node may have, except for bookkeeping."""

LINK_TYPES: Final = frozenset(link.name for link in LINK_KINDS)

_LINK_PROPS: Final[Mapping[type[LinkProps], PropertySet]] = MappingProxyType(
    {
        model: PropertySet(model.__name__, model, read_properties(model))
        for model in dict.fromkeys(link.props for link in LINK_KINDS)
    }
)


def _joined() -> Iterator[tuple[tuple[str, str, str], LinkKind]]:
    for link in LINK_KINDS:
        for start in KINDS.values():
            for end in KINDS.values():
                bearing = ((a, b) for a in start.labels for b in end.labels)
                if any(link.joins(a, b) for a, b in bearing):
                    yield (link.name, start.label, end.label), link


LINKS: Final[Mapping[tuple[str, str, str], LinkKind]] = MappingProxyType(dict(_joined()))
"""The link of a type between two kinds, by (type, label of the start, label of the end)."""


def _past_dates(*parts: tuple[str, PropertySet]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (*path.split("."), name) for path, part in parts for name, prop in part.properties.items() if prop.type.past
    )


PAST_DATES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        **{
            label: _past_dates((CORE, info.core), *((f"groups.{name}", part) for name, part in info.groups.items()))
            for label, info in KINDS.items()
        },
        **{f"link.{link.name}": _past_dates(("props", _LINK_PROPS[link.props])) for link in LINK_KINDS},
    }
)
"""Paths in a line to the times that may not lie in the future, by the kind of its heads."""


# Conversions


def link_props(link: LinkKind) -> PropertySet:
    """Return the properties of a link."""
    return _LINK_PROPS[link.props]


def subject_ref(subject_id: str) -> tuple[str, str]:
    """
    Return label and key of a subject: ``company:MU`` is ``("Company", "MU")``.

    Raises:
        ValueError: it is no subject id.
    """
    prefix, colon, key = subject_id.partition(":")
    label = {"company": "Company", "market": "Market"}.get(prefix)
    if not colon or not key or label is None:
        raise ValueError("A subject is company:<ticker> or market:<market_id>.")
    return label, key


def subject_id_of(label: str, key: str) -> str | None:
    """Return the subject id of a node of a subject's kind, None for others; stubs have it too."""
    return f"{label.lower()}:{key}" if SUBJECT in KINDS[label].labels else None


REFERENCES: Final[tuple[tuple[str, str, str], ...]] = tuple(
    dict.fromkeys(
        [
            *((info.label, one.via, one.other) for info in KINDS.values() for one in info.implies),
            *(
                (info.label, field, label)
                for field, label in (("subject_id", SUBJECT), ("analysis_id", "Analysis"), ("cites", "Finding"))
                for info in KINDS.values()
                if field in info.core.properties and label not in info.labels
            ),
        ]
    )
)
"""(Kind, field, label of the record that the field names); ``Subject`` where the value tells the label."""


def implied_links(kind: str, core: Mapping[str, Any]) -> list[ImpliedLink]:
    """Return the links that a record's event writes beside its node, by its canonical *core*; no derived ones."""
    info = KINDS[kind]
    key = core[info.key]
    return [link for implication in info.implies for link in implication.links(info.label, key, core)]


def from_graph(kind: str, node: Mapping[str, Any]) -> Kind | None:
    """
    Return the model of a node's properties, or None when it is a stub or was pruned.

    A group is present when the node has its ``known_at``; for nodes read without bookkeeping, when it has a value.

    Raises:
        pydantic.ValidationError: the node's properties are invalid: it was written by another program.
    """
    if node.get("stub") or node.get("archived"):
        return None
    info = KINDS[kind]
    values: dict[str, Any] = info.core.from_graph(node)
    for name, part in info.groups.items():
        group = part.from_graph(node)
        if group or node.get(f"{name}_known_at") is not None:
            values[name] = part.model.model_validate(group)
    return info.model.model_validate(values)
