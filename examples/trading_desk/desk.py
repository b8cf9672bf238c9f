"""The desk: its seats, the order in which they speak, the domains of their claims, and the companies it looks at."""

from __future__ import annotations

from datetime import datetime

from examples.lines import Line, record

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
)
"""What a decision stands on: first the decider's own finding, then plan, proposal and reports."""

RAN_BY = {
    RESEARCH_MANAGER: "judges the research debate",
    TRADER: "proposes the trade",
    PORTFOLIO_MANAGER: "decides",
}
"""Who carried a run from reports to decision, with the role."""

TECHNOLOGY = "Information Technology"
DISCRETIONARY = "Consumer Discretionary"

COMPANIES: dict[str, tuple[str, str | None]] = {
    "AAPL": ("Apple", TECHNOLOGY),
    "ALAB": ("Astera Labs", TECHNOLOGY),
    "AMD": ("Advanced Micro Devices", TECHNOLOGY),
    "ANET": ("Arista Networks", TECHNOLOGY),
    "ASML": ("ASML Holding", TECHNOLOGY),
    "BABA": ("Alibaba Group", DISCRETIONARY),
    "CRDO": ("Credo Technology", TECHNOLOGY),
    "CRWD": ("CrowdStrike", TECHNOLOGY),
    "GOOGL": ("Alphabet", "Communication Services"),
    "INTC": ("Intel", TECHNOLOGY),
    "LRCX": ("Lam Research", TECHNOLOGY),
    "MRVL": ("Marvell Technology", TECHNOLOGY),
    "MU": ("Micron Technology", TECHNOLOGY),
    "NKE": ("Nike", DISCRETIONARY),
    "NU": ("Nu Holdings", "Financials"),
    "ORCL": ("Oracle", TECHNOLOGY),
    "PDD": ("PDD Holdings", DISCRETIONARY),
    "QCOM": ("Qualcomm", TECHNOLOGY),
    "SMCI": ("Super Micro Computer", TECHNOLOGY),
    "SOXX": ("iShares Semiconductor ETF", None),
    "TSLA": ("Tesla", DISCRETIONARY),
    "VSH": ("Vishay Intertechnology", TECHNOLOGY),
}
"""Name and GICS sector by ticker, public knowledge: the source has tickers alone. A fund has no sector."""


def reference_lines(first_run: dict[str, datetime]) -> list[Line]:
    """Return domains, agents and companies, each known with the first run that needs it."""
    start = min(first_run.values())
    found = [
        record("Domain", {"name": name, "description": description}, known_at=start)
        for name, description in DOMAINS.items()
    ]
    for name, (specialization, domains) in SEATS.items():
        profile = {
            "specialization": specialization,
            "kind": "model",
            "domains": domains,
            "team": "TradingAgents desk",
            "licence": "Apache-2.0",
        }
        found.append(record("Agent", {"name": name}, groups={"profile": profile}, known_at=start))
    for ticker, known_at in first_run.items():
        name, sector = COMPANIES[ticker]
        core = {"ticker": ticker, "subject_id": f"company:{ticker}"}
        groups = {"profile": {"name": name} if sector is None else {"name": name, "sector": sector}}
        found.append(record("Company", core, groups=groups, known_at=known_at))
    return found
