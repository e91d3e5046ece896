"""``chronicle sql``: statements from the command line, a script, a pipe or a prompt."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidArgument
from .connection import Connection, connection_of
from .options import StoreOption, TokenOption, UrlOption
from .output import check_format, write_answer
from .plots import draw, plot_format
from .statements import only_reads, split
from .terminal import is_terminal

if TYPE_CHECKING:
    import pyarrow as pa

    from ..database import Database

__all__ = ["Session", "parameters", "sql"]


class Session:
    """Runs statements one after another against one store or server; a context manager.

    Parameters
    ----------
    connection : Connection
    timeout : float, optional
        Seconds for each statement.
    """

    def __init__(self, connection: Connection, timeout: float | None = None) -> None:
        self._connection = connection
        self._timeout = timeout
        self._database: Database | None = None
        self._mode = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, mode: str) -> Database:
        """The store, opened for reading unless a statement writes."""
        if self._database is None or (mode == "rw" and self._mode == "r"):
            self._close()
            self._database = self._connection.database(mode)
            self._mode = mode
        return self._database

    def release(self) -> None:
        """Give up the writer's lock between statements of a prompt."""
        if self._mode == "rw":
            self._close()

    @contextlib.contextmanager
    def run(
        self, statement: str, params: dict[str, Any] | None = None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Run a statement; gives the schema and the batches of its answer."""
        if self._connection.url is not None:
            body: dict[str, Any] = {"sql": statement}
            if params:
                body["params"] = params
            if self._timeout is not None:
                body["timeout_ms"] = max(1, int(self._timeout * 1000))
            reader = self._connection.transport().batches("POST", "/v1/query", body=body)
            yield reader.schema, iter(reader)
            return
        database = self.database("r" if only_reads(statement) else "rw")
        result = database.sql(statement, params or None, self._timeout)
        try:
            yield result.schema, iter(result.batches())
        finally:
            result.close()


def parameters(items: list[str]) -> dict[str, Any]:
    """``name=value`` items as values: whole numbers, numbers, true, false, null, else text.

    Quotes make text of anything: ``-p code="'007'"``.
    """
    values: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise InvalidArgument(f"--param takes name=value, found {item!r}")
        values[name.strip().removeprefix("$")] = _value(text)
    return values


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    words: dict[str, Any] = {"true": True, "false": False, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            help="SQL; several statements with ; between them. None: a prompt, or stdin."
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="table, json, ndjson, csv, arrow, parquet, or a plot: svg, html, png. "
            "[default: table, or by --output]",
            show_default=False,
        ),
    ] = "auto",
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read the statements from a file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the answer to a file."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Value for $NAME; repeatable."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after so long."),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the answer, such as windows, in the terminal.")
    ] = False,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows",
            min=0,
            metavar="N",
            help="Rows of a table on a terminal, 0 for all. [default: 100]",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Run SQL and print the answer; without SQL, a prompt.

    A table is plain text in a pipe, with every row. Statements come from the argument, from --file,
    or from stdin when that is not a terminal.

    Examples:

      chronicle sql "SELECT count(*) FROM flights"

      chronicle sql -f csv "SELECT * FROM flights WHERE altitude > $low" -p low=40000 > high.csv

      chronicle sql --plot "SELECT window_start, avg(x) FROM TUMBLE(s, t, 60) GROUP BY 1"

      chronicle sql < script.sql
    """
    connection = connection_of(store, url, token)
    drawn = plot_format(format, plot, output)
    chosen = "table" if drawn else check_format(format, output)
    values = parameters(param or [])
    if query is not None and file is not None:
        raise InvalidArgument("give the SQL either as an argument or by --file, not both")
    if query is None and file is None and is_terminal(sys.stdin):
        from .prompt import prompt

        prompt(connection, chosen, timeout, max_rows)
        return
    statements = split(_script(query, file))
    if not statements:
        raise InvalidArgument("there is no SQL statement to run")
    if len(statements) > 1 and output is not None:
        raise InvalidArgument("--output takes the answer of one statement, found several")
    with Session(connection, timeout) as session:
        for at, statement in enumerate(statements):
            with session.run(statement, values) as (schema, batches):
                if drawn:
                    draw(batches, schema, drawn, output)
                    continue
                if at and chosen == "table":
                    print()
                write_answer(batches, schema, chosen, output=output, rows_max=max_rows)


def _script(query: str | None, file: Path | None) -> str:
    if query is not None and query != "-":
        return query
    if file is not None:
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot read {str(file)!r}: {error}") from None
    return sys.stdin.read()
