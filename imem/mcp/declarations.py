"""What a tool takes, from the operations that it calls: the right, and the JSON types of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from imem.kg.kinds.base import Kind
from imem.services.operations import Operation, Right
from imem.services.registry import hints_of, operations

Schema = Mapping[str, Any]
"""JSON schema of one argument."""


def operation_named(method: str) -> Operation:
    """Return the operation of a method of ``Memory``, dotted."""
    return next(operation for operation in operations() if operation.name == method)


def right_of(*methods: str) -> Right:
    """Return the right that the methods take: of several that of the first one that writes."""
    rights = [operation_named(method).right for method in methods]
    return next((right for right in rights if right.writes), rights[0])


def parameters_of(*methods: str, record: type[Kind] | None = None) -> dict[str, tuple[Schema, bool]]:
    """
    Return the JSON type of each parameter of the methods and each field of *record*, and whether it must be given.

    Of a name that several have the type is that of the first one.
    """
    found: dict[str, tuple[Schema, bool]] = {}
    for method in methods:
        operation = operation_named(method)
        hints = hints_of(operation.method)
        for name, parameter in operation.signature.parameters.items():
            found.setdefault(name, (json_type(hints[name]), parameter.default is inspect.Parameter.empty))
    fields = {} if record is None else record.model_fields
    return {name: (json_type(field.annotation), field.is_required()) for name, field in fields.items()} | found


def json_type(annotation: Any) -> Schema:
    """Return the type of JSON alone, or the values of an enumeration; empty for a choice of several types."""
    whole = TypeAdapter(annotation).json_schema()
    parts = [
        whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        for part in whole.get("anyOf", [whole])
    ]
    kinds = {part.get("type"): part for part in parts if part.get("type") != "null"}
    if len(kinds) != 1 or None in kinds:
        return {}
    [(kind, part)] = kinds.items()
    if "enum" in part:
        return {"enum": part["enum"]}
    return {"type": kind, "items": {"type": part["items"].get("type")}} if kind == "array" else {"type": kind}
