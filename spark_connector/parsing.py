"""Parsing files on the executors with the readers of ``--engine arrow``; every row comes out.

The output has the stream's columns in Spark's types (finer times are bad rows), then:

===========  ======  ====================================================================
``_reason``  string  null for a good row, else the error
``_line``    long    line of the file, or of the piece; null if unknown
``_column``  string  the column at fault, null for the whole row
``_value``   string  the value in that column
``_record``  string  the row as in the file
``_source``  string  the file
``_file``    int     order of events with equal times: rank of the file,
``_block``   long    position of the piece in the file,
``_row``     long    row in the piece
===========  ======  ====================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ..errors import ChronicleError
from ..formats.chunks import BadRow
from ..formats.reader import EventReader
from ..ingest.request import IngestRequest
from ..schema import StreamSchema
from .inputs import FilePiece, behind_header, read_slice
from .types import ReadConversion, arrow_schema, spark_schema

TRAIL = pa.schema(
    [
        ("_reason", pa.string()),
        ("_line", pa.int64()),
        ("_column", pa.string()),
        ("_value", pa.string()),
        ("_record", pa.string()),
        ("_source", pa.string()),
        ("_file", pa.int32()),
        ("_block", pa.int64()),
        ("_row", pa.int64()),
    ]
)
ORDER = 3
"""Trailing columns that good rows also have."""


@dataclass(frozen=True)
class _RowOrigin:
    file: int
    block: int
    row: int


class RowAssembler:
    """Builds output batches of good and bad rows."""

    def __init__(self, schema: StreamSchema) -> None:
        events = spark_schema(schema.arrow)
        self._conversion = ReadConversion(schema.arrow, events)
        # All columns are nullable, because bad rows have nulls.
        fields = [field.with_nullable(True) for field in arrow_schema(events)]
        self.schema = pa.schema([*fields, *TRAIL])
        self._events = len(fields)

    def good(self, batch: pa.RecordBatch, origin: _RowOrigin) -> pa.RecordBatch:
        count = batch.num_rows
        empty = [pa.nulls(count, TRAIL.field(i).type) for i in range(len(TRAIL) - ORDER)]
        rows = pa.array(np.arange(origin.row, origin.row + count))
        return self._assembled([*self._conversion(batch).columns, *empty], origin, rows)

    def bad(self, rows: list[BadRow], origin: _RowOrigin) -> pa.RecordBatch:
        columns = [pa.nulls(len(rows), self.schema.field(i).type) for i in range(self._events)]
        columns += [
            pa.array([row.reason for row in rows], pa.string()),
            pa.array([row.line for row in rows], pa.int64()),
            pa.array([row.column for row in rows], pa.string()),
            pa.array([row.value for row in rows], pa.string()),
            pa.array([row.record for row in rows], pa.string()),
            pa.array([row.source for row in rows], pa.string()),
        ]
        return self._assembled(columns, origin, pa.array([row.row for row in rows], pa.int64()))

    def _assembled(
        self, columns: list[pa.Array], origin: _RowOrigin, rows: pa.Array
    ) -> pa.RecordBatch:
        count = len(rows)
        order = [
            pa.repeat(pa.scalar(origin.file, pa.int32()), count),
            pa.repeat(pa.scalar(origin.block, pa.int64()), count),
            rows,
        ]
        return pa.RecordBatch.from_arrays([*columns, *order], schema=self.schema)


def _parsed(
    request: IngestRequest,
    schema: StreamSchema,
    output: RowAssembler,
    origin: _RowOrigin,
    source: Any,
    **how: Any,
) -> Iterator[pa.RecordBatch]:
    bad: list[BadRow] = []
    try:
        reader = EventReader(source, layout=request.layout(schema), on_bad=bad.append, **how)
        for batch in reader:
            yield output.good(batch, origin)
            origin = replace(origin, row=origin.row + batch.num_rows)
            if bad:
                yield output.bad(bad, origin)
                bad.clear()
    except ChronicleError as error:
        if request.on_error == "fail":
            raise
        bad.append(BadRow(how["name"], 0, f"the rest of the file was given up: {error}"))
    if bad:
        yield output.bad(bad, origin)


@dataclass(frozen=True)
class FileParser:
    """Reads the pieces that rows name, or their ``content``; picklable, for ``mapInArrow``."""

    request: IngestRequest
    schema: StreamSchema
    pieces: tuple[FilePiece, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = RowAssembler(self.schema)
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._read(self.pieces[row["piece"]], row.get("content"), output)

    def _read(
        self, piece: FilePiece, content: bytes | None, output: RowAssembler
    ) -> Iterator[pa.RecordBatch]:
        request = self.request
        text = request.text
        source: Any = piece.path if content is None else content
        if not piece.whole:
            source = read_slice(piece.path, piece.start, piece.end)
            if piece.start and piece.format == "csv":  # the header is in the first piece
                text = behind_header(piece.path, text)
        return _parsed(
            request,
            self.schema,
            output,
            _RowOrigin(piece.index, piece.start, 0),
            source,
            format=piece.format,
            name=piece.path,
            text=text,
        )


@dataclass(frozen=True)
class RowParser:
    """Converts rows that Spark has read (ORC, Avro); picklable, for ``mapInArrow``."""

    request: IngestRequest
    schema: StreamSchema
    ranks: dict[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse rows with the files' columns, ``_path``, ``_block`` and ``_row``."""
        output = RowAssembler(self.schema)
        for batch in batches:
            for part in _by_file(batch):
                path = _plain(part.column("_path")[0].as_py())
                origin = _RowOrigin(
                    self.ranks.get(path, len(self.ranks)),
                    part.column("_block")[0].as_py(),
                    part.column("_row")[0].as_py(),
                )
                rows = part.drop_columns(["_path", "_block", "_row"])
                yield from _parsed(
                    self.request,
                    self.schema,
                    output,
                    origin,
                    ipc_bytes(rows),
                    format="arrow",
                    name=path,
                )


def _by_file(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    paths = batch.column("_path").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    cuts = [0, *(np.flatnonzero(np.diff(paths)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)


def _plain(path: str) -> str:
    return unquote(path.removeprefix("file://")) if path.startswith("file:///") else path


def ipc_bytes(data: pa.RecordBatch | pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as out:
        out.write(data)
    return bytes(sink.getvalue())
