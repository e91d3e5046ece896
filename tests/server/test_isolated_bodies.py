"""Bodies meet decoders in workers only: what kills one costs its own request."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.errors import InvalidData, ResourceLimit, SchemaMismatch, WorkerLost
from chronicle.formats.chunks import BadRow
from chronicle.formats.isolated import IsolatedReader
from chronicle.formats.layout import Layout
from chronicle.schema import StreamSchema
from chronicle.tests.patience import PATIENCE_S, wait_until
from chronicle.tests.reading import read_batches

from .test_server_process import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
EVENTS = StreamSchema(SCHEMA, "t")
NDJSON = "application/x-ndjson"
ENDLESS = "SELECT sum(a.range + b.range) FROM range(1000000) a, range(1000000) b"


@pytest.fixture(scope="module")
def reader() -> Iterator[IsolatedReader]:
    reader = IsolatedReader(128 << 20, silence_s=PATIENCE_S, reading_s=3600.0)
    yield reader
    reader.close()


@contextlib.contextmanager
def file_of(data: bytes) -> Iterator[int]:
    file = os.memfd_create("test")
    try:
        os.write(file, data)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def in_worker(
    reader: IsolatedReader, file: int, format: str, **reading: Any
) -> Iterator[pa.RecordBatch]:
    layout = Layout(time_format="ticks", target=EVENTS)
    return reader.events(file, format, layout=layout, **reading)


GOOD = pa.table({"t": [1, 2, 3], "x": [1.5, None, 2.5], "s": ["a", "b", None]}, SCHEMA)
BODIES: dict[str, tuple[str, bytes]] = {
    "ndjson": ("ndjson", b'{"t": 1, "x": 2}\n{"t": "z"}\nnonsense\n{"t": 2, "s": "q"}\n'),
    "json": ("json", b'[{"t": 1, "x": 2}, {"x": 3}]'),
    "csv": ("csv", b"t,x,s\n1,2,a\n2,q,b\n3,,\n"),
    "arrow": ("arrow", arrow(GOOD)),
    "arrow zstd": ("arrow", arrow(GOOD, compression="zstd")),
    "parquet": ("parquet", parquet(GOOD)),
}


@pytest.mark.parametrize("name", BODIES)
def test_rows_and_bad_rows_are_those_of_reading_here(reader: IsolatedReader, name: str) -> None:
    format, data = BODIES[name]
    here: list[BadRow] = []
    there: list[BadRow] = []
    expected = list(
        read_batches(
            io.BytesIO(data),
            format,
            schema=EVENTS,
            time_format="ticks",
            on_bad=here.append,
            name="body",
            compression=None,
        )
    )
    with file_of(data) as file:
        found = list(in_worker(reader, file, format, on_bad=there.append))
    assert pa.Table.from_batches(found) == pa.Table.from_batches(expected)
    assert there == here


@pytest.mark.parametrize(
    ("format", "data", "error"),
    [
        ("ndjson", b'{"t": 1, "std::bad_alloc": 2}\n', SchemaMismatch),
        ("parquet", b"PAR1 and then nothing", InvalidData),
        ("arrow", arrow(GOOD)[:-20], InvalidData),
        ("csv", b"", InvalidData),
    ],
)
def test_errors_are_those_of_reading_here(
    reader: IsolatedReader, format: str, data: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error) as here:
        list(
            read_batches(
                io.BytesIO(data), format, schema=EVENTS, time_format="ticks", name="body",
                compression=None,
            )
        )  # fmt: skip
    with file_of(data) as file, pytest.raises(error) as there:
        list(in_worker(reader, file, format))
    assert str(there.value) == str(here.value)


def bombs() -> dict[str, tuple[str, bytes]]:
    """Small bodies that take much."""
    flat = pa.table({"t": np.zeros(8_000_000, np.int64), "x": pa.nulls(8_000_000, pa.float64())})
    text = pa.table({"t": [1], "s": ["y" * (400 << 20)]})
    index = pa.array(np.zeros(300_000, np.int32))
    wide = pa.DictionaryArray.from_arrays(index, pa.array(["z" * 1000]))
    keys = ", ".join(f'"k{n}": 1' for n in range(20_000))
    alike = pa.table({"t": range(1000), "s": ["x" * (1 << 20)] * 1000})
    differences = parquet(
        alike, use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY", "t": "PLAIN"},
        compression="none", data_page_size=1 << 30,
    )  # fmt: skip
    assert len(differences) < 4 << 20
    return {
        "parquet differences": ("parquet", differences),
        "parquet": ("parquet", parquet(flat, compression="zstd")),
        "parquet text": ("parquet", parquet(text, compression="zstd")),
        "arrow zstd": ("arrow", arrow(flat, compression="zstd")),
        "arrow text": ("arrow", arrow(text, compression="zstd")),
        "arrow length": (
            "arrow",
            arrow(GOOD, compression="zstd").replace(
                struct.pack("<q", 24), struct.pack("<q", 1 << 46)
            ),
        ),
        "arrow dictionary": (
            "arrow",
            arrow(pa.table({"t": np.arange(300_000), "s": wide}), compression="zstd"),
        ),
        "ndjson keys": ("ndjson", b"".join(b'{"t":%d,"k%d":1}\n' % (n, n) for n in range(400))),
        "json keys": ("json", f'[{{"t": 1, {keys}}}]'.encode()),
        "csv header": ("csv", ",".join(f"c{n}" for n in range(20_000)).encode() + b"\n1\n"),
        "nesting": ("json", b"[" * 10_000),
        "nested value": ("ndjson", b'{"t": 1, "x": ' + b"[" * 10_000 + b"\n"),
        "null": ("ndjson", b"null"),
        "one number": ("json", b"1" * 10_000_000),
    }


def test_a_bomb_costs_its_own_request(reader: IsolatedReader) -> None:
    process = psutil.Process()
    for name, (format, data) in bombs().items():
        before = process.memory_info().rss
        with file_of(data) as file:
            try:
                rows = 0
                for batch in in_worker(reader, file, format):
                    rows += batch.num_rows  # read bit by bit, a long body is no bomb
            except (ResourceLimit, InvalidData, SchemaMismatch, WorkerLost):
                pass
        assert process.memory_info().rss - before < 256 << 20, name
        with file_of(b'{"t": 1}\n') as file:
            (batch,) = in_worker(reader, file, "ndjson")
        assert batch.num_rows == 1, name


def long_body() -> bytes:
    return b"".join(b'{"t": %d, "x": 1.5, "s": "abc"}\n' % n for n in range(600_000))


@pytest.mark.parametrize(
    ("number", "why", "silence_s"),
    [(signal.SIGKILL, "crash", PATIENCE_S), (signal.SIGSTOP, "deadline", 0.3)],
)
def test_a_worker_that_dies_or_hangs_costs_one_body(
    reader: IsolatedReader,
    number: int,
    why: str,
    silence_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with file_of(long_body()) as file:
        batches = in_worker(reader, file, "ndjson")
        assert next(batches).num_rows
        (pid,) = list(reader.pool._leased)
        os.kill(pid, number)
        monkeypatch.setattr(reader, "_silence_s", silence_s)
        with pytest.raises(WorkerLost) as lost:
            list(batches)
        monkeypatch.undo()
    assert lost.value.why == why
    assert not reader.pool._leased
    with file_of(b'{"t": 1}\n') as file:
        assert list(in_worker(reader, file, "ndjson"))


def test_a_reader_that_stops_ends_its_worker(reader: IsolatedReader) -> None:
    with file_of(long_body()) as file:
        batches = in_worker(reader, file, "ndjson")
        assert next(batches).num_rows
        batches.close()  # type: ignore[attr-defined]
    assert not reader.pool._leased


# ------------------------------------------------------------------------- the whole server


@contextlib.contextmanager
def serving(store: Path) -> Iterator[Process]:
    """A server in a process of its own, whose workers wait."""
    with chronicle.open(store) as database:
        database.create_stream("s", SCHEMA, time="t").append(GOOD)
    server = Process(store, PYTHONWARNINGS="error", CHRONICLE_QUERY_MEMORY_BYTES=str(256 << 20))
    try:
        wait_until(lambda: server.http.get("/readyz").status_code == 200)
        yield server
    finally:
        if server.process.returncode is None:
            server.stop(signal.SIGKILL)


def query(server: Process, sql: str) -> httpx.Response:
    return server.http.post("/v1/query", json={"sql": sql})


def append(server: Process, data: bytes) -> httpx.Response:
    headers = {"Content-Type": NDJSON}
    return server.http.post("/v1/streams/s/events", content=data, headers=headers)


def family(server: Process) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def killing(server: Process, work: Callable[[], httpx.Response]) -> httpx.Response:
    """Kill a worker in the middle of work, again where it was done before; gives its answer."""
    with ThreadPoolExecutor() as pool:
        while True:
            before = {process.pid: process.cpu_times().user for process in family(server)}
            answer = pool.submit(work)
            while not answer.done():
                for process in family(server):
                    with contextlib.suppress(psutil.Error):
                        if process.cpu_times().user - before.get(process.pid, 0) > 0.15:
                            process.kill()
                time.sleep(0.01)
            if answer.result().status_code != 200:
                return answer.result()


def test_a_killed_worker_is_a_503_with_its_reason(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as server:
        for answer in (
            killing(server, lambda: append(server, long_body() * 3)),
            killing(server, lambda: query(server, ENDLESS)),
        ):
            assert answer.status_code == 503, answer.text
            assert answer.json()["code"] == "worker-lost"
            assert answer.json()["why"] == "crash"
            assert answer.headers["retry-after"]
        assert query(server, "SELECT count(*) AS c FROM s WHERE t < 4").json()["rows"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_server(tmp_path: Path, number: int) -> None:
    with serving(tmp_path / "store") as server:
        assert query(server, "SELECT s, count(*) FROM s GROUP BY s").status_code == 200
        assert append(server, b'{"t": 9}\n').status_code == 200
        wait_until(lambda: len(family(server)) >= 4, "two nurseries and their workers")
        workers = family(server)
        code = server.stop(number)
    assert code == (0 if number != signal.SIGKILL else -signal.SIGKILL), server.log
    assert "Traceback" not in "\n".join(server.log)
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE_S)
    assert not alive
