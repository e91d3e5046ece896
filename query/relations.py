"""Relations in FROM that are not streams: ``NET(stream)``, frames and system tables.

NET has the results of a live query that hold, additions minus retractions.  Conditions on ``_time``
are pushed down, as a result and its retraction have the same time.  Frames are tables that the
program registered.  Only system tables, such as ``chronicle.streams``, have names of two parts.

A result of NET holds if it was inserted once more than retracted, by identity and revision.  Rows
of system tables are computed while planning, from a snapshot per stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ..core.suggestion import did_you_mean
from ..core.times import half_open, time_text
from ..errors import SqlError
from ..schema import StreamSchema, key_text
from ..store.floor import events_shown
from ..store.tail import ticks_of_column
from .binding.binder import conjuncts
from .binding.scope import OperatorSite
from .conditions.predicates import PredicateCompiler, all_of, range_text, time_bounds
from .contract.catalog import OWNER_TABLES, SYSTEM_TABLES, Catalog
from .contract.explanation import Operator
from .contract.frames import Frame
from .plan.nodes import FrameRows, NetRows, Scan
from .plan.planner import Planning, bounded
from .run.context import LeafOperator
from .sql.dialect import error_on
from .sql.sql_types import literal_text, sql_type

CHANGELOG = ("_time", "_seq", "_id", "_rev")
"""First columns of a result stream."""

DIFFERENCE = "_diff"
"""The next one, if results may be retracted."""


@dataclass(frozen=True)
class BoundNet:
    stream: str
    changes: StreamSchema
    schema: pa.Schema
    conditions: tuple[Any, ...]

    @property
    def streams(self) -> Sequence[str]:
        return (self.stream,)

    @property
    def ordered_by(self) -> Sequence[str]:
        return ("_time",)


def bind_net(site: OperatorSite) -> BoundNet:
    arguments = site.item.this.expressions

    def wrong(what: str, node: Any = None) -> SqlError:
        return error_on(site.text, node or site.item, what)

    if len(arguments) != 1 or not isinstance(arguments[0], exp.Column) or arguments[0].table:
        raise wrong("NET takes the name of a live query's stream: NET(name)")
    name, schema = site.stream(arguments[0])
    if tuple(schema.names[: len(CHANGELOG)]) != CHANGELOG:
        raise wrong(
            f"{name} holds no results of a live query, so there is nothing to net", site.item
        )
    hidden = ("_seq", DIFFERENCE)
    fields = [field for field in schema.arrow if field.name not in hidden]
    return BoundNet(name, schema, pa.schema(fields), _on_time(site))


def _on_time(site: OperatorSite) -> tuple[Any, ...]:
    select = site.select
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or any(select.args.get(key) for key in ("joins", "laterals")):
        return ()
    alias = (site.item.alias or "net").lower()
    conditions = []
    for part in conjuncts(where.this):
        columns = list(part.find_all(exp.Column))
        mine = all(
            column.name.lower() == "_time" and column.table.lower() in ("", alias)
            for column in columns
        )
        if columns and mine and part.find(exp.Query) is None:
            conditions.append(part.copy())
    return tuple(conditions)


@dataclass(frozen=True)
class BoundFrame:
    """A frame, or a system table, which is ``made`` as of planning."""

    schema: pa.Schema
    made: Callable[[Planning], Frame]
    streams: Sequence[str] = ()
    ordered_by: Sequence[str] = ()


def bind_frame(site: OperatorSite) -> BoundFrame:
    """Bind a frame or, by a name with two parts, a system table."""
    if site.item.args.get("db") is not None:
        return _bind_system_table(site)
    frame = site.frames[site.item.name.lower()]
    return BoundFrame(frame.schema, lambda _: frame)


def _bind_system_table(site: OperatorSite) -> BoundFrame:
    item = site.item
    space, name = str(item.args["db"].name).lower(), str(item.name).lower()
    tables = SYSTEM_TABLES.get(space)
    if tables is None:
        hint = did_you_mean(space, sorted(SYSTEM_TABLES), quoted=False)
        message = f"names of streams have one part, found {space}.{item.name}{hint}"
        raise error_on(site.text, item, message)
    if name not in tables:
        hint = did_you_mean(name, sorted(tables), quoted=False, prefix=f"{space}.")
        listed = "" if hint else f" (there are {', '.join(sorted(tables))})"
        message = f"no system table {space}.{item.name}{hint}{listed}"
        raise error_on(site.text, item, message)
    item.set("db", None)
    return BoundFrame(tables[name], lambda planning: _system_table(space, name, planning.catalog))


CATALOG, SCHEMA = "chronicle", "main"
"""Names of the database and of the streams' schema in information_schema."""

Rows = Iterator[Mapping[str, Any]]


def _system_table(space: str, name: str, catalog: Catalog) -> Frame:
    of_owner = space == "chronicle" and name in OWNER_TABLES
    rows = catalog.owner_rows(name) if of_owner else _ROWS[space, name](catalog)
    return Frame(f"{space}.{name}", pa.Table.from_pylist(list(rows), SYSTEM_TABLES[space][name]))


def stream_rows(catalog: Catalog) -> Rows:
    damaged = catalog.damaged()
    for name in catalog.streams():
        if name in damaged:
            yield {"stream": name, "damage": damaged[name]}
            continue
        schema, snapshot = catalog.stream_schema(name), catalog.snapshot(name)
        first, last = snapshot.time_range or (None, None)
        trees = (*snapshot.state.segments, *snapshot.state.runs)
        options = catalog.stream_options(name)
        local = options["keep_local_bytes"]
        yield {
            "stream": name,
            "time": schema.time,
            "events": snapshot.count,
            "first": _shown(schema, first),
            "last": _shown(schema, last),
            "bytes": sum(view.length for view in trees),
            "segments": len(trees),
            "version": snapshot.version,
            "codec": options.get("codec"),
            "retention": options.get("retention"),
            "unique_key": None if options["unique"] is None else key_text(options["unique"]),
            "within": options["within"],
            "move_after": options["move_after"],
            "keep_local_bytes": None if local is None else str(local),
        }


def index_rows(catalog: Catalog, streams: list[str] | None = None) -> Rows:
    for name in _sound(catalog) if streams is None else streams:
        for entry in catalog.list_indexes(name):
            yield {"stream": name, **entry}


def live_rows(catalog: Catalog) -> Rows:
    """Live queries whose results can be read, with their status."""
    live, seen = catalog.live_statements, set(catalog.streams())
    for name in live.names():
        if live.sink_of(name) not in seen:
            continue
        row = dict(live.status(name))
        row["sources"] = ", ".join(row["sources"])
        row["watermark"] = None if row["watermark"] is None else str(row["watermark"])
        yield row


def _segment_rows(catalog: Catalog) -> Rows:
    for name in _sound(catalog):
        snapshot = catalog.snapshot(name)
        state, schema = snapshot.state, snapshot.schema
        kinds = [("sealed" if view.sealed else "active", view) for view in state.segments]
        for kind, view in [*kinds, *(("late run", view) for view in state.runs)]:
            events, first = events_shown(view, state.floor)
            yield {
                "stream": name, "segment": view.file.segment_id, "kind": kind,
                "events": events, "bytes": view.length,
                "first": _shown(schema, first), "last": _shown(schema, view.last),
                "place": "objects" if view.file.in_objects else "disk",
            }  # fmt: skip
        tail = () if state.tail is None else (state.tail(),)
        for kind, leaves in (("late buffer", state.late), ("tail", tail)):
            if leaves:
                yield {
                    "stream": name, "kind": kind, "events": sum(leaf.events for leaf in leaves),
                    "first": _shown(schema, min(leaf.first for leaf in leaves)),
                    "last": _shown(schema, max(leaf.last for leaf in leaves)),
                }  # fmt: skip


def _table_rows(catalog: Catalog) -> Rows:
    names = [(SCHEMA, name, "BASE TABLE") for name in _sound(catalog)]
    names += [(SCHEMA, name, "VIEW") for name in catalog.views()]
    names += [(space, name, "VIEW") for space, views in SYSTEM_TABLES.items() for name in views]
    for space, name, kind in names:
        yield {
            "table_catalog": CATALOG, "table_schema": space, "table_name": name,
            "table_type": kind,
        }  # fmt: skip


def _column_rows(catalog: Catalog) -> Rows:
    for name in _sound(catalog):
        stream = catalog.stream_schema(name)
        yield from _columns(SCHEMA, name, stream.arrow, stream.defaults)
    for view in catalog.views().values():
        yield from _columns(SCHEMA, view.name, view.columns)
    for space, views in SYSTEM_TABLES.items():
        for name, schema in views.items():
            yield from _columns(space, name, schema)


def _view_rows(catalog: Catalog) -> Rows:
    for view in catalog.views().values():
        yield {
            "table_catalog": CATALOG, "table_schema": SCHEMA, "table_name": view.name,
            "view_definition": view.sql,
        }  # fmt: skip


def _columns(
    space: str, table: str, schema: pa.Schema, defaults: Mapping[str, pa.Scalar] | None = None
) -> Rows:
    for place, field in enumerate(schema, 1):
        default = (defaults or {}).get(field.name)
        yield {
            "table_catalog": CATALOG, "table_schema": space, "table_name": table,
            "column_name": field.name, "ordinal_position": place,
            "is_nullable": "YES" if field.nullable else "NO", "data_type": sql_type(field.type),
            "column_default": None if default is None else literal_text(default),
        }  # fmt: skip


def _schema_rows(catalog: Catalog) -> Rows:
    for space in (SCHEMA, *SYSTEM_TABLES):
        yield {"catalog_name": CATALOG, "schema_name": space}


def _sound(catalog: Catalog) -> list[str]:
    damaged = catalog.damaged()
    return [name for name in catalog.streams() if name not in damaged]


def _shown(schema: StreamSchema, ticks: int | None) -> str | None:
    if ticks is None:
        return None
    value = schema.from_ticks(ticks)
    return time_text(ticks, schema.time_type) if isinstance(value, pa.Scalar) else str(value)


_ROWS: Mapping[tuple[str, str], Callable[[Catalog], Rows]] = {
    ("chronicle", "streams"): stream_rows,
    ("chronicle", "indexes"): index_rows,
    ("chronicle", "segments"): _segment_rows,
    ("chronicle", "live_queries"): live_rows,
    ("information_schema", "schemata"): _schema_rows,
    ("information_schema", "tables"): _table_rows,
    ("information_schema", "columns"): _column_rows,
    ("information_schema", "views"): _view_rows,
}


def plan_frame(bound: BoundFrame, planning: Planning) -> FrameRows:
    return FrameRows(bound.made(planning))


def plan_net(bound: BoundNet, planning: Planning) -> NetRows:
    schema = bound.changes
    compiler = PredicateCompiler(
        schema, planning.folder, lambda column: column.name.lower() if column.name else None
    )
    prune = all_of([compiler.compile(part) for part in bound.conditions]).prune
    low, high = time_bounds(prune if bound.conditions else None, schema.time)
    scan = bounded(Scan(bound.stream, schema, low, high), planning)
    return NetRows(scan, bound.schema, DIFFERENCE in schema)


class NetOperator(LeafOperator[NetRows]):
    _changes = 0

    def _results(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        node = self._node
        if node.scan.low > node.scan.high:
            return
        needed = wanted
        if node.revoked:
            needed = list(dict.fromkeys([*wanted, "_time", "_id", "_rev", DIFFERENCE]))
        scan = self._run.snapshot(node.scan.stream).scan(
            *half_open(node.scan.low, node.scan.high), needed, check=self._run.control.check
        )
        for batch in _whole_ticks(scan) if node.revoked else scan:
            self._changes += batch.num_rows
            rows = settled(batch) if node.revoked else batch
            if rows.num_rows:
                yield rows

    def explain(self) -> Operator:
        scan = self._node.scan
        shown = range_text(scan.low, scan.high, scan.schema)
        details = (("stream", scan.stream), *([("time", shown)] if shown else []))
        figures = (("changes", self._changes), ("rows", self._rows)) if self._changes else ()
        return Operator("Net", details, figures)


def _whole_ticks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        ticks = ticks_of_column(batch.column("_time"))
        cut = int(np.searchsorted(ticks, ticks[-1]))
        if cut:
            yield _joined([*held, batch.slice(0, cut)])
            held = []
        elif held and ticks_of_column(held[-1].column("_time"))[-1] != ticks[-1]:
            yield _joined(held)
            held = []
        held.append(batch.slice(cut))
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def settled(changes: pa.RecordBatch) -> pa.RecordBatch:
    """The changes that still hold, of a time-ordered batch with all changes of each tick."""
    difference = changes.column(DIFFERENCE).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (difference < 0).any():
        return changes
    words = np.stack(
        [
            ticks_of_column(changes.column("_time")),
            changes.column("_rev").to_numpy(zero_copy_only=False).astype(np.int64),
        ],
        axis=1,
    )
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(words), [None, pa.py_buffer(np.ascontiguousarray(words))]
    )
    key = pc.binary_join_element_wise(changes.column("_id"), fixed.cast(pa.binary()), b"")
    codes = pc.dictionary_encode(key).indices.to_numpy(zero_copy_only=False)
    count = int(codes.max()) + 1
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, difference)
    inserted = np.flatnonzero(difference > 0)
    last = np.full(count, -1, np.int64)
    last[codes[inserted]] = inserted  # of repeated insertions the last one wins
    return changes.take(pa.array(np.sort(last[(sums > 0) & (last >= 0)])))


class FrameOperator(LeafOperator[FrameRows]):
    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return self._node.frame.batches(columns)

    def explain(self) -> Operator:
        details = (("name", self._node.frame.name), ("columns", tuple(self.schema.names)))
        return Operator("Frame", details, (("rows", self._rows),) if self._rows else ())
