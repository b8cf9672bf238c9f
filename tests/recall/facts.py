"""A small world of facts whose content follows from their keys, so that they may be stated in any order and again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Line = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
TARGET_DAY = 3
"""Claims speak of the end of this day, so that they can be settled on later ones."""


def day(number: float) -> str:
    """Return noon of a day, as text."""
    return (START + timedelta(days=number, hours=12)).isoformat().replace("+00:00", "Z")


def number_in(key: str) -> int:
    """Return the number at the end of a key."""
    return int("".join(char for char in key if char.isdigit()) or 0)


def subject_of(key: str) -> str:
    return f"company:T{number_in(key) % 2}"


def company(ticker: str, at: float) -> Line:
    profile = {"name": f"Company {ticker}", "sector": "Technology"}
    return {"record": "Company", "known_at": day(at), "core": {"ticker": ticker}, "groups": {"profile": profile}}


def renamed(ticker: str, at: float, name: str) -> Line:
    """Return what a company is called from a day on."""
    return {"record": "Company", "known_at": day(at), "key": ticker, "groups": {"profile": {"name": name}}}


def with_body(line: Line) -> Line:
    """Return *line* with a long text that says when it was stated."""
    return {**line, "body": f"What was written, known at {line['known_at']}."}


def agent(name: str, at: float, kind: str = "model") -> Line:
    profile = {"specialization": "anything", "kind": kind}
    return {"record": "Agent", "known_at": day(at), "core": {"name": name}, "groups": {"profile": profile}}


def analysis(key: str, at: float, **core: Any) -> Line:
    n = number_in(key)
    values = {"id": key, "subject_id": subject_of(key), "date": day(n % 4), "kind": "research", "confidence": 0.5}
    return {"record": "Analysis", "known_at": day(at), "core": {**values, **core}}


def finding(key: str, at: float, **core: Any) -> Line:
    n = number_in(key)
    values = {
        "id": key, "analysis_id": f"a{n % 4}", "subject_id": subject_of(f"a{n % 4}"), "agent": f"agent{n % 3}",
        "domain": "up_or_down", "statement": f"What {key} says.", "probability": (n * 13 % 10) / 10,
        "importance": (n * 7 % 10) / 10,
        # Who speaks when the answer can be known claims nothing.
        **({"metric": "up", "target_at": day(TARGET_DAY)} if at < TARGET_DAY else {}),
    }  # fmt: skip
    return {"record": "Finding", "known_at": day(at), "core": {**values, **core}}


def remark(key: str, at: float) -> Line:
    """Return a finding that claims nothing, whenever it is known."""
    line = finding(key, at)
    claimed = {"metric", "target_at"}
    return {**line, "core": {name: value for name, value in line["core"].items() if name not in claimed}}


def outcome(key: str, at: float, **core: Any) -> Line:
    n = number_in(key)
    values = {
        "id": key, "subject_id": subject_of(key), "metric": "up", "target_at": day(TARGET_DAY),
        "actual": float(n // 2 % 2), "observed_at": day(TARGET_DAY), "vintage": n // 2,
    }  # fmt: skip
    return {"record": "Outcome", "known_at": day(max(at, TARGET_DAY)), "core": {**values, **core}}


def decision(key: str, at: float) -> Line:
    n = number_in(key)
    core = {
        "id": key, "analysis_id": f"a{n % 4}", "subject_id": subject_of(f"a{n % 4}"), "type": "trade",
        "agents_involved": [f"agent{n % 3}"], "decided_at": day(2), "stance": "long",
    }  # fmt: skip
    return {"record": "Decision", "known_at": day(at), "core": core}


def cites(key: str, at: float) -> Line:
    ends = {"from": {"Decision": key}, "to": {"Finding": f"f{number_in(key)}"}}
    return {"link": "CITES", "known_at": day(at), **ends, "props": {"at": day(2), "rank": 1}}


def performed(key: str, at: float) -> Line:
    ends = {"from": {"Agent": f"agent{number_in(key) % 3}"}, "to": {"Analysis": key}}
    return {"link": "PERFORMED", "known_at": day(at), **ends, "props": {"role": f"role stated on day {at:g}"}}


def debate(key: str, at: float) -> Line:
    core = {
        "id": key, "subject_id": subject_of(key), "topic": f"The topic of {key}", "challenger_agent": "agent0",
        "challenged_agent": "agent1", "participants": ["agent0", "agent1"], "timestamp": day(number_in(key)),
    }  # fmt: skip
    turns = [{"number": 1, "speaker": "agent0", "text": f"A word of {key}, on day {at:g}."}]
    return {"record": "Debate", "known_at": day(at), "core": core, "turns": turns}


def debate_state(key: str, at: float) -> Line:
    state = {"state": "closed", "provisional": False, "final_position": f"As of day {at:g}."}
    return {"record": "Debate", "known_at": day(at), "key": key, "groups": {"state": state}}


def contradiction(key: str, at: float) -> Line:
    core = {
        "id": key, "subject_id": subject_of(key), "data_point": "revenue", "source_a": "one", "source_b": "other",
        "value_a": 1.0, "value_b": 2.0, "timestamp": day(number_in(key)),
    }  # fmt: skip
    return {"record": "DataContradiction", "known_at": day(at), "core": core}


def market(key: str, at: float) -> Line:
    core = {"market_id": key, "question": f"Will {key} come true?", "series_id": "weekly"}
    return {"record": "Market", "known_at": day(at), "core": core}


def market_analysis(key: str, at: float) -> Line:
    n = number_in(key)
    return analysis(key, at, subject_id=f"market:m{n % 3}")


def market_finding(key: str, at: float) -> Line:
    n = number_in(key)
    return finding(key, at, analysis_id=f"q{n % 3}", subject_id=f"market:m{n % 3}", domain=f"domain{n % 2}")


def pattern(key: str, at: float) -> Line:
    core = {"pattern_id": key, "name": f"Pattern {key}", "category": "momentum"}
    return {"record": "Pattern", "known_at": day(at), "core": core}


def pattern_status(key: str, at: float, status: str) -> Line:
    groups = {"status": {"status": status, "quarantined": False}}
    return {"record": "Pattern", "known_at": day(at), "key": key, "groups": groups}


def identified(key: str, at: float) -> Line:
    ends = {"from": {"Analysis": f"a{number_in(key)}"}, "to": {"Pattern": key}}
    return {"link": "IDENTIFIED_PATTERN", "known_at": day(at), **ends}


def lesson(key: str, at: float, **core: Any) -> Line:
    values = {
        "id": key, "source": "ai_analysis", "category": "process", "insight": f"What {key} teaches.",
        "recommended_action": "Look twice.", "priority": "high", "affected_domains": [f"domain{number_in(key) % 3}"],
    }  # fmt: skip
    groups = {"state": lesson_state("approved")}
    return {"record": "Lesson", "known_at": day(at), "core": {**values, **core}, "groups": groups}


def lesson_state(state: str, *, reviewed: bool = False) -> Line:
    applied = state == "applied"
    return {"state": state, "reviewed": reviewed, "applied": applied, "effectiveness_tracked": False}


def lesson_enters(key: str, at: float, state: str, *, reviewed: bool = False) -> Line:
    groups = {"state": lesson_state(state, reviewed=reviewed)}
    return {"record": "Lesson", "known_at": day(at), "key": key, "groups": groups}


def affects(key: str, at: float) -> Line:
    ends = {"from": {"Lesson": key}, "to": {"Pattern": f"p{number_in(key) % 2}"}}
    return {"link": "AFFECTS_PATTERN", "known_at": day(at), **ends}


def corrected(line: Line, at: float, **core: Any) -> Line:
    """Return the correction of a record that *line* stated."""
    known_at = line["known_at"] if line["record"] == "Outcome" and day(at) < line["known_at"] else day(at)
    return {"correct": line["record"], "known_at": known_at, "core": line["core"] | core, "reason": "It was wrong."}
