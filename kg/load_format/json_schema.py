"""
JSON Schema (draft 2020-12) of the load format.

A schema is weaker than the parser: it cannot compare two fields, look up metrics, count bytes, or detect duplicate
keys. Every line that the parser accepts is valid by its schema.
"""

from __future__ import annotations

from typing import Any, Final

from imem.journal.errors import BadInput
from imem.kg.kinds.catalog import KINDS, LINK_TYPES, KindInfo, Property, PropertySet, link_props, read_properties
from imem.kg.kinds.fields import BODY_BYTES, MOMENT_SCHEMA, TEXT_CHARS, Schema, shown
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.kinds.trust import Turn
from imem.kg.load_format.lines import TURNS
from imem.kg.load_format.refusals import suggestion

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def line_schema(name: str | None = None) -> Schema:
    """
    Return the schema of lines of the kind or link type *name*; of all lines when None.

    Raises:
        BadInput: *name* is unknown, or cannot be loaded.
    """
    if name is None:
        variants = [variant for kind in KINDS for variant in _record_variants(kind)]
        variants += [variant for type_ in sorted(LINK_TYPES) for variant in _link_variants(type_)]
        title = "A line"
    elif name in KINDS:
        variants, title = _record_variants(name), f"A line about a record of {name}"
    elif name in LINK_TYPES:
        variants, title = _link_variants(name), f"A line that states a link {name}"
    else:
        raise BadInput(
            "kind", f"{shown(name)} is no kind of record or link.", mend=suggestion(name, [*KINDS, *LINK_TYPES])
        )
    if not variants:
        raise BadInput("kind", f"{name} cannot be loaded: {_why_not(str(name))}.")
    return {"$schema": DIALECT, "title": title, "anyOf": variants}


def _why_not(name: str) -> str:
    if name in KINDS:
        return f"only the {KINDS[name].governed} subsystem writes it"
    link = next(link for link in LINK_KINDS if link.name == name)
    if link.governed:
        return f"only the {link.governed} subsystem writes it"
    return f"it is written with the {link.implied_by} that implies it" if link.implied_by else "it is computed"


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _property(prop: Property) -> Schema:
    schema = prop.type.schema if prop.required else _nullable(prop.type.schema)
    return {"description": prop.description, **schema} if prop.description else schema


def _object(properties: Schema, required: list[str], description: str | None = None) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"description": description, **schema} if description else schema


def _set(part: PropertySet, description: str | None = None) -> Schema:
    # What the model derives, such as the subject id of a company, is optional.
    required = [
        name for name, prop in part.properties.items() if prop.required and part.model.model_fields[name].is_required()
    ]
    return _object({name: _property(prop) for name, prop in part.properties.items()}, required, description)


def _about(model: type[Any]) -> str:
    return " ".join((model.__doc__ or "").split())


def _clocks() -> Schema:
    return {
        "known_at": {"description": "The earliest moment at which it could have been known.", **MOMENT_SCHEMA},
        "occurred_at": {
            "description": "When it was true in the world; by default when it was known.",
            **_nullable(MOMENT_SCHEMA),
        },
    }


def _key(info: KindInfo) -> Schema:
    return info.core.properties[info.key].type.schema


def _record_variants(kind: str) -> list[Schema]:
    """Return the forms of a line about a record: the whole record, late groups, a correction."""
    info = KINDS[kind]
    if info.governed:
        return []
    groups = {
        name: _set(group, _about(group.model))
        for name, group in info.groups.items()
        if not group.governed and not group.derived
    }
    core = _set(info.core, _about(info.model))
    body = {"description": "Long text, kept beside the graph.", "type": "string", "maxLength": BODY_BYTES}
    whole: Schema = {
        "record": {"const": kind},
        "key": _nullable(_key(info)),
        **_clocks(),
        "core": core,
        "groups": _nullable(_object(groups, [])),
        "body": _nullable(body),
    }
    if kind == "Debate":
        turn = _set(PropertySet("turn", Turn, read_properties(Turn)), _about(Turn))
        whole["turns"] = _nullable({"type": "array", "items": turn, "maxItems": TURNS})
    nothing: Schema = {"type": "null"}
    late: Schema = {
        "record": {"const": kind},
        "key": _key(info),
        **_clocks(),
        "core": nothing,
        "groups": {**_object(groups, []), "minProperties": 1},
        "body": nothing,
        "turns": nothing,
    }
    correction: Schema = {
        "correct": {"const": kind},
        "key": _nullable(_key(info)),
        **_clocks(),
        "core": core,
        "reason": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
    }
    variants = [_object(whole, ["record", "known_at", "core"])]
    if groups:
        variants.append(_object(late, ["record", "key", "known_at", "groups"]))
    return [*variants, _object(correction, ["correct", "known_at", "core", "reason"])]


def _link_variants(type_: str) -> list[Schema]:
    return [
        _link_schema(link)
        for link in LINK_KINDS
        if link.name == type_ and not (link.governed or link.implied_by or link.derived)
    ]


def _link_schema(link: LinkKind) -> Schema:
    props = _set(link_props(link), _about(link.props) if link.props.model_fields else None)
    required = ["link", "known_at", "from", "to"]
    return _object(
        {
            "link": {"const": link.name},
            **_clocks(),
            "from": _ends(link.froms),
            "to": _ends(link.tos or link.froms),
            "props": props if props["required"] else _nullable(props),
        },
        [*required, "props"] if props["required"] else required,
    )


def _ends(labels: tuple[str, ...]) -> Schema:
    return {"anyOf": [_object({label: _key(KINDS[label])}, [label]) for label in labels]}
