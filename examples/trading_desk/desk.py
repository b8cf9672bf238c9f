"""
The desk: its seats, the order in which they speak, the domains of their claims, and the companies it looks at.

A seat, an analyst or a company that is not named here is data like any other: it keeps the name that the source gives
it, and speaks after those whose order is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from examples import lines
from examples.lines import Line, present, record

HERE = Path(__file__).resolve().parent

EQUITY = "equity_direction"
TECHNICAL = "technical_analysis"
FUNDAMENTALS = "company_fundamentals"

DOMAINS = {
    EQUITY: "Which way a stock goes from one close to a later one.",
    TECHNICAL: "What prices and indicators show, without a proposal to buy, hold or sell.",
    FUNDAMENTALS: "What the accounts and valuation of a company show.",
}

SENTIMENT_ANALYST = "sentiment_analyst"
MARKET_ANALYST = "market_analyst"
FUNDAMENTALS_ANALYST = "fundamentals_analyst"
NEWS_ANALYST = "news_analyst"
BULL = "bull_researcher"
BEAR = "bear_researcher"
RESEARCH_MANAGER = "research_manager"
TRADER = "trader"
AGGRESSIVE = "aggressive_risk_analyst"
CONSERVATIVE = "conservative_risk_analyst"
NEUTRAL = "neutral_risk_analyst"
PORTFOLIO_MANAGER = "portfolio_manager"

SEATS: dict[str, tuple[str, list[str]]] = {
    SENTIMENT_ANALYST: ("Mood of posts and headlines about a company", [EQUITY]),
    MARKET_ANALYST: ("Prices and technical indicators", [EQUITY, TECHNICAL]),
    FUNDAMENTALS_ANALYST: ("Accounts and valuation", [FUNDAMENTALS]),
    NEWS_ANALYST: ("News about a company and its market", []),
    BULL: ("Argues for a stock in the research debate", [EQUITY]),
    BEAR: ("Argues against a stock in the research debate", [EQUITY]),
    RESEARCH_MANAGER: ("Judges the research debate", [EQUITY]),
    TRADER: ("Proposes the trade", [EQUITY]),
    AGGRESSIVE: ("Argues for more risk in the risk debate", []),
    CONSERVATIVE: ("Argues for less risk in the risk debate", []),
    NEUTRAL: ("Weighs both sides in the risk debate", []),
    PORTFOLIO_MANAGER: ("Judges the risk debate and decides", [EQUITY]),
}
"""Each agent with its specialization and the domains in which it states findings."""

ANALYSTS = {
    "sentiment": SENTIMENT_ANALYST,
    "market": MARKET_ANALYST,
    "fundamentals": FUNDAMENTALS_ANALYST,
    "news": NEWS_ANALYST,
}
"""Names of analysts in the source, and here."""

SPEAKERS = {
    "bull": BULL,
    "bear": BEAR,
    "aggressive": AGGRESSIVE,
    "conservative": CONSERVATIVE,
    "neutral": NEUTRAL,
}
"""Names of debaters in the source, and here."""

SPEAKING_ORDER = {"research": ("bull", "bear"), "risk": ("aggressive", "conservative", "neutral")}
"""Who speaks after whom in each round; the source numbers the turns of each role and not of the debate."""

SIDES = {BULL: "bull", BEAR: "bear"}

CITED_BY_DECISION = (
    PORTFOLIO_MANAGER,
    RESEARCH_MANAGER,
    TRADER,
    SENTIMENT_ANALYST,
    MARKET_ANALYST,
    FUNDAMENTALS_ANALYST,
    NEWS_ANALYST,
)
"""What a decision stands on: first the decider's own finding, then plan, proposal and reports."""

RAN_BY = {
    RESEARCH_MANAGER: "judges the research debate",
    TRADER: "proposes the trade",
    PORTFOLIO_MANAGER: "decides",
}
"""Who carried a run from reports to decision, with the role."""


def speaker(role: str) -> str:
    """Return the agent behind a debater's *role* in the source."""
    return SPEAKERS.get(role) or lines.name_of(role)


def analyst(name: str) -> str:
    """Return the agent behind the *name* of an analyst in the source."""
    return ANALYSTS.get(name) or lines.name_of(f"{name}_analyst")


def domain_of(agent: str) -> str:
    """Return the domain of a report that claims nothing."""
    return {MARKET_ANALYST: TECHNICAL, FUNDAMENTALS_ANALYST: FUNDAMENTALS}.get(agent, agent)


def place(stage: str, role: str) -> int:
    """Return where *role* speaks in a round of *stage*."""
    order = SPEAKING_ORDER.get(stage, ())
    return order.index(role) if role in order else len(order)


def read_companies(data: Path) -> dict[str, dict[str, str]]:
    """
    Return name and GICS sector by ticker: public knowledge, since the source has tickers alone.

    A ``companies.csv`` in the folder of the data goes before the one beside this file. A fund has no sector.
    """
    found = {}
    for path in (HERE / "companies.csv", data / "companies.csv"):
        for row in lines.read_rows(path) if path.exists() else []:
            found[row["ticker"]] = {name: row[name] for name in ("name", "sector") if row[name]}
    return found


def reference_lines(
    first_run: Mapping[str, datetime], found: Iterable[Line], companies: Mapping[str, Mapping[str, str]]
) -> list[Line]:
    """Return domains, agents and companies, each known with the first of the lines *found* that needs it."""
    start = min(first_run.values())
    domains = dict.fromkeys(DOMAINS, start)
    seats = dict.fromkeys(SEATS, start)
    speaks: dict[str, set[str]] = {}
    for agent, domain, known_at in _voices(found):
        seats[agent] = min(known_at, seats.get(agent, known_at))
        own = speaks.setdefault(agent, set())
        if domain is not None:
            domains[domain] = min(known_at, domains.get(domain, known_at))
            own.add(domain)
    named = [
        record("Domain", present(name=name, description=DOMAINS.get(name)), known_at=known_at)
        for name, known_at in domains.items()
    ]
    for name, known_at in seats.items():
        specialization, own_domains = SEATS.get(name) or (name.replace("_", " "), [])
        domains_of = [*own_domains, *sorted(speaks.get(name, set()).difference(own_domains))]
        profile = {
            "specialization": specialization,
            "kind": "model",
            "domains": domains_of,
            "team": "TradingAgents desk",
            "licence": "Apache-2.0",
        }
        named.append(record("Agent", {"name": name}, groups={"profile": profile}, known_at=known_at))
    for ticker, known_at in first_run.items():
        core = {"ticker": ticker, "subject_id": f"company:{ticker}"}
        profile_of = companies.get(ticker)
        groups = {"profile": profile_of} if profile_of else None
        named.append(record("Company", core, groups=groups, known_at=known_at))
    return named


def _voices(found: Iterable[Line]) -> Iterator[tuple[str, str | None, datetime]]:
    """Yield who is heard in *found*, in which domain if in one, and when."""
    for line in found:
        core = line.content.get("core", {})
        speakers = [turn["speaker"] for turn in line.content.get("turns", [])]
        sources = [core[name] for name in ("source_a", "source_b") if name in core]
        if "agent" in core:
            yield core["agent"], core["domain"], line.known_at
        for agent in (*core.get("participants", []), *speakers, *sources):
            yield agent, None, line.known_at
