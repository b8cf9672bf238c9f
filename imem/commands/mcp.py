"""``imem mcp``: the memory as tools of any client that speaks the Model Context Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import typer

from imem.journal.settings import Role, Settings
from imem.terminal.version import version_of_this

app = typer.Typer()

ACTOR: Final = "mcp"
"""Actor of a server for which none is named, so that a model's records are not those of a person on the machine."""


def server_settings(env: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment; by default the actor is :data:`ACTOR`, an agent."""
    settings = Settings.read(env)
    defaults = {"actor": ACTOR, "role": Role.AGENT}
    return settings.model_copy(
        update={name: default for name, default in defaults.items() if name not in settings.model_fields_set}
    )


@app.command()
def mcp() -> None:
    """
    Serve tools and resources to an MCP client over standard input and output.

    It acts as the actor of IMEM_ACTOR and IMEM_ROLE. Without IMEM_ROLE it is an agent, and without IMEM_ACTOR its name
    is mcp. The role reader only reads.

    A client starts it; the how-to page shows the configuration of usual ones. It ends when the client does.
    """
    from imem.logs import configure  # noqa: PLC0415 - a command imports what it needs
    from imem.mcp.stdio import serve  # noqa: PLC0415 - as above

    settings = server_settings()
    configure(settings.log_level)
    asyncio.run(serve(settings, version_of_this()))
