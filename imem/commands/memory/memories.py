"""``imem ask``, ``imem remember`` and ``imem memories``: texts that are found by words and by meaning."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from imem.commands.memory.ask import AsOf, Budget, checked_options, run_question
from imem.journal.actors import Actor
from imem.journal.settings import Settings
from imem.terminal.command import FAILURE, Json, print_answer, print_section, run

if TYPE_CHECKING:
    from imem.memory import Memory
    from imem.recall.memories.model import RememberedMemory, StoredMemory

SHOWN_CHARS = 300
"""Characters of a memory that a line shows."""


class SearchByDefault(TyperGroup):
    """Commands of memories; what is none of them is a query."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the arguments for those of ``search`` unless they begin with a command."""
        given = args[0] if args else ""
        return super().parse_args(ctx, args if given in {*self.commands, *ctx.help_option_names} else ["search", *args])


app = typer.Typer()
group = typer.Typer(
    cls=SearchByDefault, help="Find memories: `imem memories QUERY`; list, correct, retire, delete and import them."
)
app.add_typer(group, name="memories")

Limit = Annotated[int, typer.Option("--limit", help="How many, at most 200.")]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="One namespace, or with /* its subtree; all that you may read by default."),
]
User = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="About this user alone, or below user/ and its name.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, as a search and a list show it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, 1 to 1,000 characters.")]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="semantic, episodic or procedural.")]


@app.command()
def ask(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="The query, in plain words.")],
    *,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="analysis, finding, decision, debate, lesson, pattern, subject, contradiction or memory; repeatable.",
        ),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="About this subject alone: its id, ticker or name.")
    ] = None,
    recent_days: Annotated[
        float | None, typer.Option("--recent", metavar="DAYS", help="Prefer what is new, half as much each DAYS.")
    ] = None,
    limit: Limit = 10,
    as_of: AsOf = None,
    deadline_ms: Budget = None,
    as_json: Json = False,
) -> None:
    """
    Find what the institution knows, by words and by meaning, best first.

    Exit code 0: everything was searched; 3: in part, and the answer says what is missing.
    """
    from imem.recall.rendering.formatting import found_text_lines  # noqa: PLC0415 - a command imports what it needs

    moment = checked_options(as_of, "known")["as_of"]
    answer = run_question(
        lambda memory: memory.search(
            query,
            kinds=kinds,
            subject=subject,
            recent_days=recent_days,
            limit=limit,
            as_of=moment,
            deadline_ms=deadline_ms,
        ),
    )

    def lines() -> list[str]:
        label = [f"The subject was {answer.subject_label}."] if answer.subject_label is not None else []
        found = [line for item in answer.items for line in found_text_lines(item, SHOWN_CHARS)]
        return label + (found or ["Nothing was found."])

    print_section(answer, lines, as_json=as_json)


@app.command()
def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to remember, at most 10,000 characters.")],
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            help="global, agent/NAME, symbol/TICKER, user/NAME or below; agent/ and the actor's name by default.",
        ),
    ] = None,
    memory_type: Type = None,
    importance: Annotated[float, typer.Option("--importance", help="How important, 0 to 1.")] = 0.5,
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="The conversation that it is the next message of."),
    ] = None,
    author: Annotated[str | None, typer.Option("--author", help="Who said it.")] = None,
    as_json: Json = False,
) -> None:
    """
    Remember a text; `imem memories` finds it by its words and its meaning.

    What you said there in nearly the same words is updated; what others said stays theirs.
    """
    done = run_question(
        lambda memory: memory.remember(
            text,
            namespace=namespace,
            memory_type=memory_type or "semantic",
            importance=importance,
            conversation_id=conversation,
            author=author,
        )
    )
    _print_done(done, as_json=as_json)


def _print_done(done: RememberedMemory, *, as_json: bool) -> None:
    shown = {
        "status": done.status.value,
        "id": str(done.id),
        "version": done.version,
        "recorded_at": done.recorded_at.astimezone(UTC).isoformat(),
        "waits": done.waits,
        "remains": done.remains,
    }
    notes = ["its vector is made by a worker, until then words find it"] * done.waits
    notes += ["the old one remains, as others say it"] * done.remains
    line = "; ".join([f"{done.status.value}: {done.id}, version {done.version}", *notes])
    print_answer(shown, lambda: [line], as_json=as_json)


@group.command("search")
def memories(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query, in plain words.")],
    *,
    namespace: Namespace = None,
    memory_type: Type = None,
    limit: Limit = 10,
    as_of: AsOf = None,
    deadline_ms: Budget = None,
    as_json: Json = False,
) -> None:
    """
    Find memories by words and by meaning, best first.

    Exit code 0: everything was searched; 3: words alone, or some memories by words alone, and the answer says why.
    """
    from imem.recall.rendering.formatting import memory_text  # noqa: PLC0415 - a command imports what it needs

    moment = checked_options(as_of, "known")["as_of"]
    answer = run_question(
        lambda memory: memory.memories.search(
            query, namespace=namespace, memory_type=memory_type, limit=limit, as_of=moment, deadline_ms=deadline_ms
        )
    )
    print_section(
        answer,
        lambda: [memory_text(item, SHOWN_CHARS) for item in answer.items] or ["Nothing is remembered there."],
        as_json=as_json,
    )


@group.command("list")
def list_(
    *,
    namespace: Namespace = None,
    user: User = None,
    memory_type: Type = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Those that this actor says alone.")] = None,
    limit: Limit = 50,
    offset: Annotated[int, typer.Option("--offset", help="How many are skipped.")] = 0,
    as_of: AsOf = None,
    deadline_ms: Budget = None,
    as_json: Json = False,
) -> None:
    """List memories without a query, the last recorded first; the last line says how to go on."""
    from imem.recall.rendering.formatting import memory_text  # noqa: PLC0415 - a command imports what it needs

    moment = checked_options(as_of, "known")["as_of"]
    page = run_question(
        lambda memory: memory.memories.list(
            namespace=namespace,
            user=user,
            memory_type=memory_type,
            agent=agent,
            limit=limit,
            offset=offset,
            as_of=moment,
            deadline_ms=deadline_ms,
        )
    )
    more = [f"More follow: --offset {offset + limit}"] if page.more else []
    print_section(
        page,
        lambda: [*(memory_text(one, SHOWN_CHARS) for one in page.items), *more] or ["Nothing is remembered there."],
        as_json=as_json,
    )


@group.command()
def show(memory_id: Id, *, as_of: AsOf = None, deadline_ms: Budget = None, as_json: Json = False) -> None:
    """
    Show a memory, who says it, and every version that it had.

    With `--as-of`, the version of that moment alone.
    """
    from imem.recall.memories.model import CONTENT_CHARS  # noqa: PLC0415 - a command imports what it needs
    from imem.recall.rendering.formatting import memory_text  # noqa: PLC0415 - as above

    moment = checked_options(as_of, "known")["as_of"]

    async def asked(memory: Memory) -> list[StoredMemory]:
        if moment is None:
            return await memory.memories.history(memory_id, deadline_ms=deadline_ms)
        return [await memory.memories.get(memory_id, as_of=moment, deadline_ms=deadline_ms)]

    versions = run_question(asked)
    print_answer(
        [one.model_dump(mode="json", exclude_none=True) for one in versions],
        lambda: [memory_text(one, CONTENT_CHARS) for one in versions],
        as_json=as_json,
    )


@group.command()
def correct(
    memory_id: Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text, at most 10,000 characters.")],
    *,
    reason: Reason,
    importance: Annotated[
        float | None, typer.Option("--importance", help="How important, 0 to 1; as the old one by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a text in the place of a memory; the old one stays in its history, and others who say it keep it."""
    done = run_question(lambda memory: memory.memories.supersede(memory_id, text, reason=reason, importance=importance))
    _print_done(done, as_json=as_json)


@group.command()
def retire(memory_id: Id, *, reason: Reason, as_json: Json = False) -> None:
    """Take back a memory that holds no longer; it stays in its history, and others who say it keep it."""
    _print_done(run_question(lambda memory: memory.memories.retire(memory_id, reason=reason)), as_json=as_json)


@group.command()
def delete(
    memory_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Their ids.")] = None,
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="All of a namespace, or with /* of its subtree.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="All about a user.")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before all of a namespace or user is deleted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """
    Delete memories for good, with their versions, vectors and what they took the place of.

    Give ids, or a namespace, a user, or both.
    """
    of_all = namespace is not None or user is not None
    if bool(memory_ids) == of_all:
        raise typer.BadParameter("give ids, or --namespace or --user.", param_hint="[ID]...")
    if of_all and not yes:
        named = " and ".join(one for one in (namespace, user and f"user {user}") if one)
        typer.confirm(f"Delete all memories of {named} for good?", abort=True, err=True)

    async def asked(memory: Memory) -> int:
        if of_all:
            return (await memory.memories.delete_all(namespace=namespace, user=user)).count
        return sum([(await memory.memories.delete(one)).count for one in memory_ids or []])

    count = run_question(asked)
    print_answer({"deleted": count}, lambda: [f"{count:,} deleted"], as_json=as_json)


@group.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON Lines, or a JSON document that is or holds a list.")
    ],
    *,
    source: Annotated[str, typer.Option("--from", metavar="SOURCE", help="langgraph, mem0, zep or jsonl.")] = "jsonl",
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Where all of it goes; by default where the export says.")
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation",
            metavar="ID",
            help="The conversation of messages (zep, jsonl) for which the file names none.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check; no server is needed.")] = False,
    as_json: Json = False,
) -> None:
    """
    Import memories of LangGraph's store, mem0, Zep, or in our own terms.

    What cannot be stored is reported, and the rest is imported; importing again adds nothing.

    Exit code 0: everything is imported; 1: something was refused.
    """
    from imem.ingest import memory_import  # noqa: PLC0415 - a command imports what it needs

    if source not in memory_import.SOURCES:
        raise typer.BadParameter(f"{source!r} is none of {', '.join(memory_import.SOURCES)}.", param_hint="--from")
    if conversation is not None and not (conversation and memory_import.SOURCES[source].conversations):
        raise typer.BadParameter(f"is empty, or {source} has no messages.", param_hint="--conversation")
    if dry_run:
        actor = Actor.from_settings(Settings.read())
        report = memory_import.dry_run(file, source, namespace, actor, conversation=conversation)
    else:
        report = run(
            lambda stores: memory_import.MemoryImport(stores).run(file, source, namespace, conversation=conversation)
        )
    print_answer(
        {"counts": dict(report.counts), "refused": [asdict(one) for one in report.refused]},
        lambda: [
            *(f"Refused: {one.file}, line {one.line:,}: {one.field}: {one.reason}" for one in report.refused),
            ", ".join(f"{count:,} {what}" for what, count in sorted(report.counts.items())) or "Nothing to import.",
        ],
        as_json=as_json,
    )
    if report.refused:
        raise typer.Exit(FAILURE)
