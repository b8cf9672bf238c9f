# ruff: noqa: RUF001 - letters of other alphabets
"""Texts of other languages are found by their words, with and without accents, in memories and records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from imem.journal.settings import Role
from imem.kg.model import Analysis, Company, Finding
from imem.memory import Memory
from imem.recall.memories.model import MemoryMatch
from tests.imem.memories.conftest import Places
from tests.imem.search.conftest import MemoryHarness, memory_of, project

AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("places")

TEXTS: Final = {
    "Chinese": ("半导体需求正在增长,工厂产能不足。", "中央银行上调了利率。", "半导体需求"),
    "Japanese": ("半導体の需要が増えている。工場の能力は足りない。", "日本銀行は金利を引き上げた。", "金利の引き上げ"),
    "Korean": ("반도체 수요가 늘고 있으며 공장이 부족하다.", "한국은행이 기준금리를 인상했다.", "금리 인상"),
    "Thai": ("ความต้องการชิปเพิ่มขึ้นอย่างมาก", "ธนาคารกลางขึ้นอัตราดอกเบี้ย", "ดอกเบี้ย"),
    "Arabic": ("ارتفعت أسعار النفط، والذهب أيضًا.", "رفع البنك المركزي سعر الفائدة.", "سعر الذهب"),
    "Russian": ("Российские банки повысили ставки.", "Спрос на чипы растёт.", "банк повысил ставку"),
    "Greek": ("Η κεντρική τράπεζα αύξησε τα επιτόκια.", "Η ζήτηση για τσιπ αυξάνεται.", "ΤΡΑΠΕΖΑ"),
    "German": ("Die Zentralbank erhöhte die Zinsen für Kredite.", "Die Nachfrage nach Chips wächst.", "hohere zinsen"),
    "French": ("La Société Générale a relevé ses prévisions.", "Les marges ont baissé à Orléans.", "societe generale"),
    "Turkish": ("İstanbul'daki banka faizi yükseltti.", "Çip talebi artıyor.", "ISTANBUL FAIZI"),
    "Polish": ("Łódź: bank podniósł stopy.", "Popyt na układy rośnie.", "lodz stopy"),
    "Vietnamese": ("Ngân hàng trung ương đã tăng lãi suất.", "Nhu cầu chip tăng mạnh.", "lai suat"),
    "Hindi": ("केंद्रीय बैंक ने ब्याज दरें बढ़ाईं।", "चिप की मांग बढ़ रही है।", "ब्याज दर"),
    "Hebrew": ("הבנק העלה את הָרִיבִּית.", "הביקוש לשבבים גדל.", "הריבית"),
    "English": ("“Demand” rose — the company’s plan…", "The bank raised rates.", "company demand"),
}
"""Language → two texts and a query; the one that it asks for is named by :data:`ASKED` where it is not the first."""

ASKED: Final = {"Japanese": 1, "Korean": 1, "Thai": 1}

BY_WORDS: Final = """
SELECT m.content FROM recall.search_memories_v1(
    ARRAY['agent/ann'], %s, NULL, NULL, NULL, NULL, NULL, NULL, 50, 5000, NULL, NULL) AS t
JOIN recall.memory AS m ON m.id = t.id AND m.version = t.version WHERE t.by_words ORDER BY t.words DESC, m.content
"""


def by_words(harness: MemoryHarness, query: str) -> list[str]:
    """Return the memories that have words of *query*, the best first."""
    return [row["content"] for row in harness.rows(BY_WORDS, query)]


async def remember_all(harness: MemoryHarness) -> None:
    async with memory_of(harness) as ann:
        for first, second, _ in TEXTS.values():
            await ann.remember(first, namespace="agent/ann")
            await ann.remember(second, namespace="agent/ann")


async def test_the_words_of_each_language_find_its_texts(harness: MemoryHarness) -> None:
    await remember_all(harness)
    for language, (*texts, query) in TEXTS.items():
        assert by_words(harness, query)[:1] == [texts[ASKED.get(language, 0)]], language
    async with memory_of(harness) as ann:
        for language, (*texts, query) in TEXTS.items():
            found = {item.content: item.found_by for item in (await ann.memories.search(query, limit=40)).items}
            assert MemoryMatch.WORDS in found[texts[ASKED.get(language, 0)]], language


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("Société Générale has cut its target.", "societe generale"),
        ("Societe Generale has cut its target.", "Société Générale"),
        ("Socie\u0301te\u0301 Ge\u0301ne\u0301rale has cut it.", "SOCIÉTÉ"),
        ("Müller visited the plant.", "muller"),
        ("Ørsted and Łukasz met at Straße 5.", "orsted lukasz strasse"),
        ("ＡＢＣ　Ｌｔｄ", "abc ltd"),
        ("ﾄﾖﾀ自動車", "トヨタ"),
        ("The com\u00adpany\u200b grew", "company"),
        ("Ωμέγα", "ωμεγα"),
        ("Ёлка", "елка"),
        ("株価は上昇した", "株"),
        ("株価は上昇", "昇"),
        ("كتاب", "كِتَاب"),
        ("الطلب على الرقائق", "والطلب"),
    ],
)
async def test_accents_and_forms_do_not_keep_words_apart(harness: MemoryHarness, stored: str, query: str) -> None:
    async with memory_of(harness) as ann:
        await ann.remember(stored, namespace="agent/ann")
        await ann.remember("Something else was said.", namespace="agent/ann")
    assert by_words(harness, query) == [stored]


async def test_other_letters_stay_others(harness: MemoryHarness) -> None:
    """A mark that makes another letter of one counts: those of Cyrillic and Japanese letters."""
    async with memory_of(harness) as ann:
        await ann.remember("カキ", namespace="agent/ann")
        await ann.remember("мои", namespace="agent/ann")
    assert by_words(harness, "ガギ") == []
    assert by_words(harness, "рой мой") == []


async def test_english_words_weigh_as_before(harness: MemoryHarness) -> None:
    """Of an ASCII text the words are those of Postgres' English configuration."""
    texts = ["Margins are rising quickly.", "U.S. sales: $5.2m, up 4%", "a/b-testing of foo.bar@example.com"]
    for text in texts:
        [row] = harness.rows("SELECT imem_words_v1(%s) = to_tsvector('english', %s) AS same", text, text)
        assert row["same"], text


async def test_nothing_of_a_query_is_syntax(harness: MemoryHarness) -> None:
    await remember_all(harness)
    async with memory_of(harness) as ann:
        for query in ("é' | ! & (株:*", "\\é\\", "株':*", "é" * 3000, "株" * 3000, "日本 " * 2000):
            await ann.memories.search(query)


async def test_records_are_found_likewise(harness: MemoryHarness, places: Places) -> None:
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True, "deadline_ms": 30_000})
    async with Memory.open(settings) as memory:
        name = Company.Profile(name="Société Générale")
        await memory.record(Company(ticker="GLE", profile=name), known_at=AT)
        await memory.record(
            Analysis(id="a", subject_id="company:GLE", date=AT, kind="equity_research", summary="金利が上昇した。"),
            known_at=AT,
        )
        for key, said in (("zh", "半导体需求正在增长。"), ("ru", "Российские банки повысили ставки.")):
            await memory.record(
                Finding(
                    id=key, analysis_id="a", subject_id="company:GLE", agent="ann", domain="supply", statement=said
                ),
                known_at=AT,
            )
    await project(harness, places)
    async with memory_of(harness) as ann:
        for query, key in (("半导体", "zh"), ("российский банк", "ru"), ("金利上昇", "a"), ("societe generale", "GLE")):
            found = await ann.search(query)
            assert MemoryMatch.WORDS in next(item for item in found.items if item.key == key).found_by, query
