"""With the application's password a program states an agent's own facts and no more, whoever it says that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson
import psycopg
import pytest
from celery import Celery

from imem.cache.working.published import PublishedItem
from imem.checkpoints.pauses.pipelines import RUN_AGENT
from imem.credibility.settling import ACTOR
from imem.ingest.recorder import Recorder
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied, StatementRejected
from imem.journal.events.canonical import content_hash
from imem.journal.events.entry import GroupHash, JournalEntry
from imem.journal.gateway import Gateway, _columns
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.workers.celery import register_tasks
from imem.workers.celery_app import AGENTS_QUEUE, QUEUE

from .conftest import World, agent, cites, corrected, decision, finding, outcome
from .test_no_route import (
    ANN,
    APPROVED,
    BASE,
    BIAS,
    FIRST,
    LATER,
    OVERRIDE,
    PERSON,
    PIN,
    REGIME,
    day,
    season,
    standing,
    unstated,
)

IMPORTER = Actor("import:lies", Role.HUMAN_ADMIN, may_import=True)
END = {"ended_at": "2024-01-03T00:00:00Z", "end_reason": "Enough."}
CLAIM = unstated(finding("open", day(0), LATER, agent="ann", probability=0.9, **FIRST))


def entry(line: dict[str, Any]) -> JournalEntry:
    return entry_of(parse_line(orjson.dumps(line), needs_known_at=False))


def smuggled(line: dict[str, Any]) -> JournalEntry:
    """Return the entry of a claim that brings a correction of its core along."""
    made = entry(line)
    return replace(made, groups=(*made.groups, GroupHash("correction", content_hash({"probability": 0.99}))))


def disguised(line: dict[str, Any]) -> JournalEntry:
    """Return the entry of a claim that says it is a company, so that nobody asks whether it comes too late."""
    return replace(entry(line), kind="record.Company")


def saying(made: JournalEntry, **parts: Any) -> JournalEntry:
    """Return an entry whose payload has other parts than its heads say."""
    return replace(made, payload=orjson.dumps(orjson.loads(made.payload) | parts))


def reading(made: JournalEntry, **core: Any) -> JournalEntry:
    """Return an entry with other values in its core, of which no model would take some."""
    return saying(made, core=orjson.loads(made.payload)["core"] | core)


def as_company(kind: str, key: str, **parts: Any) -> Callable[[dict[str, Any]], JournalEntry]:
    """Return what makes an event of *kind* that says beside its head that it is a company."""
    payload = orjson.dumps({"key": key, **parts})
    return lambda line: replace(entry(line), kind=kind, head_kind="Company", key=key, payload=payload)


MISTAKE = finding("ann-1", day(2), day(7), probability=0.9, **FIRST)
LATE = finding("late", day(1), day(7), agent="ann", probability=0.99, **FIRST)
ROUTES: dict[str, tuple[Actor, Callable[[dict[str, Any]], JournalEntry], dict[str, Any]]] = {
    "an outcome as a person": (PERSON, entry, unstated(outcome("lie", day(0), day(7), 0.0, vintage=9, **FIRST))),
    "an outcome as an import": (IMPORTER, entry, outcome("lie", day(8), day(7), 0.0, vintage=9, **FIRST)),
    "an outcome as itself": (ANN, entry, unstated(outcome("lie", day(0), day(7), 0.0, vintage=9, **FIRST))),
    "the id of a true outcome": (ANN, entry, unstated(outcome("own:bob/o", day(0), day(7), 0.0, **FIRST))),
    "a claim in the past, as an import": (IMPORTER, entry, LATE),
    "a claim in the past, as itself": (ANN, entry, LATE),
    "a claim in disguise": (ANN, disguised, unstated(LATE)),
    "a correction": (PERSON, entry, unstated(corrected(MISTAKE, day(3)))),
    "a correction within a claim": (ANN, smuggled, CLAIM),
    "another a baseline": (PERSON, entry, unstated(agent("bob", day(0), "baseline"))),
    "words of the baseline, under its name": (
        BASE, entry, unstated(finding("bases", day(0), LATER, agent="base", probability=0.1, **FIRST)),
    ),
    "words of the baseline, under its own": (
        ANN, entry, unstated(finding("bases", day(0), LATER, agent="base", probability=0.1, **FIRST)),
    ),
    "the regime, as itself": (ANN, entry, {"record": "RegimeReading", "core": REGIME}),
    "an override, as itself": (ANN, entry, {"record": "HumanOverride", "core": OVERRIDE}),
    "its score, pinned, as itself": (ANN, entry, {"record": "CredibilityPin", "core": PIN}),
    "a pin's end, as itself": (ANN, entry, {"record": "CredibilityPin", "key": "p", "groups": {"end": END}}),
    "a bias, as itself": (ANN, entry, {"record": "BiasCorrection", "core": BIAS, "groups": APPROVED}),
    "its score, as a company": (
        ANN, as_company("record.AgentCredibility", "ann/flu", core={"agent_id": "ann"}), CLAIM,
    ),
    "its score, as a link": (
        ANN, as_company("link.HAS_CREDIBILITY_IN", "ann", from_key="ann", props={"overall_score": 1}), CLAIM,
    ),
    "a verdict within a decision": (
        ANN, lambda line: saying(entry(line), groups={"outcome": {"outcome": "success"}}),
        unstated(decision("d", day(0))),
    ),
    "an outcome, as a company": (
        ANN, lambda line: replace(entry(line), head_kind="Company"),
        unstated(outcome("o1", day(0), day(7), 0.0, **FIRST)),
    ),
    "a correction of another group": (
        ANN, lambda line: replace(entry(line), kind="correct.Finding", groups=(GroupHash("other", b"0" * 32),)),
        CLAIM,
    ),
    "words of nobody": (ANN, lambda line: replace(entry(line), payload=b'{"key":"open"}'), CLAIM),
}  # fmt: skip


async def append(database: Database, actor: Actor, one: JournalEntry) -> str:
    """Append past all rules that Python keeps: whoever has the password writes a program of his own."""
    (row,) = await database.named("append", _columns([one], actor, Action.APPEND), deadline=Deadline.never())
    return str(row["status"])


@pytest.mark.spec("AC-3")
async def test_the_applications_password_moves_no_record(world: World) -> None:
    """What could is refused whole, and says what it wants; the journal holds what it held."""
    await season(world)
    before, events = await standing(world), await world.rows("SELECT count(*) AS n FROM event")

    for name, (actor, make, line) in ROUTES.items():
        with pytest.raises(PermissionDenied, match=r"own facts alone.*nothing was written") as refused:
            pytest.fail(f"{name}: {await append(world.database, actor, make(line))}")
        assert "IMEM_POSTGRES_CURATOR_URL" in refused.value.mend

    assert await world.rows("SELECT count(*) AS n FROM event") == events
    assert await standing(world) == before


async def test_a_denial_by_the_database_is_audited(world: World) -> None:
    """As one by the table of rights is: a person whose process has the application's password alone."""
    truth = entry(unstated(outcome("told", day(0), day(7), 1.0, **FIRST)))
    with pytest.raises(PermissionDenied):
        await Gateway(world.database, PERSON).append([truth], deadline=Deadline.never())
    denied = await world.rows("SELECT actor_id, action, resource_id FROM memory_access_audit WHERE NOT authorized")
    assert [tuple(row.values()) for row in denied] == [("eve", "append", "told")]


@pytest.mark.spec("AC-3")
async def test_an_agent_states_its_own_with_it_and_a_curator_the_rest(world: World) -> None:
    """Its claims, and outcomes that settle nothing; the same outcome by a curator settles."""
    await season(world)
    before = await standing(world)
    own = entry(unstated(outcome("own:ann/o", day(0), day(7), 0.0, vintage=9, **FIRST)))
    assert [await append(world.database, ANN, one) for one in (entry(CLAIM), own)] == ["new", "new"]
    assert await standing(world) == before

    truth = entry(unstated(outcome("told", day(0), day(7), 0.0, vintage=9, **FIRST)))
    assert await append(world.curators, PERSON, truth) == "new"
    assert await standing(world) != before


@pytest.mark.spec("AC-3")
@pytest.mark.parametrize("owner", ["credibility", "base"])
async def test_a_pipeline_pushes_nothing_under_a_name_that_settles_or_measures(world: World, owner: str) -> None:
    """A memory says itself whose it is: neither the pipelines' own rights nor a baseline's words are lent by that."""
    await season(world)
    before = await standing(world)
    lines = [
        unstated(outcome("lie", day(0), day(7), 0.0, vintage=9, **FIRST)),
        unstated(agent("bob", day(0), "baseline")),
        unstated(finding("bases", day(0), LATER, agent="base", probability=0.1, **FIRST)),
    ]
    push = Recorder(Gateway(world.pipelines, ACTOR), own_role=False)
    for line in lines:
        item = PublishedItem(uuid4(), parse_line(orjson.dumps(line), needs_known_at=False))  # type: ignore[arg-type]
        with pytest.raises(PermissionDenied):
            await push([item], owner=owner, lock_epoch=None, deadline=Deadline.never())
    assert await standing(world) == before
    denied = await world.rows("SELECT actor_id FROM memory_access_audit WHERE NOT authorized")
    assert [row["actor_id"] for row in denied] == [owner] * 3


UNREADABLE: dict[str, dict[str, Any]] = {
    "no number": {"probability": "x"},
    "none at all": {"probability": "NaN"},
    "too large": {"probability": "1e400"},
    "no probability": {"probability": 1e150},
    "infinite": {"value": "Infinity"},
    "no domain": {"domain": None},
    "a domain that no index holds": {"domain": "x" * 10_000},
    "no moment": {"period_start": "infinity"},
    "a moment that depends on the session": {"period_start": "01/02/2024"},
}


@pytest.mark.spec("AC-3")
async def test_nothing_that_cannot_be_settled_is_put_beside_a_claim(world: World) -> None:
    """It would keep the whole question from being settled, and with it the claim that turned out wrong."""
    await season(world)
    target = datetime.now(UTC) + timedelta(seconds=2)
    question = {"subject_id": "market:21"}
    wrong = unstated(finding("wrong", day(0), target, probability=0.9, **question))
    assert await append(world.database, ANN, entry(wrong)) == "new"
    for name, core in UNREADABLE.items():
        made = reading(entry(unstated(finding("beside", day(0), target, probability=0.9, **question))), **core)
        with pytest.raises(PermissionDenied):
            pytest.fail(f"{name}: {await append(world.database, ANN, made)}")
    with pytest.raises(PermissionDenied):
        await append(world.database, ANN, replace(entry(CLAIM), target_at=datetime.max.replace(tzinfo=UTC)))
    await asyncio.sleep((target - datetime.now(UTC)).total_seconds() + 0.1)
    own = entry(unstated(outcome("own:ann/beside", day(0), target, 1.0, **question)))
    with pytest.raises(PermissionDenied):
        await append(world.database, ANN, reading(own, actual="x"))
    cited = entry(unstated(cites("d", "wrong", day(0))))
    with pytest.raises(PermissionDenied):
        await append(world.database, ANN, saying(cited, props={"at": "x", "rank": 1}))

    assert (
        await append(world.curators, PERSON, entry(unstated(outcome("told", day(0), target, 0.0, **question)))) == "new"
    )

    assert (await world.settle()).stuck == 0
    assert await world.rows("SELECT y FROM agent_outcome WHERE finding_id = 'wrong'") == [{"y": 0}]


@pytest.mark.spec("AC-3")
async def test_an_old_snapshot_does_not_hide_who_is_a_baseline(world: World) -> None:
    """In one from before it was described, it would be an agent like others, whose words anybody may state."""
    statement = str(sql("append")).replace(")b::", ")s::")
    words = entry(unstated(finding("words", day(0), LATER, agent="later", probability=0.01, **FIRST)))
    with psycopg.connect(world.url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT FROM event")
        await world.say(agent("later", day(0), "baseline"))
        with pytest.raises(psycopg.DatabaseError, match="own facts alone"):
            conn.execute(statement, _columns([words], Actor("later", Role.AGENT), Action.APPEND))


async def test_what_the_pipeline_alone_states_is_no_curators_event_either(world: World) -> None:
    """The graph is written from events, whatever the heads beside them say."""
    await season(world)
    made = as_company("record.AgentCredibility", "ann/flu", core={"agent_id": "ann"})(CLAIM)
    with pytest.raises(StatementRejected):
        await append(world.curators, PERSON, made)


@pytest.mark.spec("AC-3")
async def test_a_citation_is_exchanged_for_no_better_one(world: World) -> None:
    """What is cited under an earlier citation's key was cited when it was stated, and the first one still counts."""
    first, second = (datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (2, 4))
    cited, better = (entry(unstated(cites("d", key, day(0)))) for key in ("f1", "f2"))
    for made in (
        entry(unstated(decision("d", day(0)))),
        entry(unstated(finding("f1", day(0), first, probability=0.9, subject_id="market:1"))),
        entry(unstated(finding("f2", day(0), second, probability=0.9, subject_id="market:2"))),
        cited,
    ):
        assert await append(world.database, ANN, made) == "new"
    await asyncio.sleep((first - datetime.now(UTC)).total_seconds() + 0.1)
    exchanged = replace(better, key=cited.key, groups=(GroupHash("props", b"0" * 32),))
    assert await append(world.database, ANN, exchanged) == "changed"
    await asyncio.sleep((second - datetime.now(UTC)).total_seconds() + 0.1)
    for number, target, actual in ((1, first, 0.0), (2, second, 1.0)):
        told = outcome(f"o{number}", day(0), target, actual, subject_id=f"market:{number}")
        await append(world.curators, PERSON, entry(unstated(told)))

    await world.settle()
    found = await world.rows(
        "SELECT payload #>> '{groups,outcome,outcome}' AS verdict FROM event "
        "WHERE payload #> '{groups,outcome}' IS NOT NULL"
    )
    assert found == [{"verdict": "failure"}]


@pytest.mark.spec("AC-3")
async def test_what_was_stated_before_its_author_became_a_baseline_measures_nobody(world: World) -> None:
    """Whoever knows a baseline's name beforehand could state words under it that all others look good beside."""
    target = datetime.now(UTC) + timedelta(seconds=2)
    for name, probability in (("later", 0.01), ("ann", 0.6)):
        claim = unstated(finding(f"of {name}", day(0), target, agent=name, probability=probability, **FIRST))
        assert await append(world.database, Actor(name, Role.AGENT), entry(claim)) == "new"
    await world.say(agent("later", day(0), "baseline"))
    await asyncio.sleep((target - datetime.now(UTC)).total_seconds() + 0.1)
    await append(world.curators, PERSON, entry(unstated(outcome("told", day(0), target, 1.0, **FIRST))))

    await world.settle()
    found = await world.rows("SELECT y, reference FROM agent_outcome WHERE finding_id = 'of ann'")
    assert found == [{"y": 1, "reference": None}]


@pytest.mark.spec("AC-3")
async def test_a_claim_that_is_committed_when_its_answer_shows_is_none(world: World) -> None:
    """Else both answers would be stated before, and the one that turned out wrong be taken back."""
    statement = str(sql("append")).replace(")b::", ")s::")
    target = datetime.now(UTC) + timedelta(seconds=2)
    kept, honest = (
        entry(unstated(finding(key, day(0), target, agent=name, probability=0.01, **FIRST)))
        for key, name in (("kept", "ann"), ("honest", "bob"))
    )
    with psycopg.connect(world.url) as conn:
        conn.execute(statement, _columns([kept], ANN, Action.APPEND))
        assert await append(world.database, Actor("bob", Role.AGENT), honest) == "new"
        await asyncio.sleep((target - datetime.now(UTC)).total_seconds() + 0.1)
        await world.settle()
        conn.commit()
    await append(world.curators, PERSON, entry(unstated(outcome("told", day(0), target, 0.0, **FIRST))))

    await world.settle()
    assert await world.rows("SELECT finding_id, y FROM agent_outcome") == [{"finding_id": "honest", "y": 1}]


@pytest.mark.spec("AC-3")
def test_the_pipelines_worker_runs_no_agents_code() -> None:
    """Whatever a message in its queue asks for: it holds the pipelines' password."""
    for queue, runs in ((QUEUE, False), (AGENTS_QUEUE, True)):
        app = Celery("tasks", set_as_current=False)
        register_tasks(app, queue)
        assert (RUN_AGENT in app.tasks) is runs
