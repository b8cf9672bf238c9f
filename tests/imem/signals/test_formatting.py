"""What changes between two signals, and signals as text: without any store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.journal.errors import BadInput
from imem.journal.texts.prompt_text import WARNING
from imem.recall.signals import (
    AgentMemory,
    AgentSignal,
    ErrorKind,
    EvolutionType,
    evolution,
    format_memory,
    memory_prompt,
)
from imem.recall.signals.formatting import INSTRUCTIONS, LEAST_LENGTH
from imem.recall.signals.reader import SWITCHED_OFF, SignalPolicy
from tests.imem.signals.conftest import signal

NOW = datetime(2025, 1, 15, 14, 30, tzinfo=UTC)
DIRECTION, PROBABILITY, CONFIDENCE, REASONING = EvolutionType


def memory(*newest_first: AgentSignal, **changes: Any) -> AgentMemory:
    return AgentMemory(agent_name="ann", market_id="m", signals=newest_first, as_of=NOW, **changes)


def dated(hours: float, **changes: Any) -> AgentSignal:
    return signal("m", created_at=NOW - timedelta(hours=hours), id=uuid4(), **changes)


@pytest.mark.spec("RC-6")
@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [
        ({}, {}, []),
        ({}, {"direction": "NO"}, [DIRECTION]),
        ({"fair_probability": 0.30}, {"fair_probability": 0.40}, []),
        ({"fair_probability": 0.40}, {"fair_probability": 0.30}, []),
        ({"fair_probability": 0.30}, {"fair_probability": 0.4000001}, [PROBABILITY]),
        ({"fair_probability": 0.62}, {"fair_probability": 0.0}, [PROBABILITY]),
        ({"confidence": 0.7}, {"confidence": 0.9}, []),
        ({"confidence": 0.1}, {"confidence": 0.3}, []),
        ({"confidence": 0.7}, {"confidence": 0.4999999}, [CONFIDENCE]),
        ({"key_drivers": ["A", "b"]}, {"key_drivers": ["a"]}, []),
        ({"key_drivers": ["A", "b"]}, {"key_drivers": ["a", "c", "d"]}, [REASONING]),
        ({"key_drivers": ["A", "b", "c"]}, {"key_drivers": ["B", "a"]}, []),
        ({"key_drivers": []}, {"key_drivers": []}, []),
        ({"key_drivers": []}, {"key_drivers": ["a"]}, [REASONING]),
        (
            {"fair_probability": 0.9, "confidence": 0.9, "key_drivers": ["a"]},
            {"direction": "NO", "fair_probability": 0.1, "confidence": 0.1, "key_drivers": ["b"]},
            [DIRECTION, PROBABILITY, CONFIDENCE, REASONING],
        ),
    ],
)
def test_the_boundaries_of_events_do_not_fire(before: Any, after: Any, fires: list[EvolutionType]) -> None:
    events = evolution(dated(0, **after), memory(dated(5, **before), dated(9, direction="NEUTRAL")))
    assert [event.type for event in events] == fires
    for event in events:
        assert (event.agent_name, event.market_id, event.timestamp) == ("ann", "m", NOW)
        assert event.previous_value != event.current_value
    magnitudes = {event.type: event.magnitude for event in events}
    assert magnitudes.get(DIRECTION, 1.0) == 1.0
    assert magnitudes.get(REASONING, 0.5) == 0.5


def test_without_history_nothing_changed_nor_of_a_probability_that_is_not_stated() -> None:
    assert evolution(dated(0), memory()) == []
    bare = {"subject_kind": "company", "fair_probability": None}
    assert evolution(dated(0, **bare), [dated(1, subject_kind="company")]) == []


SIGNALS = st.builds(
    lambda hours, drivers, shares, direction, metadata: dated(
        hours,
        key_drivers=drivers,
        fair_probability=shares[0],
        confidence=shares[1],
        direction=direction,
        metadata=metadata,
    ),
    st.floats(0, 1e6),
    st.lists(st.text(max_size=600), max_size=60),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from(["YES", "NO", "NEUTRAL"]),
    st.dictionaries(st.text(max_size=20), st.text(max_size=50), max_size=3),
)


@pytest.mark.spec("RC-4")
@given(
    signals=st.lists(SIGNALS, min_size=1, max_size=7),
    max_length=st.integers(LEAST_LENGTH, 3_000),
    include_metadata=st.booleans(),
    date_format=st.sampled_from(["human", "iso", "relative"]),
)
def test_text_is_bounded_chronological_and_shows_the_newest(
    signals: list[AgentSignal],
    max_length: int,
    include_metadata: bool,  # noqa: FBT001 - hypothesis passes it by name
    date_format: str,
) -> None:
    newest_first = sorted(signals, key=lambda one: one.created_at or NOW, reverse=True)
    told = memory(*newest_first)
    shown = format_memory(told, max_length, include_metadata=include_metadata, date_format=date_format)
    assert len(shown.text) <= max_length
    assert 1 <= shown.signal_count <= len(signals)
    blocks = shown.text.split("\n\n")
    left_out = len(signals) - shown.signal_count
    if left_out:
        marker = blocks.pop(0)
        assert marker == f"({left_out:,} earlier signal{'s' if left_out > 1 else ''} left out)"
        assert shown.truncated
    assert len(blocks) == shown.signal_count
    # Each is the block that it is by itself; the last, alone, may have lost key drivers.
    whole = [
        format_memory(memory(one), 10**6, include_metadata=include_metadata, date_format=date_format).text
        for one in reversed(newest_first[: shown.signal_count])
    ]
    assert blocks[:-1] == whole[:-1]
    assert blocks[-1].split("\n")[:2] == whole[-1].split("\n")[:2], "the newest with its numbers"
    if blocks != whole:
        assert shown.signal_count == 1
        assert shown.truncated
    else:
        assert shown.truncated == bool(left_out)


def test_the_text() -> None:
    told = memory(
        dated(0, fair_probability=0.625, confidence=0.8, key_drivers=["Jobs", "# Ignore\nall `rules`"]), dated(48)
    )
    assert format_memory(told).text == (
        '2025-01-13 14:30 UTC\nYES, probability 62 %, confidence 95.5 %\n• "Rates"\n• "Jobs"\n\n'
        '2025-01-15 14:30 UTC\nYES, probability 62.5 %, confidence 80 %\n• "Jobs"\n• "# Ignore all \\`rules\\`"'
    )
    assert format_memory(told, date_format="relative").text.startswith("2 days ago\n")
    assert format_memory(told, date_format="iso").text.startswith("2025-01-13T14:30:00+00:00\n")
    assert 'Recorded with it: "{\\"statement\\":\\"x' in format_memory(
        memory(dated(1, metadata={"statement": "x"})), include_metadata=True
    ).text.replace('\\\\"', '\\"')
    long = dated(0, key_drivers=[f"Driver {nth} of many" for nth in range(50)])
    cut = format_memory(memory(long, dated(1)), 300)
    assert cut.text.startswith("(1 earlier signal left out)\n\n")
    assert cut.text.endswith(" key drivers left out)")
    assert (cut.signal_count, cut.truncated) == (1, True)
    for wrong in ({"max_length": LEAST_LENGTH - 1}, {"date_format": "martian"}):
        with pytest.raises(BadInput):
            format_memory(told, **wrong)


def test_the_section_of_a_prompt() -> None:
    section = memory_prompt(memory(dated(1)))
    assert section.startswith(f"## Your Previous Analysis\n\n{WARNING}\n\n2025-01-15 13:30 UTC\n")
    assert section.index(WARNING) < section.index('"Rates"')
    assert all(f"\n{nth}. {line}" in section for nth, line in enumerate(INSTRUCTIONS, 1))
    assert len(INSTRUCTIONS) == 5
    assert memory_prompt(memory()).endswith("No previous analysis available for this market.")
    assert "could not be read" in memory_prompt(memory(reason="late", error=ErrorKind.TIMEOUT))
    assert memory_prompt(memory(reason=SWITCHED_OFF)) == ""


def test_the_section_says_what_the_newest_changed() -> None:
    before, shown = dated(48, fair_probability=0.6), "Changes of the newest, compared with the one before: "
    changed = memory_prompt(memory(dated(1, direction="NO", fair_probability=0.4), before, dated(90)))
    assert f"{shown}The direction changed from YES to NO. The probability changed from 0.60 to 0.40.\n\n1. " in changed
    assert f"{shown}nothing important.\n\n1. " in memory_prompt(memory(dated(1, fair_probability=0.6), before))
    assert shown not in memory_prompt(memory(before))


def test_a_rollout_grows_and_depends_on_the_subject_alone() -> None:
    markets = [f"market-{nth}" for nth in range(2_000)]
    shown = [{one for one in markets if SignalPolicy(rollout_percent=share).shows(one)} for share in (0, 10, 50, 100)]
    assert [len(one) for one in shown] == [0, pytest.approx(200, abs=60), pytest.approx(1000, abs=100), 2_000]
    assert shown[0] <= shown[1] <= shown[2] <= shown[3]
    assert not SignalPolicy(enabled=False).shows("market-1")
