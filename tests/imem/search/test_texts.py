"""Texts of records, their parts and versions: pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from imem.recall.memories.parts import PART_CHARS, PARTS, split
from imem.recall.search.texts import GroupValue, Part, parts_of_place

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = st.integers(0, 9)
WORDS = st.sampled_from(["oil", "gas", "wind\n\nsun", "x" * (PART_CHARS + 1), "", "short. " * 400])


def day(nth: int) -> datetime:
    return BEGIN + timedelta(days=nth)


def value(group: str, nth: int, known: int, held: Any) -> GroupValue:
    return GroupValue(group, day(known), f"{known:05}|{nth:05}", held)


def core(said: str, **more: Any) -> dict[str, Any]:
    return {"subject_id": "company:MU", "agent": "ann", "statement": said, **more}


@st.composite
def histories(draw: st.DrawFn) -> dict[tuple[str, str], list[GroupValue]]:
    """Return an analysis with findings, each stated once, perhaps again, and corrected whenever."""
    records: dict[tuple[str, str], list[GroupValue]] = {}
    for nth in range(draw(st.integers(1, 4))):
        said, stated = draw(WORDS), draw(st.lists(DAYS, min_size=1, max_size=2))
        corrected = draw(st.lists(st.tuples(DAYS, WORDS), max_size=3))
        records["Finding", f"f{nth}"] = [
            *(value("core", at, known, core(said)) for at, known in enumerate(stated)),
            *(value("correction", 10 + at, known, core(text)) for at, (known, text) in enumerate(corrected)),
            *(value("body", 20, known, text) for known, text in draw(st.lists(st.tuples(DAYS, WORDS), max_size=1))),
        ]
    return records


NAMES = st.lists(st.tuples(DAYS, st.sampled_from(["Micron", "Micron Group"])), max_size=2, unique_by=lambda one: one[0])


def named(names: list[tuple[int, str]]) -> dict[str, list[tuple[datetime, str]]]:
    return {"company:MU": [(day(at), name) for at, name in sorted(names)]}


def stood(parts: list[Part], at: datetime) -> list[tuple[str, int, str, str]]:
    """Return what was said at a moment: key, part, title and content."""
    valid = (part for part in parts if part.known_at <= at and (part.superseded_at is None or part.superseded_at > at))
    return sorted((part.key, part.part, part.title, part.content) for part in valid)


@given(histories(), NAMES, DAYS)
def test_nothing_that_is_known_later_changes_what_was_said(
    records: dict[tuple[str, str], list[GroupValue]], names: list[tuple[int, str]], until: int
) -> None:
    """What stood at a moment follows from what was known by then alone; at most one version of a part is valid."""
    parts = parts_of_place("Analysis/a", records, named(names))
    known = {
        record: [one for one in history if one.known_at <= day(until)]
        for record, history in records.items()
    }  # fmt: skip
    then = parts_of_place(
        "Analysis/a",
        {one: held for one, held in known.items() if held},
        named([one for one in names if one[0] <= until]),
    )
    at = day(until)
    assert stood(parts, at) == stood(then, at)
    assert len({(key, part) for key, part, _, _ in stood(parts, at)}) == len(stood(parts, at))
    # What was said before a text is what stood then, too.
    befores = {(part.key, part.part): part.before for part in then if part.superseded_at is None}
    for part in parts:
        if part.known_at <= at and (part.superseded_at is None or part.superseded_at > at):
            assert befores[part.key, part.part] == part.before


@given(histories(), NAMES)
def test_versions_of_a_part_follow_one_another(
    records: dict[tuple[str, str], list[GroupValue]], names: list[tuple[int, str]]
) -> None:
    """Each ends at the latest where the next begins, and differs from it; the order of the input is no matter."""
    parts = parts_of_place("Analysis/a", records, named(names))
    assert parts == parts_of_place(
        "Analysis/a", dict(reversed([(one, held[::-1]) for one, held in records.items()])), named(names)
    )
    assert len({(part.id, part.version) for part in parts}) == len(parts)
    for before, after in pairwise(parts):
        if before.id == after.id:
            assert before.superseded_at is not None
            assert before.superseded_at <= after.known_at
            assert before.version + 1 == after.version
            if before.superseded_at == after.known_at:
                assert (before.title, before.content) != (after.title, after.content)
        else:
            assert before.superseded_at is None or before.superseded_at > before.known_at


@given(st.text(max_size=3 * PART_CHARS) | st.text(alphabet="ab. \n", max_size=4 * PART_CHARS))
def test_a_text_is_split_without_a_loss(text: str) -> None:
    parts = split(text)
    assert all(0 < len(part) <= PART_CHARS for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_very_long_text_is_cut() -> None:
    assert len(split("A sentence. " * 20_000)) == PARTS


def test_turns_stand_in_their_order_with_what_was_said_before() -> None:
    """The tenth after the ninth, and each with its speaker's name and the end of the one before it, if it is short."""
    turns = [
        {"number": nth, "speaker": "ann", "text": f"Turn {nth}." if nth != 3 else "Long. " * 100}
        for nth in range(1, 12)
    ]
    held = {"topic": "Peak?", "subject_id": "company:MU", "challenger_agent": "bob"}
    parts = parts_of_place(
        "Debate/b",
        {("Debate", "b"): [value("core", 1, 0, held), value("turns", 2, 0, turns)]},
        {},
    )
    assert [part.key for part in parts] == ["b", *(f"b#{nth}" for nth in range(1, 12))]
    assert [part.before for part in parts][:5] == ["", "Peak?", "ann: Turn 1.", "", ("Long. " * 100).strip()[-500:]]
    assert {part.title for part in parts} == {"MU"}
