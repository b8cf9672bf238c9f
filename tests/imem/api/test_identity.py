"""IF-7 and AC-2 over REST: who calls is known before anything else, and nobody does what its role does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import httpx2
import orjson
import pytest

from imem.journal.actors import AUTHORIZATION, Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied
from imem.journal.identity.refusals import ROWS_PER_MINUTE
from imem.journal.identity.tokens import Tokens
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.services.operations import Operation
from imem.services.registry import operations
from imem.services.remote import path_of
from imem.services.wire import wire_of
from tests.imem.api.conftest import ADMIN, Face
from tests.imem.api.minimal import least_arguments
from tests.imem.ingest.test_memory import analysis, finding

NAMED: Final = {
    # What they name is looked up first: its owner decides.
    "agents.push": "agent_id",
    "agents.pull": "agent_id",
    "agents.notices": "agent_id",
    "agents.force_sync": "agents",
    "memories.supersede": "memory_id",
    "memories.retire": "memory_id",
    "memories.delete": "memory_id",
}
"""Operations that refuse the least arguments before the role, as there is nothing of that name."""


def soon() -> Deadline:
    return Deadline.after_ms(30_000)


async def call(client: httpx2.AsyncClient, operation: Operation, arguments: dict[str, Any]) -> httpx2.Response:
    """Call an operation as any program would."""
    if not wire_of(operation).in_query:
        return await client.post(path_of(operation), json=arguments)
    query = {
        name: value if isinstance(value, str | int | float) else orjson.dumps(value).decode()
        for name, value in arguments.items()
    }
    return await client.get(path_of(operation), params=query)


def audited(face: Face, actor: str) -> list[tuple[Any, ...]]:
    """Return resource, action, outcome and reason of the audit's rows of an actor."""
    return face.harness.rows(
        "SELECT resource_type, action, outcome, action_reason FROM memory_access_audit WHERE actor_id = %s ORDER BY id",
        actor,
    )


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the names of the statements that are run."""
    run: list[str] = []
    with monkeypatch.context() as patched:
        for method in ("named", "commit", "execute"):
            original = getattr(Database, method)

            async def noted(self: Database, name: str, *given: Any, _as: Any = original, **named: Any) -> Any:
                run.append(name)
                return await _as(self, name, *given, **named)

            patched.setattr(Database, method, noted)
        yield run


@pytest.mark.spec("IF-7")
async def test_without_a_token_every_operation_says_the_same(face: Face) -> None:
    """Whatever else is wrong with the call; the attempts are in the audit, and those beyond a bound are counted."""
    answers = set()
    async with face.client() as client:
        for operation in operations():
            refused = await call(client, operation, {"no_such_argument": "x"})
            assert refused.headers["content-type"] == "application/problem+json", operation.name
            answers.add((refused.status_code, refused.content, refused.headers["www-authenticate"]))
    [(status, body, _)] = answers
    assert (status, orjson.loads(body)["type"]) == (401, "urn:imem:error:NotAuthenticated")
    await face.server.verifier.close()
    attempts = face.harness.rows(
        "SELECT coalesce((request_context ->> 'attempts')::int, 1) FROM memory_access_audit "
        "WHERE actor_id = 'unknown' AND action = 'authenticate' AND outcome = 'denied'"
    )
    assert len(attempts) == ROWS_PER_MINUTE + 1
    assert sum(count for (count,) in attempts) == len(operations())


@pytest.mark.spec("IF-7")
async def test_all_that_is_no_token_in_force_is_refused_alike(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answer after the same statements, so that neither text nor time tells one from the other."""
    expired, revoked = await face.token("old"), await face.token("gone")
    face.harness.rows(
        "UPDATE access_token SET created_at = imem_now() - interval '2 days', "
        "expires_at = imem_now() - interval '1 day' WHERE actor_id = 'old' RETURNING token_id"
    )
    [(token_id,)] = face.harness.rows("SELECT token_id FROM access_token WHERE actor_id = 'gone'")
    tokens = Tokens(face.server.stores.gateway, curators=face.server.stores.curating.database)
    await tokens.revoke(token_id, actor=ADMIN, deadline=soon())
    given = (
        None,
        "Bearer",
        "Basic YTpi",
        "Bearer imem_" + "x" * 43,
        f"Bearer {expired}",
        f"Bearer {revoked}",
        "Bearer " + "y" * 9_000,
    )
    answers, runs = set(), []
    for header in given:
        async with face.client() as client:
            with statements(monkeypatch) as run:
                headers = {} if header is None else {"Authorization": header}
                answer = await client.get("/v1/brief", params={"subject": "MU"}, headers=headers)
        answers.add((answer.status_code, answer.content, tuple(sorted(answer.headers.items()))))
        runs.append(run)
    [(status, body, _)] = answers
    assert status == 401
    assert runs == [["token_authenticate", "audit"]] * len(given)
    for actor, token in (("old", expired), ("gone", revoked)):
        assert token.encode() not in body
        assert [row[1:] for row in audited(face, actor)] == [
            ("authenticate", "denied", "expired" if actor == "old" else "revoked")
        ]
    assert len(audited(face, "unknown")) == len(given) - 2


@pytest.mark.spec("IF-7")
async def test_a_role_does_nothing_that_it_may_not(face: Face) -> None:
    """A reader calls everything beyond its rights: each is refused with one audit row, and the stores are unchanged."""
    beyond = [one for one in operations() if (Role.READER, one.right.resource, one.right.action) not in AUTHORIZATION]
    assert {one.name for one in operations() if one.right.writes} <= {one.name for one in beyond}
    named: dict[str, str] = {}
    refused = []
    for number, operation in enumerate(beyond):
        reader = f"reader-{number}"
        async with face.client(await face.token(reader, Role.READER)) as client:
            answer = await call(client, operation, least_arguments(wire_of(operation)))
        told = answer.json()
        if told["type"] == "urn:imem:error:BadInput":
            named[operation.name] = told["field"]
            refused.append((operation.name, told["detail"]))
            assert audited(face, reader) == [], operation.name
        elif operation.name not in OFF:
            assert (answer.status_code, told["type"]) == (403, "urn:imem:error:PermissionDenied"), (
                operation.name,
                told,
            )
            assert [row[2] for row in audited(face, reader)] == ["denied"], operation.name
    assert named == NAMED, refused
    assert face.harness.count("event") == 0
    assert face.harness.rows("SELECT count(*) FROM recall.memory") == [(0,)]


OFF: Final = frozenset({"trades.similar_situations"})
"""Operations that a setting switches on, which nothing else comes before."""


@pytest.mark.spec("IF-7")
async def test_the_holder_of_a_token_acts_for_nobody_else(face: Face) -> None:
    """An agent with its own token, whatever the call says of others; and a read shows it nothing of theirs."""
    async with face.remote(await face.token("bob")) as bob:
        await bob.record_analysis(analysis(), findings=[finding("bob")])
        kept = await bob.remember("Only for Bob.")
    before = face.harness.count("event"), face.harness.rows("SELECT count(*) FROM recall.memory")
    async with face.remote(await face.token("mallory")) as mallory:
        for attempt in (
            mallory.record_finding(finding("bob", key="g")),
            mallory.remember("Bob changed his mind.", namespace="agent/bob"),
            mallory.memories.delete(kept.id),
            mallory.memories.get(kept.id),
        ):
            with pytest.raises(PermissionDenied) as refused:
                await attempt
            assert "Only for Bob" not in str(refused.value)
    assert (face.harness.count("event"), face.harness.rows("SELECT count(*) FROM recall.memory")) == before
    assert [row[2] for row in audited(face, "mallory")].count("denied") == 4


@pytest.mark.spec("AC-2")
async def test_working_memory_and_caches_are_their_agents(face: Face) -> None:
    """Another agent reads neither; a facilitator reads caches, which no operation shows, and not working memory."""
    bob = face.server.memory_of(Actor("bob", Role.AGENT))
    instance = f"bob-{uuid4().hex[:12]}"
    async with bob.session(
        instance, analysis_id=f"analysis:{instance}", agent_type="screening", subject_id="company:MU"
    ):
        pass
    async with face.remote(await face.token("bob")) as own:
        assert await own.agents.notices(instance) == []
    for name, role, reads in (("mallory", Role.AGENT, False), ("fay", Role.DEBATE_FACILITATOR, True)):
        async with face.remote(await face.token(name, role)) as other:
            for attempt in (other.agents.notices(instance), other.agents.pull(instance), other.agents.push(instance)):
                with pytest.raises(PermissionDenied):
                    await attempt
        gateway, cache = face.server.stores.gateway, Resource(ResourceType.AGENT_CACHE, instance, "bob")
        asked = gateway.authorize(cache, Action.READ, actor=Actor(name, role), deadline=soon())
        if reads:
            await asked
        else:
            with pytest.raises(PermissionDenied):
                await asked
        denied = ["working_memory"] * 3 + ["agent_cache"] * (not reads)
        assert [row[0] for row in audited(face, name) if row[2] == "denied"] == denied
