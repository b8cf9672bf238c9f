"""An independent reading of graph.yaml: what a line of the load format may say, without the product's own models."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_PATH = Path(__file__).parents[1] / "data" / "graph.yaml"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TURN_TEXT = 4000


@cache
def graph() -> dict[str, Any]:
    """Return the parsed file."""
    parsed: dict[str, Any] = yaml.safe_load(_PATH.read_text("utf-8"))
    return parsed


def problems(line: dict[str, Any]) -> list[str]:
    """Return everything that is wrong with *line*, each with its field."""
    found = [] if _TIME.fullmatch(line.get("known_at", "")) else ["known_at"]
    if "record" in line:
        return found + _record_problems(line)
    return found + _link_problems(line)


def _record_problems(line: dict[str, Any]) -> list[str]:
    unknown = line.keys() - {"record", "key", "known_at", "occurred_at", "core", "groups", "body", "turns"}
    found = [f"unknown {name}" for name in unknown]
    kind = graph()["nodes"][line["record"]]
    if "governed" in kind:
        found.append("governed kind")
    if "core" in line:
        found += _fields("core", kind["core"], line["core"])
    elif not isinstance(line.get("key"), str):
        found.append("key")
    for name, value in line.get("groups", {}).items():
        group = kind["groups"][name]
        if "_governed" in group or "_derived" in group:
            found.append(f"governed or derived group {name}")
        found += _fields(name, group, value)
    if len(line.get("body", "").encode()) > graph()["limits"]["body_bytes"]:
        found.append("body")
    if line["record"] != "Debate" and "turns" in line:
        found.append("turns")
    numbers = [turn["number"] for turn in line.get("turns", [])]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append("turns.number")
    found += [f"turn {turn['number']}" for turn in line.get("turns", []) if len(turn["text"]) > _TURN_TEXT]
    return found + _claim_problems(line)


def _claim_problems(line: dict[str, Any]) -> list[str]:
    core = line.get("core", {})
    if "metric" not in core:
        return []
    kind = next((entry["kind"] for entry in graph()["metrics"] if re.match(entry["match"], core["metric"])), None)
    if kind is None or "target_at" not in core:
        return ["metric"]
    needed = {"binary": "probability", "direction": "direction", "value": "value"}[kind]
    return [] if line["record"] != "Finding" or needed in core else [f"claim without {needed}"]


def _link_problems(line: dict[str, Any]) -> list[str]:
    found = [f"unknown {name}" for name in line.keys() - {"link", "from", "to", "props", "known_at"}]
    (start,), (end,) = line["from"], line["to"]
    for entry in graph()["relationships"][line["link"]]:
        starts, ends = entry["from"], entry["to"]
        if start in (starts if isinstance(starts, list) else [starts]) and end in (
            ends if isinstance(ends, list) else [ends]
        ):
            if entry.keys() & {"governed", "derived", "implied_by"}:
                found.append("a link that the loader does not take")
            return found + _fields("props", entry.get("props", {}), line.get("props", {}))
    return [*found, "ends"]


def _fields(where: str, allowed: dict[str, Any], given: dict[str, Any]) -> list[str]:
    rules = {name: kind for name, kind in allowed.items() if not name.startswith("_")}
    found = [f"{where}.{name} is unknown" for name in given.keys() - rules.keys()]
    found += [f"{where}.{name} is missing" for name, kind in rules.items() if kind.endswith("!") and name not in given]
    return found + [
        f"{where}.{name} is no {rules[name]}"
        for name, value in given.items()
        if name in rules and not _fits(name, rules[name].removesuffix("!"), value)
    ]


def _fits(name: str, kind: str, value: Any) -> bool:
    limits = graph()["limits"]
    if kind in graph()["enums"]:
        return value in graph()["enums"][kind]
    if kind == "key":
        limit = limits["agent"] if name in {"agent", "name", "domain"} else limits["key"]
        return isinstance(value, str) and 1 <= len(value) <= limit and not (limit == limits["agent"] and "/" in value)
    if kind in {"string", "text", "long"}:
        return isinstance(value, str) and 1 <= len(value) <= limits[kind] and "\0" not in value
    if kind == "strings":
        return len(value) <= limits["strings"] and all(_fits(name, "string", text) for text in value)
    if kind == "json":
        return isinstance(json.loads(value), dict) and len(value.encode()) <= limits["json_bytes"]
    if kind == "prob":
        return isinstance(value, int | float) and 0 <= value <= 1
    if kind == "datetime":
        return _TIME.fullmatch(value) is not None and datetime.fromisoformat(value).tzinfo is not None
    expected = {"int": int, "float": float, "bool": bool}[kind]
    return type(value) is expected
