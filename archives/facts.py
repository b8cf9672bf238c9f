"""The facts in the journal from which the archive and the retention of a pattern follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from imem.archives.scoring import LATE_STATUSES, Criticality, criticality_of, impact_of, tier_of
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.kg.kinds.catalog import KINDS
from imem.kg.kinds.enums import PatternStatus

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFacts:
    """
    A pattern with its evidence, in JSON types.

    Attributes:
        pattern_id, core, groups: of the record.
        statuses: each status and when it became known, the oldest first.
        tests, shadows: its validations and repeated analyses, the oldest first.
        decisions: those that cite it.
        analyses: those that found it, each with what agents recorded in it.
        files: files that support it.
        missing: evidence of which there is no record.
        regimes: of the market while tests that were passed ran.
    """

    pattern_id: str
    core: Record
    groups: Mapping[str, Record]
    statuses: Sequence[Record]
    tests: Sequence[Record] = ()
    shadows: Sequence[Record] = ()
    decisions: Sequence[Record] = ()
    analyses: Sequence[Record] = ()
    work: Sequence[Record] = ()
    files: Sequence[Record] = ()
    missing: Sequence[str] = ()
    regimes: Sequence[str] = field(default=())

    @property
    def evidence(self) -> Record:
        """The group of its evidence; empty if none is recorded."""
        return self.groups.get("evidence", {})

    @property
    def confidence(self) -> float | None:
        """Its recorded confidence, else its hit rate in the test part, 0 to 1; None if neither is recorded."""
        stated = self.evidence.get("confidence_score")
        return stated if stated is not None else self.groups.get("validation", {}).get("test_correlation")

    @property
    def status(self) -> str | None:
        """Its status; None if none is recorded."""
        return self.groups.get("status", {}).get("status")

    @property
    def deprecated_at(self) -> str | None:
        """When it became deprecated, as text; None if it is not."""
        since = None
        for one in self.statuses:
            since = (since or one["known_at"]) if one["status"] == PatternStatus.DEPRECATED else None
        return since if self.status == PatternStatus.DEPRECATED else None

    @property
    def impact(self) -> float | None:
        """The greatest impact of a decision that cites it, or the recorded one if no decision has a size."""
        known = [impact_of(one["core"].get("size_usd")) for one in self.decisions]
        return max((one for one in known if one is not None), default=self.evidence.get("impact_score"))

    @property
    def criticality(self) -> Criticality:
        """How critical it is."""
        return criticality_of(
            used=bool(self.decisions), confidence=self.confidence, impact=self.impact,
            validations=len(self.tests),
        )  # fmt: skip

    @property
    def wanted_tier(self) -> int:
        """The tier that its evidence deserves."""
        late = any(one["status"] in LATE_STATUSES for one in self.statuses)
        validated = any(one["core"]["passed"] for one in self.tests)
        return tier_of(
            critical=self.criticality.critical, validated=validated, ended_late=self.deprecated_at is not None and late
        )


async def facts_of(conn: Connection, patterns: Sequence[str]) -> dict[str, PatternFacts]:
    """Return pattern → its facts for those of *patterns* that are recorded, by statements of one transaction."""
    given = {"patterns": sorted(set(patterns))}
    found = {row["key"]: row for row in await rows(conn, "archive_patterns", given)}
    tests = _by_pattern(await rows(conn, "archive_tests", given))
    decisions = _by_pattern(await rows(conn, "archive_decisions", given))
    analyses = _by_pattern(await rows(conn, "archive_analyses", given))
    files = _by_pattern(await rows(conn, "archive_files", given))
    regimes = _by_pattern(await rows(conn, "archive_regimes", given))
    ids = sorted({one["key"] for some in analyses.values() for one in some})
    work: dict[str, list[Record]] = {}
    for row in await rows(conn, "archive_agent_work", {"analyses": ids}):
        work.setdefault(row["analysis_id"], []).append(row)
    evidence = {key: row["groups"].get("evidence", {}).get("evidence_refs") or [] for key, row in found.items()}
    keys = sorted({ref for refs in evidence.values() for ref in refs})
    known = {row["key"] for row in await rows(conn, "archive_known_keys", {"kinds": sorted(KINDS), "keys": keys})}
    return {
        key: PatternFacts(
            pattern_id=key, core=row["core"], groups=row["groups"], statuses=row["statuses"],
            tests=[one for one in tests.get(key, ()) if one["kind"] == "PatternValidation"],
            shadows=[one for one in tests.get(key, ()) if one["kind"] == "ShadowAnalysis"],
            decisions=decisions.get(key, ()), analyses=analyses.get(key, ()),
            work=[one for analysis in analyses.get(key, ()) for one in work.get(analysis["key"], ())],
            files=[one for one in files.get(key, ()) if one["recorded"] or one["file_id"] not in evidence[key]],
            missing=[ref for ref in evidence[key] if ref not in known],
            regimes=[one["regime"] for one in regimes.get(key, ())],
        )
        for key, row in found.items()
    }  # fmt: skip


def _by_pattern(found: Sequence[Record]) -> dict[str, list[Record]]:
    by_pattern: dict[str, list[Record]] = {}
    for row in found:
        by_pattern.setdefault(row["pattern_id"], []).append(row)
    return by_pattern


def moment_of(text: str | None) -> datetime | None:
    """Return a moment of Postgres' JSON."""
    return datetime.fromisoformat(text) if text is not None else None
