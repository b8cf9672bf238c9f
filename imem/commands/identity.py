"""``imem token`` and ``imem sign-in``: who may call over the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from imem.journal.deadline import Deadline
from imem.journal.errors import shown
from imem.journal.settings import Role
from imem.terminal import command
from imem.terminal.command import Json, print_answer

if TYPE_CHECKING:
    from imem.journal.identity.tokens import Token, Tokens
    from imem.services.stores import Stores

T = TypeVar("T")

ASK_MS = 10_000
"""How long a command may take, in milliseconds."""

app = typer.Typer()
token_app = typer.Typer(help="Tokens with which programs call over the network.", no_args_is_help=True)
app.add_typer(token_app, name="token")


def _run(ask: Callable[[Tokens, Deadline], Awaitable[T]]) -> T:
    async def asked(stores: Stores) -> T:
        from imem.journal.identity.tokens import Tokens  # noqa: PLC0415 - a command imports what it needs

        return await ask(Tokens(stores.gateway), Deadline.after_ms(ASK_MS))

    return command.run(asked)


@token_app.command()
def create(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="As whom its holder calls.")],
    *,
    role: Annotated[Role, typer.Option("--role", help="What its holder may do.")],
    days: Annotated[float, typer.Option("--days", help="How long it is valid, at most 730.")] = 90.0,
    name: Annotated[str, typer.Option("--name", help="What it is for.")] = "",
    may_import: Annotated[
        bool, typer.Option("--may-import", help="Its holder may state when something could be known.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a token and print it, once: it is stored as a hash alone. Requires an admin."""
    made = _run(
        lambda tokens, deadline: tokens.create(
            agent, role, name=name, days=days, may_import=may_import, deadline=deadline
        )
    )
    print_answer({**asdict(made.token), "token": made.secret}, lambda: [made.secret], as_json=as_json)
    if not as_json:
        typer.echo(f"{_line(made.token)} Keep it: it is not shown again.", err=True)


@token_app.command("list")
def list_(*, as_json: Json = False) -> None:
    """List tokens: those in force first, the newest first. No secret is shown. Requires an admin."""
    found = _run(lambda tokens, deadline: tokens.list_tokens(deadline=deadline))
    print_answer(found, lambda: list(_lines(found)), as_json=as_json)


@token_app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Its id, as `imem token list` shows it.")],
    *,
    as_json: Json = False,
) -> None:
    """Revoke a token: within 30 seconds nothing takes it any more. Requires an admin."""
    found = _run(lambda tokens, deadline: tokens.revoke(token, deadline=deadline))
    print_answer(found, lambda: [_line(found)], as_json=as_json)


@app.command("sign-in")
def sign_in(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Who signs in.")],
    *,
    role: Annotated[Role, typer.Option("--role", help="human_admin, reviewer or reader.")] = Role.REVIEWER,
    as_json: Json = False,
) -> None:
    """Print a link with which a person signs in to the web pages, once and within 15 minutes; requires an admin."""

    async def ask(stores: Stores) -> tuple[str, str]:
        from imem.journal.identity.sessions import Sessions  # noqa: PLC0415 - a command imports what it needs

        link = await Sessions(stores.gateway).create_link(person, role, deadline=Deadline.after_ms(ASK_MS))
        return stores.settings.public_url.rstrip("/") + link.path, link.expires_at.isoformat()

    url, expires_at = command.run(ask)
    print_answer({"person": person, "role": role, "url": url, "expires_at": expires_at}, lambda: [url], as_json=as_json)


def _lines(tokens: Sequence[Token]) -> Iterator[str]:
    yield from map(_line, tokens)
    if not tokens:
        yield "No token."


def _line(token: Token) -> str:
    state = f"until {token.expires_at:%Y-%m-%d}"
    if token.revoked_at is not None:
        state = f"revoked {token.revoked_at:%Y-%m-%d} by {shown(token.revoked_by or '')}"
    used = f"last used {token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at is not None else "never used"
    what = f", {shown(token.name)}" if token.name else ""
    right = " with the import right" if token.may_import else ""
    return f"{token.token_id}: {shown(token.actor_id)} ({token.role}{right}){what}; {state}; {used}."
