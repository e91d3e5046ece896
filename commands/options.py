"""Options that commands share, spelt and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["FormatOption", "StoreOption", "TokenOption", "UrlOption"]

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
