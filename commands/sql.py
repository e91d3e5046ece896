"""``chronicle sql``: statements from an argument, a script, a pipe or a prompt."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from .options import Connection, connected
from .output import check_format, write_answer
from .plots import draw, plot_format
from .session import Session, named_files, split
from .terminal import is_terminal


def parameters(items: list[str]) -> dict[str, Any]:
    """Parse ``name=value`` items: integers, numbers, true, false, null, else text; quotes force
    text, as in ``-p code="'007'"``.
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


Statements = Annotated[
    str | None,
    typer.Argument(help="SQL; several statements with ; between them. None: a prompt, or stdin."),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        min=0,
        metavar="N",
        help="Rows of a table on a terminal, 0 for all. [default: 100]",
        show_default=False,
    ),
]


@connected
def sql(
    connection: Connection,
    query: Statements = None,
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
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=FILE",
            help="A CSV, JSON, Parquet or Arrow file that SQL may name; repeatable.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after so long."),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the answer, such as windows, in the terminal.")
    ] = False,
    max_rows: MaxRows = None,
) -> None:
    """Run SQL and print the answer; without SQL, a prompt.

    A table is plain text in a pipe, with every row. Statements come from the argument, from --file,
    or from stdin when that is not a terminal.

    Examples:

      chronicle sql "SELECT count(*) FROM flights"

      chronicle sql -f csv "SELECT * FROM flights WHERE altitude > $low" -p low=40000 > high.csv

      chronicle sql --with fleet=fleet.csv "SELECT * FROM flights JOIN fleet USING (icao24)"

      chronicle sql --plot "SELECT window_start, avg(x) FROM TUMBLE(s, t, 60) GROUP BY 1"

      chronicle sql < script.sql
    """
    drawn = plot_format(format, plot, output)
    chosen = "table" if drawn else check_format(format, output)
    values = parameters(param or [])
    files = named_files(with_ or [])
    if files and connection.url is not None:
        raise InvalidArgument("--with is for a store on this machine: a server reads no files")
    if query is not None and file is not None:
        raise InvalidArgument("give the SQL either as an argument or by --file, not both")
    if query is None and file is None and is_terminal(sys.stdin):
        from .prompt import prompt

        prompt(connection, chosen, timeout, max_rows, files)
        return
    statements = split(_script(query, file))
    if not statements:
        raise InvalidArgument("there is no SQL statement to run")
    if len(statements) > 1 and output is not None:
        raise InvalidArgument("--output takes the answer of one statement, found several")
    with Session(connection, timeout, files) as session:
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
