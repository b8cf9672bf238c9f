"""
``SyncMemory``: the methods of :class:`imem.memory.Memory` without ``await``.

Those that are operations are written by `tools/twin.py`; here stands what needs a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from imem.blocking.everyday import EverydayTwin
from imem.blocking.portal import Portal
from imem.journal.settings import Settings
from imem.memory import Memory
from imem.services.facets.agent_work import SESSION_BUDGET_MS

if TYPE_CHECKING:
    from imem.blocking.conversations import SyncConversation
    from imem.blocking.working import SyncSession, SyncWorkingMemory


class SyncMemory(EverydayTwin):
    """
    The memory for callers without an event loop; made by :meth:`imem.memory.Memory.sync`.

    Calls run in one loop thread; any number of threads may call at once. The methods' promises and errors
    stand at :class:`imem.memory.Memory`.
    """

    def __init__(self, portal: Portal, memory: Memory) -> None:
        super().__init__(portal, memory)
        self._portal = portal

    @classmethod
    @contextmanager
    def open(cls, settings: Settings | None = None, *, warm_up: bool = False) -> Iterator[Self]:
        """Open the memory that *settings* name, the environment's by default; see :meth:`imem.memory.Memory.open`."""
        with Portal() as portal, portal.hold_context(lambda: Memory.open(settings, warm_up=warm_up)) as held:
            yield cls(portal, held.value)

    @contextmanager
    def acting_as(self, agent: str) -> Iterator[Self]:
        """Act as one of several agents of this process (delegation); see :meth:`imem.memory.Memory.acting_as`."""
        with self._portal.hold_context(lambda: self._inner.acting_as(agent)) as held:
            yield type(self)(self._portal, held.value)

    # Working

    def working(self, agent_id: str) -> SyncWorkingMemory:
        """Return the working memory of an agent instance, like a dict; see :meth:`imem.memory.Memory.working`."""
        from imem.blocking.working import SyncWorkingMemory  # noqa: PLC0415 - who only asks needs none of it

        return SyncWorkingMemory.of(self._portal, lambda: self._inner.working(agent_id))

    def session(
        self,
        agent_id: str,
        *,
        analysis_id: str,
        agent_type: str,
        subject_id: str,
        agent_config: Mapping[str, Any] | None = None,
        wait_ms: int = 0,
        deadline_ms: int = SESSION_BUDGET_MS,
    ) -> AbstractContextManager[SyncSession]:
        """
        Begin or resume an agent instance; for arguments and errors see :meth:`imem.memory.Memory.session`.

        ::

            with memory.session("mu-valuation", analysis_id=…, agent_type="valuation", subject_id=…) as session:
                while (subtask := session.current) is not None:
                    session.memory.set("stage", subtask)
                    session.deliver(subtask, postgres={"rate": 0.09}, graph=NO_RESULT)
                    session.complete(subtask)
        """
        from imem.blocking.working import SyncSession  # noqa: PLC0415 - as above

        return SyncSession.of(
            self._portal,
            lambda: self._inner.session(
                agent_id,
                analysis_id=analysis_id,
                agent_type=agent_type,
                subject_id=subject_id,
                agent_config=agent_config,
                wait_ms=wait_ms,
                deadline_ms=deadline_ms,
            ),
        )

    def conversation(self, workflow_id: str, thread_id: str) -> SyncConversation:
        """Return a thread of messages; see :meth:`imem.memory.Memory.conversation`."""
        from imem.blocking.conversations import SyncConversation  # noqa: PLC0415 - who has none needs none of it

        return SyncConversation.of(self._portal, lambda: self._inner.conversation(workflow_id, thread_id))
