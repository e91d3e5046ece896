"""Events out of a snapshot: the scan behind ``GET .../events``.

Purpose
    :func:`open_scan` reads a time range of a stream, at its present version or a pinned one, under
    a SQL predicate, and can be stopped between any two blocks.

Guarantee
    A read that sends nothing for the query time limit (it searches and finds nothing) ends with
    :class:`QueryTimeout`; one that makes progress may take as long as it needs.

Limits
    The predicate speaks of one event at a time: no aggregates, windows or subqueries; those are
    queries.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ..errors import QueryCancelled, QueryTimeout
from ..schema import StreamSchema
from .answers import Rows
from .running import RunningQuery
from .state import Server

__all__ = ["Range", "open_scan"]


@dataclass(frozen=True)
class Range:
    """What is read of a stream.

    Attributes
    ----------
    bounds : callable
        Gives start and end in ticks, half-open, for the stream's schema.
    columns : list of str, optional
        In the order wanted.
    where : str, optional
        SQL predicate.
    limit : int, optional
        The first so many events.
    version : int, optional
        A pinned version.
    """

    bounds: Callable[[StreamSchema], tuple[int | None, int | None]]
    columns: list[str] | None = None
    where: str | None = None
    limit: int | None = None
    version: int | None = None


def open_scan(server: Server, stream: str, wanted: Range, query: RunningQuery) -> Rows:
    """Begin to read; blocks until the snapshot is taken.

    Raises
    ------
    StreamNotFound, AttributeNotFound, InvalidArgument, SqlError, Problem
    """
    found = server.database.stream(stream)
    with contextlib.ExitStack() as stack:
        snapshot = stack.enter_context(server.snapshots.use(found.name, wanted.version))
        schema: StreamSchema = snapshot.schema
        start, end = wanted.bounds(schema)
        columns = schema.select(wanted.columns)
        patience = _Patience(query, server.settings.query_timeout)
        if wanted.where is None:
            batches = snapshot.scan(start, end, columns, limit=wanted.limit, check=patience.check)
        else:
            batches = server.database.filtered_scan(
                found.name, snapshot, wanted.where, start, end, columns, wanted.limit
            )
        arrow = pa.schema([schema.arrow.field(name) for name in columns])
        return Rows(arrow, patience.watch(batches), stack.pop_all().close)
    raise AssertionError("unreachable")


class _Patience:
    """Ends a read that was cancelled or that finds nothing for too long."""

    def __init__(self, query: RunningQuery, limit_s: float) -> None:
        self._query = query
        self._limit_s = limit_s
        self._progress = time.monotonic()

    def check(self) -> None:
        if self._query.cancellation.cancelled:
            raise QueryCancelled("the read was cancelled")
        if time.monotonic() - self._progress > self._limit_s:
            raise QueryTimeout(
                f"no event was found for {self._limit_s:g} s (CHRONICLE_QUERY_TIMEOUT_MS); give a "
                "time "
                "range or a wider predicate"
            )

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._progress = time.monotonic()  # also after the time that the client took
