"""
The owner of each line's facts: an agent may append only its own.

An agent owns its findings, challenges, decisions and work. A fact about the world (a company, an outcome, two sources
at odds) is owned by the actor that records it. A kind that decides for others (the state or end of a debate, the answer
to a question, a lesson) is unowned: only roles that may append everything write it.

Reference values, against which others are measured, require the import right or a human role (:func:`sets_measure`);
what a person says about a score requires that role (:func:`requires_person`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from imem.journal.errors import BadInput
from imem.kg.kinds.catalog import KINDS
from imem.kg.kinds.enums import AgentKind, BiasStatus
from imem.kg.kinds.fields import shown
from imem.kg.kinds.links import LINK_KINDS
from imem.kg.load_format.lines import CorrectLine, Line, LinkLine, RecordLine

NO_OWNER: Final = ""
"""The owner of unowned lines."""

Ref = tuple[str, str]
"""Label and key of a node."""

REFERENCE_KINDS: Final = frozenset({AgentKind.BASELINE, AgentKind.ENSEMBLE, AgentKind.HUMAN})
"""Kinds of agents that an agent may not declare itself: others are measured against them."""

PERSONS_KINDS: Final = frozenset({"CredibilityPin", "HumanOverride"})
"""Kinds that say what a person did; the import right does not make its owner one."""

DECIDED_KINDS: Final = frozenset({"CredibilityPin", "BiasCorrection"})
"""Kinds that a person ends or decides on by a later group, so that a mistyped key would leave them as they are."""

OWN_OUTCOMES: Final = "own:"
"""
Prefix of the ids of outcomes that settle nothing: ``own:<actor>/…``.

All other ids are reserved for outcomes that settle, so that none of them is taken.
"""

DEBATE_KINDS: Final = frozenset({"Debate", "DebateResolution"})
"""Kinds that a debate facilitator appends, and no others."""


def curated_facts() -> list[tuple[str, str]]:
    """
    Return the facts that only curators and pipelines state, as kind of the head and group, ``*`` for all groups.

    Those are what a subsystem governs, unowned groups but those of debates, what a person says about scores, the
    reference values, and records without an owner whose groups are all governed. Postgres refuses them to every other
    login, whatever program it runs.
    """
    found = []
    for info in KINDS.values():
        # Facilitators of debates state debates and their ends under the application's login.
        debate = info.label in DEBATE_KINDS
        groups = info.groups.items()
        # Unowned groups too: an agent's standing says whether a person approves each change of its scores.
        governed = [name for name, group in groups if group.governed is not None or (group.unowned and not debate)]
        without_owner = info.unowned and not debate and len(governed) == len(info.groups) > 0
        if info.governed is not None or info.reference or info.label in PERSONS_KINDS | DECIDED_KINDS or without_owner:
            found.append((info.label, "*"))
        else:
            found += [(info.label, name) for name in governed]
    return found + sorted({(f"link.{link.name}", "*") for link in LINK_KINDS if link.governed is not None})


def owner_of(line: Line, actor: str, known_owners: Mapping[Ref, str]) -> str:
    """
    Return the owner of the facts in *line*; :data:`NO_OWNER` if no agent may append it.

    Args:
        line: the line.
        actor: who appends it.
        known_owners: owners of the records that :func:`needs_owner_of` names; a missing one is unowned.
    """
    if isinstance(line, LinkLine):
        return _owner_of_link(line, actor, known_owners)
    if isinstance(line, CorrectLine):
        return owner_of_core(line.kind, line.core, actor, actor)
    info = KINDS[line.kind]
    if info.unowned or any(info.groups[group].unowned for group in line.groups):
        return NO_OWNER
    if line.core is None:
        return _owner_by_key((line.kind, line.key), known_owners) if info.owner is not None else actor
    owner = owner_of_core(line.kind, line.core, actor, actor)
    # An agent may not record statements or decisions of other agents, alone or beside its own.
    named = line.core.get(info.owner or "", ())
    strangers = [name for name in named if name != actor] if isinstance(named, list) else []
    strangers += [turn["speaker"] for turn in line.turns if turn["speaker"] != actor]
    return strangers[0] if owner == actor and strangers else owner


def sets_measure(line: Line, actor: str) -> bool:
    """
    Return whether *line* sets a reference value, which requires the import right or a human role.

    That is a record of a kind by which scores are computed, an agent that is a baseline, an ensemble or a human, and an
    outcome outside the actor's own prefix.
    """
    if not isinstance(line, RecordLine):
        return False
    if line.kind == "Agent":
        return line.groups.get("profile", {}).get("kind") in REFERENCE_KINDS
    if KINDS[line.kind].reference:
        return True
    own = line.key.startswith(f"{OWN_OUTCOMES}{actor}/")
    return KINDS[line.kind].settles and line.core is not None and not own


def requires_person(line: Line) -> bool:
    """
    Return whether *line* is for a person alone to state, live or as an import.

    That is a pin or an override, its end or correction, and the approval of the correction of a bias.
    """
    if isinstance(line, LinkLine):
        return False
    if line.kind in PERSONS_KINDS:
        return True
    state = line.groups.get("state", {}) if isinstance(line, RecordLine) and line.kind == "BiasCorrection" else {}
    return state.get("status") == BiasStatus.APPROVED


def referred_record(line: Line) -> Ref | None:
    """Return the record that *line* refers to: the one that it ends or decides on, or the finding that it overrides."""
    if not isinstance(line, RecordLine):
        return None
    if line.core is None:
        return (line.kind, line.key) if line.kind in DECIDED_KINDS else None
    finding = line.core.get("finding_id") if line.kind == "HumanOverride" else None
    return None if finding is None else ("Finding", finding)


def mismatch_of(line: Line, ref: Ref, core: Mapping[str, Any] | None) -> BadInput | None:
    """Return why *line* does not fit the record *ref* that it refers to, whose core is *core*, None if not recorded."""
    kind, key = ref
    said = line.core if isinstance(line, RecordLine) else None
    field = "key" if said is None else "core.finding_id"
    if core is None:
        return BadInput(field, f"no {kind} {shown(key)} is recorded.")
    if said is None:
        return None
    for name in ("agent", "domain"):
        if core[name] != said[name]:
            return BadInput(field, f"is of {name} {shown(core[name])}, not of core.{name}, {shown(said[name])}.")
    return None


def is_of_debates(line: Line) -> bool:
    """Return whether *line* is a debate, its end, or a link of either."""
    ends = (line.from_label, line.to_label) if isinstance(line, LinkLine) else (line.kind,)
    return not DEBATE_KINDS.isdisjoint(ends)


def owner_of_core(kind: str, core: Mapping[str, Any], recorder: str, actor: str) -> str:
    """Return the owner of a record that *recorder* recorded with *core*; *actor* if it is one of several owners."""
    info = KINDS[kind]
    if info.unowned:
        return NO_OWNER
    named = core.get(info.owner) if info.owner is not None else recorder
    if isinstance(named, list):
        return actor if actor in named else next(iter(named), NO_OWNER)
    return str(named)


def needs_owner_of(line: Line) -> Ref | None:
    """Return the record whose stored owner decides about *line*, if one does."""
    if isinstance(line, RecordLine) and line.core is None and KINDS[line.kind].owner is not None:
        ref: Ref | None = (line.kind, line.key)
    elif isinstance(line, LinkLine):
        ref = _owning_end(line)
    else:
        return None
    return ref if ref is not None and not _owns_itself(ref) else None


def _owning_end(line: LinkLine) -> Ref | None:
    match line.link.owner:
        case "from":
            return line.from_label, line.from_key
        case "to":
            return line.to_label, line.to_key
        case _:
            return None


def _owner_of_link(line: LinkLine, actor: str, known_owners: Mapping[Ref, str]) -> str:
    if line.link.owner is None:
        return NO_OWNER
    end = _owning_end(line)
    return actor if end is None else _owner_by_key(end, known_owners)


def _owner_by_key(ref: Ref, known_owners: Mapping[Ref, str]) -> str:
    return ref[1] if _owns_itself(ref) else known_owners.get(ref, NO_OWNER)


def _owns_itself(ref: Ref) -> bool:
    """Return whether the key is the owner, as that of an agent or a person is its name: no look-up is needed."""
    info = KINDS[ref[0]]
    return info.owner == info.key
