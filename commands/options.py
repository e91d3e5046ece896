"""Options that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from .connection import connection_of

__all__ = ["FormatOption", "StoreOption", "TokenOption", "UrlOption", "connected"]

StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        "-s",
        metavar="DIR",
        help="Directory of the store. [default: $CHRONICLE_STORE, else ./chronicle-data]",
        show_default=False,
    ),
]

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="Talk to a server instead, e.g. http://127.0.0.1:8000."
    ),
]

TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Token for --url. Better in the environment: $CHRONICLE_TOKEN.",
        envvar="CHRONICLE_TOKEN",
        show_envvar=False,
    ),
]

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="table, json, ndjson, csv, arrow or parquet.",
    ),
]

_WHERE = {"store": StoreOption, "url": UrlOption, "token": TokenOption}


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--store``, ``--url`` and ``--token`` in place of its parameter
    ``connection``.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "connection"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _WHERE.items()
    ]

    @wraps(command)
    def run(*, store: Path | None, url: str | None, token: str | None, **given: Any) -> None:
        command(connection=connection_of(store, url, token), **given)

    # for Typer
    vars(run)["__signature__"] = signature.replace(parameters=[*own, *more])
    run.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
    return run
