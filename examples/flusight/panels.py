"""
Whose forecast counts: a season of panels, weighted by record beside equal weights, and attacks on the weights.

Each week the agents' forecasts are pooled with equal weights and with those that :mod:`imem.credibility.panels` gives
them by what was published until then; both pools are scored against the last revision. The attacks add an agent: one
that copies the best, one that floods a single week, one that answers only easy questions, a new name, and one that
answers when nearly all is known.

Run it with ``python examples/flusight/panels.py [--data DIR] [--season S] [--methods] [--pictures DIR]``: it prints the
table by week and the attacks' effect, with ``--methods`` other ways to pool, and writes the pictures of
docs/explanation/panels.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":  # a script finds its own folder only; the shared module lies two above
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from docs.pictures import drawing
from examples import lines
from examples.flusight.convert import HERE, Question, read_forecasts, read_question
from imem.credibility.panels.pooling import Evidence, Observations
from imem.credibility.scores.context import ClaimContext

ATTACKS: Final = ("a copy of the best", "floods one week", "easy questions alone", "a new name", "answers last")
COPIED: Final = "the best, copied"
LATE_S: Final = 60.0
"""Seconds by which a copy comes after what it copies, and before the end at which who answers last does."""

RESAMPLES: Final = 4000
FLOOD_WEEK: Final = 10
"""The week of the season in which the flood is answered."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Season:
    """
    Questions with the agents' probabilities, one row each; NaN where an agent did not answer.

    Attributes:
        ahead: seconds from each answer to the moment that the question is about; of the same shape.
        first: index of the first question of the season that is evaluated; those before are earlier seasons.
    """

    agents: list[str]
    questions: list[Question]
    stated: Floats
    ahead: Floats
    first: int

    @cached_property
    def targets(self) -> Floats:
        """When each question is answered, in seconds since 1970."""
        return np.array([question.target_at.timestamp() for question in self.questions])

    @cached_property
    def published(self) -> list[tuple[float, int, bool]]:
        """Every answer to a claim, by when it was known: that moment, the place of its question, and the answer."""
        return sorted(
            (vintage.known_at.timestamp(), place, vintage.up)
            for place, question in enumerate(self.questions)
            if question.asked_at < question.target_at
            for vintage in question.vintages
        )

    def answers(self, at: datetime) -> Floats:
        """Return the newest answer to each question that was published by *at*; NaN without one."""
        found = np.full(len(self.questions), np.nan)
        for since, place, up in self.published:
            if since > at.timestamp():
                break
            found[place] = up
        return found

    def final(self, place: int) -> bool:
        """Return the last revision of an answer."""
        return next(one.up for one in self.questions[place].vintages if one.number == 1)

    def rounds(self) -> list[tuple[datetime, NDArray[np.intp]]]:
        """Return the forecast deadlines of the season, each with its questions that were answered in the end."""
        found: dict[datetime, list[int]] = {}
        for place in range(self.first, len(self.questions)):
            one = self.questions[place]
            if one.asked_at < one.target_at and any(vintage.number == 1 for vintage in one.vintages):
                found.setdefault(one.asked_at, []).append(place)
        return [(at, np.array(places)) for at, places in sorted(found.items())]


def read_season(data: Path, season: str) -> Season:
    """Return the questions of *season*, and of those before it, whose answers are evidence."""
    rows = [row for row in lines.read_rows(data / "questions.csv.gz") if row["season"] <= season]
    rows.sort(key=lambda row: (row["season"], row["question_id"]))
    questions = [read_question(row) for row in rows]
    forecasts = read_forecasts(data / "forecasts.csv.gz")
    agents = sorted({one.agent for question in questions for one in forecasts.get(question.key, ())})
    places = {agent: place for place, agent in enumerate(agents)}
    stated = np.full((len(questions), len(agents)), np.nan)
    for number, question in enumerate(questions):
        for one in forecasts.get(question.key, ()):
            stated[number, places[one.agent]] = float(one.p_up)
    lead = np.array([(question.target_at - question.asked_at).total_seconds() for question in questions])
    ahead = np.repeat(lead[:, None], len(agents), axis=1)
    return Season(agents, questions, stated, ahead, sum(row["season"] < season for row in rows))


def observed(season: Season, at: datetime, panel: NDArray[np.bool_]) -> Floats:
    """
    Return what is known of a panel at a moment, by agent and target week, as the memory keeps it.

    Columns: the agent's place in the panel, the week, questions, loss, loss of the others, error, seconds ahead. Losses
    are compared within a stage of the question (:func:`imem.credibility.history.stage_of`).
    """
    answers = season.answers(at)
    known = ~np.isnan(answers)
    targets, error = season.targets[known], season.stated[known] - answers[known, None]
    ahead, there = season.ahead[known], ~np.isnan(error)
    loss = np.where(there, error * error, 0.0)
    stage = np.floor(np.log2(np.maximum(ahead, 1.0)))
    peers, compared = np.zeros_like(loss), np.zeros_like(there)
    for one in np.unique(stage):
        of_stage = there & (stage == one)
        count, total = of_stage.sum(axis=1, keepdims=True), (loss * of_stage).sum(axis=1, keepdims=True)
        peers = np.where(of_stage, (total - loss) / np.maximum(count - 1, 1), peers)
        compared |= of_stage & (count > 1)
    places = np.flatnonzero(panel)
    found = []
    for target in np.unique(targets):
        week = targets == target
        for number, place in enumerate(places):
            own = compared[week, place]
            if own.any():
                means = (one[week, place][own].mean() for one in (loss, peers, error, ahead))
                found.append((number, target, own.sum(), *means))
    return np.array(found, dtype=float).reshape(-1, 7)


def weights(season: Season, at: datetime, panel: NDArray[np.bool_]) -> dict[str, float]:
    """Return the weights of a panel by what the memory knows at a moment."""
    columns = observed(season, at, panel)
    ours, of_any = columns[:, 0].astype(np.intp), np.zeros(len(columns), dtype=np.intp)
    since = np.full(len(columns), at.timestamp())
    found = Observations(ours, since, columns[:, 1], of_any, [ClaimContext()], columns[:, 2:])
    agents = [season.agents[place] for place in np.flatnonzero(panel)]
    return {one.agent: one.weight for one in Evidence(agents, found).weights(at)}


class Week(NamedTuple):
    """
    One round.

    Attributes:
        at: when the forecasts were known.
        questions: how many.
        equal, weighted: mean Brier score of both pools against the last revision.
    """

    at: datetime
    questions: int
    equal: float
    weighted: float


Pooling = Callable[[Season, datetime, Floats], Floats]
"""From the season, a moment and the answers to some questions, by agent and NaN without one: the pooled answers."""


def by_record(season: Season, at: datetime, stated: Floats) -> Floats:
    """Return the mean by the weights of the memory."""
    return mean(stated, weights(season, at, np.asarray((~np.isnan(stated)).any(axis=0))), season.agents)


def mean(stated: Floats, shares: Mapping[str, float], agents: Sequence[str]) -> Floats:
    """Return the mean of those who answered, by *shares*."""
    weight = np.where(np.isnan(stated), 0.0, [shares.get(agent, 0.0) for agent in agents])
    found: Floats = (np.nan_to_num(stated) * weight).sum(axis=1) / weight.sum(axis=1)
    return found


def weeks(season: Season, pooled: Pooling = by_record) -> list[Week]:
    """Return every round of the season; a round answered by a single agent is no panel."""
    found = []
    for at, places in season.rounds():
        asked = places[(~np.isnan(season.stated[places])).sum(axis=1) > 1]
        if not len(asked):
            continue
        stated = season.stated[asked]
        final = np.array([season.final(place) for place in asked])
        pools = (np.nanmean(stated, axis=1), pooled(season, at, stated))
        equal, weighted = (float(((pool - final) ** 2).mean()) for pool in pools)
        found.append(Week(at, len(asked), equal, weighted))
    return found


def refused(season: Season) -> dict[str, list[Week]]:
    """Return the rounds of the season by other ways to pool."""

    def hedge(rate: float) -> Pooling:
        def pooled(season: Season, at: datetime, stated: Floats) -> Floats:
            panel = np.asarray((~np.isnan(stated)).any(axis=0))
            columns = observed(season, at, panel)
            saved = np.bincount(columns[:, 0].astype(np.intp), columns[:, 4] - columns[:, 3], int(panel.sum()))
            names = [season.agents[place] for place in np.flatnonzero(panel)]
            shares = dict(zip(names, np.exp(rate * (saved - saved.max())).tolist(), strict=True))
            return mean(stated, shares, season.agents)

        return pooled

    def log_odds(sharper: float) -> Pooling:
        def pooled(_: Season, __: datetime, stated: Floats) -> Floats:
            inside = np.clip(stated, 0.01, 0.99)
            found: Floats = 1.0 / (1.0 + np.exp(-sharper * np.nanmean(np.log(inside / (1.0 - inside)), axis=1)))
            return found

        return pooled

    methods: dict[str, Pooling] = {
        "exponential weights (Hedge) of the whole error, rate 1": hedge(1.0),
        "the same, rate 4": hedge(4.0),
        "median": lambda _, __, stated: np.nanmedian(stated, axis=1),
        "mean of log odds": log_odds(1.0),
        "the same, half as extreme again": log_odds(1.5),
    }
    return {name: weeks(season, pooled) for name, pooled in methods.items()}


def difference(found: Sequence[Week]) -> tuple[float, float, float]:
    """Return by what fraction the weighted pool's mean score differs, with its 95 % bootstrap interval over weeks."""
    equal, weighted = np.array([week.equal for week in found]), np.array([week.weighted for week in found])
    drawn = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    lower, upper = np.quantile(weighted[drawn].mean(axis=1) / equal[drawn].mean(axis=1) - 1.0, (0.025, 0.975))
    return float(weighted.mean() / equal.mean() - 1.0), float(lower), float(upper)


# Attacks


def attacked(season: Season, attack: str) -> Season:
    """Return the season with one more agent, ``attacker``."""
    rounds, stated = season.rounds(), season.stated
    column = np.full(len(stated), np.nan)
    ahead = season.ahead[:, 0].copy()
    if attack == ATTACKS[0]:
        column = stated[:, season.agents.index(best(season))].copy()
        ahead -= LATE_S
    elif attack == ATTACKS[1]:
        target = season.questions[rounds[FLOOD_WEEK][1][0]].target_at
        for place, question in enumerate(season.questions):
            if question.target_at == target and question.vintages:
                column[place] = question.vintages[-1].up
    elif attack == ATTACKS[2]:
        field = np.nanmean(stated, axis=1)
        column = np.where((field < 0.05) | (field > 0.95), np.round(field), np.nan)
    elif attack == ATTACKS[3]:
        column[rounds[-1][1]] = 0.5
    else:
        column = np.array([one.vintages[-1].up if one.vintages else np.nan for one in season.questions])
        ahead = np.full(len(stated), LATE_S)
    return Season(
        [*season.agents, "attacker"],
        season.questions,
        np.column_stack([stated, column]),
        np.column_stack([season.ahead, ahead]),
        season.first,
    )


def best(season: Season) -> str:
    """Return the agent that weighs most in the last round of the season."""
    at, places = season.rounds()[-1]
    shares = weights(season, at, np.asarray((~np.isnan(season.stated[places])).any(axis=0)))
    return max(shares, key=lambda agent: shares[agent])


def by_week(season: Season, agent: str = "attacker") -> list[float]:
    """Return the weight of an agent relative to the equal one, among all who answered in a round so far."""
    found = []
    place = season.agents.index(agent)
    so_far = np.zeros(len(season.agents), dtype=bool)
    so_far[[place, -1]] = True
    for at, places in season.rounds():
        so_far |= (~np.isnan(season.stated[places])).any(axis=0)
        found.append(weights(season, at, so_far)[agent] * int(so_far.sum()))
    return found


def by_attack(season: Season) -> dict[str, list[float]]:
    """Return the weight of each attacker by week, and that of the agent that the first of them copies."""
    found = {attack: by_week(attacked(season, attack)) for attack in ATTACKS}
    return {**found, COPIED: by_week(attacked(season, ATTACKS[0]), best(season))}


# Pictures


def pictures(found: Sequence[Week], attacks: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Return the pictures of docs/explanation/panels.md by file."""
    both = {"equal weights": [week.equal for week in found], "by record": [week.weighted for week in found]}
    across = (1.0, float(len(found)), "week of the season")
    return {
        name: drawing(
            {label: list(enumerate(values, start=1)) for label, values in curves.items()}, across=across, up=up
        )
        for name, curves, up in (
            ("panels-weeks.svg", both, (0.0, 0.6, "Brier score of the pool: lower is better")),
            ("panels-attacks.svg", attacks, (0.0, 1.6, "weight of an attacker, in equal weights")),
        )
    }


def main() -> None:
    """Print the season and the attacks, and write the pictures."""
    parser = argparse.ArgumentParser(description="Panels on a season of flu forecasts, and attacks on their weights.")
    parser.add_argument("--data", type=Path, default=HERE / "source", help="folder with the source's CSV files")
    parser.add_argument("--season", default="2024-25")
    parser.add_argument("--pictures", type=Path, help="folder to write the pictures to")
    parser.add_argument("--methods", action="store_true", help="score other ways to pool as well")
    arguments = parser.parse_args()
    season = read_season(arguments.data, arguments.season)
    found = weeks(season)
    shown = ["| forecast of | questions | equal weights | by record |", "|---|---|---|---|"]
    shown += [f"| {week.at:%Y-%m-%d} | {week.questions} | {week.equal:.4f} | {week.weighted:.4f} |" for week in found]
    change, lower, upper = difference(found)
    better = sum(week.weighted < week.equal for week in found)
    shown += [
        "",
        f"By record {change:+.2%} [{lower:+.2%}, {upper:+.2%}], better in {better} of {len(found)} weeks.",
        "",
    ]
    series = by_attack(season)
    shown += [f"{name}: {values[-1]:.2f} times the equal weight at the end." for name, values in series.items()]
    shown.append(f"the best, alone: {by_week(season, best(season))[-1]:.2f} times.")
    if arguments.methods:
        shown += ["", "| method | difference from equal weights |", "|---|---|"]
        for name, scores in refused(season).items():
            change, lower, upper = difference(scores)
            shown.append(f"| {name} | {change:+.1%} [{lower:+.1%}, {upper:+.1%}] |")
    sys.stdout.write("\n".join(shown) + "\n")
    if arguments.pictures is not None:
        for name, text in pictures(found, series).items():
            (arguments.pictures / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
