"""
Failures that have one cause: the pattern of each, and when several are one.

Pure. A pattern is the failure's text without what differs from one occurrence to the next: numbers, ids, times,
addresses. Its hash is the signature. Both are kept, for a hash says nothing about what it was made of. The agent's
type belongs to the pattern, unless the cause lies outside, where any type is hit alike.
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
"""Analyses that make failures one."""

WINDOW: Final = timedelta(minutes=5)
"""Within which they failed."""

LONGEST_PATTERN: Final = 400
"""Characters of a pattern; what differs beyond them does not count."""

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
"""What is replaced, in this order: wider forms before those that are part of them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """
    By what failures are compared.

    Attributes:
        pattern: in words.
        hash: its SHA-256, hexadecimal.
        external: whether the cause lies outside.
    """

    pattern: str
    hash: str
    external: bool


def signature_of(failure: AgentFailure, agent_type: str) -> Signature:
    """Return the signature of a failure of an agent of that type."""
    external = failure.kind in EXTERNAL
    # With an endpoint, who was asked is the pattern; how each client words it is not.
    words = failure.endpoint.lower() if external and failure.endpoint else _normalize(failure.message)
    parts = [failure.kind.value, words] if external else [failure.kind.value, agent_type, words]
    pattern = " | ".join(parts)
    return Signature(pattern, hashlib.sha256(pattern.encode()).hexdigest(), external)


def _normalize(text: str) -> str:
    """Return *text* without what differs from one occurrence to the next."""
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
    Return the analyses whose failures, with *last*, have one cause; none where they are fewer than three.

    One analysis that fails again and again counts once: it says nothing about others.
    """
    found = {
        one.analysis_id
        for one in (*occurrences, last)
        if one.signature == last.signature and last.at - WINDOW <= one.at <= last.at
    }
    return frozenset(found) if len(found) >= LEAST else frozenset()
