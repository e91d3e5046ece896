"""``chronicle serve`` and ``chronicle token``: the REST server and who may use it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import MissingDependency
from .connection import connection_of
from .options import FormatOption, StoreOption
from .output import check_format, write_rows
from .terminal import say

__all__ = ["serve", "token"]


def _needs_server(error: ImportError) -> MissingDependency:
    return MissingDependency(
        f"the server needs {error.name}: pip install 'chronicle-eventstore[server]'"
    )


def serve(
    store: StoreOption = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one. [default: 8000]"),
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
        raise _needs_server(error) from None
    settings = load_settings(
        store=connection_of(store).path, host=host, port=port, token_file=token_file
    )
    run(
        settings,
        announce=lambda url: say(f"Chronicle serves {settings.store} at {url} (API: {url}/docs)"),
    )


token = typer.Typer(help="Tokens for the server: create, list, revoke.", no_args_is_help=True)


def _tokens() -> Any:
    try:
        from ..server.access import tokens
    except ImportError as error:
        raise _needs_server(error) from None
    return tokens


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="For people: who or what uses it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, write or admin; repeatable. [default: read]"),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Glob of stream names; repeatable. [default: *]"),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="A span such as 90d, or a date.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Make a token and print its secret, once: only its hash is kept."""
    made, secret = _tokens().create_token(
        connection_of(store).path, name, scope or ("read",), stream or ("*",), expires
    )
    until = f", until {made.expires_at}" if made.expires_at else ""
    say(f"token {made.id} ({', '.join(made.scopes)} on {', '.join(made.streams)}{until}):")
    print(secret)


_TOKENS = dict.fromkeys(("id", "name", "scopes", "streams", "created", "expires"), "string")


@token.command("list")
def list_tokens(format: FormatOption = "table", store: StoreOption = None) -> None:
    """List the tokens; their secrets are not kept."""
    chosen = check_format(format, None)
    rows = [
        {
            "id": found.id,
            "name": found.name,
            "scopes": " ".join(found.scopes),
            "streams": " ".join(found.streams),
            "created": found.created_at,
            "expires": found.expires_at,
        }
        for found in _tokens().list_tokens(connection_of(store).path)
    ]
    write_rows(rows, _TOKENS, chosen)


@token.command("revoke")
def revoke_token(
    which: Annotated[str, typer.Argument(help="Id or name of the token.")],
    store: StoreOption = None,
) -> None:
    """Make a token useless; a running server refuses it from the next request on."""
    gone = _tokens().revoke_token(connection_of(store).path, which)
    print(f"token {gone.id} ({gone.name}) revoked")
