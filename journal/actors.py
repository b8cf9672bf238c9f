"""Actors, and the one table of what each role may do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from imem.journal.errors import PermissionDenied
from imem.journal.settings import Role, Settings


@dataclass(frozen=True, slots=True)
class Actor:
    """
    The identity of a caller, from settings or a token, never from the call.

    Attributes:
        id: an agent's name, a person, a service, or ``import:<source>``.
        role: decides what it may do.
        may_import: whether it may state a ``known_at`` earlier than now, and settle claims.
        lent_by: id of the delegating actor (the process' own) under act-as delegation; in every audit row's context.
    """

    id: str
    role: Role
    may_import: bool = False
    lent_by: str | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Actor:
        """Return the actor that the settings name."""
        may_import = settings.may_import and settings.role not in {Role.AGENT, Role.REVIEWER, Role.READER}
        return cls(settings.actor, settings.role, may_import)

    @property
    def states_for_others(self) -> bool:
        """Whether it may state more than an agent's own facts, for which the database wants a curator's login."""
        return self.may_import or AUTHORIZATION.get((self.role, ResourceType.JOURNAL, Action.APPEND)) is Scope.ALL

    def importing(self, source: str) -> Actor:
        """Return the actor of an import from *source*, with the caller's role and import right."""
        return replace(self, id=f"import:{source}")


class ResourceType(StrEnum):
    """Types of protected resources (performance-and-resilience, section 8)."""

    WORKING_MEMORY = "working_memory"
    AGENT_CACHE = "agent_cache"
    GRAPH = "graph"
    PATTERNS = "patterns"
    CREDIBILITY = "credibility"
    AUDIT = "audit"
    JOURNAL = "journal"
    WORKFLOW = "workflow"
    """Leases, checkpoints, pauses and conversations of running analyses."""
    SYNC = "sync"
    """Synchronisations of agents' memories, snapshots of debates, reports of gates."""
    MEMORIES = "memories"
    """Texts that are kept in namespaces; an agent's own are those of its subtree, and what is open to every agent."""
    TRADES = "trades"
    """Ledgers of deployments; one's own are those whose first tick one recorded."""
    REVIEWS = "reviews"
    """Tasks for people, and the roster of who answers them."""
    REFLECTIONS = "reflections"
    """Notes about closed trades, and what a skill is reminded of; one's own are those of one's deployments."""
    LESSONS = "lessons"
    """Post-mortems, and lessons in every state. Lessons that agents see are part of the graph."""


class Action(StrEnum):
    """Actions on a resource."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    PROPOSE = "propose"
    VALIDATE = "validate"
    APPROVE = "approve"
    ACTIVATE = "activate"
    DEPRECATE = "deprecate"
    ARCHIVE = "archive"
    DROP_EXPIRED = "drop_expired"
    APPEND = "append"
    IMPORT = "import"
    APPEND_PATTERNS = "append_patterns"
    APPEND_CREDIBILITY = "append_credibility"
    APPEND_POSTMORTEM = "append_postmortem"
    APPEND_DEBATES = "append_debates"
    APPEND_GATES = "append_gates"
    PAUSE = "pause"
    RESUME = "resume"
    EXTEND = "extend"
    CANCEL = "cancel"
    ACKNOWLEDGE = "acknowledge"
    REPLAY = "replay"
    """Retry events that the graph refused for good."""
    ANSWER = "answer"
    """Answer a review task, or hand it over."""
    OVERRULE = "overrule"
    """End or delete what a person said."""
    SYNCHRONIZE = "synchronize"
    """Flush what agents have published, and take snapshots of it."""


class Scope(StrEnum):
    """The owners that a cell of the table covers."""

    OWN = "own"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Resource:
    """
    The kind of data that a call accesses.

    Attributes:
        type: the row of the table.
        id: what exactly, for the audit.
        owner: the agent that owns it; None for what belongs to the institution.
    """

    type: ResourceType
    id: str | None = None
    owner: str | None = None


def _cells(
    role: Role, resource: ResourceType, scope: Scope, *actions: Action
) -> dict[tuple[Role, ResourceType, Action], Scope]:
    return {(role, resource, action): scope for action in actions}


_R, _T, _A = Role, ResourceType, Action

AUTHORIZATION: dict[tuple[Role, ResourceType, Action], Scope] = {
    # agent
    **_cells(_R.AGENT, _T.WORKING_MEMORY, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.AGENT, _T.WORKFLOW, Scope.OWN, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(_R.AGENT, _T.AGENT_CACHE, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.AGENT, _T.GRAPH, Scope.ALL, _A.READ),
    **_cells(_R.AGENT, _T.PATTERNS, Scope.ALL, _A.READ, _A.PROPOSE),
    **_cells(_R.AGENT, _T.CREDIBILITY, Scope.OWN, _A.READ),
    **_cells(_R.AGENT, _T.JOURNAL, Scope.OWN, _A.APPEND),
    **_cells(_R.AGENT, _T.SYNC, Scope.ALL, _A.READ),
    **_cells(_R.AGENT, _T.SYNC, Scope.OWN, _A.SYNCHRONIZE),
    **_cells(_R.AGENT, _T.MEMORIES, Scope.OWN, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(_R.AGENT, _T.TRADES, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.AGENT, _T.REFLECTIONS, Scope.OWN, _A.READ, _A.WRITE),
    # knowledge base agent
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.WORKING_MEMORY, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.WORKFLOW, Scope.OWN, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.AGENT_CACHE, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.GRAPH, Scope.ALL, _A.READ, _A.WRITE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.PATTERNS, Scope.ALL, _A.READ, _A.PROPOSE, _A.VALIDATE, _A.ACTIVATE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.CREDIBILITY, Scope.ALL, _A.READ),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.AUDIT, Scope.ALL, _A.READ),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.JOURNAL, Scope.ALL, _A.APPEND, _A.IMPORT, _A.APPEND_PATTERNS),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.SYNC, Scope.ALL, _A.READ, _A.SYNCHRONIZE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.MEMORIES, Scope.ALL, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.TRADES, Scope.ALL, _A.READ, _A.WRITE),
    **_cells(_R.KNOWLEDGE_BASE_AGENT, _T.REFLECTIONS, Scope.ALL, _A.READ, _A.WRITE),
    # debate facilitator
    **_cells(_R.DEBATE_FACILITATOR, _T.WORKING_MEMORY, Scope.OWN, _A.READ, _A.WRITE),
    **_cells(_R.DEBATE_FACILITATOR, _T.WORKFLOW, Scope.OWN, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(_R.DEBATE_FACILITATOR, _T.AGENT_CACHE, Scope.ALL, _A.READ),
    **_cells(_R.DEBATE_FACILITATOR, _T.GRAPH, Scope.ALL, _A.READ),
    **_cells(_R.DEBATE_FACILITATOR, _T.PATTERNS, Scope.ALL, _A.READ),
    **_cells(_R.DEBATE_FACILITATOR, _T.CREDIBILITY, Scope.ALL, _A.READ),
    **_cells(_R.DEBATE_FACILITATOR, _T.AUDIT, Scope.ALL, _A.READ),
    **_cells(_R.DEBATE_FACILITATOR, _T.JOURNAL, Scope.ALL, _A.APPEND_DEBATES),
    **_cells(_R.DEBATE_FACILITATOR, _T.SYNC, Scope.ALL, _A.READ, _A.SYNCHRONIZE),
    **_cells(_R.DEBATE_FACILITATOR, _T.MEMORIES, Scope.OWN, _A.READ, _A.WRITE, _A.DELETE),
    # learning engine
    **_cells(_R.LEARNING_ENGINE, _T.AGENT_CACHE, Scope.ALL, _A.READ),
    **_cells(_R.LEARNING_ENGINE, _T.GRAPH, Scope.ALL, _A.READ, _A.WRITE),
    **_cells(_R.LEARNING_ENGINE, _T.PATTERNS, Scope.ALL, _A.READ, _A.VALIDATE, _A.DEPRECATE),
    **_cells(_R.LEARNING_ENGINE, _T.CREDIBILITY, Scope.ALL, _A.READ, _A.WRITE),
    **_cells(_R.LEARNING_ENGINE, _T.AUDIT, Scope.ALL, _A.READ),
    **_cells(
        _R.LEARNING_ENGINE, _T.JOURNAL, Scope.ALL,
        _A.APPEND, _A.IMPORT, _A.APPEND_PATTERNS, _A.APPEND_CREDIBILITY, _A.APPEND_POSTMORTEM,
    ),
    **_cells(_R.LEARNING_ENGINE, _T.SYNC, Scope.ALL, _A.READ),
    **_cells(_R.LEARNING_ENGINE, _T.MEMORIES, Scope.ALL, _A.READ),
    **_cells(_R.LEARNING_ENGINE, _T.TRADES, Scope.ALL, _A.READ),
    **_cells(_R.LEARNING_ENGINE, _T.REFLECTIONS, Scope.ALL, _A.READ),
    **_cells(_R.LEARNING_ENGINE, _T.LESSONS, Scope.ALL, _A.READ),
    # human admin
    **_cells(_R.HUMAN_ADMIN, _T.WORKING_MEMORY, Scope.ALL, _A.READ),
    **_cells(
        _R.HUMAN_ADMIN, _T.WORKFLOW, Scope.ALL,
        _A.READ, _A.DELETE, _A.PAUSE, _A.RESUME, _A.EXTEND, _A.CANCEL, _A.ACKNOWLEDGE,
    ),
    **_cells(_R.HUMAN_ADMIN, _T.AGENT_CACHE, Scope.ALL, _A.READ),
    **_cells(_R.HUMAN_ADMIN, _T.GRAPH, Scope.ALL, _A.READ, _A.WRITE, _A.DELETE),
    **_cells(
        _R.HUMAN_ADMIN, _T.PATTERNS, Scope.ALL,
        _A.READ, _A.PROPOSE, _A.VALIDATE, _A.APPROVE, _A.ACTIVATE, _A.DEPRECATE, _A.ARCHIVE,
    ),
    **_cells(_R.HUMAN_ADMIN, _T.CREDIBILITY, Scope.ALL, _A.READ, _A.WRITE, _A.APPROVE),
    **_cells(_R.HUMAN_ADMIN, _T.AUDIT, Scope.ALL, _A.READ, _A.DROP_EXPIRED),
    **_cells(_R.HUMAN_ADMIN, _T.SYNC, Scope.ALL, _A.READ, _A.SYNCHRONIZE),
    **_cells(_R.HUMAN_ADMIN, _T.MEMORIES, Scope.ALL, _A.READ, _A.WRITE, _A.DELETE, _A.OVERRULE),
    **_cells(_R.HUMAN_ADMIN, _T.TRADES, Scope.ALL, _A.READ),
    **_cells(_R.HUMAN_ADMIN, _T.REFLECTIONS, Scope.ALL, _A.READ, _A.WRITE, _A.APPROVE),
    **_cells(_R.HUMAN_ADMIN, _T.LESSONS, Scope.ALL, _A.READ),
    **_cells(
        _R.HUMAN_ADMIN, _T.JOURNAL, Scope.ALL,
        _A.APPEND, _A.IMPORT, _A.APPEND_GATES, _A.APPEND_POSTMORTEM, _A.REPLAY,
    ),
    **_cells(_R.HUMAN_ADMIN, _T.REVIEWS, Scope.ALL, _A.READ, _A.WRITE, _A.ANSWER),
    # reviewer: a person who reads what belongs to the institution, and answers the tasks of the roster
    **_cells(_R.REVIEWER, _T.GRAPH, Scope.ALL, _A.READ),
    **_cells(_R.REVIEWER, _T.PATTERNS, Scope.ALL, _A.READ),
    **_cells(_R.REVIEWER, _T.CREDIBILITY, Scope.ALL, _A.READ),
    **_cells(_R.REVIEWER, _T.SYNC, Scope.ALL, _A.READ),
    **_cells(_R.REVIEWER, _T.MEMORIES, Scope.OWN, _A.READ),
    **_cells(_R.REVIEWER, _T.REVIEWS, Scope.ALL, _A.READ, _A.ANSWER),
    **_cells(_R.REVIEWER, _T.LESSONS, Scope.ALL, _A.READ),
    # reader: what belongs to the institution, and nothing that an agent keeps for itself
    **_cells(_R.READER, _T.GRAPH, Scope.ALL, _A.READ),
    **_cells(_R.READER, _T.PATTERNS, Scope.ALL, _A.READ),
    **_cells(_R.READER, _T.CREDIBILITY, Scope.ALL, _A.READ),
    **_cells(_R.READER, _T.SYNC, Scope.ALL, _A.READ),
    **_cells(_R.READER, _T.MEMORIES, Scope.OWN, _A.READ),
}  # fmt: skip
"""(Role, resource, action) → scope. Everything else is denied, unknown names included."""


def allowed(actor: Actor, resource: Resource, action: Action) -> bool:
    """
    Return whether *actor* may do *action* to *resource*.

    Scope *own* requires that the owner is the actor; a resource without an owner fails it. Importing requires the
    actor's import right beside the cell.
    """
    scope = AUTHORIZATION.get((actor.role, resource.type, action))
    if scope is None or (action is Action.IMPORT and not actor.may_import):
        return False
    return scope is Scope.ALL or resource.owner == actor.id


def only_reads(role: Role) -> bool:
    """Return whether *role* may do nothing but read, so that it cannot act for one that may do more either."""
    return all(action is Action.READ for who, _, action in AUTHORIZATION if who is role)


def denial(actor: Actor, resource: Resource, action: Action) -> PermissionDenied:
    """Return the error that names what *actor* may not do, and the roles that may."""
    what = f"{action.replace('_', ' ')} {resource.type.replace('_', ' ')}"
    whose = f" of {resource.owner}" if resource.owner and resource.owner != actor.id else ""
    return PermissionDenied(
        f"{actor.id} ({actor.role}) may not {what}{whose}.", mend=_who_may(actor, resource.type, action)
    )


def _who_may(actor: Actor, resource: ResourceType, action: Action) -> str:
    scopes = {role: scope for role in Role if (scope := AUTHORIZATION.get((role, resource, action))) is not None}
    right = " and the import right" if action is Action.IMPORT else ""
    if action is Action.IMPORT and scopes.get(actor.role) is Scope.ALL:
        return f"It takes the import right beside the role {actor.role}; see IMEM_MAY_IMPORT."
    everything = " or ".join(role for role, scope in scopes.items() if scope is Scope.ALL)
    own = " or ".join(role for role, scope in scopes.items() if scope is Scope.OWN)
    ways = [f"the role {everything}{right}"] * bool(everything) + [f"for one's own the role {own}"] * bool(own)
    return f"It takes {', or '.join(ways)} (IMEM_ROLE)." if ways else "No role may."
