"""Bodies made to end the server or to read its memory: each costs its own answer, a 4xx."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
LINES = "application/x-ndjson"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def database(place: Path) -> Iterator[Any]:
    with chronicle.open(place) as opened:
        yield opened


@pytest.fixture
def api(database: Any, serve_app: Callable[..., Any]) -> Any:
    client = serve_app(database, max_decoded_bytes=64 << 20, max_columns=500)
    spec = {"name": "s", "time": "t", "schema": {"t": "bigint", "x": "double", "b": "blob"}}
    assert client.post("/v1/streams", json=spec).status_code == 201
    return client


def send(api: Any, body: bytes, media_type: str) -> Any:
    return api.post("/v1/streams/s/events", content=body, headers={"content-type": media_type})


def blob(offsets: list[int], valid: int) -> bytes:
    column = pa.Array.from_buffers(
        pa.binary(),
        3,
        [pa.py_buffer(bytes([valid])), pa.py_buffer(np.array(offsets, np.int32)),
         pa.py_buffer(b"abc")],
    )  # fmt: skip
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), column], ["t", "b"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def zstd_batch(size: int) -> bytes:
    table = pa.table({"t": np.zeros(size, np.int64)})
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as out:
        out.write_table(table)
    return sink.getvalue()


ATTACKS: dict[str, tuple[str, int, Callable[[], bytes]]] = {
    "a null": (LINES, 400, lambda: b"null"),
    "a null between": (LINES, 400, lambda: b'{"t": 1}\nnull\n{"t": 2}\n'),
    "brackets": (LINES, 400, lambda: b"[" * 10_000),
    "nested objects": (LINES, 400, lambda: b'{"t": 1, "x": ' + b'{"a":' * 500 + b"1" + b"}" * 501),
    "brackets in an array": ("application/json", 400, lambda: b'[{"t":' + b"[" * 10_000),
    "offsets beyond": (ARROW, 400, lambda: blob([0, 1 << 30, 2, 3], 7)),
    "offsets negative": (ARROW, 400, lambda: blob([0, -9, 2, 3], 7)),
    "20 MB behind a null": (ARROW, 400, lambda: blob([0, 1, 20 << 20, 3], 3)),
    "compressed zeros": (ARROW, 413, lambda: zstd_batch(32 << 20)),
    "Parquet zeros": (PARQUET, 413, lambda: parquet(pa.table({"t": np.zeros(32 << 20, np.int64)}))),
    "a Parquet dictionary": (
        PARQUET,
        413,
        lambda: parquet(
            pa.table(
                {
                    "t": range(8192),
                    "b": pa.DictionaryArray.from_arrays(
                        pa.array(np.zeros(8192, np.int32)), pa.array([b"x" * (1 << 20)])
                    ),
                }
            ),
            compression="zstd",
        ),
    ),
    "new keys": (
        LINES,
        413,
        lambda: b"".join(b'{"t": 1, "k%d": 1}\n' % i for i in range(2000)),
    ),
    "a million keys": (
        "application/json",
        413,
        lambda: json.dumps([{"t": 1, **{f"k{i}": 1 for i in range(1_000_000)}}]).encode(),
    ),
    "100,000 columns": ("text/csv", 413, lambda: b"t," + b"c," * 100_000 + b"d\n1"),
    "1e400": (LINES, 400, lambda: b'{"t": 1, "x": 1e400}\n'),
    "half a pair": (LINES, 400, lambda: b'{"t": 1, "b": "\\ud800"}\n'),
}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_attack_costs_its_own_answer(api: Any, database: Any, place: Path, name: str) -> None:
    media_type, status, make = ATTACKS[name]
    body = make()
    assert len(body) < 20 << 20
    for _ in range(2):
        answer = send(api, body, media_type)
        assert answer.status_code == status, answer.text
        assert len(answer.content) < 10_000
    assert send(api, b'{"t": 7, "x": 0.5}\n', LINES).json()["count"] == 1
    assert [row["t"] for row in api.get("/v1/streams/s/events").json()] == [7]
    database.close()
    with chronicle.open(place) as again:
        assert again.check().ok
        assert again.stream("s").count == 1
