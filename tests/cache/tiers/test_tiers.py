"""Kept answers are those of L3, for whom they were made, and only while nothing has changed that they hang on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.cache.tiers.cached_result import Freshness
from imem.cache.tiers.tiered import ANY_TIME, FRESH_S, JITTER, STALE_S, Loaded, TieredCache, key_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, GraphUnavailable
from imem.journal.settings import Role
from tests.cache.tiers.conftest import MOMENT, Servers, Source, answered, soon, text_query, until

_SECOND = timedelta(seconds=1)


async def shared_holds(servers: Servers, key: bytes | None) -> bool:
    bare = await servers.bare(servers.cache)
    return bool(await bare.exists(key))


async def test_an_answer_is_loaded_once_and_then_kept_here_and_for_others(servers: Servers) -> None:
    one, other = await servers.process(), await servers.process()
    source, query = Source(), text_query("a")

    first = await answered(one, query, source.load, deadline=soon())
    await until(lambda: shared_holds(servers, query.key))
    again = await answered(one, query, source.load, deadline=soon())
    elsewhere = await answered(other, query, source.load, deadline=soon())
    filled = await answered(other, query, source.load, deadline=soon())

    assert [answer.tier for answer in (first, again, elsewhere, filled)] == ["L3", "C2", "C1", "C2"]
    assert {(answer.value, answer.moment, answer.age_s) for answer in (first, again, elsewhere, filled)} == {
        ("one", MOMENT, None)
    }
    assert source.asked == 1


@pytest.mark.spec("PF-3")
async def test_two_hundred_misses_of_two_processes_are_one_load(servers: Servers) -> None:
    processes = [await servers.process(), await servers.process()]
    source, query = Source(), text_query("crowd")
    source.go.clear()

    asking = [
        asyncio.create_task(answered(processes[nth % 2], query, source.load, deadline=soon(20_000)))
        for nth in range(200)
    ]
    await source.begun.wait()
    await asyncio.sleep(0)
    source.go.set()
    answers = await asyncio.gather(*asking)

    assert {answer.value for answer in answers} == {"one"}
    assert source.asked == 1


async def test_a_change_is_seen_at_once_in_every_process_and_by_those_alone_whom_it_concerns(servers: Servers) -> None:
    one, other = await servers.process(), await servers.process()
    concerned, unconcerned = Source(tags=frozenset({"subject:a"})), Source(tags=frozenset({"subject:b"}))
    for tiers in (one, other):
        await answered(tiers, text_query("a"), concerned.load, deadline=soon())
        await answered(tiers, text_query("b"), unconcerned.load, deadline=soon())
        await until(lambda: shared_holds(servers, text_query("b").key))
    concerned.text = unconcerned.text = "two"

    await servers.publisher.publish({"subject:a"})

    for tiers in (one, other):
        assert (await answered(tiers, text_query("a"), concerned.load, deadline=soon())).value == "two"
        assert (await answered(tiers, text_query("b"), unconcerned.load, deadline=soon())).value == "one"
    assert unconcerned.asked == 1


@pytest.mark.parametrize("keep", [True, False], ids=["whole", "partial"])
async def test_who_was_told_of_a_change_does_not_join_a_load_from_before_it(servers: Servers, *, keep: bool) -> None:
    """What is not whole is kept by nobody, and yet hangs on what changed."""
    tiers = await servers.process()
    source, query = Source(more={"keep": keep}), text_query("race")
    source.go.clear()
    early = asyncio.create_task(answered(tiers, query, source.load, deadline=soon()))
    await source.begun.wait()

    source.text = "two"
    await servers.publisher.publish({"subject:a"})
    late = asyncio.create_task(answered(tiers, query, source.load, deadline=soon()))
    await until(lambda: _joined(tiers, query.key))
    source.go.set()

    assert (await early).value == "one"
    assert (await late).value == "two"
    assert (await answered(tiers, query, source.load, deadline=soon())).value == "two"


async def test_a_failure_is_never_kept(servers: Servers) -> None:
    tiers = await servers.process()
    source, query = Source(fails=GraphUnavailable("away")), text_query("failing")

    for _ in range(2):
        with pytest.raises(GraphUnavailable):
            await answered(tiers, query, source.load, deadline=soon())
    source.fails = None

    assert (await answered(tiers, query, source.load, deadline=soon())).value == "one"
    assert source.asked == 3


async def test_what_is_loaded_is_of_no_earlier_than_what_had_changed_was_asked(servers: Servers) -> None:
    """Who joined a load from before a change asks again for himself, of after it, and so it is kept."""
    tiers = await servers.process()
    source, query = Source(), text_query("since")
    begun_s = time.monotonic()
    source.go.clear()
    early = asyncio.create_task(answered(tiers, query, source.load, deadline=soon()))
    await source.begun.wait()
    assert begun_s < source.since_s < time.monotonic()
    late = asyncio.create_task(answered(tiers, query, source.load, deadline=soon()))
    await until(lambda: _joined(tiers, query.key))
    source.text = "two"
    await servers.publisher.publish({"subject:a"})
    told_s = time.monotonic()
    source.go.set()
    await early

    assert (await late).value == "two"
    assert source.since_s > told_s


async def _joined(tiers: TieredCache, key: bytes | None, waiting: int = 2) -> bool:
    flight = tiers._flights._open.get(key or b"")
    return flight is not None and flight.waiting == waiting


async def test_what_is_partial_is_nobody_elses_answer(servers: Servers) -> None:
    tiers = await servers.process()
    source = Source(more={"keep": False})

    for _ in range(2):
        await answered(tiers, text_query("partial"), source.load, deadline=soon())

    assert source.asked == 2


async def test_an_old_copy_stands_in_with_its_age_where_loading_fails(servers: Servers) -> None:
    tiers = await servers.process()
    source, query = Source(), text_query("old")
    await answered(tiers, query, source.load, deadline=soon())
    servers.clock.at += (age := FRESH_S * (1 + JITTER) + 1) * _SECOND
    source.fails = BudgetExceeded("late")

    answer = await answered(tiers, query, source.load, deadline=soon())

    assert answer.value == "one"
    assert answer.age_s == pytest.approx(age)
    servers.clock.at += (STALE_S - age + 1) * _SECOND
    with pytest.raises(BudgetExceeded):
        await answered(tiers, query, source.load, deadline=soon())


async def test_answers_do_not_all_end_at_once(servers: Servers) -> None:
    tiers = await servers.process()
    draws = iter((0.0, 0.5, 1.0))
    tiers.random = lambda: next(draws)

    ends = []
    for nth in range(3):
        query = text_query(f"jitter{nth}")
        await answered(tiers, query, Source().load, deadline=soon())
        assert query.key is not None
        entry = tiers.local.get(query.key)
        assert entry is not None
        ends.append((entry.fresh_until - MOMENT).total_seconds())

    assert ends == pytest.approx([FRESH_S * 0.9, FRESH_S, FRESH_S * 1.1])


@pytest.mark.spec("PF-4")
@pytest.mark.parametrize("epoch", [None, 8])
async def test_what_shows_patterns_is_kept_for_one_epoch_alone(servers: Servers, epoch: int | None) -> None:
    """Of another epoch, or of none that anybody could read, it is neither the answer nor stands in for one."""
    tiers = await servers.process()
    source, query = Source(more={"epoch": 7}), text_query("patterns", shows_patterns=True)
    await answered(tiers, query, source.load, deadline=soon(), epoch=7)
    assert (await answered(tiers, query, source.load, deadline=soon(), epoch=7)).tier == "C2"

    source.fails = GraphUnavailable("away")

    with pytest.raises(GraphUnavailable):
        await answered(tiers, query, source.load, deadline=soon(), epoch=epoch)


@pytest.mark.spec("PF-4")
async def test_who_knows_of_a_later_epoch_does_not_join_an_earlier_load(servers: Servers) -> None:
    tiers = await servers.process()
    source, query = Source(more={"epoch": 7}), text_query("joined", shows_patterns=True)
    source.go.clear()
    early = asyncio.create_task(answered(tiers, query, source.load, deadline=soon(), epoch=7))
    await source.begun.wait()
    source.text, source.more = "without", {"epoch": 8}
    late = asyncio.create_task(answered(tiers, query, source.load, deadline=soon(), epoch=8))
    await asyncio.sleep(0.05)
    source.more = {"epoch": 7}
    source.go.set()
    await early
    source.more = {"epoch": 8}

    assert (await late).value == "without"


@pytest.mark.spec("PF-5")
@given(
    st.lists(st.sampled_from(list(Role)), min_size=2, max_size=2, unique=True), st.dictionaries(st.text(), st.text())
)
def test_no_two_roles_share_a_key(roles: list[Role], arguments: dict[str, str]) -> None:
    one, other = (key_of("history", "1", role.value, arguments) for role in roles)
    assert one != other
    assert one == key_of("history", "1", roles[0].value, dict(reversed(arguments.items())))


@pytest.mark.spec("PF-5")
async def test_an_answer_for_one_role_is_none_for_another(servers: Servers) -> None:
    one, other = await servers.process(), await servers.process()
    for scope in ("agent", "human_admin"):
        for tiers in (one, other):
            source = Source(text=f"for {scope}")
            answer = await answered(tiers, text_query("whose", scope=scope), source.load, deadline=soon())
            assert answer.value == f"for {scope}"


@pytest.mark.parametrize("garbage", [b"", b"1\n{}\nx", b"\xff\xfe", b'1\n{"z":true}\nnot packed', b"2\n{}\n"])
async def test_what_cannot_be_read_is_a_miss(servers: Servers, garbage: bytes) -> None:
    tiers, source, query = await servers.process(), Source(), text_query("garbage")
    bare = await servers.bare(servers.cache)
    await bare.set(query.key, garbage)

    assert (await answered(tiers, query, source.load, deadline=soon())).tier == "L3"


async def test_an_answer_that_cannot_be_decoded_is_a_miss(servers: Servers) -> None:
    """Nothing is wrong with the entry but what it holds; whoever loads finds it once more when it takes the lease."""
    one, other, source, query = await servers.process(), await servers.process(), Source(), text_query("undecodable")
    odd = replace(query, encode=lambda _: b"\xff")
    await answered(one, odd, source.load, deadline=soon())
    await until(lambda: shared_holds(servers, query.key))

    answers = [await answered(other, query, source.load, deadline=soon()) for _ in range(2)]

    assert [(answer.value, answer.tier) for answer in answers] == [("one", "L3"), ("one", "C2")]


async def test_large_answers_stay_in_the_process(servers: Servers) -> None:
    one, other = await servers.process(), await servers.process()
    # Random enough not to be packed below the bound.
    source, query = Source(text="".join(f"{nth * 7919 % 1_000_003:06d}" for nth in range(500_000))), text_query("large")

    for tiers, tier in ((one, "L3"), (one, "C2"), (other, "L3")):
        assert (await answered(tiers, query, source.load, deadline=soon())).tier == tier


async def test_a_process_that_died_loading_keeps_others_waiting_for_a_moment_at_most(servers: Servers) -> None:
    tiers, source, query = await servers.process(), Source(), text_query("died")
    assert query.key is not None
    assert tiers.shared is not None
    assert (await tiers.shared.begin(query.key, deadline=soon()))[0] is not None

    assert (await answered(tiers, query, source.load, deadline=soon(400))).value == "one"
    bare = await servers.bare(servers.cache)
    assert await bare.pttl(query.key + b":loading") <= 600


async def test_the_last_who_gives_up_ends_the_load(servers: Servers) -> None:
    tiers, source, query = await servers.process(), Source(), text_query("given up")
    source.go.clear()
    asking = [asyncio.create_task(answered(tiers, query, source.load, deadline=soon())) for _ in range(3)]
    await source.begun.wait()
    await until(lambda: _joined(tiers, query.key, 3))

    for task in asking[:2]:
        task.cancel()
    await asyncio.gather(*asking[:2], return_exceptions=True)
    assert not source.ended
    asking[2].cancel()
    await asyncio.gather(*asking, return_exceptions=True)

    async def ended() -> bool:
        return source.ended == 1 and not tiers._flights._open

    await until(ended)


async def test_a_stale_copy_is_renewed_behind_who_was_served_it(servers: Servers) -> None:
    tiers, source, query = await servers.process(), Source(), text_query("renewed")
    await answered(tiers, query, source.load, deadline=soon())
    servers.clock.at += FRESH_S * 1.2 * _SECOND
    source.text = "two"
    found = (await tiers.lookup([query], deadline=soon()))[query.key or b""]
    assert found.state is Freshness.STALE

    tiers.revalidate(query, found, source.load, budget_ms=5_000)

    async def renewed() -> bool:
        return (await tiers.lookup([query], deadline=soon()))[query.key or b""].state is Freshness.FRESH

    await until(renewed)
    assert (await answered(tiers, query, source.load, deadline=soon())).value == "two"


async def test_warming_loads_what_is_missing_three_at_a_time(servers: Servers) -> None:
    tiers = await servers.process()
    running = most = 0

    class Counted(Source):
        async def load(self, deadline: Deadline, since_s: float = ANY_TIME) -> Loaded[str]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return await super().load(deadline, since_s)

    works = [(text_query(f"warm{nth}"), Counted().load) for nth in range(9)]

    assert await tiers.warm(works, budget_ms=5_000) == 9
    assert await tiers.warm(works, budget_ms=5_000) == 0
    assert most == 3


async def test_what_was_loaded_last_is_there_for_others_though_the_process_ends(servers: Servers) -> None:
    one, other = await servers.process(), await servers.process()
    source, query = Source(), text_query("last")
    await answered(one, query, source.load, deadline=soon())
    await one.close()
    assert (await answered(other, query, source.load, deadline=soon())).tier == "C1"
