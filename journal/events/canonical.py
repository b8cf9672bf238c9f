"""
Canonical JSON and its hash.

A record's identity is the hash of its canonical JSON: keys sorted, no blanks, UTF-8, shortest form of each number.
Callers pass only values that the models accepted, since the encoder would silently write NaN as null.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson


def canonical_json(value: Any) -> bytes:
    """
    Return *value*, made of JSON types, as canonical JSON.

    Raises:
        TypeError: it holds something that JSON has no form for, a lone surrogate, or an integer beyond 64 bits.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def content_hash(value: Any) -> bytes:
    """
    Return the SHA-256 (32 bytes) of the canonical JSON of *value*.

    Raises:
        TypeError: as :func:`canonical_json`.
    """
    return hashlib.sha256(canonical_json(value)).digest()
