"""``chronicle live``: create, watch and drop live queries.

``chronicle tail`` writes the latest events of a stream, and those that follow, as they are
committed.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.options import option
from ..core.sql_text import quoted_name
from ..errors import InvalidArgument
from .options import Connection, FormatOption, connected
from .output import check_format, write_answer, write_rows
from .session import Session
from .terminal import is_terminal

if TYPE_CHECKING:
    import pyarrow as pa

    from ..api.database import Database

FORMATS = ("table", "ndjson", "csv", "arrow")
LINES = 10
_LOOK_S = 0.5

FollowOption = Annotated[
    bool, typer.Option("--follow", "-F", help="Go on with what comes, until Ctrl-C.")
]
TailFormatOption = Annotated[
    str,
    typer.Option("--format", "-f", metavar="FORMAT", help="table, ndjson, csv or arrow."),
]


@connected
def tail(
    connection: Connection,
    stream: Annotated[str, typer.Argument(help="Name of the stream.")],
    follow: FollowOption = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            metavar="N",
            help="The latest so many events. [default: 10]",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="PLACE", help="What was committed after this: a version, or now."
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Such as 'altitude > 10000'.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B", help="These columns, in this order.")
    ] = None,
    format: TailFormatOption = "table",
) -> None:
    """Show the latest events of a stream by time, or follow it.

    With --after: what was committed since then, in the order of commits.

    Examples:

      chronicle tail flights -n 20

      chronicle tail flights --follow --where "altitude > 10000" --url http://127.0.0.1:8000
    """  # fmt: skip
    check_tail_format(format)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if lines is not None and (follow or after is not None):
        raise InvalidArgument(
            "--lines are the latest events by time, --follow and --after what is committed; give "
            "one of them"
        )
    if not follow and after is None:
        _latest(connection, stream, where, names, LINES if lines is None else lines, format)
        return
    place = after or "now"
    with (
        connection.open() as database,
        database.stream(stream).tail(place, follow=follow, where=where, columns=names) as feed,
    ):
        write_feed(feed, feed.schema, format, endless=follow)


def check_tail_format(format: str) -> None:
    """Refuse formats that cannot be endless."""
    if format not in FORMATS:
        raise InvalidArgument(f"--format is one of {', '.join(FORMATS)}; found {format!r}")
    if format == "arrow" and is_terminal():
        raise InvalidArgument("arrow is binary: redirect stdout")


def _latest(
    connection: Connection,
    stream: str,
    where: str | None,
    columns: list[str] | None,
    lines: int,
    format: str,
) -> None:
    if connection.url is None and where is None:
        _latest_of_store(connection, stream, columns, lines, format)
        return
    with connection.open() as database:
        time = str(database.stream(stream).time)
    chosen = "*" if columns is None else ", ".join(map(quoted_name, columns))
    condition = "" if where is None else f" WHERE ({where})"
    order = f"ORDER BY {quoted_name(time)}"
    inner = f"SELECT * FROM {quoted_name(stream)}{condition} {order} DESC LIMIT {lines}"
    statement = f"SELECT {chosen} FROM ({inner}) AS latest {order}"
    with Session(connection, None) as session, session.run(statement, {}) as (schema, batches):
        write_answer(batches, schema, format)


def _latest_of_store(
    connection: Connection, stream: str, columns: list[str] | None, lines: int, format: str
) -> None:
    """By a scan: a query engine would take longer to load than to answer."""
    import pyarrow as pa

    from ..core.times import INT64_MAX, INT64_MIN
    from ..store.snapshot import tail_start

    with connection.database() as database:
        snapshot = database.stream(stream).snapshot()
        names = snapshot.schema.select(columns)
        low = tail_start(snapshot, INT64_MIN, INT64_MAX, lines)

        def events() -> Iterator[pa.RecordBatch]:
            before = max(0, snapshot.events_between(low, None) - lines)
            for batch in snapshot.scan(low, None, names):
                yield batch.slice(before)
                before = max(0, before - batch.num_rows)

        schema = pa.schema([snapshot.schema.arrow.field(name) for name in names])
        write_answer(events() if lines else iter(()), schema, format)


def write_feed(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str, *, endless: bool
) -> None:
    """Write batches to stdout, each at once; endless ones until Ctrl-C."""
    from ..formats.text_tables import plain_table
    from ..formats.writers import encode

    out = sys.stdout.buffer
    chunks: Iterable[bytes]
    if format == "table":
        chunks = (line.encode() + b"\n" for line in plain_table(_flushed(batches), schema))
    else:
        chunks = encode(_flushed(batches), schema, format, line_end="\n")
    with _ends_surely() if endless else contextlib.nullcontext():
        try:
            for chunk in chunks:
                out.write(chunk)
                if format == "arrow":
                    out.flush()
            out.flush()
        except KeyboardInterrupt:
            if not endless:
                raise
            with contextlib.suppress(BrokenPipeError):
                out.flush()


def _flushed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; flushes each before it waits for the next."""
    for batch in batches:
        yield batch
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _ends_surely() -> Iterator[None]:
    """Make Ctrl-C, and a closed stdout, end a waiting main thread, which notices neither: Python
    drops an interrupt that comes while it finalizes an object, so it is repeated.
    """
    main = threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not main or not callable(before):
        yield
        return
    heard, done = threading.Event(), threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        heard.set()
        before(number, frame)

    is_left = _reader_has_left()

    def watch() -> None:
        in_vain = False
        while not done.wait(_LOOK_S):
            if in_vain or is_left():
                signal.pthread_kill(main.ident or 0, signal.SIGINT)
            in_vain = heard.is_set()

    thread = threading.Thread(target=watch, name="chronicle-ends", daemon=True)
    signal.signal(signal.SIGINT, interrupted)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def _reader_has_left() -> Callable[[], bool]:
    """A function that says whether nobody reads stdout any more."""
    if is_terminal():
        return lambda: False
    try:
        watched: Any = select.poll()
        watched.register(sys.stdout.fileno(), 0)  # POLLHUP and POLLERR are always reported
    except (OSError, ValueError):
        return lambda: False
    return lambda: any(events & (select.POLLERR | select.POLLHUP) for _, events in watched.poll(0))


POLL_S = 0.2
_LISTED = {
    "name": "string",
    "state": "string",
    "sources": "string",
    "watermark": "string",
    "lag_events": "int64",
    "rows": "int64",
    "retractions": "int64",
    "late": "int64",
    "ignored": "int64",
    "error": "string",
}

live = typer.Typer(
    help="Live queries: saved queries over past, live and late events.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(help="Name of the live query.")]


@dataclass(frozen=True)
class _Settings:
    """Of a live query, as behind WITH."""

    into: str | None = option(None, "A sink that live queries share.", "SINK")
    start: str = option("first", "first, now, or a time.", "TIME")
    delay: str | None = option(None, "How long events are waited for.", "SPAN")
    idle: str | None = option(None, "never, or when the newest time is closed.", "SPAN")
    late: str = option("correct", "correct, ignore, or a span.", "HOW")
    emit: str = option("close", "close, or a span between changes.", "WHEN")
    options: Mapping[str, str] = option(
        dict,
        "As behind WITH; repeatable.",
        "NAME=VALUE",
        name="option",
        flags=("--option", "-o"),
        many="assignments",
    )
    if_not_exists: bool = option(False, "Do nothing where it exists.")


@live.command("create")
@connected
def create(
    connection: Connection,
    name: NameArgument,
    sql: Annotated[str, typer.Argument(help="The SELECT.")],
    settings: _Settings,
) -> None:
    """Save a query that goes on, and take in what is stored already.

    Spans are such as '5 minutes', or integers where the times of the stream are integers. A server
    runs the live queries of its store; without one they go on with the next writer.

    Example:

      chronicle live create high "SELECT * FROM flights WHERE altitude > 10000"
    """
    options: dict[str, Any] = dict(vars(settings))
    options |= {name: _number(options[name]) for name in ("start", "delay", "late")}
    with connection.open("rw") as database:
        database.create_live(name, sql, **options)
        if connection.url is None:  # no server runs it
            database.run_live()
    print(f"live query {name} created")


def _number(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


@live.command("list")
@connected
def list_live(connection: Connection, format: FormatOption = "table") -> None:
    """List the live queries and their status."""
    chosen = check_format(format, None)
    with connection.open() as database:
        statuses = [database.live(name).status() for name in database.live_queries()]
    write_rows([_shown(status) for status in statuses], _LISTED, chosen)


def _shown(status: dict[str, Any]) -> dict[str, Any]:
    shown = {name: status.get(name) for name in _LISTED}
    shown["sources"] = ", ".join(status["sources"])
    shown["watermark"] = None if status["watermark"] is None else str(status["watermark"])
    return shown


@live.command("show")
@connected
def show(connection: Connection, name: NameArgument, format: FormatOption = "table") -> None:
    """Show the definition and status of a live query."""
    chosen = check_format(format, None)
    if connection.url is not None:
        status = connection.transport().ask("GET", "live", name)
        definition = status.pop("definition")
    else:
        from ..api.database import catalog_of

        with connection.database() as database:
            status = database.live(name).status()
            definition = dict(catalog_of(database).live_statements.describe(name))
    shown = {**definition, **{key: value for key, value in status.items() if key not in definition}}
    rows = [
        {"property": key, "value": ", ".join(value) if isinstance(value, list) else str(value)}
        for key, value in shown.items()
        if value not in (None, "")
    ]
    write_rows(rows, {"property": "string", "value": "string"}, chosen)


@live.command("tail")
@connected
def tail_live(
    connection: Connection,
    name: NameArgument,
    follow: FollowOption = False,
    after: Annotated[
        int, typer.Option("--after", min=0, metavar="SEQ", help="The last _seq that is known.")
    ] = 0,
    format: TailFormatOption = "table",
) -> None:
    """Show the results and retractions of a live query, in the order of _seq."""
    check_tail_format(format)
    if connection.url is not None:
        with connection.remote() as remote, remote.live(name).rows(after, follow) as feed:
            write_feed(feed, feed.schema, format, endless=follow)
        return
    with connection.database() as database:
        schema = database.stream(database.live(name).sink).schema
        write_feed(_rows(database, name, after, follow), schema, format, endless=follow)


def _rows(database: Database, name: str, after: int, follow: bool) -> Iterator[pa.RecordBatch]:
    """Rows from a store that another process may be writing."""
    while True:
        for batch in database.live(name).rows(after):
            after = batch.column("_seq")[-1].as_py()
            yield batch
        if not follow:
            return
        time.sleep(POLL_S)


def _change(connection: Connection, name: str, what: str) -> None:
    with connection.open("rw") as database:
        getattr(database.live(name), what)()


@live.command("pause")
@connected
def pause(connection: Connection, name: NameArgument) -> None:
    """Stop a live query until it is resumed."""
    _change(connection, name, "pause")
    print(f"live query {name} paused")


@live.command("resume")
@connected
def resume(connection: Connection, name: NameArgument) -> None:
    """Continue a live query where it stopped, after a failure as well."""
    _change(connection, name, "resume")
    print(f"live query {name} resumed")


@live.command("refresh")
@connected
def refresh(
    connection: Connection,
    name: NameArgument,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Results from this time on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Results before this time.")
    ] = None,
) -> None:
    """Compare the results of a live query with the query, and correct them."""
    with connection.open("rw") as database:
        database.live(name).refresh(_number(start), _number(end))
    print(f"live query {name} refreshed")


@live.command("verify")
@connected
def verify(connection: Connection, name: NameArgument) -> None:
    """Compare the results of a live query with the query; code 1 when one is missing or wrong."""
    with connection.open("rw") as database:
        wrong = database.live(name).verify()
    if wrong:
        print(f"live query {name}: {wrong} rows are missing or wrong; `chronicle live refresh`")
        raise typer.Exit(1)
    print(f"live query {name}: every row is right")


@live.command("drop")
@connected
def drop(
    connection: Connection,
    name: NameArgument,
    keep_results: Annotated[
        bool, typer.Option("--keep-results", help="Leave the stream of its results.")
    ] = False,
) -> None:
    """End a live query, and remove its results."""
    with connection.open("rw") as database:
        database.live(name).drop(keep_results)
    print(f"live query {name} dropped")
