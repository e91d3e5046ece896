"""Worker process in which libarrow decodes untrusted bytes, without access to the store.

``isolated.py`` sends the jobs::

    owner: {"job": "read", format, layout, ...} + the file, or its bytes
    worker: {"bad": [row, ...]} and {"batch"} in source order, the last one with "end",
            or {"error": [class, message, row]}; without a target, also {"columns"} on changes

    owner: {"job": "look", ...} + the same
    worker: {"look", "batch", "bad", "end"}, or {"error"}
"""

from __future__ import annotations

import io
import mimetypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ..core.json_text import JSON, read_json
from ..errors import ChronicleError
from ..isolation.batches import describe, pack
from ..isolation.channel import Channel, ChannelClosed
from ..schema import StreamSchema
from .chunks import BadRow
from .dialect import load_encodings
from .layout import Layout
from .reader import EventReader, look
from .sources import unpacked
from .times import open_patterns, parse_time_format

if TYPE_CHECKING:
    from ..isolation.confinement import Confinement


BAD_ROWS_TOGETHER = 64
SMALL_ROWS = 4096
_READ_FROM_THE_END = (b"PAR1", b"ARROW1", b"PK\x03\x04")
TEXT_CHARACTERS = 1 << 16

_SCHEMA = pa.schema([pa.field("t", pa.timestamp("us"), False), ("x", pa.float64()), ("j", JSON)])
_SAMPLES: dict[str, bytes] = {
    "ndjson": b'{"t": "2001-01-01T00:00:00.5Z", "x": 1.5, "j": {"a": 1}}\n{"t": null, "x": "a"}\n',
    "json": b'[{"t": "2001-01-01", "x": 1.5}, {"t": "2001-01-01 00:00:00", "x": 1}]',
    "lineprotocol": b'm,a=b x=1.5,i=1i,s="a",b=t 1\n# none\n\nno line\n',
    "cloudevents": b'[{"id": "1", "time": "2001-01-01T00:00:00Z", "data": {"x": 1.5}}]',
    "csv": b't,x\n2001-01-01T00:00:00,1.5\n"2001-01-01",2\n',
}


def prepare() -> None:
    """Load the readers in the fork_server, except Arrow's parsers, which would start threads.

    DuckDB (time patterns) runs with one thread, which survives a fork.
    """
    load_encodings()
    open_patterns(threads=1, async_threads=0)
    parse_time_format("%Y")
    layout = Layout(time_format="iso", target=StreamSchema(_SCHEMA, "t"))
    for format, sample in _SAMPLES.items():
        flatten = "_" if format in ("json", "cloudevents") else None
        reader = EventReader(sample, format, layout=layout, flatten=flatten)
        for _ in reader._reader.chunks():
            pass
        reader.close()
    read_json(pa.array(['{"a": [1, "b"]}', None]))


def serve(channel: Channel, spec: Mapping[str, Any], confined: Confinement) -> None:
    mimetypes.knownfiles.clear()  # openpyxl would read these files
    channel.send({"ready": asdict(confined)})
    while True:
        job, data = channel.receive()
        file, channel.file = channel.file, None
        try:
            with _opened(file, data, job) as source:
                work = _look if job["job"] == "look" else _read
                message, pieces = work(channel, source, job)
            channel.send({**message, "end": True}, pieces)
        except ChannelClosed:
            raise
        except BaseException as error:
            channel.send({"error": _error_fields(error, job)})


def _opened(file: int | None, data: pa.Buffer | None, job: dict[str, Any]) -> Any:
    if file is not None:
        return os.fdopen(file, "rb")
    content = b"" if data is None else memoryview(data)[: job["size"]]
    return io.BufferedReader(io.BytesIO(content))  # can peek


def _read(
    channel: Channel, source: Any, job: dict[str, Any]
) -> tuple[dict[str, Any], Sequence[Any]]:
    bad: list[dict[str, Any]] = []
    held: list[tuple[dict[str, Any], Sequence[Any]]] = []

    def note(row: BadRow) -> None:
        bad.append({**asdict(row), "record": row.record[:TEXT_CHARACTERS]})
        if len(bad) >= BAD_ROWS_TOGETHER:
            flush()

    def flush() -> None:
        for message in held:
            channel.send(*message)
        held.clear()
        if bad:
            channel.send({"bad": bad})
            bad.clear()

    layout: Layout = job["layout"]
    columns_sent: list[Any] | None = None
    for batch in EventReader(
        _decoded(source, job),
        job["format"],
        layout=layout,
        on_bad=note,
        name=job["name"],
        compression=None,
        **job["options"],
    ):
        flush()
        node, pieces = pack(batch)
        message: dict[str, Any] = {"batch": node}
        if layout.target is None and columns_sent != (
            columns := [describe(batch.schema), layout.time]
        ):
            message["columns"] = columns_sent = columns
        if batch.num_rows < SMALL_ROWS and not bad:  # probably the last one
            held.append((message, pieces))
        else:
            channel.send(message, pieces)
    if bad:
        flush()
    last, left = held.pop() if held else ({}, ())
    if layout.target is None:  # the last chunk may have settled an undecided type
        last = {**last, "settled": [describe(layout.schema()), layout.time]}
    return {**last, "notes": layout.notes}, left


def _look(
    channel: Channel, source: Any, job: dict[str, Any]
) -> tuple[dict[str, Any], Sequence[Any]]:
    del channel
    opened: list[Any] = []  # keeps them alive: a collected one would close the file below it

    def open_source() -> Any:
        source.seek(0)
        opened.append(_decoded(source, job))
        return opened[-1]

    preview = look(open_source, job["format"], name=job["name"], **job["options"])
    node, pieces = pack(preview.rows)
    return {
        "look": preview.to_dict(),
        "columns": describe(preview.rows.schema),
        "batch": node,
    }, pieces


def _decoded(source: Any, job: dict[str, Any]) -> Any:
    decoded: Any = unpacked(source, job["encoding"], job["decoded_max"])
    if job["encoding"] is not None and decoded.peek(6)[:6].startswith(_READ_FROM_THE_END):
        return io.BytesIO(decoded.read())  # there is no disk to seek on: use memory
    return decoded


def _error_fields(error: BaseException, job: dict[str, Any]) -> list[Any]:
    cause = error.__context__ or error  # a reader may have wrapped the error
    full = str(cause).endswith("bad_alloc") and not isinstance(cause, ChronicleError)
    if full or isinstance(cause, (MemoryError, pa.ArrowMemoryError)):
        return ["Memory", "", None]
    if isinstance(error, ChronicleError):
        row = getattr(error, "row", None)
        return [type(error).__name__, str(error)[:TEXT_CHARACTERS], row]
    reason = str(error).splitlines()[0][:200] if str(error) else ""
    what = f"{job['name']}: cannot be read as {job['format']} ({type(error).__name__}: {reason})"
    return ["InvalidData", what, None]
