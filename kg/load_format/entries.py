"""Turns a validated line into a journal entry: payload, hashes, and indexed columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from imem.journal.events.canonical import canonical_json, content_hash
from imem.journal.events.entry import GroupHash, JournalEntry, Tier
from imem.journal.events.tiers import tier_of_event
from imem.kg.kinds.catalog import CORE, KINDS, implied_links
from imem.kg.kinds.fields import moment_text
from imem.kg.load_format.lines import CorrectLine, Line, LinkLine, RecordLine
from imem.kg.load_format.verdicts import latest_date

BODY: Final = "body"
TURNS: Final = "turns"
PROPS: Final = "props"
CORRECTION: Final = "correction"

_LEAST_SINGLE: Final = 1.2e-38
"""About the least number that single precision represents fully."""


def entry_of(line: Line, *, tier: Tier | None = None) -> JournalEntry:
    """
    Return the journal entry of a line.

    Args:
        tier: how soon it must be visible; by default :func:`imem.journal.events.tiers.tier_of_event` decides.
    """
    if isinstance(line, LinkLine):
        return _link_entry(line, tier)
    if isinstance(line, CorrectLine):
        return _correction_entry(line, tier)
    return _record_entry(line, tier)


def object_of(line: Line) -> dict[str, Any]:
    """Return *line* as members of the load format, in canonical form, as it is stored."""
    clocks = {
        name: moment_text(moment)
        for name, moment in (("known_at", line.known_at), ("occurred_at", line.occurred_at))
        if moment is not None
    }
    if isinstance(line, LinkLine):
        ends = {"from": {line.from_label: line.from_key}, "to": {line.to_label: line.to_key}}
        return {"link": line.type, **clocks, **ends, "props": line.props}
    if isinstance(line, CorrectLine):
        return {"correct": line.kind, **clocks, "core": line.core, "reason": line.reason}
    whole = {"key": line.key, "groups": line.groups} if line.core is None else {"core": line.core}
    more = {"groups": line.groups, "body": line.body, "turns": list(line.turns)}
    return {
        "record": line.kind,
        **clocks,
        **whole,
        **{name: value for name, value in more.items() if value not in (None, {}, [])},
    }


def latest_date_of(line: Line) -> tuple[datetime, str] | None:
    """Return the latest time at which *line* says that something happened, and its field; None without any."""
    if isinstance(line, LinkLine):
        return latest_date(f"link.{line.type}", {"props": line.props}, line.occurred_at)
    groups = line.groups if isinstance(line, RecordLine) else {}
    return latest_date(line.kind, {CORE: line.core, "groups": groups}, line.occurred_at)


def _tier(line: Line, kind: str, tier: Tier | None, importance: float | None = None) -> Tier:
    """Return *tier* if it is given, 0 included, else the default of the line."""
    if tier is not None:
        return tier
    return tier_of_event(kind, importance=importance, stated=line.known_at is not None, challenges=_opens_debate(line))


def _opens_debate(line: Line) -> bool:
    """Return whether *line* opens a debate, without its course or end."""
    if not isinstance(line, RecordLine) or line.kind != "Debate":
        return False
    return line.core is not None and "state" not in line.groups and not line.turns


def _record_entry(line: RecordLine, tier: Tier | None) -> JournalEntry:
    payload: dict[str, Any] = {"key": line.key}
    groups: list[GroupHash] = []
    if line.core is not None:
        payload[CORE] = line.core
        groups.append(GroupHash(CORE, content_hash(line.core)))
    if line.groups:
        payload["groups"] = line.groups
        groups += [GroupHash(name, content_hash(value)) for name, value in line.groups.items()]
    if line.body is not None:
        groups.append(GroupHash(BODY, content_hash(line.body)))
    if line.turns:
        groups.append(GroupHash(TURNS, content_hash(line.turns)))
    encoded = canonical_json(payload)
    core = line.core or {}
    importance = _importance(core)
    return JournalEntry(
        kind=f"record.{line.kind}",
        head_kind=line.kind,
        key=line.key,
        payload=encoded,
        payload_hash=content_hash(payload),
        groups=tuple(groups),
        body=line.body,
        turns=canonical_json(line.turns) if line.turns else None,
        occurred_at=line.occurred_at or _moment(core.get(KINDS[line.kind].occurred or "")),
        known_at=line.known_at,
        analysis_id=line.key if line.kind == "Analysis" else core.get("analysis_id"),
        subject_id=core.get("subject_id"),
        metric=_indexed_metric(line.kind, core),
        target_at=_moment(core.get("target_at")),
        ref_hash=_ref_hash(line.kind, line.core) if line.core is not None else None,
        importance=importance,
        tier=_tier(line, f"record.{line.kind}", tier, importance),
    )


def _correction_entry(line: CorrectLine, tier: Tier | None) -> JournalEntry:
    payload = {"key": line.key, CORE: line.core, "reason": line.reason}
    return JournalEntry(
        kind=f"correct.{line.kind}",
        head_kind=line.kind,
        key=line.key,
        payload=canonical_json(payload),
        payload_hash=content_hash(payload),
        groups=(GroupHash(CORRECTION, content_hash(line.core)),),
        occurred_at=line.occurred_at,
        known_at=line.known_at,
        analysis_id=line.key if line.kind == "Analysis" else line.core.get("analysis_id"),
        subject_id=line.core.get("subject_id"),
        metric=_indexed_metric(line.kind, line.core),
        target_at=_moment(line.core.get("target_at")),
        ref_hash=_ref_hash(line.kind, line.core),
        tier=_tier(line, f"correct.{line.kind}", tier),
    )


def _link_entry(line: LinkLine, tier: Tier | None) -> JournalEntry:
    payload = {
        "from_label": line.from_label,
        "from_key": line.from_key,
        "to_label": line.to_label,
        "to_key": line.to_key,
        "props": line.props,
    }
    # Where a node has one such link at a time, the node is its identity, and the target its value.
    replaced = line.link.replaced
    ends = (
        (line.from_label, line.from_key) if replaced else (line.from_label, line.from_key, line.to_label, line.to_key)
    )
    value = payload if replaced else line.props
    return JournalEntry(
        kind=f"link.{line.type}",
        head_kind=f"link.{line.type}",
        key=link_key(*ends, *line.identity.values()),
        payload=canonical_json(payload),
        payload_hash=content_hash(payload),
        groups=(GroupHash(PROPS, content_hash(value)),),
        occurred_at=line.occurred_at,
        known_at=line.known_at,
        tier=_tier(line, f"link.{line.type}", tier),
    )


def link_key(*parts: str) -> str:
    """
    Return the key of a link in the journal.

    Args:
        parts: label and key of the start, label and key of the end (not where a node has one such link at a time), and
            the properties of its identity.
    """
    return canonical_json(parts).decode()


def _ref_hash(kind: str, core: dict[str, Any]) -> bytes:
    """Return the hash of what a correction may not change: implied links, and what scores and histories hang on."""
    fixed = {name: core.get(name) for name in KINDS[kind].fixed}
    links = [list(link[:5]) for link in implied_links(kind, core)]
    return content_hash([core[KINDS[kind].key], core.get("subject_id"), sorted(links), fixed])


def _indexed_metric(kind: str, core: Mapping[str, Any]) -> str | None:
    """Return the metric that *core* claims, settles or states a value of; a debate about one does none of these."""
    info = KINDS[kind]
    metric: str | None = core.get("metric") if "target_at" in info.core.properties or "metric" in info.fixed else None
    return metric


def _importance(core: Mapping[str, Any]) -> float | None:
    """Return a finding's importance as single precision stores it: what underflows is 0."""
    importance = core.get("importance")
    return 0.0 if importance is not None and importance < _LEAST_SINGLE else importance


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
