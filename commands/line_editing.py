"""Line editing of the prompt: completion, and a history of statements (line breaks as U+0001),
appended to ``$XDG_STATE_HOME/chronicle/history`` (``~/.local/state/...``, mode 0600) as they are
entered.  Without readline, or if the history cannot be written, the prompt works without them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..errors import ChronicleError
from .connection import Connection

__all__ = ["Completer", "editing"]

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


class Completer:
    """Completes streams and views after FROM and the like, else also keywords and columns."""

    def __init__(self, connection: Connection, before: Callable[[], str]) -> None:
        self._connection = connection
        self._before = before
        self._columns: dict[str, list[str]] | None = None
        self._found: list[str] = []

    def _streams(self) -> dict[str, list[str]]:
        if self._columns is None:
            self._columns = {}
            with contextlib.suppress(ChronicleError, OSError):
                if self._connection.url is not None:
                    for what in ("streams", "views"):
                        for each in self._connection.ask(f"/v1/{what}")[what]:
                            columns = [column["name"] for column in each.get("schema", ())]
                            self._columns[each["name"]] = columns
                else:
                    with self._connection.database() as database:
                        damaged = database.damaged()
                        for name in database.streams():
                            known = () if name in damaged else database.stream(name).schema.names
                            self._columns[name] = list(known)
                        for view in database.views().values():
                            self._columns[view.name] = list(view.columns.names)
        return self._columns

    def _known(self) -> Iterable[str]:
        streams = self._streams()
        if _BEFORE_STREAM.search(self._before()):
            return streams
        return {*_KEYWORDS, *streams, *(name for names in streams.values() for name in names)}

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            lower = text.lower()
            self._found = sorted(n for n in self._known() if n.lower().startswith(lower))
        return self._found[state] if state < len(self._found) else None


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
