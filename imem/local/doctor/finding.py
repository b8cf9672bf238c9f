"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckLevel(StrEnum):
    """How bad it is."""

    FINE = "fine"
    WEAK = "weak"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """
    Result of one check.

    Attributes:
        about: what, in a word.
        level: how bad it is.
        text: what was found, without any secret.
        mend: what to do about it; empty when nothing.
    """

    about: str
    level: CheckLevel
    text: str
    mend: str = ""


def fine(about: str, text: str) -> CheckResult:
    """Return a result of level FINE."""
    return CheckResult(about, CheckLevel.FINE, text)


def weak(about: str, text: str, mend: str) -> CheckResult:
    """Return a result of level WEAK: it works but should be mended."""
    return CheckResult(about, CheckLevel.WEAK, text, mend)


def broken(about: str, text: str, mend: str) -> CheckResult:
    """Return a result of level BROKEN: it does not work."""
    return CheckResult(about, CheckLevel.BROKEN, text, mend)
