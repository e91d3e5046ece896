"""An UPDATE: which events of a stream get which values.

Changes the events that a DELETE with the same condition would remove.  Expressions see the event as
it was and are cast as in INSERT; on an error nothing is changed.  They are evaluated only over the
chosen events, while segments are rewritten.  The time and the columns of ``unique`` cannot change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.json_text import REASONS, is_json, read_json
from ..core.times import time_text
from ..errors import AttributeNotFound, InvalidData, SqlError
from ..schema import StreamSchema
from ..store.recent import BatchSnapshot
from ..store.tail import ticks_of
from .contract.cancellation import QueryControl
from .deletion import Deletion
from .insertion import SHOWN_CHARACTERS, Insertion
from .region import Region
from .sql.dialect import error_at, position_of
from .sql.parameters import bind_values, number_placeholders
from .sql.sql_types import conform

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["Update"]

NO_VALUE = "a new value is an expression over one event: no subquery, aggregate or window function"


@dataclass
class Update:
    """One UPDATE; ``assignments``: columns and expressions; ``condition`` None: every event."""

    engine: QueryEngine
    stream: str
    schema: StreamSchema
    assignments: list[tuple[Any, Any]]
    condition: Any
    text: str
    params: Any
    control: QueryControl

    def run(self, start: int | None = None, end: int | None = None) -> int:
        """Update between two ticks (half-open), or raise; returns the number of events."""
        names = self._targets()
        trees = [value for _, value in self.assignments]
        whole = exp.Tuple(expressions=[tree for tree in (*trees, self.condition) if tree])
        values = bind_values(number_placeholders(whole, self.text), self.params, self.text)
        source = self._source(trees)
        given = {p.name for p in source.find_all(exp.Placeholder)}
        of_values = {name: value for name, value in values.items() if name in given}
        made = _Values(
            self.engine, self.stream, self.schema, source, self.text, of_values, self.control
        )
        columns = [self.schema.time, *names]
        types = made.given()
        fields = pa.schema([self.schema.arrow.field(name) for name in columns])
        wanted = StreamSchema(fields, self.schema.time)

        def change(events: pa.RecordBatch) -> pa.RecordBatch:
            made.events = events
            rows = made.rows(columns, types)
            for name in names:
                self._check_nulls(name, rows.column(name), events)
            batch = self._json_read(conform(rows.combine_chunks().to_batches()[0], fields), events)
            if not np.array_equal(ticks_of(batch, wanted), ticks_of(events, self.schema)):
                raise SqlError("the new values were not evaluated in order of time")
            return batch.select(names)

        chosen = set()
        if self.condition is not None:
            chosen = {p.name for p in self.condition.find_all(exp.Placeholder)}
        of_condition = {name: value for name, value in values.items() if name in chosen}
        deletion = Deletion(
            self.engine, self.stream, self.schema, self.condition, self.text, of_condition,
            self.control, change,
        )  # fmt: skip
        return deletion.run(start, end)

    def _json_read(self, batch: pa.RecordBatch, events: pa.RecordBatch) -> pa.RecordBatch:
        """JSON values as stored; the executor returns them as written."""
        for place, field_ in enumerate(batch.schema):
            if is_json(field_.type):
                found = read_json(batch.column(place))
                if found.faults is not None:
                    row = int(found.faults.argmax())
                    value = repr(batch.column(place)[row].as_py()[:SHOWN_CHARACTERS])
                    reason = REASONS[found.faults[row] - 1].format(value=value)
                    event = _event(self.schema, events, row)
                    raise InvalidData(f"column {field_.name!r}: {reason} for the {event}", row)
                batch = batch.set_column(place, field_, found.values)
        return batch

    def _check_nulls(self, name: str, values: pa.ChunkedArray, events: pa.RecordBatch) -> None:
        if values.null_count and not self.schema.attribute(name).nullable:
            row = pc.index(values.is_null(), True).as_py()
            raise InvalidData(
                f"column {name!r} must not be null, but would be for the "
                f"{_event(self.schema, events, row)}", row,
            )  # fmt: skip

    def _targets(self) -> list[str]:
        names: list[str] = []
        unique = self.engine.catalog.stream_options(self.stream)["unique"] or ()
        for column, value in self.assignments:
            at = position_of(column)
            try:
                name = self.schema.resolve(column.name)
            except AttributeNotFound as error:
                raise error_at(self.text, at, str(error)) from None
            if name == self.schema.time:
                raise error_at(
                    self.text, at,
                    f"{name!r} is the time of the event, its place in the stream, and stays: "
                    "DELETE the event and INSERT it anew",
                )  # fmt: skip
            if name in unique:
                raise error_at(
                    self.text, at,
                    f"{name!r} is part of what makes events of {self.stream!r} unique, and stays: "
                    "DELETE the event and INSERT it anew",
                )  # fmt: skip
            if name in names:
                raise error_at(self.text, at, f"column {name!r} is assigned twice")
            more = value.find(exp.Query, exp.Subquery, exp.Window, exp.AggFunc)
            if more is not None:
                raise error_at(self.text, position_of(more) or at, NO_VALUE)
            names.append(name)
        return names

    def _source(self, trees: list[Any]) -> Any:
        time = exp.column(exp.to_identifier(self.schema.time, quoted=True))
        table = exp.Table(this=exp.to_identifier(self.stream, quoted=True))
        return exp.select(time, *(tree.copy() for tree in trees)).from_(table)


@dataclass
class _Values(Insertion):
    events: pa.RecordBatch | None = field(default=None)

    def _query(self, tree: Any) -> Any:
        if self.events is None:
            return super()._query(tree)
        snapshot = BatchSnapshot(self.schema, self.events)
        region = Region({self.stream: snapshot})
        prepared = self.engine.prepared(tree, self.text)
        return self.engine.over(prepared, region, self.control, self.params)

    def _row(self, row: int) -> str:
        assert self.events is not None
        return _event(self.schema, self.events, row)


def _event(schema: StreamSchema, events: pa.RecordBatch, row: int) -> str:
    tick = int(ticks_of(events.slice(row, 1), schema)[0])
    shown = tick if schema.time_unit is None else time_text(tick, schema.time_type)
    return f"event at {shown}"
