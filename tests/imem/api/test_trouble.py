"""Repeats, and input that nobody should send: one effect, a problem document that names the field, nothing written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from imem.journal.settings import Role
from tests.imem.api.conftest import Face

TEXT = {"text": "It rises.", "namespace": "symbol/MU"}
COMPANY = {"company": {"ticker": "MU"}}


@pytest.mark.spec("IF-9")
async def test_repeats_under_one_key_have_one_effect_and_one_answer(face: Face) -> None:
    """One after the other and at once; another body, and another identity, are no repeats."""
    token = await face.token("ann")
    async with face.client(token) as client:
        first, *others = await asyncio.gather(
            *(client.post("/v1/remember", json=TEXT, headers={"Idempotency-Key": "k"}) for _ in range(4))
        )
        answers = [one for one in (first, *others) if one.status_code == 200]
        assert answers
        assert {one.status_code for one in (first, *others)} <= {200, 409}
        again = await client.post("/v1/remember", json=TEXT, headers={"Idempotency-Key": "k"})
        assert {one.content for one in (*answers, again)} == {again.content}
        assert again.headers["Idempotency-Replayed"] == "true"
        other = await client.post("/v1/remember", json={**TEXT, "text": "It falls."}, headers={"Idempotency-Key": "k"})
        assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")
    async with face.client(await face.token("bob")) as client:
        his = await client.post("/v1/remember", json=TEXT, headers={"Idempotency-Key": "k"})
    assert his.status_code == 200
    assert face.harness.rows("SELECT count(*) FROM recall.memory") == [(1,)]


@pytest.mark.spec("IF-9")
async def test_a_refused_request_frees_its_key(face: Face) -> None:
    async with face.client(await face.token("ann")) as client:
        headers = {"Idempotency-Key": "k"}
        refused = await client.post("/v1/remember", json={**TEXT, "importance": 7}, headers=headers)
        done = await client.post("/v1/remember", json=TEXT, headers=headers)
    assert (refused.status_code, done.status_code) == (422, 200)


HOSTILE: list[tuple[str, bytes, int, str]] = [
    ("too long", b'{"text": "' + b"a" * 2**20 + b'"}', 413, "body"),
    ("no JSON", b'{"text": ', 422, "body"),
    ("not UTF-8", b'{"text": "\xff"}', 422, "body"),
    ("nested", b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, "body"),
    ("nested within bounds", b'{"text": "a", "metadata": ' + b'{"a":' * 900 + b"1" + b"}" * 901, 422, "metadata"),
    ("a list", b"[]", 422, "body"),
    ("nothing", b"", 422, "body"),
    ("missing", b"{}", 422, "text"),
    ("unknown", b'{"text": "a", "role": "human_admin"}', 422, "role"),
    ("another type", b'{"text": 5}', 422, "text"),
    ("NUL", b'{"text": "a\\u0000b"}', 422, "text"),
    ("half a pair", b'{"text": "\\ud800"}', 422, "body"),
    ("NaN", b'{"text": "a", "importance": NaN}', 422, "body"),
    ("a huge number", b'{"text": "a", "importance": 1e999}', 422, "body"),
]


@pytest.mark.spec("IF-8")
async def test_hostile_bodies_are_refused_by_field_and_change_nothing(face: Face) -> None:
    async with face.client(await face.token("ann")) as client:
        for what, body, status, field in HOSTILE:
            found = await client.post("/v1/remember", content=body, headers={"Content-Type": "application/json"})
            assert found.headers["content-type"] == "application/problem+json", what
            told = found.json()
            assert (found.status_code, told["status"]) == (status, status), (what, told)
            assert told["field"].startswith(field), (what, told)
    assert face.harness.rows("SELECT count(*) FROM recall.memory") == [(0,)]
    assert face.harness.count("event") == 0


QUERIES: list[tuple[dict[str, Any], str]] = [
    ({}, "subject"),
    ({"subject": ""}, "subject"),
    ({"subject": "a\0b"}, "subject"),
    ({"subject": "x" * 20_000}, "subject"),
    ({"subject": "MU", "as_of": "yesterday"}, "as_of"),
    ({"subject": "MU", "as_of": "2026-06-01T00:00:00"}, "as_of"),
    ({"subject": "MU", "deadline_ms": "nan"}, "deadline_ms"),
    ({"subject": "MU", "deadline_ms": "1e9"}, "deadline_ms"),
    ({"subject": "MU", "limits": "{"}, "limits"),
    ({"subject": "MU", "nothing": "1"}, "nothing"),
]


@pytest.mark.spec("IF-8")
async def test_hostile_queries_are_refused_by_field(face: Face) -> None:
    async with face.client(await face.token("ann")) as client:
        for given, field in QUERIES:
            found = await client.get("/v1/brief", params=given)
            assert found.status_code == 422, (given, found.text)
            assert (found.status_code, found.json()["field"].partition(".")[0]) == (422, field), (given, found.json())
        late = await client.get("/v1/brief", params={"subject": "MU"}, headers={"X-Deadline-Ms": "5000"})
        assert (late.status_code, late.json()["field"]) == (422, "X-Deadline-Ms")


async def test_what_is_not_there_is_a_problem_document(face: Face) -> None:
    async with face.client(await face.token("ann")) as client:
        for method, path, status in (("GET", "/v1/nothing", 404), ("DELETE", "/v1/brief", 405)):
            found = await client.request(method, path)
            assert (found.status_code, found.json()["status"]) == (status, status)
            assert found.headers["content-type"] == "application/problem+json"


async def test_health_says_whether_the_stores_answer(face: Face) -> None:
    async with face.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json()["ready"] is True
        assert (await client.get("/metrics")).status_code == 401
    async with face.client(await face.token("eve", Role.READER)) as client:
        assert (await client.get("/metrics")).status_code == 200


async def test_a_call_says_how_long_it_took(face: Face) -> None:
    async with face.client(await face.token("ann")) as client:
        found = await client.post("/v1/remember", json=TEXT)
    assert found.headers["server-timing"].startswith("memory;dur=")
