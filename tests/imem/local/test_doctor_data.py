"""IF-11: what the doctor says of the data that the stores hold, and of the work that waits."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from imem.journal.clock import SystemClock
from imem.journal.settings import Settings
from imem.kg.model import Finding, Outcome, Pattern, PatternStatus
from imem.local.doctor import checks
from imem.local.doctor.finding import CheckLevel
from imem.local.migrate import migrate
from tests.imem.local.doctors import data_troubles, emptied, graph
from tests.kg.queries.build import Story

pytestmark = pytest.mark.spec("IF-11")


def test_nodes_that_are_spoken_of_and_never_come(migrated: dict[str, str]) -> None:
    """After a day, by kind; what is only a reference may stay a name."""
    now = SystemClock().now()
    old, new = now - timedelta(hours=25), now - timedelta(hours=23)
    story = Story().link("CITES", ("Decision", "d"), ("Finding", "old"), known=old, at=old)
    story.link("CITES", ("Decision", "d"), ("Finding", "older"), known=old, at=old)
    story.link("PERFORMED", ("Agent", "bull"), ("Analysis", "new"), known=new)
    story.link("PERFORMED", ("Agent", "bear"), ("Analysis", "imported"), known=old, recorded=new)
    story.link("PEER_OF", ("Company", "MU"), ("Company", "WDC"), known=old)
    story.late(Outcome, "late", known=old, assessment=Outcome.Assessment(accuracy=0.5))
    with graph(migrated) as driver:
        story.write(driver)
        found = data_troubles(migrated)
        fine = [one.text for one in checks.examine(migrated) if one.about == "stubs" and one.level is CheckLevel.FINE]

    emptied(migrated)
    spoken = "Spoken of for more than a day and never recorded:"
    assert found == [
        ("stubs", f"{spoken} 1 Decision, such as 'd'."),
        ("stubs", f"{spoken} 2 Finding, such as 'old'."),
        ("stubs", f"{spoken} 1 Outcome, such as 'late'."),
    ]
    assert fine == []


def test_nodes_that_the_model_would_have_refused(migrated: dict[str, str]) -> None:
    """Every kind and type that the applier writes is right; what is missing or of another type is counted."""
    now = SystemClock().now()
    whole = Finding(id="whole", analysis_id="a", subject_id="company:MU", agent="bull", domain="d", statement="s",
                    importance=1, key_drivers=["x"], probability=0.5, metric="up", target_at=now + timedelta(days=1),
                    distribution={"a": 1})  # fmt: skip
    empty = whole.model_copy(update={"id": "empty", "key_drivers": [], "statement": "Nothing drives it."})
    story = Story().tell(whole, empty, known=now)
    status = Pattern.Status(status=PatternStatus.ACTIVE, quarantined=False)
    story.tell(Pattern(pattern_id="p", name="p", category="c", status=status), known=now)
    with graph(migrated) as driver:
        story.write(driver)
        assert data_troubles(migrated) == []
        driver.execute_query("MATCH (f:Finding {id: 'whole'}) REMOVE f.statement")
        driver.execute_query("MATCH (f:Finding {id: 'empty'}) SET f.importance = 'much'")
        driver.execute_query("MATCH (p:Pattern) REMOVE p.quarantined")
        found = data_troubles(migrated)

    emptied(migrated)
    wrong = "Without a property that they must have, or with one of a wrong type:"
    assert found == [
        ("properties", f"{wrong} 2 Finding, such as 'empty'."),
        ("properties", f"{wrong} 1 Pattern, such as 'p'."),
    ]


def test_work_that_would_not_be_done(migrated: dict[str, str]) -> None:
    """What was set aside is named with the reason; so are rules of another version, which migrating mends."""
    aside = "INSERT INTO due_row (queue, kind, key, set_aside) VALUES ('credibility', 'Outcome', 'o', 'LookupError: o')"
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(aside)
        owner.execute("DELETE FROM due_rule WHERE event = 'record.Outcome' AND queue = 'credibility'")
        owner.execute("INSERT INTO due_rule VALUES ('old', 'Outcome', 'record.Outcome', '$key')")
        found = data_troubles(migrated)
        owner.execute("DELETE FROM due_row WHERE queue = 'credibility'")
        migrate(Settings.read(migrated))
    assert [text for _, text in found] == [
        "Postgres makes work due by the rules of another version: 2 differ.",
        "Set aside by credibility, since it fails: Outcome 'o' and perhaps others (LookupError: o).",
    ]
    assert data_troubles(migrated) == []


BEHIND = (
    "Behind: 1 records to make searchable, the oldest for 2 min (recall.project_texts); "
    "the last run failed: StoreUnavailable: away"
)


def test_pipelines_that_are_far_behind(migrated: dict[str, str]) -> None:
    """No tick while much waits, or long, or while runs fail; little work of the last minutes is no trouble."""

    def about_pipelines() -> list[tuple[CheckLevel, str]]:
        return [(one.level, one.text) for one in checks.examine(migrated) if one.about == "pipelines"]

    def of_scores() -> list[CheckLevel]:
        return [one.level for one in checks.examine(migrated) if one.about == "scores"]

    due = """
        INSERT INTO due_row (queue, kind, key, created_at)
        SELECT %s, 'Finding', n::text, now() - %s FROM generate_series(1, %s) AS n"""
    report = "INSERT INTO pipeline_report VALUES ('recall.project_texts', now(), now(), '{}', 'StoreUnavailable: away')"
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        assert about_pipelines() == [(CheckLevel.FINE, "they have done everything")]
        owner.execute(due, ("credibility", timedelta(0), 999))
        assert about_pipelines() == [(CheckLevel.FINE, "999 rows wait, none for long")]
        assert of_scores() == [CheckLevel.FINE]
        owner.execute(due, ("credibility", timedelta(0), 1))
        [(level, text)] = about_pipelines()
        assert (level, text[:44]) == (CheckLevel.WEAK, "Far behind: 1,000 records to settle, the old")
        assert of_scores() == []

        owner.execute("DELETE FROM due_row")
        owner.execute(due, ("similar", timedelta(minutes=6), 2))
        owner.execute(due, ("search", timedelta(minutes=2), 1))
        owner.execute(report)
        assert about_pipelines() == [
            (CheckLevel.WEAK, "Far behind: 2 statements about analyses to compare, the oldest for 6 min (kg.similar)."),
            (CheckLevel.WEAK, BEHIND),
        ]
        assert "similar" not in {one.about for one in checks.examine(migrated)}
        owner.execute("DELETE FROM due_row")
        owner.execute("DELETE FROM pipeline_report")
    assert about_pipelines() == [(CheckLevel.FINE, "they have done everything")]


def test_errors_of_checkpoints(migrated: dict[str, str]) -> None:
    """Each cause of the last day with its total; what is older has been looked at or does not matter."""
    made = """
        INSERT INTO workflow.error_counter (name, store, total, last_reason, last_at) VALUES
            ('checkpoint_save_errors_total', 'durable', 7, 'ValkeyUnavailable: away', now() - interval '25 hours'),
            ('checkpoint_consistency_errors_total', 'postgres', 1, 'ConsistencyError: torn', now() - interval '1 h')"""
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:
        owner.execute(made)
        found = data_troubles(migrated)
        owner.execute("UPDATE workflow.error_counter SET last_at = now() WHERE store = 'durable'")
        both = data_troubles(migrated)
        owner.execute("DELETE FROM workflow.error_counter")
    ((about, text),) = found
    assert about == "checkpoints"
    assert text.startswith('checkpoint_consistency_errors_total{store="postgres"} is 1; the last was at 20')
    assert text.endswith(" UTC: ConsistencyError: torn")
    assert [text.partition(";")[0] for _, text in both] == [
        'checkpoint_consistency_errors_total{store="postgres"} is 1',
        'checkpoint_save_errors_total{store="durable"} is 7',
    ]


def test_the_nightly_recomputation(migrated: dict[str, str]) -> None:
    """One that was left out, one that found differences, and one that is as it should be."""
    made = """
        INSERT INTO reconciliation_report
            (started_at, finished_at, questions, scores, track_records, decisions, differing, details)
        VALUES (now() - %s, now() - %s, 9, 7, 2, 1, %s, %s)"""
    nothing, some = '{"findings": []}', '{"findings": ["f1", "f2"], "track_records": [{}], "decisions": []}'
    with psycopg.connect(migrated["IMEM_POSTGRES_ADMIN_URL"], autocommit=True) as owner:

        def after(hours: int, differing: int = 0, details: str = nothing) -> list[tuple[str, str]]:
            owner.execute(made, (*(timedelta(hours=hours),) * 2, differing, details))
            return data_troubles(migrated)

        assert after(30) == []
        (fine,) = [one.text for one in checks.examine(migrated) if one.about == "scores"]
        assert fine.endswith("7 scores, no difference")
        ((about, text),) = after(37)
        assert (about, text[:48]) == ("scores", "They were last recomputed from the journal on 20")
        ((about, text),) = after(1, 3, some)
        assert text.endswith(", 3 of what stood differed: 2 findings, 1 track records.")
        owner.execute("DELETE FROM reconciliation_report")
