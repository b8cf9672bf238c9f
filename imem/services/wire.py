"""
The JSON of operations: their arguments and results, from the signatures alone.

Values that pydantic knows have its JSON. What a signature leaves open is named in the JSON: a record of any kind has
its kind beside its fields (``{"record": "Company", "ticker": "MU"}``), a property group its class
(``{"group": "Company.Profile", …}``), and the package of a review task follows from the task's kind.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Optional, Union, get_args, get_origin

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    create_model,
)

from imem.journal.arguments import LEFT_OUT
from imem.journal.errors import BadInput
from imem.journal.modes import Mode
from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.catalog import KINDS
from imem.recall.model import Rows
from imem.review.kinds import Task
from imem.services.operations import Operation
from imem.services.registry import hints_of

KIND: Final = "record"
"""As in the load format: kinds have fields of their own named ``kind``."""

GROUP: Final = "group"

_OBJECT: Final = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True, slots=True)
class Wire:
    """
    The JSON of one operation.

    Attributes:
        operation: it.
        arguments: model of a body: a member for each parameter.
        query: model of a query string, in which what is no text, number, moment, or list of such, is JSON text.
        parameters: how each argument is written.
        result_type: type of the result, as it is written.
        result: writes and reads it.
    """

    operation: Operation
    arguments: type[BaseModel]
    query: type[BaseModel]
    parameters: Mapping[str, TypeAdapter[Any]]
    result_type: Any
    result: TypeAdapter[Any]

    @property
    def in_query(self) -> bool:
        """Whether a call is a GET: the operation reads, and no argument holds values of any type or lists objects."""
        return not self.operation.right.writes and self.query is not self.arguments

    def written(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as JSON types, by parameter."""
        bound = self.operation.signature.bind(*given, **named).arguments
        return {name: self.parameters[name].dump_python(value, mode="json") for name, value in bound.items()}

    def queried(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the arguments of a call as members of a query string."""
        members = []
        for name, value in self.written(given, named).items():
            if value is None:
                continue
            if not _is_plain(self.parameters[name]):
                members.append((name, orjson.dumps(value).decode()))
                continue
            several = value if isinstance(value, list) else [value]
            members += [(name, one if isinstance(one, str) else orjson.dumps(one).decode()) for one in several]
        return members


@functools.cache
def wire_of(operation: Operation) -> Wire:
    """Return the JSON of an operation."""
    hints = hints_of(operation.method)
    fields: dict[str, Any] = {}
    queried: dict[str, Any] = {}
    adapters: dict[str, TypeAdapter[Any]] = {}
    free = False
    for name, parameter in operation.signature.parameters.items():
        kind = wire_type(hints[name])
        adapters[name] = TypeAdapter(kind)
        plain = _is_plain(adapters[name])
        # A list of objects is no member of a query string: FastAPI takes each member of that name for an item.
        free = free or _holds_any(hints[name]) or (_is_list(adapters[name]) and not plain)
        default = _default(parameter)
        fields[name] = (kind, default)
        queried[name] = (kind if plain else _json_text(kind), default)
    name = "".join(part.capitalize() for part in operation.name.replace(".", "_").split("_"))
    config = ConfigDict(extra="forbid", protected_namespaces=(), title=name)
    arguments = create_model(name, __config__=config, **fields)
    query = arguments if free else create_model(f"{name}Query", __config__=config, **queried)
    result = wire_type(hints["return"])
    return Wire(operation, arguments, query, adapters, result, TypeAdapter(result))


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return ...
    if parameter.default is LEFT_OUT:
        return Field(default=None, json_schema_extra=_without_default)
    return parameter.default


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _json_text(kind: Any) -> Any:
    """Return the type of JSON text; where the value may be None, of that as well."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    stated: Any = Union.__getitem__(tuple(one for one in parts if one is not types.NoneType))
    adapter = TypeAdapter(stated)
    schema: dict[str, Any] = {"type": "string", "contentMediaType": "application/json"}
    content = adapter.json_schema()
    # References within it would be looked up in the document as a whole.
    if "$defs" not in content:
        schema["contentSchema"] = content

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            raise ValueError(bad_input_of(error).reason.rstrip(".")) from error

    # A text to FastAPI, which would take a list from what may be one.
    written: Any = Annotated[str, AfterValidator(read), WithJsonSchema(schema)]
    return Optional.__getitem__(written) if types.NoneType in parts else written


_PLAIN: Final = frozenset({"string", "number", "integer", "boolean", "null"})


def _is_plain(adapter: TypeAdapter[Any]) -> bool:
    """Whether values are texts, numbers and the like, or lists of them: what a query string can state."""

    def plain(schema: Mapping[str, Any], *, listed: bool = True) -> bool:
        if "anyOf" in schema:
            return all(plain(one, listed=listed) for one in schema["anyOf"])
        if "$ref" in schema:
            return plain(whole["$defs"][schema["$ref"].rpartition("/")[2]], listed=listed)
        if schema.get("type") == "array" and "prefixItems" not in schema:
            return listed and plain(schema.get("items", {}), listed=False)
        return schema.get("type") in _PLAIN or "enum" in schema or "const" in schema

    whole = adapter.json_schema()
    return plain(whole)


def _is_list(adapter: TypeAdapter[Any]) -> bool:
    schema = adapter.json_schema()
    return any(one.get("type") == "array" for one in (schema, *schema.get("anyOf", ())))


def _holds_any(annotation: Any) -> bool:
    return annotation is Any or any(map(_holds_any, get_args(annotation)))


# Types that a signature leaves open


def wire_type(annotation: Any) -> Any:
    """Return the type whose JSON stands for values of *annotation*."""
    for known, written in _WRITTEN:
        if annotation == known:
            return written
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or not arguments:
        return annotation
    parts = [wire_type(one) for one in arguments if one is not BaseModel]
    if origin in (Union, types.UnionType):
        return Union.__getitem__(tuple(parts))
    if origin is collections.abc.Collection:
        return types.GenericAlias(list, (parts[0],))
    if origin is Annotated:
        return Annotated[(parts[0], *arguments[1:])]
    return annotation if list(arguments) == parts else origin[tuple(parts)]


def _named(member: str, classes: Mapping[str, type[BaseModel]], what: str) -> Callable[[Any], Any]:
    """Return what reads an object whose *member* names its class."""

    def read(value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value
        # Of what a validator raises, pydantic takes a ValueError alone.
        name = value.get(member) if isinstance(value, Mapping) else None
        if not isinstance(name, str) or name not in classes:
            raise ValueError(f"must be an object with the {what} as {member!r}: {', '.join(sorted(classes))}")
        try:
            return classes[name](**{key: one for key, one in value.items() if key != member})
        except BadInput as error:
            raise ValueError(str(error)) from error

    return read


def _object_of(member: str, name: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(lambda value: {member: name(value), **value.model_dump(mode="json", exclude_none=True)})


_KIND_MODELS: Final = {name: info.model for name, info in KINDS.items()}
_GROUP_MODELS: Final = {
    group.model.__qualname__: group.model for info in KINDS.values() for group in info.groups.values()
}

_ANY_KIND: Final = Annotated[
    Kind,
    PlainValidator(_named(KIND, _KIND_MODELS, "record's kind")),
    _object_of(KIND, lambda value: type(value).__name__),
    WithJsonSchema({**_OBJECT, "required": [KIND], "properties": {KIND: {"enum": sorted(_KIND_MODELS)}}}),
]
_ANY_GROUP: Final = Annotated[
    Group,
    PlainValidator(_named(GROUP, _GROUP_MODELS, "group's class")),
    _object_of(GROUP, lambda value: type(value).__qualname__),
    WithJsonSchema({**_OBJECT, "required": [GROUP], "properties": {GROUP: {"enum": sorted(_GROUP_MODELS)}}}),
]


def _kind_class(value: Any) -> Any:
    name = value.__name__ if isinstance(value, type) else value
    if not isinstance(name, str) or name not in _KIND_MODELS:
        raise ValueError(f"is none of {', '.join(sorted(_KIND_MODELS))}")
    return _KIND_MODELS[name]


_KIND_CLASS: Final = Annotated[
    type[Kind],
    PlainValidator(_kind_class),
    PlainSerializer(lambda value: value.__name__),
    WithJsonSchema({"enum": sorted(_KIND_MODELS)}),
]


def _task(value: Any, read: Callable[[Any], Any]) -> Any:
    from imem.services.task_kinds import TASK_KINDS  # noqa: PLC0415 - who reads no tasks needs none of it

    task = read(value)
    kind = TASK_KINDS.get(task.kind)
    if kind is None or isinstance(task.package, kind.package):
        return task
    return replace(task, package=TypeAdapter(kind.package).validate_python(task.package))


_TASK: Final = Annotated[Task[Any], WrapValidator(_task)]


def _rows(value: Any) -> Any:
    if isinstance(value, Rows):
        return value
    return Rows(value["rows"], mode=Mode(value["mode"]), late_ms=value["late_ms"])


_ROWS: Final = Annotated[
    Any,
    BeforeValidator(_rows),
    PlainSerializer(lambda value: {"rows": list(value), "mode": value.mode, "late_ms": value.late_ms}),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "rows": {"type": "array", "items": _OBJECT},
                "mode": {"enum": [one.value for one in Mode]},
                "late_ms": {"type": ["number", "null"]},
            },
            "required": ["rows", "mode", "late_ms"],
        }
    ),
]


_WRITTEN: Final = ((Kind, _ANY_KIND), (Group, _ANY_GROUP), (Rows, _ROWS), (type[Kind], _KIND_CLASS), (Task[Any], _TASK))
"""Types that a signature leaves open, and how their values are written."""


def bad_input_of(error: ValidationError) -> BadInput:
    """Return the error that names the first field that is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(one) for one in first["loc"] if one not in {"body", "query"}) or "body"
    return BadInput(field[:200], f"{first['msg'].removeprefix('Value error, ')}.")


def given_of(model: BaseModel) -> dict[str, Any]:
    """Return the arguments that were stated, by parameter."""
    return {name: getattr(model, name) for name in model.model_fields_set}
