"""Two clients with large requests at once, against one: use of two processors (bar: 1.7 times).

Decoders and the relational executor are worker processes.  Each client appends to its own stream.
Wall time shows the gain; CPU time shows the upper bound: total over the server process's own, as if
its threads never overlapped.  Clients are threads of this process and take their share.
"""

from __future__ import annotations

import http.client
import io
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv

import chronicle

from ..formats.writers import encode
from .harness import Row, Section
from .served import Served

BAR = 1.7
SCHEMA = pa.schema(
    [
        pa.field("t", pa.timestamp("us"), False),
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
    ]
)
QUERIES = {
    "GROUP BY": "SELECT k, n % 10 AS d, count(*), avg(x), max(x) FROM s GROUP BY k, d",
    "join": "SELECT a.k, count(*) FROM s a JOIN (SELECT n, max(x) AS m FROM s GROUP BY n) b "
    "ON a.n = b.n AND a.x > b.m - 0.1 GROUP BY a.k",
    "sort": "SELECT t, x FROM s ORDER BY x LIMIT 100000",
}
MEDIA = {
    "NDJSON": "application/x-ndjson",
    "CSV": "text/csv",
    "Arrow": "application/vnd.apache.arrow.stream",
}


class _Cost(NamedTuple):
    clock: float
    server: float
    workers: float

    @property
    def processors(self) -> float:
        return (self.server + self.workers) / self.clock


def run(short: bool = False) -> Section:
    events, part, requests, rounds = (50_000, 5_000, 1, 1) if short else (2_000_000, 200_000, 3, 5)
    rows = []
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as directory:
        store = Path(directory) / "store"
        with chronicle.open(store) as database:
            database.create_stream("s", SCHEMA, time="t").append(_events(events, 0))
            for media in MEDIA:
                for number in range(2):
                    database.create_stream(f"{media}{number}", SCHEMA, time="t")
        with Served(store) as served:
            for name, sql in QUERIES.items():
                body = json.dumps({"sql": sql}).encode()
                asked = [_repeated("/v1/query?format=arrow", body) for _ in range(2)]
                rows.append(_row(name, served, "application/json", asked, requests, rounds))
            for name, media in MEDIA.items():
                sent = [_appends(f"{name}{number}", name, part) for number in range(2)]
                what = f"appends of {part:,} events, {name}"
                rows.append(_row(what, served, media, sent, requests, rounds))
    return Section(
        "Two clients at once",
        f"`chronicle serve` with its defaults; {events:,} events. Requests of two clients at once, "
        f"against those of one: medians of {rounds} pairs of {requests} requests each.",
        rows,
        [
            "In brackets: what the processor time would allow if the server's own process never "
            "ran on two processors; and beside the time of one client, how many processors the "
            "server and its workers kept busy with it: where one client keeps two busy, a second "
            "one has nothing to gain on two.",
        ],
    )


def _events(count: int, first: int) -> pa.Table:
    chance = np.random.default_rng(first)
    keys = pa.array([f"k{n}" for n in range(100)]).take(pa.array(chance.integers(0, 100, count)))
    times = pa.array(10**15 + first + np.arange(count), pa.timestamp("us"))
    return pa.table([times, keys, chance.random(count), chance.integers(0, 1000, count)], SCHEMA)


def _repeated(path: str, body: bytes) -> Iterator[tuple[str, bytes]]:
    while True:
        yield path, body


def _appends(stream: str, media: str, events: int) -> Iterator[tuple[str, bytes]]:
    first = 0
    while True:
        table, sink = _events(events, first), io.BytesIO()
        first += events
        if media == "Arrow":
            with pa.ipc.new_stream(sink, SCHEMA) as writer:
                writer.write_table(table)
        elif media == "CSV":
            pyarrow.csv.write_csv(table, sink)
        else:
            for chunk in encode(iter(table.to_batches()), SCHEMA, "ndjson"):
                sink.write(chunk)
        yield f"/v1/streams/{stream}/events", sink.getvalue()


def _row(
    what: str,
    served: Served,
    media: str,
    sources: list[Iterator[tuple[str, bytes]]],
    requests: int,
    rounds: int,
) -> Row:
    def measured(clients: int) -> _Cost:
        made = [[next(source) for _ in range(requests)] for source in sources[:clients]]
        return _cost(served, media, made)

    measured(2)  # start the workers
    pairs = [(measured(1), measured(2)) for _ in range(rounds)]
    one, two = (statistics.median(pair[side].clock for pair in pairs) for side in (0, 1))
    gain = statistics.median(alone.clock / both.clock for alone, both in pairs)
    could = statistics.median(
        (both.server + both.workers) / max(both.server, 1e-9) for _, both in pairs
    )
    busy = statistics.median(alone.processors for alone, _ in pairs)
    each = f"{two * 1000:.0f} ms a request", f"{one * 1000:.0f} ms ({busy:.1f} processors)"
    return Row(what, *each, f"{gain:.2f} ({could:.1f})", f"{BAR}", gain >= BAR)


def _cost(served: Served, media: str, made: list[list[tuple[str, bytes]]]) -> _Cost:
    process = psutil.Process(served.process.pid)

    def spent() -> tuple[float, float]:
        own = process.cpu_times()
        workers = (child.cpu_times() for child in process.children(recursive=True))
        return own.user + own.system, sum(each.user + each.system for each in workers)

    def ask(requests: list[tuple[str, bytes]]) -> None:
        line = http.client.HTTPConnection(served.host, served.port, timeout=600)
        for path, body in requests:
            line.request("POST", path, body, {"Content-Type": media})
            answer = line.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{path}: {answer.status} {text[:500].decode(errors='replace')}")
        line.close()

    before, begun = spent(), time.perf_counter()
    clients = [threading.Thread(target=ask, args=(requests,)) for requests in made]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    seconds, after = time.perf_counter() - begun, spent()
    count = sum(map(len, made))
    return _Cost(seconds / count, (after[0] - before[0]) / count, (after[1] - before[1]) / count)
