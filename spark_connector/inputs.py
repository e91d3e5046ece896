"""Inputs of a pipeline: files, directories, globs and URIs, in pieces of one task each.

Pieces are in the reading order of ``--engine arrow``, which orders events of equal time.  Large
NDJSON files, and CSV files without quotes, are split at line ends; line numbers of bad rows count
from a piece's beginning.  A new stream's schema is inferred from up to ``SAMPLED_FILES`` files.

Executors parse files with the readers of ``--engine arrow``; every row comes out.  The output has
the stream's columns in Spark's types (finer times are bad rows), then:

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

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ..errors import ChronicleError, ConnectionFailed, InvalidArgument, MissingDependency
from ..formats.chunks import BadRow
from ..formats.csvtext import CsvRecords
from ..formats.dialect import TextOptions
from ..formats.jsontext import looks_like_lines
from ..formats.kinds import detect, suffixes_of
from ..formats.reader import EventReader
from ..formats.sources import ByteSource
from ..ingest.request import IngestRequest, expand
from ..schema import StreamSchema
from .types import ReadConversion, arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 256 << 20
"""Text files larger than this are split into pieces of about this size."""

SAMPLED_FILES = 8
HEAD_BYTES = 1 << 20
SPARK_FORMATS = {".orc": "orc", ".avro": "avro"}
"""Formats that only Spark's readers know, by suffix."""

AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13"
SCHEME_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}


@dataclass(frozen=True)
class FilePiece:
    """One file, or a part of one (half-open bytes); a line belongs to where it begins."""

    index: int
    path: str
    format: str | None
    start: int
    end: int
    size: int
    remote: bool = False

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.end >= self.size


def find_pieces(
    request: IngestRequest, spark: SparkSession, split_bytes: int = SPLIT_BYTES
) -> list[FilePiece]:
    """Files of a request, in order, with large ones split; may raise InvalidArgument."""
    pieces: list[FilePiece] = []
    for item in request.inputs:
        if item == "-":
            raise InvalidArgument("--engine spark reads files; use --engine arrow for stdin")
        files = _listed(spark, item) if _is_uri(item) else _local(item)
        for path, size in files:
            pieces += _pieces(len(pieces), path, size, request, split_bytes)
    ranks: dict[str, int] = {}
    for piece in pieces:
        ranks.setdefault(piece.path, len(ranks))
    pieces = [replace(piece, index=ranks[piece.path]) for piece in pieces]
    kinds = {piece.format for piece in pieces if piece.format in SPARK_FORMATS.values()}
    if kinds and len({piece.format for piece in pieces}) > 1:
        raise InvalidArgument(
            f"{' and '.join(sorted(str(kind) for kind in kinds))} files are read apart from "
            "others; ingest them by a command of their own"
        )
    return pieces


def total_bytes(pieces: Sequence[FilePiece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def _is_uri(item: str) -> bool:
    return "://" in item and not item.startswith("file:")


def _local(item: str) -> list[tuple[str, int]]:
    if item.startswith("file:"):
        item = "/" + item.removeprefix("file:").lstrip("/")
    odd = _odd_files(item)
    if odd:
        return [(path, os.path.getsize(path)) for path in odd]
    return [(source.path, source.size or 0) for source in expand([item])]


def _odd_files(item: str) -> list[str]:
    if not os.path.isdir(item):
        return []
    return sorted(
        path
        for suffix in SPARK_FORMATS
        for path in glob.glob(f"{glob.escape(item)}/**/*{suffix}", recursive=True)
    )


def _listed(spark: SparkSession, uri: str) -> list[tuple[str, int]]:
    with readable(uri):
        rows = (
            spark.read.format("binaryFile")
            .option("recursiveFileLookup", "true")
            .load(uri)
            .select("path", "length")
            .orderBy("path")
            .collect()
        )
    if not rows:
        raise InvalidArgument(f"no file matches {uri!r}")
    return [(row["path"], int(row["length"])) for row in rows]


@contextmanager
def readable(place: str) -> Iterator[None]:
    """Translate Spark's errors on opening a file."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise InvalidArgument(f"no file matches {place!r}") from None
        if error.getCondition() == "AVRO_DATA_SOURCE_NOT_ENABLED":
            raise MissingDependency(f"{place} is Avro: {_packages(AVRO_PACKAGE)}") from None
        raise
    except Py4JJavaError as error:
        message = str(error.java_exception)
        if "No FileSystem for scheme" in message or "FileSystem not found" in message:
            scheme = place.partition("://")[0]
            package = SCHEME_PACKAGES.get(scheme, f"the one for {scheme}://")
            raise MissingDependency(f"{place} cannot be opened: {_packages(package)}") from None
        raise ConnectionFailed(f"Spark cannot open {place}: {message.splitlines()[0]}") from None


def _packages(name: str) -> str:
    return (
        f"Spark needs a package that does not come with it, {name}; with internet access "
        f"PYSPARK_SUBMIT_ARGS='--packages NAME:VERSION pyspark-shell' fetches it, otherwise put "
        "its jars among those of Spark"
    )


def _pieces(
    index: int, path: str, size: int, request: IngestRequest, split_bytes: int
) -> Iterator[FilePiece]:
    suffix = Path(path).suffix.lower()
    format_ = SPARK_FORMATS.get(suffix, request.format)
    remote = _is_uri(path)
    whole = FilePiece(index, path, format_, 0, size, size, remote)
    split = None
    if not remote and suffix not in SPARK_FORMATS and size > split_bytes:
        split = _splittable(path, format_, request)
    if split is None:
        yield whole
        return
    whole = replace(whole, format=split)
    count = -(-size // split_bytes)
    borders = [size * i // count for i in range(count + 1)]
    for start, end in pairwise(borders):
        yield replace(whole, start=start, end=end)


def _splittable(path: str, format_: str | None, request: IngestRequest) -> str | None:
    """The format if every line end also ends a record; else None."""
    if request.encoding not in (None, "utf-8"):
        return None
    kind = suffixes_of(path)
    if kind is not None and (kind.compression is not None or kind.format == "xlsx"):
        return None
    with ByteSource(path) as source:
        if source.compression is not None:
            return None
        head = source.peek(HEAD_BYTES)
        detected = detect(path, head[:4096], format_)
    if detected == "json" and looks_like_lines(head[:4096]):
        detected = "ndjson"
    odd = head.startswith((b"#", b"PK", b"\xff\xfe", b"\xfe\xff")) or b"\n" not in head
    if odd or (detected == "csv" and request.quote and request.quote.encode() in head):
        return None
    return detected if detected in ("ndjson", "csv") else None


def read_slice(path: str, start: int, end: int, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The lines of a file that begin in a byte range."""
    with open(path, "rb") as file:
        at = start
        if start:
            file.seek(start - 1)
            file.readline()  # the end of a line that another piece reads
            at = file.tell()
        while at < end:
            chunk = file.read(min(chunk_bytes, end - at))
            if not chunk:
                return
            at += len(chunk)
            if at >= end and not chunk.endswith(b"\n"):
                chunk += file.readline()
            yield chunk


def behind_header(path: str, text: TextOptions) -> TextOptions:
    """Options for a CSV piece whose header is in the first piece."""
    with ByteSource(path) as source:
        records = CsvRecords(source, text)
    delimiter = records.delimiter
    return replace(text, columns=records.names, delimiter=delimiter, header=False, skip=0)


@dataclass(frozen=True)
class Settled:
    schema: StreamSchema
    notes: tuple[str, ...] = ()


def settle(
    request: IngestRequest,
    pieces: Sequence[FilePiece],
    existing: StreamSchema | None,
    opened: Callable[[FilePiece], bytes] | None = None,
) -> Settled:
    """Decide the schema on the driver; ``opened`` reads a piece that only Spark can open."""
    layout = request.layout(existing)
    for piece in [piece for piece in pieces if piece.start == 0][:SAMPLED_FILES]:
        foreign = piece.format in SPARK_FORMATS.values()
        source: Any = piece.path
        if opened is not None and (foreign or piece.remote):
            source = opened(piece)
        reader = EventReader(
            source,
            "arrow" if foreign else piece.format,
            layout=layout,
            on_bad=_overlook,
            name=piece.path,
            text=request.text,
        )
        try:
            next(iter(reader), None)
        finally:
            reader.close()
    if existing is not None:
        return Settled(existing, tuple(layout.notes.values()))
    return Settled(StreamSchema(layout.schema(), layout.time), tuple(layout.notes.values()))


def _overlook(bad: BadRow) -> None:
    del bad


def for_spark(schema: StreamSchema) -> StreamSchema:
    """The schema with microseconds in place of nanoseconds."""
    fields = [
        field.with_type(pa.timestamp("us", field.type.tz))
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns"
        else field
        for field in schema.arrow
    ]
    return StreamSchema(pa.schema(fields), schema.time)


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


def row_schema(schema: StreamSchema) -> pa.Schema:
    """What parsers give; bad rows have nulls in all columns."""
    fields = arrow_schema(spark_schema(schema.arrow))
    return pa.schema([*(field.with_nullable(True) for field in fields), *TRAIL])


class RowOrigin(NamedTuple):
    file: int
    block: int
    row: int


class RowParser:
    """Parses what a reader of events takes into good and bad rows; picklable."""

    def __init__(self, request: IngestRequest, schema: StreamSchema) -> None:
        self.request = request
        self._read = schema
        self._conversion = ReadConversion(schema.arrow, spark_schema(schema.arrow))
        self._schema = row_schema(schema)

    def parsed(self, source: Any, origin: RowOrigin, **how: Any) -> Iterator[pa.RecordBatch]:
        bad: list[BadRow] = []
        file, block, row = origin
        try:
            layout = self.request.layout(self._read)
            for batch in EventReader(source, layout=layout, on_bad=bad.append, **how):
                yield self._good(batch, RowOrigin(file, block, row))
                row += batch.num_rows
                if bad:
                    yield self._bad(bad, origin)
                    bad.clear()
        except ChronicleError as error:
            if self.request.on_error == "fail":
                raise
            bad.append(BadRow(how["name"], 0, f"the rest of the file was given up: {error}"))
        if bad:
            yield self._bad(bad, origin)

    def _good(self, batch: pa.RecordBatch, first: RowOrigin) -> pa.RecordBatch:
        count = batch.num_rows
        order = {
            "_file": pa.repeat(pa.scalar(first.file, pa.int32()), count),
            "_block": pa.repeat(pa.scalar(first.block, pa.int64()), count),
            "_row": pa.array(np.arange(first.row, first.row + count)),
        }
        trail = [order.get(field.name, pa.nulls(count, field.type)) for field in TRAIL]
        columns = [*self._conversion(batch).columns, *trail]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _bad(self, rows: list[BadRow], origin: RowOrigin) -> pa.RecordBatch:
        order = {"_file": origin.file, "_block": origin.block}
        return pa.RecordBatch.from_pylist(
            [{f"_{name}": value for name, value in vars(row).items()} | order for row in rows],
            self._schema,
        )


class FileParser(RowParser):
    """Reads the pieces that rows name, or their ``content``; for ``mapInArrow``."""

    def __init__(
        self, request: IngestRequest, schema: StreamSchema, pieces: Sequence[FilePiece]
    ) -> None:
        super().__init__(request, schema)
        self._pieces = pieces

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self._piece(self._pieces[row["piece"]], row.get("content"))

    def _piece(self, piece: FilePiece, content: bytes | None) -> Iterator[pa.RecordBatch]:
        text = self.request.text
        source: Any = piece.path if content is None else content
        if not piece.whole:
            source = read_slice(piece.path, piece.start, piece.end)
            if piece.start and piece.format == "csv":  # the header is in the first piece
                text = behind_header(piece.path, text)
        origin = RowOrigin(piece.index, piece.start, 0)
        return self.parsed(source, origin, format=piece.format, name=piece.path, text=text)


class SparkRowParser(RowParser):
    """Converts rows that Spark has read (ORC, Avro), for ``mapInArrow``."""

    def __init__(self, request: IngestRequest, schema: StreamSchema, ranks: dict[str, int]) -> None:
        super().__init__(request, schema)
        self._ranks = ranks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse rows with the files' columns, ``_path``, ``_block`` and ``_row``."""
        for batch in batches:
            for part in _by_file(batch):
                path, block, row = (
                    part.column(name)[0].as_py() for name in ("_path", "_block", "_row")
                )
                path = _plain(path)
                origin = RowOrigin(self._ranks.get(path, len(self._ranks)), block, row)
                rows = ipc_bytes(part.drop_columns(["_path", "_block", "_row"]))
                yield from self.parsed(rows, origin, format="arrow", name=path)


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
