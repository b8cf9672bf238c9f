"""The trading desk: what becomes of each part of the source, and of each of its traps."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from scipy.stats import spearmanr

from examples.trading_desk import contradictions, desk, exchange, sessions
from imem.credibility.disputes.priorities import priority_of
from imem.kg.kinds.enums import ContradictionPriority
from imem.recall.rendering.lead import sentences_of
from tests.examples.conftest import EXAMPLES, Lines

SOURCE = EXAMPLES / "trading_desk" / "source"


def objects(name: str) -> Lines:
    with gzip.open(SOURCE / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def table(name: str) -> list[dict[str, str]]:
    with gzip.open(SOURCE / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cores(lines: Lines, kind: str) -> Lines:
    return [line["core"] for line in lines if line.get("record") == kind]


def claims_of(lines: Lines, agent: str) -> Lines:
    return [core for core in cores(lines, "Finding") if core["agent"] == agent and "metric" in core]


@pytest.fixture(scope="module")
def outcomes(desk_lines: Lines) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(core["subject_id"], core["metric"], core["target_at"]): core for core in cores(desk_lines, "Outcome")}


def test_counts(desk_lines: Lines) -> None:
    """Every run is there with its findings, debates, decision and links."""
    counts = Counter(line.get("record") or line["link"] for line in desk_lines)

    assert counts == {
        "Company": 22,
        "Agent": 12,
        "Domain": 3,
        "Analysis": 132,
        "Finding": 132 * 8,
        "Debate": 132 * 2,
        "DebateResolution": 132 * 2,
        "Decision": 132,
        "Outcome": 80 + 42,
        "DataContradiction": 15,
        "CITES": 132 * 6,
        "PERFORMED": 132 * 3,
        "RESOLVED_BY": 132 * 2,
        "WINNING_POSITION": 51,
    }
    assert sum(len(line.get("turns", [])) for line in desk_lines) == 3300


def test_a_run_is_known_as_late_as_its_clock_allows(desk_lines: Lines) -> None:
    """A local time of unknown zone is read in UTC-12, and the whole run is known then, not before."""
    created = {row["run_id"]: datetime.fromisoformat(row["created_at"]) for row in objects("decisions")}
    analyses = [line for line in desk_lines if line.get("record") == "Analysis"]

    for line in analyses:
        expected = (created[line["core"]["id"].removeprefix("trading_desk:")] + timedelta(hours=12)).replace(tzinfo=UTC)
        assert datetime.fromisoformat(line["known_at"]) == expected


def test_claims_speak_of_a_session_that_opens_later(desk_lines: Lines) -> None:
    """No part of the claimed return can have been seen: the session opens (13:30 UTC) after the run was known."""
    for line in desk_lines:
        if line.get("record") == "Finding" and "metric" in line["core"]:
            target = datetime.fromisoformat(line["core"]["target_at"])
            assert line["core"]["metric"] == "return_1s"
            assert (target.hour, target.minute) == (20, 0)
            assert target.weekday() < 5
            assert target.replace(hour=13, minute=30) > datetime.fromisoformat(line["known_at"])


@pytest.mark.parametrize(
    ("run", "target"),
    [
        ("AAPL-20260531", "2026-06-01"),  # a Sunday: Monday's session, measured from Friday's close
        ("AAPL-20260601", "2026-06-02"),  # the run still believed in Friday's close
        ("QCOM-20260601", "2026-06-03"),  # finished next morning: in UTC-12 after that day's close
        ("MU-20260604", "2026-06-05"),  # beyond the archive: an open claim
        ("MU-20260605", "2026-06-08"),  # known on Friday after the close: Monday
    ],
)
def test_claimed_session(desk_lines: Lines, run: str, target: str) -> None:
    """The session by hand, for each kind of day."""
    claim = next(core for core in cores(desk_lines, "Finding") if core["id"] == f"trading_desk:{run}/portfolio_manager")

    assert claim["target_at"] == f"{target}T20:00:00Z"


@pytest.mark.parametrize(
    ("known_at", "session"),
    [
        ("2026-06-02T13:29:59", date(2026, 6, 2)),
        ("2026-06-02T13:30:00", date(2026, 6, 3)),  # opening: part of the session may have been seen
        ("2026-06-05T13:30:00", date(2026, 6, 8)),
        ("2026-06-06T00:00:00", date(2026, 6, 8)),
    ],
)
def test_a_session_that_has_opened_is_no_longer_claimed(known_at: str, session: date) -> None:
    """A claim in mid-session speaks of the next one, over a weekend of Monday."""
    assert sessions.claimed_session(datetime.fromisoformat(known_at).replace(tzinfo=UTC)) == session


def test_sessions_are_counted_over_weekends() -> None:
    """From a Friday, Monday is one session later."""
    assert exchange.sessions_between(date(2026, 5, 29), date(2026, 6, 1)) == 1
    assert exchange.sessions_between(date(2026, 5, 29), date(2026, 6, 4)) == 4
    assert exchange.session_before(date(2026, 6, 1)) == date(2026, 5, 29)


def test_no_text_knows_a_later_close(desk_lines: Lines) -> None:
    """No finding, debate or decision quotes a close of a session that had not ended when it was known."""
    for row in table("closes"):
        ended = datetime.fromisoformat(f"{row['session']}T20:00:00+00:00")
        value = float(row["close"])
        quoted = re.compile(rf"(?<![\d,.])(?:{value:.2f}|{value:,.2f})(?!\d)")
        for line in desk_lines:
            known = datetime.fromisoformat(line["known_at"])
            if line.get("core", {}).get("subject_id") == f"company:{row['ticker']}" and known < ended:
                assert not quoted.search(json.dumps(line, ensure_ascii=False)), (row, line["core"])


def test_returns_equal_those_of_the_source(outcomes: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """Each return that the source measured is there, from closes and not from what a run believed in."""
    expected = 0
    for row in table("outcomes"):
        ticker, entry = row["run_id"].split("-")[0], date.fromisoformat(row["entry_session"])
        for column, end in (("ret_next", None), ("ret_to_end", date(2026, 6, 4))):
            if row[column]:
                last = end or sessions.claimed_session(datetime(entry.year, entry.month, entry.day, 21, tzinfo=UTC))
                metric = f"return_{exchange.sessions_between(entry, last)}s"
                found = outcomes[f"company:{ticker}", metric, f"{last}T20:00:00Z"]
                assert found["actual"] == pytest.approx(float(row[column]), abs=6e-6)
                expected += 1
    assert len(outcomes) == expected - 14  # the last session's single return is its return to the end, too


def test_trap_last_close_lags(desk_lines: Lines, outcomes: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """Measured from the close that a run believed in, sentiment looks predictive; measured after it, it does not."""
    scores: list[float] = []
    returns: list[float] = []
    believed_scores: list[float] = []
    believed_returns: list[float] = []
    runs = {f"trading_desk:{row['run_id']}": row for row in objects("decisions")}
    closes = {(row["ticker"], row["session"]): float(row["close"]) for row in table("closes")}
    for claim in claims_of(desk_lines, "sentiment_analyst"):
        outcome = outcomes.get((claim["subject_id"], claim["metric"], claim["target_at"]))
        run = runs[claim["analysis_id"]]
        if outcome is not None:
            scores.append(run["sentiment"]["score"])
            returns.append(outcome["actual"])
            if run["last_close"] is not None:
                believed_scores.append(run["sentiment"]["score"])
                believed_returns.append(closes[run["ticker"], claim["target_at"][:10]] / run["last_close"] - 1)

    assert len(scores) == 80
    assert spearmanr(scores, returns).statistic == pytest.approx(0.10, abs=0.02)
    assert spearmanr(believed_scores, believed_returns).statistic > 0.3


def test_trap_last_close_is_only_told(desk_lines: Lines) -> None:
    """What a run believed in stands in the analysis' body, also when it is a close of two sessions ago."""
    bodies = {line["core"]["id"]: line["body"] for line in desk_lines if line.get("record") == "Analysis"}

    assert bodies["trading_desk:AAPL-20260601"] == "The run believed in a last close of 312.06 USD."
    assert not any("last_close" in json.dumps(core) for core in cores(desk_lines, "Outcome"))


def test_trap_outage_leaves_gaps(desk_lines: Lines, outcomes: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """On the last day no close is quoted for eight tickers: the runs say so, and no return is made up for them."""
    silent = {
        line["core"]["subject_id"]
        for line in desk_lines
        if line.get("record") == "Analysis"
        and line["core"]["id"].endswith("20260605")
        and line["body"] == "The source records no close for this run."
    }
    measured = {subject for subject, _, target in outcomes if target.startswith("2026-06-04")}

    assert len(silent) == 8
    assert len(measured) == 14
    assert not silent & measured


def test_trap_closes_are_quotes(outcomes: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """Every return says that it rests on closes quoted in reports, and which of them a later run confirmed."""
    assert all("not an exchange record" in core["source"] for core in outcomes.values())
    last = [core["source"] for (_, _, target), core in outcomes.items() if target.startswith("2026-06-04")]
    assert last
    assert all(source.endswith("to 2026-06-04 (quoted once)") for source in last)


def test_trap_direction_changes_from_day_to_day(desk_lines: Lines) -> None:
    """Decisions of one ticker stand side by side, one a day; none is said to replace another."""
    by_ticker: dict[str, list[str]] = defaultdict(list)
    for core in sorted(cores(desk_lines, "Decision"), key=lambda core: core["id"]):
        by_ticker[core["subject_id"]].append(core["action"])
    steps = [pair for actions in by_ticker.values() for pair in pairwise(actions)]

    assert len(steps) == 110
    assert sum(first != second for first, second in steps) == 35
    assert not any(line.get("link") == "SUPERSEDES" for line in desk_lines)


def test_claims_come_from_stated_conclusions(desk_lines: Lines) -> None:
    """Who names a direction claims it; reports without one, and advocates, claim nothing."""
    proposals = sum(
        re.search(r"PROPOSAL:\s*\**\s*(BUY|SELL|HOLD)", row["conclusion"]) is not None
        for row in objects("analyst_conclusions")
    )
    counts = Counter(core["agent"] for core in cores(desk_lines, "Finding") if "metric" in core)

    assert proposals == 44
    assert counts == {
        "sentiment_analyst": 132,
        "market_analyst": proposals,
        "research_manager": 132,
        "trader": 132,
        "portfolio_manager": 132,
    }
    assert {core["domain"] for core in cores(desk_lines, "Finding") if "metric" in core} == {"equity_direction"}


def test_directions_follow_labels_and_ratings(desk_lines: Lines) -> None:
    """A hold or a mixed mood abstains, and the score is no probability."""
    runs = {f"trading_desk:{row['run_id']}": row for row in objects("decisions")}
    rating = {"Overweight": "positive", "Hold": "neutral", "Underweight": "negative"}
    for core in cores(desk_lines, "Finding"):
        run = runs[core["analysis_id"]]
        assert "probability" not in core
        if core["agent"] == "portfolio_manager":
            assert core["direction"] == rating[run["portfolio_manager"]["rating"]]
        if core["agent"] == "sentiment_analyst":
            label = run["sentiment"]["label"]
            side = "positive" if "Bullish" in label else "negative" if "Bearish" in label else "neutral"
            assert core["direction"] == side
            assert f"score {run['sentiment']['score']} of 10" in core["statement"]


def test_statements_begin_with_what_they_say(desk_lines: Lines) -> None:
    """With a sentence or a table's cells: no table, no heading, no half word; an advocate begins with a figure."""
    for core in cores(desk_lines, "Finding"):
        said = core["statement"]
        assert not said.startswith(("|", "#", "-", "*", "_", ">")), said[:80]
        assert len(said) >= 20, said
        if core["agent"] in {desk.BULL, desk.BEAR}:
            assert re.search(r"\d", sentences_of(said)[0]), said[:200]
        if core["agent"] == desk.MARKET_ANALYST:
            assert not said[0].islower(), said[:80]


def test_verdict_follows_the_deciders_own_finding(desk_lines: Lines) -> None:
    """A decision cites first what its decider stated in the same run."""
    first = [line for line in desk_lines if line.get("link") == "CITES" and line["props"]["rank"] == 1]

    assert len(first) == 132
    for line in first:
        run = line["from"]["Decision"].removesuffix("/decision")
        assert line["to"] == {"Finding": f"{run}/portfolio_manager"}


def test_longer_returns_review_the_decision(
    desk_lines: Lines, outcomes: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    """Returns over several sessions hang on the decision that they followed, and settle no claim."""
    known = {line["core"]["id"]: line["known_at"] for line in desk_lines if line.get("record") == "Decision"}
    reviews = [core for core in outcomes.values() if "decision_id" in core]

    assert {core["metric"] for core in reviews} == {"return_1s", "return_2s", "return_3s", "return_4s"}
    assert all(known[core["decision_id"]] < core["target_at"] for core in reviews)
    # One run ended next morning, in UTC-12 after that day's close: what was over by then reviews nothing.
    assert {core["id"] for core in outcomes.values() if "decision_id" not in core} == {
        "trading_desk:QCOM/return_1s/2026-06-02",
        "trading_desk:QCOM/return_3s/2026-06-04",
    }


def test_debates(desk_lines: Lines) -> None:
    """The bear challenges the bull; in the risk stage the conservative voice challenges the trader's plan."""
    for core in cores(desk_lines, "Debate"):
        sides = (core["challenger_agent"], core["challenged_agent"])
        run, stage = core["id"].rsplit("/", 1)
        if stage == "research":
            assert sides == (desk.BEAR, desk.BULL)
            assert core["participants"] == [desk.BEAR, desk.BULL]
        else:
            assert sides == (desk.CONSERVATIVE, desk.TRADER)
            assert set(core["participants"]) == {desk.TRADER, desk.AGGRESSIVE, desk.CONSERVATIVE, desk.NEUTRAL}
        assert core["disputed_finding"] == f"{run}/{sides[1]}"


def test_turns_are_in_speaking_order(desk_lines: Lines) -> None:
    """Round by round: the bull opens and the bear answers; each risk voice has its place."""
    for line in desk_lines:
        if line.get("record") == "Debate":
            order = (
                [desk.BULL, desk.BEAR]
                if line["core"]["id"].endswith("/research")
                else [desk.AGGRESSIVE, desk.CONSERVATIVE, desk.NEUTRAL]
            )
            assert [turn["speaker"] for turn in line["turns"]] == order * 5
            assert all(" […] " in turn["text"] for turn in line["turns"])  # the source cut every one of them


def test_every_debate_is_judged(desk_lines: Lines) -> None:
    """All 264 were closed by the judge that they name, who is the agent that the link names, too."""
    debates = [line for line in desk_lines if line.get("record") == "Debate"]
    judged = {line["from"]["Debate"]: line["to"]["Agent"] for line in desk_lines if line.get("link") == "RESOLVED_BY"}

    assert len(debates) == 264
    for line in debates:
        state, core = line["groups"]["state"], line["core"]
        ended = (state["state"], state["resolution_level"], state["resolution_method"], state["provisional"])
        assert ended == ("closed", "2_facilitator", "judged", False)
        judge = desk.RESEARCH_MANAGER if core["id"].endswith("/research") else desk.PORTFOLIO_MANAGER
        assert core["judge"] == judged[core["id"]] == judge


def test_no_winner_is_invented(desk_lines: Lines) -> None:
    """A hold has no winner, an overweight is the bull's, an underweight the bear's; the risk debate names none."""
    rating = {f"trading_desk:{row['run_id']}": row["research_manager"]["rating"] for row in objects("decisions")}
    side = {"Overweight": desk.BULL, "Underweight": desk.BEAR, "Hold": None}
    linked = {
        line["from"]["Debate"]: line["to"]["Agent"] for line in desk_lines if line.get("link") == "WINNING_POSITION"
    }
    state = {
        line["core"]["id"]: line["groups"]["state"]["final_position"]
        for line in desk_lines
        if line.get("record") == "Debate"
    }

    for core in cores(desk_lines, "DebateResolution"):
        run, stage = core["debate_id"].rsplit("/", 1)
        expected = side[rating[run]] if stage == "research" else None
        assert core.get("winning_agent") == expected == linked.get(core["debate_id"])
        assert core["winning_position"].split(":")[0] in side
        assert ("without a winner" in state[core["debate_id"]]) == (expected is None)


def test_contradictions_are_few_and_real(desk_lines: Lines) -> None:
    """Only averages that two analysts both give as of now, in clear words, with different values."""
    found = cores(desk_lines, "DataContradiction")

    assert {core["data_point"] for core in found} == {"sma_50", "sma_200"}
    assert all(abs(core["value_a"] - core["value_b"]) / max(core["value_a"], core["value_b"]) > 0.001 for core in found)
    assert ("trading_desk:MU-20260605", 595.71, 607.71) in {
        (core["analysis_id"], core["value_a"], core["value_b"]) for core in found
    }
    assert {priority_of(core["data_point"]) for core in found} == {ContradictionPriority.MEDIUM}


def test_trap_who_contradicts_itself_contradicts_nobody(desk_lines: Lines) -> None:
    """An analyst that states two values of a metric in one run is no source of a contradiction on it."""
    stated: dict[tuple[str, str, str], set[float]] = defaultdict(set)
    for row in table("metric_claims"):
        stated[f"trading_desk:{row['run_id']}", row["metric"], desk.ANALYSTS[row["analyst"]]].add(float(row["value"]))

    for core in cores(desk_lines, "DataContradiction"):
        for source in (core["source_a"], core["source_b"]):
            values = stated[core["analysis_id"], core["data_point"], source]
            assert max(values) / min(values) < 1.0011
    row = {"run_id": "X", "metric": "sma_50", "analyst": "market"}
    rows = [{**row, "value": value, "context": f"50 SMA | ${value} |"} for value in ("260.98", "275.11")]
    assert contradictions.claim_of("sma_50", rows) is None
    assert contradictions.claim_of("sma_50", rows[:1]) == contradictions.Claim(260.98, frozenset())


@pytest.mark.parametrize(
    ("metric", "value", "context"),
    [
        ("sma_200", 278.95, "| 50-Day vs 200-Day MA | $278.95 vs $264.41 | Bullish struct"),  # the number beside it
        ("sma_200", 14.03, "| 50/200 Day MA | $14.03 / $15.49 |"),
        ("peg", 5.3, "The new target is pegged at 5.3x FY2027 price-to-book."),  # another word
        ("last_close", 408.85, "ARM Holdings surged ~16% to a record closing high of"),  # another stock
        ("sma_50", 482.51, "| **50 SMA** | ~$482.51 | Bullish"),  # rounded
        ("forward_pe", 24.0, ""),  # the sentiment analyst has no contexts
    ],
)
def test_trap_claims_read_by_pattern_are_noisy(metric: str, value: float, context: str) -> None:
    """What the pattern misread is no statement."""
    assert not contradictions.states(metric, value, context)


def test_trap_other_days_are_no_contradiction() -> None:
    """Two values of different days both can be right; a close without its session says nothing."""
    dated = [{"value": "263.16", "context": "### 200-Day SMA: **$263.16** (June 1) The"}]
    undated = [{"value": "263.6", "context": "- **200-Day Moving Average:** $263.60 -"}]
    stale = [{"value": "124.22", "context": "price snapshot: - **Last close: $124.22** - **Past week"}]

    assert contradictions.claim_of("sma_200", dated) == contradictions.Claim(263.16, frozenset({(6, 1)}))
    assert contradictions.claim_of("sma_200", undated) == contradictions.Claim(263.6, frozenset())
    assert contradictions.claim_of("last_close", stale) is None


def test_a_fund_has_no_sector(desk_lines: Lines) -> None:
    """One of the tickers is a fund: it keeps its name and gets no sector."""
    profiles = {
        line["core"]["ticker"]: line["groups"]["profile"] for line in desk_lines if line.get("record") == "Company"
    }

    assert profiles["SOXX"] == {"name": "iShares Semiconductor ETF"}
    assert sum("sector" in profile for profile in profiles.values()) == 21
