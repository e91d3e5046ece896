"""Plans of relations without operators: frames (all rows), NET (a range of time), system tables.

Rows of system tables are computed while planning, from a snapshot per stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...core.times import time_text
from ...schema import StreamSchema, key_text
from ..binding.relation_binding import DIFFERENCE, BoundFrame, BoundNet, BoundSystemTable
from ..conditions.predicates import PredicateCompiler, all_of
from ..conditions.ranges import time_bounds
from ..contract.catalog import SYSTEM_TABLES, TOLD, Catalog
from ..sql.sql_types import literal_text, sql_type
from .nodes import FrameRows, NetRows, Scan, SystemRows
from .planner import Planning, bounded

CATALOG, SCHEMA = "chronicle", "main"
"""Names of the database and of the streams' schema in information_schema."""

Rows = Iterator[Mapping[str, Any]]


def plan_system_table(bound: BoundSystemTable, planning: Planning) -> SystemRows:
    catalog = planning.catalog
    if bound.space == "chronicle" and bound.name in TOLD:
        rows = catalog.told(bound.name)
    else:
        rows = list(_ROWS[bound.space, bound.name](catalog))
    table = pa.Table.from_pylist(list(rows), schema=bound.schema)
    return SystemRows(f"{bound.space}.{bound.name}", table)


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
            yield {
                "stream": name,
                "attribute": str(entry.get("attribute")),
                "state": str(entry.get("state", "")),
                "covered": float(entry.get("covered", 0.0)),
                "runs": int(entry.get("runs", 0)),
                "bytes": int(entry.get("bytes", 0)),
                "problem": entry.get("problem"),
            }


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
            yield {
                "stream": name, "segment": view.file.segment_id, "kind": kind,
                "events": view.events, "bytes": view.length,
                "first": _shown(schema, view.first), "last": _shown(schema, view.last),
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
    names += [(space, name, "VIEW") for space, known in SYSTEM_TABLES.items() for name in known]
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
    for space, known in SYSTEM_TABLES.items():
        for name, schema in known.items():
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
    return FrameRows(bound.frame)


def plan_net(bound: BoundNet, planning: Planning) -> NetRows:
    schema = bound.changes
    compiler = PredicateCompiler(
        schema, planning.folder, lambda column: column.name.lower() if column.name else None
    )
    prune = all_of([compiler.compile(part) for part in bound.conditions]).prune
    low, high = time_bounds(prune if bound.conditions else None, schema.time)
    scan = bounded(Scan(bound.stream, schema, low, high), planning)
    return NetRows(scan, bound.schema, DIFFERENCE in schema)
