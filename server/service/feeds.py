"""Feeds: endless answers, made piece by piece in a thread; ``routes.following`` sends them. ::

    format   rows                           marks                            heartbeat
    sse      event: row, id, data           event: mark, id, data            a comment
    ndjson   a line each                    a line {"$mark": {...}}, if      a mark
                                            asked for
    arrow    a batch with its place in      an empty batch with metadata     a mark
             the metadata

A client that resumes at the id, or place, that it read last receives what follows it, exactly once.
A mark says that everything up to its place was sent.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa

from ...api.tailing import Piece, Tail
from ...formats import media_type_of
from ...formats.jsonout import json_bytes
from ..http import event_stream
from .encoding import as_text

__all__ = ["Feed", "Format", "TailFeed", "format_of"]

RETRY_MS = 2000


class Format(ABC):
    media_type: str

    def head(self) -> bytes:
        return b""

    @abstractmethod
    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        """At least one row; ``ids`` has the id after each row, ``place`` that after all."""

    @abstractmethod
    def mark(self, place: str, told: dict[str, Any]) -> bytes:
        """The feed's position."""

    def beat(self, place: str, told: dict[str, Any]) -> bytes:
        return self.mark(place, told)

    def end(self, kind: str, told: dict[str, Any]) -> bytes:
        """The last bytes; ``kind`` is ``bye`` or ``error``."""
        return b""


class _ServerSentEvents(Format):
    media_type = event_stream.MEDIA_TYPE

    def __init__(self, *, int64_as_string: bool) -> None:
        self._int64_as_string = int64_as_string

    def head(self) -> bytes:
        return event_stream.retry(RETRY_MS)

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        return event_stream.row_events(ids(), as_text(rows) if self._int64_as_string else rows)

    def mark(self, place: str, told: dict[str, Any]) -> bytes:
        return event_stream.event("mark", orjson.dumps(told).decode(), place)

    def beat(self, place: str, told: dict[str, Any]) -> bytes:
        return event_stream.comment()

    def end(self, kind: str, told: dict[str, Any]) -> bytes:
        return event_stream.event(kind, orjson.dumps(told).decode())


class _Lines(Format):
    media_type = media_type_of("ndjson")

    def __init__(self, *, marks: bool, int64_as_string: bool) -> None:
        self._marks = marks
        self._int64_as_string = int64_as_string

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        return json_bytes(as_text(rows) if self._int64_as_string else rows)

    def mark(self, place: str, told: dict[str, Any]) -> bytes:
        return orjson.dumps({"$mark": told}) + b"\n" if self._marks else b""

    def end(self, kind: str, told: dict[str, Any]) -> bytes:
        return orjson.dumps({f"${kind}": told}) + b"\n" if self._marks or kind == "error" else b""


class _Arrow(Format):
    media_type = media_type_of("arrow")

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)
        self._empty = pa.RecordBatch.from_arrays(
            [pa.array([], f.type) for f in schema], schema=schema
        )

    def head(self) -> bytes:
        return self._taken()

    def rows(self, ids: Callable[[], pa.Array], place: str, rows: pa.RecordBatch) -> bytes:
        self._writer.write_batch(rows, custom_metadata={"chronicle.place": place})
        return self._taken()

    def mark(self, place: str, told: dict[str, Any]) -> bytes:
        marks = {"chronicle.place": place, "chronicle.mark": orjson.dumps(told).decode()}
        self._writer.write_batch(self._empty, custom_metadata=marks)
        return self._taken()

    def end(self, kind: str, told: dict[str, Any]) -> bytes:
        said = {f"chronicle.{kind}": orjson.dumps(told).decode()}
        self._writer.write_batch(self._empty, custom_metadata=said)
        if kind == "bye":  # only now: an answer that broke off has no end-of-stream marker
            self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        taken = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return taken


def format_of(
    name: str, schema: pa.Schema, *, marks: bool = False, int64_as_string: bool = False
) -> Format:
    if name == "sse":
        return _ServerSentEvents(int64_as_string=int64_as_string)
    if name == "ndjson":
        return _Lines(marks=marks, int64_as_string=int64_as_string)
    return _Arrow(schema)


class Feed(ABC):
    format: Format
    rows = 0

    @abstractmethod
    def take(self) -> bytes | None:
        """The next bytes, perhaps empty; None when nothing is new."""

    @property
    @abstractmethod
    def unmarked(self) -> bool:
        """Whether the feed has moved since its last mark."""

    @abstractmethod
    def mark(self) -> bytes:
        """The feed's position."""

    @abstractmethod
    def beat(self) -> bytes:
        """A heartbeat."""

    @abstractmethod
    def close(self) -> None:
        """Release what the feed holds."""


class TailFeed(Feed):
    def __init__(self, tail: Tail, format: Format) -> None:
        self._tail = tail
        self.format = format
        self.rows = 0
        self._late = 0
        self._said: str | None = None

    def take(self) -> bytes | None:
        piece: Piece | None = self._tail.take()
        if piece is None:
            return None
        self._late += piece.late
        if not piece.events.num_rows:
            return b""
        self.rows += piece.events.num_rows
        place = str(piece.place)
        self._said = piece.places()[-1].as_py()
        return self.format.rows(piece.places, place, piece.events)

    @property
    def unmarked(self) -> bool:
        return self._said != self._tail.position

    def mark(self) -> bytes:
        self._said = self._tail.position
        return self.format.mark(self._said, self._told())

    def beat(self) -> bytes:
        return self.format.beat(self._tail.position, self._told())

    def _told(self) -> dict[str, Any]:
        return {"position": self._tail.position, "rows": self.rows, "late": self._late}

    def close(self) -> None:
        self._tail.close()
