"""What passes by itself is tried again, up to three times, and everything else pauses: against a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

import httpx
import pytest

from imem.checkpoints.incidents.failures import AgentFailure, FailureKind, failure_of
from imem.checkpoints.incidents.reports import FailedAttempt
from imem.checkpoints.incidents.retries import numbered
from imem.checkpoints.orchestration.programs import AgentRun, program
from imem.checkpoints.orchestration.runner import AgentRunner
from tests.http_server import Answer, Asked, HttpServer, serving

from .delivered import deliver
from .world import PERSON, World, soon

FIRST = "screener_data_fetch"


@dataclass
class Upstream:
    """
    What the agents of these tests ask: it answers what is lined up, and then 200.

    Attributes:
        server: where it is.
        answers: what comes next.
        seen: what the memory held at each attempt, before anything was written.
    """

    server: HttpServer
    answers: list[Answer]
    seen: list[list[str]] = field(default_factory=list)

    async def work(self, run: AgentRun) -> None:
        """Ask once in each subtask, in a memory that is written to before and after."""
        async with httpx.AsyncClient(timeout=0.2) as client:
            for name in run.session.pending:
                log = run.session.memory.list("log")
                self.seen.append(await run.session.memory.get("log", []))
                await log.append(f"{name} begun")
                (await client.get(f"{self.server.url}/{name}")).raise_for_status()
                await log.append(f"{name} done")
                await deliver(run.session, name)
                await run.session.complete(name)

    @property
    def asked(self) -> list[str]:
        return [one.path.removeprefix("/") for one in self.server.asked]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    def answer(_: Asked) -> Answer:
        return lined.pop(0) if lined else Answer()

    lined: list[Answer] = []
    with serving(answer) as server:
        made = Upstream(server, lined)
        program("screening")(made.work)
        yield made


@dataclass
class Waits:
    """Waits that take no time: how long they would have been, and what happens meanwhile."""

    taken: list[float] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()


def runner(world: World, waits: Waits) -> AgentRunner:
    return replace(world.parts.runner, sleep=waits, chance=lambda: 0.5)


async def started(world: World) -> None:
    await world.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())


async def failures(world: World) -> list[tuple[str, str, int]]:
    found = await world.rows("SELECT kind, class, attempt FROM workflow.agent_failures ORDER BY failed_at, id")
    return [(row["kind"], row["class"], row["attempt"]) for row in found]


async def test_an_upstream_that_asks_for_a_pause_gets_it(world: World, upstream: Upstream) -> None:
    """After 429 and 503 the same subtask runs again, on the memory of the checkpoint; nothing pauses."""
    upstream.answers += [Answer(), Answer(429, headers={"retry-after": "7"}), Answer(503, headers={"retry-after": "1"})]
    await started(world)
    waits = Waits()

    assert await runner(world, waits).run(world.sent[-1]) == "COMPLETED"

    names = list(world.definitions.of_type("screening").names)
    assert upstream.asked == [names[0], *[names[1]] * 3, *names[2:]]
    assert sum(waits.taken) == pytest.approx((7.0 + 0.25) + (2.0 + 0.5))
    after_one = [f"{FIRST} begun", f"{FIRST} done"]
    assert upstream.seen[1:4] == [after_one] * 3
    assert await failures(world) == [("quota", "retry", 1), ("overloaded", "retry", 2)]
    assert await world.alerts() == []
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []


async def test_the_third_failed_attempt_pauses(world: World, upstream: Upstream) -> None:
    """One alert, one pause; after it the count begins anew, since somebody has looked."""
    upstream.answers += [Answer(429, headers={"retry-after": "1"})] * 3
    await started(world)
    waits = Waits()

    assert await runner(world, waits).run(world.sent[-1]) == "FAILED"

    assert upstream.asked == [FIRST] * 3
    assert waits.taken == [1.25, 2.0, 0.5]
    assert [one[1:] for one in await failures(world)] == [("retry", 1), ("retry", 2), ("pause", 3)]
    assert await world.alerts() == ["AGENT_FAILURE"]
    found = await world.rows("SELECT retry_count FROM workflow.agent_checkpoints WHERE kind = 'failure'")
    assert [row["retry_count"] for row in found] == [2]
    await world.manager.round(deadline=soon())
    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    upstream.answers.append(Answer(429))
    assert await runner(world, waits).run(world.sent[-1]) == "COMPLETED"


@pytest.mark.parametrize(
    "answer",
    [Answer(500), Answer(404), Answer(429, headers={"retry-after": "3600"})],
    ids=["500 without a word", "404", "an hour"],
)
async def test_what_does_not_pass_by_itself_is_not_tried_again(
    world: World, upstream: Upstream, answer: Answer
) -> None:
    upstream.answers.append(answer)
    await started(world)
    waits = Waits()

    assert await runner(world, waits).run(world.sent[-1]) == "FAILED"

    assert (upstream.asked, waits.taken) == ([FIRST], [])


async def test_three_timeouts_in_a_row_pause(world: World, upstream: Upstream) -> None:
    upstream.answers += [Answer(silent=True)] * 3
    await started(world)

    assert await runner(world, Waits()).run(world.sent[-1]) == "FAILED"

    assert await failures(world) == [("timeout", "retry", 1), ("timeout", "retry", 2), ("timeout", "pause", 3)]
    (row,) = await world.rows("SELECT DISTINCT endpoint FROM workflow.agent_failures")
    assert row["endpoint"] == "127.0.0.1"


def test_timeouts_in_a_row_are_those_of_one_endpoint() -> None:
    """What another endpoint did in between says nothing; an answer of this one, even a refusal, ends the row."""
    late = AgentFailure(kind=FailureKind.TIMEOUT, message="m", endpoint="a")
    timeout, other, answered = (
        FailedAttempt(FailureKind.TIMEOUT, "a"),
        FailedAttempt(FailureKind.NETWORK, "b"),
        FailedAttempt(FailureKind.QUOTA, "a"),
    )
    assert numbered(late, []).timeouts == 1
    assert (numbered(late, [other, timeout]).timeouts, numbered(late, [other, timeout]).attempt) == (2, 3)
    assert numbered(late, [answered, timeout]).timeouts == 1
    assert numbered(replace(late, kind=FailureKind.QUOTA), [timeout]).timeouts == 1


async def test_a_process_that_dies_while_it_waits_does_not_make_its_successor_count_from_one(
    world: World, upstream: Upstream
) -> None:
    """Attempts are recorded before the wait begins."""
    upstream.answers += [Answer(429)] * 5
    await started(world)
    reached = asyncio.Event()

    async def forever() -> None:
        reached.set()
        await asyncio.Event().wait()

    dying = asyncio.create_task(runner(world, Waits(meanwhile=forever)).run(world.sent[-1]))
    await reached.wait()
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    world.owner("UPDATE workflow.agent_task SET state = 'SENT'")

    assert await runner(world, Waits()).run(world.sent[-1]) == "FAILED"

    assert upstream.asked == [FIRST] * 3


async def test_an_agent_that_waits_hears_that_it_shall_stop(world: World, upstream: Upstream) -> None:
    """Long before its wait is over, so that the pause need not fence it off."""
    upstream.answers.append(Answer(429, headers={"retry-after": "200"}))
    await started(world)

    async def pause() -> None:
        # Of this the agent is part: the order stands, and is carried out when the agent has stopped.
        await world.pauses.pause_analysis("a-1", "Wait.", by=PERSON, deadline=soon(300))

    waits = Waits(meanwhile=pause)
    assert await runner(world, waits).run(world.sent[-1]) == "STOPPED"

    assert len(waits.taken) == 1
    assert waits.taken[0] < 10
    await world.manager.round(deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    assert upstream.asked == [FIRST]


async def test_an_agent_that_was_taken_over_while_it_waits_does_nothing_more(world: World, upstream: Upstream) -> None:
    upstream.answers.append(Answer(429))
    await started(world)

    async def taken_over() -> None:
        world.owner("UPDATE workflow.agent_leases SET epoch = epoch + 1, holder = 'other'")

    assert await runner(world, Waits(meanwhile=taken_over)).run(world.sent[-1]) == "superseded"

    assert upstream.asked == [FIRST]


def test_a_date_to_come_again_counts_from_the_answers_own() -> None:
    def told(**headers: str) -> float | None:
        request = httpx.Request("GET", "https://api.example/v1")
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        response = httpx.Response(503, headers=headers, request=request)
        return failure_of(httpx.HTTPStatusError("no", request=request, response=response)).retry_after_s

    then, now = "Mon, 01 Jun 2026 10:00:30 GMT", "Mon, 01 Jun 2026 10:00:00 GMT"
    assert told(retry_after=then, date=now) == 30.0
    assert told(retry_after=now, date=then) == 0.0
    assert told(retry_after=then) is None
    assert told(retry_after="soon", date=now) is None
