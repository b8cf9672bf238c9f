# ruff: noqa: RUF001 - letters of other alphabets
"""Subjects are found however their names are spelled, and suggestions are ordered by how alike they are."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Any

import pytest

from imem.journal.errors import AmbiguousSubject, UnknownSubject
from imem.recall.subjects import UNACCENTED, by_likeness
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line, day


def named(ticker: str, name: str, at: float = 0) -> Line:
    return {
        "record": "Company", "known_at": day(at), "core": {"ticker": ticker}, "groups": {"profile": {"name": name}},
    }  # fmt: skip


ALIKE = {
    "Société Générale": "company:GLE",
    unicodedata.normalize("NFD", "Société Générale"): "company:GLE",
    "SOCIÉTÉ GÉNÉRALE": "company:GLE",
    "société  générale": "company:GLE",
    " Société\u00a0Générale\t": "company:GLE",
    "Soci\u200bété Générale\ufeff": "company:GLE",
    "ＭＵ": "company:MU",
    " mu ": "company:MU",
    "M\u200bU": "company:MU",
    "Company:mu": "company:MU",
    "company:mu": "company:MU",
    "MICRON technology": "company:MU",
    "Ｍｉｃｒｏｎ　Ｔｅｃｈｎｏｌｏｇｙ": "company:MU",
    "ﾄﾖﾀ自動車": "company:7203.T",
    "STRASSE AG": "company:STR",
    "brk.b": "company:BRK.B",
    "M1": "market:m1",
    "will M1 come  true?": "market:m1",
    "Moody's": "company:MCO",
    "МТС": "company:MTSS",
    "мтс": "company:MTSS",
}

UNLIKE = {
    "societe generale": "company:GLE",
    "Societe Génerale": "company:GLE",
    "sociéte generale": "company:GLE",
    "Orsted": "company:ORSTED.CO",
    "Ørsted": "company:ORSTED.CO",
}

COMPANIES = [
    ("GLE", "Société Générale"), ("MU", "Micron Technology"), ("7203.T", "トヨタ自動車"), ("STR", "Straße AG"),
    ("BRK.B", "Berkshire Hathaway"), ("MCO", "Moody’s"), ("MTSS", "МТС"), ("ORSTED.CO", "Örsted"),
]  # fmt: skip


async def test_a_name_is_found_however_it_is_spelled(harness: RecallHarness) -> None:
    """Case, blanks and forms of characters do not count; accents do, where they tell two names apart."""
    await harness.know([*(named(*one) for one in COMPANIES), facts.market("m1", 0)])
    for typed, subject_id in ALIKE.items():
        about = (await harness.memory.brief(typed)).subject
        assert (about.subject_id, about.label) == (subject_id, None), typed
    for typed, subject_id in UNLIKE.items():
        briefing = await harness.memory.brief(typed)
        assert (briefing.subject.subject_id, briefing.subject.label) == (subject_id, UNACCENTED), typed
        assert UNACCENTED in briefing.to_markdown()
    found = await harness.memory.search("results", subject="societe generale", deadline_ms=30_000)
    assert found.subject_label == UNACCENTED
    assert (await harness.memory.search("results", subject="GLE", deadline_ms=30_000)).subject_label is None
    assert (await harness.memory.history("societe generale")).items == []


async def test_the_best_spelling_counts(harness: RecallHarness) -> None:
    """What is exactly the name comes first, then what is alike, then what is alike but for accents."""
    await harness.know([named("A", "Cafe"), named("B", "Café"), named("C", "CAFÉ")])
    for typed, subject_id in {
        "Cafe": "company:A",
        "CAFE": "company:A",
        "Café": "company:B",
        "CAFÉ": "company:C",
    }.items():
        assert (await harness.memory.brief(typed)).subject.subject_id == subject_id, typed
    with pytest.raises(AmbiguousSubject, match="company:B, company:C"):
        await harness.memory.brief("café")


async def test_other_spellings_are_as_of_a_day(harness: RecallHarness) -> None:
    """A name of later is none, and one of before is none any more."""
    await harness.know([named("A", "Café", 3), facts.renamed("A", 6, "Thé")])
    for at, typed, known in (
        (1, "cafe", False),
        (4, "cafe", True),
        (4, "THE", False),
        (7, "cafe", False),
        (7, "the", True),
    ):
        asked: dict[str, Any] = {"as_of": datetime.fromisoformat(day(at))}
        if known:
            assert (await harness.memory.brief(typed, **asked)).subject.subject_id == "company:A"
        else:
            with pytest.raises(UnknownSubject):
                await harness.memory.brief(typed, **asked)
    with pytest.raises(UnknownSubject):
        await harness.memory.brief("a", as_of=datetime.fromisoformat(day(1)))


@pytest.mark.parametrize("as_of", [None, datetime.fromisoformat(day(5))])
async def test_suggestions_come_in_the_order_of_likeness(harness: RecallHarness, as_of: datetime | None) -> None:
    """From the graph, and as of a day from the journal."""
    names = ["Aaa Micra", "Bbb Microm", "Microm Technologies", "Micra", "Zzz Micron", "Société Générale"]
    await harness.know([named(f"T{nth}", name) for nth, name in enumerate(names)])
    for typed, first in {
        "Microm Tecnologies": "company:T2",
        "Zz Micron": "company:T4",
        "Societe Generalle": "company:T5",
    }.items():
        with pytest.raises(UnknownSubject) as refusal:
            await harness.memory.brief(typed, as_of=as_of, deadline_ms=30_000)
        assert refusal.value.nearest[0] == first, (typed, refusal.value.nearest)


def test_the_most_alike_comes_first() -> None:
    found: list[tuple[str, str | None]] = [
        ("company:AAA", "Micra"),
        ("company:ZZZ", "Micron Technology"),
        ("company:B", None),
    ]
    assert by_likeness("Micron Technolgy", found)[0] == "company:ZZZ"
    assert by_likeness("Micra Ltd", found)[:2] == ["company:AAA", "company:ZZZ"]
    assert by_likeness("company:b", found)[0] == "company:B"
