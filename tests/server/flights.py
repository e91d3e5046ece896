"""Events of flights in every format, and how they are sent to a server and read from it."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ARROW = "application/vnd.apache.arrow.stream"

SPEC = {
    "name": "flights",
    "time": "timestamp",
    "schema": {
        "timestamp": "timestamp",
        "icao24": "varchar",
        "altitude": "double",
        "squawk": "bigint",
    },
}

TABLE_SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us"), False),
        ("icao24", pa.string()),
        ("altitude", pa.float64()),
        ("squawk", pa.int64()),
    ]
)

START = dt.datetime(2018, 8, 1, 5, 0)


def rows_of(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "timestamp": (START + dt.timedelta(seconds=n)).isoformat(),
            "icao24": f"4b{n % 7:04x}" if n % 5 else None,
            "altitude": n * 1.5,
            "squawk": 9_007_199_254_740_993 + n,
        }
        for n in range(first, first + count)
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in TABLE_SCHEMA.names}
    columns["timestamp"] = [dt.datetime.fromisoformat(text) for text in columns["timestamp"]]
    return pa.table(columns, schema=TABLE_SCHEMA)


def as_ndjson(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, TABLE_SCHEMA.names)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_arrow(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, TABLE_SCHEMA) as writer:
        writer.write_table(table_of(rows))
    return out.getvalue()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(table_of(rows), out)
    return out.getvalue()


BODIES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "json": ("application/json", lambda rows: json.dumps(rows).encode()),
    "ndjson": ("application/x-ndjson", as_ndjson),
    "csv": ("text/csv", as_csv),
    "arrow": (ARROW, as_arrow),
    "parquet": ("application/vnd.apache.parquet", as_parquet),
}


def append(api: Any, rows: list[dict[str, Any]], name: str = "ndjson", **headers: str) -> Any:
    media_type, encode = BODIES[name]
    return api.post(
        "/v1/streams/flights/events",
        content=encode(rows),
        headers={"content-type": media_type, **headers},
    )


def events(api: Any, **params: Any) -> Any:
    return api.get("/v1/streams/flights/events", params=params).json()
