"""Secrets of tokens, links and sessions: made once, shown once, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

TOKEN_PREFIX: Final = "imem_"  # noqa: S105 - how tokens begin, and none
"""Prefix of tokens, by which scanners of repositories find one that leaked."""

_SECRET_BYTES: Final = 32
"""Random bytes of a secret."""

_ID_BYTES: Final = 6
"""Random bytes of a public id."""

LONGEST_SECRET: Final = 256
"""Characters of a presented secret that are read; a longer text is no secret of ours, whatever follows."""


def new_secret(prefix: str = "") -> str:
    """Return a secret of 256 random bits, as text that URLs, headers and cookies take."""
    return prefix + secrets.token_urlsafe(_SECRET_BYTES)


def new_public_id() -> str:
    """Return a random id by which people name a token or a session."""
    return secrets.token_hex(_ID_BYTES)


def digest_of(secret: str) -> bytes:
    """
    Return the SHA-256 of *secret*, by which it is stored and looked up.

    A plain hash is enough for 256 random bits: there is no dictionary to try. Whoever measures how long the look-up
    takes learns about the hash of what was presented and nothing about the secrets that are stored. Any text has a
    hash, also one with NUL, halves of surrogate pairs, or a megabyte.
    """
    return hashlib.sha256(secret[:LONGEST_SECRET].encode("utf-8", "surrogatepass")).digest()
