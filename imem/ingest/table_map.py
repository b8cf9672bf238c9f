r"""
Mapping of a table's rows to lines, declared in TOML.

Each ``[[record]]`` and ``[[link]]`` makes at most one line of a row. A value is a constant, or a template of text and
``{columns}``, or a table ``{ value = …, map = …, … }`` that says how the text is converted; the property's type in the
graph decides the result. A template with an empty column yields no value. Templates only insert columns; they do not
compute.

Ambiguous times are read as late as possible, so that nothing counts before it could be known. A day alone is known at
12:00 UTC of the next, a local time without a zone is read in UTC-12, unless the map names the zone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from imem.journal.clock import known_at_of_date, known_at_of_naive
from imem.journal.errors import BadInput
from imem.kg.kinds.catalog import KINDS, LINK_TYPES, link_props
from imem.kg.kinds.fields import moment_text, shown
from imem.kg.kinds.links import LINK_KINDS
from imem.kg.load_format.refusals import suggestion

MAP_BYTES: Final = 1 << 20
"""Largest size of a map."""

Row = Mapping[str, str | tuple[str, ...]]
"""Cells of a row by column: a text, or the items of a list (Parquet only)."""

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_WHOLE = re.compile(r"([+-]?\d{1,20})(?:\.0*)?", re.ASCII)
"""A whole number, also as a float such as ``3.0``: columns of integers with gaps are often stored as floats."""

_TRUTHS: Final = {"true": True, "yes": True, "y": True, "1": True, "false": False, "no": False, "n": False, "0": False}


class _MapModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Conversion(_MapModel):
    """How a text is read: ``{ value = "{rating}", map = { Overweight = "positive" } }``."""

    value: str = Field(description="A template.")
    default: str | int | float | bool | None = Field(None, description="The value where the template is empty.")
    map: dict[str, str | int | float | bool] | None = Field(
        None, description='The meaning of each text; `"*"` is every other. A text that is not listed is refused.'
    )
    percent: bool = Field(False, description="Whether a number is a percentage, with or without its sign.")  # noqa: FBT003
    split: str = Field(
        ";", min_length=1, description="The separator of the items of a list in a text; a list of Parquet needs none."
    )
    format: str | None = Field(
        None, description="How a time is written, as of `strptime`, or `epoch_s` or `epoch_ms`; ISO 8601 by default."
    )
    zone: str | None = Field(None, description="The zone of times without one, such as `America/New_York`.")
    day: Literal["over", "start"] = Field(
        "over", description="The time that a day alone means: when it is over everywhere, or when it begins in UTC."
    )


class When(_MapModel):
    """Condition on the rows of which a line is made: ``{ value = "{type}", is = ["rating"] }``."""

    value: str = Field(description="A template.")
    is_: list[str] = Field(alias="is", min_length=1, description="The texts that it must be one of.")


ValueRule = Conversion | str | int | float | bool | list[Any]


class RecordRule(_MapModel):
    """A record of a row."""

    kind: str = Field(description="The kind, such as `Finding`.")
    when: When | str | None = Field(None, description="Makes a line only where the template is not empty.")
    known_at: ValueRule | None = Field(
        None, description="Earliest moment it could have been known; else that of the map."
    )
    occurred_at: ValueRule | None = Field(None, description="When it was true in the world.")
    key: ValueRule | None = Field(None, description="The key, where only late groups are stated and no core.")
    core: dict[str, ValueRule] | None = Field(None, description="Fields of the core.")
    groups: dict[str, dict[str, ValueRule]] = Field({}, description="Fields of each group.")
    body: ValueRule | None = Field(None, description="The long text.")


class LinkRule(_MapModel):
    """A link of a row."""

    link: str = Field(description="The type, such as `PERFORMED`.")
    when: When | str | None = Field(None, description="Makes a line only where the template is not empty.")
    known_at: ValueRule | None = Field(
        None, description="Earliest moment it could have been known; else that of the map."
    )
    occurred_at: ValueRule | None = Field(None, description="When it was true in the world.")
    from_: dict[str, ValueRule] = Field(alias="from", description="Label and key of the start.")
    to: dict[str, ValueRule] = Field(description="Label and key of the end.")
    props: dict[str, ValueRule] = Field({}, description="Properties.")


class MapFile(_MapModel):
    """A whole map."""

    known_at: ValueRule | None = Field(None, description="When a row could first be known, for every record and link.")
    zone: str | None = Field(None, description="The zone of local times, where a value names no other.")
    delimiter: str = Field(",", min_length=1, max_length=1, description="The separator of the cells of CSV.")
    constants: dict[str, str] = Field({}, description="Texts that templates name like columns.")
    record: list[RecordRule] = Field([], description="The records of a row, in their order.")
    link: list[LinkRule] = Field([], description="The links of a row, after its records.")


@dataclass(frozen=True, slots=True)
class Template:
    """
    Text with names of columns in it.

    Attributes:
        pieces: text, and after each piece of it the name of a column, None at the end.
    """

    pieces: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, text: str, where: str) -> Template:
        """
        Parse *text* as a template; a literal brace is written twice.

        Raises:
            BadInput: a brace is unpaired.
        """
        pieces: list[tuple[str, str | None]] = []
        plain, end = "", 0
        for found in _PIECE.finditer(text):
            plain += text[end : found.start()]
            end = found.end()
            if found[0] in {"{{", "}}"}:
                plain += found[0][0]
            elif found[1]:
                pieces.append((plain, found[1].strip()))
                plain = ""
            else:
                raise BadInput(where, f"{shown(text)} has a brace that names no column; write it twice to mean itself.")
        return cls((*pieces, (plain + text[end:], None)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(column for _, column in self.pieces if column is not None)

    @property
    def alone(self) -> str | None:
        """The column, if the template is nothing but one column; else None."""
        match self.pieces:
            case (("", column), ("", None)):
                return column
        return None

    def fill(self, row: Row, separator: str = ";") -> str:
        """Return the text for *row*; empty if one of its columns is. *separator* joins the items of a list."""
        cells = [row[column] for column in self.columns]
        values = [(cell if isinstance(cell, str) else separator.join(cell)).strip() for cell in cells]
        if not all(values):
            return ""
        return "".join(text + value for (text, _), value in zip(self.pieces, [*values, ""], strict=True))


@dataclass(frozen=True, slots=True)
class Cell:
    """
    One value of a line.

    Attributes:
        path: its path in the line, such as ``("core", "probability")``.
        type: the name of its property's type; empty for text.
        constant: its value, if it has no template.
        template: the template of its text.
        reading: how the text is converted.
        zone: zone of local times; None if the map names none.
    """

    path: tuple[str, ...]
    type: str
    constant: Any = None
    template: Template | None = None
    reading: Conversion = field(default_factory=lambda: Conversion(value=""))
    zone: tzinfo | None = None

    def of(self, row: Row) -> Any:
        """
        Return the value for *row*; None if it has none.

        Raises:
            BadInput: the text is not in the value's ``map``.
        """
        if self.template is None:
            return self.constant
        items = row[self.template.alone] if self.template.alone is not None else ""
        if self.type == "strings" and isinstance(items, tuple) and self.reading.map is None:
            return [item.strip() for item in items if item.strip()] or self.reading.default
        text: Any = self.template.fill(row, self.reading.split)
        if text == "":
            return self.reading.default
        if self.reading.map is not None:
            meanings = self.reading.map
            if text not in meanings and "*" not in meanings:
                raise BadInput(".".join(self.path), f"{shown(text)} is not among the texts that the map lists.")
            text = meanings.get(text, meanings.get("*"))
        return self._convert(text) if isinstance(text, str) else text

    def _convert(self, text: str) -> Any:
        """Return *text* converted to the type; unchanged if it cannot be, so that the parser refuses it."""
        if self.type == "datetime":
            return _moment(text, self.reading, self.zone)
        if self.type in {"float", "prob"}:
            with suppress(InvalidOperation, OverflowError):
                if self.reading.percent:
                    return float(Decimal(text.removesuffix("%").rstrip()) / 100)
                return float(Decimal(text))
        if self.type == "int" and (whole := _WHOLE.fullmatch(text)):
            return int(whole[1])
        if self.type == "bool":
            return _TRUTHS.get(text.lower(), text)
        if self.type == "strings":
            return [item for part in text.split(self.reading.split) if (item := part.strip())]
        return text


def _moment(text: str, reading: Conversion, zone: tzinfo | None) -> str:
    """Return *text* as a time; unchanged if it is none, so that the parser refuses it."""
    try:
        if reading.format in {"epoch_s", "epoch_ms"}:
            seconds = Decimal(text) / (1000 if reading.format == "epoch_ms" else 1)
            return moment_text(datetime.fromtimestamp(float(seconds), UTC))
        moment = datetime.strptime(text, reading.format) if reading.format else datetime.fromisoformat(text)  # noqa: DTZ007 - the zone follows
        has_time = "%H" in reading.format or "%I" in reading.format if reading.format else len(text) > len("2026-06-01")
        if not has_time:
            day = moment.date()
            return moment_text(_start_of(day) if reading.day == "start" else known_at_of_date(day))
        if moment.tzinfo is not None:
            return moment_text(moment)
        if zone is None:
            return moment_text(known_at_of_naive(moment))
        # An hour that comes twice is read as the second, one that is left out as if it were there.
        return moment_text(max(moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)))
    except (ValueError, OverflowError, OSError, InvalidOperation):
        return text


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@dataclass(frozen=True, slots=True)
class Rule:
    """
    How one line is made of a row.

    Attributes:
        name: its name in messages, such as ``Finding``.
        fixed: members that are the same in every row.
        cells: the others.
        when: the line is made only if this is not empty, or is one of *among*.
    """

    name: str
    fixed: Mapping[str, Any]
    cells: tuple[Cell, ...]
    when: Template | None = None
    among: frozenset[str] | None = None

    def members(self, row: Row) -> dict[str, Any] | None:
        """
        Return the members of the line of *row*; None if it makes none.

        Raises:
            BadInput: a value cannot be made; names its path.
        """
        if self.when is not None:
            text = self.when.fill(row)
            if not text or (self.among is not None and text not in self.among):
                return None
        made: dict[str, Any] = {**self.fixed}
        for cell in self.cells:
            value = cell.of(row)
            if value is not None:
                inner = made
                for name in cell.path[:-1]:
                    inner = inner.setdefault(name, {})
                inner[cell.path[-1]] = value
        return made

    def columns_of(self, path: str) -> tuple[str, ...]:
        """Return the columns from which the refused field *path* is made."""
        found: dict[str, None] = {}
        for cell in self.cells:
            own = ".".join(cell.path)
            if cell.template is not None and (path == own or path.startswith(f"{own}.")):
                found |= dict.fromkeys(cell.template.columns)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class TableMap:
    """
    A map from rows to lines.

    Attributes:
        label: its name in messages.
        delimiter: separator of CSV cells.
        constants: texts that templates may use like columns.
        rules: one for each line that a row may make.
    """

    label: str
    delimiter: str
    constants: Mapping[str, str]
    rules: tuple[Rule, ...]

    def check_columns(self, columns: Sequence[str], table: str) -> None:
        """
        Check that the table *table* has every column of the map.

        Raises:
            BadInput: a column is missing; names it.
        """
        known = {*columns, *self.constants}
        for rule in self.rules:
            named = [column for cell in rule.cells if cell.template for column in cell.template.columns]
            for column in (*named, *(rule.when.columns if rule.when else ())):
                if column not in known:
                    raise BadInput(
                        self.label,
                        f"{rule.name} names the column {shown(column)}, which {table} has not.",
                        mend=suggestion(column, known),
                    )


def read_map(path: Path) -> TableMap:
    """
    Return the map in the TOML file *path*.

    Raises:
        BadInput: it cannot be read, or is not a valid map; names the file and the place.
    """
    label = str(path)
    try:
        with path.open("rb") as file:
            text = file.read(MAP_BYTES + 1)
        if len(text) > MAP_BYTES:
            raise BadInput(label, f"is longer than {MAP_BYTES:,} bytes.")
        stated = MapFile.model_validate(tomllib.loads(text.decode()))
    except OSError as error:
        raise BadInput(label, f"cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(label, f"is no TOML: {error}.") from None
    except ValidationError as error:
        raise _refusal(label, error) from None
    if not stated.record and not stated.link:
        raise BadInput(label, "makes no line: it has neither [[record]] nor [[link]].")
    rules = tuple(rule for make in (_records, _links) for rule in make(label, stated))
    return TableMap(label, stated.delimiter, stated.constants, rules)


def _refusal(label: str, error: ValidationError) -> BadInput:
    first = error.errors(include_url=False, include_input=False)[0]
    # The path holds class names of union members, which mean nothing to users.
    place = [
        str(part)
        for part in first["loc"]
        if part not in {"Conversion", "When", "str", "int", "float", "bool", "list[any]"}
    ]
    said = "is no field of a map" if first["type"] == "extra_forbidden" else first["msg"].lower()
    return BadInput(f"{label}: {'.'.join(place) or 'map'}", f"{said}.")


def _records(label: str, stated: MapFile) -> Iterator[Rule]:
    for number, rule in enumerate(stated.record, 1):
        where = f"{label}: record {number}"
        info = KINDS.get(rule.kind)
        if info is None:
            raise BadInput(where, f"{shown(rule.kind)} is no kind of record.", mend=suggestion(rule.kind, KINDS))
        parts: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
        if rule.core is not None:
            parts["core"] = (rule.core, _types(info.core.properties))
        for name, fields in rule.groups.items():
            if name not in info.groups:
                raise BadInput(where, f"{shown(name)} is no group of {rule.kind}.", mend=suggestion(name, info.groups))
            parts[f"groups.{name}"] = (fields, _types(info.groups[name].properties))
        cells = [*_clocks(rule, stated, where), *_texts({"key": rule.key, "body": rule.body}, stated, where)]
        for part, (stated_fields, types) in parts.items():
            for name, value in stated_fields.items():
                if name not in types:
                    raise BadInput(
                        f"{where}: {part}.{name}", f"is no field of {rule.kind}.", mend=suggestion(name, types)
                    )
                cells.append(_cell((*part.split("."), name), types[name], value, stated, where))
        yield _rule(rule.kind, {"record": rule.kind}, cells, rule.when, where)


def _links(label: str, stated: MapFile) -> Iterator[Rule]:
    for number, rule in enumerate(stated.link, 1):
        where = f"{label}: link {number}"
        if rule.link not in LINK_TYPES:
            raise BadInput(where, f"{shown(rule.link)} is no kind of link.", mend=suggestion(rule.link, LINK_TYPES))
        types = {
            name: one
            for link in LINK_KINDS
            if link.name == rule.link
            for name, one in _types(link_props(link).properties).items()
        }
        cells = _clocks(rule, stated, where)
        for side, ends in (("from", rule.from_), ("to", rule.to)):
            if len(ends) != 1:
                raise BadInput(f"{where}: {side}", 'must name one kind, such as { Agent = "{analyst}" }.')
            cells += [_cell((side, name), "", value, stated, where) for name, value in ends.items()]
        cells += [
            _cell(("props", name), types.get(name, ""), value, stated, where) for name, value in rule.props.items()
        ]
        yield _rule(rule.link, {"link": rule.link}, cells, rule.when, where)


def _types(properties: Mapping[str, Any]) -> dict[str, str]:
    return {name: prop.type.name for name, prop in properties.items()}


def _clocks(rule: RecordRule | LinkRule, stated: MapFile, where: str) -> list[Cell]:
    known_at = rule.known_at if rule.known_at is not None else stated.known_at
    if known_at is None:
        raise BadInput(f"{where}: known_at", "is required, here or once for the whole map: when could a row be known?")
    clocks = {"known_at": known_at, "occurred_at": rule.occurred_at}
    return [_cell((name,), "datetime", value, stated, where) for name, value in clocks.items() if value is not None]


def _texts(values: Mapping[str, ValueRule | None], stated: MapFile, where: str) -> list[Cell]:
    return [_cell((name,), "", value, stated, where) for name, value in values.items() if value is not None]


def _cell(path: tuple[str, ...], type_: str, value: ValueRule, stated: MapFile, where: str) -> Cell:
    if not isinstance(value, str | Conversion):
        return Cell(path, type_, constant=value)
    reading = value if isinstance(value, Conversion) else Conversion(value=value)
    name = reading.zone or stated.zone
    zone = _zone(name, where) if type_ == "datetime" and name is not None else None
    return Cell(
        path, type_, template=Template.of(reading.value, f"{where}: {'.'.join(path)}"), reading=reading, zone=zone
    )


def _zone(name: str, where: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # Not found is a KeyError; what is no path may be any of them.
        raise BadInput(f"{where}: zone", f"{shown(name)} is no zone that this machine knows.") from None


def _rule(name: str, fixed: Mapping[str, Any], cells: Sequence[Cell], when: When | str | None, where: str) -> Rule:
    text = when.value if isinstance(when, When) else when
    among = frozenset(when.is_) if isinstance(when, When) else None
    template = Template.of(text, f"{where}: when") if text is not None else None
    return Rule(name, fixed, tuple(cells), template, among)
