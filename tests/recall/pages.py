"""Briefings made of values, to be rendered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from imem.recall.model import (
    Briefing,
    ClaimSummary,
    DatedRecord,
    DebatesSection,
    HistoryItem,
    HistorySection,
    RecordsSection,
    ReviewedDecision,
    SettledFinding,
    Subject,
    TrackRecordItem,
    TrackRecordsSection,
)

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)


def record(kind: str, key: str, days: float, /, **core: Any) -> DatedRecord:
    """Return a record that was known so many days before :data:`AT`."""
    at = AT - timedelta(days=days)
    return DatedRecord(kind=kind, key=key, core=core, known_at=at, occurred_at=at)


def finding(agent: str, days: float = 0, **core: Any) -> SettledFinding:
    values = {"agent": agent, "domain": "d", "statement": f"What {agent} says."} | core
    return SettledFinding(finding=record("Finding", f"{agent[:20]}-{days:g}", days, **values))


def analysis(
    days: float, *findings: SettledFinding, claims: ClaimSummary | None = None, action: str | None = None, **core: Any
) -> HistoryItem:
    """Return an analysis so many days old, with a decision where an *action* is given."""
    date = (AT - timedelta(days=days)).isoformat()
    taken = []
    if action is not None:
        decision = {"type": "rating", "action": action, "decided_at": date, "agents_involved": ["boss"]}
        taken.append(ReviewedDecision(decision=record("Decision", f"d{days:g}", days, **decision)))
    return HistoryItem(
        subject_id=core.pop("subject_id", "company:MU"),
        analysis=record("Analysis", f"a{days:g}", days, **{"date": date, "kind": "research"} | core),
        findings=list(findings),
        findings_total=len(findings),
        decisions=taken,
        claims=claims,
    )


def track(agent: str, n: int, lower: float = 0.4, *, kind: str = "model", domain: str = "d") -> TrackRecordItem:
    evidence: Literal["none", "little", "enough"] = "none" if n == 0 else "little" if n < 15 else "enough"
    return TrackRecordItem(
        agent=agent, domain=domain, kind=kind, n=n, rows=n, right=n // 2, abstained=0, mean=0.5, lower=lower, upper=0.9,
        brier=0.25, log_score=0.7, skill=0.1 if n else None, skill_lower=-0.2 if n > 1 else None,
        skill_upper=0.3 if n > 1 else None, reference="baselines", reference_rows=n, evidence=evidence,
        baseline=kind == "baseline",
    )  # fmt: skip


def contradiction(key: str, priority: str, days: float = 1, /, **changes: Any) -> DatedRecord:
    core = {
        "data_point": key, "source_a": "one", "source_b": "other", "value_a": 1.0, "value_b": 2.0,
        "timestamp": (AT - timedelta(days=days)).isoformat(),
    }  # fmt: skip
    computed = {"resolution": {"priority": priority, "status": "uncertain", "resolution_level": "4_fallback"}}
    return record("DataContradiction", key, days, **core | changes).model_copy(update={"groups": computed})


def briefing(*items: HistoryItem, tracks: list[TrackRecordItem] | None = None, **changes: Any) -> Briefing:
    parts: dict[str, Any] = {
        "subject": Subject(subject_id="company:MU"),
        "as_of": AT,
        "clock": "known",
        "history": HistorySection(items=list(items), total=len(items)),
        "debates": DebatesSection(),
        "track_records": TrackRecordsSection(items=tracks or [], total=len(tracks or [])),
        "contradictions": RecordsSection(),
        "patterns": RecordsSection(),
        "lessons": RecordsSection(),
    }
    return Briefing.model_validate({**parts, **changes})


def part(text: str, title: str) -> str:
    """Return the section of a rendering that begins with *title*."""
    return text.split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]
