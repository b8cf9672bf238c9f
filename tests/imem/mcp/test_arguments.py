"""Arguments of tools as clients send them: what means one thing is taken, and the rest is refused with an example."""

from __future__ import annotations

from typing import Any

import pytest

from imem.journal.errors import BadInput
from imem.mcp.tools import TOOLS_BY_NAME, Tool

SEARCH: Tool = TOOLS_BY_NAME["search"]


@pytest.mark.parametrize(
    ("name", "sent", "meant"),
    [
        ("kinds", '["memory"]', ["memory"]),
        ("kinds", '["memory", "turn"]', ["memory", "turn"]),
        ("kinds", "memory", ["memory"]),
        ("kinds", '"memory"', ["memory"]),
        ("kinds", ["memory"], ["memory"]),
        ("kinds", "[]", []),
        ("limit", "5", 5),
        ("limit", " 5 ", 5),
        ("limit", 5.0, 5),
        ("limit", "5.0", 5),
        ("query", "5", "5"),
        ("query", '["memory"]', '["memory"]'),
    ],
)
def test_what_means_one_thing(name: str, sent: Any, meant: Any) -> None:
    found = SEARCH._meant(name, sent)
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("name", "sent", "example"),
    [
        ("kinds", "memory, turn", '{"kinds": ['),
        ("kinds", '{"a": 1}', '{"kinds": ['),
        ("kinds", 7, '{"kinds": ['),
        ("limit", "five", '{"limit": 5}'),
        ("limit", "5.5", '{"limit": 5}'),
        ("limit", True, '{"limit": 5}'),
        ("limit", "true", '{"limit": 5}'),
        ("limit", [5], '{"limit": 5}'),
    ],
)
def test_what_does_not_shows_a_right_argument(name: str, sent: Any, example: str) -> None:
    with pytest.raises(BadInput) as refused:
        SEARCH._meant(name, sent)
    assert refused.value.field == name
    assert example in str(refused.value)


def test_every_number_and_list_of_every_tool_is_taken_from_text() -> None:
    """Whatever tool it is of."""
    asked = 0
    for tool in TOOLS_BY_NAME.values():
        for name, schema in tool.arguments.items():
            if schema.get("type") in {"integer", "number"}:
                assert tool._meant(name, "3") == 3
                asked += 1
            elif schema.get("type") == "array":
                assert tool._meant(name, '["x"]') == ["x"]
                asked += 1
    assert asked > 10
