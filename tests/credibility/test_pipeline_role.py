"""Pipelines write under a role of their own: what follows from the journal the application's role may only read."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from imem.credibility.settling import ACTOR
from imem.journal.deadline import Deadline
from imem.journal.errors import PermissionDenied, StatementRejected
from imem.journal.gateway import Gateway
from imem.kg.kinds.enums import DecisionOutcome
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, record_of
from imem.kg.model import AgentCredibility, Decision

from .conftest import World, cites, decision, finding, outcome
from .load import day

pytestmark = pytest.mark.spec("AC-3")

SCORES: Final = ("agent_outcome", "track_step", "track_cell", "observation_step", "reconciliation_report")
PROTECTED: Final = (
    *SCORES,
    *("due_rule", "due_row", "track_due"),
    *("embedding_model", "embedding", "market_question", "similarity_build", "similar_analysis"),
    *("view_version", "view_row", "view_current"),
    *("delivery", "lease"),
    *("regime_run", "regime_cache", "pipeline_report"),
    "lifecycle",
    *("reviewer", "review_task"),
    *("pattern_archive", "archive_index", "archive_access"),
    *("file_metadata", "file_reference", "retention_hold", "deletion_record", "retention_run"),
)
"""What pipelines write: scores, what is due, what analyses are compared by, views, the way into the graph, gates."""

FACTS: Final = ("event", "record_head", "record_history", "memory_access_audit", "pattern_value", "agent_cursor")

WRITERS: Final = {
    # A fact makes due what follows from it, and waits for the graph.
    "imem_append_v1": {"delivery", "due_row"},
    # The order in which facts get into the graph, and that they are tried again.
    "imem_hasten_v1": {"delivery"},
    "imem_replay_v1": {"delivery"},
    # A memory whose vector could not be made is due, and its model is registered: both say nothing of scores.
    "store_memory_v1": {"due_row"},
    "put_items_v1": {"due_row"},
    # It does itself what was due, by what the journal says.
    "project_signals_v1": {"due_row"},
    "text_model_v1": {"embedding_model"},
    # A person's, each with its audit row.
    "open_gate_v1": {"lifecycle"},
    "request_transition_v1": {"lifecycle"},
    # Of the sides of a debate, likewise; what follows from them the pipeline decides.
    "open_debate_v1": {"lifecycle"},
    "act_in_debate_v1": {"lifecycle"},
    "set_debate_snapshot_v1": {"lifecycle"},
    "set_reviewer_v1": {"reviewer"},
    "show_task_v1": {"review_task"},
    # What a person or an agent did, each with its audit row; none lets anything go that a rule keeps.
    "place_hold_v1": {"retention_hold"},
    "restore_file_v1": {"file_metadata"},
}
"""Functions with the owner's rights that the application may call → the protected tables that each writes."""

_WRITTEN = re.compile(r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE|MERGE\s+INTO|COPY)\s+(?:\w+\.)?(\w+)")


def table(name: str) -> sql.Identifier:
    return sql.Identifier(*name.split("."))


def statements(conn: psycopg.Connection[Any], name: str) -> list[sql.Composed]:
    """Return one statement of each sort that writes the table."""
    row = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum = 1", (name,)
    ).fetchone()
    assert row is not None
    column, of = sql.Identifier(row[0]), table(name)
    return [
        sql.SQL("INSERT INTO {} DEFAULT VALUES").format(of),
        sql.SQL("UPDATE {} SET {} = DEFAULT").format(of, column),
        sql.SQL("DELETE FROM {}").format(of),
        sql.SQL("TRUNCATE {} CASCADE").format(of),
    ]


async def scored(world: World) -> None:
    """Have a claim scored, a verdict given, and a decision judged."""
    line = finding("f", day(1), day(5), probability=0.8)
    await world.say(line, decision("d", day(2)), cites("d", "f", day(2)), outcome("o", day(7), day(5), 1.0))
    await world.settle()
    assert await world.rows("SELECT FROM track_step LIMIT 1")


@pytest.mark.parametrize("name", [*PROTECTED, *FACTS])
async def test_the_applications_password_writes_nothing_that_is_protected(world: World, name: str) -> None:
    """Neither INSERT nor UPDATE nor DELETE nor TRUNCATE, where there are rows as well as where there are none."""
    await scored(world)
    before = await world.rows(sql.SQL("SELECT count(*) AS n FROM {}").format(table(name)).as_string())
    with psycopg.connect(world.url, autocommit=True) as conn:
        for statement in statements(conn, name):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"permission denied|append-only"):
                conn.execute(statement)
    assert await world.rows(sql.SQL("SELECT count(*) AS n FROM {}").format(table(name)).as_string()) == before


async def test_no_table_of_the_journals_schema_is_left_open(world: World) -> None:
    """Also none that a later migration makes, and no column of one; the role is a member of no other."""
    with psycopg.connect(world.url, autocommit=True) as conn:
        open_tables = conn.execute(
            "SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace = 'public'::regnamespace "
            "AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (has_any_column_privilege(c.oid, 'INSERT, UPDATE') "
            "OR has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'))"
        ).fetchall()
        roles = conn.execute(
            "SELECT rolname FROM pg_roles WHERE pg_has_role(current_user, oid, 'MEMBER') AND rolname <> current_user"
        ).fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(urlsplit(world.pipeline_url).username or "")))
    assert open_tables == []
    assert roles == []


async def test_no_function_that_the_application_may_call_writes_a_score(world: World) -> None:
    """Of those with the owner's rights each that writes a protected table is known, and none writes a score."""
    names = {name.rpartition(".")[2] for name in PROTECTED}
    with psycopg.connect(world.url, autocommit=True) as conn:
        bodies = conn.execute(
            "SELECT proname, prosrc FROM pg_proc WHERE prosecdef AND has_function_privilege(oid, 'EXECUTE')"
        ).fetchall()
    found = {name: names & set(_WRITTEN.findall(body)) for name, body in bodies}
    assert {name: written for name, written in found.items() if written} == WRITERS
    assert not set().union(*found.values()) & set(SCORES)
    # Statements that are put together at run time would escape the look: these make and drop what holds no score.
    assert {name for name, body in bodies if re.search(r"EXECUTE\s+(?!FUNCTION)", body)} == {
        *("imem_audit_partitions", "imem_safe_horizon", "text_model_v1")
    }


async def test_functions_of_triggers_serve_no_table_of_the_applications(world: World) -> None:
    """Made the trigger of a temporary table they would write, as the owner, whatever its rows say."""
    with psycopg.connect(world.url) as conn:
        functions = conn.execute(
            "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.prosecdef AND p.prorettype = 'trigger'::regtype"
        ).fetchall()
        assert len(functions) >= 4
        conn.execute("CREATE TEMPORARY TABLE mine (key text)")
        conn.commit()
        for (name,) in functions:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
                conn.execute(f"CREATE TRIGGER t AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION {name}")
            conn.rollback()


@pytest.mark.parametrize("what", ["credibility", "verdict"])
async def test_what_the_pipeline_alone_states_the_application_cannot_append(world: World, what: str) -> None:
    """Nor can a curator, whoever it says that it is: who logged in counts, and the whole append is refused."""
    await scored(world)
    events = await world.rows("SELECT count(*) AS n FROM event")
    if what == "verdict":
        found = groups_of(
            Decision, "d", {"outcome": Decision.Outcome(outcome=DecisionOutcome.FAILURE)}, writer="credibility"
        )
    else:
        score = AgentCredibility.Score(sample_size=1, last_updated=day(300), decay_halflife_years=0.5)
        model = AgentCredibility(id="ann/flu", agent_id="ann", domain="flu", score=score)
        found = record_of(model, writer="credibility")

    with pytest.raises(PermissionDenied):
        await Gateway(world.database, ACTOR).append([entry_of(found)], deadline=Deadline.never())
    with pytest.raises(StatementRejected):
        await Gateway(world.curators, ACTOR).append([entry_of(found)], deadline=Deadline.never())
    assert await world.rows("SELECT count(*) AS n FROM event") == events

    (receipt,) = await Gateway(world.pipelines, ACTOR).append([entry_of(found)], deadline=Deadline.never())
    assert receipt.position is not None
