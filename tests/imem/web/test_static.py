"""The files that the pages load: contrasts that people can read, and a library that is what its README says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "imem" / "web" / "static"
TEXTS = (
    ("text", "back"), ("text", "card"), ("quiet", "back"), ("quiet", "card"), ("link", "back"), ("link", "card"),
    ("on-button", "button"), ("good", "good-back"), ("bad", "bad-back"), ("urgent", "urgent-back"),
)  # fmt: skip
EDGES = (("edge", "back"), ("edge", "card"), ("link", "back"))


def schemes() -> list[dict[str, str]]:
    """Return the colours of the light and of the dark scheme by name."""
    blocks = re.findall(r":root \{(.*?)\}", (STATIC / "pages.css").read_text(encoding="utf-8"), re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrasts_are_those_of_wcag_aa(scheme: int) -> None:
    """At least 4.5 for texts, and 3 for the borders of inputs and the mark of what has the focus."""
    colours = schemes()[scheme]
    assert [(pair, contrast(*(colours[one] for one in pair))) for pair in TEXTS if _below(colours, pair, 4.5)] == []
    assert [(pair, contrast(*(colours[one] for one in pair))) for pair in EDGES if _below(colours, pair, 3.0)] == []


def _below(colours: dict[str, str], pair: tuple[str, str], least: float) -> bool:
    return contrast(colours[pair[0]], colours[pair[1]]) < least


def test_the_library_is_the_one_that_the_readme_names() -> None:
    digest = hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest()
    assert digest in (STATIC / "README.md").read_text(encoding="utf-8")
