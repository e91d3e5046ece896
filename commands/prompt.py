"""The interactive prompt of ``chronicle sql``.

Statements may take several lines and end with a semicolon.  History is kept in
``$XDG_STATE_HOME/chronicle/history`` (``~/.local/state/...``); Tab completes keywords, streams and
columns. The store is opened for reading; a statement that writes takes the lock for as long as it
runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..errors import ChronicleError, in_words_of
from .connection import Connection
from .output import write_answer
from .session import Session
from .sql_script import is_complete, split
from .terminal import fail, say

__all__ = ["prompt"]

_HELP = """\
  SELECT ...;         any statement of the dialect, over several lines, ended by ;
  SHOW STREAMS;       what there is (also .streams)
  DESCRIBE name;      columns of a stream
  EXPLAIN ...;        how a query would run
  .timing             switch the display of times on and off
  .help  .quit        this text; leave (also Ctrl-D)"""
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "ORDER", "HAVING", "LIMIT", "JOIN",
    "ON", "AND", "OR", "NOT", "NULL", "AS", "COUNT", "SUM", "MIN",
    "MAX", "AVG", "CREATE", "STREAM", "INDEX", "DROP", "SHOW", "STREAMS", "INDEXES",
    "DESCRIBE", "EXPLAIN", "ANALYZE", "INSERT", "INTO", "VALUES", "TIMESTAMP", "INTERVAL", "TUMBLE",
    "HOP", "HOP_ROWS", "MATCH_RECOGNIZE", "MATCH_SITUATIONS", "PARTITION", "MEASURES", "PATTERN",
    "DEFINE", "WITHIN", "RECENT", "INCREMENTAL", "MAXIMAL",
)  # fmt: skip


class _Completer:
    """Keywords, streams and columns that begin with what was typed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names: list[str] | None = None
        self._found: list[str] = []

    def _known(self) -> list[str]:
        if self._names is None:
            names: set[str] = set(_KEYWORDS)
            with contextlib.suppress(ChronicleError, OSError):
                if self._connection.url is not None:
                    for stream in self._connection.ask("GET", "/v1/streams")["streams"]:
                        names.add(stream["name"])
                        names.update(column["name"] for column in stream.get("schema", ()))
                else:
                    with self._connection.database() as database:
                        names.update(database.streams())
                        for name in names & set(database.streams()) - set(database.damaged()):
                            names.update(database.stream(name).schema.names)
            self._names = sorted(names)
        return self._names

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            lower = text.lower()
            self._found = [name for name in self._known() if name.lower().startswith(lower)]
        return self._found[state] if state < len(self._found) else None


def _history_file() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state")
    return Path(home) / "chronicle" / "history"


@contextlib.contextmanager
def _editing(connection: Connection):  # type: ignore[no-untyped-def]
    """Line editing with history and completion, where the platform has it."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(5000)
    readline.set_completer(_Completer(connection))
    readline.set_completer_delims(" \t\n()<>=,;'\"+-*/")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


def prompt(
    connection: Connection, format: str, timeout: float | None, rows_max: int | None
) -> None:
    """Read statements and run them until the end of input."""
    where = connection.url or str(connection.path)
    say(f"Chronicle at {where}. End statements with ; - .help for help, Ctrl-D to leave.")
    timing = False
    with _editing(connection), Session(connection, timeout) as session:
        text = ""
        while True:
            try:
                line = input("chronicle> " if not text else "      ...> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                text = ""
                continue
            if not text and line.strip().startswith("."):
                word = line.strip().lower()
                if word in (".quit", ".exit", ".q"):
                    return
                if word == ".timing":
                    timing = not timing
                    say(f"timing is {'on' if timing else 'off'}")
                    continue
                if word != ".streams":
                    say(_HELP)
                    continue
                line = "SHOW STREAMS;"
            if not text and line.strip().lower() in ("quit", "exit", "help"):
                if line.strip().lower() == "help":
                    say(_HELP)
                    continue
                return
            text = f"{text}\n{line}" if text else line
            if not text.strip():
                text = ""
            elif is_complete(text):
                for statement in split(text):
                    if not _run(session, statement, format, rows_max, timing):
                        break
                text = ""


def _run(session: Session, statement: str, format: str, rows_max: int | None, timing: bool) -> bool:
    """Run one statement; False when it failed."""
    began = time.perf_counter()
    try:
        with session.run(statement) as (schema, batches):
            write_answer(batches, schema, format, rows_max=rows_max)
        if timing:
            say(f"{time.perf_counter() - began:.3f} s")
    except ChronicleError as error:
        fail(in_words_of("command", str(error)))
        return False
    except KeyboardInterrupt:
        say("interrupted")
        return False
    finally:
        session.release()
    return True
