"""A quotation begins where a text begins to say something."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.recall.rendering.lead import LOOKED_AT, lead, telling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# The Bear Case\n---\n| a | b |\n|---|---|\nMargins fell by 3 %. More.", "Margins fell by 3 %. More."),
        (
            "Alright, let's cut through the noise here. I'll give my colleague credit. Revenue grew 40 % in 2025.",
            "… Revenue grew 40 % in 2025.",
        ),
        ("Overweight: Look, you all argued well. Net income was $13.79B.", "Overweight: … Net income was $13.79B."),
        ("**Bold** claim: *margins* rise.\n- They do.", "Bold claim: margins rise. They do."),
        ("| Metric | Value |\n|:--|--:|\n| P/E | 48x |\n| Beta | 2.17 |", "P/E, 48x; Beta, 2.17"),
        ("I think we should wait.", "I think we should wait."),
        ("Our revenue grew by 7 %. It will go on.", "Our revenue grew by 7 %. It will go on."),
        ("Demand is strong. You know me.", "Demand is strong. You know me."),
        ("营收增长了。利润率下降。", "营收增长了。利润率下降。"),
        ("", ""),
        ("---", "---"),
    ],
)
def test_where_a_text_begins(text: str, expected: str) -> None:
    """Without tables, headings, rules and words to the audience; what has nothing else stays as it is."""
    assert telling(text) == expected


@pytest.mark.parametrize(
    "first",
    [
        "The US consumer is weakening.",
        "Phase I ended without a result.",
        "I think we should sell before the vote.",
        "I want to close the position.",
        "We cut our estimate because orders fall.",
        "Let's sell before the vote.",
        "Everyone expects a cut.",
        "Thanks to lower rates, margins widen.",
        "Well below consensus, the guidance disappoints.",
        "Look at the margins: they fall.",
        "Team costs rise.",
        "What they call growth pays us nothing.",
        "My estimate is below theirs.",
    ],
)
def test_a_first_sentence_that_says_something_is_kept(first: str) -> None:
    """Whoever speaks, and of whom: countries, numerals and what a speaker concludes are no address."""
    assert telling(f"{first} Sales fell 5 %.") == f"{first} Sales fell 5 %."


@pytest.mark.parametrize(
    "first",
    [
        "Thank you, everybody.",
        "You say that margins hold.",
        "Your case rests on hope.",
        "Let me be clear.",
        "Alright.",
        "Look, let\u2019s be honest with ourselves.",
        "And I want to be precise about where we stand.",
        "I\u2019ll give my colleague credit.",
        "My bear colleague just delivered a closing.",
        "To the aggressive analyst first, a word of praise.",
        "Aggressive, your strongest argument is the trend.",
        "Ladies and gentlemen, welcome.",
        "Both of you argued well.",
    ],
)
def test_words_to_the_audience_are_skipped(first: str) -> None:
    """Openings of a speech and words to somebody, unless they name a figure."""
    assert telling(f"{first} Sales fell 5 %.") == "… Sales fell 5 %."
    assert telling(f"{first[:-1]} at 7 %. Sales fell.") == f"{first[:-1]} at 7 %. Sales fell."


def test_it_ends_with_a_sentence_where_one_ends_near() -> None:
    """A cut is marked and does not fall into a word."""
    text = "The margin fell by 3 percent in the quarter. The guidance for the next one was cut as well, by 5 percent."
    assert lead(text, 60) == "The margin fell by 3 percent in the quarter. …"
    assert lead(text, 40) == "The margin fell by 3 percent in the…"
    assert lead(text, 500) == text


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=600), st.integers(20, 300))
def test_it_is_bounded(text: str, limit: int) -> None:
    """Whatever the text."""
    assert len(lead(text, limit)) <= limit + 1


@pytest.mark.parametrize(
    "text", ["!" * 10**6, "- " * 10**6, "a b " * 10**6, "|" * 10**6, "1. " * 10**6, "[" + '"' * 10**6]
)
def test_no_text_takes_long(text: str) -> None:
    """Only the beginning is looked at, in a time that grows with its length."""
    begun = time.process_time()
    assert len(telling(text)) <= 2 * LOOKED_AT
    assert time.process_time() - begun < 0.5
