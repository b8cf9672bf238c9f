"""Every message type yields its tier, and importance decides where it should."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from imem.journal.errors import BadInput
from imem.journal.events.entry import Tier
from imem.journal.events.tiers import TIERS, MessageType, broadcasts, tier_named, tier_of_event, tier_of_message
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line

MAP = {
    "regime_change": 0, "fed_announcement": 0, "global_stop": 0, "panic_button": 0,
    "debate_opened": 1, "challenge": 1, "gate_approaching": 1, "human_request": 1,
    "alert": 2, "confirmation": 2, "finding_with_precedent": 2, "pattern_match": 2,
    "finding": 3, "request": 3, "batch": 3, "macro_breach": 3,
}  # fmt: skip
"""The specification's map, written out by hand."""


@pytest.mark.spec("SY-1")
def test_every_message_has_its_tier() -> None:
    """None is forgotten, and what nobody knows is normal."""
    assert {
        message.value: int(tier_of_message(message, confidence=0.9, basis_points=25.0)) for message in MessageType
    } == MAP
    assert set(TIERS) == set(MessageType)
    assert tier_of_message("gossip", importance=1.0) is Tier.NORMAL


@pytest.mark.spec("SY-1")
@pytest.mark.parametrize(
    ("importance", "tier"),
    [(None, 3), (0.0, 3), (0.70, 3), (0.1 * 7, 3), (0.71, 2), (0.7000001, 2), (1.0, 2)],
)
def test_importance_raises_a_finding(importance: float | None, tier: int) -> None:
    """0.70 is normal and 0.71 high; no importance makes anything critical, nor a request high."""
    assert tier_of_message("finding", importance=importance) == tier
    assert tier_of_event("record.Finding", importance=importance) == tier
    assert tier_of_message("request", importance=importance) is Tier.NORMAL
    assert tier_of_message("finding_with_precedent", importance=importance) is Tier.HIGH


@pytest.mark.spec("SY-1")
@pytest.mark.parametrize(
    ("message", "given", "tier"),
    [
        ("regime_change", {"confidence": 0.80}, 3),
        ("regime_change", {"confidence": 0.81}, 0),
        ("regime_change", {}, 3),
        ("fed_announcement", {"basis_points": 24.9}, 3),
        ("fed_announcement", {"basis_points": 25.0}, 0),
        ("fed_announcement", {"basis_points": -50.0}, 0),
        ("fed_announcement", {"policy_shift": True}, 0),
    ],
)
def test_what_stops_everybody_must_be_grave(message: str, given: dict[str, float], tier: int) -> None:
    assert tier_of_message(message, **given) == tier  # type: ignore[arg-type]


@pytest.mark.parametrize(("importance", "told"), [(None, False), (0.8, False), (0.81, True)])
def test_what_goes_to_everybody(importance: float | None, told: bool) -> None:  # noqa: FBT001
    assert broadcasts(importance) is told


def test_tiers_by_name_and_by_number() -> None:
    assert [tier_named(name) for name in ("critical", "SYSTEM_CRITICAL", 2, "3")] == [1, 0, 2, 3]
    with pytest.raises(BadInput, match="tier: 'urgent' is no tier") as caught:
        tier_named("urgent")
    assert caught.value.field == "tier"


def _entry(importance: float, known_at: str | None = None, tier: Tier | None = None) -> Tier:
    core = {
        "id": "f", "analysis_id": "a", "subject_id": "company:MU", "agent": "bull", "domain": "d", "statement": "s",
        "importance": importance,
    }  # fmt: skip
    line = {"record": "Finding", "core": core, **({"known_at": known_at} if known_at else {})}
    return entry_of(parse_line(orjson.dumps(line), needs_known_at=False), tier=tier).tier


@pytest.mark.spec("SY-1")
def test_lines_get_their_tier_by_the_same_rule() -> None:
    """An import is in no hurry whatever it tells; who chooses a tier gets it, the most urgent one too."""
    assert _entry(0.70) is Tier.NORMAL
    assert _entry(0.71) is Tier.HIGH
    assert _entry(0.99, known_at="2026-01-01T00:00:00Z") is Tier.NORMAL
    assert _entry(0.10, tier=Tier.SYSTEM_CRITICAL) is Tier.SYSTEM_CRITICAL
    match = {"link": "IDENTIFIED_PATTERN", "from": {"Analysis": "a"}, "to": {"Pattern": "p"}}
    assert entry_of(parse_line(orjson.dumps(match), needs_known_at=False)).tier is Tier.HIGH
    link = {"link": "PEER_OF", "from": {"Company": "MU"}, "to": {"Company": "NVDA"}}
    assert entry_of(parse_line(orjson.dumps(link), needs_known_at=False)).tier is Tier.NORMAL
    chosen = entry_of(parse_line(orjson.dumps(link), needs_known_at=False), tier=Tier.SYSTEM_CRITICAL)
    assert chosen.tier is Tier.SYSTEM_CRITICAL


@pytest.mark.spec("SY-1")
def test_a_debate_that_opens_is_critical() -> None:
    """Not one that is told when it is over, what becomes of it, nor history."""
    core = {
        "id": "d", "subject_id": "company:MU", "topic": "t", "challenger_agent": "bull", "challenged_agent": "bear",
        "participants": ["bull", "bear"], "timestamp": "2026-06-01T00:00:00Z",
    }  # fmt: skip
    state = {"groups": {"state": {"state": "closed", "provisional": False}}}
    turns = {"turns": [{"number": 1, "speaker": "bull", "text": "So."}]}

    def of(**line: Any) -> Tier:
        return entry_of(parse_line(orjson.dumps({"record": "Debate", **line}), needs_known_at=False)).tier

    assert of(core=core) is Tier.CRITICAL
    assert of(core=core, **state) is Tier.NORMAL
    assert of(core=core, **turns) is Tier.NORMAL
    assert of(key="d", **state) is Tier.NORMAL
    assert of(core=core, known_at="2026-06-02T00:00:00Z") is Tier.NORMAL
