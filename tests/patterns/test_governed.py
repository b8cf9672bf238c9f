"""What subsystems govern, no application states; and no link tells a pattern in quarantine from none."""

from __future__ import annotations

import orjson
import pytest

from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.events.canonical import content_hash
from imem.journal.events.entry import AppendStatus, GroupHash, JournalEntry
from imem.journal.gateway import _columns
from imem.journal.settings import Role
from imem.kg.kinds.catalog import KINDS
from imem.kg.kinds.enums import PatternStatus
from imem.kg.kinds.patterns import Pattern
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, parse_line, record_of
from imem.kg.load_format.ownership import curated_facts
from imem.kg.load_format.verdicts import refusal_by
from tests.credibility.conftest import World, world

__all__ = ["world"]

ANN = Actor("ann", Role.AGENT)
KEEPER = Actor("keeper", Role.KNOWLEDGE_BASE_AGENT)


def forged(head_kind: str, group: str) -> JournalEntry:
    """Return the entry of a program that knows the statements and not the rules."""
    link = head_kind.startswith("link.")
    name = "props" if link else next(iter(KINDS[head_kind].groups), "core") if group == "*" else group
    payload = {"props": {}} if link else {"key": "k", "groups": {name: {"status": "active"}}}
    return JournalEntry(
        kind=head_kind if link else f"record.{head_kind}", head_kind=head_kind, key="k", payload=orjson.dumps(payload),
        payload_hash=content_hash(payload), groups=(GroupHash(name, content_hash({"status": "active"})),),
    )  # fmt: skip


@pytest.mark.parametrize("actor", [ANN, KEEPER], ids=lambda one: one.id)
async def test_no_application_states_what_a_subsystem_governs(world: World, actor: Actor) -> None:
    """Every governed kind, group and link, whatever role the program claims."""
    facts = curated_facts()
    assert {("Pattern", "*"), ("PatternValidation", "*"), ("Lesson", "*"), ("Decision", "outcome")} <= set(facts)
    assert {("Agent", "standing"), ("Market", "resolution")} <= set(facts), "unowned groups"
    assert ("Debate", "state") not in facts, "facilitators record it under the application's login"
    for head_kind, group in facts:
        columns = _columns([forged(head_kind, group)], actor, Action.APPEND)
        with pytest.raises(PermissionDenied, match="own facts alone"):
            await world.database.named("append", columns, deadline=Deadline.never())
    assert await world.rows("SELECT FROM event") == []


async def record_pattern(world: World, key: str, status: PatternStatus) -> None:
    core = Pattern(pattern_id=key, name=f"Pattern {key}", category="financial")
    said = Pattern.Status(status=status, quarantined=status is not PatternStatus.ACTIVE)
    lines = [record_of(core), groups_of(Pattern, key, {"status": said}, writer="patterns")]
    await world.engine.append([entry_of(line) for line in lines], owner="", deadline=Deadline.never())


@pytest.mark.parametrize("link", ["CITES", "IDENTIFIED_PATTERN"])
async def test_what_is_not_active_is_refused_like_what_is_not_there(world: World, link: str) -> None:
    """By one answer, whatever the status; the link to an active one is recorded."""
    for status in PatternStatus:
        await record_pattern(world, status.value, status)
    source = {"Decision": "d"} if link == "CITES" else {"Analysis": "a"}
    props = {"at": "2026-01-01T00:00:00Z", "rank": 1} if link == "CITES" else {}
    answers = {}
    for key in (*(status.value for status in PatternStatus), "unknown"):
        line = {"link": link, "from": source, "to": {"Pattern": key}, "props": props}
        made = entry_of(parse_line(orjson.dumps(line), needs_known_at=False))
        found = await world.database.named("append", _columns([made], ANN, Action.APPEND), deadline=Deadline.never())
        answers[key] = {**found[0], "line": 1}
    active = answers.pop("active")
    assert active["status"] == "new"
    assert all(one == answers["unknown"] for one in answers.values())
    assert answers["unknown"]["status"] == AppendStatus.NOT_CITABLE
    refused = refusal_by(AppendStatus.NOT_CITABLE)
    assert isinstance(refused, BadInput)
    assert "no active pattern" in str(refused)
    links = await world.rows("SELECT payload ->> 'to_key' AS to_key FROM event WHERE kind = 'link.' || %s", link)
    assert [row["to_key"] for row in links] == ["active"]
