"""Tables that a map makes lines of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from imem.ingest.line_reader import LoadSource, RefusedLine, opened
from imem.ingest.table_map import read_map
from imem.kg.load_format.entries import object_of

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "load-your-own-data.md"

ANALYSIS = """
known_at = "{published}"
[[record]]
kind = "Analysis"
[record.core]
id = "t:{id}"
subject_id = "company:{ticker}"
date = "{published}"
kind = "call"
"""


def rows_of(
    folder: Path, text: str, table: str | bytes, name: str = "calls.csv"
) -> tuple[list[dict[str, Any]], list[RefusedLine]]:
    """Return the lines that a map makes of a table, as they would be stored, and what is refused."""
    (folder / "map.toml").write_text(text)
    path = folder / name
    path.write_bytes(table.encode() if isinstance(table, str) else table)
    made: list[dict[str, Any]] = []
    refused: list[RefusedLine] = []
    with opened(LoadSource(path, "test", mapping=read_map(folder / "map.toml"))) as batches:
        while (batch := batches.next_batch()) is not None:
            made += [object_of(one.line) for one in batch.lines]
            refused += batch.refused
            assert len(batch.numbers) == len(batch.lines)
    return made, refused


FINDING = """
known_at = "2026-06-01T10:00:00Z"
[[record]]
kind = "Finding"
[record.core]
id = "f"
analysis_id = "a"
subject_id = "company:NWT"
agent = "ann"
domain = "d"
statement = "s"
{field} = {value}
"""


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", HOWTO.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]
