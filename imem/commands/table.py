"""Every command of ``imem``, by group: the module that holds it, and the first sentence of its help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from imem.terminal.lazy_commands import CommandEntry, LazyCommands

GROUPS: Final[Mapping[str, Mapping[str, CommandEntry]]] = {
    "Everyday": {
        "up": CommandEntry("stack", "Start the whole local stack; Ctrl-C stops it cleanly."),
        "load": CommandEntry(
            "data",
            "Load histories: records, links and corrections, one JSON object a line (`imem schema` describes them).",
        ),
        "brief": CommandEntry(
            "memory.ask",
            "Say what is known of a subject: analyses, similar ones, debates, track records, "
            "contradictions, patterns, lessons.",
        ),
        "ask": CommandEntry("memory.memories", "Find what the institution knows, by words and by meaning, best first."),
        "remember": CommandEntry(
            "memory.memories",
            "Remember a text; `imem memories` finds it by its words and its meaning.",
        ),
    },
    "Look up": {
        "memories": CommandEntry(
            "memory.memories",
            "Find memories: `imem memories QUERY`; list, correct, retire, delete and import them.",
        ),
        "history": CommandEntry(
            "memory.sections",
            "List the analyses of a subject, newest first, with findings, decisions and outcomes.",
        ),
        "similar": CommandEntry(
            "memory.ask",
            "List analyses of other subjects similar to one, or to the newest of a subject, most similar first.",
        ),
        "debates": CommandEntry("memory.sections", "List the debates on a subject and how they ended."),
        "precedents": CommandEntry(
            "memory.ask",
            "Show earlier debates that are comparable with a debate, and whether scores may decide it.",
        ),
        "text": CommandEntry("memory.ask", "Print the long text of a record, verbatim."),
        "value": CommandEntry(
            "memory.values",
            "Show which value of a metric counts, how sure it is, and what contradicts it.",
        ),
        "contradictions": CommandEntry(
            "memory.values",
            "List which data about a subject contradict each other, what counts, and who decides until when.",
        ),
        "sources": CommandEntry(
            "memory.values",
            "List the sources of data that contradicted another: score, contradictions, and how often they were right.",
        ),
        "agents": CommandEntry(
            "memory.scores",
            "Show the track record of each agent; with a name, also that agent's scores, and what each "
            "number rests on.",
        ),
        "panel": CommandEntry(
            "memory.panels",
            "Pool the agents' newest answers to each question on a subject, and show the weight of each "
            "with its reason.",
        ),
        "forecasts": CommandEntry(
            "memory.forecasts",
            "Show what a decision forecast beside what happened; or how the forecasts of all decisions stand.",
        ),
        "signals": CommandEntry(
            "memory.signals",
            "Show the newest signals of an agent about a subject, oldest first, as it is told them.",
        ),
        "trades": CommandEntry(
            "memory.trades",
            "Show the newest trades, exactly as an agent gets them, and how many tokens they take.",
        ),
        "reflections": CommandEntry("memory.reflections", "Notes about closed trades."),
        "patterns": CommandEntry(
            "memory.sections",
            "List the active patterns of a subject's sector, and of none, the most successful first.",
        ),
        "lessons": CommandEntry("memory.sections", "List the lessons that bear on a subject, newest first."),
        "view": CommandEntry("memory.ask", "Print a row of a materialised view as JSON, with when it was made."),
        "query": CommandEntry("memory.ask", "Run a named query of the graph and print its rows as JSON."),
        "schema": CommandEntry(
            "data",
            "Print the JSON Schema of the lines that may be loaded: of one kind or link, or of all.",
        ),
        "working": CommandEntry(
            "work",
            "Show an agent's working memory: sizes, types and expiry; values to whom the gateway lets read it.",
        ),
    },
    "People": {
        "tasks": CommandEntry("tasks", "Questions that wait for people."),
        "gates": CommandEntry("analyses", "Gates: where an analysis waits for a person."),
        "alerts": CommandEntry("alerts", "List conditions that people have to look at."),
        "debate": CommandEntry(
            "memory.debates",
            "List the debates that run, show one (`imem debate DEBATE`), and take part in one.",
        ),
        "credibility": CommandEntry(
            "memory.scores",
            "Record people's statements about scores; run the nightly recomputation at once.",
        ),
        "regime": CommandEntry("regime", "The regime of a market."),
        "postmortems": CommandEntry(
            "memory.postmortems",
            "List decisions that were off: those in review, then those that wait; `imem tasks` answers them.",
        ),
        "learning": CommandEntry("memory.lessons", "List lessons in every state, for people."),
        "replay": CommandEntry("memory.forecasts", "Show what other settings would have decided; change nothing."),
        "start": CommandEntry(
            "analyses",
            "Start an analysis: the workers run each agent once all that it waits for have completed.",
        ),
        "pause": CommandEntry(
            "pauses",
            "Pause analyses: their agents stop at a safe point, and their memories are kept and proven.",
        ),
        "resume": CommandEntry(
            "pauses",
            "Resume paused analyses: each agent goes on where its plan says, once its memory is proven.",
        ),
        "extend": CommandEntry(
            "pauses",
            "Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.",
        ),
        "pauses": CommandEntry("pauses", "List pauses."),
        "erase": CommandEntry(
            "data",
            "Replace a person's names and ids by a pseudonym, wherever they are stored; then rebuild "
            "the graph in place.",
        ),
    },
    "Operate": {
        "demo": CommandEntry(
            "demo",
            "Start everything, load the examples, print briefings on real data, and stop again.",
        ),
        "status": CommandEntry("stack", "Show what runs, the mode, and what the pipelines still have to do."),
        "down": CommandEntry("stack", "Stop the local stack; with --purge delete its data too."),
        "doctor": CommandEntry(
            "stack",
            "Check every server and folder. Exit code 0: all is well; 3: something is weak; 1: something is broken.",
        ),
        "logs": CommandEntry("stack", "Print the output of one server or worker."),
        "metrics": CommandEntry(
            "stack",
            "Print what the workers of the stack counted, in the text format of Prometheus.",
        ),
        "migrate": CommandEntry("stack", "Bring Postgres and Neo4j to the newest schema."),
        "mcp": CommandEntry("mcp", "Serve tools and resources to an MCP client over standard input and output."),
        "jobs": CommandEntry(
            "jobs",
            "Show the pipelines, their schedule, and what each did last, or what one did in its runs.",
        ),
        "sync": CommandEntry("sync", "Show the delivery of records to the graph and to agents."),
        "snapshot": CommandEntry("snapshots", "Snapshots that debates argue from."),
        "checkpoints": CommandEntry("work", "Where agents stand."),
        "archive": CommandEntry("archive", "Archived patterns, their archives, and why files are kept."),
        "graph": CommandEntry("graph", "The graph as a whole."),
        "rebuild": CommandEntry("graph", "Make anew what the journal can tell."),
        "clock": CommandEntry("stack", "The time of a trial stack (`imem up --trial`)."),
    },
}
"""
Group → command → where it is and what it says of itself, in the order in which ``imem`` lists them.

A test compares the sentences with those of the commands.
"""


class ImemCommands(LazyCommands):
    """The commands of ``imem``."""

    package: ClassVar[str] = "imem.commands"
    groups: ClassVar[Mapping[str, Mapping[str, CommandEntry]]] = GROUPS
