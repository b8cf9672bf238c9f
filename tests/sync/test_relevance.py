"""Who is told of what: the weights, the threshold, and those who are told whatever the score."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.journal.events.entry import Tier
from imem.sync.delivery.relevance import (
    NOTIFY_AT,
    WEIGHTS,
    Candidate,
    NotifyReason,
    RelevanceScore,
    RoutableEvent,
    is_news,
    score,
)


def message(**named: Any) -> RoutableEvent:
    return RoutableEvent(**{"position": 1, "kind": "Finding", "tier": Tier.NORMAL, "sender": "ann", **named})


def candidate(**named: Any) -> Candidate:
    values = {
        "agent_id": "bob-1",
        "owner": "bob",
        "agent_type": "valuation",
        "notified": {},
        "pulled": {},
        "analysis_id": "a-1",
        "subject_id": "company:MU",
        **named,
    }
    return Candidate(**values)


def test_weights_are_those_of_the_specification() -> None:
    assert WEIGHTS == (0.30, 0.30, 0.15, 0.15, 0.10)
    assert sum(WEIGHTS) == pytest.approx(1.0)
    assert NOTIFY_AT == 0.5


def test_each_input_counts_with_its_weight() -> None:
    found = score(
        message(domain="memory margins", analysis_id="a-1", importance=0.4, tier=Tier.HIGH),
        candidate(domains=frozenset({"memory margins"}), notified={"ann": 8}, pulled={"ann": 4}),
    )

    assert found.parts == pytest.approx((1.0, 1.0, 0.5, 0.5, 0.5))
    assert found.total == pytest.approx(0.3 + 0.3 + 0.075 + 0.075 + 0.05)
    assert found.why is NotifyReason.RELEVANT


def test_the_threshold_itself_is_told() -> None:
    """0.30 for the analysis, 0.075 each for usage and importance, 0.05 for the type: exactly 0.50."""
    assert score(message(analysis_id="a-1", importance=0.8), candidate()).total == pytest.approx(0.5)
    assert score(message(analysis_id="a-1", importance=0.8), candidate()).why is NotifyReason.RELEVANT
    assert score(message(analysis_id="a-1", importance=0.79), candidate()).why is NotifyReason.BELOW


def test_the_same_field_in_other_words_counts_in_part() -> None:
    some = candidate(specialization="Memory pricing")

    assert score(message(domain="memory margins"), some).parts[0] == pytest.approx(0.5)
    assert score(message(domain="options"), some).parts[0] == 0.0


def test_the_same_subject_elsewhere_counts_less_than_the_same_analysis() -> None:
    assert score(message(analysis_id="a-1", subject_id="company:MU"), candidate()).parts[1] == 1.0
    assert score(message(analysis_id="a-2", subject_id="company:MU"), candidate()).parts[1] == 0.7
    assert score(message(analysis_id="a-2", subject_id="company:NVDA"), candidate()).parts[1] == 0.0


def test_who_is_named_is_told_whatever_the_score() -> None:
    stranger = candidate(analysis_id="a-9", subject_id="company:NVDA")
    named = message(kind="Debate", named=frozenset({"bob-1"}), analysis_id="a-1")

    found = score(named, stranger)

    assert (found.why, found.tier) == (NotifyReason.NAMED, Tier.HIGH)
    assert found.total < NOTIFY_AT


def test_ones_own_word_is_no_news_unless_it_names_another_instance() -> None:
    own = candidate(owner="ann", agent_id="ann-2")

    assert is_news(message(), candidate())
    assert not is_news(message(), own)
    assert not is_news(message(named=frozenset({"ann"})), own)
    assert is_news(message(named=frozenset({"ann-2"})), own)
    assert is_news(message(tier=Tier.SYSTEM_CRITICAL), own)


def test_a_name_that_many_instances_share_means_those_at_work_on_it() -> None:
    named = message(kind="Debate", named=frozenset({"bob"}), analysis_id="a-1", subject_id="company:MU")

    assert score(named, candidate()).why is NotifyReason.NAMED
    assert score(named, candidate(analysis_id="a-9", subject_id="company:NVDA")).why is not NotifyReason.NAMED


def test_a_challenge_is_urgent_for_both_sides_and_soon_for_the_others() -> None:
    opened = message(kind="Debate", tier=Tier.CRITICAL, analysis_id="a-1", named=frozenset({"bob-1"}))

    assert score(opened, candidate()).tier is Tier.CRITICAL
    other = score(opened, candidate(agent_id="cyd-1", owner="cyd"))
    assert (other.notified, other.tier) == (True, Tier.HIGH)


def test_importance_above_08_reaches_everybody_it_bears_on() -> None:
    elsewhere = candidate(analysis_id="a-2", notified={"ann": 100})

    def of(importance: float, **named: Any) -> RelevanceScore:
        return score(message(subject_id="company:MU", importance=importance, **named), elsewhere)

    assert of(0.8).why is NotifyReason.BELOW
    assert of(0.81).why is NotifyReason.IMPORTANT
    stranger = candidate(analysis_id="a-2", subject_id="company:NVDA")
    assert score(message(subject_id="company:MU", importance=0.99), stranger).why is NotifyReason.BELOW


fractions = st.floats(0, 1)
tiers = st.sampled_from(Tier)
names = st.sampled_from(["a-1", "a-2", None])


@given(
    importance=st.none() | fractions, tier=tiers, analysis=names, notified=st.integers(0, 9), pulled=st.integers(0, 9)
)
def test_scores_are_fractions_and_system_critical_reaches_everybody(
    importance: float | None, tier: Tier, analysis: str | None, notified: int, pulled: int
) -> None:
    found = score(
        message(importance=importance, tier=tier, analysis_id=analysis),
        candidate(notified={"ann": notified}, pulled={"ann": pulled}),
    )

    assert all(0.0 <= part <= 1.0 for part in found.parts)
    assert 0.0 <= found.total <= 1.0
    assert (found.why is NotifyReason.EVERYBODY) == (tier is Tier.SYSTEM_CRITICAL)
    assert found.notified == (found.why is not NotifyReason.BELOW)


def test_a_row_of_the_journal_becomes_a_message() -> None:
    core = {"challenger_agent": "ann", "challenged_agent": "bob", "subject_id": "company:MU"}
    row = {
        "position": 7, "kind": "record.Debate", "tier": 1, "actor": "ann", "core": core, "analysis_id": None,
        "importance": None, "shown": True,
    }  # fmt: skip

    found = RoutableEvent.from_row(row)

    assert (found.kind, found.tier, found.named) == ("Debate", Tier.CRITICAL, frozenset({"ann", "bob"}))
    assert found.subject_id == "company:MU"
