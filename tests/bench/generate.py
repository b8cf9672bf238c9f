"""
A made-up history of any size, the same for the same number: what the measurements load.

    python -m tests.bench.generate 1500 history.jsonl

About a company an analysis has four claims by four agents, a decision that cites the first, what came of it five days
later, and, every second one, a debate that is closed the next day: 10 events and about 23 relationships, the edges by
which outcomes settle claims included. Forty agents speak in twelve domains about three hundred companies, over twenty
months whatever the number, in the order in which things could be known. Every twentieth analysis finds two sources at
odds.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

Line = dict[str, Any]

AGENTS: Final = 40
DOMAINS: Final = 12
COMPANIES: Final = 300
SECTORS: Final = 11
CLAIMS: Final = 4
DECIDERS: Final = 3

START: Final = datetime(2024, 1, 2, tzinfo=UTC)
SPAN: Final = timedelta(days=600)
HORIZON: Final = timedelta(days=5)

_WORDS: Final = [
    "margin", "demand", "supply", "inventory", "guidance", "backlog", "pricing", "capacity", "orders", "utilisation",
    "momentum", "valuation", "consensus", "revision", "cycle", "memory", "foundry", "logistics", "currency", "rates",
    "credit", "cash", "leverage", "dividend", "buyback", "share", "growth", "decline",
]  # fmt: skip
_DIRECTIONS: Final = ("positive", "positive", "negative", "neutral")
_CALLS: Final = ("strong_buy", "buy", "hold", "sell", "strong_sell")


def text(moment: datetime) -> str:
    """Return *moment* as lines state it."""
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class History:
    """
    The lines of one history.

    Attributes:
        analyses: how many.
        chance: the seeded source of everything that varies.
    """

    analyses: int
    chance: random.Random = field(default_factory=lambda: random.Random(20260602))

    def lines(self) -> Iterator[Line]:
        """Yield every line, by when it could be known."""
        later: list[tuple[str, int, Line]] = []
        number = 0
        yield from self._reference()
        for nth in range(self.analyses):
            made = START + SPAN * nth / self.analyses
            while later and later[0][0] <= text(made):
                yield heapq.heappop(later)[2]
            for line in self._analysis(nth, made):
                if line["known_at"] == text(made):
                    yield line
                else:
                    heapq.heappush(later, (line["known_at"], number, line))
                    number += 1
        while later:
            yield heapq.heappop(later)[2]

    def _prose(self, words: int) -> str:
        return " ".join(self.chance.choices(_WORDS, k=words)).capitalize() + "."

    def _reference(self) -> Iterator[Line]:
        """Yield what the work is about and who does it."""
        known = text(START - timedelta(days=1))
        for domain in range(DOMAINS):
            yield {"record": "Domain", "known_at": known, "core": {"name": f"domain_{domain:02}"}}
        for agent in range(AGENTS):
            profile = {
                "specialization": self._prose(3),
                "kind": "baseline" if agent == AGENTS - 1 else "model",
                "domains": [f"domain_{agent % DOMAINS:02}"],
            }
            core = {"name": _agent(agent)}
            yield {"record": "Agent", "known_at": known, "core": core, "groups": {"profile": profile}}
        for company in range(COMPANIES):
            profile = {"name": f"{_WORDS[company % len(_WORDS)].capitalize()} {company:03} Corporation"}
            profile |= {"sector": f"sector_{company % SECTORS:02}", "industry": _WORDS[company % len(_WORDS)]}
            core = {"ticker": _ticker(company)}
            yield {"record": "Company", "known_at": known, "core": core, "groups": {"profile": profile}}

    def _analysis(self, nth: int, made: datetime) -> Iterator[Line]:
        """Yield an analysis and everything that hangs on it."""
        known = text(made)
        key, subject = f"analysis-{nth:06}", f"company:{_ticker(nth * 7 % COMPANIES)}"
        agents = [_agent(one) for one in self.chance.sample(range(AGENTS), CLAIMS)]
        core = {
            "id": key,
            "subject_id": subject,
            "date": known,
            "kind": "equity_research",
            "recommendation": self.chance.choice(_CALLS),
            "confidence": round(self.chance.uniform(0.4, 0.95), 3),
            "horizon_days": HORIZON.days,
            "summary": self._prose(30),
        }
        yield {"record": "Analysis", "known_at": known, "core": core, "body": self._prose(200)}
        ends = {"from": {"Agent": agents[0]}, "to": {"Analysis": key}}
        yield {"link": "PERFORMED", "known_at": known, **ends, "props": {"role": "lead"}}
        target = text(made + HORIZON)
        yield from (
            self._claim(key, subject, place, agent=agents[place], known=known, target=target) for place in range(CLAIMS)
        )
        yield from self._decision(key, subject, agents[:DECIDERS], made)
        if nth % 2 == 0:
            yield from self._debate(key, subject, agents[:2], made)
        if nth % 20 == 0:
            yield self._contradiction(key, subject, known)

    def _claim(self, analysis: str, subject: str, place: int, *, agent: str, known: str, target: str) -> Line:
        core = {
            "id": f"{analysis}/{place}",
            "analysis_id": analysis,
            "subject_id": subject,
            "agent": agent,
            "domain": f"domain_{(int(agent[-2:]) + place) % DOMAINS:02}",
            "statement": self._prose(20),
            "direction": self.chance.choice(_DIRECTIONS),
            "confidence": round(self.chance.uniform(0.5, 0.95), 3),
            "importance": round(self.chance.random(), 3),
            "metric": "return_5s",
            "target_at": target,
        }
        return {"record": "Finding", "known_at": known, "core": core}

    def _decision(self, analysis: str, subject: str, agents: list[str], made: datetime) -> Iterator[Line]:
        """Yield a decision, what it rests on, and what came of it."""
        known, target = text(made), text(made + HORIZON)
        decision = f"{analysis}/decision"
        core = {
            "id": decision,
            "analysis_id": analysis,
            "subject_id": subject,
            "type": "portfolio",
            "agents_involved": agents,
            "decided_at": known,
            "action": self.chance.choice(("buy", "hold", "sell")),
            "size_usd": float(self.chance.randrange(10_000, 1_000_000)),
        }
        yield {"record": "Decision", "known_at": known, "core": core}
        ends = {"from": {"Decision": decision}, "to": {"Finding": f"{analysis}/0"}}
        yield {"link": "CITES", "known_at": known, **ends, "props": {"at": known, "rank": 1}}
        observed = text(made + HORIZON + timedelta(hours=6))
        outcome = {
            "id": f"{analysis}/outcome",
            "subject_id": subject,
            "decision_id": decision,
            "checkpoint": HORIZON.days,
            "metric": "return_5s",
            "target_at": target,
            "actual": round(self.chance.gauss(0.0, 0.04), 5),
            "unit": "fraction",
            "observed_at": observed,
            "vintage": 0,
            "source": "prices",
        }
        yield {"record": "Outcome", "known_at": observed, "core": outcome}

    def _debate(self, analysis: str, subject: str, agents: list[str], made: datetime) -> Iterator[Line]:
        """Yield a debate, and its end a day later."""
        known, ended = text(made), text(made + timedelta(days=1))
        key = f"{analysis}/debate"
        core = {
            "id": key,
            "subject_id": subject,
            "analysis_id": analysis,
            "topic": self._prose(6),
            "challenger_agent": agents[1],
            "challenged_agent": agents[0],
            "participants": agents,
            "disputed_finding": f"{analysis}/0",
            "challenge_basis": self._prose(25),
            "timestamp": known,
        }
        turns = [
            {"number": number, "stage": "research", "speaker": agents[number % 2], "text": self._prose(40)}
            for number in range(4)
        ]
        opened = {"state": {"state": "level1", "provisional": True}}
        yield {"record": "Debate", "known_at": known, "core": core, "groups": opened, "turns": turns}
        closed = {"state": "closed", "resolution_level": "2_facilitator", "provisional": False}
        closed["final_position"] = self._prose(12)
        yield {"record": "Debate", "known_at": ended, "key": key, "groups": {"state": closed}}

    def _contradiction(self, analysis: str, subject: str, known: str) -> Line:
        core = {
            "id": f"{analysis}/contradiction",
            "subject_id": subject,
            "analysis_id": analysis,
            "data_point": "revenue",
            "source_a": "vendor_a",
            "source_b": "vendor_b",
            "value_a": round(self.chance.uniform(1, 9), 3),
            "value_b": round(self.chance.uniform(1, 9), 3),
            "timestamp": known,
        }
        return {"record": "DataContradiction", "known_at": known, "core": core}


def patterns(count: int) -> Iterator[Line]:
    """
    Yield statements of *count* patterns, four of five of them active, over all sectors and none.

    Only the subsystem of patterns states such: they are no part of what is loaded.
    """
    chance = random.Random(20260603)
    known = text(START - timedelta(days=1))
    for nth in range(count):
        sector = nth % (SECTORS + 1)
        core = {"pattern_id": f"pattern-{nth:05}", "name": f"{chance.choice(_WORDS)} leads {chance.choice(_WORDS)}"}
        core |= {"category": chance.choice(_WORDS)} | ({"sector": f"sector_{sector:02}"} if sector < SECTORS else {})
        status = {"status": "deprecated" if nth % 5 == 0 else "active", "quarantined": False}
        performance = {
            "success_rate": round(chance.uniform(0.3, 0.9), 4),
            "occurrence_count": chance.randrange(5, 500),
        }
        groups = {"status": status, "performance": performance}
        yield {"record": "Pattern", "known_at": known, "core": core, "groups": groups}


def _agent(number: int) -> str:
    return f"agent_{number:02}"


def _ticker(number: int) -> str:
    return f"C{number:03}"


def write(analyses: int, path: Path) -> int:
    """Write a history to *path* and return its number of lines."""
    count = 0
    with path.open("wb") as file:
        for line in History(analyses).lines():
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
    return count


if __name__ == "__main__":
    print(write(int(sys.argv[1]), Path(sys.argv[2])))  # noqa: T201 - a program
