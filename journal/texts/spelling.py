"""
The visible part of a text, and the common form of the spellings of a name. Pure.

By ``imem_plain_v1`` of Postgres an index finds names that are equal in these ways.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from imem.journal.texts.prompt_text import plain

_ASCII_SIGNS: Final = str.maketrans("\u2018\u2019\u02bc\u2032\u2010\u2011", "''''--")

_OTHER_LETTERS: Final = str.maketrans(
    dict(zip("øłđð\u0131ħŧŋ\u0451\u03c2", "olddihtn\u0435\u03c3", strict=True)) | {"æ": "ae", "œ": "oe", "þ": "th"}
)
"""Letters of which no mark can be taken."""


def says_nothing(text: str) -> bool:
    """Return whether nothing of *text* is seen: it is empty, or holds blanks, controls, marks and unseen ones alone."""
    return not any(_seen(one) and unicodedata.category(one)[0] != "M" for one in text)


def _seen(char: str) -> bool:
    """Return whether *char* is seen; so is one of a newer Unicode than Python's, unless it is no character for good."""
    if unicodedata.category(char) != "Cn":
        return bool(plain(char))
    code = ord(char)
    # The other ranges hold noncharacters, and places that are reserved for characters without a shape.
    return code & 0xFFFE != 0xFFFE and not 0xFDD0 <= code <= 0xFDEF and code < 0xE0000 and code != 0x2065


def displayed(name: str) -> str:
    """Return *name* as it is seen: NFKC, without unseen characters, one blank for each row of blanks of any kind."""
    return " ".join(unicodedata.normalize("NFKC", plain(name)).translate(_ASCII_SIGNS).split())


def spelled(name: str) -> str:
    """Return :func:`displayed` with case folded: what is equal of spellings that differ in case and form alone."""
    return unicodedata.normalize("NFKC", displayed(name).casefold())


def without_accents(name: str) -> str:
    """Return :func:`spelled` without marks above, below and through Latin and Greek letters."""
    parts = unicodedata.normalize("NFKD", spelled(name))
    letters = "".join(
        one for nth, one in enumerate(parts) if not ("\u0300" <= one <= "\u036f" and _takes_accents(parts, nth))
    )
    return unicodedata.normalize("NFC", letters).translate(_OTHER_LETTERS)


def _takes_accents(parts: str, nth: int) -> bool:
    """Return whether the letter to which the mark at *nth* belongs is Latin or Greek."""
    while nth and "\u0300" <= parts[nth] <= "\u036f":
        nth -= 1
    return parts[nth].isascii() or "\u0370" <= parts[nth] <= "\u03ff"
