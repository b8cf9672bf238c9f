"""Act-as delegation: under which agents' names a process may act."""

from __future__ import annotations

from imem.ingest.recorder import reference_kind
from imem.journal.actors import Action, Actor, Resource, ResourceType, only_reads
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied
from imem.journal.gateway import Gateway
from imem.journal.settings import Role


async def delegated_actor(gateway: Gateway, agent: str, *, lender: Actor | None = None, deadline: Deadline) -> Actor:
    """
    Return an actor with the name *agent* and an agent's rights; it carries the id of the delegating actor *lender*.

    The name of a baseline, an ensemble or a human may be used only by an actor that may append for it. The agent's
    governed kind is looked up once, here: a later change does not end the delegation. A role that only reads lends no
    name: under it the process would write.

    Raises:
        PermissionDenied: the agent is a baseline, an ensemble or a human, or *lender* only reads; one denial row was
            written.
        PostgresUnavailable, BudgetExceeded: the agent's kind could not be looked up; retryable.
    """
    lender = lender or gateway.actor
    its = Resource(ResourceType.JOURNAL, f"as {agent}", agent)
    if only_reads(lender.role):
        await gateway.authorize(its, Action.APPEND, deadline=deadline, actor=lender)
    if not gateway.may(its, Action.APPEND, actor=lender):
        kind = await reference_kind(gateway.database, agent, deadline=deadline)
        if kind is not None:
            await _refuse(gateway, lender, its, kind, deadline)
    return Actor(agent, Role.AGENT, lent_by=lender.lent_by or lender.id)


async def _refuse(gateway: Gateway, lender: Actor, its: Resource, kind: str, deadline: Deadline) -> None:
    try:
        await gateway.authorize(its, Action.APPEND, deadline=deadline, actor=lender)
    except PermissionDenied as denied:
        who = f"{lender.id} ({lender.role})"
        raise PermissionDenied(
            f"{who} may not act as {its.owner}, whose kind is {kind}: others are measured against it.", mend=denied.mend
        ) from denied
