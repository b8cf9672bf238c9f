"""Detection, cache and publication in order: each under the run that it names, once, whoever is killed or late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import REGISTRY

from imem.alerts.store import Alerts
from imem.credibility.publication import FALLEN, STALENESS, publish_scores
from imem.credibility.regimes import runs as runs_module
from imem.credibility.regimes.detect import Indicators
from imem.credibility.regimes.metrics import STALENESS_S
from imem.credibility.regimes.providers import IndicatorProvider, IndicatorRow
from imem.credibility.regimes.readings import MarketRegime, market_regime
from imem.credibility.regimes.runs import LATE, advance
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, rows
from imem.kg.asof import AsOf, AsOfClock
from imem.kg.kinds.enums import Regime

from ..conftest import HALFLIFE, IMPORTER, World, corrected, finding, outcome  # noqa: TID252 - a folder of its own beside it

DAY = datetime(2024, 1, 1, tzinfo=UTC)
BULL = Indicators(0.2, 5.0, 12.0)
STORM = Indicators(0.2, 5.0, 45.0)


class Provider:
    """Provides what it is told, now; counts how often it is asked."""

    name = "told"

    def __init__(self, *given: Indicators | Exception) -> None:
        self.given = list(given)
        self.asked = 0

    async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:  # noqa: ARG002 - the protocol's
        self.asked += 1
        given = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(given, Exception):
            raise given
        return [IndicatorRow(datetime.now(UTC) - timedelta(minutes=1), given)]


async def detected(world: World, provider: IndicatorProvider | None = None) -> dict[str, Any]:
    return await advance(world.pipelines, world.engine, provider, until=Deadline.after_ms(30_000))


async def published(world: World) -> dict[str, Any]:
    until = Deadline.after_ms(60_000)
    return (await publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=until)).report()


async def regime(world: World, at: datetime | None = None, *, limit: int = 1, clock: str = "known") -> MarketRegime:
    moment = AsOf(at or datetime.now(UTC) + timedelta(minutes=1), AsOfClock(clock))
    return await market_regime(world.database, moment, limit=limit, deadline=Deadline.never())


def told(key: str, observed_at: datetime, regime: str, known_at: datetime | None = None, **core: Any) -> dict[str, Any]:
    """Return a reading as a person imports it."""
    values = {"id": key, "market": "US", "observed_at": observed_at.isoformat(), "regime": regime, "stale": False}
    return {
        "record": "RegimeReading",
        "known_at": (known_at or observed_at).isoformat(),
        "core": {**values, "source": "eve", **core},
    }


async def outcomes(
    world: World,
    right: Sequence[bool],
    *,
    agent: str = "ann",
    first: datetime = DAY,
    step: timedelta = timedelta(days=1),
) -> None:
    """Settle a claim of an agent each *step*."""
    lines = []
    for number, good in enumerate(right):
        target = first + number * step
        name = f"{agent}-{target:%Y%m%d%H%M%S}"
        subject = {"subject_id": f"market:{name}"}
        lines += [
            finding(name, target - timedelta(minutes=5), target, agent=agent, probability=0.9, **subject),
            outcome(f"o-{name}", target + timedelta(minutes=1), target, float(good), **subject),
        ]
    await world.say(*lines)
    await world.settle()


async def runs(world: World) -> list[dict[str, Any]]:
    return await world.rows("SELECT * FROM regime_run ORDER BY seq")


async def scores(world: World) -> list[dict[str, Any]]:
    return await world.rows(
        "SELECT record_key, payload #>> '{groups,score,sample_size}' AS n FROM event"
        " WHERE kind = 'record.AgentCredibility' ORDER BY position"
    )


async def alerts(world: World) -> list[tuple[str, str]]:
    board = await Alerts(world.pipelines).cards(deadline=Deadline.never())
    return sorted((one.kind, one.severity.value) for card in board.cards for one in card.alerts)


def to_yesterday(world: World) -> None:
    """Let a day pass: what was done today was done yesterday."""
    world.owner(
        "UPDATE regime_run SET day = day - 1, opened_at = opened_at - interval '1 day',"
        " detected_at = detected_at - interval '1 day', cached_at = cached_at - interval '1 day'"
    )
    world.owner(
        "UPDATE regime_cache SET cached_at = cached_at - interval '1 day', expires_at = expires_at - interval '1 day'"
    )


async def test_a_day_is_detected_once(world: World) -> None:
    """However often and by how many workers it is asked for; the reading says when, by what, and by which run."""
    provider = Provider(BULL, STORM)
    done = await asyncio.gather(*(detected(world, provider) for _ in range(4)))
    assert provider.asked == 1
    assert sum("regime" in one for one in done) == 1
    assert await detected(world, provider) == {}
    found = await regime(world, limit=5)
    (run,) = await runs(world)
    assert [one.reading.run_id for one in found.readings] == [str(run["run_id"])]
    reading = found.readings[0].reading
    assert (found.regime, found.stale) == (Regime.BULL_HIGH_RATES, False)
    assert (reading.source, reading.sp500_return_12m, reading.fed_funds, reading.vix) == ("told", 0.2, 5.0, 12.0)
    assert run["reading_id"] == reading.id
    assert run["detected_at"] <= run["cached_at"]
    assert await world.rows("SELECT FROM due_row WHERE queue = 'regimes'") == []


@pytest.mark.spec("RS-5", "CR-17")
async def test_scores_wait_for_the_run_of_the_day(world: World) -> None:
    """Yesterday's regime publishes nothing today, nor a cache that another run filled; a minute later it is told."""
    await outcomes(world, [True] * 3)
    await detected(world, Provider(BULL))
    first = (await runs(world))[0]["run_id"]
    assert await published(world) == {
        "run": str(first), "waiting": False, "scores": 1, "fallen": 0, "stuck": 0, "more": False,
    }  # fmt: skip
    to_yesterday(world)
    await outcomes(world, [True], first=DAY + timedelta(days=10))

    waiting = await published(world)
    assert (waiting["waiting"], waiting["scores"]) == (True, 0)
    second = (await runs(world))[1]["run_id"]
    assert waiting["run"] == str(second) != str(first)
    assert await alerts(world) == []
    world.owner("UPDATE regime_run SET opened_at = opened_at - interval '61 seconds' WHERE run_id = %s", second)
    await published(world)
    await published(world)
    assert await alerts(world) == [(LATE, "HIGH")]

    # Detected, but the cache holds the regime of another run.
    await detected(world, Provider(STORM))
    assert await alerts(world) == []
    world.owner("UPDATE regime_cache SET run_id = %s", first)
    assert (await published(world))["waiting"]
    assert len(await scores(world)) == 1

    await detected(world, Provider(STORM))
    assert (await published(world))["scores"] == 1
    assert [(row["record_key"], row["n"]) for row in await scores(world)] == [("ann/flu", "3"), ("ann/flu", "4")]


async def test_an_expired_cache_publishes_nothing(world: World) -> None:
    await outcomes(world, [True])
    await detected(world, Provider(BULL))
    world.owner("UPDATE regime_cache SET expires_at = now() - interval '1 second'")
    world.owner("UPDATE regime_run SET opened_at = opened_at - interval '90 seconds'")
    STALENESS_S.set(0.0)
    assert (await published(world))["waiting"]
    assert (REGISTRY.get_sample_value("regime_staleness_p99_gauge") or 0.0) >= 90.0, "it grows while a run waits"
    await detected(world, Provider(BULL))
    assert (await published(world))["scores"] == 1


@pytest.mark.spec("CR-8")
async def test_without_indicators_the_regime_stays_and_says_so(world: World) -> None:
    """An hour later they are asked for again; that finds nothing new until they are there."""
    await detected(world, Provider(STORM))
    to_yesterday(world)
    away = Provider(StoreUnavailable("The endpoint is away."))
    done = await detected(world, away)
    assert (done["regime"], done["stale"], done["reason"]) == ("HIGH_VOLATILITY", True, "The endpoint is away.")
    assert (await regime(world)).stale
    assert await detected(world, away) == {}

    hour = "UPDATE regime_run SET detected_at = detected_at - interval '61 minutes'"
    world.owner(hour)
    assert (await detected(world, away))["cause"] == "stale"
    assert len((await regime(world, limit=9)).readings) == 2, "nothing new is read"
    world.owner(hour)
    assert (await detected(world, Provider(BULL)))["regime"] == "BULL_HIGH_RATES"
    found = await regime(world)
    assert (found.regime, found.stale) == (Regime.BULL_HIGH_RATES, False)
    world.owner(hour)
    assert await detected(world, Provider(STORM)) == {}


async def test_a_reading_recorded_while_indicators_are_read_is_told(world: World) -> None:
    """Another worker's round in between takes it for nothing: the run after the slow one is its own."""
    hung, released = asyncio.Event(), asyncio.Event()

    class Slow(Provider):
        async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:
            found = await super().rows(deadline=deadline)
            hung.set()
            await released.wait()
            return found

    first = asyncio.create_task(detected(world, Slow(BULL)))
    await hung.wait()
    await world.say(told("person", datetime.now(UTC), "HIGH_VOLATILITY"))
    assert await detected(world, Provider(BULL)) == {}
    released.set()
    assert (await first)["regime"] == "BULL_HIGH_RATES"

    done = await detected(world, Provider(BULL))
    assert (done["cause"], done["regime"]) == ("reading", "HIGH_VOLATILITY")
    assert await detected(world, Provider(BULL)) == {}
    assert (await regime(world)).regime is Regime.HIGH_VOLATILITY


async def test_without_a_provider_the_reading_of_a_person_is_the_regime(world: World) -> None:
    """None known is NORMAL, stale. What somebody records, corrects or takes back makes another run of the day."""
    done = await detected(world)
    assert (done["regime"], done["stale"]) == ("NORMAL", True)
    assert (await regime(world)).readings == ()
    line = told("r1", datetime.now(UTC) - timedelta(hours=1), "BEAR_LOW_RATES")
    await world.say(line)
    done = await detected(world)
    assert (done["cause"], done["regime"], done["stale"]) == ("reading", "BEAR_LOW_RATES", False)
    assert await detected(world) == {}
    await world.say(corrected(line, datetime.now(UTC), withdrawn=True))
    done = await detected(world)
    assert (done["cause"], done["regime"], done["stale"]) == ("reading", "NORMAL", True)
    assert [row["cause"] for row in await runs(world)] == ["daily", "reading", "reading"]


async def test_contradicting_readings_are_resolved_by_rule(world: World) -> None:
    """The latest observed counts; of two at one moment the later known; what is known later or withdrawn does not."""
    day = [DAY + timedelta(days=number) for number in range(10)]
    await world.say(
        told("b", day[2], "BEAR_LOW_RATES", day[3]),
        told("a", day[2], "BULL_LOW_RATES", day[4]),
        told("late", day[1], "NORMAL", day[5]),
        told("elsewhere", day[5], "NORMAL", market="DE"),
        told("ahead", day[8], "HIGH_VOLATILITY", day[6]),
    )
    await world.say(corrected(told("a", day[2], "BULL_LOW_RATES"), day[7], withdrawn=True))

    async def at(number: int, clock: str = "known") -> Regime:
        return (await regime(world, day[number], clock=clock)).regime

    assert [await at(number) for number in range(10)] == [
        *[Regime.NORMAL] * 3, Regime.BEAR_LOW_RATES, *[Regime.BULL_LOW_RATES] * 3, Regime.BEAR_LOW_RATES,
        *[Regime.HIGH_VOLATILITY] * 2,
    ]  # fmt: skip
    assert (await regime(world, day[2])).readings == ()
    assert await at(9, "recorded") is Regime.NORMAL, "none of it was recorded then"
    assert [one.reading.id for one in (await regime(world, day[9], limit=9)).readings] == ["ahead", "b", "late"]


async def test_a_slow_detection_writes_nothing_over_a_later_claim(world: World) -> None:
    """A claim lapses after a minute, and at once when the clock was set back; the first one's result is dropped."""
    hung, released = asyncio.Event(), asyncio.Event()

    class Slow(Provider):
        async def rows(self, *, deadline: Deadline) -> list[IndicatorRow]:
            hung.set()
            await released.wait()
            return await super().rows(deadline=deadline)

    first = asyncio.create_task(detected(world, Slow(STORM)))
    await hung.wait()
    assert "regime" not in await detected(world, Provider(BULL))
    world.owner("UPDATE regime_run SET claimed_at = now() + interval '1 hour'")
    assert (await detected(world, Provider(BULL)))["regime"] == "BULL_HIGH_RATES"
    released.set()
    assert "regime" not in await first
    assert (await regime(world)).regime is Regime.BULL_HIGH_RATES


async def test_the_newest_run_counts_whatever_the_clock_says(world: World) -> None:
    """Set back by two days, it goes on with the run that is newest, and opens those of the days that it gets to."""
    await detected(world, Provider(STORM))
    world.owner("UPDATE regime_run SET day = day + 2, opened_at = opened_at + interval '2 days'")
    await outcomes(world, [True])
    assert (await published(world))["waiting"]
    assert (await detected(world, Provider(BULL)))["regime"] == "BULL_HIGH_RATES"
    assert (await published(world))["scores"] == 1
    assert len(await runs(world)) == 2


@pytest.mark.spec("CR-17")
async def test_an_outcome_is_published_without_waiting_for_a_day(world: World) -> None:
    """So is one that is corrected; a score that nothing changed is published by the run of a day alone."""
    await detected(world, Provider(BULL))
    await outcomes(world, [True, False])
    await outcomes(world, [True], agent="bob")
    assert (await published(world))["scores"] == 2
    assert await published(world) == {}
    await outcomes(world, [True], first=DAY + timedelta(days=20))
    assert (await published(world))["scores"] == 1
    to_yesterday(world)
    await detected(world, Provider(BULL))
    assert (await published(world))["scores"] == 2
    run = (await runs(world))[-1]
    assert (run["records"], run["published"], run["published_at"] is not None) == (2, 2, True)
    (row,) = await world.rows(
        "SELECT payload #> '{groups,score}' AS score FROM event WHERE record_key = 'ann/flu'"
        " ORDER BY position DESC LIMIT 1"
    )
    score = row["score"]
    assert (score["sample_size"], score["recent_accuracy"], score["decay_halflife_years"]) == (3, 2 / 3, 2.0)
    assert score["time_weighted_score"] == pytest.approx(2 / 3, abs=0.01)
    assert score["posterior_lower"] < score["posterior_mean"] < score["posterior_upper"]


async def test_a_first_score_is_published_whenever_it_is_settled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between the two looks that caching a regime takes: at what is due, and at what is scored."""

    async def settled_after(conn: Connection, name: str, given: Mapping[str, Any] | None = None) -> list[Row]:
        found = await rows(conn, name, given or {})
        if name == "scored_pairs":
            await outcomes(world, [True])
        return found

    async def settled_between(conn: Connection, name: str, given: Mapping[str, Any] | None = None) -> int:
        done = await execute(conn, name, given or {})
        if name == "clear_due_scores":
            await outcomes(world, [True], agent="bob")
        return done

    monkeypatch.setattr(runs_module, "rows", settled_after)
    monkeypatch.setattr(runs_module, "execute", settled_between)
    await detected(world, Provider(BULL))
    monkeypatch.undo()

    await published(world)
    assert {row["record_key"] for row in await scores(world)} == {"ann/flu", "bob/flu"}


async def test_two_workers_publish_each_score_once(world: World) -> None:
    for number in range(6):
        await outcomes(world, [True], agent=f"a{number}")
    await detected(world, Provider(BULL))
    before = len(await scores(world))
    until = Deadline.after_ms(60_000)
    done = await asyncio.gather(
        *(
            publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=until, batch=2)
            for _ in range(2)
        )
    )
    assert sum(one.scores for one in done) >= 6
    assert {row["record_key"] for row in await scores(world)} == {f"a{number}/flu" for number in range(6)}
    assert before == 0
    run = (await runs(world))[-1]
    assert (run["records"], run["published"]) == (6, 6)
    assert await world.rows("SELECT FROM due_row WHERE queue = 'scores'") == []


async def test_a_fall_raises_one_alert_until_it_is_over(world: World) -> None:
    """By what could be known a week ago and now; a history that is loaded today is no fall, nor a bad beginning."""
    now = datetime.now(UTC)
    await detected(world, Provider(BULL))
    await outcomes(world, [False] * 9, agent="new", first=now - timedelta(days=3), step=timedelta(minutes=10))
    await outcomes(world, [False] * 5 + [True] * 20, first=now - timedelta(days=100))
    await outcomes(world, [True] * 20, agent="bob", first=now - timedelta(days=100))
    await published(world)
    assert await alerts(world) == []
    step = timedelta(minutes=10)
    await outcomes(world, [False] * 30, first=now - timedelta(days=3), step=step)
    assert (await published(world))["fallen"] == 1
    assert (await published(world)) == {}
    assert await alerts(world) == [(FALLEN, "HIGH")]
    await outcomes(world, [True] * 60, first=now - timedelta(days=2), step=step)
    await published(world)
    assert await alerts(world) == []


async def test_a_fall_on_little_evidence_raises_an_alert_each_time(world: World) -> None:
    """Below fifteen observations it is medium, and stands until the fall is over, the second time too."""
    now, step = datetime.now(UTC), timedelta(minutes=10)
    await detected(world, Provider(BULL))
    for day, right, standing in ((40, [True] * 6, 0), (3, [False] * 3, 1), (2, [True] * 4, 0), (1, [False], 1)):
        await outcomes(world, right, first=now - timedelta(days=day), step=step)
        await published(world)
        assert await alerts(world) == [(FALLEN, "MEDIUM")] * standing, day
    (raised,) = await world.rows("SELECT count(*)::integer AS n FROM workflow.alert WHERE kind = %s", FALLEN)
    assert raised["n"] == 2


@pytest.mark.spec("AC-3")
async def test_no_agent_silences_the_alert_about_its_fall(world: World) -> None:
    """With the application's password: none of that kind is forged or opened again, and no other kind stands for it."""
    now = datetime.now(UTC)
    await outcomes(world, [True] * 20, first=now - timedelta(days=40))
    await detected(world, Provider(BULL))
    await published(world)
    about = id_of("credibility fall", "ann", "flu")
    insert = (
        "INSERT INTO workflow.alert (alert_id, kind, severity, about, payload, requires_ack, raised_at, counts_from)"
        " VALUES (gen_random_uuid(), %s, 'NORMAL', %s, '{}', false, now(), now())"
    )
    with psycopg.connect(world.url, autocommit=True) as conn:
        conn.execute(insert, ("OTHER", about))
        for statement, given in (
            (insert, (FALLEN, about)),
            ("SELECT workflow.raise_alert_v1(gen_random_uuid(), %s, 'NORMAL', NULL, NULL, %s, '{}')", (FALLEN, about)),
            ("UPDATE workflow.alert SET kind = %s WHERE about = %s", (FALLEN, about)),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"pipeline raises {FALLEN}"):
                conn.execute(statement, given)
    await outcomes(world, [False] * 30, first=now - timedelta(days=5), step=timedelta(hours=3))

    assert (await published(world))["fallen"] == 1
    assert (FALLEN, "HIGH") in await alerts(world)
    closing = "UPDATE workflow.alert SET closed_at = now(), next_due_at = NULL WHERE about = %s"
    with psycopg.connect(world.url, autocommit=True) as conn:
        for statement in (closing, "SELECT workflow.close_alerts_v1(%s)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"pipeline closes {FALLEN}"):
                conn.execute(statement, (about,))
    (row,) = await world.rows("SELECT alert_id FROM workflow.alert WHERE kind = %s", FALLEN)
    await Alerts(world.curators).acknowledge(row["alert_id"], IMPORTER, deadline=Deadline.never())
    with psycopg.connect(world.url, autocommit=True) as conn:
        for change in ("closed_at = NULL", "about = gen_random_uuid()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"pipeline raises {FALLEN}"):
                conn.execute(f"UPDATE workflow.alert SET {change} WHERE kind = %s", (FALLEN,))
    await outcomes(world, [False], first=now - timedelta(hours=3))
    assert (await published(world))["fallen"] == 1


async def test_scores_that_stay_stale_raise_an_alert(world: World) -> None:
    await outcomes(world, [True])
    await outcomes(world, [True], agent="bob")
    await detected(world, Provider(BULL))
    world.owner("UPDATE regime_run SET opened_at = opened_at - interval '301 seconds'")
    until = Deadline.after_ms(60_000)
    world.owner("UPDATE due_row SET set_aside = 'by a test' WHERE queue = 'scores' AND key = 'bob/flu'")
    await publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=until)
    assert await alerts(world) == [(STALENESS, "MEDIUM")]
    world.owner("UPDATE due_row SET set_aside = NULL WHERE queue = 'scores'")
    await publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=until)
    assert await alerts(world) == []
