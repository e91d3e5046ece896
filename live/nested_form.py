"""A query over a subquery: results of one live class are the events of another.

::

    inner result    _time = y, closed at W when y <= inner.closed(W)
    outer event     t = y + offset, for a column such as window_start at an offset from the time
    outer result    closed when the outer class's input is known up to inner.closed(W) + offset

Reaches add up.  The outer class reads a ``Derived`` snapshot, which evaluates the inner query over
the range read.

UNION ALL of live classes writes into one sink; identities include the number of the SELECT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests, seed_of
from ..core.times import INT64_MAX, moved
from ..schema import StreamSchema
from ..store.aggregates import LightweightAggregates
from ..store.snapshot import Snapshot, StreamState
from ..store.tap import Spans, united
from .changes import Results
from .forms import Form, Moment, StreamForm, snapshot_of

ID = "#id"
"""Column with the identity of the inner result."""


class Relation:
    """Results of a query as rows, ``offset`` ticks after the result's time."""

    def __init__(self, name: str, inner: Form, schema: StreamSchema, offset: int) -> None:
        self.name = name
        self.inner = inner
        self.schema = schema
        self.offset = offset

    def read(self, moment: Moment, low: int, high: int, known: int) -> pa.RecordBatch:
        """Rows with ``low <= t <= high`` of results that are closed at ``known``."""
        back = -self.offset
        found = self.inner.results(moment, moved(low, back), moved(high, back), known)
        ties = np.arange(len(found)) if self.inner.in_order else found.id
        order = pc.sort_indices(
            pa.table({"time": found.time, "tie": ties}),
            [("time", "ascending"), ("tie", "ascending")],
        )
        arrays = []
        for field in self.schema.arrow:
            if field.name == ID:
                column: Any = found.id
            elif field.name in self.inner.columns:
                column = found.columns.column(field.name).cast(field.type)
            else:
                column = pa.array(found.time + self.offset).cast(field.type)
            taken = column.take(order)
            arrays.append(taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)

    def at(self, moment: Moment, known: int) -> Derived:
        begun = [s.time_range[0] for s in moment.values() if s.time_range is not None]
        last = moved(self.inner.closed(known), self.offset)
        first = moved(min(begun), self.offset - 1) if begun else INT64_MAX
        span = (first, last) if first <= last else None
        return Derived(self.schema, span, lambda low, high: self.read(moment, low, high, known))


class Derived(Snapshot):
    """Rows evaluated when read; ``span`` bounds their ticks, the first exclusive."""

    def __init__(
        self,
        schema: StreamSchema,
        span: tuple[int, int] | None,
        read: Callable[[int, int], pa.RecordBatch],
    ) -> None:
        super().__init__(StreamState(schema, 0, 0, (), (), (), None, 0, 0, None, 0))
        self._span = span
        self._read = read
        self._held: tuple[int, int, Snapshot] | None = None

    @property
    def time_range(self) -> tuple[int, int] | None:
        return self._span

    @property
    def count(self) -> int:
        return int(self.aggregate(()).count)

    def _between(self, start: int | None, end: int | None) -> Snapshot:
        if self._span is None:
            return snapshot_of([], self.schema)
        low = self._span[0] if start is None else max(start, self._span[0])
        high = self._span[1] if end is None else min(end - 1, self._span[1])
        held = self._held
        if held is None or low < held[0] or high > held[1]:
            rows = [self._read(low, high)] if low <= high else []
            held = self._held = (low, high, snapshot_of(rows, self.schema))
        return held[2]

    def aggregate(
        self, attributes: Sequence[str], start: int | None = None, end: int | None = None,
        **options: Any,
    ) -> LightweightAggregates:  # fmt: skip
        return self._between(start, end).aggregate(attributes, start, end, **options)

    def scan(
        self, start: int | None = None, end: int | None = None, *given: Any, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        return self._between(start, end).scan(start, end, *given, **options)


class NestedForm(Form):
    """A class of queries over the results of a query."""

    def __init__(self, form: StreamForm, relation: Relation) -> None:
        self.form = form
        self.relation = relation
        self.columns = form.columns
        self.streams = relation.inner.streams
        self.appends = form.appends and relation.inner.appends
        self.incremental = form.incremental
        self.rebuilds = form.rebuilds
        self.in_order = False

    def _known(self, watermark: int) -> int:
        if watermark >= INT64_MAX:
            return INT64_MAX
        return moved(self.relation.inner.closed(watermark), self.relation.offset)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        rows = self.relation.at(moment, known)
        if rows.time_range is not None:
            low = max(low, moved(rows.time_range[0], 1))
        return self.form.results({self.form.stream: rows}, low, high, self._known(known))

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        rows = self.relation.at(moment, known)
        return self.form.advanced({self.form.stream: rows}, self._known(since), self._known(known))

    @property
    def state_bytes(self) -> int:
        return self.form.state_bytes

    def drop_state(self) -> None:
        self.form.drop_state()
        self.relation.inner.drop_state()

    def closed(self, watermark: int) -> int:
        return self.form.closed(self._known(watermark))

    def begin(self, moment: Moment, watermark: int) -> int:
        rows = self.relation.at(moment, watermark)
        return self.form.begin({self.form.stream: rows}, self._known(watermark))

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        inner, offset = self.relation.inner, self.relation.offset
        top = inner.closed(watermark)
        spans = tuple(
            (moved(low, offset), moved(min(high, top), offset))
            for low, high in inner.changed(moment, late, watermark)
            if low <= top
        )
        rows = self.relation.at(moment, watermark)
        if not spans or rows.time_range is None:
            return ()
        name = self.form.stream
        return self.form.changed({name: rows}, {name: spans}, self._known(watermark))

    def explain(self) -> list[tuple[str, str]]:
        told = list(self.form.explain())
        return told + [(f"of {name}", value) for name, value in self.relation.inner.explain()]


class UnionForm(Form):
    kind = "union"

    def __init__(self, parts: Sequence[Form], columns: tuple[str, ...]) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.streams = tuple(dict.fromkeys(name for part in parts for name in part.streams))
        self.appends = all(part.appends and part.closed(0) == 0 for part in parts)
        self.emits_changes = all(part.emits_changes for part in parts)
        self.incremental = any(part.incremental for part in parts)
        self.rebuilds = all(part.rebuilds or not part.incremental for part in parts)
        self.in_order = all(part.in_order for part in parts)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self._joined([part.results(moment, low, high, known) for part in self.parts])

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        found = []
        for part in self.parts:
            new = part.advanced(moment, since, known) if part.incremental else None
            if new is None and part.appends:
                begin = part.begin(moment, since)
                new = part.results(moment, begin, part.closed(known), known)
            if new is None:
                self.drop_state()
                return None
            found.append(new)
        return self._joined(found)

    def _joined(self, found: Sequence[Results]) -> Results:
        tables = [each.columns.rename_columns(list(self.columns)) for each in found]
        names = [
            digests(seed_of(f"union {number}"), [each.id]) for number, each in enumerate(found)
        ]
        times = np.concatenate([each.time for each in found])
        order = np.argsort(times, kind="stable")
        taken = pa.array(order)
        whole = pa.concat_tables(tables).take(taken)
        return Results(times[order], pa.concat_arrays(names).take(taken), whole)

    @property
    def state_bytes(self) -> int:
        return sum(part.state_bytes for part in self.parts)

    def drop_state(self) -> None:
        for part in self.parts:
            part.drop_state()

    def closed(self, watermark: int) -> int:
        return max(part.closed(watermark) for part in self.parts)

    def begin(self, moment: Moment, watermark: int) -> int:
        return min(part.begin(moment, watermark) for part in self.parts)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return united(
            tuple(span for part in self.parts for span in part.changed(moment, late, watermark))
        )

    def explain(self) -> list[tuple[str, str]]:
        told = [("class", f"{self.kind} of {len(self.parts)}")]
        for number, part in enumerate(self.parts, 1):
            told += [(f"{number}. {name}", value) for name, value in part.explain()]
        return told
