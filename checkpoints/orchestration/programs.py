"""
Programs of agents: a Python callable for each agent type, registered by a module of the user's.

``IMEM_AGENT_PROGRAMS`` names the module; every worker that runs agents imports it. Example::

    from imem.checkpoints.orchestration.programs import NO_RESULT, AgentRun, program

    @program("business_research")
    async def research(run: AgentRun) -> None:
        for subtask in run.session.pending:
            await run.session.memory.set("stage", subtask)
            ...
            await run.session.deliver(subtask, postgres={"rows": 17}, graph=NO_RESULT)
            await run.session.complete(subtask)
            await run.safe_point()

A program returns when its agent has completed. When it has to stop, it must not catch the exception of
:meth:`AgentRun.safe_point`; any other exception is a failure of the agent. After a transient failure, such as a
timeout, the program is called again and continues with ``run.session.pending``; its background tasks must have ended by
then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from imem.checkpoints.orchestration.orchestrator import StartedAgent
from imem.checkpoints.result_delivery import NO_RESULT
from imem.checkpoints.session import Session
from imem.journal.arguments import checks_call
from imem.journal.errors import BadInput, ImemError, SettingsError

__all__ = ["NO_RESULT", "AgentRun", "AgentStopped", "Program", "load", "program", "program_of"]


class AgentStopped(ImemError):
    """The analysis is being paused or is over: the agent stops at a safe point."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """
    The argument of a program.

    Attributes:
        started: the agent and its analysis.
        session: its verified working memory, and its checkpoints.
        stop_requested: returns why the agent must stop, or None.
        tools: objects that the worker provides to programs.
        attempt: the number of this attempt of the current subtask, from 1.
    """

    started: StartedAgent
    session: Session
    stop_requested: Callable[[], Awaitable[str | None]]
    tools: Any = field(default=None, repr=False)
    attempt: int = 1

    async def safe_point(self) -> None:
        """
        Stop here if the analysis is being paused; to be called between subtasks, after the checkpoint.

        Raises:
            AgentStopped: it is being paused; the program must not catch it.
        """
        why = await self.stop_requested()
        if why is not None:
            raise AgentStopped(f"{self.started.analysis_id} is {why}.")


Program = Callable[[AgentRun], Awaitable[None]]

_PROGRAMS: Final[dict[str, Program]] = {}


@checks_call
def program(agent_type: str) -> Callable[[Program], Program]:
    """
    Return a decorator that registers a function as the program of *agent_type*; the last one wins.

    Raises:
        BadInput: *agent_type* is no text, or the decorated object is not callable.
    """

    def register(function: Program) -> Program:
        if not callable(function):
            raise BadInput("function", f"must be something to call, not {type(function).__name__}.")
        _PROGRAMS[agent_type] = function
        return function

    return register


def program_of(agent_type: str) -> Program:
    """
    Return the program of *agent_type*.

    Raises:
        BadInput: none is registered.
    """
    found = _PROGRAMS.get(agent_type)
    if found is None:
        raise BadInput(
            "agent_type", f"no program is registered for {agent_type!r}.", mend="IMEM_AGENT_PROGRAMS names the module."
        )
    return found


def load(module: str | None) -> None:
    """
    Import the module that registers programs; does nothing without one.

    Raises:
        SettingsError: it cannot be imported.
    """
    if module is None:
        return
    try:
        import_module(module)
    except ImportError as error:
        raise SettingsError(
            f"IMEM_AGENT_PROGRAMS names {module}, which cannot be imported.",
            mend="It is a Python module that registers programs with imem.checkpoints.orchestration.programs.program.",
        ) from error
