"""
A memory of 150,000 analyses in minutes: a few thousand are recorded, the rest are copies of them under other names.

What is recorded goes the product's way as far as Postgres: the gateway appends it, the settle step scores it.
Statements make the copies there (copies.sql). For the graph the product's own projection says what the events write; it
becomes files for Neo4j's offline import, in which each line that speaks of an analysis stands once for each copy. The
program's own migrations make the schema when the stack starts on it.

Made up, since making them takes hours: vectors (a direction for each word; a copy lies half-way to another analysis)
and stored neighbours (ten each, of other subjects). Track records are those of what was recorded: a copy is settled on
the same day as its original, so that there would be no more steps. Of the copies there is no audit.
"""

from __future__ import annotations

import asyncio
import csv
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import psycopg

from imem.credibility.settled_links import SettledBy
from imem.credibility.settling import settle_due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.journal.settings import Settings
from imem.journal.statements import load
from imem.kg.kinds.catalog import KINDS, subject_id_of
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.projection.rows import Event, Projection
from imem.kg.similarity.embedders import Vectors, unit
from imem.kg.similarity.neighbours import model_version
from imem.kg.similarity.scoring import NEIGHBOURS, RULES
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import embed, model_of
from imem.local.folders import Folders, Secrets
from imem.local.migrate import migrate
from imem.local.process import Command
from imem.local.servers.neo4j import _OPENED, Neo4j
from imem.local.supervisor import LocalStack
from imem.services.stores import pipeline_url
from tests.bench import floor
from tests.bench.generate import History
from tests.bench.worlds import IMPORTER, all_done, state_patterns
from tests.encoders import LOCAL

COPIES: Final = 50
"""How often what is recorded is there in the end."""

MARK: Final = "analysis-"
"""What the key of everything begins with that is copied: behind it stands the number of the copy."""

NEVER: Final = Deadline.never()
CLOCKS: Final = ("known_at", "occurred_at", "recorded_at")
AT_ONCE: Final = 10_000

_JOURNAL: Final = ("copy_events", "copy_deliveries", "copy_histories", "copy_heads", "copy_turns")
_DERIVED: Final = ("copy_scores", "copy_vectors")
_COPY_LISTS: Final = (
    "COPY similar_analysis (analysis_id, score, rank, model_version, built_at, neighbour_id)"
    " FROM STDIN (FORMAT csv, HEADER)"
)
_STATEMENTS: Final = load(Path(__file__).parent, ".sql")
_OPEN: Final = [word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]

Row = dict[str, Any]
Shape = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Seeded:
    """
    A stack with very many analyses in it.

    Attributes:
        data: how many, for the table.
        settings: with every address.
        seconds: what it took until it could be asked.
    """

    data: str
    settings: Settings
    seconds: float


@contextmanager
def seeded(settings: Settings, analyses: int, patterns: int) -> Iterator[Seeded]:
    """Make a memory of so many analyses and patterns in the home of *settings*, start a stack on it, and lend it."""
    begun = time.perf_counter()
    files = settings.home / "import"
    files.mkdir()
    with LocalStack(settings, servers={"postgres"}, workers=False) as stack:
        migrate(stack.settings)
        with _owner(stack.settings) as conn:
            # Otherwise the server writes everything to its files every gigabyte.
            conn.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
            conn.execute("SELECT pg_reload_conf()")
        recorded = asyncio.run(_record(stack.settings, analyses // COPIES, patterns))
        lists = _lists(files / "similar.csv", analyses // COPIES)
        with ThreadPoolExecutor(2) as threads:
            work: list[Future[None]] = [
                threads.submit(_journal, stack.settings, recorded.most),
                threads.submit(_derived, stack.settings, recorded.most, lists),
            ]
            _imported(settings, [*_sheets(files, recorded), f"--relationships=SIMILAR_TO={lists}"])
            for one in work:
                one.result()
        shutil.rmtree(files)
        with _owner(stack.settings) as conn:
            conn.execute(_STATEMENTS["copies_ended"].text)
            conn.execute("VACUUM ANALYZE")
    with LocalStack(settings, migrate=migrate) as stack:
        with _owner(stack.settings) as conn:
            all_done(conn)
        yield Seeded(f"{analyses:,}", stack.settings, time.perf_counter() - begun)


@contextmanager
def _owner(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """Log in as the owner, without triggers and without waiting for the disk: a crash would begin anew."""
    with psycopg.connect(floor.admin_url(settings), autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute("SET synchronous_commit = off")
        conn.execute("SET maintenance_work_mem = '1GB'")
        yield conn


# What is recorded


@dataclass(slots=True)
class RecordedHistory:
    """
    What the graph is made of.

    Attributes:
        projection: all that the events write.
        events: identity and position of each, and whether it is copied.
        most: the last position.
        settled: finding → the outcomes that settled it, as the graph shows them.
    """

    projection: Projection = field(default_factory=Projection)
    events: list[tuple[str, int, bool]] = field(default_factory=list)
    most: int = 0
    settled: list[Row] = field(default_factory=list)


class Words:
    """Says that it is the encoder that is here, and adds up a direction for each word: alike where words are."""

    def __init__(self) -> None:
        self.model_id = LOCAL.model_id
        self.dimension = LOCAL.dimension
        self.unrelated = LOCAL.unrelated
        self._chance = np.random.default_rng(20260604)
        self._known: dict[str, Any] = {}

    async def embed(
        self,
        texts: Sequence[str],
        *,
        deadline: Deadline,
        purpose: Purpose = Purpose.COMPARE,  # noqa: ARG002 - as a protocol has it
    ) -> Vectors:
        deadline.check("vectors")
        return unit([sum(map(self._direction, text.lower().split())) for text in texts])

    def _direction(self, word: str) -> Any:
        if word not in self._known:
            self._known[word] = self._chance.normal(size=self.dimension)
        return self._known[word]


async def _record(settings: Settings, analyses: int, patterns: int) -> RecordedHistory:
    """State a history through the gateway, have it scored and compared, and return what the graph is made of."""
    database = Database(pipeline_url(settings), size=4)
    gateway = Gateway(database, IMPORTER)
    try:
        lines = History(analyses).lines()
        while some := list(islice(lines, AT_ONCE)):
            parsed = [parse_line(orjson.dumps(line), needs_known_at=False) for line in some]
            await gateway.append([entry_of(line) for line in parsed], deadline=NEVER)
        await state_patterns(settings, patterns)
        with _owner(settings) as conn:
            conn.execute("ANALYZE")
        await settle_due(database, gateway, halflife_years=settings.credibility_halflife_years, until=NEVER)
        await _compared(settings, database)
        with _owner(settings) as conn:
            conn.execute("UPDATE delivery SET state = 'applied', applied_at = imem_now()")
            # The import holds what is derived from these, and nobody is to be told.
            conn.execute("DELETE FROM due_row WHERE queue = 'graph' AND kind = 'settled_by'")
            conn.execute("DELETE FROM workflow.notice_due")
        return await _read(database)
    finally:
        await database.close()


async def _compared(settings: Settings, database: Database) -> None:
    """Store vectors, and begin a version of the index for the lists; the index of the vectors is made at the end."""
    embedder = Words()
    model = await model_of(database, embedder)
    found = await database.rows(
        "SELECT key FROM record_head WHERE kind = 'Analysis' AND grp = 'core' ORDER BY key", deadline=NEVER
    )
    keys = [str(row["key"]) for row in found]
    with _owner(settings) as conn:
        conn.execute("DROP INDEX embedding_hnsw_1")
        for start in range(0, len(keys), 500):
            await embed(database, embedder, model, keys[start : start + 500])
        conn.execute("DELETE FROM due_row WHERE queue = 'similar'")
    async with database.transaction(NEVER) as opened:
        await rows(opened, "begin_build", {"model": model.number, "rules": RULES, "state": "current"})


async def _read(database: Database) -> RecordedHistory:
    found = RecordedHistory()
    given = {"upto": 2**62, "limit": AT_ONCE}
    while page := await database.named("events_after", {"after": found.most, **given}, deadline=NEVER):
        for row in page:
            event = Event.from_row(row)
            found.projection.add(event)
            found.events.append((str(event.event_id), event.position, MARK in event.key))
        found.most = page[-1]["position"]
    findings = sorted(found.projection.cores["Finding"])
    for start in range(0, len(findings), AT_ONCE):
        found.settled += await SettledBy().rows(database, findings[start : start + AT_ONCE])
    return found


def _lists(path: Path, analyses: int) -> Path:
    """Write the neighbours of every analysis and its copies, for both stores."""
    version = model_version(LOCAL.model_id, LOCAL.dimension)
    with path.open("w", encoding="utf-8") as file:
        file.write(":START_ID(Analysis),score:double,rank:long,model_version,built_at:datetime,:END_ID(Analysis)\n")
        for copy in range(COPIES):
            for nth in range(analyses):
                for rank in range(1, NEIGHBOURS + 1):
                    # Never so far that it is about the same company, of which there are three hundred.
                    other = _key((nth + 37 * rank - 36) % analyses, (copy + rank) % COPIES)
                    score = round(1.0 - rank / 100, 2)
                    file.write(f"{_key(nth, copy)},{score},{rank},{version},2026-01-01T00:00:00Z,{other}\n")
    return path


def _key(nth: int, copy: int) -> str:
    return f"{MARK}{copy or ''}{nth:06}"


# Copies in Postgres


def _journal(settings: Settings, most: int) -> None:
    """Make the copies of what was recorded."""
    with _owner(settings) as conn:
        _copied(conn, _JOURNAL, most)


def _derived(settings: Settings, most: int, lists: Path) -> None:
    """Make the copies of what is derived, store the neighbours, and make the index of the vectors."""
    with _owner(settings) as conn:
        # The planner takes what is numbered for a few rows, and would compare all with all.
        conn.execute("SET enable_nestloop = off")
        _copied(conn, _DERIVED, most)
        conn.execute("SELECT imem_embedding_index_v1(model, dimension) FROM embedding_model WHERE in_use")
        conn.execute("ALTER TABLE similar_analysis ALTER version SET DEFAULT 1")
        with conn.cursor() as cursor, cursor.copy(_COPY_LISTS) as copy, lists.open("rb") as file:
            while block := file.read(1 << 20):
                copy.write(block)
        conn.execute("ALTER TABLE similar_analysis ALTER version DROP DEFAULT")


def _copied(conn: psycopg.Connection[Any], names: Sequence[str], most: int) -> None:
    for name in names:
        for copy in range(1, COPIES):
            conn.execute(_STATEMENTS[name].text, {"copy": copy, "most": most})


# Files for the import


class Moment(str):
    """A time, in a row of a file."""

    __slots__ = ()


_TYPES: Final = {
    Moment: "datetime",
    str: "string",
    bool: "boolean",
    int: "long",
    float: "double",
    list: "string[]",
}


class _Line:
    """What a writer of lines writes to, to give them back."""

    def write(self, text: str) -> str:
        return text


def _sheets(folder: Path, recorded: RecordedHistory) -> Iterator[str]:
    """Write the files, and yield the arguments that name them."""
    sheets: dict[tuple[str, ...], list[tuple[tuple[str, ...], Row]]] = defaultdict(list)
    for kind, nodes in _nodes(recorded.projection).items():
        info = KINDS[kind]
        for key, node in nodes.items():
            node.pop(info.key, None)
            more = (label for label, (_, name, value) in info.labels_when.items() if node.get(name) == value)
            sheets[(*info.labels, *more)].append(((key,), node))
    for labels, found in sheets.items():
        head = f"{KINDS[labels[0]].key}:ID({labels[0]})"
        path = _sheet(folder / f"{'-'.join(labels)}.csv", [head], found)
        yield f"--nodes={':'.join(labels)}={path}"
    yield f"--nodes=AppliedEvent={_applied(folder / 'applied.csv', recorded)}"
    for (type_, start, end), links in _links(recorded).items():
        heads = [f":START_ID({start})", f":END_ID({end})"]
        yield f"--relationships={type_}={_sheet(folder / f'{type_}-{start}-{end}.csv', heads, links)}"


def _nodes(projection: Projection) -> dict[str, dict[str, Row]]:
    """Return the properties of every node by kind and key, as the applier's statements leave them."""
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for kind, cores in projection.cores.items():
        for key, row in cores.items():
            marks = {"core_order": row["order"], "position": row["position"]}
            found[kind][key] = _flat(row) | _clocks(row) | marks | _subject(kind, key)
    for (kind, _), groups in projection.groups.items():
        for key, row in groups.items():
            found[kind].setdefault(key, {"stub": True} | _subject(kind, key)).update(_flat(row))
    for (_, start, end), links in projection._by_shape().items():
        for row in links:
            for kind, key in ((start, row["from"]), (end, row["to"])):
                found[kind].setdefault(key, {"stub": True} | _subject(kind, key))
    return found


def _links(recorded: RecordedHistory) -> dict[Shape, list[tuple[tuple[str, ...], Row]]]:
    """Return ends and properties of every link by its shape."""
    found: dict[Shape, list[tuple[tuple[str, ...], Row]]] = defaultdict(list)
    for shape, links in recorded.projection._by_shape().items():
        for row in links:
            marks = {name: row[name] for name in ("order", "first_order", "position")}
            found[shape].append(((row["from"], row["to"]), _flat(row) | _clocks(row) | marks))
    for row in recorded.settled:
        for score in row["scores"]:
            props = {name: value for name, value in score["props"].items() if value is not None}
            clocks = {name: Moment(score[name]) for name in ("known_at", "recorded_at") if score[name] is not None}
            found["SETTLED_BY", "Finding", "Outcome"].append(((row["key"], score["outcome_id"]), props | clocks))
    return found


def _flat(row: Row) -> Row:
    props = {name: value for name, value in row["props"].items() if value is not None}
    return props | {name: Moment(value) for name, value in row["times"]}


def _clocks(row: Row) -> Row:
    return {name: Moment(row[name]) for name in CLOCKS}


def _subject(kind: str, key: str) -> Row:
    subject = subject_id_of(kind, key)
    return {} if subject is None else {"subject_id": subject}


def _sheet(path: Path, heads: Sequence[str], found: Sequence[tuple[tuple[str, ...], Row]]) -> Path:
    """Write rows of one shape, each that speaks of an analysis once for each copy."""
    kinds: dict[str, set[type]] = defaultdict(set)
    for _, props in found:
        for name, value in props.items():
            kinds[name].add(type(value))
    names = sorted(kinds)
    types = [f"{name}:{'double' if kinds[name] == {int, float} else _TYPES[kinds[name].pop()]}" for name in names]
    line = csv.writer(_Line(), lineterminator="\n").writerow
    with path.open("w", encoding="utf-8") as file:
        file.write(line([*heads, *types]))
        for keys, props in found:
            made = line([*keys, *(_cell(props.get(name)) for name in names)])
            file.write(made)
            if MARK in made:
                file.writelines(made.replace(MARK, f"{MARK}{copy}") for copy in range(1, COPIES))
    return path


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return ";".join(value) if isinstance(value, list) else value


def _applied(path: Path, recorded: RecordedHistory) -> Path:
    """Write that the graph holds every event."""
    with path.open("w", encoding="utf-8") as file:
        file.write("event_id:ID(AppliedEvent),position:long,applied_at:datetime\n")
        for event_id, position, copied in recorded.events:
            file.write(f"{event_id},{position},2026-01-01T00:00:00Z\n")
            for copy in range(1, COPIES if copied else 1):
                place = position + copy * recorded.most
                file.write(f"{1 + copy:02x}{event_id[2:]},{place},2026-01-01T00:00:00Z\n")
    return path


def _imported(settings: Settings, arguments: Iterable[str]) -> None:
    """Make the graph's store of files, with the administration program among the jars; no server runs meanwhile."""
    folders = Folders(settings.home)
    server = Neo4j(folders, Secrets.of(folders), settings)
    server.prepare(lambda _: None)
    words = ("org.neo4j.cli.AdminTool", "database", "import", "full", "neo4j", "--max-off-heap-memory=2G")
    report = f"--report-file={server.folder / 'logs' / 'import.report'}"
    command = Command((*server._java("-Xmx2g", *_OPEN), *words, report, *arguments), server.folder, server._variables())
    done = subprocess.run(
        command.wrapped(), cwd=command.cwd, env=command.environment(settings.home), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
