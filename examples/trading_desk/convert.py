"""
A trading desk of language models as a history that ``imem load`` reads.

Each run (one ticker, one day) becomes an Analysis of its Company with the findings of its agents, two debates with
turns and resolution, and a Decision; returns become Outcomes, and figures that two analysts state differently
DataContradictions. The parts that are judged rather than copied live beside this file: ``sessions`` (which return a
claim speaks of, and when a close was known) and ``contradictions`` (which claims really disagree).

Choices where the source leaves one:

- A run is known at its ``created_at``, a local time of unknown zone, read as late as any zone allows (UTC-12).
- Who concludes a direction claims ``return_1s``, the return of the first session that opens after the run was known:
  the sentiment analyst by its label, the market analyst by its "FINAL TRANSACTION PROPOSAL", research manager and
  portfolio manager by their rating, the trader by its action. Hold, Mixed and Neutral are neutral. A market report
  whose conclusion carries no proposal, and every fundamentals report, claims nothing. Nor do advocates.
- The sentiment score is no probability, and words of confidence are no numbers: both stay in the statement.
- Longer returns (to the last session of the archive) review the decision; nobody on the desk named that day, so no
  finding claims them.
- The research manager judges the research debate; its Overweight is the bull's side, its Underweight the bear's, and a
  Hold has no winner. The portfolio manager closes the risk debate without a winner: it is about the size and the stops
  of the trader's plan, and no field of the source says whose came through.

Run it with ``python examples/trading_desk/convert.py [--data DIR] [--out FILE]``; the standard library is enough.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script finds its own folder only; the shared modules lie two above
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from examples import lines
from examples.lines import Line, cut, link, present, record
from examples.trading_desk import contradictions, desk, sessions

HERE = Path(__file__).resolve().parent
CLAIM = "return_1s"

STATEMENT_LIMIT = 1500
"""Characters of a statement: a report's conclusion fits; longer reasons stand whole in a body or in the turns."""

QUOTE_LIMIT = 600
"""Characters of a judge's or challenger's words where a debate quotes them."""

SENTENCES = 80
"""Characters of prose below which a report is quoted with its tables: it says nothing else."""

RUN_PREFIX = "trading_desk"

DIRECTION_OF_LABEL = {
    "Bullish": "positive",
    "Mildly Bullish": "positive",
    "Mixed": "neutral",
    "Neutral": "neutral",
    "Mildly Bearish": "negative",
    "Bearish": "negative",
}
DIRECTION_OF_RATING = {"Overweight": "positive", "Hold": "neutral", "Underweight": "negative"}
DIRECTION_OF_ACTION = {"Buy": "positive", "Hold": "neutral", "Sell": "negative"}
RECOMMENDATION_OF_RATING = {"Overweight": "buy", "Hold": "hold", "Underweight": "sell"}
WINNER_OF_RATING = {"Overweight": desk.BULL, "Underweight": desk.BEAR}

_PROPOSAL = re.compile(r"FINAL TRANSACTION PROPOSAL:\s*\**\s*(BUY|HOLD|SELL)\b")


@dataclass(frozen=True, slots=True)
class Run:
    """
    One ticker on one day, as the source tells it.

    Attributes:
        key: key of its Analysis.
        decision: its row of ``decisions``.
        conclusions: the end of a report, by the source's name of the analyst.
        turns: its rows of ``debate_turns``.
        claims: its rows of ``metric_claims``.
    """

    key: str
    ticker: str
    day: date
    known_at: datetime
    decision: dict[str, Any]
    conclusions: dict[str, str]
    turns: list[dict[str, Any]]
    claims: list[dict[str, str]]

    @property
    def subject_id(self) -> str:
        """Return the subject that analyses, findings and outcomes name."""
        return f"company:{self.ticker}"

    def finding_id(self, agent: str) -> str:
        """Return the key of what *agent* stated in this run."""
        return f"{self.key}/{agent}"


def read_runs(data: Path) -> list[Run]:
    """Return the runs of the source, in its order."""
    conclusions: dict[str, dict[str, str]] = defaultdict(dict)
    for row in read_objects(data / "analyst_conclusions.jsonl.gz"):
        conclusions[row["run_id"]][row["analyst"]] = row["conclusion"]
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_objects(data / "debate_turns.jsonl.gz"):
        turns[row["run_id"]].append(row)
    claims: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sessions.read_rows(data / "metric_claims.csv.gz"):
        claims[row["run_id"]].append(row)
    return [
        Run(
            key=f"{RUN_PREFIX}:{row['run_id']}",
            ticker=row["ticker"],
            day=date.fromisoformat(row["date"]),
            known_at=lines.known_at_of_naive(datetime.fromisoformat(row["created_at"])),
            decision=row,
            conclusions=conclusions[row["run_id"]],
            turns=turns[row["run_id"]],
            claims=claims[row["run_id"]],
        )
        for row in read_objects(data / "decisions.jsonl.gz")
    ]


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a gzip JSON Lines file."""
    return [json.loads(line) for line in lines.read_text(path).splitlines()]


def prose(report: str) -> str:
    """Return what a report says in sentences: without tables, headings, rules and disclaimers, which its body keeps."""
    said = [line.strip() for line in report.splitlines()]
    said = [line for line in said if line and not line.startswith(("|", "#", "---", "===", "***"))]
    said = [line for line in said if "disclaimer" not in line.lower()]
    return "\n".join(said) if sum(map(len, said)) >= SENTENCES else report


def finding(
    run: Run, agent: str, domain: str, statement: str, *, direction: str | None, claims: bool, body: str | None = None
) -> Line:
    """Return what *agent* stated; with *claims* it is a claim on the session that opens next."""
    target = sessions.claimed_session(run.known_at) if claims else None
    core = present(
        id=run.finding_id(agent),
        analysis_id=run.key,
        subject_id=run.subject_id,
        agent=agent,
        domain=domain,
        statement=cut(statement, STATEMENT_LIMIT, closing=400),
        direction=direction,
        metric=None if target is None else CLAIM,
        target_at=None if target is None else lines.stamp(sessions.closes_at(target)),
    )
    return record("Finding", core, known_at=run.known_at, body=body)


def analysis_line(run: Run) -> Line:
    """Return the run itself; the close that it believed in is told in its body and used nowhere."""
    manager = run.decision["portfolio_manager"]
    close = run.decision["last_close"]
    believed = (
        "The source records no close for this run."
        if close is None
        else f"The run believed in a last close of {close} USD."
    )
    core = {
        "id": run.key,
        "subject_id": run.subject_id,
        "date": lines.stamp(datetime.combine(run.day, time(), tzinfo=UTC)),
        "kind": "trading_desk_run",
        "recommendation": RECOMMENDATION_OF_RATING[manager["rating"]],
        "model": run.decision["model"],
        "summary": cut(manager["summary"]),
    }
    return record("Analysis", core, known_at=run.known_at, body=believed)


def analyst_lines(run: Run) -> list[Line]:
    """Return the findings of the analysts; where a conclusion names no direction, none is made up."""
    mood = run.decision["sentiment"]
    sentiment = f"Sentiment {mood['label']}, score {mood['score']} of 10, confidence {mood['confidence']}."
    market = run.conclusions["market"]
    proposal = _PROPOSAL.search(market)
    direction = None if proposal is None else DIRECTION_OF_ACTION[proposal[1].capitalize()]
    domain = desk.TECHNICAL if proposal is None else desk.EQUITY
    label = DIRECTION_OF_LABEL[mood["label"]]
    return [
        finding(run, desk.SENTIMENT_ANALYST, desk.EQUITY, sentiment, direction=label, claims=True),
        finding(
            run,
            desk.MARKET_ANALYST,
            domain,
            prose(market),
            direction=direction,
            claims=proposal is not None,
            body=market,
        ),
        finding(
            run,
            desk.FUNDAMENTALS_ANALYST,
            desk.FUNDAMENTALS,
            prose(run.conclusions["fundamentals"]),
            direction=None,
            claims=False,
            body=run.conclusions["fundamentals"],
        ),
    ]


def advocate_lines(run: Run) -> list[Line]:
    """Return the cases of bull and bear: they argue a side that they were given, so they claim nothing."""
    found = []
    for agent, direction in ((desk.BULL, "positive"), (desk.BEAR, "negative")):
        opening = next(turn for turn in run.turns if desk.SPEAKERS[turn["role"]] == agent and turn["turn"] == 1)
        case = prose(quote(turn_text(opening)))
        found.append(finding(run, agent, desk.EQUITY, case, direction=direction, claims=False))
    return found


def judge_lines(run: Run) -> list[Line]:
    """Return the findings of research manager, trader and portfolio manager."""
    research, trade = run.decision["research_manager"], run.decision["trader"]
    manager = run.decision["portfolio_manager"]
    plan = [f"Action {trade['action']}."]
    plan += [f"{name.capitalize()} {trade[name]} USD." for name in ("entry", "stop") if trade[name] is not None]
    plan += [f"Sizing: {trade['sizing']}", trade["reasoning"]]
    return [
        finding(
            run,
            desk.RESEARCH_MANAGER,
            desk.EQUITY,
            f"{research['rating']}: {research['rationale']}",
            direction=DIRECTION_OF_RATING[research["rating"]],
            claims=True,
            body=f"{research['rationale']}\n\n{research['actions']}",
        ),
        finding(
            run,
            desk.TRADER,
            desk.EQUITY,
            " ".join(plan),
            direction=DIRECTION_OF_ACTION[trade["action"]],
            claims=True,
            body=" ".join(plan) if len(" ".join(plan)) > STATEMENT_LIMIT else None,
        ),
        finding(
            run,
            desk.PORTFOLIO_MANAGER,
            desk.EQUITY,
            f"{manager['rating']}: {manager['thesis']}",
            direction=DIRECTION_OF_RATING[manager["rating"]],
            claims=True,
        ),
    ]


def turn_text(turn: dict[str, Any]) -> str:
    """Return a turn's text; the source keeps the opening and the closing of a long one."""
    opening, closing = turn["opening"], turn["closing"]
    if turn["chars"] <= len(opening) + len(closing):
        return str(opening + closing)
    return str(opening + lines.ELLIPSIS + closing)


def quote(text: str) -> str:
    """Return the opening and the closing of *text*: a judge's verdict often comes last."""
    return cut(text, QUOTE_LIMIT, closing=250)


def debate_turns(run: Run, stage: str) -> list[dict[str, Any]]:
    """Return the turns of a stage in speaking order: round by round, in the order in which the desk gives the word."""
    order = desk.SPEAKING_ORDER[stage]
    spoken = sorted(
        (turn for turn in run.turns if turn["stage"] == stage),
        key=lambda turn: (turn["turn"], order.index(turn["role"])),
    )
    return [
        {
            "number": number,
            "stage": stage,
            "speaker": desk.SPEAKERS[turn["role"]],
            "stance": turn["role"],
            "text": turn_text(turn),
            "cites": [],
        }
        for number, turn in enumerate(spoken, start=1)
    ]


def debate_lines(run: Run) -> list[Line]:
    """Return both debates of a run with their resolutions and the links to judge and winner."""
    research, manager = run.decision["research_manager"], run.decision["portfolio_manager"]
    return [
        *one_debate(
            run,
            stage="research",
            topic=f"{run.ticker} on {run.day}: the bull's case for the stock",
            challenged=desk.BULL,
            challenger=desk.BEAR,
            judge=desk.RESEARCH_MANAGER,
            verdict=(research["rating"], research["rationale"]),
            winner=WINNER_OF_RATING.get(research["rating"]),
        ),
        *one_debate(
            run,
            stage="risk",
            topic=f"{run.ticker} on {run.day}: the risk in the trader's plan ({run.decision['trader']['action']})",
            challenged=desk.TRADER,
            challenger=desk.CONSERVATIVE,
            judge=desk.PORTFOLIO_MANAGER,
            verdict=(manager["rating"], manager["summary"]),
            winner=None,
        ),
    ]


def one_debate(
    run: Run,
    *,
    stage: str,
    topic: str,
    challenged: str,
    challenger: str,
    judge: str,
    verdict: tuple[str, str],
    winner: str | None,
) -> list[Line]:
    """
    Return a debate, its resolution and its links.

    ``resolution_method`` is left out: none of the listed methods is "a third agent judged".
    """
    rating, reason = verdict
    key = f"{run.key}/{stage}"
    turns = debate_turns(run, stage)
    speakers = sorted({turn["speaker"] for turn in turns} | {challenged, challenger})
    ending = f"{rating}, without a winner." if winner is None else f"{rating}: the {desk.SIDES[winner]} side won."
    core = {
        "id": key,
        "subject_id": run.subject_id,
        "analysis_id": run.key,
        "topic": topic,
        "challenger_agent": challenger,
        "challenged_agent": challenged,
        "participants": speakers,
        "disputed_finding": run.finding_id(challenged),
        "challenge_basis": quote(next(turn["text"] for turn in turns if turn["speaker"] == challenger)),
        "timestamp": lines.stamp(run.known_at),
    }
    state = {"state": "closed", "resolution_level": "2_facilitator", "final_position": ending, "provisional": False}
    resolution = present(
        id=f"{key}/resolution", debate_id=key, winning_position=quote(f"{rating}: {reason}"), winning_agent=winner
    )
    found = [
        record("Debate", core, groups={"state": state}, turns=turns, known_at=run.known_at),
        record("DebateResolution", resolution, known_at=run.known_at),
        link("RESOLVED_BY", ("Debate", key), ("Agent", judge), known_at=run.known_at),
    ]
    if winner is not None:
        found.append(link("WINNING_POSITION", ("Debate", key), ("Agent", winner), known_at=run.known_at))
    return found


def decision_lines(run: Run) -> list[Line]:
    """Return the decision and what it stands on; its verdict follows the finding of the first rank."""
    manager = run.decision["portfolio_manager"]
    key = f"{run.key}/decision"
    target = "" if manager["price_target"] is None else f" Price target {manager['price_target']} USD."
    core = {
        "id": key,
        "analysis_id": run.key,
        "subject_id": run.subject_id,
        "type": "portfolio_rating",
        "agents_involved": [desk.PORTFOLIO_MANAGER, desk.RESEARCH_MANAGER, desk.TRADER],
        "decided_at": lines.stamp(run.known_at),
        "action": manager["rating"],
    }
    body = (
        f"Rating {manager['rating']}.{target} Horizon: {manager['horizon']}.\n\n"
        f"{manager['summary']}\n\n{manager['thesis']}"
    )
    found = [record("Decision", core, known_at=run.known_at, body=body)]
    for rank, agent in enumerate(desk.CITED_BY_DECISION, start=1):
        props = {"at": lines.stamp(run.known_at), "rank": rank}
        cited = ("Finding", run.finding_id(agent))
        found.append(link("CITES", ("Decision", key), cited, props=props, known_at=run.known_at))
    for agent, role in desk.RAN_BY.items():
        found.append(
            link("PERFORMED", ("Agent", agent), ("Analysis", run.key), props={"role": role}, known_at=run.known_at)
        )
    return found


def run_lines(run: Run) -> list[Line]:
    """Return everything that became known with one run."""
    return [
        analysis_line(run),
        *analyst_lines(run),
        *advocate_lines(run),
        *judge_lines(run),
        *debate_lines(run),
        *decision_lines(run),
        *contradictions.lines_of(
            run.claims, analysis_id=run.key, subject_id=run.subject_id, known_at=run.known_at, names=desk.ANALYSTS
        ),
    ]


def convert(data: Path = HERE / "source") -> list[Line]:
    """Return the lines of the extract in *data*, in order."""
    runs = read_runs(data)
    first_run: dict[str, datetime] = {}
    found: list[Line] = []
    for run in runs:
        first_run[run.ticker] = min(run.known_at, first_run.get(run.ticker, run.known_at))
        found += run_lines(run)
    found += desk.reference_lines(first_run)
    decided = {(run.ticker, run.day): (f"{run.key}/decision", run.known_at) for run in runs}
    found += sessions.outcome_lines(data, decided)
    return lines.in_order(found)


def main() -> None:
    """Write the example where the demo looks for it, or where the caller says."""
    parser = argparse.ArgumentParser(description="Turn the trading desk's runs into JSON Lines for imem load.")
    parser.add_argument("--data", type=Path, default=HERE / "source", help="folder with the source's files")
    parser.add_argument(
        "--out", default=str(HERE / "trading_desk.jsonl.gz"), help="file to write; - is standard output"
    )
    arguments = parser.parse_args()
    lines.write(convert(arguments.data), None if arguments.out == "-" else Path(arguments.out))


if __name__ == "__main__":
    main()
