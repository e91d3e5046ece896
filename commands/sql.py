"""``chronicle sql``: statements from an argument, a script, a pipe or a prompt.

At the prompt statements end with a semicolon; a backslash or a dot begins a command.  The store is
open read-only; a statement that writes holds the lock while it runs.

Lines are completed and edited.  Statements (line breaks as U+0001) are appended to the history
``$XDG_STATE_HOME/chronicle/history`` (``~/.local/state/...``, mode 0600) as they are entered.
Without readline, or if the history cannot be written, the prompt works without them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..core.sql_text import quoted_name
from ..core.suggestion import did_you_mean
from ..errors import ChronicleError, InvalidArgument, in_words_of
from ..query.sql.first_word import split
from .options import Connection, ParamOption, connected, parameters
from .output import ANSWER_FORMATS, check_format, draw, plot_format, write_answer
from .session import Session, is_complete, named_files
from .terminal import fail, is_terminal, say

_ENTRIES = 5000
_BREAK = "\x01"
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "ORDER", "HAVING", "LIMIT", "JOIN",
    "ON", "AND", "OR", "NOT", "NULL", "AS", "COUNT", "SUM", "MIN",
    "MAX", "AVG", "CREATE", "STREAM", "INDEX", "DROP", "SHOW", "STREAMS", "INDEXES",
    "DESCRIBE", "EXPLAIN", "ANALYZE", "INSERT", "INTO", "VALUES", "DELETE", "TRUNCATE", "TIMESTAMP",
    "INTERVAL", "TUMBLE", "HOP", "HOP_ROWS", "MATCH_RECOGNIZE", "MATCH_SITUATIONS", "PARTITION",
    "MEASURES", "PATTERN", "DEFINE", "WITHIN", "RECENT", "INCREMENTAL", "MAXIMAL", "LIVE", "QUERY",
    "QUERIES", "VIEW", "VIEWS",
)  # fmt: skip


_BEFORE_STREAM = re.compile(
    r"(\b(from|join|into|on|stream|describe)|\b(tumble|hop|session|\w+_rows)\s*\(|^\s*\\\w+)\s*$",
    re.I,
)
"""Text after which a stream's name is expected."""
_COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'main'"
)


class Completer:
    """Completes streams and views after FROM and the like, else also keywords and columns."""

    def __init__(self, connection: Connection, before: Callable[[], str]) -> None:
        self._connection = connection
        self._before = before
        self._columns: dict[str, list[str]] | None = None
        self._matching: list[str] = []

    def _streams(self) -> dict[str, list[str]]:
        if self._columns is None:
            self._columns = {}
            with contextlib.suppress(ChronicleError, OSError), self._connection.open() as database:
                for name, column in database.sql(_COLUMNS).fetchall():
                    self._columns.setdefault(name, []).append(column)
        return self._columns

    def _names(self) -> Iterable[str]:
        streams = self._streams()
        if _BEFORE_STREAM.search(self._before()):
            return streams
        return {*_KEYWORDS, *streams, *(name for names in streams.values() for name in names)}

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            lower = text.lower()
            self._matching = sorted(n for n in self._names() if n.lower().startswith(lower))
        return self._matching[state] if state < len(self._matching) else None


def _history_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state")
    return Path(home) / "chronicle" / "history"


def _entries(path: Path) -> list[str]:
    try:
        lines = path.read_text(errors="replace").split("\n")[:-1]
    except OSError:
        return []
    if len(lines) > 2 * _ENTRIES:
        lines = lines[-_ENTRIES:]
        shorter = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            shorter.write_text("".join(f"{line}\n" for line in lines))
            shorter.chmod(0o600)
            shorter.replace(path)
    return [line.replace(_BREAK, "\n") for line in lines[-_ENTRIES:]]


def _keep(path: Path, entry: str) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(entry.replace("\n", _BREAK) + "\n")


@contextlib.contextmanager
def editing(connection: Connection) -> Iterator[Callable[[str], None]]:
    """Enable line editing; yields the function that adds a statement to the history."""
    try:
        import readline
    except ImportError:
        yield lambda entry: None
        return
    path = _history_file()
    entries = _entries(path)
    for entry in entries:
        readline.add_history(entry)
    readline.set_auto_history(False)
    before = lambda: readline.get_line_buffer()[: readline.get_begidx()]  # noqa: E731
    readline.set_completer(Completer(connection, before))
    readline.set_completer_delims(" \t\n()<>=,;'\"+-*/")
    readline.parse_and_bind("tab: complete")
    last = entries[-1] if entries else ""

    def remember(entry: str) -> None:
        nonlocal last
        if entry and entry != last:
            last = entry
            readline.add_history(entry)
            _keep(path, entry)

    try:
        yield remember
    finally:
        readline.set_auto_history(True)


_HELP = """\
  SELECT ...;         any statement of the dialect, over several lines, ended by ;
  EXPLAIN ...;        how a query would run
  \\d  \\d NAME         the streams; columns of a stream or view
  \\di NAME            indexes of a stream
  \\dl  \\dv            live queries; views
  \\x [on|off]         each value on a line of its own
  \\timing [on|off]    how long a statement took
  \\format FORMAT      how answers are written: table, json, ndjson, csv
  \\?  help            this text
  \\q  quit            leave (also Ctrl-D); Ctrl-C gives up what was typed, or what runs"""
_WORDS = {
    "d": "d", "dt": "d", "streams": "d", "tables": "d", "describe": "d", "schema": "d",
    "di": "di", "indexes": "di", "dl": "dl", "live": "dl", "dv": "dv",
    "views": "dv", "x": "x", "expanded": "x",
    "timing": "timing", "timer": "timing", "format": "format", "mode": "format",
    "?": "?", "h": "?", "help": "?",
    "q": "q", "quit": "q", "exit": "q",
}  # fmt: skip
"""Commands, with the names that other prompts use for them."""


@dataclass
class _Prompt:
    session: Session
    format: str
    rows_max: int | None
    timing: bool = False
    expanded: bool = False
    left: bool = False

    def command(self, line: str) -> None:
        """Run a prompt command; raises ``ChronicleError``."""
        word, _, argument = line[1:].strip().rstrip(";").partition(" ")
        argument = argument.strip()
        name = _WORDS.get(word.lower().removesuffix("+"))
        if name is None:
            near = did_you_mean(word, _WORDS, quoted=False, prefix="\\")
            raise InvalidArgument(f"there is no command {line[0]}{word}{near}; \\? lists them")
        if argument and name in ("dl", "dv", "?", "q"):
            raise InvalidArgument(f"\\{name} takes nothing, found {argument!r}")
        if name == "q":
            self.left = True
        elif name == "?":
            say(_HELP)
        elif name == "d":
            self.run(f"DESCRIBE {_quoted(argument)}" if argument else "SHOW STREAMS")
        elif name == "di":
            if not argument:
                raise InvalidArgument("\\di takes the name of a stream")
            self.run(f"SHOW INDEXES ON {_quoted(argument)}")
        elif name in ("dl", "dv"):
            self.run("SHOW LIVE QUERIES" if name == "dl" else "SHOW VIEWS")
        elif name == "x":
            self.expanded = _switched(name, argument, self.expanded)
            say(f"expanded display is {'on' if self.expanded else 'off'}")
        elif name == "timing":
            self.timing = _switched(name, argument, self.timing)
            say(f"timing is {'on' if self.timing else 'off'}")
        else:
            if argument not in ANSWER_FORMATS:
                raise InvalidArgument(
                    f"\\format takes one of {', '.join(ANSWER_FORMATS)}; found {argument!r}"
                )
            self.format = check_format(argument, None)

    def run(self, text: str) -> None:
        for statement in split(text):
            began = time.perf_counter()
            try:
                with self.session.run(statement) as (schema, batches):
                    write_answer(
                        batches, schema, self.format, rows_max=self.rows_max, expanded=self.expanded
                    )
            finally:
                self.session.release()
            if self.timing:
                say(f"{time.perf_counter() - began:.3f} s")


def _quoted(name: str) -> str:
    return name if name.startswith('"') else quoted_name(name)


def _switched(name: str, argument: str, now: bool) -> bool:
    states = {"": not now, "on": True, "off": False}
    if argument.lower() not in states:
        raise InvalidArgument(f"\\{name} takes on, off or nothing, found {argument!r}")
    return states[argument.lower()]


def prompt(
    connection: Connection,
    format: str,
    timeout: float | None,
    rows_max: int | None,
    files: Mapping[str, Path],
) -> None:
    where = connection.url or str(connection.path)
    say(f"Chronicle at {where}. End statements with ; - \\? for help, Ctrl-D to leave.")
    with editing(connection) as remember, Session(connection, timeout, files) as session:
        state = _Prompt(session, format, rows_max)
        text = ""
        while not state.left:
            try:
                line = input("chronicle> " if not text else "      ...> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                remember(text.strip())
                text = ""
                continue
            word = line.strip()
            if not text and word.lower().rstrip(";") in ("quit", "exit", "help"):
                word = f"\\{word}"
            if not text and word.startswith(("\\", ".")):
                remember(word)
                _carried_out(state.command, word)
                continue
            text = f"{text}\n{line}" if text else line
            if not text.strip():
                text = ""
            elif is_complete(text):
                remember(text.strip())
                _carried_out(state.run, text)
                text = ""


def _carried_out(what: Callable[[str], None], text: str) -> None:
    """Run one input; an error or an interrupt ends only that."""
    try:
        what(text)
    except ChronicleError as error:
        fail(in_words_of("command", str(error)))
        for note in getattr(error, "__notes__", ()):
            say(f"  {note}")
    except KeyboardInterrupt:
        say("interrupted")


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
    param: ParamOption = None,
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
