"""
Parts of long texts, each of which a sentence encoder reads whole. Pure.

Memories and records are searched by the vectors of their parts: of a longer text one vector would hold the beginning
alone.
"""

from __future__ import annotations

import re
from typing import Final

PART_CHARS: Final = 900
"""Most characters of a part: some 220 tokens; the default encoder reads 256, title included."""

PARTS: Final = 56
"""Most parts of a text; what is longer is searched in its first 50,000 characters."""

SEPARATOR: Final = "\x1e"
"""Divides texts that share no part: the control character for it, which is in no text by chance and in no word."""

APART: Final = 16
"""Most texts that are kept apart; the last of them is whatever is left."""


def searched_text(author: str | None, text: str) -> str:
    """
    Return what words and vectors of a text, or of a part of it, are made of: the name of who said it stands in front.

    What begins with the name already stays as it is. ``recall.searched_text_v1`` is the same in SQL.
    """
    return text if author is None or text.startswith(f"{author}:") else f"{author}: {text}"


def split(text: str) -> list[str]:
    """Return *text* in parts of at most :data:`PART_CHARS`: whole paragraphs, sentences or words where possible."""
    parts = [part for section in text.split(SEPARATOR, APART - 1) for part in _split(section)]
    return parts[:PARTS]


def _split(section: str) -> list[str]:
    parts: list[str] = []
    rest = section.strip()
    while rest and len(parts) < PARTS:
        if len(rest) <= PART_CHARS:
            parts.append(rest)
            break
        head = rest[:PART_CHARS]
        cut = next(
            (
                found[-1].end()
                for found in (list(re.finditer(pattern, head)) for pattern in (r"\n\s*\n", r"[.!?…。]\s+|\n", r"\s+"))
                if found and found[-1].end() > PART_CHARS // 2
            ),
            PART_CHARS,
        )
        parts.append(head[:cut].strip())
        rest = rest[cut:].strip()
    return [part for part in parts if part]
