"""The parts of commands: exit codes, the option ``--json``, a call of the services, and its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from imem.journal.actors import Action, Resource
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, UnknownDebate, UnknownSubject
from imem.journal.settings import Settings

if TYPE_CHECKING:
    from imem.recall.answers import BriefingSection
    from imem.recall.signals import AgentMemory
    from imem.services.stores import Stores

S = TypeVar("S")
T = TypeVar("T")

FAILURE: Final = 1
DEGRADED: Final = 3
"""Exit code: it works, but something is late, missing or under way."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def wrong_usage() -> Iterator[None]:
    """
    End the command with exit code 2 when an argument turns out to be wrong inside.

    An unknown subject or debate is no wrong argument: it ends with exit code 1.
    """
    try:
        yield
    except (UnknownSubject, UnknownDebate):
        raise
    except BadInput as error:
        raise typer.BadParameter(f"{error.field}: {error.reason} {error.mend}".strip()) from error


READ_MS: Final = 10_000
"""Budget of a command's read, in milliseconds, where the settings name none: a person can wait."""


def for_commands(settings: Settings) -> Settings:
    """Return *settings* with the budgets of reads that commands have; those that were set stay."""
    longer = {"deadline_ms": READ_MS, "signals_timeout_ms": READ_MS // 2}
    return settings.model_copy(
        update={name: ms for name, ms in longer.items() if name not in settings.model_fields_set}
    )


def run(work: Callable[[Stores], Awaitable[T]]) -> T:
    """Run *work* with the stores that the environment names; see :func:`run_within`."""
    from imem.services.stores import Stores  # noqa: PLC0415 - a command imports what it needs: `imem --version` shall answer at once

    return run_within(Stores.open, work)


def run_within(open_: Callable[[Settings], AbstractAsyncContextManager[S]], work: Callable[[S], Awaitable[T]]) -> T:
    """Run *work* with what *open_* opens, as the environment's settings say; see :func:`wrong_usage`."""

    async def ran() -> T:
        async with open_(for_commands(Settings.read())) as opened:
            return await work(opened)

    with wrong_usage():
        return asyncio.run(ran())


async def ask(
    stores: Stores, resource: Resource, action: Action, work: Callable[[Deadline], Awaitable[T]], *, budget_ms: float
) -> T:
    """Run *work* within *budget_ms*, if the actor may do *action* to *resource*."""
    deadline = Deadline.after_ms(budget_ms)
    return await stores.gateway.authorize_and_execute(resource, action, lambda: work(deadline), deadline=deadline)


def print_json(value: Any) -> None:
    """Print *value* as JSON, indented: dataclasses by their fields, times in ISO 8601, anything else as text."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_answer(value: Any, lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print an answer: *value* as JSON, or else its *lines*."""
    if as_json:
        print_json(value)
    else:
        typer.echo("\n".join(lines()))


def print_section(answer: BriefingSection | AgentMemory, lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print an answer; one that is not complete says why and ends the command with exit code 3."""
    print_answer(answer.model_dump(mode="json", exclude_none=True), lines, as_json=as_json)
    if answer.reason is not None:
        typer.echo(f"Incomplete: {answer.reason}.", err=True)
        raise typer.Exit(DEGRADED)


def moment(text: str | None, option: str = "--as-of") -> datetime | None:
    """
    Return the moment that a person wrote after *option*: a day means its end in UTC.

    Raises:
        BadInput: it is no time, or names no zone.
    """
    if text is None:
        return None
    try:
        if len(text) == len("2026-06-01"):
            return datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(0), tzinfo=UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # The end of the last day that there is lies beyond the calendar.
        raise BadInput(option, f"{text!r} is no day and no time, such as 2026-06-01T10:27:49Z.") from None
    if at.utcoffset() is None:
        raise BadInput(option, "a time must name its zone, such as 2026-06-01T10:27:49Z.")
    return at


def until(text: str) -> datetime:
    """Return the moment that ``--until`` names; a wrong one ends with exit code 2."""
    with wrong_usage():
        at = moment(text, "--until")
    if at is None:
        raise typer.BadParameter("--until names a time.")
    return at


def parse_period(text: str, option: str = "PERIOD") -> datetime | tuple[datetime, datetime]:
    """
    Return the period, or the instant, that a person wrote as *option*: a day means its beginning in UTC.

    Raises:
        BadInput: it is neither, or names no zone.
    """
    begins, dots, ends = text.partition("..")
    return (_beginning(begins, option), _beginning(ends, option)) if dots else _beginning(text, option)


def _beginning(text: str, option: str) -> datetime:
    try:
        if len(text) == len("2019-12-31"):
            return datetime.combine(date.fromisoformat(text), time(0), tzinfo=UTC)
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(option, f"{text!r:.60} is no day and no time, such as 2019-12-31.") from None
    if at.utcoffset() is None:
        raise BadInput(option, "a time must name its zone, such as 2019-12-31T00:00:00Z.")
    return at


def json_object(path: Path, option: str) -> dict[str, Any]:
    """
    Return the object that a JSON file holds.

    Raises:
        BadInput: the file cannot be read, or holds no object; names *option*.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(option, f"{path} is no JSON file that can be read: {error}.") from error
    if not isinstance(found, dict):
        raise BadInput(option, f"{path} holds no JSON object.")
    return found
