"""What is wrong with a file of lines is said by file, line, field and reason, and ends in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from imem.ingest.line_reader import (
    BLANK_BYTES,
    ENDLESS_BYTES,
    LoadSource,
    RefusedLine,
    UnreadableFile,
    opened,
    sources_of,
)
from imem.journal.errors import BadInput
from imem.kg.load_format.lines import LINE_BYTES

KNOWN = "2026-06-01T10:00:00Z"
CORE = {
    "id": "f", "analysis_id": "a", "subject_id": "company:NWT", "agent": "ann", "domain": "d", "statement": "It rises.",
}  # fmt: skip
TARGET = "2026-06-05T20:00:00Z"
OUTCOME = {
    "id": "o", "subject_id": "company:NWT", "metric": "up", "target_at": KNOWN, "actual": 1, "observed_at": KNOWN,
    "vintage": 0,
}  # fmt: skip


def line(**members: Any) -> bytes:
    """Return a line with *members*; with those that are None left out."""
    return json.dumps({name: value for name, value in members.items() if value is not None}).encode()


def finding(**fields: Any) -> bytes:
    return line(record="Finding", known_at=KNOWN, core={**CORE, **fields})


def raw(field: str, text: str) -> bytes:
    """Return a finding with *field* stated as the JSON *text*."""
    return finding(**{field: "HERE"}).replace(b'"HERE"', text.encode())


def link(**members: Any) -> bytes:
    whole = {"link": "PERFORMED", "from": {"Agent": "ann"}, "to": {"Analysis": "a"}, "props": {"role": "lead"}}
    return line(**{**whole, "known_at": KNOWN, **members})


GOOD = finding()

KINDS_OF_WRONG: dict[str, tuple[bytes, str, str]] = {
    # no line of JSON
    "cut off": (GOOD[:-5], "line", "is no JSON"),
    "trailing garbage": (GOOD + b" xyz", "line", "is no JSON"),
    "two objects in a line": (GOOD + GOOD, "line", "is no JSON"),
    "single quotes": (GOOD.replace(b'"', b"'"), "line", "is no JSON"),
    "trailing comma": (GOOD[:-1] + b",}", "line", "is no JSON"),
    "comment": (GOOD + b" // so it is", "line", "is no JSON"),
    "control character in a string": (raw("statement", '"a\tb"'), "line", "is no JSON"),
    "byte order mark inside": (b" \xef\xbb\xbf" + GOOD, "line", "is no JSON"),
    "only NUL bytes": (b"\0" * 100, "line", "is no JSON"),
    "UTF-16": (GOOD.decode().encode("utf-16"), "line", "is not UTF-8"),
    "Latin-1": (raw("statement", '"café"').decode().encode("latin-1"), "line", "is not UTF-8"),
    "two encodings in a line": (raw("statement", '"é"') [:-3] + b'\xe9"}}', "line", "is not UTF-8"),
    "encoded surrogate": (GOOD.replace(b"It rises", b"\xed\xa0\x80"), "line", "is not UTF-8"),
    "gzip inside": (gzip.compress(GOOD), "line", "is not UTF-8"),
    "over-long": (finding(statement="x" * LINE_BYTES), "line", "is longer than"),
    "deep": (finding(distribution={"a": json.loads("[" * 20 + "]" * 20)}), "line", "is nested deeper"),
    "very deep": (b'{"a":' + b"[" * 100_000, "line", "is nested deeper"),
    "list": (b"[" + GOOD + b"]", "line", "must be an object"),
    "null": (b"null", "line", "must be an object"),
    "empty object": (b"{}", "line", "has none"),
    "two kinds of line": (line(record="Finding", link="PERFORMED", known_at=KNOWN), "line", "'record' and 'link'"),
    "a key twice": (raw("agent", '"ann", "agent": "bob"'), "agent", "stands twice"),
    "a member twice": (GOOD[:-1] + b', "record": "Finding"}', "record", "stands twice"),
    "number of 5,000 digits": (raw("value", "9" * 5000), "line", "too many digits"),
    # what it is
    "unknown kind": (line(record="Fnding", known_at=KNOWN, core=CORE), "record", "Did you mean Finding?"),
    "kind of another type": (line(record=5, known_at=KNOWN, core=CORE), "record", "name of a kind"),
    "governed kind": (line(record="AgentCredibility", known_at=KNOWN, core={}), "record", "only the credibility"),
    "unknown member": (GOOD[:-1] + b', "role": "human_admin"}', "role", "is no field of a record line"),
    # core
    "no core": (line(record="Finding", known_at=KNOWN), "core", "is required"),
    "core of another type": (line(record="Finding", known_at=KNOWN, core=[]), "core", "must be an object"),
    "unknown field": (finding(agnet="ann"), "core.agnet", "Did you mean agent?"),
    "missing field": (line(record="Finding", known_at=KNOWN, core={"id": "f"}), "core.analysis_id", "is required"),
    "null for what is required": (raw("agent", "null"), "core.agent", "must be a string"),
    "number for text": (finding(statement=5), "core.statement", "must be a string"),
    "text for number": (finding(probability="0.5"), "core.probability", "must be a number"),
    "truth for number": (finding(probability=True), "core.probability", "must be a number"),
    "text for list": (finding(key_drivers="x"), "core.key_drivers", "must be a list"),
    "number in a list of texts": (finding(key_drivers=["x", 1]), "core.key_drivers.1", "must be a string"),
    "fraction for whole number": (
        line(record="Outcome", known_at=KNOWN, core={**OUTCOME, "vintage": 1.5}), "core.vintage", "a whole number"),
    "beyond 64 bits": (
        line(record="Outcome", known_at=KNOWN, core={**OUTCOME, "vintage": 2**70}), "core.vintage", "must be at most"),
    "NaN": (raw("probability", "NaN"), "core.probability", "finite"),
    "Infinity": (raw("value", "-Infinity"), "core.value", "finite"),
    "beyond doubles": (raw("value", "1e999"), "core.value", "finite"),
    "NaN inside JSON": (finding(distribution='{"a": NaN}'), "core.distribution", "not finite"),
    "percent for probability": (finding(probability=55), "core.probability", "between 0 and 1"),
    "unknown choice": (finding(direction="up"), "core.direction", "'positive', 'negative' or 'neutral'"),
    "empty key": (finding(id=""), "core.id", "must not be empty"),
    "long key": (finding(id="x" * 201), "core.id", "longer than 200"),
    "agent with a slash": (finding(agent="a/b"), "core.agent", "holds a /"),
    "subject without its kind": (finding(subject_id="NWT"), "core.subject_id", "company:<ticker>"),
    "NUL": (finding(statement="a\0b"), "core.statement", "NUL"),
    "surrogate in a text": (finding(statement="\ud800"), "core.statement", "lone surrogate"),
    "surrogate in a key": (finding(id="\udc00"), "core.id", "lone surrogate"),
    "surrogate in a name": (finding(**{"\ud800": 1}), "core", "lone surrogate"),
    "surrogate in a body": (line(record="Finding", known_at=KNOWN, core=CORE, body="\udfff"), "body", "lone surrogate"),
    "surrogate in JSON": (finding(distribution={"\ud800": 1}), "core.distribution", "lone surrogate"),
    "key that is not the core's": (line(record="Finding", known_at=KNOWN, core=CORE, key="g"), "key", "is not the id"),
    # times
    "no known_at": (line(record="Finding", core=CORE), "known_at", "is required"),
    "naive time": (line(record="Finding", known_at=KNOWN[:-1], core=CORE), "known_at", "must name its zone"),
    "day alone": (line(record="Finding", known_at="2026-06-01", core=CORE), "known_at", "must be a time"),
    "seconds since 1970": (line(record="Finding", known_at=1780308000, core=CORE), "known_at", "must be a time"),
    "month 13": (line(record="Finding", known_at="2026-13-01T10:00:00Z", core=CORE), "known_at", "does not exist"),
    "year 1": (line(record="Finding", known_at="0001-01-01T00:00:00Z", core=CORE), "known_at", "years 1800 to 2299"),
    "year 1 in another zone": (
        line(record="Finding", known_at="0001-01-01T00:00:00+10:00", core=CORE), "known_at", "years 1800 to 2299"),
    "year 9999": (
        finding(metric="up", probability=0.5, target_at="9999-12-31T23:59:59Z"), "core.target_at", "1800 to 2299"),
    "year 58000": (
        line(record="Finding", known_at=KNOWN, occurred_at="58384-01-01T00:00:00Z", core=CORE),
        "occurred_at", "must be a time"),
    # claims and outcomes
    "unknown metric": (finding(metric="mood", target_at=TARGET), "core.metric", "no registered metric"),
    "claim without target": (finding(metric="up", probability=0.5), "core.target_at", "is needed"),
    "claim without its forecast": (finding(metric="up", target_at=TARGET), "core.probability", "is needed"),
    "claim at its target": (
        finding(metric="up", probability=0.5, target_at=KNOWN), "core.target_at", "is not after known_at"),
    "claim after its target": (
        finding(metric="up", probability=0.5, target_at="2026-05-29T20:00:00Z"), "core.target_at", "is not after"),
    "outcome before its target": (
        line(record="Outcome", known_at=KNOWN, core={**OUTCOME, "target_at": TARGET}), "known_at", "before target_at"),
    # groups, bodies, turns
    "groups of another type": (line(record="Finding", known_at=KNOWN, core=CORE, groups=[]), "groups", "an object"),
    "unknown group": (line(record="Finding", known_at=KNOWN, core=CORE, groups={"x": {}}), "groups.x", "no group"),
    "late group that is wrong": (
        line(record="Market", known_at=KNOWN, key="m", groups={"resolution": {"resolved_at": KNOWN}}),
        "groups.resolution.resolution", "is required"),
    "late groups without any": (line(record="Market", known_at=KNOWN, key="m"), "groups", "is required"),
    "body of another type": (line(record="Finding", known_at=KNOWN, core=CORE, body=["x"]), "body", "a string"),
    "long body": (line(record="Finding", known_at=KNOWN, core=CORE, body="x" * 70_000), "body", "is longer than"),
    "turns of what is no debate": (line(record="Finding", known_at=KNOWN, core=CORE, turns=[]), "turns", "a Debate"),
    # links
    "unknown link": (link(link="PERFORMD"), "link", "Did you mean PERFORMED?"),
    "link without an end": (link(to=None), "to", "one member"),
    "end of two nodes": (link(to={"Analysis": "a", "Agent": "b"}), "to", "one member"),
    "end of an unknown kind": (link(to={"Planet": "x"}), "to", "no kind of record"),
    "ends that do not fit": (link(**{"from": {"Analysis": "a"}}), "to", "does not lead from"),
    "end with an empty key": (link(to={"Analysis": ""}), "to.Analysis", "must not be empty"),
    "link to itself": (
        line(link="PEER_OF", known_at=KNOWN, **{"from": {"Company": "x"}, "to": {"Company": "x"}}),
        "to", "starts from"),
    "unknown property of a link": (link(props={"rule": "lead"}), "props.rule", "no field of PERFORMED"),
    "link that a record implies": (
        line(link="STATED", known_at=KNOWN, **{"from": {"Agent": "x"}, "to": {"Finding": "f"}}), "link", "implies it"),
    # corrections
    "correction without a reason": (line(correct="Finding", known_at=KNOWN, core=CORE), "reason", "is required"),
    "correction without a core": (line(correct="Finding", known_at=KNOWN, reason="r"), "core", "is required"),
    "correction of groups": (
        line(correct="Finding", known_at=KNOWN, reason="r", core=CORE, groups={}), "groups", "no field"),
}  # fmt: skip


def refused_in(path: Path) -> tuple[int, list[RefusedLine]]:
    """Return how many lines of a file can be stored, and those that cannot."""
    stored, refused = 0, []
    with opened(LoadSource(path, "test")) as lines:
        while (batch := lines.next_batch()) is not None:
            stored += len(batch.lines)
            refused += batch.refused
    return stored, refused


@pytest.mark.spec("AC-6")
@pytest.mark.parametrize("wrong", KINDS_OF_WRONG)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_what_is_wrong_is_said_by_line_field_and_reason(wrong: str, packed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    """One bad line between good ones is refused by name, and they are stored."""
    bad, field, reason = KINDS_OF_WRONG[wrong]
    content = b"\n".join([GOOD, b"", bad.replace(b"\n", b" "), GOOD]) + b"\n"
    path = tmp_path / "desk.jsonl"
    path.write_bytes(gzip.compress(content) if packed else content)

    stored, refused = refused_in(path)

    assert [(one.file, one.line, one.field) for one in refused] == [(str(path), 3, field)]
    assert reason in refused[0].reason
    assert refused[0].reason.isprintable()
    assert stored == 2


@pytest.mark.parametrize("ending", [b"\r\n", b"\n", b" \n\t\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_other_ends_and_a_byte_order_mark_are_read(start: bytes, ending: bytes, tmp_path: Path) -> None:
    """What other systems put at the beginning of a file and at the end of a line is no mistake."""
    path = tmp_path / "desk.jsonl"
    path.write_bytes(start + ending.join([GOOD, GOOD]))

    assert refused_in(path) == (2, [])


def test_a_gzip_that_breaks_off_says_so(tmp_path: Path) -> None:
    """The damage is named with the line before it; so is that of a checksum."""
    whole = gzip.compress(b"\n".join([GOOD] * 50))
    for damaged in (whole[:-20], whole[:-8] + bytes(8)):
        path = tmp_path / "desk.jsonl.gz"
        path.write_bytes(damaged)
        with pytest.raises(UnreadableFile, match="is damaged after line"):
            refused_in(path)


def zipped(path: Path, chunk: bytes, times: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(times):
            file.write(chunk)
    return path


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (b"\n" * (1 << 20), f"more than {BLANK_BYTES:,} bytes of blank lines"),
        (b" \t\r\n" * (1 << 18), f"more than {BLANK_BYTES:,} bytes of blank lines"),
        (b"x" * (1 << 20), f"no end of line within {ENDLESS_BYTES:,} bytes"),
        (b"\0" * (1 << 20), f"no end of line within {ENDLESS_BYTES:,} bytes"),
    ],
    ids=["newlines", "spaces", "one line", "NULs"],
)
def test_a_small_file_that_unpacks_without_end(chunk: bytes, said: str, tmp_path: Path) -> None:
    """300 MB of nothing in 300 kB of gzip: the load ends at a bound, with a sentence, in little memory."""
    path = zipped(tmp_path / "bomb.jsonl.gz", chunk, 300)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableFile, match=said) as caught:
            refused_in(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert str(path) in str(caught.value)
    assert peak < 20 << 20


def test_blank_lines_between_lines_add_up_to_nothing(tmp_path: Path) -> None:
    """Only what stands in a row counts."""
    path = tmp_path / "desk.jsonl"
    path.write_bytes((b"\n" * (BLANK_BYTES // 2) + GOOD + b"\n") * 4)

    assert refused_in(path) == (4, [])


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("/dev/random"), bind],
    ids=["zero", "random", "socket"],
)
def test_what_never_ends_is_not_read(make: Callable[[Path], object], tmp_path: Path) -> None:
    """A device or a socket is refused by name, also where a link leads to it, or does so only when it is opened."""
    path = tmp_path / "endless.jsonl"
    make(path)

    with pytest.raises(BadInput, match="is a device or a socket"):
        sources_of([str(path)])
    if path.is_symlink():
        with pytest.raises(UnreadableFile, match="is a device or a socket"), opened(LoadSource(path, "test")):
            pass


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """Its writer ends it, like that of standard input."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(GOOD + b"\n" + GOOD))
    writer.start()
    try:
        [source] = sources_of([str(path)], "test")
        assert source.path is not None
        assert refused_in(source.path) == (2, [])
    finally:
        writer.join()


def test_devices_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    """Of a folder, regular files alone are read."""
    (tmp_path / "endless.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "desk.jsonl").write_bytes(GOOD)

    assert [source.path for source in sources_of([str(tmp_path)])] == [tmp_path / "desk.jsonl"]


def test_standard_input_is_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is refused as a path is refused behind a dash too; files, pipes and sockets are read."""
    (tmp_path / "desk.jsonl").write_bytes(GOOD)
    with ExitStack() as stack:
        for path in ("/dev/zero", "/dev/null"):
            monkeypatch.setattr(sys, "stdin", stack.enter_context(Path(path).open()))
            with pytest.raises(BadInput, match="is a terminal or another device"):
                sources_of(["-"])
        ends = [stack.enter_context(os.fdopen(end, mode)) for end, mode in zip(os.pipe(), "rw", strict=True)]
        pair = [stack.enter_context(one) for one in socket.socketpair()]
        for good in (stack.enter_context((tmp_path / "desk.jsonl").open()), ends[0], pair[0]):
            monkeypatch.setattr(sys, "stdin", good)
            assert [source.path for source in sources_of(["-"])] == [None]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="is closed"):
        sources_of(["-"])
