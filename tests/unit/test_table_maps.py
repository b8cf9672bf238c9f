"""Tables become lines by a map: what is written down is what is stored, and what is wrong is said by row and column."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from imem.ingest.dry_run import DryCheck
from imem.ingest.line_reader import LoadSource, RefusedLine, opened, sources_of
from imem.ingest.table_map import Conversion, LinkRule, MapFile, RecordRule, Template, When, read_map
from imem.journal.clock import ManualClock
from imem.journal.errors import BadInput
from tests import forking
from tests.unit.tables import ANALYSIS, FINDING, block, rows_of

TOP = Path(__file__).resolve().parents[2]
REFERENCE = TOP / "docs" / "reference" / "table-maps.md"


def finding(folder: Path, value: str, cell: str, field: str = "confidence") -> tuple[Any, list[RefusedLine]]:
    """Return what one *cell* becomes as a *field* of a finding under the map's *value*."""
    text = FINDING.replace("{field}", field).replace("{value}", value)
    quoted = cell.replace('"', '""')
    made, refused = rows_of(folder, text, f'x,rest\n"{quoted}",1\n')
    return (made[0]["core"].get(field) if made else None), refused


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    """The how-to's table and map, as they stand there: links and records a row, times by the rule, one refusal."""
    made, refused = rows_of(tmp_path, block("toml"), block("text"))

    assert [(one.line, one.column, one.field) for one in refused] == [(5, "view", "Finding: core.direction")]
    assert "'Strong Buy' is not among the texts" in refused[0].reason
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in made:
        by_kind.setdefault(line.get("record") or line["link"], []).append(line)
    # Company and analyst of each row: they have a profile, which is stated for each moment.
    assert {kind: len(lines) for kind, lines in by_kind.items()} == {
        "Company": 4, "Agent": 4, "Analysis": 4, "Finding": 3, "PERFORMED": 4,
    }  # fmt: skip
    assert [line["known_at"] for line in by_kind["Analysis"]] == [
        "2026-06-01T12:30:00.000000Z",  # 08:30 in New York
        "2026-06-01T13:10:00.000000Z",
        "2026-06-03T12:00:00.000000Z",  # a day alone: over everywhere
        "2026-06-02T12:30:00.000000Z",
    ]
    assert [line["core"].get("confidence") for line in by_kind["Finding"]] == [0.7, 0.55, None]
    assert [line["core"]["direction"] for line in by_kind["Finding"]] == ["positive", "negative", "neutral"]
    assert by_kind["Analysis"][0]["body"] == "Orders grow faster than prices."
    assert by_kind["PERFORMED"][0]["from"] == {"Agent": "Ana Lima"}


def test_a_dry_run_shows_lines_and_every_refusal_and_needs_no_server(tmp_path: Path) -> None:
    """The command of the docs prints the first lines as they would be stored and every refusal."""
    (tmp_path / "calls.toml").write_text(block("toml"))
    header, *rows = block("text").splitlines()
    (tmp_path / "calls.csv").write_text("\n".join([header, *rows, *[rows[3]] * 40]) + "\n")
    nowhere = {"IMEM_HOME": str(tmp_path / "none"), "PYTHONPATH": str(TOP), "PATH": ""}
    command = ["imem", "load", "--map", "calls.toml", "--dry-run", "calls.csv"]

    done = forking.run(*command, env=nowhere, cwd=tmp_path)
    as_json = forking.run(*command, "--json", env=nowhere, cwd=tmp_path)

    assert done.returncode == as_json.returncode == 1
    assert done.stderr.count("Refused: calls.csv, line ") == 41
    assert "line 5, column view: Finding: core.direction: 'Strong Buy'" in done.stderr
    assert "Nothing was written" in done.stderr
    first = [json.loads(line) for line in done.stdout.splitlines()]
    document = json.loads(as_json.stdout)
    assert first == document["lines"]
    assert first[0]["core"]["ticker"] == "NWT"
    assert len(document["refused"]) == document["refused_lines"] == 41
    assert document["refused"][0]["column"] == "view"
    assert not (tmp_path / "none").exists()


def test_a_dry_run_knows_the_metrics_that_a_load_knows(tmp_path: Path) -> None:
    """A metric of the user's own file is none that a dry run refuses, and a file that is wrong ends it."""
    (tmp_path / "mine.toml").write_text("[[metric]]\nmatch = 'churn'\nkind = 'value'\ntolerance = 0.1\n")
    (tmp_path / "wrong.toml").write_text("[[metric]]\nmatch = 'churn'\n")
    known_at = "2026-06-30T12:00:00Z"
    core = {
        "id": "o", "subject_id": "company:MU", "metric": "churn", "target_at": known_at, "actual": 1, "vintage": 0,
        "observed_at": known_at,
    }  # fmt: skip
    (tmp_path / "o.jsonl").write_text(json.dumps({"record": "Outcome", "known_at": known_at, "core": core}))
    ended = {}
    for name in ("mine", "wrong", None):
        metrics = {} if name is None else {"IMEM_METRICS_FILE": f"{name}.toml"}
        environment = {"IMEM_HOME": str(tmp_path / "none"), "PYTHONPATH": str(TOP), "PATH": "", **metrics}
        ended[name] = forking.run("imem", "load", "--dry-run", "o.jsonl", env=environment, cwd=tmp_path)

    assert (ended["mine"].returncode, ended["mine"].stderr.count("Refused")) == (0, 0), ended["mine"].stderr
    assert "core.metric: is no registered metric" in ended[None].stderr
    assert ended["wrong"].returncode == 2
    assert "number 1 in wrong.toml" in ended["wrong"].stderr


def test_every_field_of_a_map_is_documented() -> None:
    """The reference names what the models take."""
    text = REFERENCE.read_text("utf-8")
    models: list[type[BaseModel]] = [MapFile, RecordRule, LinkRule, Conversion, When]
    names = {info.alias or name for model in models for name, info in model.model_fields.items()}

    assert {name for name in names if not re.search(rf"[`\[ ]{name}[`\]= ]", text)} == set()


@pytest.mark.parametrize(
    ("value", "cell", "expected"),
    [
        ('"{x}"', "0.5", 0.5),
        ('"{x}"', " 0.5 ", 0.5),
        ('"{x}"', "", None),
        ("0.25", "ignored", 0.25),
        ('{ value = "{x}", percent = true }', "55 %", 0.55),
        ('{ value = "{x}", percent = true }', "7", 0.07),
        ('{ value = "{x}", default = 0.5 }', "", 0.5),
        ('{ value = "{x}", map = { high = 0.9, "*" = 0.1 } }', "high", 0.9),
        ('{ value = "{x}", map = { high = 0.9, "*" = 0.1 } }', "what", 0.1),
    ],
)
def test_numbers(value: str, cell: str, expected: float | None, tmp_path: Path) -> None:
    """A cell becomes the property's number, or nothing where it is empty."""
    assert finding(tmp_path, value, cell) == (expected, [])


@pytest.mark.parametrize(
    ("value", "cell", "expected"),
    [
        ('"{x}"', "2026-06-01T10:00:00Z", "2026-06-01T10:00:00"),
        ('"{x}"', "2026-06-01T10:00:00+02:00", "2026-06-01T08:00:00"),
        ('"{x}"', "2026-06-01 10:00", "2026-06-01T22:00:00"),
        ('"{x}"', "2026-06-01", "2026-06-02T12:00:00"),
        ('{ value = "{x}", day = "start" }', "2026-06-01", "2026-06-01T00:00:00"),
        ('{ value = "{x}", zone = "Europe/Paris" }', "2026-06-01 10:00", "2026-06-01T08:00:00"),
        ('{ value = "{x}", zone = "Europe/Paris" }', "2026-06-01", "2026-06-02T12:00:00"),
        ('{ value = "{x}", zone = "Europe/Paris" }', "2026-10-25 02:30", "2026-10-25T01:30:00"),
        ('{ value = "{x}", zone = "Europe/Paris" }', "2026-03-29 02:30", "2026-03-29T01:30:00"),
        ('{ value = "{x}", format = "%d/%m/%Y" }', "01/06/2026", "2026-06-02T12:00:00"),
        ('{ value = "{x}", format = "%d/%m/%Y %H:%M" }', "01/06/2026 10:00", "2026-06-01T22:00:00"),
        ('{ value = "{x}", format = "epoch_s" }', "1780308000", "2026-06-01T10:00:00"),
        ('{ value = "{x}", format = "epoch_ms" }', "1780308000123", "2026-06-01T10:00:00"),
        ('"{x}T20:00:00Z"', "2026-06-01", "2026-06-01T20:00:00"),
    ],
)
def test_times(value: str, cell: str, expected: str, tmp_path: Path) -> None:
    """What the source leaves open is read as late as it allows; zone, format and the meaning of a day can be named."""
    time, refused = finding(tmp_path, value, cell, "target_at")

    assert refused == []
    assert time[:19] == expected


@pytest.mark.parametrize("cell", ["yesterday", "2026-13-01", "01/06/2026", "", "0001-01-01", "99999999999999999999"])
def test_a_time_that_is_none(cell: str, tmp_path: Path) -> None:
    """It is refused by row and column, also where it says when the row was known."""
    made, refused = rows_of(tmp_path, ANALYSIS, f"id,published,ticker\n1,{cell},NWT\n2,2026-06-01,NWT\n")

    assert [line["core"]["id"] for line in made] == ["t:2"]
    assert [(one.line, one.field) for one in refused] == [(2, "Analysis: known_at")]
    assert refused[0].column == "published"


@pytest.mark.parametrize(
    ("field", "value", "cell", "expected"),
    [
        ("key_drivers", '"{x}"', "orders; prices ;;", ["orders", "prices"]),
        ("key_drivers", '{ value = "{x}", split = "|" }', "a;b|c", ["a;b", "c"]),
        ("key_drivers", '["a", "b"]', "", ["a", "b"]),
        ("statement", '"{{{x}}}: {rest}"', "a", "{a}: 1"),
        ("statement", '"{x}"', "{rest}", "{rest}"),
        ("statement", '"{x}"', 'two\nlines, "quoted"', 'two\nlines, "quoted"'),
        ("direction", '{ value = "{x}", map = { Buy = "positive" } }', "Buy", "positive"),
    ],
)
def test_texts_and_lists(field: str, value: str, cell: str, expected: Any, tmp_path: Path) -> None:
    """A template puts cells in and nothing else: what a cell holds is never read as a template."""
    text = value.replace('"s"', "")
    found, refused = finding(tmp_path, text, cell, field) if field != "statement" else statement(tmp_path, text, cell)

    assert refused == []
    assert found == expected


def statement(folder: Path, value: str, cell: str) -> tuple[Any, list[RefusedLine]]:
    text = ANALYSIS.replace('kind = "call"', f'kind = "call"\nsummary = {value}').replace("{id}", "1")
    quoted = cell.replace('"', '""')
    table = f'x,rest,published,ticker\n"{quoted}",1,2026-06-01,NWT\n'
    made, refused = rows_of(folder, text, table)
    return (made[0]["core"]["summary"] if made else None), refused


@pytest.mark.parametrize(
    ("value", "cell", "reason"),
    [
        ('"{x}"', "1.5", "between 0 and 1"),
        ('"{x}"', "nan", "finite"),
        ('"{x}"', "half", "must be a number"),
        ('{ value = "{x}", percent = true }', "120%", "between 0 and 1"),
        ('{ value = "{x}", map = { high = 0.9 } }', "low", "not among the texts"),
        ('"x"', "", "must be a number"),
    ],
)
def test_a_cell_that_does_not_fit(value: str, cell: str, reason: str, tmp_path: Path) -> None:
    """It is refused with its row, its column, the field that it was meant for, and the reason."""
    _, [refused] = finding(tmp_path, value, cell)

    assert (refused.line, refused.field) == (2, "Finding: core.confidence")
    assert refused.column == ("x" if "{x}" in value else "")
    assert reason in refused.reason


def test_rows_choose_their_lines(tmp_path: Path) -> None:
    """``when`` makes a line of rows where a cell is not empty, or is one of some."""
    text = ANALYSIS.replace(
        'kind = "Analysis"', 'kind = "Analysis"\nwhen = { value = "{type}", is = ["note", "call"] }', 1
    )
    text += '[[link]]\nlink = "PERFORMED"\nwhen = "{who}"\nfrom = { Agent = "{who}" }\nto = { Analysis = "t:{id}" }\n'
    rows = ["1,2026-06-01,NWT,note,ann", "2,2026-06-01,NWT,chat,ann", "3,2026-06-01,NWT,call,"]
    made, refused = rows_of(tmp_path, text, "\n".join(["id,published,ticker,type,who", *rows]))

    assert refused == []
    assert [line.get("record") or line["to"] for line in made] == [
        "Analysis",
        {"Analysis": "t:1"},
        {"Analysis": "t:2"},
        "Analysis",
    ]


PROFILE = """
known_at = "{day}"
[[record]]
kind = "Company"
core = { ticker = "{t}" }
groups.profile = { name = "{n}" }
"""


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("", [("A", 5), ("A", 3), ("B", 6)]),
        ('groups.profile = { name = "x" }', [("A", 5), ("A", 6), ("A", 3), ("A", 7), ("B", 6)]),
        ('groups.profile = { name = "{n}" }', [("A", 5), ("A", 6), ("A", 3), ("A", 3), ("A", 7), ("B", 6)]),
    ],
)
def test_what_rows_repeat_is_stated_once(groups: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    """A core that was known no later is stated for good; a group is a repeat in the same moment alone."""
    text = PROFILE.replace('groups.profile = { name = "{n}" }', groups)
    rows = [("A", "x", 5), ("A", "x", 6), ("A", "x", 3), ("A", "y", 3), ("A", "x", 7), ("A", "x", 7), ("B", "x", 6)]
    made, _ = rows_of(tmp_path, text, "t,n,day\n" + "".join(f"{t},{n},2026-06-0{day}\n" for t, n, day in rows))

    assert [(one["core"]["ticker"], int(one["known_at"][8:10]) - 1) for one in made] == expected


def test_rows_in_no_order_of_time_lose_no_fact(tmp_path: Path) -> None:
    """A name that comes back is stated when it does, though the row with the name between follows in the table."""
    rows = [("x", 1), ("x", 5), ("y", 3)]
    made, _ = rows_of(tmp_path, PROFILE, "t,n,day\n" + "".join(f"A,{n},2026-06-0{day}\n" for n, day in rows))

    by_time = sorted((line["known_at"], line["groups"]["profile"]["name"]) for line in made)
    assert [name for _, name in by_time] == ["x", "y", "x"]


def dry_run(folder: Path, text: str, table: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Return what the command says of a table and a map."""
    (folder / "map.toml").write_text(text)
    (folder / "calls.csv").write_text(table)
    nowhere = {"IMEM_HOME": str(folder / "none"), "PYTHONPATH": str(TOP), "PATH": ""}
    return forking.run("imem", "load", "--map", "map.toml", "--dry-run", "calls.csv", *more, env=nowhere, cwd=folder)


def test_a_dry_run_finds_two_cores_of_one_key_and_times_to_come(tmp_path: Path) -> None:
    """The commonest mistake of a map, and a row of tomorrow, are refused without a server as a load would."""
    rows = ["1,2026-06-01,NWT", "1,2026-06-01,NWT", "1,2026-06-01,CTF", "2,2199-06-01,NWT", "2,2026-06-02,NWT"]
    done = dry_run(tmp_path, ANALYSIS, "\n".join(["id,published,ticker", *rows]), "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(one["line"], one["field"]) for one in document["refused"]] == [(4, "core"), (5, "known_at")]
    assert "line 2 states for Analysis 't:1'" in document["refused"][0]["reason"]
    assert [line["core"]["id"] for line in document["lines"]] == ["t:1", "t:2"]
    assert (document["would_store"], document["refused_lines"], document["cores_compared"]) == (2, 2, None)


def test_a_dry_run_remembers_a_bounded_number_of_cores(tmp_path: Path) -> None:
    """Beyond the bound cores are not compared, and that is said; the clock is the one that is given."""
    (tmp_path / "map.toml").write_text(ANALYSIS)
    (tmp_path / "calls.csv").write_text(
        "id,published,ticker\n" + "".join(f"{n},2026-06-01,{t}\n" for t in ("NWT", "CTF") for n in range(3))
    )
    with opened(LoadSource(tmp_path / "calls.csv", "test", mapping=read_map(tmp_path / "map.toml"))) as batches:
        batch = batches.next_batch()
    assert batch is not None

    check, early = DryCheck(cores=2), DryCheck(ManualClock())
    good, refused = check.judge("calls.csv", batch)

    assert [one.line for one in refused] == [5, 6]
    assert (len(good), check.is_whole) == (4, False)
    assert {one.field for one in early.judge("calls.csv", batch)[1]} == {"known_at"}
    whole = DryCheck()
    assert (len(whole.judge("calls.csv", batch)[1]), whole.is_whole) == (3, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[record", "is no TOML"),
        ("", "neither [[record]] nor [[link]]"),
        (ANALYSIS.replace("[[record]]", "[[recrod]]").replace("[record.core]", "[core]"), "is no field of a map"),
        (ANALYSIS.replace('"Analysis"', '"Analisys"'), "Did you mean Analysis?"),
        (ANALYSIS.replace("subject_id", "subjekt_id"), "Did you mean subject_id?"),
        (ANALYSIS.replace("{ticker}", "{tikker}"), "Did you mean ticker?"),
        (ANALYSIS.replace("{ticker}", "{ticker"), "brace"),
        (ANALYSIS.replace("{ticker}", "{ticker.__class__}"), "'ticker.__class__', which"),
        (ANALYSIS.replace("{ticker}", "{ticker!r}"), "'ticker!r', which"),
        (ANALYSIS.replace('known_at = "{published}"', ""), "known_at: is required"),
        ('zone = "Mars/Olympus"\n' + ANALYSIS, "no zone that this machine knows"),
        ('zone = "../../etc/passwd"\n' + ANALYSIS, "no zone that this machine knows"),
        (
            ANALYSIS.replace('date = "{published}"', 'date = { value = "{published}", zome = "UTC" }'),
            "no field of a map",
        ),
        (ANALYSIS + "[record.groups.profile]\nx = 1\n", "'profile' is no group"),
        (ANALYSIS + '[[link]]\nlink = "PERFORMD"\nfrom = {}\nto = {}\n', "Did you mean PERFORMED?"),
        (ANALYSIS + '[[link]]\nlink = "PERFORMED"\nfrom = {}\nto = {}\n', "must name one kind"),
        ("x" * (2 << 20), "is longer than"),
    ],
)
def test_a_map_that_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    """Nothing is read of the table; the sentence names the map's file, the place in it, and the mend."""
    with pytest.raises(BadInput) as caught:
        rows_of(tmp_path, text, "id,published,ticker\n1,2026-06-01,NWT\n")

    assert said in str(caught.value)
    assert str(tmp_path / "map.toml") in str(caught.value)


def test_tables_of_a_folder(tmp_path: Path) -> None:
    """With a map, a folder gives its tables; each is a source of its own, named without its suffix."""
    (tmp_path / "map.toml").write_text(ANALYSIS)
    for name in ("b.csv.gz", "a.csv", "c.parquet", "d.jsonl", "e.txt"):
        (tmp_path / name).write_bytes(b"")

    found = sources_of([str(tmp_path)], mapping=read_map(tmp_path / "map.toml"))

    assert [source.name for source in found] == ["a", "b", "c"]


def test_a_template_only_puts_names_in() -> None:
    """Format specifications, attributes and indexes are names that no table has."""
    for name in ("x:>10", "x[0]", "x.y", "0"):
        assert Template.of(f"{{{name}}}", "here").columns == (name,)
