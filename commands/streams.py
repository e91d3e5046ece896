"""``streams``, ``describe``, ``index`` and ``explain``: the contents of a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from .options import Connection, FormatOption, ParamOption, connected, parameters
from .output import check_format, write_rows
from .terminal import human_bytes, is_terminal, warn

_STREAMS = {
    "stream": "string",
    "events": "int64",
    "first": "string",
    "last": "string",
    "time": "string",
    "columns": "int64",
}
_COLUMNS = {"column": "string", "type": "string", "null": "string", "key": "string"}
_INDEXES = {
    "stream": "string",
    "attribute": "string",
    "state": "string",
    "covered": "float64",
    "runs": "int64",
    "bytes": "int64",
    "problem": "string",
}

_NOTEWORTHY = {
    "late_runs": "late runs waiting for compaction",
    "late_events_in_runs": "late events in them",
    "late_buffered": "late events in memory and the log",
    "dropped_events": "events dropped by retention",
    "deleted_events": "events deleted",
    "due_segments": "segments that are due to move to objects",
}
"""Statistics of a stream that are shown unless zero."""

_SETTINGS = ("codec", "retention", "move_after", "keep_local_bytes", "within")
"""Settings of a stream that are shown if set."""


def _time(value: object) -> str | None:
    if value is None:
        return None
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat(sep=" ")) if isoformat is not None else str(value).replace("T", " ")


def _described(connection: Connection, names: list[str] | None) -> Iterator[dict[str, Any]]:
    """Descriptions of streams, as from a server; by default of all."""
    if connection.url is not None:
        ask = connection.transport().ask
        if names is None:
            yield from ask("GET", "streams")["streams"]
            return
        for name in names:
            yield ask("GET", "streams", name)
        return
    from ..catalog.streams import describe

    with connection.database() as database:
        damaged = {} if names is not None else database.damaged()
        for name in database.streams() if names is None else names:
            if name in damaged:
                yield {"name": name, "damage": damaged[name]}
            else:
                yield describe(database.stream(name), full=names is not None)


@connected
def streams(connection: Connection, format: FormatOption = "table") -> None:
    """List the streams of a store: events, first and last time."""
    chosen = check_format(format, None)
    rows = []
    for described in _described(connection, None):
        if "damage" in described:
            warn(described["damage"])
        span = described.get("time_range") or {}
        rows.append(
            {
                "stream": described["name"],
                "events": described.get("count"),
                "first": _time(span.get("first")),
                "last": _time(span.get("last")),
                "time": described.get("time"),
                "columns": len(described["schema"]) if "schema" in described else None,
            }
        )
    write_rows(rows, _STREAMS, chosen)


@connected
def describe(
    connection: Connection,
    stream: Annotated[str, typer.Argument(help="Name of the stream.")],
    format: FormatOption = "table",
) -> None:
    """Show a stream: its columns, and how much is in it.

    With a --format other than table: the columns only.
    """
    chosen = check_format(format, None)
    described = next(iter(_described(connection, [stream])))
    indexed = {str(item.get("attribute")) for item in described.get("indexes") or ()}
    rows = []
    for column in described["schema"]:
        key = "time" if column["name"] == described["time"] else ""
        rows.append(
            {
                "column": column["name"],
                "type": column["sql_type"],
                "null": "yes" if column["nullable"] else "no",
                "key": key or ("index" if column["name"] in indexed else ""),
            }
        )
    write_rows(rows, _COLUMNS, chosen)
    if chosen != "table":
        return
    span = described["time_range"]
    print(f"\nevents: {described['count']:,}")
    if span is not None:
        print(f"times: {_time(span['first'])} to {_time(span['last'])}")
    stats = described.get("stats") or {}
    if "bytes" in stats:
        cold, moved = stats.get("cold_bytes", 0), stats.get("cold_segments", 0)
        local = stats.get("segments", 0) - moved
        print(f"on disk: {human_bytes(stats['bytes'] - cold)} in {local} segments")
        if moved:
            print(f"in objects: {human_bytes(cold)} in {moved} segments")
    for name, what in _NOTEWORTHY.items():
        if stats.get(name):
            print(f"{what}: {stats[name]:,}")
    settings = {name: (described.get("settings") or {}).get(name) for name in _SETTINGS}
    texts = [f"{name} = {value}" for name, value in settings.items() if value is not None]
    if texts:
        print(f"settings: {', '.join(texts)}")


index = typer.Typer(help="Secondary indexes: list, create, drop.", no_args_is_help=True)


@index.command("list")
@connected
def list_indexes(
    connection: Connection,
    stream: Annotated[str | None, typer.Argument(help="Of this stream only.")] = None,
    format: FormatOption = "table",
) -> None:
    """List the secondary indexes."""
    chosen = check_format(format, None)
    with connection.open() as database:
        damaged = database.damaged()
        rows = [
            {"stream": name, **{key: item.get(key) for key in _INDEXES if key != "stream"}}
            for name in (database.streams() if stream is None else [stream])
            if name not in damaged or stream is not None
            for item in database.stream(name).indexes()
        ]
    write_rows(rows, _INDEXES, chosen)


@index.command("create")
@connected
def create_index(
    connection: Connection,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    attribute: Annotated[str, typer.Argument(help="The attribute to index.")],
    lag_events_max: Annotated[
        int | None,
        typer.Option(
            "--lag-events-max",
            min=0,
            metavar="N",
            help="Events that may wait for the index before appends wait for it; else any number.",
        ),
    ] = None,
) -> None:
    """Build a secondary index on an attribute; returns when it is complete."""
    with connection.open("rw") as database:
        database.stream(stream).create_index(attribute, lag_events_max=lag_events_max)
    print(f"index on {stream} ({attribute}) created")


@index.command("drop")
@connected
def drop_index(
    connection: Connection,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    attribute: Annotated[str, typer.Argument(help="The indexed attribute.")],
) -> None:
    """Remove a secondary index."""
    with connection.open("rw") as database:
        database.stream(stream).drop_index(attribute)
    print(f"index on {stream} ({attribute}) dropped")


@connected
def explain(
    connection: Connection,
    query: Annotated[str, typer.Argument(help="The query.")],
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run it, and say what it read.")
    ] = False,
    format: Annotated[str, typer.Option("--format", "-f", metavar="text|json")] = "text",
    param: ParamOption = None,
) -> None:
    """Show how a query would run; with --analyze, how it ran."""
    if format not in ("text", "json"):
        raise InvalidArgument(f"--format is text or json, found {format!r}")
    values = parameters(param or [])
    with connection.open() as database:
        explained = database.explain(query, analyze=analyze, params=values or None)
        text, plan = explained.text(strips=True), explained.to_dict()
    print(text if format == "text" else json.dumps(plan, indent=2 if is_terminal() else None))
