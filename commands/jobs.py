"""``chronicle job``: long work on a server.  Ctrl-C while waiting leaves the job running."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.options import option
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


@dataclass(frozen=True)
class _Work:
    """What jobs are about; each kind has some of these."""

    name: str | None = option(None, "backup: of the copy. [default: the time]")
    attribute: str | None = option(None, "index: what it is on.")
    lag_events_max: int | None = option(
        None, "index: most events that may wait for it.", kind=int, minimum=0
    )
    where: str | None = option(None, "delete, update: which events.", "SQL")
    start: str | None = option(None, "delete, update: from this time.", "TIME", flags=("--from",))
    end: str | None = option(None, "delete, update: before this time.", "TIME", flags=("--to",))
    set: Mapping[str, str] | None = option(
        None, "update: the column's new value; repeatable.", "COLUMN=EXPRESSION", many="assignments"
    )
    older_than: str | None = option(None, "move: what is older, as '90 days'.", "AGE")
    due: bool | None = option(
        None,
        "move: what the settings of the streams say, and no more.",
        flags=("--due",),
        kind=bool,
    )
    file: str | None = option(None, "export, import: name of the server's file.")
    sql: str | None = option(None, "export: a query.")
    create: bool | None = option(None, "import: make the stream from the file.", kind=bool)
    time: str | None = option(None, "import: the time column.", "COLUMN")
    on_error: str | None = option(None, "import: fail or skip.", flags=("--bad-rows", "--on-error"))


@job.command("start")
@connected
def start(
    connection: Connection,
    kind: Annotated[
        str,
        typer.Argument(
            help="backup, check, compact, move, index, delete, update, export or import."
        ),
    ],
    work: _Work,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream", help="Of which stream; compact and move take several: repeatable."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for it, and print what it has come to.")
    ] = False,
) -> None:
    """Begin a job and print its id.

    Example:

      chronicle job start backup --name monday --wait --url http://127.0.0.1:8000
    """
    asked: dict[str, Any] = dict(vars(work))
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
