"""What live queries read of a stream in one round of steps, read once for all of them.

Purpose
    A hundred filters over a stream ask the same in each step: how many events there are up to a
    watermark, and the newest ones.  A :class:`View` is a snapshot that remembers the answers
    while the round lasts, and :class:`Views` has the queries of a round see the same view.

Layout
    ::

        with views.round():              the streams are looked at anew
            query 1: look() -> view      counts, columns of (W0, W1]: read
            query 2: look() -> view      the same ones: remembered
                                         what was remembered is dropped

Guarantee
    A view answers as its snapshot does.  Nobody is shown a stream as it was before what he has
    seen.  Outside of a round every look is a new one.

Limits
    Of a sink, which other steps of the round may add to, every look is a new one.  Scans with a
    filter, a predicate or a limit are not remembered, nor those of more than
    :data:`EVENTS_MAX` events.  As many ranges as :data:`RANGES_MAX` are.
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
    """A snapshot that remembers what it was asked until it is told to forget; see the module."""

    def __init__(self, state: StreamState, remembers: bool) -> None:
        super().__init__(state)
        self._remembers = remembers
        self._counted: dict[_Range, LightweightAggregates] = {}
        self._read: dict[_Range, dict[str, pa.ChunkedArray]] = {}

    def forget(self) -> None:
        """Answer as any snapshot from now on."""
        self._remembers, self._counted, self._read = False, {}, {}

    def aggregate(
        self,
        attributes: Sequence[str],
        start: int | None = None,
        end: int | None = None,
        *,
        metrics: ScanMetrics | None = None,
    ) -> LightweightAggregates:
        """See :meth:`.Snapshot.aggregate`."""
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
        """See :meth:`.Snapshot.scan`."""
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
        """The columns of a range, of which those are read that were not read before."""
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
    """Of the streams that live queries read; see the module."""

    def __init__(self) -> None:
        self._round = False
        self._views: dict[EventStream, View] = {}

    @contextmanager
    def round(self) -> Iterator[None]:
        """A round of steps: each stream is looked at once."""
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
        """A stream as it is, or as it was in this round, if that is not before ``seen``."""
        view = self._views.get(stream)
        if view is None or view.version < seen or stream.commits.manifest.owner is not None:
            view = View(stream.snapshot().state, self._round)
            if self._round:
                self._views[stream] = view
        return view
