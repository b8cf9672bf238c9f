"""
Correlation: the signature of a failure, and when several failures have one cause.

Pure. The pattern of a failure is its text without numbers, ids, times and addresses. The signature is its hash. Both
are stored, since the hash is not readable. The agent's type is part of the pattern, unless the cause is external, where
agents of any type fail alike.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from imem.checkpoints.incidents.failures import EXTERNAL, AgentFailure

LEAST: Final = 3
"""Analyses with the same signature that make a correlation."""

WINDOW: Final = timedelta(minutes=5)
"""Window within which they failed."""

LONGEST_PATTERN: Final = 400
"""Characters of a pattern; differences beyond them do not count."""

_VARIABLE: Final = (
    (re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (
        re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?", re.ASCII),
        "<time>",
    ),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b", re.ASCII), "<address>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\"[^\"]*\"|'[^']*'"), "<value>"),
    (re.compile(r"\d+(?:\.\d+)?", re.ASCII), "<n>"),
    (re.compile(r"\s+"), " "),
)
"""Replacements, in this order: wider forms before their parts."""


@dataclass(frozen=True, slots=True)
class Signature:
    """
    The signature of a failure.

    Attributes:
        pattern: readable.
        hash: its SHA-256, hexadecimal.
        external: whether the cause is external.
    """

    pattern: str
    hash: str
    external: bool


def signature_of(failure: AgentFailure, agent_type: str) -> Signature:
    """Return the signature of a failure of an agent of that type."""
    external = failure.kind in EXTERNAL
    # For an endpoint, its host is the pattern; clients word the same error differently.
    words = failure.endpoint.lower() if external and failure.endpoint else _normalize(failure.message)
    parts = [failure.kind.value, words] if external else [failure.kind.value, agent_type, words]
    pattern = " | ".join(parts)
    return Signature(pattern, hashlib.sha256(pattern.encode()).hexdigest(), external)


def _normalize(text: str) -> str:
    """Return *text* without what differs between occurrences."""
    text = text[: 4 * LONGEST_PATTERN]
    for expression, name in _VARIABLE:
        text = expression.sub(name, text)
    return text.strip().lower()[:LONGEST_PATTERN]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One failure of an analysis: when, and with which signature."""

    analysis_id: str
    signature: str
    at: datetime


def correlated(occurrences: Iterable[Occurrence], last: Occurrence) -> frozenset[str]:
    """
    Return the analyses whose failures, with *last*, have one cause; empty where they are fewer than three.

    An analysis that fails repeatedly counts once.
    """
    found = {
        one.analysis_id
        for one in (*occurrences, last)
        if one.signature == last.signature and last.at - WINDOW <= one.at <= last.at
    }
    return frozenset(found) if len(found) >= LEAST else frozenset()
