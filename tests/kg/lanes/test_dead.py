"""Events that the graph refuses for good: counted each by itself, told, listed, and tried again when a person asks."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from imem.alerts.store import Alerts
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, LeaseLost, PermissionDenied, StatementRejected, TransitionRefused
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.projection.applier import MOST_REJECTIONS, Applier
from imem.kg.projection.lanes import Lane
from imem.sync.dead_letters import RETRIES_EXHAUSTED, DeadLetter, DeadLetterAlerts, dead_letters, replay, replay_all
from imem.sync.status import DeliveryStatus, status
from tests import forking
from tests.kg.lanes.conftest import agent, finding, lame
from tests.kg.projection.world import NEVER, Journal, importer

PERSON = Actor("ann", Role.HUMAN_ADMIN)

DELAYS_S = (0.1, 0.2, 0.4, 0.8)


async def lead(paper: Journal, **options: Any) -> Applier:
    applier = lame(paper.database, **options)
    assert await applier.lease.take()
    return applier


async def refuse(applier: Applier, lane: Lane, times: int = MOST_REJECTIONS, *, paper: Journal) -> None:
    """Have the graph refuse the first event that is due in *lane*, so many times."""
    for _ in range(times):
        paper.owner("UPDATE delivery SET next_attempt_at = NULL WHERE next_attempt_at IS NOT NULL")
        applier._lane_slots.clear()
        await applier._claim(lane)
        event = lane.begin()[0]
        await applier._refuse(lane, event, StatementRejected("Neo4j refused a statement (Neo.ClientError.X)."))


async def die(paper: Journal, applier: Applier) -> None:
    """Let everything that is due die."""
    while (await paper.counts())["pending"]:
        for lane in applier._in_use:
            applier._lane_slots.clear()
            await applier._claim(lane)
            if lane.waiting:
                await refuse(applier, lane, paper=paper)
    applier._lane_slots.clear()


async def open_alerts(paper: Journal) -> list[tuple[str, str, str]]:
    board = await Alerts(paper.database).cards(deadline=NEVER)
    return sorted(
        (alert.kind, alert.severity.value, alert.payload["actor"]) for card in board.cards for alert in card.alerts
    )


@pytest.mark.spec("SY-8")
async def test_refusals_are_counted_for_each_event_and_spaced(paper: Journal) -> None:
    """After 100, 200, 400 and 800 ms; the fifth is the last. The next event of the same actor begins at none."""
    await paper.say(finding("bad"), finding("good"), actor=agent("bull"))
    applier = await lead(paper)

    clock = "SELECT clock_timestamp() AS now"
    assert len(DELAYS_S) == MOST_REJECTIONS - 1
    for want in DELAYS_S:
        [before] = await paper.rows(clock)
        await refuse(applier, applier._lane_slots.bulk, 1, paper=paper)
        [after] = await paper.rows(clock)
        (row,) = await paper.rows("SELECT next_attempt_at AS at, state FROM delivery WHERE attempts > 0")
        assert row["state"] == "pending"
        assert before["now"] <= row["at"] - timedelta(seconds=want) <= after["now"]
    await refuse(applier, applier._lane_slots.bulk, 1, paper=paper)

    rows = await paper.rows("SELECT state, attempts, next_attempt_at FROM delivery ORDER BY position")
    assert [(row["state"], row["attempts"], row["next_attempt_at"]) for row in rows] == [
        ("dead", MOST_REJECTIONS, None), ("pending", 0, None),
    ]  # fmt: skip
    applier._lane_slots.clear()
    await applier._claim(applier._lane_slots.bulk)
    assert [event.key for event in applier._lane_slots.bulk.waiting] == ["good"]


async def test_a_lane_looks_again_when_the_next_attempt_is_due(paper: Journal) -> None:
    await paper.say(finding("bad"), actor=agent("bull"))
    applier = await lead(paper)
    lane = applier._lane_slots.bulk
    await refuse(applier, lane, 1, paper=paper)
    lane.wake.clear()

    await lane.wake.wait()

    await applier._claim(lane)
    assert [event.key for event in lane.waiting] == ["bad"]


async def test_a_superseded_applier_condemns_nothing(paper: Journal) -> None:
    await paper.say(finding("bad"), actor=agent("bull"))
    applier = await lead(paper, on_dead=DeadLetterAlerts())
    await refuse(applier, applier._lane_slots.bulk, MOST_REJECTIONS - 1, paper=paper)
    await lame(paper.database).lease.seize()

    with pytest.raises(LeaseLost):
        await refuse(applier, applier._lane_slots.bulk, 1, paper=paper)

    assert (await paper.counts())["dead"] == 0
    assert await open_alerts(paper) == []


@pytest.mark.parametrize(("tier", "severity"), [(Tier.NORMAL, "MEDIUM"), (Tier.HIGH, "HIGH"), (Tier.CRITICAL, "HIGH")])
async def test_death_raises_an_alert_and_leaves_a_gap(paper: Journal, tier: Tier, severity: str) -> None:
    """A warning, or more where agents were waiting: one for each actor, however many of its events die."""
    await paper.say(finding("bad-1"), finding("bad-2"), actor=agent("bull"), tier=tier)
    applier = await lead(paper, on_dead=DeadLetterAlerts())
    before = dropped(tier)
    await die(paper, applier)
    assert dropped(tier) == before + 2

    assert await open_alerts(paper) == [(RETRIES_EXHAUSTED, severity, "bull")]
    found = await dead_letters(paper.database, deadline=NEVER)
    assert found.total == 2
    assert [(one.key, one.actor, one.agent_seq, one.tier, one.attempts) for one in found.letters] == [
        ("bad-1", "bull", 1, tier, MOST_REJECTIONS),
        ("bad-2", "bull", 2, tier, MOST_REJECTIONS),
    ]
    assert all("Neo4j refused" in (one.reason or "") and one.since is not None for one in found.letters)
    gaps = await paper.rows(
        "SELECT position, actor, reason, closed_at, replayed_by FROM delivery_gap ORDER BY position"
    )
    assert [(gap["position"], gap["actor"], gap["closed_at"]) for gap in gaps] == [
        (one.position, "bull", None) for one in found.letters
    ]


def dropped(tier: Tier) -> float:
    """Return how many events of *tier* are dead, as it is scraped."""
    labels = {"queue": "delivery", "tier": tier.name.lower()}
    return REGISTRY.get_sample_value("sync_dropped_total_counter", labels) or 0.0


async def test_a_death_whose_alert_cannot_be_raised_is_none(paper: Journal) -> None:
    """Both are in one transaction."""
    await paper.say(finding("bad"), actor=agent("bull"))

    async def fails(*_: Any) -> None:
        raise BadInput("x", "is wrong.")

    applier = await lead(paper, on_dead=fails)
    with pytest.raises(BadInput):
        await refuse(applier, applier._lane_slots.bulk, paper=paper)

    rows = await paper.rows("SELECT state, attempts FROM delivery")
    assert rows == [{"state": "pending", "attempts": MOST_REJECTIONS - 1}]


async def mark(paper: Journal) -> None:
    """Apply everything, as far as Postgres can tell."""
    applier = lame(paper.database)
    await applier.lease.seize()
    for lane in applier._in_use:
        await applier._claim(lane)
        events = lane.begin()
        if events:
            await applier._mark(lane, events, "bookmark")


async def test_a_replayed_event_begins_anew_and_its_gap_is_closed(paper: Journal) -> None:
    """By position or by id; audited; the gap says who asked and when it was closed."""
    await paper.say(finding("bad-1"), finding("bad-2"), actor=agent("bull"))
    applier = await lead(paper)
    await die(paper, applier)
    first, second = (await dead_letters(paper.database, deadline=NEVER)).letters
    rung: list[list[Tier]] = []

    async def publish_wakeup(tiers: Any) -> None:
        rung.append(list(tiers))

    done = await replay(
        Gateway(paper.database, PERSON, publish_wakeup), [first.event_id, second.position], deadline=NEVER
    )

    assert done == [first.position, second.position]
    assert rung == [[Tier.NORMAL]]
    assert await paper.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "pending", "attempts": 0}]
    audited = await paper.rows("SELECT actor_id, action, authorized FROM memory_access_audit WHERE action = 'replay'")
    assert audited == [{"actor_id": "ann", "action": "replay", "authorized": True}] * 2
    await mark(paper)
    gaps = await paper.rows("SELECT replayed_by, replayed_at, closed_at, opened_at FROM delivery_gap")
    assert len(gaps) == 2
    assert all(gap["replayed_by"] == "ann" and gap["closed_at"] > gap["replayed_at"] for gap in gaps)
    assert (await dead_letters(paper.database, deadline=NEVER)).total == 0


async def test_what_dies_again_is_a_second_gap(paper: Journal) -> None:
    await paper.say(finding("bad"), actor=agent("bull"))
    applier = await lead(paper)
    await die(paper, applier)
    (letter,) = (await dead_letters(paper.database, deadline=NEVER)).letters
    assert (letter.replayed_by, letter.replayed_at) == (None, None)
    assert await replay_all(Gateway(paper.database, PERSON), deadline=NEVER) == [letter.position]
    await die(paper, applier)

    (again,) = (await dead_letters(paper.database, deadline=NEVER)).letters
    assert again.replayed_by == "ann"
    assert again.since is not None
    assert letter.since is not None
    assert again.since > letter.since
    assert len(await paper.rows("SELECT FROM delivery_gap")) == 2
    json.dumps(again.to_dict())


async def test_a_replay_of_what_was_applied_is_refused_and_harmless(paper: Journal) -> None:
    """The dead one beside it is left alone as well; what is on its way, unknown or too much likewise."""
    receipts = await paper.say(finding("good"), actor=agent("bear"))
    await mark(paper)
    await paper.say(finding("bad"), actor=agent("bull"))
    applier = await lead_after(paper)
    await die(paper, applier)
    (letter,) = (await dead_letters(paper.database, deadline=NEVER)).letters
    await paper.say(finding("waits"), actor=agent("owl"))
    before = await paper.rows("SELECT * FROM delivery ORDER BY position")
    gateway = Gateway(paper.database, PERSON)
    applied = receipts[0].position
    assert applied is not None

    with pytest.raises(TransitionRefused, match=f"Event {applied} was applied: only dead ones are replayed"):
        await replay(gateway, [letter.position, applied], deadline=NEVER)
    with pytest.raises(TransitionRefused, match="is on its way"):
        await replay(gateway, [letter.position + 1], deadline=NEVER)
    with pytest.raises(BadInput, match="event: there is no event 4711"):
        await replay(gateway, [letter.position, 4711], deadline=NEVER)
    with pytest.raises(BadInput, match="there is no event"):
        await replay(gateway, [uuid4()], deadline=NEVER)
    with pytest.raises(BadInput, match="0 events were named"):
        await replay(gateway, [], deadline=NEVER)

    assert await paper.rows("SELECT * FROM delivery ORDER BY position") == before
    assert await paper.rows("SELECT FROM memory_access_audit WHERE action = 'replay'") == []


async def lead_after(paper: Journal) -> Applier:
    applier = lame(paper.database)
    await applier.lease.seize()
    return applier


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.HUMAN_ADMIN])
async def test_only_people_replay(paper: Journal, role: Role) -> None:
    """A denial row is written, and nothing else."""
    await paper.say(finding("bad"), actor=agent("bull"))
    await die(paper, await lead(paper))
    gateway = Gateway(paper.database, Actor("somebody", role, may_import=True))

    with pytest.raises(PermissionDenied):
        await replay_all(gateway, deadline=NEVER)

    assert (await paper.counts())["dead"] == 1
    rows = await paper.rows("SELECT actor_id, authorized FROM memory_access_audit WHERE action = 'replay'")
    assert rows == [{"actor_id": "somebody", "authorized": False}]


async def test_gaps_are_written_by_the_database_alone(paper: Journal) -> None:
    """The application's role reads them, and changes none."""
    with pytest.raises(StatementRejected):
        await paper.database.rows("DELETE FROM delivery_gap", deadline=NEVER)
    with pytest.raises(StatementRejected):
        await paper.database.rows("UPDATE delivery_gap SET closed_at = now()", deadline=NEVER)


# How it stands


@pytest.mark.parametrize(
    ("leads", "lag_s", "applied_s", "stuck"),
    [
        (True, 0.0, None, False),
        (False, 4.9, None, False),
        (True, 60.0, 1.0, False),
        (True, 60.0, 60.0, True),
        (True, 60.0, None, True),
        (False, 60.0, 1.0, True),
    ],
)
def test_stuck(leads: bool, lag_s: float, applied_s: float | None, stuck: bool) -> None:  # noqa: FBT001
    assert DeliveryStatus(leads, lag_s, applied_s, 7, ()).stuck is stuck


@pytest.mark.parametrize(
    ("leads", "lag_s", "applied_s", "stuck"),
    [
        (True, 299.0, 600.0, False),
        (True, 299.0, None, False),
        (True, 306.0, 600.0, True),
        (True, 306.0, 1.0, False),
        (False, 299.0, 1.0, True),
    ],
)
def test_what_waits_for_its_cycle_is_not_stuck(leads: bool, lag_s: float, applied_s: float, stuck: bool) -> None:  # noqa: FBT001
    assert DeliveryStatus(leads, lag_s, applied_s, 7, (), applier_interval_s=300.0).stuck is stuck


async def test_status_counts_by_tier_and_state(paper: Journal) -> None:
    await paper.say(finding("bad"), actor=agent("bull"))
    applier = await lead(paper)
    await die(paper, applier)
    await paper.say(finding("retried"), actor=agent("bull"))
    await refuse(applier, applier._lane_slots.bulk, 1, paper=paper)
    await paper.say(finding("a", by="bear"), actor=agent("bear"), tier=Tier.CRITICAL)
    receipts = await paper.say(finding("b", by="bear"), finding("c", by="bear"), actor=agent("bear"))

    found = await status(paper.database, deadline=NEVER)

    stands = {one.tier.name: (one.waiting, one.retrying, one.dead) for one in found.tiers}
    assert stands == {"SYSTEM_CRITICAL": (0, 0, 0), "CRITICAL": (1, 0, 0), "HIGH": (0, 0, 0), "NORMAL": (2, 1, 1)}
    assert (found.leads, found.applied_s, found.newest) == (True, None, receipts[-1].position)
    assert not found.stuck
    assert 0 < found.lag_s < 60
    empty = [one.oldest_s for one in found.tiers if one.tier is Tier.HIGH]
    assert empty == [None]


# The command line


def imem(paper: Journal, settings: Any, *words: str, actor: str = "ann", role: str = "human_admin") -> Any:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("IMEM_")}
    named = {
        "IMEM_HOME": str(settings.home), "IMEM_POSTGRES_URL": paper.url, "IMEM_ACTOR": actor, "IMEM_ROLE": role,
        "IMEM_VALKEY_DURABLE_URL": settings.valkey_durable_url.get_secret_value(),
        "IMEM_VALKEY_WORKING_URL": settings.valkey_working_url.get_secret_value(),
        "IMEM_VALKEY_CACHE_URL": settings.valkey_cache_url.get_secret_value(),
        "IMEM_NEO4J_URL": "bolt://127.0.0.1:1", "IMEM_NEO4J_PASSWORD": "x", "COLUMNS": "200",
    }  # fmt: skip
    return forking.run("imem", "sync", *words, env={**variables, **named})


async def test_the_commands(paper: Journal, light_stack: Any) -> None:
    """What a person sees, what a program sees, and what is refused in one sentence."""
    settings = light_stack.settings
    await paper.say(finding("bad"), actor=agent("bull"), tier=Tier.HIGH)
    await die(paper, await lead(paper))
    (letter,) = (await dead_letters(paper.database, deadline=NEVER)).letters

    ran = imem(paper, settings, "dead")
    assert ran.returncode == 0, ran.stderr
    assert f"{letter.position}  record.Finding bad  high, refused 5 times, since " in ran.stdout
    assert str(letter.event_id) in ran.stdout
    told = json.loads(imem(paper, settings, "dead", "--json").stdout)
    assert told["total"] == 1
    assert UUID(told["dead"][0]["event_id"]) == letter.event_id
    assert told["dead"][0] == letter.to_dict()
    assert DeadLetter.__slots__ == tuple(told["dead"][0])

    stands = json.loads(imem(paper, settings, "status", "--json").stdout)
    assert (stands["mode"], stands["stuck"], stands["priority"]) == ("degraded_read", False, True), "Neo4j is not there"
    assert stands["tiers"]["high"] == {"waiting": 0, "retrying": 0, "dead": 1, "oldest_s": None}

    denied = imem(paper, settings, "replay", "--all", role="agent")
    assert (denied.returncode, "may not replay journal" in denied.stderr) == (1, True)
    for words, sentence in (
        ([], "Name events, or say --all."),
        (["nonsense"], "nonsense is neither a position nor an event id"),
        (["4711"], "there is no event 4711"),
    ):
        ran = imem(paper, settings, "replay", *words)
        assert ran.returncode == 2, ran.stderr
        assert sentence in " ".join(ran.stderr.replace("│", " ").split())
    ran = imem(paper, settings, "replay", str(letter.event_id))
    assert ran.stdout == f"On their way again: {letter.position}. `imem sync dead` shows what dies once more.\n"
    ran = imem(paper, settings, "replay", str(letter.position))
    assert ran.returncode == 1
    assert "is on its way to the graph: only dead ones are replayed" in ran.stderr
    assert imem(paper, settings, "dead").stdout == "No event is dead.\n"
    assert "high" in imem(paper, settings, "status").stdout


async def test_status_says_that_nothing_becomes_visible(paper: Journal, light_stack: Any) -> None:
    """Exit code 3, in words and as JSON."""
    await paper.say(finding("waits"), actor=importer())
    paper.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    paper.owner("UPDATE event SET recorded_at = recorded_at - interval '10 minutes', known_at = '2026-01-01T00:00:00Z'")

    ran = imem(paper, light_stack.settings, "status")

    assert ran.returncode == 3, ran.stderr
    assert ran.stdout.startswith(
        "Mode: degraded_read. 1 events wait, the oldest for 10 min, and no process applies them.\n"
    )
    assert "No process applies events" in ran.stdout
