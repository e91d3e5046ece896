"""Cost of worker processes for queries and bodies.

Two servers over copies of one store, with and without ``CHRONICLE_ISOLATION``, asked alternately.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import chronicle

from .harness import Row, Section
from .served import wait_until_ready

SERVER = (
    "import sys; from chronicle.server import load_settings, serve; "
    "serve(load_settings(store=sys.argv[1], port=0), announce=lambda url: print(url, flush=True))"
)
SMALL = {
    "tree aggregate (no executor)": "SELECT count(*), sum(x) FROM s WHERE t > 1000",
    "SELECT of a constant": "SELECT 1 AS a",
    "one event by its time": "SELECT * FROM s WHERE t = 1234",
    "join of 50 with 50 events": "SELECT count(*) FROM small a JOIN small b ON a.n = b.n",
}
LARGE = {
    "GROUP BY over all events": "SELECT k, count(*), avg(x) FROM s GROUP BY k",
    "filter on text": "SELECT count(*) FROM s WHERE k LIKE '%7'",
    "sort, first 1000": "SELECT * FROM s ORDER BY x LIMIT 1000",
    "200,000 rows out": "SELECT t, k, x FROM s WHERE t < 200000 AND x >= 0",
    "self-join": "SELECT count(*) FROM s a JOIN s b ON a.t = b.t + 1",
}


def run(short: bool = False) -> Section:
    events = 200_000 if short else 2_000_000
    section = Section(
        "Isolation: queries and bodies in worker processes",
        f"{events:,} events. Without isolation (the peer), with it, and the difference or the "
        "ratio, medians of pairs. Aims: small queries at most 0.3 ms more, others at most 1.2 "
        "times as long.",
    )
    bodies = _bodies(20_000 if short else 200_000)
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        stores = [Path(scratch) / name for name in ("none", "process")]
        _fill(stores[0], events)
        shutil.copytree(stores[0], stores[1])
        with _served(stores[0], "none") as here, _served(stores[1], "process") as apart:
            for name, sql in SMALL.items():
                pairs = _compare(here, apart, _query(sql), 40 if short else 300)
                before, after = map(statistics.median, zip(*pairs, strict=True))
                more = statistics.median(b - a for a, b in pairs) * 1000
                section.rows.append(
                    Row(name, _ms(after), _ms(before), f"{more:+.2f} ms", "0.3 ms", more <= 0.3)
                )
            for name, sql in LARGE.items():
                _ratio(section, name, _compare(here, apart, _query(sql), 3 if short else 15))
            for name, (media, body) in bodies.items():
                sent = _append(media, body)
                runs = (40 if short else 300) if len(body) < 1000 else (3 if short else 15)
                _ratio(section, name, _compare(here, apart, sent, runs))
    return section


def _ratio(section: Section, name: str, pairs: list[tuple[float, float]]) -> None:
    before, after = map(statistics.median, zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    section.rows.append(Row(name, _ms(after), _ms(before), f"{ratio:.2f}x", "1.2x", ratio <= 1.2))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _fill(path: Path, events: int) -> None:
    chance = np.random.default_rng(1)
    with chronicle.open(path) as db:
        table = pa.table(
            {
                "t": np.arange(events),
                "k": pa.array([f"k{n}" for n in range(100)]).take(
                    pa.array(chance.integers(0, 100, events))
                ),
                "x": chance.normal(10, 3, events),
            }
        )
        db.create_stream("s", table.schema, time="t").append(table)
        few = pa.table({"n": np.arange(50)})
        db.create_stream("small", few.schema, time="n").append(few)
        for name in ("json", "csv", "arrow", "parquet"):
            db.create_stream(f"in_{name}", table.schema, time="t")


def _bodies(events: int) -> dict[str, tuple[str, bytes]]:
    ticks = list(range(events))
    table = pa.table(
        {"t": ticks, "k": [f"k{n % 100}" for n in ticks], "x": [n * 0.5 for n in ticks]}
    )
    sink, file = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, file)
    lines = "".join(f'{{"t":{n},"k":"k{n % 100}","x":{n * 0.5}}}\n' for n in ticks)
    text = "t,k,x\n" + "".join(f"{n},k{n % 100},{n * 0.5}\n" for n in ticks)
    one = b'{"t":1,"k":"a","x":1.5}\n'
    return {
        "append one event (NDJSON)": ("json application/x-ndjson", one),
        f"append {events:,} events, NDJSON": ("json application/x-ndjson", lines.encode()),
        f"append {events:,} events, CSV": ("csv text/csv", text.encode()),
        f"append {events:,} events, Arrow": (
            "arrow application/vnd.apache.arrow.stream",
            sink.getvalue(),
        ),
        f"append {events:,} events, Parquet": (
            "parquet application/vnd.apache.parquet",
            file.getvalue(),
        ),
    }


@contextlib.contextmanager
def _served(store: Path, isolation: str) -> Iterator[http.client.HTTPConnection]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CHRONICLE_ISOLATION": isolation},
        text=True,
    )
    try:
        assert process.stdout is not None
        place = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=300)
        wait_until_ready(connection)
        yield connection
        connection.close()
    finally:
        process.terminate()
        process.communicate()


def _query(sql: str) -> Callable[[http.client.HTTPConnection], None]:
    body = json.dumps({"sql": sql}).encode()
    return lambda server: _ask(
        server, "/v1/query?format=arrow", body, {"Content-Type": "application/json"}
    )


def _append(media: str, body: bytes) -> Callable[[http.client.HTTPConnection], None]:
    stream, _, kind = media.partition(" ")
    path = f"/v1/streams/in_{stream}/events"
    return lambda server: _ask(server, path, body, {"Content-Type": kind})


def _ask(
    server: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]
) -> None:
    server.request("POST", path, body, headers)
    answer = server.getresponse()
    data = answer.read()
    if answer.status >= 300:
        raise RuntimeError(data.decode()[:500])


def _compare(
    here: http.client.HTTPConnection,
    apart: http.client.HTTPConnection,
    ask: Callable[[http.client.HTTPConnection], None],
    runs: int,
) -> list[tuple[float, float]]:
    pairs: list[tuple[float, float]] = []
    for run in range(-2, runs):
        taken = [0.0, 0.0]
        for which in (0, 1) if run % 2 else (1, 0):
            begun = time.perf_counter()
            ask((here, apart)[which])
            taken[which] = time.perf_counter() - begun
        if run >= 0:
            pairs.append((taken[0], taken[1]))
    return pairs
