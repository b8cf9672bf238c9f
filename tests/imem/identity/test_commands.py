"""The commands: secrets are printed once, and only admins get any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from imem.journal.actors import Actor
from imem.journal.errors import NotAuthenticated
from imem.journal.gateway import Gateway
from imem.journal.identity.sessions import Sessions
from imem.journal.identity.verifier import Verifier
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.imem.identity.conftest import ADMIN, soon
from tests.imem.ingest.conftest import LoadHarness
from tests.servers import cloned, in_database


@pytest.fixture
def harness(light_stack: Any, light_template: str, tmp_path: Path) -> Iterator[LoadHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        admin = {"postgres_admin_url": SecretStr(admin_url), "actor": "kate", "role": Role.HUMAN_ADMIN}
        settings = light_stack.settings.model_copy(update={**in_database(light_stack.settings, url), **admin})
        yield LoadHarness(settings, tmp_path)


async def test_a_token_from_its_creation_to_its_end(harness: LoadHarness) -> None:
    """Alone on standard output, so that a script can take it; what it is called stands in the list."""
    made = harness.run("token", "create", "ann", "--role", "agent", "--days", "7", "--name", "the desk")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    as_json = harness.run("token", "create", "bob", "--role", "reader", "--json")
    document = json.loads(as_json.stdout)
    database = Database(harness.url, size=2)
    verifier = Verifier(database)
    assert await verifier.actor(secret, deadline=soon()) == Actor("ann", Role.AGENT)
    assert await verifier.actor(document["token"], deadline=soon()) == Actor("bob", Role.READER)

    listed = harness.run("token", "list")
    assert "ann (agent), the desk" in listed.stdout
    assert secret not in listed.stdout + made.stderr + listed.stderr
    ids = {token["actor_id"]: token["token_id"] for token in json.loads(harness.run("token", "list", "--json").stdout)}
    revoked = harness.run("token", "revoke", ids["ann"])
    assert f"{ids['ann']}: ann (agent), the desk; revoked" in revoked.stdout
    with pytest.raises(NotAuthenticated):
        await Verifier(database).actor(secret, deadline=soon())
    await database.close()


async def test_a_link_to_sign_in(harness: LoadHarness) -> None:
    """It begins with the address of the pages."""
    printed = harness.having(public_url="https://memory.example.com/").run("sign-in", "rita", "--role", "reviewer")
    assert printed.returncode == 0, printed.stderr
    begin, _, secret = printed.stdout.strip().partition("link=")
    assert begin == "https://memory.example.com/sign-in?"
    database = Database(harness.url, size=2)
    begun = await Sessions(Gateway(database, ADMIN)).begin(secret, deadline=soon())
    assert begun.session.actor == Actor("rita", Role.REVIEWER)
    await database.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("token", "create", "import:x", "--role", "agent"), 2, "without a colon"),
        (("token", "create", "ann", "--role", "king"), 2, "king"),
        (("token", "create", "ann"), 2, "--role"),
        (("token", "create", "ann", "--role", "agent", "--days", "nan"), 2, "days"),
        (("token", "create", "ann", "--role", "agent", "--may-import"), 2, "may_import"),
        (("token", "revoke", "0123456789ab"), 2, "there is no token"),
        (("sign-in", "rita", "--role", "agent"), 2, "role"),
    ],
)
def test_wrong_words_are_named(harness: LoadHarness, words: tuple[str, ...], code: int, said: str) -> None:
    done = harness.run(*words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert harness.count("access_token") == harness.count("sign_in_link") == 0


def test_nobody_else_gets_any(harness: LoadHarness) -> None:
    """Neither another role, nor an admin without the curators' login; each attempt is in the audit."""
    for other in (harness.as_role(Role.AGENT, "eve"), harness.having(postgres_curator_url=None)):
        for words in (("token", "create", "eve", "--role", "human_admin"), ("sign-in", "eve")):
            done = other.run(*words)
            assert done.returncode == 1, done.stderr
            assert done.stdout == ""
    denied = "SELECT actor_id, outcome FROM memory_access_audit WHERE resource_type = 'identity' ORDER BY id"
    assert harness.rows(denied) == [(actor, "denied") for actor in ("eve", "eve", "kate", "kate")]
