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
- What a run lacks (a rating, a report, a debate, a company's name) is left out with what would rest on it, and a label
  that is not known here claims nothing.
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
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import islice
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script finds its own folder only; the shared modules lie two above
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from examples import lines
from examples.lines import Line, cut, link, present, record
from examples.trading_desk import contradictions, desk, exchange, sessions
from imem.recall.rendering.lead import sentences_of, telling

HERE = Path(__file__).resolve().parent
CLAIM = "return_1s"

STATEMENT_LIMIT = 1500
"""Characters of a statement: a report's conclusion fits; longer reasons stand whole in a body or in the turns."""

QUOTE_LIMIT = 600
"""Characters of a judge's or challenger's words where a debate quotes them."""

SENTENCES = 80
"""Characters of prose below which a report is quoted with the rows of its tables: it says hardly anything else."""

RUN_PREFIX = "trading_desk"

DIRECTION_OF_LABEL = {
    "Bullish": "positive",
    "Mildly Bullish": "positive",
    "Mixed": "neutral",
    "Neutral": "neutral",
    "Mildly Bearish": "negative",
    "Bearish": "negative",
}
DIRECTION_OF_RATING = {
    "Buy": "positive",
    "Overweight": "positive",
    "Hold": "neutral",
    "Underweight": "negative",
    "Sell": "negative",
}
STANCE_OF_RATING = {"Buy": "long", "Overweight": "long", "Hold": "hold", "Underweight": "avoid", "Sell": "short"}
DIRECTION_OF_ACTION = {"Buy": "positive", "Hold": "neutral", "Sell": "negative"}
RECOMMENDATION_OF_RATING = {"Buy": "buy", "Overweight": "buy", "Hold": "hold", "Underweight": "sell", "Sell": "sell"}
WINNER_OF_RATING = {"Buy": desk.BULL, "Overweight": desk.BULL, "Underweight": desk.BEAR, "Sell": desk.BEAR}

_DISCLAIMER = re.compile(r"\W*(?:\w+ )?(?:disclaimer|disclosure)\b|.*not constitute", re.IGNORECASE)
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

    @property
    def decision_key(self) -> str:
        """Return the key of its Decision."""
        return f"{self.key}/decision"

    @property
    def decided(self) -> bool:
        """Tell whether the run came to a rating."""
        return "rating" in self.part("portfolio_manager")

    def part(self, name: str) -> dict[str, Any]:
        """Return what the decision's row says of one seat, without what it leaves open; empty where it is silent."""
        said = self.decision.get(name) or {}
        return {field: value for field, value in said.items() if value not in (None, "")}

    def finding_id(self, agent: str) -> str:
        """Return the key of what *agent* stated in this run."""
        return f"{self.key}/{agent}"


def read_runs(data: Path) -> list[Run]:
    """Return the runs of the source, in its order."""
    conclusions: dict[str, dict[str, str]] = defaultdict(dict)
    for row in lines.read_objects(data / "analyst_conclusions.jsonl.gz"):
        conclusions[row["run_id"]][row["analyst"]] = row["conclusion"]
    turns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in lines.read_objects(data / "debate_turns.jsonl.gz"):
        turns[row["run_id"]].append(row)
    claims: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in lines.read_rows(data / "metric_claims.csv.gz"):
        claims[row["run_id"]].append(row)
    return [
        Run(
            key=f"{RUN_PREFIX}:{row['run_id']}",
            ticker=row["ticker"],
            day=date.fromisoformat(row["date"]),
            known_at=known_at_of(row),
            decision=row,
            conclusions=conclusions[row["run_id"]],
            turns=turns[row["run_id"]],
            claims=claims[row["run_id"]],
        )
        for row in lines.read_objects(data / "decisions.jsonl.gz")
    ]


def known_at_of(row: dict[str, Any]) -> datetime:
    """Return when a run was known: by its clock, or by its day where it tells no time."""
    if not row.get("created_at"):
        return lines.known_at_of_date(date.fromisoformat(row["date"]))
    created = datetime.fromisoformat(row["created_at"])
    return lines.known_at_of_naive(created) if created.tzinfo is None else created.astimezone(UTC)


def prose(report: str) -> str:
    """
    Return what a report says from its first telling sentence on; its body keeps the whole.

    Tables, headings, rules, disclaimers and words to the audience are left out; of a report that says hardly anything
    but in tables the rows follow its sentence, if it is a whole one. The source cuts some reports at their beginning,
    in the middle of a word: that sentence goes too.
    """
    said = [line for line in report.splitlines() if line.strip() and not _DISCLAIMER.match(line)]
    if len(said) > 1 and said[0][:1].islower():
        said = said[1:]
    sentences = [line for line in said if not line.lstrip().startswith(("|", "#", "---", "===", "***"))]
    rows = [line for line in said if line.lstrip().startswith("|")]
    spoken = telling("\n".join(sentences)) if sentences else ""
    if not rows or sum(map(len, sentences)) >= SENTENCES:
        return spoken or telling(report)
    table = telling("\n".join(rows))
    return f"{spoken} {table}" if spoken.endswith((".", "!", "?")) else table


def case(speech: str) -> str:
    """Return an advocate's case from its first figure on: speeches open with rhetoric."""
    found = sentences_of(prose(speech))
    first = next((place for place, sentence in enumerate(found) if re.search(r"\d", sentence)), 0)
    return " ".join(found[first:])


def finding(
    run: Run, agent: str, domain: str, statement: str, *, direction: str | None, claims: bool, body: str | None = None
) -> Line:
    """Return what *agent* stated; with *claims* and a direction it is a claim on the session that opens next."""
    target = sessions.claimed_session(run.known_at) if claims and direction is not None else None
    core = present(
        id=run.finding_id(agent),
        analysis_id=run.key,
        subject_id=run.subject_id,
        agent=agent,
        domain=domain,
        statement=cut(statement, STATEMENT_LIMIT, closing=400),
        direction=direction,
        metric=None if target is None else CLAIM,
        target_at=None if target is None else lines.stamp(exchange.closes_at(target)),
    )
    return record("Finding", core, known_at=run.known_at, body=body)


def analysis_line(run: Run) -> Line:
    """Return the run itself; the close that it believed in is told in its body and used nowhere."""
    manager = run.part("portfolio_manager")
    close = run.decision.get("last_close")
    believed = (
        "The source records no close for this run."
        if close is None
        else f"The run believed in a last close of {close} USD."
    )
    core = present(
        id=run.key,
        subject_id=run.subject_id,
        date=lines.stamp(datetime.combine(run.day, time(), tzinfo=UTC)),
        kind="trading_desk_run",
        recommendation=RECOMMENDATION_OF_RATING.get(manager.get("rating", "")),
        model=run.decision.get("model"),
        summary=cut(manager["summary"]) if "summary" in manager else None,
    )
    return record("Analysis", core, known_at=run.known_at, body=believed)


def sentiment_lines(run: Run, report: str | None) -> list[Line]:
    """Return the finding of the sentiment analyst, if it gave a label: one, with its *report* if it wrote one."""
    mood = run.part("sentiment")
    if "label" not in mood:
        return []
    said = [f"Sentiment {mood['label']}"]
    said += [f"score {mood['score']} of 10"] if "score" in mood else []
    said += [f"confidence {mood['confidence']}"] if "confidence" in mood else []
    direction = DIRECTION_OF_LABEL.get(mood["label"])
    statement = f"{', '.join(said)}." if report is None else f"{', '.join(said)}. {prose(report)}"
    return [finding(run, desk.SENTIMENT_ANALYST, desk.EQUITY, statement, direction=direction, claims=True, body=report)]


def analyst_lines(run: Run) -> list[Line]:
    """Return the findings of the analysts; where a conclusion names no direction, none is made up."""
    reports = {desk.analyst(name): report for name, report in run.conclusions.items() if report.strip()}
    found = sentiment_lines(run, reports.get(desk.SENTIMENT_ANALYST))
    for agent, report in reports.items():
        if found and agent == desk.SENTIMENT_ANALYST:
            continue  # Stated with its label.
        proposal = _PROPOSAL.search(report) if agent == desk.MARKET_ANALYST else None
        direction = None if proposal is None else DIRECTION_OF_ACTION[proposal[1].capitalize()]
        domain = desk.domain_of(agent) if proposal is None else desk.EQUITY
        found.append(finding(run, agent, domain, prose(report), direction=direction, claims=True, body=report))
    return found


def advocate_lines(run: Run) -> list[Line]:
    """Return the cases of bull and bear: they argue a side that they were given, so they claim nothing."""
    found = []
    for agent, direction in ((desk.BULL, "positive"), (desk.BEAR, "negative")):
        openings = (turn for turn in run.turns if desk.speaker(turn["role"]) == agent and turn["turn"] == 1)
        for opening in islice(openings, 1):
            said = case(turn_text(opening))
            found.append(finding(run, agent, desk.EQUITY, said, direction=direction, claims=False))
    return found


def judge_lines(run: Run) -> list[Line]:
    """Return the findings of research manager, trader and portfolio manager, as far as each came to a conclusion."""
    research, trade, manager = (run.part(name) for name in ("research_manager", "trader", "portfolio_manager"))
    found = []
    if "rating" in research:
        reasons = [research[name] for name in ("rationale", "actions") if name in research]
        found.append(judged(run, desk.RESEARCH_MANAGER, research, "rationale", body="\n\n".join(reasons) or None))
    if "action" in trade:
        plan = [f"Action {trade['action']}."]
        plan += [f"{name.capitalize()} {trade[name]} USD." for name in ("entry", "stop") if name in trade]
        plan += [f"Sizing: {trade['sizing']}"] if "sizing" in trade else []
        plan += [trade["reasoning"]] if "reasoning" in trade else []
        said = " ".join(plan)
        found.append(
            finding(
                run,
                desk.TRADER,
                desk.EQUITY,
                said,
                direction=DIRECTION_OF_ACTION.get(trade["action"]),
                claims=True,
                body=said if len(said) > STATEMENT_LIMIT else None,
            )
        )
    if "rating" in manager:
        found.append(judged(run, desk.PORTFOLIO_MANAGER, manager, "thesis", body=None))
    return found


def judged(run: Run, agent: str, said: dict[str, Any], reason: str, *, body: str | None) -> Line:
    """Return what a judge concluded: its rating, and why where it says why."""
    rating = said["rating"]
    statement = f"{rating}: {prose(said[reason])}" if reason in said else f"{rating}."
    return finding(
        run, agent, desk.EQUITY, statement, direction=DIRECTION_OF_RATING.get(rating), claims=True, body=body
    )


def turn_text(turn: dict[str, Any]) -> str:
    """Return a turn's text; the source keeps the opening and the closing of a long one."""
    opening, closing = turn["opening"], turn["closing"]
    if turn["chars"] <= len(opening) + len(closing):
        return str(opening + closing)
    return str(opening + lines.ELLIPSIS + closing)


def quote(text: str) -> str:
    """Return the first telling sentences and the closing of *text*: a judge's verdict often comes last."""
    return cut(prose(text), QUOTE_LIMIT, closing=250)


def debate_turns(run: Run, stage: str) -> list[dict[str, Any]]:
    """Return the turns of a stage in speaking order: round by round, in the order in which the desk gives the word."""
    spoken = sorted(
        (turn for turn in run.turns if turn["stage"] == stage),
        key=lambda turn: (turn["turn"], desk.place(stage, turn["role"])),
    )
    return [
        {
            "number": number,
            "stage": stage,
            "speaker": desk.speaker(turn["role"]),
            "stance": turn["role"],
            "text": turn_text(turn),
            "cites": [],
        }
        for number, turn in enumerate(spoken, start=1)
    ]


def debate_lines(run: Run, stated: set[str]) -> list[Line]:
    """
    Return the debates of a run with their resolutions and the links to judge and winner.

    Args:
        stated: the agents that a finding of this run is by; what nobody stated cannot be disputed.
    """
    research, manager = run.part("research_manager"), run.part("portfolio_manager")
    plan = run.part("trader").get("action")
    return [
        *one_debate(
            run,
            stated,
            stage="research",
            topic=f"{run.ticker} on {run.day}: the bull's case for the stock",
            challenged=desk.BULL,
            challenger=desk.BEAR,
            judge=desk.RESEARCH_MANAGER,
            verdict=(research.get("rating"), research.get("rationale")),
            winner=WINNER_OF_RATING.get(research.get("rating", "")),
        ),
        *one_debate(
            run,
            stated,
            stage="risk",
            topic=f"{run.ticker} on {run.day}: the risk in the trader's plan" + (f" ({plan})" if plan else ""),
            challenged=desk.TRADER,
            challenger=desk.CONSERVATIVE,
            judge=desk.PORTFOLIO_MANAGER,
            verdict=(manager.get("rating"), manager.get("summary")),
            winner=None,
        ),
    ]


def one_debate(
    run: Run,
    stated: set[str],
    *,
    stage: str,
    topic: str,
    challenged: str,
    challenger: str,
    judge: str,
    verdict: tuple[str | None, str | None],
    winner: str | None,
) -> list[Line]:
    """
    Return a debate, its resolution and its links; nothing where the challenger said nothing.

    A debate that its judge did not end waits for it at level 2.
    """
    rating, reason = verdict
    key = f"{run.key}/{stage}"
    turns = debate_turns(run, stage)
    challenges = [turn["text"] for turn in turns if turn["speaker"] == challenger]
    if not challenges:
        return []
    core = present(
        id=key,
        subject_id=run.subject_id,
        analysis_id=run.key,
        topic=cut(topic, lines.STRING_LIMIT, closing=40),
        challenger_agent=challenger,
        challenged_agent=challenged,
        participants=sorted({turn["speaker"] for turn in turns} | {challenged, challenger}),
        disputed_finding=run.finding_id(challenged) if challenged in stated else None,
        challenge_basis=cut(case(challenges[0]), QUOTE_LIMIT, closing=250),
        timestamp=lines.stamp(run.known_at),
        judge=judge,
    )
    if rating is None:
        open_state = {"state": "level2", "provisional": True}
        return [record("Debate", core, groups={"state": open_state}, turns=turns, known_at=run.known_at)]
    ending = f"{rating}, without a winner." if winner is None else f"{rating}: the {desk.SIDES[winner]} side won."
    state = {
        "state": "closed",
        "resolution_level": "2_facilitator",
        "resolution_method": "judged",
        "final_position": ending,
        "provisional": False,
    }
    position = f"{rating}: {reason}" if reason else f"{rating}."
    resolution = present(id=f"{key}/resolution", debate_id=key, winning_position=quote(position), winning_agent=winner)
    found = [
        record("Debate", core, groups={"state": state}, turns=turns, known_at=run.known_at),
        record("DebateResolution", resolution, known_at=run.known_at),
        link("RESOLVED_BY", ("Debate", key), ("Agent", judge), known_at=run.known_at),
    ]
    if winner is not None:
        found.append(link("WINNING_POSITION", ("Debate", key), ("Agent", winner), known_at=run.known_at))
    return found


def decision_lines(run: Run, stated: set[str]) -> list[Line]:
    """Return the decision, if there was one, and what it stands on; the finding of rank 1 settles it."""
    manager = run.part("portfolio_manager")
    if not run.decided:
        return []
    key = run.decision_key
    target = f" Price target {manager['price_target']} USD." if "price_target" in manager else ""
    horizon = f" Horizon: {manager['horizon']}." if "horizon" in manager else ""
    core = {
        "id": key,
        "analysis_id": run.key,
        "subject_id": run.subject_id,
        "type": "portfolio_rating",
        "agents_involved": [desk.PORTFOLIO_MANAGER]
        + [agent for agent in (desk.RESEARCH_MANAGER, desk.TRADER) if agent in stated],
        "decided_at": lines.stamp(run.known_at),
        "action": manager["rating"],
    }
    if manager["rating"] in STANCE_OF_RATING:
        core["stance"] = STANCE_OF_RATING[manager["rating"]]
    reasons = [manager[name] for name in ("summary", "thesis") if name in manager]
    body = "\n\n".join([f"Rating {manager['rating']}.{target}{horizon}", *reasons])
    found = [record("Decision", core, known_at=run.known_at, body=body)]
    cited = [agent for agent in desk.CITED_BY_DECISION if agent in stated]
    for rank, agent in enumerate(cited, start=1):
        props = {"at": lines.stamp(run.known_at), "rank": rank}
        ends = ("Decision", key), ("Finding", run.finding_id(agent))
        found.append(link("CITES", *ends, props=props, known_at=run.known_at))
    return found


def performed_lines(run: Run, stated: set[str]) -> list[Line]:
    """Return who carried the run from reports to decision."""
    return [
        link("PERFORMED", ("Agent", agent), ("Analysis", run.key), props={"role": role}, known_at=run.known_at)
        for agent, role in desk.RAN_BY.items()
        if agent in stated
    ]


def run_lines(run: Run) -> list[Line]:
    """Return everything that became known with one run."""
    findings = [*analyst_lines(run), *advocate_lines(run), *judge_lines(run)]
    stated = {line.content["core"]["agent"] for line in findings}
    return [
        analysis_line(run),
        *findings,
        *debate_lines(run, stated),
        *decision_lines(run, stated),
        *performed_lines(run, stated),
        *contradictions.lines_of(
            run.claims, analysis_id=run.key, subject_id=run.subject_id, known_at=run.known_at, agent_of=desk.analyst
        ),
    ]


def convert(data: Path = HERE / "source") -> list[Line]:
    """Return the lines of the extract in *data*, in order."""
    runs = read_runs(data)
    if not runs:
        return []
    first_run: dict[str, datetime] = {}
    found: list[Line] = []
    for run in runs:
        first_run[run.ticker] = min(run.known_at, first_run.get(run.ticker, run.known_at))
        found += run_lines(run)
    found = desk.reference_lines(first_run, found, desk.read_companies(data)) + found
    decided = {run.decision["run_id"]: (run.decision_key, run.known_at) for run in runs if run.decided}
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
