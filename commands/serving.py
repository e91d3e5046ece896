"""``chronicle serve``: the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .connection import connection_of
from .options import StoreOption
from .terminal import say
from .tokens import needs_server

__all__ = ["serve"]


def serve(
    store: StoreOption = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one. [default: 8000]"),
    ] = None,
    flight_port: Annotated[
        int | None,
        typer.Option(
            "--flight-port",
            min=0,
            max=65535,
            help="Port of Flight SQL (gRPC); 0 takes a free one. [default: none]",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File whose first line is a token with every right."),
    ] = None,
) -> None:
    """Serve a store over REST until Ctrl-C; API documentation at /docs.

    Everything else is set by the environment (CHRONICLE_...): see docs/server.md.
    """
    try:
        from ..server.access.settings import load_settings
        from ..server.run import serve as run
    except ImportError as error:
        raise needs_server(error) from None
    settings = load_settings(
        store=connection_of(store).path,
        host=host,
        port=port,
        flight_port=flight_port,
        token_file=token_file,
    )
    run(
        settings,
        announce=lambda url: say(f"Chronicle serves {settings.store} at {url} (API: {url}/docs)"),
    )
