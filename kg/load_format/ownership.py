"""
Whose facts a line states: the rule by which an agent appends its own and nobody else's.

What an agent says, challenges, decides and performs is its own. What is true of the world (a company, an outcome, two
sources at odds) belongs to whoever states it. What decides for others (how a debate stands or ended, how a question
was answered, a lesson) is nobody's own: only roles that may append everything write it.

What everybody is measured against takes more than a role: the import right, or a person (:func:`sets_measure`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.kg.kinds.enums import AgentKind
from imem.kg.load_format.lines import CorrectLine, Line, LinkLine, RecordLine

NO_OWNER: Final = ""
"""The owner of what no single agent may state."""

Ref = tuple[str, str]
"""Label and key of a node."""

OWNER_FIELDS: Final[Mapping[str, str]] = {
    "Agent": "name",
    "Finding": "agent",
    "Debate": "challenger_agent",
    "Decision": "agents_involved",
    "Human": "id",
}
"""Kind → the field of its core that names its agent, or its agents: each may add to it, one alone may state it."""

REFERENCE_KINDS: Final = frozenset({AgentKind.BASELINE, AgentKind.ENSEMBLE, AgentKind.HUMAN})
"""What an agent is not by its own word: others are measured against it, or believe it more."""

OWN_OUTCOMES: Final = "own:"
"""
How the ids of outcomes begin that settle nothing: ``own:<actor>/…``. All others belong to those whose outcomes settle,
so that none of theirs finds its id taken.
"""

DEBATE_KINDS: Final = frozenset({"Debate", "DebateResolution"})
"""What a facilitator appends, and nothing else."""

UNOWNED_KINDS: Final = frozenset({"DebateResolution", "Lesson"})
UNOWNED_GROUPS: Final = frozenset({("Debate", "state"), ("Market", "resolution")})

LINK_OWNER: Final[Mapping[str, str | None]] = {
    "PERFORMED": "from",
    "RECEIVED_LESSON": "from",
    "CITES": "from",
    "SUPERSEDES": "from",
    "IDENTIFIED_PATTERN": "from",
    "PROVIDED_DATA_FOR": "to",
    "PEER_OF": None,
}
"""Link type → the end whose owner owns it, or None for a fact about the world; all other types are nobody's own."""


def owner_of(line: Line, actor: str, known_owners: Mapping[Ref, str]) -> str:
    """
    Return whose facts *line* states, :data:`NO_OWNER` where no agent may.

    Args:
        line: what is stated.
        actor: who states it.
        known_owners: owners of the records that :func:`needs_owner_of` names; one that is missing is nobody's.
    """
    if isinstance(line, LinkLine):
        return _owner_of_link(line, actor, known_owners)
    if isinstance(line, CorrectLine):
        return owner_of_core(line.kind, line.core, actor, actor)
    if line.kind in UNOWNED_KINDS or any((line.kind, group) in UNOWNED_GROUPS for group in line.groups):
        return NO_OWNER
    if line.core is None:
        return _owner_by_key((line.kind, line.key), known_owners) if line.kind in OWNER_FIELDS else actor
    owner = owner_of_core(line.kind, line.core, actor, actor)
    # Its words and its part in a decision are put into nobody's mouth, nor into that of others beside it.
    named = line.core.get(OWNER_FIELDS.get(line.kind, ""), ())
    strangers = [name for name in named if name != actor] if isinstance(named, list) else []
    strangers += [turn["speaker"] for turn in line.turns if turn["speaker"] != actor]
    return strangers[0] if owner == actor and strangers else owner


def sets_measure(line: Line, actor: str) -> bool:
    """
    Return whether *line* says what others are measured against: what takes the import right, or a person.

    That is an agent that is a baseline, an ensemble or a human, and an outcome that *actor* does not keep to itself.
    """
    if not isinstance(line, RecordLine):
        return False
    if line.kind == "Agent":
        return line.groups.get("profile", {}).get("kind") in REFERENCE_KINDS
    own = line.key.startswith(f"{OWN_OUTCOMES}{actor}/")
    return line.kind == "Outcome" and line.core is not None and not own


def is_of_debates(line: Line) -> bool:
    """Return whether *line* states a debate, its end, or a link of either: what a facilitator appends."""
    ends = (line.from_label, line.to_label) if isinstance(line, LinkLine) else (line.kind,)
    return not DEBATE_KINDS.isdisjoint(ends)


def owner_of_core(kind: str, core: Mapping[str, Any], recorder: str, actor: str) -> str:
    """Return whose the record is that *recorder* stated with *core*; of several agents, *actor* if it is among them."""
    if kind in UNOWNED_KINDS:
        return NO_OWNER
    named = core.get(OWNER_FIELDS[kind]) if kind in OWNER_FIELDS else recorder
    if isinstance(named, list):
        return actor if actor in named else next(iter(named), NO_OWNER)
    return str(named)


def needs_owner_of(line: Line) -> Ref | None:
    """Return the record on file whose owner decides about *line*, if one does."""
    if isinstance(line, RecordLine) and line.core is None and line.kind in OWNER_FIELDS:
        ref: Ref | None = (line.kind, line.key)
    elif isinstance(line, LinkLine):
        ref = _owning_end(line)
    else:
        return None
    # An agent's and a person's key is its name: nothing needs to be looked up.
    return ref if ref is not None and ref[0] not in {"Agent", "Human"} else None


def _owning_end(line: LinkLine) -> Ref | None:
    end = LINK_OWNER.get(line.type)
    if end is None:
        return None
    return (line.from_label, line.from_key) if end == "from" else (line.to_label, line.to_key)


def _owner_of_link(line: LinkLine, actor: str, known_owners: Mapping[Ref, str]) -> str:
    if line.type not in LINK_OWNER:
        return NO_OWNER
    end = _owning_end(line)
    return actor if end is None else _owner_by_key(end, known_owners)


def _owner_by_key(ref: Ref, known_owners: Mapping[Ref, str]) -> str:
    return ref[1] if ref[0] in {"Agent", "Human"} else known_owners.get(ref, NO_OWNER)
