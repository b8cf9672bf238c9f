"""What nobody sees is no query and no text: it is refused as an empty one."""

from __future__ import annotations

from typing import Any

import pytest

from imem.journal.errors import BadInput
from imem.journal.texts.spelling import says_nothing
from imem.langgraph import MemoryStore
from tests.imem.memories.conftest import memory_of
from tests.imem.memory.conftest import MemoryHarness

UNSEEN = [
    "", " ", "\u00a0\u2003\u3000", "\t\n\x0b", "\u200b", "\u200b\u200c\u200d\u2060", "\ufeff", "\x01\x1f\x7f",
    "\x85\x9f", "\ufe0f", "\U000e0100", "\u180b", "\u034f", "\u00ad", "\u202e\u2066", "\u3164",
    "\u115f\u1160", "\uffa0", "\u2800", "\U000e0041", "\ue000", "\u2028\u2029", "\u0301", " \u200b \ufe0f ",
    "\ufffe", "\ufdd0",
]  # fmt: skip

# The last is of a Unicode that is newer than Python's, whichever that is: a letter-like place without a character yet.
SEEN = ["a", "0", "株", "€", "🚀", "❤\ufe0f", "?", "\u200ba\u200b", "ก็", "_", "\U0001faff", "\U000323b0"]

pytestmark = pytest.mark.usefixtures("places")


def test_what_is_seen() -> None:
    assert [text for text in UNSEEN if not says_nothing(text)] == []
    assert [text for text in SEEN if says_nothing(text)] == []


async def test_it_is_no_query_and_no_text(harness: MemoryHarness) -> None:
    async with memory_of(harness) as ann:
        stored = await ann.remember("Margins rise.")
        for text in UNSEEN:
            calls: dict[str, Any] = {
                "query": lambda: ann.search(text),  # noqa: B023 - called at once
                "query of memories": lambda: ann.memories.search(text),  # noqa: B023
                "relevant": lambda: ann.memories.relevant(text),  # noqa: B023
                "prompt": lambda: ann.memories.prompt_section(text),  # noqa: B023
                "text": lambda: ann.remember(text),  # noqa: B023
                "supersede": lambda: ann.memories.supersede(stored.id, text, reason="It was wrong."),  # noqa: B023
                "reason": lambda: ann.memories.retire(stored.id, reason=text),  # noqa: B023
                "precedents": lambda: ann.find_precedents(text),  # noqa: B023
                "subject": lambda: ann.brief(text),  # noqa: B023
                "subject of a search": lambda: ann.search("margins", subject=text),  # noqa: B023
            }
            for name, call in calls.items():
                with pytest.raises(BadInput) as caught:
                    await call()
                assert name, (text, caught.value)
        store = MemoryStore(ann)
        await store.aput(("notes",), "k", {"text": "Margins rise."})
        # A query that is empty is none: the newest items.
        assert [item.key for item in await store.asearch((), query="\u200b")] == ["k"]
