"""A quotation begins where a text begins to say something."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall.lead import LOOKED_AT, lead, telling


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
