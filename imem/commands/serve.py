"""``imem serve``: REST and MCP for programs with a token."""

from __future__ import annotations

import asyncio
import signal
from ipaddress import ip_address
from typing import Annotated

import typer

from imem.journal.errors import SettingsError
from imem.journal.settings import Settings

app = typer.Typer()

PORT = 8321


@app.command()
def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", help="Port to listen on; by default IMEM_SERVE_PORT.", min=0, max=65535)
    ] = None,
    certificate: Annotated[str | None, typer.Option("--certificate", help="File of the TLS certificate.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="File of its private key.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy ends TLS, and this port can be reached through it alone.")
    ] = False,
) -> None:
    """Serve REST and MCP, until told to stop; every call needs a token (`imem token create`)."""
    check_listening(host, tls=certificate is not None and key is not None, behind_proxy=behind_proxy)
    from imem.api.listening import listen  # noqa: PLC0415 - a command imports what it needs
    from imem.local.readiness import clear_ready  # noqa: PLC0415 - as above
    from imem.logs import configure  # noqa: PLC0415 - as above
    from imem.metrics import count_in_files  # noqa: PLC0415 - as above

    # The server ends itself at SIGTERM, and raises it again afterwards, which would leave no time to close.
    signal.signal(signal.SIGTERM, lambda *_: None)
    clear_ready()
    settings = Settings.read()
    configure(settings.log_level)
    count_in_files(settings.home)
    port = settings.serve_port or PORT if port is None else port
    asyncio.run(listen(settings, host, port, certificate=certificate, key=key, behind_proxy=behind_proxy))


def check_listening(host: str, *, tls: bool, behind_proxy: bool) -> None:
    """
    Return if it is safe to listen on *host*.

    Raises:
        SettingsError: others than this machine could read what is sent.
    """
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not (loopback or tls or behind_proxy):
        raise SettingsError(
            f"{host} can be reached by other machines, which could read tokens on their way.",
            mend="Give --certificate and --key, or --behind-proxy where a proxy ends TLS.",
        )
