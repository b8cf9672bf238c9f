"""``imem mcp``: the memory as tools of any client that speaks the Model Context Protocol."""

from __future__ import annotations

import asyncio

import typer

from imem.journal.settings import Settings
from imem.terminal.version import version_of_this

app = typer.Typer()


@app.command()
def mcp() -> None:
    """
    Serve tools and resources to an MCP client over standard input and output, as the actor of IMEM_ACTOR and IMEM_ROLE.

    A client starts it; the how-to page shows the configuration of usual ones. It ends when the client does.
    """
    from imem.logs import configure  # noqa: PLC0415 - a command imports what it needs
    from imem.mcp.stdio import serve  # noqa: PLC0415 - as above

    settings = Settings.read()
    configure(settings.log_level)
    asyncio.run(serve(settings, version_of_this()))
