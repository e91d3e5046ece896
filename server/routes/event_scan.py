"""The scan behind ``GET .../events``: a time range of a snapshot under a SQL predicate on single
events. A read without progress for the query time limit ends with ``QueryTimeout``; others may take
any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...errors import InvalidArgument, QueryTimeout
from ...query.contract.cancellation import QueryControl
from ...query.plan.small_queries import EVENTS_MAX, is_small_read
from ...schema import StreamSchema
from ..access.statement_rights import check_predicate
from ..service.running_queries import RunningQuery
from ..service.state import Server
from .row_responses import RowSource

__all__ = ["Patience", "ScanRange", "distinct_columns", "open_scan", "scan_at_once"]


@dataclass(frozen=True)
class ScanRange:
    """What to read; ``bounds`` gives start and end in ticks, half-open, for a schema."""

    bounds: Callable[[StreamSchema], tuple[int | None, int | None]]
    columns: list[str] | None = None
    where: str | None = None
    limit: int | None = None
    version: int | None = None


def open_scan(server: Server, stream: str, wanted: ScanRange, query: RunningQuery) -> RowSource:
    """Begin to read; blocks until the snapshot is taken."""
    found = server.database.stream(stream)
    with contextlib.ExitStack() as stack:
        snapshot = stack.enter_context(server.snapshots.use(found.name, wanted.version))
        schema: StreamSchema = snapshot.schema
        start, end = wanted.bounds(schema)
        columns = distinct_columns(schema, wanted.columns)
        patience = Patience(query, server.settings.query_timeout)
        if wanted.where is None:
            batches = snapshot.scan(start, end, columns, limit=wanted.limit, check=patience.check)
        else:
            check_predicate(wanted.where)
            batches = server.database.filtered_scan(
                found.name, snapshot, wanted.where, start, end, columns, wanted.limit, patience
            )
        arrow = pa.schema([schema.arrow.field(name) for name in columns])
        return RowSource(arrow, patience.watch(batches), stack.pop_all().close)
    raise AssertionError("unreachable")


def scan_at_once(
    server: Server, stream: str, wanted: ScanRange, query: RunningQuery
) -> RowSource | None:
    """Begin a cheap read; None for any other."""
    if wanted.where is not None:
        return None
    found = server.database.stream(stream)
    if wanted.version is None and wanted.limit is not None and wanted.limit <= EVENTS_MAX:
        columns = len(wanted.columns or found.event_schema.names)
        if is_small_read(found.snapshot(), columns, None, None, wanted.limit):
            return open_scan(server, stream, wanted, query)
    return None


def distinct_columns(schema: StreamSchema, names: list[str] | None) -> list[str]:
    columns = schema.select(names)
    if len(set(columns)) != len(columns):
        raise InvalidArgument(f"each column can be read once, found {', '.join(columns)}")
    return columns


class Patience(QueryControl):
    """Ends a read that was cancelled, or that finds nothing for ``limit_s`` seconds."""

    def __init__(self, query: RunningQuery, limit_s: float) -> None:
        super().__init__(cancellation=query.cancellation)
        self._limit_s = limit_s
        self._progress = time.monotonic()

    @property
    def stopped(self) -> bool:
        return super().stopped or time.monotonic() - self._progress > self._limit_s

    def check(self) -> None:
        super().check()
        if self.stopped:
            raise QueryTimeout(
                f"no event was found for {self._limit_s:g} s (CHRONICLE_QUERY_TIMEOUT_MS); give a "
                "time range or a wider predicate"
            )

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; time that the client takes for them does not count."""
        for batch in batches:
            yield batch
            self._progress = time.monotonic()
