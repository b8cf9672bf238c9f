# ruff: noqa: RUF001 - letters of other alphabets
"""Answers, and doctor, say when a text or a query is in a language that the sentence encoder does not know."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from imem.journal.deadline import Deadline
from imem.journal.settings import Settings
from imem.kg.similarity.embedders import Embedder
from imem.local.doctor import data
from imem.local.doctor.finding import CheckLevel
from imem.recall.answers import Quality
from imem.services.embedders import embedder_of
from tests.imem.search.conftest import MemoryHarness, memory_of

ENCODERS = {name: embedder_of(Settings.read({"IMEM_EMBEDDING_LOCAL": name})) for name in ("e5-small-v2", "universal-3")}

JAPANESE, ENGLISH = "半導体の需要が増えている。", "The margins of the memory makers are rising."


async def use(monkeypatch: pytest.MonkeyPatch, name: str) -> Embedder:
    """Let every memory use an encoder, which is loaded."""
    await ENCODERS[name].embed(["Margins rise."], deadline=Deadline.never())
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: ENCODERS[name])
    return ENCODERS[name]


async def test_an_answer_says_what_the_encoder_does_not_know(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(monkeypatch, "e5-small-v2")
    async with memory_of(harness) as ann:
        await ann.remember(ENGLISH)
        for found in (await ann.memories.search("Why are the margins rising?"), await ann.search("margins")):
            assert (found.reason, found.quality) == (None, Quality.EXACT)
        await ann.remember(JAPANESE)
        for found in (await ann.memories.search("半導体の需要"), await ann.search("半導体の需要")):
            assert found.quality is Quality.PARTIAL
            assert "the query (Japanese) and 1 of the texts found (Japanese)" in (found.reason or "")
        found = await ann.memories.search("Why are the margins rising?")
        assert "1 of the texts found (Japanese)" in (found.reason or "")
        assert "the query" not in (found.reason or "")
        assert (await ann.memories.search("Warum steigen die Margen nicht?", limit=1)).reason


async def test_the_multilingual_encoder_knows_it(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(monkeypatch, "universal-3")
    async with memory_of(harness) as ann:
        await ann.remember(JAPANESE)
        found = await ann.memories.search("半導体の需要")
        assert (found.reason, found.quality) == (None, Quality.EXACT)
        assert "Greek" in ((await ann.memories.search("Τι κάνουν τα επιτόκια;")).reason or "")


async def test_doctor_recommends_the_multilingual_encoder(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(monkeypatch, "e5-small-v2")
    settings = harness.settings.model_copy(update={"embedding_local": "e5-small-v2"})

    def looked() -> list[tuple[CheckLevel, str, str]]:
        with psycopg.connect(harness.admin_url, autocommit=True, row_factory=dict_row) as connection:
            return [(one.level, one.text, one.mend or "") for one in data.languages(connection, settings)]

    assert looked() == []
    async with memory_of(harness) as ann:
        await ann.remember(ENGLISH)
        [(level, text, _)] = looked()
        assert (level, text) == (CheckLevel.FINE, "the sentence encoder e5-small-v2 knows the languages of the texts")
        await ann.remember(JAPANESE)
        await ann.remember("Η κεντρική τράπεζα αύξησε τα επιτόκια.")
        [(level, text, mend)] = looked()
        assert level is CheckLevel.WEAK
        assert "2 of 3 texts that are searched are in another language (Greek and Japanese)" in text
        assert "IMEM_EMBEDDING_LOCAL=universal-3, which knows Japanese" in mend
        await use(monkeypatch, "universal-3")
        settings = settings.model_copy(update={"embedding_local": "universal-3"})
        [(level, text, mend)] = looked()
        assert "1 of 3" in text
        assert "universal-3, which knows" not in mend
