"""Records that nobody uses leave a stub in the graph; what is young, cited, held or open stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from imem.archives.access import Archives, HoldKind, HoldSubject
from imem.archives.pruning import Prunable, prunable, prune
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, PostgresUnavailable
from imem.journal.gateway import Gateway
from imem.journal.postgres.rows import rows
from imem.journal.settings import Role
from tests.archives.conftest import BEGIN, DAY, Vault, found_by, late, pattern
from tests.archives.killed import COMMIT
from tests.credibility.conftest import decision, finding, text
from tests.killed_programs import killed_program
from tests.servers import ahead
from tests.waiting import until

SOON: Final = Deadline.never()
LATER: Final = 200 * DAY
WAITING: Final = (
    "SELECT pid FROM pg_locks JOIN pg_database AS d ON d.oid = database"
    " WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted"
)
KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 2


def analysis(key: str, subject: str = "company:MU", at: datetime = BEGIN) -> dict[str, Any]:
    core = {"id": key, "subject_id": subject, "date": text(at), "kind": "equity_research", "summary": "Rising. " * 90}
    return {"record": "Analysis", "known_at": text(at), "core": core}


def remark(key: str, of: str, **core: Any) -> dict[str, Any]:
    """A finding that claims nothing."""
    line = finding(key, BEGIN, BEGIN + DAY, analysis_id=of, **core)
    line["core"] = {name: value for name, value in line["core"].items() if name not in {"metric", "target_at"}}
    return line


def cites(start: tuple[str, str], end: tuple[str, str]) -> dict[str, Any]:
    props = {"at": text(BEGIN), "rank": 1}
    return {"link": "CITES", "known_at": text(BEGIN), "from": dict([start]), "to": dict([end]), "props": props}


async def would(vault: Vault, by: timedelta = LATER) -> set[str]:
    """Return the keys of what a run would prune."""
    async with vault.later(by):
        return {one.key async for page in prunable(vault.database, deadline=SOON) for one in page}


async def run(vault: Vault, by: timedelta = LATER) -> dict[str, Any]:
    async with vault.later(by):
        return dict(await prune(vault.database, vault.gateway, until=Deadline.after_ms(60_000)))


def as_(vault: Vault, name: str, role: Role = Role.HUMAN_ADMIN) -> Archives:
    return Archives(Gateway(vault.world.database, Actor(name, role)), vault.objects)


@pytest.mark.spec("AR-18", "PF-14")
async def test_what_is_pruned_and_what_is_not(vault: Vault) -> None:
    """Each record that stays has one reason; without the reason it would go."""
    others = ("cited", "company", "decided", "formed", "studied", "asked", "reviewed", "running")
    await vault.world.say(
        *(analysis(key, f"company:{key}") for key in ("old", *others)), remark("f-old", "old", importance=0.9),
        remark("f-cited", "cited"), remark("f-company", "company", subject_id="company:company"),
        analysis("new", at=datetime.now(UTC) - 400 * DAY), remark("f-dull", "new", importance=0.1),
        decision("d", BEGIN), cites(("Decision", "d"), ("Analysis", "cited")),
        cites(("Decision", "d"), ("Finding", "f-cited")), decision("d2", BEGIN, analysis_id="decided"),
        decision("d3", BEGIN, analysis_id="reviewed"),
        finding("claim", BEGIN, BEGIN + 9999 * DAY, analysis_id="asked", probability=0.5),
    )  # fmt: skip
    await vault.say(pattern("p"), pattern("q"), *found_by("formed", "p")[1:], *found_by("studied", "q")[1:])
    await vault.say(late("q", BEGIN, investigation={"under_investigation": True}))
    vault.world.owner(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES ('running', 'x', now())"
    )
    vault.world.owner("INSERT INTO lifecycle (kind, key, about, state) VALUES ('postmortem', 'd3', 'd3', 'in_review')")
    ann = as_(vault, "ann")
    holds = [
        await ann.hold(HoldKind.MANUAL, subject, key, "Why.", deadline=SOON)
        for subject, key in (
            (HoldSubject.COMPANY, "company:company"), (HoldSubject.DECISION, "d2"), (HoldSubject.PATTERN, "p"),
        )
    ]  # fmt: skip
    assert await would(vault, 100 * DAY) == set(), "recorded too lately"
    assert await would(vault) == {"old", "f-old", "f-dull"}
    assert (await run(vault)) == {"Analysis": 1, "Debate": 0, "Finding": 2}
    assert await would(vault) == set(), "once"

    for hold in holds:
        vault.world.owner("UPDATE retention_hold SET released_at = now(), released_by = 'x' WHERE id = %s", hold["id"])
    await vault.say(late("q", BEGIN + DAY, investigation={"under_investigation": False}))
    vault.world.owner("UPDATE workflow.analysis SET outcome = 'failed', ended_at = now()")
    vault.world.owner("UPDATE lifecycle SET state = 'completed' WHERE key = 'd3'")
    assert await would(vault) == {
        "company", "f-company", "decided", "formed", "studied", "reviewed", "running"
    }  # fmt: skip
    assert {"asked", "claim"} <= await would(vault, 9999 * DAY), "the claim has its answer"


@pytest.mark.spec("AR-18")
async def test_debates_that_ended(vault: Vault) -> None:
    def debate(key: str, state: str) -> dict[str, Any]:
        core = {
            "id": key, "subject_id": "company:MU", "topic": "Margins", "challenger_agent": "a",
            "timestamp": text(BEGIN), "challenged_agent": "b", "participants": ["a", "b"],
            "disputed_finding": f"f-{key}",
        }  # fmt: skip
        groups = {"state": {"state": state, "provisional": False}}
        return {"record": "Debate", "known_at": text(BEGIN), "core": core, "groups": groups}

    await vault.world.say(
        debate("open", "level2"), debate("ended", "closed"), remark("f-ended", "a"), remark("free", "a"),
        debate("again", "closed"), cites(("Debate", "again"), ("Debate", "ended")),
    )  # fmt: skip
    assert await would(vault) == {"free", "again"}, "a finding under dispute and a precedent are cited"


@pytest.mark.spec("AR-19")
async def test_a_pruned_record_is_read_whole_and_reads_keep_others(vault: Vault) -> None:
    await vault.world.say(analysis("a"), remark("f", "a", key_drivers=["x"]), remark("read", "a"))
    agent = as_(vault, "ann", Role.AGENT)
    before = await agent.detail("Finding", "f", deadline=SOON)
    for _ in range(3):
        await agent.detail("Finding", "read", deadline=SOON)
    assert await would(vault) == {"a", "f"}
    assert await would(vault, 600 * DAY) == {"a", "f", "read"}, "reads count for twelve months"
    found, number = await as_(vault, "ann").prunable(deadline=SOON)
    assert (found, number) == ([], 0), "by the clock of now"

    assert await run(vault) == {"Analysis": 1, "Debate": 0, "Finding": 1}
    after = await agent.detail("Finding", "f", deadline=SOON)
    stub = after["groups"].pop("archive")
    assert stub == {"archive_summary": "It rises.", "archive_grounds": ["old", "unread"]}
    assert after == before
    assert before["core"]["key_drivers"] == ["x"]
    assert len((await agent.detail("Analysis", "a", deadline=SOON))["core"]["summary"]) > 600

    with pytest.raises(BadInput, match="no Finding nothing"):
        await agent.detail("Finding", "nothing", deadline=SOON)
    with pytest.raises(BadInput, match="Analysis, Debate, Finding"):
        await agent.detail("Decision", "d", deadline=SOON)
    with pytest.raises(PermissionDenied):
        await agent.prunable(deadline=SOON)


@pytest.mark.spec("AR-18")
async def test_a_hold_that_is_being_placed_is_waited_for(vault: Vault) -> None:
    """The run reads its records once the hold is committed, and not before."""
    await vault.world.say(analysis("free"), analysis("held", "company:held"))
    given = {
        "kind": "legal", "subject_type": "company", "subject_id": "company:held", "reason": "The court asks.",
        "actor": "ann", "role": "human_admin", "context": "{}",
    }  # fmt: skip
    async with vault.world.database.transaction(SOON) as conn:
        await rows(conn, "retention_lock_holds")
        pruning = asyncio.create_task(run(vault))
        try:
            await until(lambda: vault.world.rows(WAITING))
            assert await rows(conn, "hold_place", given)
        except BaseException:
            pruning.cancel()
            raise
    assert await pruning == {"Analysis": 1, "Debate": 0, "Finding": 0}
    assert await would(vault) == set()
    stubs = await vault.world.rows("SELECT key FROM record_head WHERE grp = 'archive'")
    assert [row["key"] for row in stubs] == ["free"]


async def test_the_applications_login_prunes_nothing(vault: Vault) -> None:
    """Whatever program it runs: the stub is no fact of an agent."""
    await vault.world.say(analysis("a"))
    gateway = Gateway(vault.world.database, Actor("ann", Role.HUMAN_ADMIN))
    entry = Prunable(kind="Analysis", key="a", grounds=(), summary="").entry
    with pytest.raises(PermissionDenied):
        await gateway.append([entry], deadline=SOON)


@contextmanager
def failing() -> Iterator[None]:
    """Let each append fail after it was done."""
    append = Gateway.append_in

    async def broken(*given: Any, **named: Any) -> Any:
        await append(*given, **named)
        raise PostgresUnavailable("gone")

    Gateway.append_in = broken  # type: ignore[method-assign]
    try:
        yield
    finally:
        Gateway.append_in = append  # type: ignore[method-assign]


@pytest.mark.spec("AR-19")
async def test_a_failed_append_leaves_everything_as_it_is(vault: Vault) -> None:
    await vault.world.say(analysis("a"), remark("f", "a"))
    before = await vault.world.written()
    with failing(), pytest.raises(PostgresUnavailable):
        await run(vault)
    assert await vault.world.written() == before
    assert await run(vault) == {"Analysis": 1, "Debate": 0, "Finding": 1}


@pytest.mark.longer
@pytest.mark.spec("PF-13")
async def test_killed_at_each_point(vault: Vault) -> None:
    """A page is pruned whole or not at all, and the next run makes up for it; nothing is lost in between."""
    archive = Archives(vault.gateway, vault.objects)
    numbers = iter(range(10_000))
    async with killed_program("tests.archives.killed", vault.world.pipeline_url) as program:
        for point in COMMIT:
            for _ in range(KILLS):
                number = next(numbers)
                # No event is recorded before the one that a run of the future recorded.
                key, by = f"a{number}", LATER * (number + 1)
                await vault.world.say(analysis(key), remark(f"f-{key}", key))
                before = [await archive.detail("Analysis", key, deadline=SOON)]
                ended = await program.ended(json.dumps({"options": ahead(vault.world.admin_url, by), "point": point}))
                assert ended == -signal.SIGKILL, point
                await until(vault.world.released)
                written = {"Analysis": 0, "Debate": 0, "Finding": 1} if point == "after_commit" else {
                    "Analysis": 1, "Debate": 0, "Finding": 1,
                }  # fmt: skip
                assert await run(vault, by) == written, point
                after = await archive.detail("Analysis", key, deadline=SOON)
                assert after["groups"].pop("archive")["archive_grounds"] == ["old", "unread"]
                assert [after] == before
