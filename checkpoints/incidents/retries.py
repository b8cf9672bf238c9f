"""
Retries of a subtask after a transient failure: how often, and after which delay.

A failed attempt is recorded with its checkpoint before the next one begins, so that the count survives a crash. The
next checkpoint begins the count anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from imem.checkpoints.incidents.failures import AgentFailure, FailureKind, class_of, failure_of
from imem.checkpoints.incidents.reports import FailedAttempt, Incidents
from imem.checkpoints.orchestration.orchestrator import StartedAgent
from imem.checkpoints.pauses.lifecycle import FailureClass
from imem.journal.deadline import Deadline
from imem.journal.errors import UNANSWERED
from imem.journal.events.ids import id_of

log = structlog.get_logger()

CALL_BUDGET_MS: Final = 10_000
"""Timeout of reading and of writing attempts, each, in milliseconds."""


def numbered(failure: AgentFailure, earlier: Sequence[FailedAttempt]) -> AgentFailure:
    """
    Return *failure* with its attempt number, and the consecutive timeouts of its endpoint.

    Args:
        earlier: the attempts before it, newest first.
    """
    timeouts = 1
    for one in earlier:
        if one.endpoint != failure.endpoint:
            continue
        if one.kind is not FailureKind.TIMEOUT:
            break
        timeouts += 1
    return replace(failure, attempt=len(earlier) + 1, timeouts=timeouts if failure.kind is FailureKind.TIMEOUT else 1)


@dataclass(slots=True)
class AttemptTracker:
    """
    The attempts of one run of an agent.

    Attributes:
        incidents: records them.
        started: the agent.
        count: failed attempts of the current subtask, as far as known.
    """

    incidents: Incidents
    started: StartedAgent
    count: int = 0
    _seq: int | None = None
    _seen: list[FailedAttempt] = field(default_factory=list)

    async def failed(self, error: BaseException, seq: int | None) -> AgentFailure:
        """
        Return the failure of an attempt; where it is to be retried, it is recorded.

        Without Postgres, the attempts of this process are counted.

        Args:
            seq: of the checkpoint after which the attempt was made; None where none could be read.
        """
        if seq != self._seq:
            self._seq, self._seen = seq, []
        failure = numbered(failure_of(error), await self._earlier())
        self._seen.insert(0, FailedAttempt(failure.kind, failure.endpoint))
        self.count = failure.attempt
        if class_of(failure) is FailureClass.RETRY:
            await self._note(error, failure)
        return failure

    async def _earlier(self) -> Sequence[FailedAttempt]:
        try:
            found = await self.incidents.earlier(
                self.started.analysis_id, self.started.agent_type, deadline=Deadline.after_ms(CALL_BUDGET_MS)
            )
        except UNANSWERED:
            return self._seen
        return max(found, self._seen, key=len)

    async def _note(self, error: BaseException, failure: AgentFailure) -> None:
        started, name = self.started, type(error).__name__
        try:
            await self.incidents.report(
                started.analysis_id, started.agent_type, failure,
                failure_id=id_of(
                    "attempt", started.analysis_id, started.agent_type, started.dispatch, self._seq, failure.attempt
                ),
                details={"error": name, "dispatch": started.dispatch}, deadline=Deadline.after_ms(CALL_BUDGET_MS),
            )  # fmt: skip
        except UNANSWERED as trouble:
            log.warning("attempt_not_recorded", analysis_id=started.analysis_id, error=trouble.message)
        log.warning(
            "agent_tried_again", analysis_id=started.analysis_id, agent=started.agent_type, error=name,
            attempt=failure.attempt,
        )  # fmt: skip
