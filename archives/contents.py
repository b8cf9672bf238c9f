"""
The contents of an archive: plain JSON and copies of files, which open without the product.

::

    pattern_archives/<pattern>/archive_metadata.json          the manifest, written last
    pattern_archives/<pattern>/manifests/<version>.json       a copy of each version of it
    pattern_archives/<pattern>/tier1/metadata.json            and processed_summary.json, analysis_snapshot.json
    pattern_archives/<pattern>/tier2/all_tier1_content/…      the same three
    pattern_archives/<pattern>/tier2/agent_analysis/…         findings and debates
    pattern_archives/<pattern>/tier2/processed_data/…         files, by what they hold
    pattern_archives/<pattern>/tier<n>/validation_history/…   one object for each test, by its date
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from imem.archives.facts import PatternFacts, Record
from imem.archives.scoring import TIER_1, TIER_2
from imem.journal.endpoints.objects import sha256_of
from imem.kg.kinds.enums import ArchiveContent

ROOT: Final = "pattern_archives"

LONGEST_NAME: Final = 150
"""Longest part of a key that is the quoted id itself; a longer one ends in a hash: file systems allow 255 bytes."""

PROCESSED: Final = ("ratios", "peer_comparisons")
"""Folders of processed files; a file whose path names none of them belongs to ``financial_statements``."""

MEMBERS: Final = ("kind", "key", "known_at", "core", "outcome", "body")
"""Columns of a record that are archived."""

CONTENT_TYPES: Final[Mapping[int, tuple[ArchiveContent, ...]]] = {
    TIER_1: (ArchiveContent.METADATA, ArchiveContent.PROCESSED_SUMMARY, ArchiveContent.ANALYSIS_SNAPSHOT),
    TIER_2: tuple(ArchiveContent),
}
"""Tier → what its archive holds from the start."""


def name_of(key: str) -> str:
    """Return *key* as a part of an object's key: other keys have other names, and no name leaves its folder."""
    name = quote(key, safe="").replace(".", "%2E").replace("~", "%7E")
    return name if len(name) <= LONGEST_NAME else f"{name[:80]}~{sha256_of(key.encode())}"


_FIRST: Final = ("metadata.json", "processed_summary.json", "analysis_snapshot.json")

DOCUMENTS: Final[Mapping[int, tuple[str, ...]]] = {
    TIER_1: _FIRST,
    TIER_2: (
        *(f"all_tier1_content/{name}" for name in _FIRST), "agent_analysis/findings.json",
        "agent_analysis/debates.json", "agent_analysis/shadow_analyses.json", "processed_data/files.json",
    ),
}  # fmt: skip
"""Paths of what each archive of a tier holds, whatever the pattern."""


def folder_of(pattern_id: str) -> str:
    """Return the key below which the archives of a pattern are."""
    return f"{ROOT}/{name_of(pattern_id)}"


def plain(value: object) -> bytes:
    """Return *value* as JSON that a person can read, the same for the same value."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
    return orjson.dumps(value, option=options, default=str)


def documents_of(facts: PatternFacts, tier: int) -> dict[str, bytes]:
    """Return the path below the tier's folder → content of what a new archive holds, but for tests and files."""
    first = {
        "metadata.json": {
            "pattern": dict(facts.core), "groups": dict(facts.groups), "statuses": list(facts.statuses),
            "regimes": list(facts.regimes), "decisions": [_whole(one) for one in facts.decisions],
        },
        "processed_summary.json": {
            "tests": [_whole(one) for one in facts.tests], "files": [_file(one) for one in facts.files],
            "evidence_refs": list(facts.evidence.get("evidence_refs") or ()),
        },
        "analysis_snapshot.json": {"analyses": [_whole(one) for one in facts.analyses]},
    }  # fmt: skip
    if tier == TIER_1:
        return {name: plain(content) for name, content in first.items()}
    debates = [one for one in facts.work if one["kind"] != "Finding"]
    second = {
        **{f"all_tier1_content/{name}": content for name, content in first.items()},
        "agent_analysis/findings.json": [_whole(one) for one in facts.work if one["kind"] == "Finding"],
        "agent_analysis/debates.json": [_whole(one) for one in debates],
        "agent_analysis/shadow_analyses.json": [_whole(one) for one in facts.shadows],
        "processed_data/files.json": [_file(one) for one in facts.files],
    }
    return {name: plain(content) for name, content in second.items()}


def test_document(test: Record) -> tuple[str, bytes]:
    """Return the path of a test's object, which begins with its date, and the content; a corrected test has another."""
    date = str(test["core"].get("test_end_date") or test["core"]["test_start_date"])[:10]
    content = plain(_whole(test))
    return f"validation_history/{date}-{name_of(test['key'])}-{sha256_of(content)[:8]}.json", content


def file_path(file_id: str) -> str:
    """Return the path below the folder of Tier 2 of the copy of a file."""
    parts = file_id.split("/")
    folder = next((one for one in PROCESSED if one in parts[:-1]), "financial_statements")
    return f"processed_data/{folder}/{name_of(file_id)}"


def _whole(row: Record) -> dict[str, Any]:
    """Return a record as the journal has it."""
    return {name: row[name] for name in MEMBERS if row.get(name) is not None}


def _file(row: Record) -> dict[str, Any]:
    return {name: row[name] for name in ("file_id", "created_at", "size_mb")}
