"""``chronicle job``: long work on a server.  Ctrl-C while waiting leaves the job running."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidArgument
from .options import Connection, FormatOption, connected
from .output import check_format, write_rows
from .terminal import is_terminal, say

if TYPE_CHECKING:
    from ..client import RemoteDatabase, RemoteJob
    from ..client.live import Tell


job = typer.Typer(help="Long work of a server: start, list, wait, cancel.", no_args_is_help=True)
JobArgument = Annotated[str, typer.Argument(help="Id of the job.", metavar="JOB")]
_LISTED = {
    "job": "string",
    "kind": "string",
    "state": "string",
    "progress": "double",
    "begun": "int64",
    "created": "string",
    "started": "string",
    "ended": "string",
    "result": "string",
    "error": "string",
}


@contextmanager
def _server(connection: Connection) -> Iterator[RemoteDatabase]:
    if connection.url is None:
        raise InvalidArgument(
            "jobs are a server's: give --url; on a store, `chronicle backup`, `check`, `compact` "
            "and `index` do such work at once"
        )
    with connection.remote() as database:
        yield database


@job.command("start")
@connected
def start(
    connection: Connection,
    kind: Annotated[
        str,
        typer.Argument(
            help="backup, check, compact, move, calibrate, index, delete, update, export or import."
        ),
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream", help="Of which stream; compact and move take several: repeatable."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="backup: of the copy. [default: the time]")
    ] = None,
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="index: what it is on.")
    ] = None,
    lag_events_max: Annotated[
        int | None,
        typer.Option("--lag-events-max", min=0, help="index: most events that may wait for it."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="delete, update: which events.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="delete, update: from this time.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="delete, update: before this time.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="COLUMN=SQL", help="update: the column's new value; repeatable."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="move: what is older, as '90 days'."),
    ] = None,
    due: Annotated[
        bool | None,
        typer.Option("--due", help="move: what the settings of the streams say, and no more."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="export, import: name of the server's file.")
    ] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="export: a query.")] = None,
    create: Annotated[
        bool, typer.Option("--create", help="import: make the stream from the file.")
    ] = False,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="import: the time column.")
    ] = None,
    on_error: Annotated[
        str | None, typer.Option("--bad-rows", "--on-error", help="import: fail or skip.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for it, and print what it has come to.")
    ] = False,
) -> None:
    """Begin a job and print its id.

    Example:

      chronicle job start backup --name monday --wait --url http://127.0.0.1:8000
    """
    asked: dict[str, Any] = {
        "name": name,
        "attribute": attribute,
        "lag_events_max": lag_events_max,
        "where": where,
        "start": start,
        "end": end,
        "set": _assignments(set) if set else None,
        "file": file,
        "sql": sql,
        "create": create or None,
        "time": time,
        "on_error": on_error,
        "older_than": older_than,
        "due": due,
    }
    if kind in ("compact", "move"):
        asked["streams"] = stream
    elif stream is not None:
        if len(stream) > 1:
            raise InvalidArgument(f"a job of kind {kind} has one --stream, found {len(stream)}")
        asked["stream"] = stream[0]
    with _server(connection) as database:
        begun = database.start_job(kind, **asked)
        if wait:
            say(f"job {begun.id}")
            _wait(begun, None)
        else:
            print(begun.id)


def _assignments(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        column, equals, expression = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--set takes column=expression, found {text!r}")
        found[column.strip()] = expression.strip()
    return found


@job.command("list")
@connected
def list_jobs(connection: Connection, format: FormatOption = "table") -> None:
    """List the jobs of a server, oldest first."""
    chosen = check_format(format, None)
    with _server(connection) as database:
        rows = [_row(status) for status in database.jobs()]
    write_rows(rows, _LISTED, chosen)


@job.command("show")
@connected
def show(connection: Connection, job: JobArgument, format: FormatOption = "table") -> None:
    """Show how far a job is, or how it ended."""
    chosen = check_format(format, None)
    with _server(connection) as database:
        row = _row(database.job(job).status())
    write_rows([row], _LISTED, chosen)


def _row(status: dict[str, Any]) -> dict[str, Any]:
    result = status["result"]
    return {
        "job": status["job_id"],
        **{name: status[name] for name in ("kind", "state", "progress", "begun", "error")},
        **{name: status[f"{name}_at"] for name in ("created", "started", "ended")},
        "result": None if result is None else json.dumps(result),
    }


@job.command("wait")
@connected
def wait(
    connection: Connection,
    job: JobArgument,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up after so long."),
    ] = None,
) -> None:
    """Wait until a job is done, and print its result; code 1 when it was not done."""
    with _server(connection) as database:
        _wait(database.job(job), timeout)


def _wait(begun: RemoteJob, timeout: float | None) -> None:
    try:
        with _bar(begun.kind) as tell:
            result = begun.wait(timeout, tell)
    except KeyboardInterrupt as error:
        error.add_note(f"the job goes on: `chronicle job wait {begun.id}` waits again")
        raise
    print(json.dumps(result))


@contextmanager
def _bar(kind: str) -> Iterator[Tell | None]:
    """A progress bar on stderr; None without a terminal."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(kind, total=1.0)
        yield lambda status: bars.update(task, completed=status["progress"])


@job.command("cancel")
@connected
def cancel(connection: Connection, job: JobArgument) -> None:
    """End a job before its next step; one that has ended is unchanged."""
    with _server(connection) as database:
        database.job(job).cancel()
    print(f"job {job} is cancelled")
