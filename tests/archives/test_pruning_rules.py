"""Which records may leave the graph: the table of the specification, and its edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.archives.pruning import PRUNED_KINDS
from imem.archives.pruning_rules import YOUNG, Exemption, RecordUse, exemption_of, grounds_of, is_prunable
from imem.journal.clock import months_after
from imem.journal.errors import BadInput
from imem.kg.kinds.archiving import SUMMARY_BYTES, summary_of
from imem.kg.kinds.catalog import KINDS
from imem.kg.load_format.lines import parse_line

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
LONG_AGO = datetime(2016, 1, 1, tzinfo=UTC)


def use(years: float = 3, **more: Any) -> RecordUse:
    given = {"known_at": months_after(NOW, -round(12 * years)), "recorded_at": LONG_AGO, "accesses": 0}
    return RecordUse(**{**given, "relevance": None, "superseded": False, **more})


@pytest.mark.spec("AR-18")
@pytest.mark.parametrize(
    ("given", "met", "archived"),
    [
        (use(3, accesses=1, relevance=0.6), 2, True),
        (use(3, accesses=10, relevance=0.5), 1, False),
        (use(1, accesses=0, relevance=0.1), 2, True),
        (use(2, accesses=3, relevance=0.3, superseded=True), 1, False),
    ],
)
def test_the_table(given: RecordUse, met: int, *, archived: bool) -> None:
    assert len(grounds_of(given, NOW)) == met
    assert is_prunable(given, NOW) is archived


def test_the_edges() -> None:
    """Each ground begins strictly past its limit; a kind without a relevance has one ground less."""
    assert grounds_of(use(2, accesses=3, relevance=0.3), NOW) == ()
    beyond = use(
        known_at=months_after(NOW, -24) - timedelta(microseconds=1), accesses=2, relevance=0.29, superseded=True
    )
    assert [one.value for one in grounds_of(beyond, NOW)] == ["old", "unread", "irrelevant", "superseded"]
    assert not is_prunable(use(1), NOW)
    assert is_prunable(use(1, superseded=True), NOW)


@pytest.mark.spec("PF-14")
@pytest.mark.parametrize("exempt", Exemption)
def test_what_is_exempt_stays_whatever_else_holds(exempt: Exemption) -> None:
    assert not is_prunable(use(9, relevance=0.0, superseded=True, exempt=exempt), NOW)


@pytest.mark.spec("PF-14")
def test_what_was_recorded_lately_stays() -> None:
    """History that was imported yesterday is old by its dates alone."""
    assert exemption_of(use(recorded_at=NOW - YOUNG + timedelta(seconds=1)), NOW) is Exemption.YOUNG
    assert exemption_of(use(recorded_at=NOW - YOUNG), NOW) is None


@pytest.mark.spec("AR-18")
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - set(PRUNED_KINDS)))
def test_records_of_other_kinds_cannot_be_pruned(kind: str) -> None:
    """Not by a mistake in the rules either: the journal refuses the event."""
    line = (
        b'{"record": "%s", "key": "company:x", "groups": {"archive": {"archive_summary": "", "archive_grounds": []}}}'
    )
    with pytest.raises(BadInput):
        parse_line(line % kind.encode(), needs_known_at=False, writer="archives")
    assert {"Decision", "Outcome", "PostMortem", "Lesson", "HumanInsight", "Pattern"} <= KINDS.keys() - set(
        PRUNED_KINDS
    )


def test_summaries_are_short() -> None:
    assert summary_of("short") == "short"
    for text in ("é" * 400, "x" * 501, "€" * 9_000):
        assert SUMMARY_BYTES - 4 <= len(summary_of(text).encode()) <= SUMMARY_BYTES
