"""
The parts of the pages that the code itself knows: ``make reference`` writes them, and nobody by hand.

Each function returns the text of one part. A page has it between two comments that name the part, and is committed with
it, so that it reads the same in the repository and in the built documentation. A test compares page and code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import typer.main

from imem.checkpoints.pauses.lifecycle import GATE_STATES, PAUSE_STATES
from imem.cli import app
from imem.commands.table import GROUPS
from imem.jobs.state_machine import StateMachine
from imem.journal.actors import AUTHORIZATION, Action, ResourceType, Scope
from imem.journal.errors import ImemError
from imem.journal.settings import PREFIX, Role, Settings
from imem.journal.statements import Statement, load, root_of
from imem.kg.kinds.base import Tag, TagName
from imem.kg.kinds.catalog import KINDS, KindInfo, PropertySet, link_props
from imem.kg.kinds.links import LINK_KINDS, LinkKind
from imem.kg.kinds.metrics import metrics
from imem.mcp.tools import TOOLS
from imem.patterns.states import PATTERN_STATES
from imem.postmortem.cases.states import CASE_STATES
from imem.review.states import TASK_STATES

DOCS: Final = Path(__file__).resolve().parent

_PART: Final = re.compile(r"(<!-- from the code: (?P<name>\w+) -->\n).*?(<!-- end: (?P=name) -->\n)", re.DOTALL)

_WIDTH: Final = 80
"""Width of a usage line, whatever the terminal's is."""

_NOTHING: Final = "–"


def _text(value: object) -> str:
    """Return *value* as Markdown that shows it: what stands in angle brackets is no HTML, except in code."""
    parts = re.split(r"(`+[^`]*`+)", str(value))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def _cell(value: object) -> str:
    """Return *value* as the text of one table cell."""
    return " ".join(_text(value).split()).replace("|", "\\|") or _NOTHING


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    head = list(header)
    lines = [head, ["---"] * len(head), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# The command line. Its objects are Typer's own and not part of any library's types, hence Any.


def _walk(command: Any, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    if path:
        yield path, command
    for name, child in inner_commands(command):
        if not child.hidden:
            yield from _walk(child, (*path, name))


def inner_commands(command: Any) -> Iterable[tuple[str, Any]]:
    """Yield the commands of a group by name, imported; none of what is no group."""
    for name in sorted(getattr(command, "commands", ())):
        yield name, command.resolve_command(command.context_class(command), [name])[1]


def all_commands() -> dict[str, Any]:
    """Return every command that can be typed, by the words after ``imem``."""
    return {" ".join(path): command for path, command in _walk(typer.main.get_command(app), ())}


def _parameter_row(parameter: Any) -> list[str]:
    default = parameter.default
    telling = default not in (None, False, (), [], "") and not callable(default)
    names = (
        [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "option"
        else [parameter.name.upper()]
    )
    return [", ".join(f"`{name}`" for name in names), parameter.help or "", f"`{default}`" if telling else _NOTHING]


def commands() -> str:
    """Return the groups of commands, and one section for each: its usage, its help, its arguments and options."""
    named = [[group, ", ".join(f"`{name}`" for name in names)] for group, names in GROUPS.items()]
    parts = [_table(["group", "commands"], named)]
    for name, command in all_commands().items():
        usage = command.get_usage(command.context_class(command, info_name=f"imem {name}", terminal_width=_WIDTH))
        parts.append(f"## imem {name}\n\n{_text((command.help or '').strip())}\n")
        parts.append(f"```text\n{usage.removeprefix('Usage: ').strip()}\n```\n")
        rows = [_parameter_row(item) for item in command.params if not item.hidden]
        if rows:
            parts.append(_table(["argument or option", "meaning", "default"], rows))
    return "\n".join(parts)


# Settings and authorization

_BOUNDS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def settings() -> str:
    """Return the table of settings: variable, default, meaning."""
    rows, secrets = [], Settings.secrets()
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False) if field.default_factory is None else None
        shown = {"home": "`~/.local/share/imem`", "cache_dir": "`~/.cache/imem`"}.get(name)
        shown = shown or (f"`{default}`" if default is not None else _NOTHING)
        bounds = [
            f"{word} {getattr(bound, sign)}"
            for bound in field.metadata
            for sign, word in _BOUNDS.items()
            if getattr(bound, sign, None) is not None
        ]
        meaning = f"{field.description or _NOTHING}{' *Secret.*' if name in secrets else ''}"
        rows.append([f"`{PREFIX}{name.upper()}`", shown, meaning, ", ".join(bounds)])
    return _table(["variable", "default", "meaning", "bounds"], rows)


def authorization() -> str:
    """Return the authorization table: a row for each resource and action, a column for each role."""
    marks = {Scope.OWN: "own", Scope.ALL: "yes", None: _NOTHING}
    rows = []
    for resource in ResourceType:
        for action in Action:
            cells = [AUTHORIZATION.get((role, resource, action)) for role in Role]
            if any(cells):
                rows.append([f"`{resource.value}`", f"`{action.value}`", *(marks[cell] for cell in cells)])
    return _table(["resource", "action", *(role.value.replace("_", " ") for role in Role)], rows)


# Errors


def _error_rows(error: type[ImemError], above: str) -> Iterable[list[str]]:
    meaning = _first_paragraph(error.__doc__)
    yield [f"`{error.__name__}`", above and f"`{above}`", "yes" if error.retryable else "no", meaning]
    for below in error.__subclasses__():
        if below.__module__ == ImemError.__module__:
            yield from _error_rows(below, error.__name__)


def error_table() -> str:
    """Return the table of errors: each class below the one that it descends from."""
    return _table(["error", "is a", "may be repeated", "meaning"], _error_rows(ImemError, ""))


# Tools


def tools() -> str:
    """Return the table of tools of the MCP server."""
    rows = [
        [
            f"`{tool.name}`",
            _text(tool.description),
            ", ".join(f"`{name}`{'' if name in tool.required else '?'}" for name in tool.arguments),
            "" if tool.action is Action.READ else f"`{tool.action.value}` of `{tool.resource.value}`",
        ]
        for tool in TOOLS
    ]
    return _table(["tool", "gives or does", "arguments", "takes, to be listed"], rows)


# States


def _states(machine: StateMachine[Any, Any]) -> str:
    rows = [[machine.name_of(one.before), one.event, one.after.value, one.when] for one in machine.transitions]
    return _table(["from", "event", "to", "when"], rows)


def pause_states() -> str:
    """Return the table of transitions of a pause."""
    return _states(PAUSE_STATES)


def gate_states() -> str:
    """Return the table of transitions of a human gate."""
    return _states(GATE_STATES)


def task_states() -> str:
    """Return the table of transitions of a review task."""
    return _states(TASK_STATES)


def case_states() -> str:
    """Return the table of transitions of a post-mortem."""
    return _states(CASE_STATES)


def pattern_states() -> str:
    """Return the table of transitions of a pattern."""
    return _states(PATTERN_STATES)


# The graph


def _properties(part: PropertySet) -> str:
    rows = [
        [f"`{name}`", part.properties[name].type.name, "yes" if required else "", description or ""]
        for name, required, description in (
            (name, prop.required, prop.description) for name, prop in part.properties.items()
        )
    ]
    return _table(["property", "type", "required", "meaning"], rows)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _tag(tag: TagName | Tag) -> str:
    if isinstance(tag, str):
        return f"`{tag}`"
    return f"`{tag.name}:{{{tag.field}}}`" if tag.field is not None else f"`{tag.name}`"


def _kind(info: KindInfo) -> str:
    labels = ", ".join(f"`{label}`" for label in (*info.labels, *info.labels_when))
    notes = [f"Key `{info.key}`; labels {labels}."]
    if info.governed:
        notes.append(f"Governed: only the {info.governed} subsystem writes it.")
    own = f"`record:{info.label}/{{{info.key}}}`"
    notes.append(f"A write invalidates {', '.join([own, *map(_tag, info.tags)])}.")
    parts = [f"### {info.label}\n", f"{_text(_first_paragraph(info.model.__doc__))}\n", " ".join(notes) + "\n"]
    parts.append(_properties(info.core))
    for group in info.groups.values():
        remark = (
            "derived, computed here" if group.derived else f"governed by {group.governed}" if group.governed else ""
        )
        parts.append(
            f"Group `{group.name}`{f' ({remark})' if remark else ''}: {_text(_first_paragraph(group.model.__doc__))}\n"
        )
        parts.append(_properties(group))
    return "\n".join(parts)


def kinds() -> str:
    """Return one section for each kind of node."""
    return "\n".join(_kind(info) for info in KINDS.values())


def _link_remarks(link: LinkKind) -> str:
    remarks = []
    if link.implied_by:
        remarks.append(f"written by `{link.implied_by}` ({', '.join(f'`{via}`' for via in link.via)})")
    if link.identity:
        remarks.append(f"identity also {', '.join(f'`{name}`' for name in link.identity)}")
    remarks += [word for word, holds in (("undirected", link.undirected), ("derived", link.derived)) if holds]
    if link.replaced:
        remarks.append("one target at a time")
    if link.governed:
        remarks.append(f"governed by {link.governed}")
    if link.tags:
        remarks.append(f"invalidates {', '.join(map(_tag, link.tags))}")
    return "; ".join(remarks)


def links() -> str:
    """Return the table of relationships."""
    rows = [
        [
            f"`{link.name}`",
            ", ".join(link.froms),
            ", ".join(link.tos),
            ", ".join(f"`{name}`" for name in link_props(link).properties),
            _link_remarks(link),
        ]
        for link in LINK_KINDS
    ]
    return _table(["type", "from", "to", "properties", "remarks"], rows)


def queries() -> str:
    """Return one section for each file of named queries, with the comment of each."""
    files: dict[str, list[Statement]] = {}
    for statement in load(root_of("kg", "cypher") / "queries", ".cypher").values():
        files.setdefault(statement.path.stem, []).append(statement)
    parts = []
    for stem, statements in sorted(files.items()):
        parts.append(f"## {stem}\n")
        for statement in statements:
            comment = [line[2:].strip() for line in takewhile(_is_comment, statement.text.splitlines())]
            parts.append(f"### {statement.name}\n\n" + "\n".join(["```text", *comment, "```", ""]))
    return "\n".join(parts)


def _is_comment(line: str) -> bool:
    return line.startswith("//")


def metric_table() -> str:
    """Return the table of metrics, in the order in which they are tried."""
    rows = [
        [
            f"`{metric.match}`",
            metric.kind,
            metric.tolerance or "",
            metric.unit or "",
            metric.cautious or "",
            metric.meaning or "",
        ]
        for metric in metrics()
    ]
    return _table(["name matches", "settled as", "tolerance", "unit", "most cautious", "meaning"], rows)


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands,
    "settings": settings,
    "authorization": authorization,
    "errors": error_table,
    "pause_states": pause_states,
    "gate_states": gate_states,
    "task_states": task_states,
    "case_states": case_states,
    "pattern_states": pattern_states,
    "kinds": kinds,
    "links": links,
    "metrics": metric_table,
    "tools": tools,
    "queries": queries,
}


def with_parts(text: str) -> str:
    """
    Return the text of a page with the parts that it names as the code gives them now.

    Raises:
        KeyError: it names a part that does not exist.
    """
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]().strip()}\n\n{found[3]}", text)


def pages() -> list[Path]:
    """Return the pages that have such a part, in order."""
    found = (page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts)
    return [page for page in found if _PART.search(page.read_text(encoding="utf-8"))]


def write() -> list[Path]:
    """Write the parts into their pages; return the pages that changed."""
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := with_parts(text)) != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
