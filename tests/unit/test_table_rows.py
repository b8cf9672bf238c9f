"""Rows of CSV and Parquet: a bad one is refused by its line, and values keep the types that the file has."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from imem.ingest.line_reader import LoadSource, UnreadableFile
from imem.ingest.table_reader import ParquetRows
from imem.journal.errors import BadInput
from imem.kg.load_format.lines import LINE_BYTES
from tests.unit.tables import ANALYSIS, FINDING, block, rows_of

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("table", "line", "reason"),
    [
        ("id,published,ticker\n1,2026-06-01\n2,2026-06-01,NWT\n", 2, "has 2 cells, and the header 3"),
        ("id,published,ticker\n1,2026-06-01,NWT,more\n2,2026-06-01,NWT\n", 2, "has 4 cells"),
        ('id,published,ticker\n"1\n1",2026-06-01,NWT,more\n\n2,2026-06-01,NWT\n', 2, "has 4 cells"),
    ],
)
def test_a_row_that_does_not_fit_the_header(table: str, line: int, reason: str, tmp_path: Path) -> None:
    """It is refused by the line at which it begins; the others are kept."""
    made, refused = rows_of(tmp_path, ANALYSIS, table)

    assert [(one.line, one.field) for one in refused] == [(line, "row")]
    assert reason in refused[0].reason
    assert [one["core"]["id"] for one in made] == ["t:2"]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (b"", "the first line must name"),
        (b"id,id,published\n", "names 'id' twice"),
        (b"id,publi\xe9,ticker\n1,2026-06-01,NWT\n", "the first line holds bytes that are not UTF-8"),
        (b'id,"published,ticker\n1,2026-06-01,NWT\n', "the first line begins a quoted cell that is not closed"),
        (b"x" * (LINE_BYTES + 10) + b"\n1\n", "the first line is longer than"),
        (b"id,published,ticker\n" + b"\n" * (2 << 20), "bytes of blank lines"),
        (gzip.compress(b"id,published,ticker\n" * 100)[:-9], "is damaged"),
        (b"PAR1 and no more", "Parquet"),
    ],
    ids=["empty", "column twice", "encoding", "open quote", "long", "blank", "cut off", "Parquet"],
)
def test_a_table_that_cannot_be_read(table: bytes, reason: str, tmp_path: Path) -> None:
    """The load ends with a sentence that says where."""
    with pytest.raises(UnreadableFile, match=reason):
        rows_of(tmp_path, ANALYSIS, table)


MANY = range(3, 603)
"""Rows of more than a mebibyte in all, with the spaces behind."""


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'2,2026-06-01,"NWT', "not closed"),
        (b'2,"2026-06-01,NWT', "not closed"),
        (b'"2,2026-06-01,NWT', "not closed"),
        (b'2,"""2026-06-01"",NWT', "not closed"),
        (b"2,2026-06-01,\xe9", "not UTF-8 in the column 'ticker'"),
        (b'2,2026-06-01,"N\n\xe9T"', "not UTF-8 in the column 'ticker'"),
        (b"2,2026-06-01\rT,NWT", "a carriage return in the middle"),
        (b"2,2026-06-01," + b"N" * 140_000, "characters"),
        (b"2,2026-06-01," + b"N" * LINE_BYTES, "is longer than 1,048,576 bytes"),
    ],
    ids=["last", "middle", "first", "doubled", "byte", "byte in a cell of two lines", "return", "cell", "line"],
)
@pytest.mark.parametrize(
    ("after", "more"),
    [
        (b"3,2026-06-01,NWT\n4,2026-06-01,NWT\n", ["t:3", "t:4"]),
        (b'3,2026-06-01,"NWT"\n"4",2026-06-01,NWT\n', ["t:3", "t:4"]),
        (b'"3\nx",2026-06-01,NWT\n4,"2026-06-01",NWT\n', ["t:3\nx", "t:4"]),
        (b"".join(b"%d,2026-06-01,NWT%s\n" % (number, b" " * 2000) for number in MANY), [f"t:{one}" for one in MANY]),
    ],
    ids=["no quotes", "quotes", "a cell of two lines", "many"],
)
def test_a_bad_row_is_refused_and_no_other_one(
    bad: bytes, reason: str, after: bytes, more: list[str], tmp_path: Path
) -> None:
    """Whatever is wrong with a row, it is refused by its line, and all rows after it are loaded in their order."""
    table = b"id,published,ticker\n1,2026-06-01,NWT\n" + bad + b"\n" + after
    made, refused = rows_of(tmp_path, ANALYSIS, table)

    assert [one.line for one in refused] == [3]
    assert reason in refused[0].reason
    assert [one["core"]["id"] for one in made] == ["t:1", *more]


@pytest.mark.parametrize(
    ("first", "end", "reason", "more"),
    [
        ('"2', '2",2026-06-01,N\rT', "a carriage return in the middle", []),
        ('"2', '2"\r,2026-06-01,NWT', "a carriage return in the middle", []),
        ('2,"2026-06-01', '",N\rT', "a carriage return in the middle", []),
        ('2,2026-06-01,"NWT', '4,2026-06-01,"N"\rT', "not closed", ["t:3"]),
    ],
    ids=["behind", "right behind", "in another cell", "never closed"],
)
def test_no_row_is_made_of_a_cell(first: str, end: str, reason: str, more: list[str], tmp_path: Path) -> None:
    """The text of a quoted cell that is closed stays text, also where its row is refused for a carriage return."""
    table = f"id,published,ticker\n1,2026-06-01,NWT\n{first}\n3,2026-06-01,NWT\n{end}\n5,2026-06-01,NWT\n"
    made, refused = rows_of(tmp_path, ANALYSIS, table)

    assert reason in refused[0].reason
    assert [one.line for one in refused] == ([3, 5] if more else [3])
    assert [one["core"]["id"] for one in made] == ["t:1", *more, "t:5"]


def test_other_tables(tmp_path: Path) -> None:
    """A byte order mark, other ends of lines, another delimiter, gzip, and columns that nobody asked for."""
    table = b"\xef\xbb\xbf" + b"id;published;ticker;what else\r\n1;2026-06-01;NWT;x\r\n\r\n2;2026-06-01;NWT;\r\n"
    text = 'delimiter = ";"\nconstants = { desk = "t" }\n' + ANALYSIS.replace('"t:{id}"', '"{desk}:{id}"')

    for content in (table, gzip.compress(table)):
        made, refused = rows_of(tmp_path, text, content, "calls.csv.gz")
        assert [line["core"]["id"] for line in made] == ["t:1", "t:2"]
        assert refused == []


def test_a_parquet_file_holds_what_csv_would(tmp_path: Path) -> None:
    """Times of every unit, with and without a zone, days, numbers, lists, bytes that are text, and what is missing."""
    at = datetime(2026, 6, 1, 14, 30, tzinfo=UTC)
    rows = {
        "id": pa.array(["1", "2", "3", "4"]).dictionary_encode(),
        "published": pa.array([at] * 4, pa.timestamp("ns", "America/New_York")),
        "day": pa.array([at.date(), None, None, None]),
        "confidence": pa.array([Decimal("0.25"), Decimal("0.50"), None, Decimal("0.75")]),
        "said": pa.array([b"Demand is strong.", "Größer.".encode(), b"\xe9", b"x"]),
        "tags": pa.array([["a", "b"], [], None, ["c"]]),
        "nanoseconds": pa.array([1_780_000_000_123_456_789] * 4, pa.timestamp("ns")),
    }
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table(rows), path, row_group_size=2)

    found = list(ParquetRows(LoadSource(path, "test")))

    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert found[0][1] == {
        "id": "1", "published": "2026-06-01T10:30:00-04:00", "day": "2026-06-01", "confidence": "0.25",
        "said": "Demand is strong.", "tags": ("a", "b"), "nanoseconds": "2026-05-28T20:26:40.123456",
    }  # fmt: skip
    assert isinstance(found[1][1], dict)
    assert (found[1][1]["said"], found[1][1]["tags"], found[1][1]["day"]) == ("Größer.", (), "")
    assert isinstance(found[2][1], BadInput)
    assert "not UTF-8" in str(found[2][1])


def test_cells_of_several_lines_are_kept(tmp_path: Path) -> None:
    """Also where their lines look like rows, or a quote stands inside, and at the end of the file."""
    texts = ["a\nb", "x,y,z\n1,2,3\n", 'he said "no"\nand "yes"', "\n\n", "end\n"]
    table = "id,published,ticker,text\n" + "".join(
        '{},2026-06-01,NWT,"{}"\n'.format(number, text.replace('"', '""')) for number, text in enumerate(texts)
    )
    text = ANALYSIS.replace('kind = "call"', 'kind = "call"\nsummary = "{text}"')
    made, refused = rows_of(tmp_path, text, table.removesuffix("\n"))

    assert refused == []
    assert [one["core"].get("summary") for one in made] == [text.strip() or None for text in texts]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_whole_numbers_of_a_column_of_floats_are_integers(kind: pa.DataType, tmp_path: Path) -> None:
    """Whatever the other rows hold, so that a key is the same in each file; NaN is a gap, and text stays text."""
    big = 2**53 + 1
    rows = {
        "own": pa.array([big, None, 5], pa.int64()),
        "gap": pa.array([123.0, None, -0.0], kind),
        "nan": pa.array([float("nan"), 7.0, 0.5], kind),
        "no gap": pa.array([123.0, 5.0, -1.0], kind),
        "infinite": pa.array([float("inf"), None, 2.0], kind),
        "list": pa.array([[1.0, 0.5, None], None, [float("nan"), 2.0]], pa.list_(kind)),
        "text": pa.array(["1.0", None, "2.50"]),
    }
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table(rows), path)

    assert [row for _, row in ParquetRows(LoadSource(path, "test"))] == [
        {"own": str(big), "gap": "123", "nan": "", "no gap": "123", "infinite": "inf", "list": ("1", "0.5", ""),
         "text": "1.0"},
        {"own": "", "gap": "", "nan": "7", "no gap": "5", "infinite": "", "list": "", "text": ""},
        {"own": "5", "gap": "0", "nan": "0.5", "no gap": "-1", "infinite": "2", "list": ("", "2"), "text": "2.50"},
    ]  # fmt: skip


def test_floats_beyond_the_exact_whole_numbers_stay_floats(tmp_path: Path) -> None:
    """Where a float stands for several integers, none of them is chosen."""
    exact = [2.0**53, -(2.0**53), 2.0**53 + 2, 1e300]
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table({"x": exact}), path)

    found = [row["x"] for _, row in ParquetRows(LoadSource(path, "test")) if isinstance(row, dict)]

    assert found == [str(2**53), str(-(2**53)), str(2.0**53 + 2), "1e+300"]


def test_the_types_of_parquet(tmp_path: Path) -> None:
    """What a file says of its columns is what a row holds, whatever the unit; objects are JSON."""
    rows = {
        "bool": pa.array([True, None]),
        "day": pa.array([date(2026, 6, 1), None]),
        "decimal": pa.array([Decimal("1E-8"), None], pa.decimal128(20, 8)),
        "seconds": pa.array([1_780_000_000, None], pa.timestamp("s", "UTC")),
        "times": pa.array([[1_780_000_000_123_456_789], None], pa.list_(pa.timestamp("ns"))),
        "time": pa.array([1_001, None], pa.time64("ns")),
        "uint": pa.array([2**64 - 1, None], pa.uint64()),
        "object": pa.array([{"a": 1, "b": [True]}, None]),
    }
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table(rows), path)

    (_, first), (_, second) = ParquetRows(LoadSource(path, "test"))

    assert first == {
        "bool": "True", "day": "2026-06-01", "decimal": "0.00000001", "seconds": "2026-05-28T20:26:40+00:00",
        "times": ("2026-05-28T20:26:40.123456",), "time": "00:00:00.000001", "uint": str(2**64 - 1),
        "object": '{"a": 1, "b": [true]}',
    }  # fmt: skip
    assert isinstance(second, dict)
    assert set(second.values()) == {""}


NS = pa.timestamp("ns")
TIME = 1_780_000_000_123_456_001
READ = "2026-05-28T20:26:40.123456"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.struct([pa.field("t", NS, nullable=False)]), {"t": TIME}, f'{{"t": "{READ}"}}'),
        (pa.list_(NS, 2), [TIME, None], (READ, "")),
        (pa.list_(pa.list_(NS), 1), [[TIME, TIME]], (f"{READ};{READ}",)),
        (pa.list_(pa.struct([("t", pa.list_(NS, 1))])), [{"t": [TIME]}], (f'{{"t": ["{READ}"]}}',)),
        (pa.large_list(NS), [TIME], (READ,)),
        (pa.map_(pa.string(), NS), [("a", TIME)], (f'["a", "{READ}"]',)),
        (pa.struct([("t", pa.time64("ns"))]), {"t": 1_001}, '{"t": "00:00:00.000001"}'),
        (pa.struct([("t", pa.duration("ns"))]), {"t": 1_001}, '{"t": "0:00:00.000001"}'),
    ],
    ids=str,
)
def test_nanoseconds_within_other_types(
    kind: pa.DataType, value: object, expected: str | tuple[str, ...], tmp_path: Path
) -> None:
    """However deep a time stands, it is truncated to microseconds; its row is not refused."""
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table({"x": pa.array([value, None], kind)}), path)

    assert list(ParquetRows(LoadSource(path, "test"))) == [(1, {"x": expected}), (2, {"x": ""})]


def test_a_row_of_parquet_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    """Text that is not UTF-8, and days that no calendar has; the rows around them are loaded."""
    broken = pa.StringArray.from_buffers(3, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"1\xff3"))
    path = tmp_path / "calls.parquet"
    for column, reason in ((broken, "not UTF-8"), (pa.array([1, 10**7, 3], pa.date32()), "outside the years")):
        parquet.write_table(pa.table({"id": column}), path)
        found = [row for _, row in ParquetRows(LoadSource(path, "test"))]
        assert [isinstance(row, BadInput) for row in found] == [False, True, False]
        assert reason in str(found[1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"{x}"', ["a;b", "c"]),
        ('{ value = "{x}", split = "|" }', ["a;b", "c"]),
        ('{ value = "{x}|{rest}", split = "|" }', ["a;b", "c", "1"]),
        ('{ value = "{x}", default = "d" }', ["a;b", "c"]),
    ],
)
def test_a_list_of_parquet_keeps_its_items(value: str, expected: list[str], tmp_path: Path) -> None:
    """Whatever the map splits texts at; beside other text its items are joined by that."""
    text = FINDING.replace("{field}", "key_drivers").replace("{value}", value)
    path = tmp_path / "calls.parquet"
    parquet.write_table(pa.table({"x": [["a;b", " c ", ""], [], None], "rest": ["1", "", ""]}), path)

    made, refused = rows_of(tmp_path, text, path.read_bytes(), path.name)

    assert refused == [] or "default" in value
    assert made[0]["core"]["key_drivers"] == expected


@pytest.mark.parametrize(
    ("cell", "expected"), [("3", 3), ("3.0", 3), ("3.", 3), ("3.5", None), ("3e0", None), ("nan", None)]
)
def test_a_whole_number_that_a_column_of_floats_holds(cell: str, expected: int | None, tmp_path: Path) -> None:
    """Integers with gaps become floats in pandas; what is no whole number is still refused."""
    text = ANALYSIS.replace('kind = "Analysis"', 'kind = "Outcome"').replace('date = "{published}"', "")
    text = text.replace(
        'kind = "call"',
        'metric = "up"\nactual = 1\ntarget_at = "2026-05-01T00:00:00Z"\nobserved_at = "{published}"\nvintage = "{x}"',
    )
    made, refused = rows_of(tmp_path, text, f"id,published,ticker,x\n1,2026-06-01,NWT,{cell}\n")

    assert [line["core"]["vintage"] for line in made] == ([] if expected is None else [expected])
    assert [one.field for one in refused] == (["Outcome: core.vintage"] if expected is None else [])


@pytest.mark.parametrize("name", ["-", "pipe"])
def test_parquet_from_a_pipe_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    """Its index stands at the end: neither standard input nor a named pipe is waited for or read."""
    (tmp_path / "map.toml").write_text(ANALYSIS)
    parquet.write_table(pa.table({"id": ["1"], "published": ["2026-06-01"], "ticker": ["NWT"]}), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    nowhere = {"IMEM_HOME": str(tmp_path / "none"), "PYTHONPATH": str(TOP), "PATH": ""}
    command = [sys.executable, "-m", "imem", "load", "--map", "map.toml", "--dry-run", name]
    os.mkfifo(tmp_path / "pipe")
    with (
        suppress(BrokenPipeError),
        subprocess.Popen(command, cwd=tmp_path, env=nowhere, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as done,
    ):
        assert done.stdin is not None
        assert done.stderr is not None
        if name == "pipe":
            with (tmp_path / "pipe").open("wb") as pipe, suppress(BrokenPipeError):
                pipe.write(content)
        else:
            done.stdin.write(content)
            done.stdin.close()
        said = done.stderr.read().decode()

    assert "cannot be read from a pipe" in said
    assert "Traceback" not in said
    assert done.returncode == 1


def test_the_same_table_as_parquet_and_as_csv(tmp_path: Path) -> None:
    """The lines of the how-to's table are the same ones, whichever file holds it; refusals name the row."""
    header, *lines = list(csv.reader(block("text").splitlines()))
    columns = {name: [line[place] or None for line in lines] for place, name in enumerate(header)}
    (tmp_path / "parquet").mkdir()
    path = tmp_path / "parquet" / "calls.parquet"
    parquet.write_table(pa.table(columns), path)

    made, refused = rows_of(tmp_path, block("toml"), block("text"))
    of_parquet, refused_of_parquet = rows_of(tmp_path / "parquet", block("toml"), path.read_bytes(), path.name)

    assert of_parquet == made
    assert [(one.line, one.column, one.field) for one in refused_of_parquet] == [
        (one.line - 1, one.column, one.field) for one in refused
    ]
