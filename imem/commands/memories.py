"""``imem remember`` and ``imem memories``: texts that are kept, and found again by words and by meaning."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Annotated

import typer

from imem.commands.ask import AsOf, checked_options, run_question
from imem.terminal.command import DEGRADED, Json, print_answer

if TYPE_CHECKING:
    from imem.recall.memories.model import FoundMemory

BUDGET_MS = 5_000
"""Default budget of a search, in milliseconds: each command loads the encoder anew."""

SHOWN_CHARS = 300
"""Characters of a memory that a line shows."""

app = typer.Typer()

Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="semantic, episodic or procedural.")]


@app.command()
def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember, at most 10,000 characters.")],
    *,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            help="global, agent/NAME, symbol/NAME, user/NAME or below; agent/ and the actor's name by default.",
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

    What the namespace has in nearly the same words is updated.
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
    shown = {
        "status": done.status.value,
        "id": str(done.id),
        "version": done.version,
        "recorded_at": done.recorded_at.astimezone(UTC).isoformat(),
        "waits": done.waits,
    }
    later = "; its vector is made by a worker, until then words find it" if done.waits else ""
    print_answer(shown, lambda: [f"{done.status.value}: {done.id}, version {done.version}{later}"], as_json=as_json)


@app.command()
def memories(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for, in plain words.")],
    *,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", help="One namespace, or with /* its subtree; all that you may read by default."),
    ] = None,
    memory_type: Type = None,
    limit: Annotated[int, typer.Option("--limit", help="How many, at most 200.")] = 10,
    as_of: AsOf = None,
    deadline_ms: Annotated[
        int, typer.Option("--deadline-ms", help="When the answer is due, 10 to 30,000 ms.")
    ] = BUDGET_MS,
    as_json: Json = False,
) -> None:
    """
    Find memories by words and by meaning, best first.

    Exit code 0: everything was searched; 3: words alone, or some memories by words alone, and the answer says why.
    """
    moment = checked_options(as_of, "known")["as_of"]
    answer = run_question(
        lambda memory: memory.memories.search(
            query, namespace=namespace, memory_type=memory_type, limit=limit, as_of=moment, deadline_ms=deadline_ms
        )
    )
    print_answer(
        answer.model_dump(mode="json", exclude_none=True),
        lambda: [_line(item) for item in answer.items] or ["Nothing is remembered there."],
        as_json=as_json,
    )
    if answer.reason is not None:
        typer.echo(f"Incomplete: {answer.reason}.", err=True)
        raise typer.Exit(DEGRADED)


def _line(item: FoundMemory) -> str:
    from imem.recall.rendering.formatting import label, quote_lead, when  # noqa: PLC0415 - a command imports what it needs

    by = f", {label(item.author)}" if item.author is not None else ""
    return f"- {when(item.recorded_at)} {item.namespace}{by}: {quote_lead(item.content, SHOWN_CHARS)}"
