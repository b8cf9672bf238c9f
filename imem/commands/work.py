"""``imem checkpoints`` and ``imem working``: checkpoints and working memories of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from imem.journal.deadline import Deadline
from imem.journal.errors import NotOpen, shown
from imem.terminal import command
from imem.terminal.command import Json, print_answer, print_json

if TYPE_CHECKING:
    from imem.cache.working.document import Contents, MemoryEntry
    from imem.checkpoints.model import Checkpoint, CheckpointSummary
    from imem.services.working import AgentServices

T = TypeVar("T")

BUDGET_MS = 5000
"""How long an answer may take, in milliseconds."""

SHOWN_CHARS = 60
"""Characters of a value that a line shows."""

Id = Annotated[UUID, typer.Argument(metavar="ID", help="A checkpoint's id, as `imem checkpoints list` shows it.")]

app = typer.Typer()
checkpoints_app = typer.Typer(help="Where agents stand.", no_args_is_help=True)
app.add_typer(checkpoints_app, name="checkpoints")


def _run(ask: Callable[[AgentServices], Awaitable[T]]) -> T:
    from imem.services.working import AgentServices  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return command.run(lambda stores: ask(AgentServices(stores)))


@checkpoints_app.command("list")
def list_(
    analysis: Annotated[str, typer.Argument(metavar="ANALYSIS", help="The analysis's id.")],
    agent_type: Annotated[str | None, typer.Option("--agent", metavar="TYPE", help="One agent type alone.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the checkpoints of an analysis, oldest first; of very many the newest."""
    from imem.checkpoints.store import LONGEST_LIST  # noqa: PLC0415 - as above

    found = _run(lambda work: work.history(analysis, agent_type, deadline=Deadline.after_ms(BUDGET_MS)))
    if len(found) == LONGEST_LIST:
        typer.echo(f"These are the newest {LONGEST_LIST:,}; older ones are not shown.", err=True)
    print_answer(
        found,
        lambda: list(_list(found)) or ["No agent has begun in it."],
        as_json=as_json,
    )


def _list(found: list[CheckpointSummary]) -> Iterator[str]:
    for one in found:
        what = f" {one.subtask}" if one.subtask else ""
        yield (
            f"{one.agent_type} {one.seq}  {one.checkpoint_time:%Y-%m-%d %H:%M:%S} UTC  {one.kind.value}{what}"
            f"  {one.progress_pct:.0f} %  {one.stored_bytes:,} bytes{'  kept' if one.preserve else ''}"
        )
        if one.failure_reason:
            yield f"    {_printable(one.failure_reason)}"
        yield f"    id {one.id}"


@checkpoints_app.command()
def show(checkpoint: Id, *, as_json: Json = False) -> None:
    """Show one checkpoint: what was done, what is left, and what the agent then knew."""
    found = _run(lambda work: work.checkpoint(checkpoint, deadline=Deadline.after_ms(BUDGET_MS)))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(_show(found)))


def _show(found: Checkpoint) -> Iterator[str]:
    analysis, subject = _printable(found.analysis_id), _printable(found.subject_id)
    yield f"{found.agent_type} ({found.agent_id}) in {analysis}, about {subject}"
    yield (
        f"checkpoint {found.seq}, run {found.run}, {found.kind.value}, {found.checkpoint_time:%Y-%m-%d %H:%M:%S} UTC"
    )
    yield f"done: {', '.join(found.completed_subtasks) or 'nothing'}"
    yield f"left: {', '.join(found.pending_subtasks) or 'nothing'}"
    if found.failure_reason:
        yield f"failed: {_printable(found.failure_reason)} (tried again {found.retry_count} times before)"
    yield f"digest: {found.working_memory_hash or 'none'}"
    yield from _memory(_contents(found))


def _contents(found: Checkpoint) -> Contents:
    from imem.cache.working.document import contents_of  # noqa: PLC0415 - as above

    return contents_of(found.working_memory)


def _memory(contents: Contents) -> Iterator[str]:
    yield f"working memory: {len(contents)} keys"
    for suffix in sorted(contents):
        yield f"  {_printable(_name(suffix))}  {_entry(contents[suffix])}"


def _name(suffix: bytes) -> str:
    return suffix.decode("utf-8", "backslashreplace")


def _entry(entry: MemoryEntry) -> str:
    leaves = [leaf if isinstance(leaf, tuple) else (leaf,) for leaf in entry.sorted_leaves()]
    text = ", ".join(": ".join(_leaf(part) for part in leaf) for leaf in leaves[:20])
    return f"{entry.type.value} of {len(leaves)}, {entry.size_bytes:,} bytes  {_printable(text)}"


def _leaf(leaf: bytes | float) -> str:
    return leaf.decode("utf-8", "backslashreplace") if isinstance(leaf, bytes) else f"{leaf:g}"


def _printable(text: str) -> str:
    """Return a stored value for a terminal: one short line without control characters."""
    plain = shown(text)
    return plain if len(plain) <= SHOWN_CHARS else f"{plain[: SHOWN_CHARS - 1]}…"


@app.command()
def working(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The id of an agent instance.")],
    *,
    as_json: Json = False,
) -> None:
    """
    Show an agent's working memory: sizes, types and expiry; values to whom the gateway lets read it.

    Nothing is changed, and nothing is renewed.
    """
    stand, contents = _run(lambda work: _working(work, agent))
    if as_json:
        print_json({**stand, "keys": contents})
        return
    typer.echo(
        f"{stand['agent_type']} in {_printable(stand['analysis_id'])}: {stand['state']}, {stand['mode']}, "
        f"{stand['key_count']} keys, {stand['size_bytes']:,} bytes, until {stand['expires_at']}"
    )
    typer.echo(
        f"epoch {stand['epoch']}, revision {stand['rev']}, "
        + (f"checkpoint {stand['checkpoint_seq']}" if stand["checkpoint_seq"] is not None else "no checkpoint yet")
        + (", nothing written since" if stand["clean"] else ", written to since")
    )
    for name, one in contents.items():
        typer.echo(f"  {_printable(name)}  {one['type']}, {one['bytes']:,} bytes{_value(one)}")


def _value(one: Mapping[str, Any]) -> str:
    return f"  {_printable(str(one['value']))}" if "value" in one else ""


async def _working(work: AgentServices, agent: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = await work.look(agent, deadline=Deadline.after_ms(BUDGET_MS))
    if found is None:
        raise NotOpen(f"The working memory of {agent} does not exist.", mend="A session of its agent opens it.")
    meta, contents, readable = found
    stand = {
        **asdict(meta),
        **asdict(meta.identity),
        "key_count": meta.keys,
        "clean": meta.clean,
        "readable": readable,
    }
    stand.pop("identity")
    return stand, {_name(suffix): _described(contents[suffix], readable=readable) for suffix in sorted(contents)}


def _described(entry: MemoryEntry, *, readable: bool) -> dict[str, Any]:
    leaves = [
        [_leaf(part) for part in leaf] if isinstance(leaf, tuple) else _leaf(leaf) for leaf in entry.sorted_leaves()
    ]
    entry_data = {"type": entry.type.value, "items": len(leaves), "bytes": entry.size_bytes, "ttl_ms": entry.ttl_ms}
    return {**entry_data, "value": leaves} if readable else entry_data
