"""Tables of a program into streams, by the mechanism of files: each is read as an Arrow stream.

A source is a path, a table, or several of them; of a generator one table is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.options import parameters_of
from ..core.soundness import require_sound
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument
from ..formats.chunks import BadRowPolicy
from ..formats.dialect import IngestOptions
from ..formats.layout import Layout
from ..formats.reader import EventReader, time_like
from ..formats.tables import reader_of
from ..formats.writers import encode
from .pipeline import Ingest, ingest
from .request import BadRows, IngestReport, IngestRequest, InputSource, expand
from .sinks import Sink, Target

if TYPE_CHECKING:
    from ..catalog.store_catalog import StoreCatalog

_TAKEN = (
    "the path of a file, a frame of pandas or polars, a table, batch or reader of Arrow, a list of "
    "dicts, or a list or generator of these"
)

Tables = Iterator[pa.RecordBatchReader]


def ingest_any(
    catalog: StoreCatalog, source: Any, stream: str, time: str | None, options: Mapping[str, Any]
) -> IngestReport:
    """Ingest files or tables, as ``Database.ingest`` documents it."""
    known = [each.field for each in parameters_of(IngestOptions)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) or f"; options are {', '.join(known)}"
            raise InvalidArgument(f"ingest has no option {name!r}{hint}")
    settings: dict[str, Any] = {"create": True, "if_exists": "append", **options}
    target, paths = Target(catalog=catalog), _paths_of(source)
    guesses = time is None and stream not in catalog.streams()
    if paths:
        if guesses:
            text = IngestRequest(paths, stream, **settings).text
            first = expand(paths)[0].path
            time = _only_time(EventReader(first, layout=Layout(timeless=True), text=text))
        return ingest(IngestRequest(paths, stream, time=time, **settings), target)
    tables = _tables_of(source)
    if guesses:
        time, tables = _time_of_first(tables)
    request = IngestRequest(["<tables>"], stream, time=time, **settings)
    bad_rows = BadRows(request.on_error, target.quarantine_path(request))
    return _TableIngest(tables, request, target.sink(stream), bad_rows).run()


class _TableIngest(Ingest):
    def __init__(
        self, tables: Tables, request: IngestRequest, sink: Sink, bad_rows: BadRows
    ) -> None:
        super().__init__(request, sink, bad_rows)
        self._tables = tables

    def sources(self) -> list[InputSource]:
        return [InputSource("<tables>", None)]

    def open_source(
        self, source: InputSource, layout: Layout, on_bad: BadRowPolicy
    ) -> _TablesReader:
        del source
        return _TablesReader(self._tables, layout, on_bad)


class _TablesReader:
    """A ``SourceReader`` of several tables."""

    def __init__(self, tables: Tables, layout: Layout, on_bad: BadRowPolicy) -> None:
        self._tables = tables
        self._layout = layout
        self._on_bad = on_bad
        self.rows = 0
        self.consumed = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, table in enumerate(self._tables, 1):
            reader = _event_reader(table, f"table {number}", self._layout, on_bad=self._on_bad)
            yield from reader
            self.rows += reader.rows
            self.consumed += reader.consumed


def _event_reader(
    table: pa.RecordBatchReader, name: str, layout: Layout, **more: Any
) -> EventReader:
    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in table:
            require_sound(batch, name, rows)
            rows += batch.num_rows
            yield batch

    encoded = encode(batches(), table.schema, "arrow")
    return EventReader(encoded, "arrow", layout=layout, name=name, compression=None, **more)


def _paths_of(source: Any) -> list[str]:
    """The paths that a source names; none if it is a table."""
    items = source if isinstance(source, (list, tuple)) else [source]
    are_paths = all(isinstance(item, (str, os.PathLike)) for item in items)
    return [os.fspath(item) for item in items] if are_paths else []


def _tables_of(source: Any) -> Tables:
    whole = reader_of(source)
    if whole is not None:
        return iter((whole,))
    if isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        return map(_table_of, source)
    return iter((_table_of(source),))


def _table_of(item: Any) -> pa.RecordBatchReader:
    table = reader_of(item)
    if table is None:
        raise InvalidArgument(f"ingest takes {_TAKEN}; found {type(item).__name__}")
    return table


def _time_of_first(tables: Tables) -> tuple[str, Tables]:
    """The time column of the first table, and all tables again."""
    table = next(tables, None)
    batch = None if table is None else next(iter(table), None)
    if table is None or batch is None:
        raise InvalidArgument("there are no rows: give time=, the name of the time column")
    begin = pa.RecordBatchReader.from_batches(table.schema, [batch])
    time = _only_time(_event_reader(begin, "table 1", Layout(timeless=True)))
    again = pa.RecordBatchReader.from_batches(table.schema, chain([batch], table))
    return time, chain([again], tables)


def _only_time(reader: EventReader) -> str:
    """The one column that may be the time of the events."""
    rows = next(iter(reader), None)
    reader.close()
    names = [] if rows is None else time_like(rows)
    if len(names) == 1:
        return names[0]
    columns = [] if rows is None else rows.schema.names
    found = f"{', '.join(names)} may be it" if names else "no column is like a time"
    raise InvalidArgument(
        f"give time=, the name of the time column: {found} (columns are {', '.join(columns)}; the "
        "index of a pandas frame needs a name to be one)"
    )
