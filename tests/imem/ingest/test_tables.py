"""Tables reach the journal as lines do: in order, once, all or nothing where that is asked."""

from __future__ import annotations

from pathlib import Path

from tests.imem.ingest.conftest import LoadHarness
from tests.unit.tables import block


def example(harness: LoadHarness) -> tuple[Path, Path]:
    """Write the table and the map of the how-to; return both."""
    table, mapping = harness.folder / "calls.csv", harness.folder / "calls.toml"
    table.write_text(block("text"))
    mapping.write_text(block("toml"))
    return table, mapping


def test_a_table_is_loaded_once(harness: LoadHarness) -> None:
    """The example of the docs: its lines are new, then identical; the source is named like the file."""
    table, mapping = example(harness)

    first = harness.load("--map", mapping, table)
    again = harness.load("--map", mapping, table)

    assert (first["new"] + first["changed"], first["refused_lines"], first["code"]) == (19, 1, 1)
    assert (again["identical"], again["new"], again["changed"]) == (19, 0, 0)
    assert first["refused"][0]["column"] == "view"
    assert harness.rows("SELECT DISTINCT actor FROM event") == [("import:calls",)]
    assert [one["kind"] for one in first["missing_references"]] == []
    assert harness.rows("SELECT count(*) FROM record_head WHERE kind = 'Finding' AND grp = 'core'") == [(3,)]


def test_a_strict_load_of_a_table_names_the_row(harness: LoadHarness) -> None:
    """What the journal would refuse of one of a row's lines is named by its row, and nothing is loaded."""
    table, mapping = example(harness)
    header, first, *_ = block("text").splitlines()
    table.write_text("\n".join([header, first, first.replace("Orders grow", "Prices grow")]) + "\n")

    told = harness.load("--strict", "--map", mapping, table)

    assert [(one["line"], one["field"]) for one in told["refused"]] == [(3, "core")]
    assert harness.count("event") == 0
