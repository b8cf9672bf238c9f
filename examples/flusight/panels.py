"""
Whose forecast counts: a season of panels, each pool beside equal weights, and attacks on the weights.

Each week the agents' forecasts are pooled in every way that :mod:`imem.credibility.panels` keeps, by what was published
until then, and each pool is scored against the last revision. Baselines are left out, as in the memory. The attacks add
an agent: one that copies the best, one that floods a single week, one that answers only easy questions, a new name, one
that answers when nearly all is known, and one that is good for a season and wrong in the next.

Run it with ``python examples/flusight/panels.py [--data DIR] [--season S] [--methods] [--pictures DIR]``: it prints the
table of pools, the one by week and the attacks' effect, with ``--methods`` other ways to pool, and writes the pictures
of docs/explanation/panels.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from imem.credibility.panels.choice import Claims, PanelWeights, drawn_of, weigh
from imem.credibility.panels.pooling import Evidence, Observations, Weights
from imem.credibility.scores.context import ClaimContext

ATTACKS: Final = (
    "a copy of the best",
    "floods one week",
    "easy questions alone",
    "a new name",
    "answers last",
    "turns after a good season",
)
COPIED: Final = "the best, copied"
LATE_S: Final = 60.0
"""Seconds by which a copy comes after what it copies, and before the end at which who answers last does."""

POOLS: Final = ("equal", "median", "record", "seasons", "answer")
EVERYBODY: Final = "equal, with baselines"

RESAMPLES: Final = 4000
BLOCK: Final = 4
"""Weeks that are drawn together for the second interval: those next to one another are alike."""

FLOOD_WEEK: Final = 10
"""The week of the season in which the flood is answered."""

SPREAD: Final = 0x9E3779B97F4A7C15
"""An odd number by which the places of questions are spread over 64 bits, as their hash is in the memory."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Season:
    """
    Questions with the agents' probabilities, one row each; NaN where an agent did not answer.

    Attributes:
        agents: without baselines.
        ahead: seconds from each answer to the moment that the question is about; of the same shape.
        first: index of the first question of the season that is evaluated; those before are earlier seasons.
        baselines: the mean of the baselines' answers and their number, by question.
    """

    agents: list[str]
    questions: list[Question]
    stated: Floats
    ahead: Floats
    first: int
    baselines: tuple[Floats, Floats]
    evidence: dict[tuple[datetime, bytes], tuple[Evidence, Weights]] = field(default_factory=dict)

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
    kinds = {row["agent"]: row["kind"] for row in lines.read_rows(data / "agents.csv.gz")}
    everybody = sorted({one.agent for question in questions for one in forecasts.get(question.key, ())})
    places = {agent: place for place, agent in enumerate(everybody)}
    stated = np.full((len(questions), len(everybody)), np.nan)
    for number, question in enumerate(questions):
        for one in forecasts.get(question.key, ()):
            stated[number, places[one.agent]] = float(one.p_up)
    baseline = np.array([kinds[agent] == "baseline" for agent in everybody])
    count = (~np.isnan(stated[:, baseline])).sum(axis=1).astype(np.float64)
    mean_of = np.nansum(stated[:, baseline], axis=1) / np.maximum(count, 1.0)
    lead = np.array([(question.target_at - question.asked_at).total_seconds() for question in questions])
    agents = [agent for agent in everybody if kinds[agent] != "baseline"]
    ahead = np.repeat(lead[:, None], len(agents), axis=1)
    first = sum(row["season"] < season for row in rows)
    return Season(agents, questions, stated[:, ~baseline], ahead, first, (mean_of, count))


# Weights


def observed(season: Season, at: datetime, panel: Flags) -> Floats:
    """
    Return what is known of a panel at a moment, by agent and target week, as the memory keeps it.

    Columns: the agent's place in the panel, the week, questions, loss, loss of the others, error, seconds ahead. Losses
    are compared within a stage of the question (:func:`imem.credibility.history.stage_of`).
    """
    answers = season.answers(at)
    known = ~np.isnan(answers)
    weeks_of, week = np.unique(season.targets[known], return_inverse=True)
    error, ahead = season.stated[known] - answers[known, None], season.ahead[known]
    there = ~np.isnan(error)
    loss = np.where(there, error * error, 0.0)
    stage = np.floor(np.log2(np.maximum(ahead, 1.0)))
    peers, compared = np.zeros_like(loss), np.zeros_like(there)
    for one in np.unique(stage):
        of_stage = there & (stage == one)
        count, total = of_stage.sum(axis=1, keepdims=True), (loss * of_stage).sum(axis=1, keepdims=True)
        peers = np.where(of_stage, (total - loss) / np.maximum(count - 1, 1), peers)
        compared |= of_stage & (count > 1)
    found = [np.zeros((0, 7))]
    for number, place in enumerate(np.flatnonzero(panel)):
        own = compared[:, place]
        rows = np.bincount(week[own], minlength=len(weeks_of))
        means = [
            np.bincount(week[own], one[own, place], len(weeks_of)) / np.maximum(rows, 1)
            for one in (loss, peers, error, ahead)
        ]
        some = rows > 0
        found.append(np.column_stack([np.full(len(rows), number), weeks_of, rows, *means])[some])
    return np.concatenate(found)


def claims(season: Season, at: datetime, panel: Flags) -> Claims:
    """Return the claims of a panel that are scored at a moment, with the answers of then."""
    answers = season.answers(at)
    known = np.flatnonzero(~np.isnan(answers))
    error = season.stated[known][:, panel] - answers[known, None]
    row, agent = np.nonzero(~np.isnan(error))
    target_at = season.targets[known[row]]
    always = np.full(len(row), np.inf)
    # Multiplied in whole numbers of 64 bits, the places of questions lose their order.
    question = (known[row].astype(np.uint64) * np.uint64(SPREAD) >> np.uint64(1)).astype(np.int64)
    said_at = target_at - season.ahead[known][:, panel][row, agent]
    return Claims(agent, question, target_at, said_at, -always, always, error[row, agent])


def evidence_of(season: Season, at: datetime, panel: Flags) -> tuple[Evidence, Weights]:
    """Return the evidence of a panel at a moment, and the weights by it; each is computed once."""
    key = at, panel.tobytes()
    if key not in season.evidence:
        columns = observed(season, at, panel)
        ours, of_any = columns[:, 0].astype(np.intp), np.zeros(len(columns), dtype=np.intp)
        since = np.full(len(columns), at.timestamp())
        found = Observations(ours, since, columns[:, 1], of_any, [ClaimContext()], columns[:, 2:])
        evidence = Evidence([season.agents[place] for place in np.flatnonzero(panel)], found)
        season.evidence[key] = evidence, evidence.both(at)
    return season.evidence[key]


def panel_weights(season: Season, at: datetime, panel: Flags) -> PanelWeights:
    """Return the weights of a panel and its pools by what the memory knows at a moment."""

    def shares(moment: float) -> tuple[Floats, Floats | None]:
        _, found = evidence_of(season, datetime.fromtimestamp(moment, UTC), panel)
        by_record = np.array([one.weight for one in found.by_record])
        return by_record, None if found.by_seasons is None else found.by_seasons.shares

    evidence, now = evidence_of(season, at, panel)
    return weigh(now, shares, claims(season, at, panel), at, drawn=drawn_of(evidence.claims(at)))


def weights(season: Season, at: datetime, panel: Flags) -> dict[str, float]:
    """Return the weights of a panel's answer by what the memory knows at a moment."""
    return {one.agent: one.weight for one in panel_weights(season, at, panel).answer}


class Week(NamedTuple):
    """
    One round.

    Attributes:
        at: when the forecasts were known.
        questions: how many.
        scores: by pool the mean Brier score against the last revision.
        best: the pool that the answer came from.
    """

    at: datetime
    questions: int
    scores: Mapping[str, float]
    best: str

    @property
    def equal(self) -> float:
        """The score of equal weights."""
        return self.scores["equal"]

    @property
    def weighted(self) -> float:
        """The score of the answer."""
        return self.scores["answer"]


Pooling = Callable[[Season, datetime, Floats], Floats]
"""From the season, a moment and the answers to some questions, by agent and NaN without one: the pooled answers."""


def pools(season: Season, at: datetime, stated: Floats) -> tuple[dict[str, Floats], str]:
    """Return every pool of the answers to some questions, and which of them the answer comes from."""
    panel = np.asarray((~np.isnan(stated)).any(axis=0))
    found = panel_weights(season, at, panel)
    names = [one.agent for one in found.answer]
    equal, median = np.nanmean(stated, axis=1), np.nanmedian(stated, axis=1)
    shares = {name: dict(zip(names, by_agent, strict=True)) for name, by_agent in found.by_pool.items()}
    given: dict[str, Floats] = {name: mean(stated, one, season.agents) for name, one in shares.items()}
    answer = mean(stated, {one.agent: one.weight for one in found.answer}, season.agents)
    if found.best == "median":
        answer = found.trust * median + (1.0 - found.trust) * equal
    # Without an earlier season equal weights stand in its place.
    return {"seasons": equal, **given, "equal": equal, "median": median, "answer": answer}, found.best


def mean(stated: Floats, shares: Mapping[str, float], agents: Sequence[str]) -> Floats:
    """Return the mean of those who answered, by *shares*; with equal ones where none of them has a share."""
    there = ~np.isnan(stated)
    weight = np.where(there, [shares.get(agent, 0.0) for agent in agents], 0.0)
    weight = np.where(weight.sum(axis=1, keepdims=True) > 0.0, weight, there)
    found: Floats = (np.nan_to_num(stated) * weight).sum(axis=1) / weight.sum(axis=1)
    return found


def weeks(season: Season, pooled: Pooling | None = None) -> list[Week]:
    """
    Return every round of the season; a round answered by a single agent is no panel.

    Args:
        pooled: another way to pool, whose score stands as the answer's.
    """
    found = []
    for at, places in season.rounds():
        asked = places[(~np.isnan(season.stated[places])).sum(axis=1) > 1]
        if not len(asked):
            continue
        stated = season.stated[asked]
        if pooled is None:
            given, best = pools(season, at, stated)
        else:
            given, best = {"equal": np.nanmean(stated, axis=1), "answer": pooled(season, at, stated)}, "answer"
        others, count = (~np.isnan(stated)).sum(axis=1), season.baselines[1][asked]
        together = (np.nansum(stated, axis=1) + season.baselines[0][asked] * count) / (others + count)
        final = np.array([season.final(place) for place in asked])
        scores = {name: float(((pool - final) ** 2).mean()) for name, pool in {**given, EVERYBODY: together}.items()}
        found.append(Week(at, len(asked), scores, best))
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
        "mean of log odds": log_odds(1.0),
        "the same, half as extreme again": log_odds(1.5),
    }
    return {name: weeks(season, pooled) for name, pooled in methods.items()}


def difference(found: Sequence[Week], pool: str = "answer", *, block: int = 1) -> tuple[float, float, float]:
    """
    Return by what fraction a pool's mean score differs from equal weights, with its 95 % bootstrap interval over weeks.

    Args:
        block: weeks next to one another that are drawn together, in a circle.
    """
    equal, other = np.array([week.equal for week in found]), np.array([week.scores[pool] for week in found])
    starts = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, -(-len(found) // block)))
    drawn = ((starts[:, :, None] + np.arange(block)) % len(found)).reshape(RESAMPLES, -1)[:, : len(found)]
    lower, upper = np.quantile(other[drawn].mean(axis=1) / equal[drawn].mean(axis=1) - 1.0, (0.025, 0.975))
    return float(other.mean() / equal.mean() - 1.0), float(lower), float(upper)


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
        field_mean = np.nanmean(stated, axis=1)
        column = np.where((field_mean < 0.05) | (field_mean > 0.95), np.round(field_mean), np.nan)
    elif attack == ATTACKS[3]:
        column[rounds[-1][1]] = 0.5
    elif attack == ATTACKS[4]:
        column = np.array([one.vintages[-1].up if one.vintages else np.nan for one in season.questions])
        ahead = np.full(len(stated), LATE_S)
    else:
        # Right to a degree that nobody else is, and then the opposite of what all others say.
        right = np.array([one.vintages[-1].up if one.vintages else np.nan for one in season.questions])
        column = np.where(np.arange(len(stated)) < season.first, 0.1 + 0.8 * right, 1.0 - np.nanmean(stated, axis=1))
    return Season(
        [*season.agents, "attacker"],
        season.questions,
        np.column_stack([stated, column]),
        np.column_stack([season.ahead, ahead]),
        season.first,
        season.baselines,
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
    both = {"equal weights": [week.equal for week in found], "the answer": [week.weighted for week in found]}
    across = (1.0, float(len(found)), "week of the season")
    drawn = {name: values for name, values in attacks.items() if name != "answers last"}
    return {
        name: drawing(
            {label: list(enumerate(values, start=1)) for label, values in curves.items()}, across=across, up=up
        )
        for name, curves, up in (
            ("panels-weeks.svg", both, (0.0, 0.6, "Brier score of the pool: lower is better")),
            ("panels-attacks.svg", drawn, (0.0, 4.0, "weight of an attacker, in equal weights")),
        )
    }


def pool_table(found: Sequence[Week]) -> list[str]:
    """Return the table of pools: score, difference from equal weights, and in how many weeks each was better."""
    shown = ["| pool | Brier | difference, 95 % over weeks | over blocks of four weeks | better weeks |"]
    shown.append("| --- | --- | --- | --- | --- |")
    for name in (EVERYBODY, *POOLS):
        score = np.mean([week.scores[name] for week in found])
        (change, lower, upper), (_, low, high) = difference(found, name), difference(found, name, block=BLOCK)
        better = sum(week.scores[name] < week.equal - 1e-12 for week in found)
        shown.append(
            f"| {name} | {score:.4f} | {change:+.1%} [{lower:+.1%}, {upper:+.1%}] "
            f"| [{low:+.1%}, {high:+.1%}] | {better} of {len(found)} |"
        )
    return shown


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
    shown = [
        *pool_table(found),
        "",
        "| forecast of | questions | equal | answer | by |",
        "| --- | --- | --- | --- | --- |",
    ]
    shown += [
        f"| {week.at:%Y-%m-%d} | {week.questions} | {week.equal:.4f} | {week.weighted:.4f} | {week.best} |"
        for week in found
    ]
    series = by_attack(season)
    shown += ["", *(f"{name}: {values[-1]:.2f} times the equal weight at the end." for name, values in series.items())]
    shown.append(f"the best, alone: {by_week(season, best(season))[-1]:.2f} times.")
    turned = weeks(attacked(season, ATTACKS[5]))
    shown.append(f"with one that turns after a good season, the answer differs {difference(turned)[0]:+.1%}.")
    if arguments.methods:
        shown += ["", "| method | difference from equal weights |", "| --- | --- |"]
        for name, scores in refused(season).items():
            change, lower, upper = difference(scores)
            shown.append(f"| {name} | {change:+.1%} [{lower:+.1%}, {upper:+.1%}] |")
    sys.stdout.write("\n".join(shown) + "\n")
    if arguments.pictures is not None:
        for name, text in pictures(found, series).items():
            (arguments.pictures / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
