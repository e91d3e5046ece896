"""INSERT, DELETE and UPDATE: rows of an INSERT, events that a condition chooses, new values.

INSERT: a value that its column cannot take, or that the cast would change, is an error at its
position in the statement.  Only a failing INSERT evaluates its source again, to find the value.
The DEFAULT of a column is a literal, because it is computed once; it is cast as INSERT casts it.

DELETE and UPDATE: an event is chosen exactly when a SELECT with the same condition would return
it.  A condition on time alone reads no event; comparisons with constants are evaluated in threads
(``row_filters.row_truths``), others by the executor, over the time range that they permit.

Expressions of an UPDATE see the event as it was and are cast as in INSERT; on an error nothing is
changed.  They are evaluated only over the chosen events, while segments are rewritten.  The time
and the columns of ``unique`` cannot change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.json_text import REASONS, is_json, read_json
from ..core.threads import Check, Done, in_order, processors
from ..core.times import INT64_MAX, INT64_MIN, half_open, time_text
from ..errors import AttributeNotFound, InvalidData, SchemaMismatch, SqlError
from ..schema import StreamSchema
from ..store.deleting import Change, Choice
from ..store.prune import Prune
from ..store.recent import BatchSnapshot
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of
from .conditions.row_filters import columns_of, has_row_truths, row_truths
from .contract.cancellation import QueryControl
from .plan.nodes import Scan
from .plan.planner import Region
from .sql.dialect import error_at, error_on, parse_predicate, position_of
from .sql.gate import is_text, lost_by_cast
from .sql.parameters import bind_values, number_placeholders
from .sql.sql_types import cast_of_texts, conform, sql_type
from .sql.trees import MANY_VALUES, several

if TYPE_CHECKING:
    from .engine import QueryEngine

SHOWN_CHARACTERS = 100
"""Characters of a rejected value in an error."""

_FROM_COLUMN = re.compile(r" when casting from source column c(\d+)$")


@dataclass
class Modification:
    """A statement that changes a stream, with the values of its parameters."""

    engine: QueryEngine
    stream: str
    schema: StreamSchema
    text: str
    params: Any
    control: QueryControl

    def from_stream(self, *more: Any) -> Any:
        """SELECT of the stream: the time first, so that no unparsed aggregate stands beside it."""
        time = exp.column(exp.to_identifier(self.schema.time, quoted=True))
        table = exp.Table(this=exp.to_identifier(self.stream, quoted=True))
        return exp.select(time, *more).from_(table)


@dataclass
class Insertion(Modification):
    """One INSERT; ``source``: VALUES or a query."""

    source: Any

    def given(self) -> pa.Schema:
        result = self._query(exp.select("*").from_(self._select().subquery("q")))
        result.close()
        return result.schema

    def rows(self, names: Sequence[str], given: pa.Schema) -> pa.Table:
        """All rows, cast to the stream's columns of these names; raises SqlError."""
        columns = list(self._columns(names, given.types))
        query = exp.select(*(c.cast for c in columns), *(c.loss for c in columns if c.loss))
        try:
            table = self._query(query.from_(self._numbered(len(columns)))).arrow()
        except SqlError as error:
            raise self._refused(error, columns) from None
        losing = [column for column in columns if column.loss]
        for column, lost in zip(losing, table.columns[len(columns) :], strict=True):
            refused = self._first(column, lost, column.why)
            if refused is not None:
                raise refused
        return table.select(range(len(columns)))

    def _columns(self, names: Sequence[str], types: Sequence[pa.DataType]) -> Iterator[_Column]:
        for place, (name, type_) in enumerate(zip(names, types, strict=True)):
            attribute = self.schema.attribute(name)
            alias = f"c{place}"
            kind = sql_type(attribute.type)
            cast = exp.cast(
                exp.column(exp.to_identifier(alias, quoted=True)), kind, dialect="duckdb"
            )
            if is_text(type_) and pa.types.is_timestamp(attribute.type) and not attribute.type.tz:
                cast = parse_predicate(cast_of_texts(f'"{alias}"', attribute.type, kind))
            lossy = lost_by_cast(f'"{alias}"', type_, attribute, name == self.schema.time)
            condition, why = lossy or ("", "")
            yield _Column(
                place, name, kind, exp.alias_(cast, name, quoted=True, copy=False),
                _shown(condition, alias) if condition else None, why,
            )  # fmt: skip

    def _refused(self, error: SqlError, columns: Sequence[_Column]) -> SqlError:
        failing = [
            _shown(f'"{a}" IS NOT NULL AND TRY_CAST("{a}" AS {column.kind}) IS NULL', a)
            for column in columns
            for a in (column.alias,)
        ]
        try:
            query = exp.select(*failing).from_(self._numbered(len(columns)))
            table = self._query(query).arrow()
        except SqlError:  # no such cast exists, or the source itself fails
            named = _FROM_COLUMN.search(error.reason)
            if named is None:
                return error
            column, reason = columns[int(named[1])], error.reason[: named.start()]
            return error_at(
                self.text,
                self._position(column.place, None),
                f"column {column.name!r} of stream {self.stream!r}: {reason}",
            )
        refusals = (
            self._first(column, failed, f"it cannot be cast to {column.kind}")
            for column, failed in zip(columns, table.columns, strict=True)
        )
        return next((refused for refused in refusals if refused is not None), error)

    def _first(self, column: _Column, refused: pa.ChunkedArray, why: str) -> SqlError | None:
        if refused.null_count == len(refused):
            return None
        row, value = next((i, v) for i, v in enumerate(refused.to_pylist()) if v is not None)
        if len(value) > SHOWN_CHARACTERS:
            value = f"{value[:SHOWN_CHARACTERS]}..."
        return error_at(
            self.text,
            self._position(column.place, row),
            f"column {column.name!r} cannot take the value {value!r} (stream {self.stream!r}, "
            f"{self._row(row)}): {why}",
        )

    def _row(self, row: int) -> str:
        return f"row {row + 1}"

    def _position(self, place: int, row: int | None) -> int | None:
        source = self.source
        items: list[Any] = []
        if isinstance(source, exp.Values) and row is not None:
            items = _cells(source.expressions[row])
        elif isinstance(source, exp.Select) and not source.is_star:
            items = source.expressions
        return position_of(items[place]) if place < len(items) else None

    def _select(self) -> Any:
        source = self.source.copy()
        if isinstance(source, exp.Values):
            source.set("alias", None)
            _read_as_text(source)
            return exp.select("*").from_(source)
        return source

    def _numbered(self, count: int) -> Any:
        subquery = self._select().subquery()
        names = [exp.to_identifier(f"c{place}", quoted=True) for place in range(count)]
        subquery.set("alias", exp.TableAlias(this=exp.to_identifier("q"), columns=names))
        return subquery

    def _query(self, tree: Any) -> Any:
        return self.engine.query(tree, self.text, self.params, self.control)


@dataclass
class _Column:
    """A column of the source: its target, its cast, and when the cast would change a value."""

    place: int
    name: str
    kind: str
    cast: Any
    loss: Any
    why: str

    @property
    def alias(self) -> str:
        return f"c{self.place}"


def _cells(row: Any) -> list[Any]:
    return row.expressions if isinstance(row, exp.Tuple) else [row]


def _read_as_text(values: Any) -> None:
    """Cast columns of VALUES with texts and others to text; else ``(1), ('2.5')`` is integers."""
    rows = [_cells(row) for row in values.expressions]
    if len({len(row) for row in rows}) != 1:
        return  # the executor reports the error
    for column in zip(*rows, strict=True):
        cells = [cell for cell in column if not isinstance(cell, exp.Null)]
        texts = sum(1 for cell in cells if isinstance(cell, exp.Literal) and cell.is_string)
        if 0 < texts < len(cells):
            for cell in cells:
                cell.replace(exp.cast(cell.copy(), "VARCHAR", dialect="duckdb"))


def _shown(condition: str, alias: str) -> Any:
    case = f'CASE WHEN {condition} THEN CAST("{alias}" AS VARCHAR) END'
    return exp.alias_(parse_predicate(case), f"@{alias}", quoted=True, copy=False)


_LITERALS = (exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.ByteString)


def default_of(
    engine: QueryEngine, stream: str, column: Any, type_: pa.DataType, text: str
) -> pa.Scalar | None:
    """The default in a column's definition, or None; raises SqlError."""
    value = column.args.get("default")
    if value is None:
        return None
    if not _is_literal(value):
        raise error_on(
            text,
            value,
            f"the default of {column.this.name!r} is a literal, such as 0, 'none' or DATE "
            "'2018-08-01'",
        )
    name = column.this.name
    time = "t" if name.lower() != "t" else "u"
    schema = StreamSchema(pa.schema([(time, pa.int64()), (name, type_)]), time)
    row = exp.values([(value.copy(),)])
    insertion = Insertion(engine, stream, schema, text, None, QueryControl(), row)
    computed = insertion.rows([name], insertion.given()).column(0)[0]
    if not computed.is_valid:
        return None
    return computed if is_json(type_) else computed.cast(type_)


def _is_literal(node: Any) -> bool:
    if isinstance(node, (exp.Neg, exp.Paren, exp.Cast)):
        return _is_literal(node.this)
    return isinstance(node, _LITERALS)


NO_CONDITION = "where is a condition on one event; write a query for anything more"


def check_condition(condition: Any, text: str) -> None:
    """Raise ``SqlError`` for what is no condition on one event."""
    more = condition.find(exp.Query, exp.Subquery, exp.Window, exp.AggFunc)
    if more is not None:
        raise error_on(text, more, NO_CONDITION)
    more = several(condition)
    if more is not None:
        raise error_on(text, more, MANY_VALUES)


PART_EVENTS = 262_144
"""Approximate events evaluated in one step, if a tick has not more."""

THREADS_MAX = 4

Looked = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]


@dataclass
class Deletion(Modification):
    """One DELETE, or an UPDATE if ``change`` is given; ``condition`` None: every event."""

    condition: Any
    change: Change | None = None

    def run(self, start: int | None = None, end: int | None = None) -> int:
        """Delete between two ticks (half-open), or raise; returns the number of events."""
        if self.condition is None:
            return self._rewritten(start, end, None)
        check_condition(self.condition, self.text)
        scan = self._scan()
        low = max(scan.low, INT64_MIN if start is None else start)
        high = min(scan.high, INT64_MAX if end is None else end - 1)
        if low > high:
            return 0
        bounds = (low, None if high == INT64_MAX else high + 1)
        if scan.exact:
            return self._rewritten(*bounds, None)
        passing = scan.prune if scan.decided else None
        if passing is not None and has_row_truths(passing, self.schema):
            return self._rewritten(*bounds, lambda of: self._satisfying(of, *bounds, passing))
        return self._rewritten(*bounds, lambda of: self._chosen(of, *bounds))

    def time_range(self) -> tuple[int | None, int | None]:
        """The half-open ticks that satisfy the condition; SqlError if it is not a range."""
        check_condition(self.condition, self.text)
        scan = self._scan()
        if not scan.exact or scan.low > scan.high:
            raise error_on(
                self.text,
                self.condition,
                f"expected a range of times: {self.schema.time!r} compared with constants, with "
                ">=, <, BETWEEN, and AND between them",
            )
        return half_open(scan.low, scan.high)

    def _rewritten(self, start: int | None, end: int | None, choose: Choice | None) -> int:
        handle = self.engine.catalog.changes.handle(self.stream)
        changed: int = (
            handle.delete(start, end, choose)
            if self.change is None
            else handle.update(start, end, choose, self.change)
        )
        return changed

    def _scan(self) -> Scan:
        query = self.from_stream()
        query.set("where", exp.Where(this=self.condition.copy()))
        leaf = self.engine.plan(query, self.text, self.params, self.control).leaf
        if isinstance(leaf, Scan):
            return leaf
        return Scan(self.stream, self.schema, INT64_MIN, INT64_MAX, decided=False)

    def _check_schema(self, snapshot: Snapshot) -> None:
        if snapshot.schema != self.schema:
            raise SchemaMismatch(f"the stream {self.stream!r} was altered meanwhile; try again")

    def _satisfying(
        self, snapshot: Snapshot, start: int | None, end: int | None, passing: Prune
    ) -> Iterator[Looked]:
        self._check_schema(snapshot)
        schema, time = self.schema, self.schema.time
        columns = list(dict.fromkeys([time, *columns_of(passing)]))

        def look(part: tuple[int | None, int | None], check: Check) -> Done[Looked]:
            batches = snapshot.scan(*part, columns, dictionary=True, check=check)
            return Done(
                [(ticks_of(each, schema), row_truths(passing, each, schema)) for each in batches]
            )

        events = snapshot.events_between(start, end)
        parts = snapshot.ranges(1 + events // PART_EVENTS, start, end)
        threads = min(THREADS_MAX, processors())
        yield from in_order((partial(look, part) for part in parts), threads, self.control.check)

    def _chosen(self, snapshot: Snapshot, start: int | None, end: int | None) -> Iterator[Looked]:
        self._check_schema(snapshot)
        boolean = exp.DataType.build("boolean")
        truth = exp.Cast(this=exp.paren(self.condition.copy(), copy=False), to=boolean)
        query = self.from_stream(exp.alias_(truth, "passes", quoted=True))
        prepared = self.engine.prepared(query, self.text)
        region = Region({self.stream: snapshot}, {self.stream: (start, end)})
        result = self.engine.over(prepared, region, self.control, self.params)
        events = 0
        newest = INT64_MIN
        for batch in result.batches():
            if not batch.num_rows:
                continue
            ticks = ticks_of(batch.rename_columns([self.schema.time, "passes"]), self.schema)
            if ticks[0] < newest or np.any(ticks[1:] < ticks[:-1]):
                raise SqlError("the condition was not evaluated in order of time")
            newest = int(ticks[-1])
            events += ticks.size
            passes = pc.fill_null(batch.column(1), False)
            yield ticks, passes.to_numpy(zero_copy_only=False)
        if events != snapshot.events_between(start, end):
            raise error_on(self.text, self.condition, NO_CONDITION)


NO_VALUE = "a new value is an expression over one event: no subquery, aggregate or window function"


@dataclass
class Update(Modification):
    """One UPDATE; ``assignments``: columns and expressions; ``condition`` None: every event."""

    assignments: list[tuple[Any, Any]]
    condition: Any

    def run(self, start: int | None = None, end: int | None = None) -> int:
        """Update between two ticks (half-open), or raise; returns the number of events."""
        names = self._targets()
        trees = [value for _, value in self.assignments]
        whole = exp.Tuple(expressions=[tree for tree in (*trees, self.condition) if tree])
        values = bind_values(number_placeholders(whole, self.text), self.params, self.text)
        source = self.from_stream(*(tree.copy() for tree in trees))
        placeholders = {p.name for p in source.find_all(exp.Placeholder)}
        of_values = {name: value for name, value in values.items() if name in placeholders}
        made = _Values(
            self.engine, self.stream, self.schema, self.text, of_values, self.control, source
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
            self.engine, self.stream, self.schema, self.text, of_condition, self.control,
            self.condition, change,
        )  # fmt: skip
        return deletion.run(start, end)

    def _json_read(self, batch: pa.RecordBatch, events: pa.RecordBatch) -> pa.RecordBatch:
        """JSON values as stored; the executor returns them as written."""
        for place, field_ in enumerate(batch.schema):
            if is_json(field_.type):
                cells = read_json(batch.column(place))
                if cells.faults is not None:
                    row = int(cells.faults.argmax())
                    value = repr(batch.column(place)[row].as_py()[:SHOWN_CHARACTERS])
                    reason = REASONS[cells.faults[row] - 1].format(value=value)
                    event = _event(self.schema, events, row)
                    raise InvalidData(f"column {field_.name!r}: {reason} for the {event}", row)
                batch = batch.set_column(place, field_, cells.values)
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
            more = several(value)
            if more is not None:
                raise error_at(self.text, position_of(more) or at, MANY_VALUES)
            names.append(name)
        return names


@dataclass
class _Values(Insertion):
    events: pa.RecordBatch | None = field(default=None)

    def _columns(self, names: Sequence[str], types: Sequence[pa.DataType]) -> Iterator[_Column]:
        time, *others = super()._columns(names, types)
        yield replace(time, loss=None)  # it stays, also where SQL takes its tick for infinity
        yield from others

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
