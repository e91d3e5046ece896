"""``chronicle serve``: the server.

``chronicle token`` manages tokens of a store's directory, or of a running server; a secret is
printed once, alone on stdout, its description on stderr.  ``chronicle job`` starts long work on a
server; Ctrl-C while waiting leaves the job running.  ``chronicle mcp`` serves the tools for
language models over stdin and stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.options import option
from ..errors import InvalidArgument, MissingDependency
from .options import Connection, FormatOption, StoreOption, connected, connection_of
from .output import check_format, write_rows
from .terminal import is_terminal, say

if TYPE_CHECKING:
    from ..client import RemoteDatabase, RemoteJob
    from ..client.live import Tell

token = typer.Typer(
    help="Tokens for the server: create, list, rotate, revoke.", no_args_is_help=True
)
WhichArgument = Annotated[str, typer.Argument(help="Id or name of the token.")]
_LISTED = dict.fromkeys(
    ("id", "name", "scopes", "streams", "created", "expires", "last_used"), "string"
)


def needs_server(error: ImportError) -> MissingDependency:
    """The error of a command that cannot import the server."""
    return MissingDependency(
        f"the server needs {error.name}: pip install 'chronicle-eventstore[server]'"
    )


class _StoreTokens:
    """The tokens in a store's directory, with the methods of a server's database."""

    def __init__(self, path: Path) -> None:
        try:
            from ..server.access import tokens
        except ImportError as error:
            raise needs_server(error) from None
        self._path = path
        self._tokens = tokens

    def create_token(self, *made: Any) -> dict[str, Any]:
        new, secret = self._tokens.create_token(self._path, *made)
        return {**new.to_json(), "secret": secret}

    def tokens(self) -> list[dict[str, Any]]:
        uses = self._tokens.last_uses(self._path)
        return [each.to_json(uses.get(each.id)) for each in self._tokens.list_tokens(self._path)]

    def rotate_token(self, which: str, overlap: str, expires: str | None) -> dict[str, Any]:
        new, secret = self._tokens.rotate_token(self._path, which, overlap, expires)
        return {**new.to_json(), "secret": secret}

    def revoke_token(self, which: str) -> None:
        self._tokens.revoke_token(self._path, which)

    def revoke_all_tokens(self) -> list[str]:
        return [gone.id for gone in self._tokens.revoke_all_tokens(self._path)]

    def close(self) -> None:
        """Does nothing."""


def _tokens(connection: Connection) -> closing[_StoreTokens | RemoteDatabase]:
    return closing(_StoreTokens(connection.path) if connection.url is None else connection.remote())


@token.command("create")
@connected
def create_token(
    connection: Connection,
    name: Annotated[str, typer.Argument(help="For people: who or what uses it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="read, write, ingest, metrics, operate or admin; repeatable. [default: read]",
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Glob of stream names; repeatable. [default: *]"),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="A span such as 90d, or a date.")
    ] = None,
) -> None:
    """Make a token and print its secret, once: only its hash is stored."""
    with _tokens(connection) as tokens:
        _show(tokens.create_token(name, scope or ("read",), stream or ("*",), expires))


def _show(made: dict[str, Any]) -> None:
    until = f", until {made['expires_at']}" if made["expires_at"] else ""
    what = f"{', '.join(made['scopes'])} on {', '.join(made['streams'])}{until}"
    say(f"token {made['token_id']} ({what}):")
    print(made["secret"])


@token.command("list")
@connected
def list_tokens(connection: Connection, format: FormatOption = "table") -> None:
    """List the tokens; their secrets are not stored."""
    chosen = check_format(format, None)
    with _tokens(connection) as tokens:
        rows = [
            {
                "id": each["token_id"],
                "name": each["name"],
                "scopes": " ".join(each["scopes"]),
                "streams": " ".join(each["streams"]),
                "created": each["created_at"],
                "expires": each["expires_at"],
                "last_used": each["last_used_at"],
            }
            for each in tokens.tokens()
        ]
    write_rows(rows, _LISTED, chosen)


@token.command("rotate")
@connected
def rotate_token(
    connection: Connection,
    which: WhichArgument,
    overlap: Annotated[
        str,
        typer.Option("--overlap", help="How long the old one goes on, such as 7d or 0s."),
    ] = "1h",
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", help="A span such as 90d, or a date. [default: as long as the old one had]"
        ),
    ] = None,
) -> None:
    """Make a new secret for a name, scopes and streams, and print it, once."""
    with _tokens(connection) as tokens:
        _show(tokens.rotate_token(which, overlap, expires))


@token.command("revoke")
@connected
def revoke_token(
    connection: Connection,
    which: Annotated[str | None, typer.Argument(help="Id or name of the token.")] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Every token; with --url, but the one that asks.")
    ] = False,
) -> None:
    """Revoke a token; a running server refuses it from the next request on."""
    if all == (which is not None):
        raise typer.BadParameter("give the id or name of one token, or --all")
    with _tokens(connection) as tokens:
        if which is None:
            gone = tokens.revoke_all_tokens()
        else:
            tokens.revoke_token(which)
            gone = [which]
    for each in gone:
        print(f"token {each} revoked")


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
    postgres_port: Annotated[
        int | None,
        typer.Option(
            "--postgres-port",
            min=0,
            max=65535,
            help="Port of PostgreSQL's protocol (psql, BI tools); 0 takes a free one. "
            "[default: none]",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File whose first line is a token with every right."),
    ] = None,
) -> None:
    """Serve a store over REST, with a console, until Ctrl-C.

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
        postgres_port=postgres_port,
        token_file=token_file,
    )
    run(
        settings,
        announce=lambda url: say(f"Chronicle serves {settings.store} at {url} (API: {url}/docs)"),
    )


@connected
def mcp(connection: Connection) -> None:
    """Serve tools for language models (MCP) on stdin and stdout.

    A store is opened for reading, beside the process that writes; for --url take a token with the
    scope read.
    """
    from ..agents.tools import tools_over

    with connection.open() as database:
        tools_over(database).run("stdio")


job = typer.Typer(help="Long work of a server: start, list, wait, cancel.", no_args_is_help=True)
JobArgument = Annotated[str, typer.Argument(help="Id of the job.", metavar="JOB")]
_LISTED_JOBS = {
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
    options: dict[str, Any] = dict(vars(work))
    if kind in ("compact", "move"):
        options["streams"] = stream
    elif stream is not None:
        if len(stream) > 1:
            raise InvalidArgument(f"a job of kind {kind} has one --stream, found {len(stream)}")
        options["stream"] = stream[0]
    with _server(connection) as database:
        begun = database.start_job(kind, **options)
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
    write_rows(rows, _LISTED_JOBS, chosen)


@job.command("show")
@connected
def show(connection: Connection, job: JobArgument, format: FormatOption = "table") -> None:
    """Show how far a job is, or how it ended."""
    chosen = check_format(format, None)
    with _server(connection) as database:
        row = _row(database.job(job).status())
    write_rows([row], _LISTED_JOBS, chosen)


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
