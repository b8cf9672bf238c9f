"""Whatever the OpenAPI document allows or forbids: no failure of the server, and no status that it does not name."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.identity.tokens import Tokens
from imem.journal.settings import Role
from imem.services.registry import operations
from imem.services.stores import Stores
from tests.imem.ingest.conftest import LoadHarness, harness

__all__ = ["harness"]

EXAMPLES = 40 if os.environ.get("IMEM_CHAOS") else 2
"""Calls of each operation, allowed ones and forbidden ones each."""

STARTS_S = 120.0
GATEWAY_TIMEOUT = 504


@contextmanager
def serving(harness: LoadHarness) -> Iterator[str]:
    """Run ``imem serve`` as users do, until it is told to stop; give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # As many calls as there are, and the time that a busy machine takes.
    many = {"IMEM_READS_PER_MINUTE": "1000000", "IMEM_WRITES_PER_MINUTE": "1000000", "IMEM_DEADLINE_MS": "30000"}
    log = harness.folder / "serve.log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            harness.command("serve", "--port", str(port)), env={**harness.environment, **many}, stderr=told
        )
    url = f"http://127.0.0.1:{port}"
    try:
        begun = time.monotonic()
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - begun < STARTS_S
            try:
                httpx2.get(f"{url}/healthz").raise_for_status()
            except httpx2.HTTPError:
                time.sleep(0.1)
            else:
                break
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.wait()


def token_of(harness: LoadHarness) -> str:
    """Return a token of an admin."""

    async def create() -> str:
        async with Stores.open(harness.as_role(Role.HUMAN_ADMIN, "root").settings) as stores:
            admin = Actor("root", Role.HUMAN_ADMIN)
            made = await Tokens(stores.gateway).create(
                "root", Role.HUMAN_ADMIN, actor=admin, deadline=Deadline.after_ms(10_000)
            )
            return made.secret

    return asyncio.run(create())


@pytest.mark.spec("IF-3")
@pytest.mark.longer
def test_whatever_is_sent_the_answer_is_one_that_the_document_names(harness: LoadHarness) -> None:
    """Every operation, by the document alone, over a socket."""
    headers = {"Authorization": f"Bearer {token_of(harness)}"}
    with serving(harness) as url:
        document = httpx2.get(f"{url}/v1/openapi.json", headers=headers, timeout=120.0).json()
        schema: Any = schemathesis.openapi.from_dict(document)
        failures, called = [], set()
        with httpx2.Client(base_url=url, headers=headers, timeout=120.0) as client:
            for each in schema.get_all_operations():
                operation = each.ok()
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    failures += _tried(client, operation, mode)
                called.add(operation.definition.raw["operationId"])
        assert failures == [], "\n".join([*failures, (harness.folder / "serve.log").read_text()[-20_000:]])
        assert called == {one.name for one in operations()}


def _tried(client: httpx2.Client, operation: Any, mode: GenerationMode) -> list[str]:
    """Call an operation some times, and return what was wrong with the answers."""
    found: list[str] = []
    documented = set(operation.definition.raw["responses"])

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def tried(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=str(client.base_url))
        answer = client.request(
            asked["method"], asked["url"], params=asked.get("params"), json=asked.get("json"),
            headers=[
                (name, value) for name, value in (asked.get("headers") or {}).items()
                if value.isascii() and value.isprintable() and name.lower() != "authorization"
            ],
        )  # fmt: skip
        kind = answer.headers.get("content-type", "").partition(";")[0]
        wanted = "application/json" if answer.status_code == 200 else "application/problem+json"
        own = str([asked.get(part) for part in ("params", "json", "headers")]).lower()
        if answer.status_code == GATEWAY_TIMEOUT and ("deadline_ms" in own or "deadline-ms" in own):
            return  # The request had a deadline of its own, which may be too short.
        if answer.status_code >= 500 or str(answer.status_code) not in documented or kind != wanted:
            found.append(
                f"{case.method} {case.path} {asked.get('json')!r:.200}: {answer.status_code} {answer.text:.300}"
            )

    tried()
    return found
