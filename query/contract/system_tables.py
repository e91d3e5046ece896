"""Columns of the system tables; rows are as of planning, limited to what the caller may see."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

__all__ = ["LIVE_QUERIES", "SYSTEM_TABLES", "TOLD"]

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()
MOMENT = pa.timestamp("us", "UTC")


def _columns(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


LIVE_QUERIES = _columns(
    name=TEXT, sink=TEXT, state=TEXT, sources=TEXT, watermark=TEXT, lag_events=WHOLE, lag_ms=REAL,
    rows=WHOLE, retractions=WHOLE, late=WHOLE, ignored=WHOLE, state_bytes=WHOLE, error=TEXT,
)  # fmt: skip

SYSTEM_TABLES: Mapping[str, Mapping[str, pa.Schema]] = {
    "chronicle": {
        "streams": _columns(
            stream=TEXT, time=TEXT, events=WHOLE, first=TEXT, last=TEXT, bytes=WHOLE,
            segments=WHOLE, version=WHOLE, codec=TEXT, retention=TEXT, unique_key=TEXT, within=TEXT,
            move_after=TEXT, keep_local_bytes=TEXT, damage=TEXT,
        ),
        "indexes": _columns(
            stream=TEXT, attribute=TEXT, state=TEXT, covered=REAL, runs=WHOLE, bytes=WHOLE,
            problem=TEXT,
        ),
        "segments": _columns(
            stream=TEXT, segment=WHOLE, kind=TEXT, events=WHOLE, first=TEXT, last=TEXT, bytes=WHOLE,
            place=TEXT,
        ),
        "live_queries": LIVE_QUERIES,
        "queries": _columns(
            id=TEXT, kind=TEXT, text=TEXT, token=TEXT, started=MOMENT, running_ms=REAL,
            events_read=WHOLE, events_expected=WHOLE,
        ),
        "query_log": _columns(
            id=TEXT, kind=TEXT, text=TEXT, token=TEXT, started=MOMENT, duration_ms=REAL,
            rows=WHOLE, outcome=TEXT, error=TEXT,
        ),
        "settings": _columns(name=TEXT, value=TEXT, description=TEXT),
    },
    "information_schema": {
        "schemata": _columns(catalog_name=TEXT, schema_name=TEXT),
        "tables": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, table_type=TEXT,
        ),
        "columns": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, column_name=TEXT,
            ordinal_position=WHOLE, column_default=TEXT, is_nullable=TEXT, data_type=TEXT,
        ),
        "views": _columns(
            table_catalog=TEXT, table_schema=TEXT, table_name=TEXT, view_definition=TEXT,
        ),
    },
}  # fmt: skip

TOLD = frozenset(("queries", "query_log", "settings"))
"""Tables of ``chronicle`` whose rows come from the owner of the database (``Catalog.told``)."""
