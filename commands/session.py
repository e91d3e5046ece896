"""Runs statements one after another against one store or server.

A script is split at semicolons, except inside quotes, dollar quotes and comments.  Only options
name files that SQL may read (``chronicle sql --with name=file``), never SQL; all but Parquet and
Arrow files are read into memory once per command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from ..errors import InvalidArgument, InvalidData, SqlError
from ..query.sql.first_word import only_reads, parts_of, plain
from .options import Connection

if TYPE_CHECKING:
    import pyarrow as pa

    from ..api.database import Database
    from ..client import RemoteDatabase

_BEFORE, _BEHIND = 50, 24
"""Characters of a long line that are shown beside a position."""


def is_complete(script: str) -> bool:
    """Whether the input ends with a semicolon that ends a statement."""
    parts = parts_of(script)
    return len(parts) > 1 and not plain(parts[-1])


def pointed_at(statement: str, line: int | None, column: int | None) -> list[str]:
    """The line of a position (from 1), shortened, and a caret below; else nothing."""
    lines = statement.splitlines()
    if line is None or column is None or not 1 <= line <= len(lines):
        return []
    text, at = "".join(c if c.isprintable() else " " for c in lines[line - 1]), column - 1
    if not 0 <= at <= len(text):
        return []
    first = max(0, at - _BEFORE)
    left, right = ("..." if first else ""), ("..." if len(text) > at + _BEHIND else "")
    before, behind = left + text[first:at], text[at : at + _BEHIND] + right
    cells = sum(2 if east_asian_width(c) in "WF" else 1 for c in before)
    return [before + behind, " " * cells + "^"]


def named_files(items: list[str]) -> dict[str, Path]:
    """Parse ``name=file`` items; a file alone has its stem as name.  Raises ``InvalidArgument``."""
    if not items:
        return {}
    from ..formats.kinds import stem_of

    files: dict[str, Path] = {}
    for item in items:
        before, equals, path = item.partition("=")
        name, file = (before.strip(), Path(path)) if equals else (stem_of(item), Path(item))
        if not name or not file.name:
            raise InvalidArgument(f"--with takes name=file, found {item!r}")
        if name.lower() in (each.lower() for each in files):
            raise InvalidArgument(f"--with names {name!r} twice")
        files[name] = file.expanduser()
    return files


def read_file(path: Path) -> Any:
    """A file as a table, read as an ingest reads it; Parquet and Arrow as a dataset."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from ..formats.kinds import suffixes_of
    from ..formats.layout import Layout, conform
    from ..formats.reader import EventReader

    kind = suffixes_of(path.name)
    if kind is None:
        raise InvalidArgument(
            "--with reads .csv, .json, .ndjson, .parquet, .arrow and .xlsx files, found "
            f"{str(path)!r}"
        )
    if kind.compression is None and kind.format in ("parquet", "arrow"):
        try:
            return ds.dataset(path, format="ipc" if kind.format == "arrow" else "parquet")
        except (pa.ArrowException, OSError) as error:
            raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None
    layout = Layout(timeless=True)
    batches = list(EventReader(path, layout=layout))
    schema = layout.schema()
    return pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)


class Session:
    """``timeout`` is in seconds per statement; ``files`` are those that statements on a store may
    name.
    """

    def __init__(
        self,
        connection: Connection,
        timeout: float | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._database: Database | None = None
        self._remote: RemoteDatabase | None = None
        self._mode = ""
        self._frames = {name: read_file(path) for name, path in (files or {}).items()}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._remote is not None:
            self._remote.close()

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, mode: str) -> Database:
        """The store, reopened for writing when a statement writes."""
        if self._database is None or (mode == "rw" and self._mode == "r"):
            self._close()
            self._database = self._connection.database(mode)
            self._mode = mode
            for name, frame in self._frames.items():
                self._database.register(name, frame)
        return self._database

    def release(self) -> None:
        if self._mode == "rw":
            self._close()

    @contextlib.contextmanager
    def run(
        self, statement: str, params: dict[str, Any] | None = None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Run a statement: schema and batches.  ``SqlError`` notes show the place."""
        try:
            with self._answer(statement, params) as answer:
                yield answer
        except SqlError as error:
            for note in pointed_at(statement, error.line, error.column):
                error.add_note(note)
            raise

    @contextlib.contextmanager
    def _answer(
        self, statement: str, params: dict[str, Any] | None
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        database: Database | RemoteDatabase
        if self._connection.url is not None:
            database = self._remote = self._remote or self._connection.remote()
        else:
            database = self.database("r" if only_reads(statement) else "rw")
        with database.sql(statement, params or None, self._timeout) as result:
            yield result.schema, result.batches()
