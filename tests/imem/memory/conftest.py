"""The memory as agents and people open it, on a database of the test's own and the Valkeys of the light stack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from imem.journal.settings import Role, Settings
from tests.servers import asked, cloned, in_database

AGENTS = {
    "agents": [
        {
            "agent_type": "reader",
            "subtasks": [{"name": "fetch"}, {"name": "read", "reentrant": True}, {"name": "rate"}],
        },
        {"agent_type": "clerk", "subtasks": [{"name": "file", "stores": ["postgres", "cache"]}]},
    ]
}


@dataclass(frozen=True)
class MemoryHarness:
    """
    Servers, and who may come in.

    Attributes:
        settings: with their addresses; nobody in particular.
        admin_url: the database, as its owner.
        analysis: an id that no other test has; the agent is called after it.
    """

    settings: Settings
    admin_url: str
    analysis: str = field(default_factory=lambda: f"analysis:{uuid4().hex[:12]}")

    @property
    def agent_id(self) -> str:
        return f"reader-{self.analysis.removeprefix('analysis:')}"

    @property
    def names(self) -> dict[str, Any]:
        """What a session of this test's agent is asked for, besides its id."""
        return {"analysis_id": self.analysis, "agent_type": "reader", "subject_id": "company:MU"}

    def of(self, actor: str = "ann", role: Role = Role.AGENT) -> Settings:
        """Return the settings of somebody, by default of an agent."""
        return self.settings.model_copy(update={"actor": actor, "role": role})

    def rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Look, or change something, behind the application's back."""
        return asked(self.admin_url, query, parameters)

    def audited(self, *, authorized: bool) -> list[tuple[str, str, str]]:
        """Return who was denied what, or whose access was noted, in order."""
        found = self.rows(
            "SELECT actor_id, resource_type, action FROM memory_access_audit WHERE authorized = %s "
            "ORDER BY timestamp, id",
            authorized,
        )
        return [tuple(row.values()) for row in found]


@pytest.fixture
def harness(light_stack: Any, light_template: str, tmp_path: Path) -> Iterator[MemoryHarness]:
    agents = tmp_path / "agents.json"
    agents.write_text(json.dumps(AGENTS))
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {
            **in_database(light_stack.settings, url),
            # No graph is needed, and none is asked.
            "neo4j_url": "bolt://127.0.0.1:1",
            "agents": agents,
        }
        yield MemoryHarness(light_stack.settings.model_copy(update=addresses), admin_url)
