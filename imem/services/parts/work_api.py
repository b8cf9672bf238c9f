"""Sessions, working memories and conversations of agents: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.recall.brief import Recall
from imem.services.arguments import MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.parts.actor_api import ActorApi
from imem.services.recall import while_warming

if TYPE_CHECKING:
    from imem.checkpoints.conversations.store import Conversations
    from imem.checkpoints.session import Session
    from imem.services.conversations import Conversation
    from imem.services.working import AgentServices, AuthorizedMemory

SESSION_BUDGET_MS: Final = 40_000
"""Default budget of an agent's recovery, in milliseconds: the slowest store has 30 s."""


@checks_arguments
class WorkApi(ActorApi):
    """The services that agents work with; see :class:`imem.memory.Memory`."""

    _recall: Recall
    _conversations: Conversations | None = None

    @property
    def work(self) -> AgentServices:
        """Sessions, working memories and checkpoints of agents."""
        from imem.services.working import AgentServices  # noqa: PLC0415 - who only asks needs none of it

        return AgentServices(self._stores, self._actor)

    def working(self, agent_id: str) -> AuthorizedMemory:
        """
        Return the working memory of an agent instance: like a dict, of texts, lists, hashes, sets and sorted sets.

        An agent may use its own alone; a person may read, not write. It exists while a :meth:`session` of the agent
        runs, or is paused.
        """
        return self.work.memory(agent_id)

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
    ) -> AbstractAsyncContextManager[Session]:
        """
        Begin or resume an agent instance: at its next subtask, with the working memory of its last checkpoint.

        ::

            async with memory.session("mu-valuation", analysis_id=…, agent_type="valuation", subject_id=…) as session:
                while (subtask := session.current) is not None:
                    await session.memory.set("stage", subtask)
                    await session.deliver(subtask, postgres={"rate": 0.09}, graph=NO_RESULT)
                    await session.complete(subtask)

        Args:
            agent_id: the instance: letters, digits, ``_`` and ``-``, at most 64.
            agent_type: one that is defined; ``IMEM_AGENTS`` names a file with more.
            wait_ms: how long to wait for the lease of another process that runs the agent, in milliseconds. The lease
                of a killed process expires 30 s after its last renewal.
            deadline_ms: how long the recovery may take after that, in milliseconds.

        Raises:
            NotResumable: no stored snapshot passed verification; an alert was raised, and nothing was started.
            LeaseHeld: another process runs the agent; retryable.
            LeaseLost: another process has taken over; the block ends at its next call.
            PermissionDenied: the instance is another agent's.
        """
        most = MOST_WRITE_BUDGET_MS
        waiting_ms = budget_ms(wait_ms, default=0, least=0, most=most, name="wait_ms")
        recovering_ms = budget_ms(deadline_ms, default=SESSION_BUDGET_MS, least=1, most=most)
        session = self.work.session(
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            agent_config=agent_config,
            wait=Deadline.after_ms(waiting_ms),
            deadline=Deadline.after_ms(waiting_ms + recovering_ms),
        )
        return while_warming(self._recall, subject_id, session)

    def conversation(self, workflow_id: str, thread_id: str) -> Conversation:
        """
        Return a thread of messages with a bounded window; it begins with its first message.

        ::

            talk = memory.conversation("analysis-7", "valuation")
            await talk.add(Message(role="user", content="What drives the margin?"))
            messages = [message.to_chat() for message in await talk.window()]

        It belongs to the actor that begins it: only that actor adds to it, people may read and delete it.

        Args:
            workflow_id: the workflow that it belongs to, such as an analysis; at most 200 characters.
            thread_id: its name there; at most 255 characters.

        Raises:
            BadInput: an id is wrong.
            SettingsError: the settings name an endpoint for summaries, and no model.
        """
        from imem.services.conversations import Conversation  # noqa: PLC0415 - who has none needs none of it

        if self._conversations is None:
            from imem.checkpoints.conversations.store import Conversations  # noqa: PLC0415 - as above
            from imem.checkpoints.conversations.summaries import summariser_of  # noqa: PLC0415 - as above

            self._conversations = Conversations(self._stores.database, summariser_of(self._stores.settings))
        return Conversation(self._stores, self._actor, self._conversations, workflow_id, thread_id)
