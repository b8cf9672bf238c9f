"""A memory elsewhere takes and gives what the memory of this process does: the same models, with the same values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import orjson
import pytest
from pydantic import TypeAdapter

from imem.api.app import make_app
from imem.api.server import Server
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.identity.tokens import Tokens
from imem.journal.settings import Role
from imem.kg.model import Company, Decision, Human
from imem.memory import Memory
from imem.services.operations import Operation
from imem.services.registry import operations
from imem.services.remote import NoStores, RemoteMemory
from imem.services.wire import wire_of
from tests.imem.ingest.test_memory import analysis, contradiction, data_point, debate, decision, finding, outcome
from tests.recall.conftest import RecallHarness, empty, harness, journal, world
from tests.recall.test_modes_of_answers import AT, HISTORY, known

__all__ = ["empty", "harness", "journal", "world"]

OF_TIME = ("took_ms", "late_ms", "complete_until", "age_s")
"""What differs between two answers to one question."""


def plain(answer: Any) -> Any:
    """Return an answer as JSON without what differs in time."""
    return _without(orjson.loads(TypeAdapter(Any).dump_json(answer)))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(one) for name, one in value.items() if name not in OF_TIME}
    return [_without(one) for one in value] if isinstance(value, list) else value


QUESTIONS: dict[str, Callable[[Memory], Awaitable[Any]]] = {
    "brief": lambda m: m.brief("T0", as_of=AT),
    "history": lambda m: m.history("T0", as_of=AT),
    "similar": lambda m: m.similar("T0", as_of=AT),
    "panel": lambda m: m.panel("T0", as_of=AT),
    "text": lambda m: m.text("Analysis", "a0", as_of=AT),
    "no text": lambda m: m.text("Analysis", "nothing", as_of=AT),
    "view": lambda m: m.view("top_patterns", "*"),
    "query": lambda m: m.query("company_history", HISTORY, as_of=AT),
    "search": lambda m: m.search("anything", as_of=AT),
    "regime": lambda m: m.regime(as_of=AT),
    "value": lambda m: m.value("company:T0", "revenue", AT, as_of=AT),
    "debates": lambda m: m.debates.about("T0", as_of=AT),
    "debate": lambda m: m.debates.read("b0", as_of=AT),
    "running": lambda m: m.debates.running(),
    "contradictions": lambda m: m.contradictions.about("T0", as_of=AT),
    "differences": lambda m: m.contradictions.differences("company:T0", as_of=AT),
    "sources": lambda m: m.contradictions.sources(as_of=AT),
    "patterns": lambda m: m.patterns.about("T0", as_of=AT),
    "every pattern": lambda m: m.patterns.all(),
    "lessons": lambda m: m.lessons.about("T0", as_of=AT),
    "every lesson": lambda m: m.lessons.all(),
    "report": lambda m: m.lessons.report(),
    "track record": lambda m: m.scores.track_record("agent0", as_of=AT),
    "track records": lambda m: m.scores.track_records(as_of=[AT]),
    "credibility": lambda m: m.scores.credibility(as_of=AT),
    "weights": lambda m: m.scores.weights(["agent0"], "up_or_down", as_of=AT),
    "explanation": lambda m: m.scores.explain("agent0", "up_or_down", as_of=AT),
    "verdict": lambda m: m.scores.auto_resolve("agent0", "agent1", "up_or_down", as_of=AT),
    "forecasts": lambda m: m.forecasts.report(),
    "signals": lambda m: m.signals.about("company:T0", agent="agent0", as_of=AT),
    "tasks": lambda m: m.tasks.list(),
    "roster": lambda m: m.tasks.roster(),
    "memories": lambda m: m.memories.list(),
}
"""A question to each facet, as of a day where that is part of it."""


@pytest.mark.spec("IF-2")
async def test_every_answer_comes_back_as_it_was(harness: RecallHarness) -> None:
    """Of the same class, with the same content."""
    await known(harness)
    async with Server.open(harness.settings) as server:
        tokens = Tokens(server.stores.gateway, curators=server.stores.curating.database)
        admin = Actor("root", Role.HUMAN_ADMIN)
        made = await tokens.create("root", Role.HUMAN_ADMIN, actor=admin, deadline=Deadline.after_ms(10_000))
        given: Any = {"transport": httpx2.ASGITransport(make_app(server))}
        stores: Any = NoStores()
        async with RemoteMemory.open("http://face", made.secret, **given) as caller:
            there, here = Memory(stores, remote=caller), server.memory_of(admin)
            for name, ask in QUESTIONS.items():
                mine, theirs = await ask(here), await ask(there)
                assert type(mine) is type(theirs), name
                assert plain(mine) == plain(theirs), name


CALLS: list[Callable[[Memory], Awaitable[Any]]] = [
    lambda m: m.record_company(Company(ticker="MU", profile=Company.Profile(name="Micron"))),
    lambda m: m.record_analysis(analysis(), findings=[finding("eve")], body="é\u2028"),
    lambda m: m.record_decision(decision("eve"), cites=["f"]),
    lambda m: m.record_outcome(outcome()),
    lambda m: m.record_debate(debate("eve")),
    lambda m: m.record_contradiction(contradiction()),
    lambda m: m.record_data_point(data_point()),
    lambda m: m.record(Human(id="eve")),
    lambda m: m.record_groups(Human, "eve", {"profile": Human.Profile(role="reviewer")}),
    lambda m: m.link("PERFORMED", ("Agent", "eve"), analysis()),
    lambda m: m.correct(analysis(summary="Better."), "A slip."),
    lambda m: m.scores.weights(["a", "b"], "d", {"sector": "Technology", "regime": None}),
]


@pytest.mark.spec("IF-2")
@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
async def test_arguments_arrive_as_they_were_given(call: Callable[[Memory], Awaitable[Any]]) -> None:
    """What the server's models read of what the client wrote is what was given."""
    seen: list[tuple[Operation, dict[str, Any]]] = []

    class Noting:
        async def call(self, operation: Operation, given: tuple[Any, ...], named: Any) -> None:
            seen.append((operation, dict(operation.signature.bind(*given, **named).arguments)))

    stores: Any = NoStores()
    await call(Memory(stores, remote=Noting()))
    [(operation, arguments)] = seen
    wire = wire_of(operation)
    written = orjson.loads(orjson.dumps(wire.written((), arguments)))
    read = wire.arguments.model_validate(written)
    assert {name: getattr(read, name) for name in written} == {
        name: list(value) if isinstance(value, tuple) and isinstance(getattr(read, name), list) else value
        for name, value in arguments.items()
    }
    assert type(next(iter(arguments.values()))) is type(getattr(read, next(iter(arguments))))


@pytest.mark.spec("IF-2")
def test_every_operation_has_its_place_in_rest() -> None:
    """With the names of its parameters, each of which stands in the document."""
    server: Any = None
    document = make_app(server).openapi()
    for operation in operations():
        where = document["paths"]["/v1/" + operation.name.replace(".", "/")]
        [(method, entry)] = where.items()
        assert (method == "get") == wire_of(operation).in_query
        if method == "get":
            stated = {one["name"] for one in entry["parameters"] if one["in"] == "query"}
        else:
            schema = entry["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rpartition("/")[2]
            stated = set(document["components"]["schemas"][name]["properties"])
        assert stated == set(operation.signature.parameters), operation.name
    assert Decision.__name__ in str(document["components"]["schemas"])
