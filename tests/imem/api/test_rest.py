"""The operations over REST: who may call, what comes back, and what is refused."""

from __future__ import annotations

import pytest

from imem.journal.errors import BadInput, NotAuthenticated, PermissionDenied, UnknownSubject
from imem.journal.settings import Role
from tests.imem.api.conftest import Face
from tests.imem.ingest.test_memory import analysis, finding


async def test_a_program_elsewhere_records_and_reads(face: Face) -> None:
    """Under the name of its token, with the same results as in the process."""
    async with face.remote(await face.token("ann")) as memory:
        receipt = await memory.record_analysis(analysis(), findings=[finding("ann")])
        again = await memory.record_analysis(analysis(), findings=[finding("ann")])
        briefing = await memory.brief("MU", deadline_ms=2_000)
    assert receipt.durable
    assert again.verdict == "identical"
    assert (await face.server.memory.brief("MU", deadline_ms=30_000)).subject == briefing.subject
    assert face.harness.rows("SELECT DISTINCT actor FROM event") == [("ann",)]


async def test_errors_are_those_of_the_operations(face: Face) -> None:
    async with face.remote(await face.token("ann")) as memory:
        with pytest.raises(UnknownSubject) as unknown:
            await memory.brief("NOTHING", deadline_ms=2_000)
        with pytest.raises(BadInput) as wrong:
            await memory.brief("MU", clock="recieved")
        with pytest.raises(PermissionDenied):
            await memory.tasks.list()
    assert unknown.value.subject == "NOTHING"
    assert wrong.value.field == "clock"


async def test_without_a_token_nothing_is_answered(face: Face) -> None:
    async with face.client() as client:
        refused = await client.get("/v1/brief", params={"subject": "MU"})
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == "urn:imem:error:NotAuthenticated"
    async with face.remote("imem_nobody") as memory:
        with pytest.raises(NotAuthenticated):
            await memory.brief("MU")


async def test_a_reader_writes_nothing(face: Face) -> None:
    async with face.remote(await face.token("eve", Role.READER)) as memory:
        with pytest.raises(PermissionDenied):
            await memory.record_analysis(analysis())
    assert face.harness.count("event") == 0
