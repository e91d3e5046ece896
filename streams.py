"""One stream as its users see it: events in, events and aggregates out.

Purpose
    :class:`Stream` is the facade over a stored stream.  It turns what users have (tables, data frames,
    lists of dicts, times as ``datetime`` or text) into what the store takes (batches in the stream's
    schema, times as ticks) and back.

Guarantee
    Reading works on a consistent snapshot taken when the call is made.  ``[start, end)`` is half-open
    everywhere.  Times come out as what the stream declares: ``datetime`` for timestamps (with a zone when the
    type has one), ``int`` for plain ticks.

Limits
    A ``filter`` that cannot be expressed over min/max is still applied exactly; it just skips no block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .schema import StreamSchema

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from .database import Database
    from .store import AppendResult, EventStream

__all__ = ["Stream"]


class Stream:
    """A stream of an open database; made by :meth:`Database.stream` and :meth:`create_stream`."""

    __slots__ = ("_database", "handle")

    def __init__(self, database: Database, handle: EventStream) -> None:
        self._database = database
        self.handle = handle

    @property
    def name(self) -> str:
        """Name of the stream."""
        return str(self.handle.name)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of its events."""
        return self.handle.schema.arrow

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with its time attribute and storage types."""
        return self.handle.schema

    @property
    def time(self) -> str:
        """Name of the time attribute."""
        return self.handle.schema.time

    @property
    def count(self) -> int:
        """Number of events stored."""
        raise NotImplementedError

    @property
    def time_range(self) -> tuple[Any, Any] | None:
        """Times of the first and of the last event, both inclusive; None when there is none."""
        raise NotImplementedError

    def append(self, data: Any, durability: str | None = None) -> AppendResult:
        """Append events.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch or RecordBatchReader, pandas or polars frame, list of dict
            Or any object with ``__arrow_c_stream__``.  Columns in any order; nullable attributes may be
            missing.  Need not be sorted by time.
        durability : {"commit", "interval", "none"}, optional
            What the store promises when this returns; the stream's setting by default.

        Returns
        -------
        AppendResult
            ``appended``, ``late`` (of these, older than what was stored) and ``count`` (afterwards).

        Raises
        ------
        SchemaMismatch
            Unknown, missing or duplicate columns, or types that do not fit.
        InvalidData
            A value that does not fit, a time that is missing or not a number; with the row.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self.handle.flush()

    def seal(self) -> None:
        """Close the active segment; later events open a new one."""
        self.handle.seal()

    def compact(self) -> None:
        """Fold late runs into the segments they belong to."""
        self.handle.compact()

    def add_column(self, name: str, type_: pa.DataType) -> None:
        """Add a nullable attribute at the end; older events read as null."""
        raise NotImplementedError

    def scan(
        self,
        start: object = None,
        end: object = None,
        columns: Sequence[str] | None = None,
        filter: str | pc.Expression | None = None,
        *,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Read events in time order.

        Parameters
        ----------
        start, end : datetime, str, int or date, optional
            Half-open range ``[start, end)``; see :meth:`StreamSchema.to_ticks`.
        columns : sequence of str, optional
            Columns to read, in the order they shall have; all by default.
        filter : str or pyarrow.compute.Expression, optional
            A SQL predicate such as ``"altitude > 10000 AND icao24 LIKE 'a%'"``, or an expression.
        limit : int, optional
            Stop after so many events.

        Returns
        -------
        pyarrow.RecordBatchReader
            Bounded memory; close it, or read it to its end.
        """
        raise NotImplementedError

    def aggregate(
        self,
        functions: Mapping[str, str | Iterable[str]],
        start: object = None,
        end: object = None,
    ) -> dict[str, dict[str, Any]]:
        """Aggregate attributes over ``[start, end)`` from the tree, without reading its inner leaves.

        Parameters
        ----------
        functions : mapping of str to str or iterable of str
            Per attribute, functions among count, sum, min, max, avg, first, last.
        start, end : optional
            As in :meth:`scan`.

        Returns
        -------
        dict
            ``{"altitude": {"avg": ..., "max": ...}}``; ``count`` counts values that are not null, the
            others are None when there is none.  ``first`` and ``last`` are the attribute's values at the
            first and last event in which it is not null.
        """
        raise NotImplementedError

    def create_index(self, attribute: str, *, wait: bool = True) -> None:
        """Build a secondary index on an attribute, in the background when ``wait`` is false."""
        raise NotImplementedError

    def drop_index(self, attribute: str) -> None:
        """Remove the secondary index on an attribute; raises :class:`IndexNotFound`."""
        raise NotImplementedError

    def indexes(self) -> list[dict[str, Any]]:
        """The stream's secondary indexes: attribute, state and covered fraction of each."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Figures of the stream: events, bytes, segments, late events."""
        return dict(self.handle.stats())

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} {self.count} events>"
