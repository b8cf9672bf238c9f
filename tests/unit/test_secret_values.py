"""Secrets are random, and any text at all has a hash."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from imem.journal.identity.secret_values import LONGEST_SECRET, digest_of, new_public_id, new_secret


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret("imem_") for _ in range(1_000)}
    assert len(made) == 1_000
    assert {len(secret) for secret in made} == {len("imem_") + 43}
    assert all(len(secret) < LONGEST_SECRET for secret in made)
    assert len({new_public_id() for _ in range(1_000)}) == 1_000


@given(st.text(st.characters(), max_size=300))
def test_every_text_has_a_digest_and_another_text_another(text: str) -> None:
    """Halves of surrogate pairs among them."""
    assert len(digest_of(text)) == 32
    secret = new_secret()
    assert digest_of(text) != digest_of(secret) or text == secret
    assert digest_of(secret) == hashlib.sha256(secret.encode()).digest()


def test_a_text_that_begins_with_a_secret_is_none() -> None:
    secret = new_secret()
    for more in ("\x00", " ", "a" * 2**20):
        assert digest_of(secret + more) != digest_of(secret)
