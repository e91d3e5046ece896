"""Snapshots shared by the live queries of one round, with cached counts and columns.

A view answers as its snapshot does, and is never older than what a query has seen.  Outside a
round, and for sinks, every look takes a new snapshot.  Filtered, limited and large scans are not
cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ..store import EventStream
from ..store.aggregates import LightweightAggregates
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot, StreamState

__all__ = ["View", "Views"]

EVENTS_MAX = 1 << 18
RANGES_MAX = 8

_Range = tuple[int | None, int | None]


class View(Snapshot):
    def __init__(self, state: StreamState, remembers: bool) -> None:
        super().__init__(state)
        self._remembers = remembers
        self._counted: dict[_Range, LightweightAggregates] = {}
        self._read: dict[_Range, dict[str, pa.ChunkedArray]] = {}

    def forget(self) -> None:
        self._remembers, self._counted, self._read = False, {}, {}

    def aggregate(
        self,
        attributes: Sequence[str],
        start: int | None = None,
        end: int | None = None,
        *,
        metrics: ScanMetrics | None = None,
    ) -> LightweightAggregates:
        if attributes or not self._remembers:
            return super().aggregate(attributes, start, end, metrics=metrics)
        counted = self._counted
        found = counted.get((start, end))
        if found is None:
            found = counted[start, end] = super().aggregate((), start, end, metrics=metrics)
        return found

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        selects = ("prune", "filter", "limit")
        if (
            self._remembers
            and columns
            and not any(options.get(name) is not None for name in selects)
            and self.aggregate((), start, end).count <= EVENTS_MAX
        ):
            return self._remembered(start, end, columns, options)
        return super().scan(start, end, columns, **options)

    def _remembered(
        self, start: int | None, end: int | None, columns: Sequence[str], options: Any
    ) -> Iterator[pa.RecordBatch]:
        names = list(self.schema.select(columns))
        known = self._read.get((start, end), {})
        missing = [name for name in names if name not in known]
        if missing:
            fields = [self.schema.arrow.field(name) for name in missing]
            options = {**options, "dictionary": False}
            new = pa.Table.from_batches(
                super().scan(start, end, missing, **options), pa.schema(fields)
            )
            known = {**known, **dict(zip(missing, new.columns, strict=True))}
            if len(self._read) < RANGES_MAX or (start, end) in self._read:
                self._read[start, end] = known
        schema = pa.schema([self.schema.arrow.field(name) for name in names])
        yield from pa.Table.from_arrays([known[n] for n in names], schema=schema).to_batches()


class Views:
    def __init__(self) -> None:
        self._round = False
        self._views: dict[EventStream, View] = {}

    @contextmanager
    def round(self) -> Iterator[None]:
        self._end()
        self._round = True
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        self._round = False
        for view in list(self._views.values()):
            view.forget()
        self._views.clear()

    def look(self, stream: EventStream, seen: int) -> Snapshot:
        """A stream now, or as seen earlier in this round unless that is before version ``seen``."""
        view = self._views.get(stream)
        if view is None or view.version < seen or stream.commits.manifest.owner is not None:
            view = View(stream.snapshot().state, self._round)
            if self._round:
                self._views[stream] = view
        return view
