"""``chronicle tail``: the latest events of a stream, and those that follow, written as they are
committed.
"""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidArgument
from .connection import Connection
from .options import connected
from .output import write_answer
from .session import Session
from .terminal import is_terminal

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FollowOption", "TailFormatOption", "tail", "write_feed"]

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
    """Show the latest events of a stream by time; with --follow, those that are committed from now.

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
        database.stream(stream).tail(place, follow=follow, where=where, columns=names) as told,
    ):
        write_feed(told, told.schema, format, endless=follow)


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
    with connection.open() as database:
        time = str(database.stream(stream).time)
    chosen = "*" if columns is None else ", ".join(map(_quoted, columns))
    condition = "" if where is None else f" WHERE ({where})"
    inner = (
        f"SELECT * FROM {_quoted(stream)}{condition} ORDER BY {_quoted(time)} DESC LIMIT {lines}"
    )
    statement = f"SELECT {chosen} FROM ({inner}) AS latest ORDER BY {_quoted(time)}"
    with Session(connection, None) as session, session.run(statement, {}) as (schema, batches):
        write_answer(batches, schema, format)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_feed(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str, *, endless: bool
) -> None:
    """Write batches to stdout, each at once; endless ones until Ctrl-C."""
    from ..formats.writers import encode
    from .tables import plain_table

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
    return lambda: any(found & (select.POLLERR | select.POLLHUP) for _, found in watched.poll(0))
