"""The snapshot that both sides of a debate argue from, one for each round."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from imem.cache.client import Client
from imem.cache.working.store import WorkingStore
from imem.debates.states import Act
from imem.ingest.recorder import Recorder
from imem.journal.clock import SystemClock
from imem.kg.kinds.enums import DebateState
from imem.review.states import TaskState
from imem.sync.snapshots import MOST_DEFERRALS, Snapshots
from imem.sync.synchronizer import Synchronizer

from .conftest import BEAR, BULL, ENOUGH, Forum, claimed


def snapshots(forum: Forum) -> Snapshots:
    """Return what the workers take snapshots with; the working Valkey is not there."""
    nowhere = WorkingStore(Client("redis://127.0.0.1:1/0", name="The working Valkey"), SystemClock())
    engine = forum.world.engine
    return Snapshots(
        forum.world.pipelines, Synchronizer(forum.world.pipelines, nowhere, Recorder(engine), engine), None
    )


async def published(forum: Forum, debate_id: str) -> dict[str, Any]:
    """Return the last state that was recorded of a debate."""
    [row] = await forum.world.rows(
        "SELECT payload -> 'groups' -> 'state' AS state FROM event WHERE record_key = %s"
        " AND payload -> 'groups' ? 'state' ORDER BY position DESC LIMIT 1",
        debate_id,
    )
    found: dict[str, Any] = row["state"]
    return found


@pytest.mark.spec("DB-13")
async def test_another_debate_links_to_its_predecessor_and_has_a_new_snapshot(forum: Forum) -> None:
    debate = await forum.challenge()
    assert await snapshots(forum).take_due(deadline=ENOUGH) == 1
    first = (await forum.now(debate)).snapshot_id
    assert first is not None
    await forum.later(timedelta(minutes=16))
    assert (await published(forum, debate.debate_id))["snapshot_id"] == first
    await forum.world.say(claimed("f-new", "bull", 90.0))
    await forum.answer("redebate", rationale="New filings are out.")

    again = f"{debate.debate_id}/2"
    assert (await forum.now(again)).snapshot_id is None
    assert await snapshots(forum).take_due(deadline=ENOUGH) == 1
    second = (await forum.now(again)).snapshot_id
    assert second not in {None, first}

    await forum.act(again, Act.ACCEPT, BULL)
    await forum.advance()
    assert (await published(forum, again))["snapshot_id"] == second
    old, new = [await snapshots(forum).read(str(one), deadline=ENOUGH) for one in (first, second)]
    assert (old.debate_id, new.debate_id) == (debate.debate_id, again)
    assert "Finding/f-new" not in {one["node"] for one in old.body["records"]}
    assert "Finding/f-new" in {one["node"] for one in new.body["records"]}
    links = await forum.world.rows(
        "SELECT payload ->> 'from_key' AS a, payload ->> 'to_key' AS b FROM event WHERE kind = 'link.SUPERSEDES'"
    )
    assert [(row["a"], row["b"]) for row in links] == [(again, debate.debate_id)]
    assert await snapshots(forum).take_due(deadline=ENOUGH) == 0


async def test_a_snapshot_that_cannot_be_taken_is_put_off(forum: Forum, monkeypatch: pytest.MonkeyPatch) -> None:
    """An analysis that has published too much does not hold up the snapshots of other debates in each round."""
    monkeypatch.setattr("imem.sync.snapshots.MOST_ROWS", 1)
    await forum.challenge()
    assert await snapshots(forum).take_due(deadline=ENOUGH) == 0
    [row] = await forum.world.rows(
        "SELECT data -> 'snapshot' ->> 'deferrals' AS n FROM lifecycle WHERE kind = 'debate'"
    )
    assert row["n"] == "1"


async def test_a_person_decides_where_a_side_cannot_be_synchronised(forum: Forum) -> None:
    """After four attempts; each is in the audit trail. Records decide nothing then, and the debate has no snapshot."""
    await forum.reviewer()
    debate = await forum.challenge(judge="jim")
    forum.world.owner(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES ('a-1', 'company:MU', imem_now())"
    )
    forum.world.owner(
        "INSERT INTO workflow.agent_instance (agent_id, analysis_id, agent_type, owner, opened_at)"
        " VALUES ('bull-1', 'a-1', 'valuation', 'bull', imem_now())"
    )
    for _ in range(MOST_DEFERRALS + 1):
        assert await snapshots(forum).take_due(deadline=ENOUGH) == 0
        assert await snapshots(forum).take_due(deadline=ENOUGH) == 0, "it is put off"
        forum.world.owner(
            "UPDATE lifecycle SET data = jsonb_set(data, '{snapshot,deferred_until}', to_jsonb(imem_now()))"
        )
    await forum.advance()

    now = await forum.now(debate)
    assert (now.state, now.snapshot_id) == (DebateState.LEVEL3, None)
    assert [one.state for one in await forum.tasks()] == [TaskState.OPEN]
    audited = await forum.world.rows("SELECT FROM memory_access_audit WHERE action = 'snapshot'")
    assert len(audited) == MOST_DEFERRALS + 1
    await forum.act(debate, Act.RESPOND, BEAR, text="I still hold it.")
