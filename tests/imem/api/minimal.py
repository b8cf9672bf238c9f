"""The least arguments of an operation that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.services.wire import Wire

AT: Final = "2026-06-01T10:00:00Z"
MEMORY: Final = "0197a000-0000-7000-8000-000000000000"

_BY_FORMAT: Final = {"date-time": AT, "uuid": MEMORY}

_BY_NAME: Final = {
    "subject_id": "company:MU",
    "agents_involved": ["ann"],
    "metric": "up",
    "source_b": "b",
    **dict.fromkeys(("date", "decided_at", "target_at", "observed_at", "timestamp", "period_end", "filed_at"), AT),
}
"""Members whose schema says less than what they take."""

_SURE: Final = {"confidence": 0.5, "fair_probability": 0.5}
_COMPANY: Final = {"record": "Company", "ticker": "MU"}
_PATTERN: Final = {
    "name": "Crowds overshoot", "category": "financial", "metric": "up", "reference": "crowd", "claim": "higher",
    "condition": [{"feature": "forecast", "comparison": "at_least", "value": 0.5}], "period": "week",
    "mechanism": "They herd.",
}  # fmt: skip
_OF_OPERATION: Final[Mapping[str, Mapping[str, Any]]] = {
    "record": {"model": _COMPANY},
    "correct": {"model": _COMPANY},
    "link": {"type_": "PERFORMED", "start": ["Agent", "ann"], "end": ["Analysis", "a"]},
    "patterns.plan_test": {"definition": _PATTERN},
    "patterns.propose": {"definition": _PATTERN},
    "record_groups": {
        "kind": "Company", "key": "MU", "groups": {"profile": {"group": "Company.Profile", "name": "Micron"}},
    },
    "signals.record": {"signal": {"market_id": "m", "agent_name": "ann", "direction": "YES", **_SURE}},
    "memories.delete_all": {"namespace": "symbol/MU"},
    "memories.extract": {"messages": [{"role": "user", "content": "It rises."}]},
    "reflections.configure": {"deployment": "d", "config": {}},
    "reflections.current": {"deployment": "d"},
    "reflections.prompt_section": {"deployment": "d"},
    "trades.recent": {"deployment": "d"},
}  # fmt: skip
"""Arguments of which at least one of several must be given, or whose schema leaves them open."""


def least_arguments(wire: Wire) -> dict[str, Any]:
    """Return the arguments that *wire*'s operation requires, each as small as may be."""
    schema = wire.arguments.model_json_schema()
    least = _least(schema, schema.get("$defs", {}))
    return {**least, **_OF_OPERATION.get(wire.operation.name, {})}


def _least(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each type
    if "$ref" in schema:
        return _least(named[schema["$ref"].rpartition("/")[2]], named)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _least(schema[several][0], named)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            members = schema.get("properties", {})
            return {name: _BY_NAME.get(name, _least(members[name], named)) for name in schema.get("required", ())}
        case "array":
            return [_least(schema.get("items", {}), named)] * schema.get("minItems", 0)
        case "string":
            return _BY_FORMAT.get(schema.get("format", ""), "a" * max(1, schema.get("minLength", 1)))
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return False
    return None
