"""Options that commands share, and the store or server that a command uses.

A command that only reads opens the store read-only: it works beside a writer and creates nothing.
"""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.options import Parameter, options_from, parameters_of
from ..errors import InvalidArgument, StoreLocked

if TYPE_CHECKING:
    from ..api.database import Database
    from ..client import RemoteDatabase, Transport
    from ..ingest import Target

DEFAULT_STORE = "chronicle-data"
TIMEOUT_SECONDS = 300.0
RETRIES = 1


@dataclass(frozen=True)
class Connection:
    """A store's directory, or a server's address; ``path`` is unused with a url."""

    path: Path
    url: str | None = None
    token: str | None = None

    def database(self, mode: str = "r", *, create: bool = True) -> Database:
        """Open the store; with ``mode="rw"`` and ``create`` a missing one is created."""
        from ..api.database import open_database

        try:
            if mode == "rw" and not create:
                open_database(self.path, "r").close()  # raises if there is none
            return open_database(self.path, mode)
        except StoreLocked as error:
            error.add_note("if a server holds the store, talk to it: --url http://127.0.0.1:8000")
            raise

    def open(self, mode: str = "r") -> Database | RemoteDatabase:
        return self.database(mode, create=False) if self.url is None else self.remote()

    def remote(self) -> RemoteDatabase:
        from ..client import RemoteDatabase

        return RemoteDatabase(self.transport())

    def transport(self) -> Transport:
        from ..client import Transport

        assert self.url is not None
        return Transport(self.url, self.token, timeout=TIMEOUT_SECONDS, retries=RETRIES)

    def target(self) -> Target:
        from ..ingest import Target

        if self.url is None:
            return Target(path=self.path)
        return Target(url=self.url, token=self.token, timeout=TIMEOUT_SECONDS, retries=RETRIES)


def connection_of(
    store: Path | None, url: str | None = None, token: str | None = None
) -> Connection:
    """Resolve the options and the environment; raises ``InvalidArgument``."""
    if store is not None and url is not None:
        raise InvalidArgument("give either --store or --url, not both")
    if url is not None and not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"--url is http://host:port or https://..., found {url!r}")
    path = store or Path(os.environ.get("CHRONICLE_STORE") or DEFAULT_STORE)
    return Connection(path, url, token)


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

ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="Value for $NAME; repeatable."),
]

_WHERE = {"store": StoreOption, "url": UrlOption, "token": TokenOption}


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--store``, ``--url`` and ``--token`` in place of its parameter
    ``connection``, and the options of a dataclass (``core.options``) in place of one of that type.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    own: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        if each.annotation is Connection:
            continue
        schema: Any = each.annotation
        if isinstance(schema, type) and is_dataclass(schema):
            groups[each.name] = schema
            own += map(_as_option, parameters_of(schema))
        else:
            own.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    own += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _WHERE.items()
    ]

    @wraps(command)
    def run(*, store: Path | None, url: str | None, token: str | None, **arguments: Any) -> None:
        made = {name: options_from(schema, arguments, _READ) for name, schema in groups.items()}
        for each in (each for schema in groups.values() for each in parameters_of(schema)):
            del arguments[each.name]
        command(connection=connection_of(store, url, token), **arguments, **made)

    # for Typer
    vars(run)["__signature__"] = signature.replace(parameters=own)
    run.__annotations__ = {each.name: each.annotation for each in own}
    return run


def _as_option(each: Parameter) -> inspect.Parameter:
    option = each.option
    described = typer.Option(
        *(option.flags or (f"--{each.name.replace('_', '-')}",)),
        metavar=option.metavar or "|".join(option.choices) or None,
        help=option.help,
        min=option.minimum,
        show_default="[default:" not in option.help,
        rich_help_panel=option.panel,
    )
    return inspect.Parameter(
        each.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=each.default,
        annotation=Annotated[each.type, described],
    )


def _names(items: Iterable[str], _: Parameter) -> list[str]:
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def _pairs(items: Iterable[str], parameter: Parameter) -> dict[str, str]:
    from ..formats.kinds import parse_pairs

    return parse_pairs(items, f"--{parameter.name}")


def _assignments(items: Iterable[str], parameter: Parameter) -> dict[str, str]:
    form = (parameter.option.metavar or "name=value").lower()
    values = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidArgument(f"--{parameter.name} takes {form}, found {item!r}")
        values[key.strip()] = value.strip()
    return values


_READ = {"names": _names, "pairs": _pairs, "assignments": _assignments}


def parameters(items: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` items: integers, numbers, true, false, null, else text; quotes force
    text, as in ``-p code="'007'"``.
    """
    values: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise InvalidArgument(f"--param takes name=value, found {item!r}")
        name = name.strip().removeprefix("$")
        if name in values:
            raise InvalidArgument(f"--param names {name!r} twice")
        values[name] = _value(text)
    return values


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    words: dict[str, Any] = {"true": True, "false": False, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE):
        if math.isinf(number := float(text)):
            raise InvalidArgument(f"the number {text} is beyond what a DOUBLE holds")
        return number
    return text
