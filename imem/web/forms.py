"""Forms made from the models of answers' fields, and the fields that a sent form states. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel

from imem.review.kinds import AnswerAction, TaskAction, TaskKind
from imem.web.rendering import words

LONG: Final = 200
"""Characters from which on a text gets several lines."""

_ATTRIBUTE: Final = re.compile(r"^ {4}(?P<names>\w+(?:, \w+)*): (?P<text>.+(?:\n {8}.+)*)", re.MULTILINE)
"""A line of the part ``Attributes`` of a docstring."""

Widget = Literal["choice", "check", "number", "line", "text", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """
    An input of a form.

    Attributes:
        name: under which the form sends it.
        label, help: what is asked; what the model says about it.
        widget: how it is shown.
        required: whether the form is sent without it.
        options: of a choice.
        least, most: of a number.
        whole: whether a number has no fraction.
        longest: characters of a text.
        value: what it holds at first.
    """

    name: str
    label: str
    help: str = ""
    widget: Widget = "line"
    required: bool = False
    options: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    whole: bool = False
    longest: int | None = None
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemForm:
    """
    The inputs for one item of a package.

    Attributes:
        number: of the item, from 1.
        item: the item.
        action: chooses one of its actions, or none.
        actions: action → its inputs.
        rationale: why.
    """

    number: int
    item: Any
    action: Control
    actions: Mapping[str, tuple[AnswerAction, tuple[Control, ...]]]
    rationale: Control


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """
    The form of one action.

    Attributes:
        action: the action.
        controls: its inputs.
        items: the inputs for the items of the package, where they are answered one by one.
        rationale: why.
    """

    action: TaskAction
    controls: tuple[Control, ...]
    items: tuple[ItemForm, ...]
    rationale: Control


def action_form(
    kind: TaskKind[Any, Any], action: TaskAction, package: BaseModel, sent: Mapping[str, str], *, needs_rationale: bool
) -> ActionForm:
    """
    Return the form of an action of a task.

    Args:
        sent: what a form stated before that was refused; empty otherwise.
        needs_rationale: whether it is not sent without a rationale.
    """
    controls: list[Control] = []
    items: tuple[ItemForm, ...] = ()
    for control, shape in _fields(action.fields, "field."):
        entries = _items_of(package, control.name)
        if entries is None:
            controls.append(_filled(control, sent))
        elif shape.get("type") == "array" and kind.item_actions is not None:
            items = tuple(_item_form(kind, control, number, item, sent) for number, item in enumerate(entries, 1))
        elif len(entries) > 1:
            controls += [_filled(one, sent) for one in _values_of_items(control, shape, entries)]
    rationale = Control(
        name="rationale", label="Rationale", help="Why. It is stored with the answer, and shown to whoever asks later.",
        widget="text", required=needs_rationale, longest=2_000,
    )  # fmt: skip
    return ActionForm(action=action, controls=tuple(controls), items=items, rationale=_filled(rationale, sent))


def stated_fields(
    kind: TaskKind[Any, Any], action: TaskAction, package: BaseModel, sent: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields that a sent form states, as the action's model takes them; empty inputs are left out."""
    stated: dict[str, Any] = {}
    for control, shape in _fields(action.fields, "field."):
        name, entries = control.name.removeprefix("field."), _items_of(package, control.name)
        if entries is None:
            stated |= _stated(control, name, sent)
        elif shape.get("type") == "array" and kind.item_actions is not None:
            given = [_stated_item(kind, control, number, item, sent) for number, item in enumerate(entries, 1)]
            stated[name] = [one for one in given if one is not None]
        elif len(entries) > 1:
            values = dict[str, Any]()
            for number, one in enumerate(_values_of_items(control, shape, entries), 1):
                values |= _stated(one, str(number), sent)
            if values:
                stated[name] = values
    return stated


# Items of a package


def _items_of(package: BaseModel, name: str) -> Sequence[Any] | None:
    """Return the list of the package that an answer's field of that name speaks about, item by item."""
    found = getattr(package, name.removeprefix("field."), None)
    return found if isinstance(found, tuple | list) else None


def _values_of_items(control: Control, shape: Mapping[str, Any], entries: Sequence[Any]) -> Iterator[Control]:
    value = shape.get("additionalProperties", {})
    for number in range(1, len(entries) + 1):
        yield _control(f"{control.name}.{number}", value, label=f"Item {number}", required=False)


def _item_form(kind: TaskKind[Any, Any], control: Control, number: int, item: Any, sent: Mapping[str, str]) -> ItemForm:
    assert kind.item_actions is not None  # noqa: S101 - the caller has looked
    place, possible = f"{control.name}.{number}", kind.item_actions(item)
    action = Control(name=f"{place}.action", label="Answer", widget="choice", options=tuple(possible))
    rationale = Control(name=f"{place}.rationale", label="Rationale", widget="text", longest=2_000)
    actions = {
        name: (one, tuple(_filled(field, sent) for field, _ in _fields(one.fields, f"{place}.{name}.")))
        for name, one in possible.items()
    }
    return ItemForm(
        number=number, item=item, action=_filled(action, sent), actions=actions, rationale=_filled(rationale, sent)
    )


def _stated_item(
    kind: TaskKind[Any, Any], control: Control, number: int, item: Any, sent: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the answer to one item; None where the form states none."""
    assert kind.item_actions is not None  # noqa: S101 - the caller has looked
    place = f"{control.name}.{number}"
    name = sent.get(f"{place}.action", "")
    if not name:
        return None
    fields: dict[str, Any] = {}
    action = kind.item_actions(item).get(name)
    for field, _ in _fields(action.fields, f"{place}.{name}.") if action is not None else ():
        fields |= _stated(field, field.name.removeprefix(f"{place}.{name}."), sent)
    given = {"item": str(number), "action": name, "fields": fields}
    rationale = sent.get(f"{place}.rationale", "").strip()
    return {**given, "rationale": rationale} if rationale else given


# Inputs


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[Control, Mapping[str, Any]]]:
    """Return an input for each field of a model, with the shape of the field."""
    schema = model.model_json_schema()
    help_of = _help_of(model)
    for name, declared in schema.get("properties", {}).items():
        shape = _resolved(declared, schema)
        required = name in schema.get("required", ())
        yield (
            _control(f"{prefix}{name}", shape, label=words(name), required=required, text=help_of.get(name, "")),
            shape,
        )


def _resolved(declared: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the shape of a field without references, and without the null that it may be instead."""
    shape = declared
    for choice in ("anyOf", "allOf"):
        others = [one for one in shape.get(choice, ()) if one.get("type") != "null"]
        if len(others) == 1:
            shape = others[0]
    if "$ref" in shape:
        shape = schema["$defs"][shape["$ref"].rpartition("/")[2]]
    return shape


def _control(name: str, shape: Mapping[str, Any], *, label: str, required: bool, text: str = "") -> Control:
    common: dict[str, Any] = {"name": name, "label": label, "help": text, "required": required}
    if "enum" in shape or "const" in shape:
        options = tuple(map(str, shape.get("enum", [shape.get("const")])))
        return Control(**common, widget="choice", options=options)
    match shape.get("type"):
        case "boolean":
            return Control(**{**common, "required": False}, widget="check")
        case "integer" | "number" as type_:
            return Control(
                **common, widget="number", whole=type_ == "integer", least=shape.get("minimum"),
                most=shape.get("maximum"),
            )  # fmt: skip
        case "string":
            longest = shape.get("maxLength")
            return Control(**common, widget="text" if (longest or 0) > LONG else "line", longest=longest)
        case _:
            return Control(**common, widget="json")


def _filled(control: Control, sent: Mapping[str, str]) -> Control:
    """Return an input that holds what was sent before."""
    return replace(control, value=sent[control.name]) if control.name in sent else control


def _stated(control: Control, name: str, sent: Mapping[str, str]) -> dict[str, Any]:
    """Return what an input states, under *name*; nothing where it is empty."""
    text = sent.get(control.name, "")
    if control.widget == "check":
        return {name: True} if text else {}
    if not text.strip():
        return {}
    match control.widget:
        case "number":
            return {name: _number(text)}
        case "json":
            return {name: _json(text)}
        case _:
            return {name: text}


def _number(text: str) -> int | float | str:
    """Return the number that a text is; a text that is none goes on to the model, which names the field."""
    for type_ in (int, float):
        try:
            return type_(text.strip())
        except ValueError:
            continue
    return text


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _help_of(model: type[BaseModel]) -> dict[str, str]:
    """Return what the docstring of a model says about its fields."""
    text = inspect.cleandoc(model.__doc__ or "").partition("Attributes:")[2]
    return {
        name: " ".join(found["text"].split())
        for found in _ATTRIBUTE.finditer(text)
        for name in found["names"].split(", ")
    }
