"""The product's own processes, as the supervisor starts them: ``python -m imem.worker ROLE``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from imem.journal.settings import PREFIX, Settings
from imem.local.process import Command
from imem.local.readiness import VARIABLE

ROLES = ("applier", "celery", "beat")

AGENTS = "agents"
"""Beside them, where there are programs of agents to run."""

STOP_S = 3.0
"""How long a process of pipelines may take to end, in seconds: one that is killed loses nothing, and begins again."""

AGENTS_STOP_S = 10.0
"""The same for the process that runs programs of agents."""

TOP = Path(__file__).resolve().parent.parent.parent
"""Folder that the packages are imported from: the checkout's, or site-packages."""


@dataclass(frozen=True, slots=True)
class Worker:
    """
    A process without a port.

    Attributes:
        name: as the status table and ``imem logs`` call it.
        argv: program and arguments.
        notifies_ready: whether it says when it is ready (:mod:`imem.local.readiness`); otherwise it is once it runs.
    """

    name: str
    argv: tuple[str, ...]
    notifies_ready: bool = False

    def command(self, settings: Settings, ready: Path) -> Command:
        """
        Return how it is started: it reads addresses and passwords from the state file, not from its environment.

        Args:
            ready: the file that it makes when it is ready.
        """
        return Command(
            self.argv,
            settings.home,
            {**environment(settings), VARIABLE: str(ready)},
            stop_signal=signal.SIGTERM,
            death_signal=signal.SIGTERM,
            timeout_s=AGENTS_STOP_S if self.name == AGENTS else STOP_S,
        )


def standard(settings: Settings) -> tuple[Worker, ...]:
    """Return the workers of a whole stack with *settings*."""
    roles = ROLES if settings.agent_programs is None else (*ROLES, AGENTS)
    return tuple(Worker(role, (sys.executable, "-m", "imem.worker", role), notifies_ready=True) for role in roles)


def environment(settings: Settings) -> Mapping[str, str]:
    """Return the settings as variables, without any secret, and what Python needs to find the packages."""
    variables = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if value is None or isinstance(value, SecretStr) or name in {"neo4j_url", "neo4j_user"}:
            continue
        text = str(value.value if hasattr(value, "value") else value)
        variables[PREFIX + name.upper()] = text.lower() if isinstance(value, bool) else text
    path = os.pathsep.join(part for part in (str(TOP), os.environ.get("PYTHONPATH", "")) if part)
    return {**variables, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
