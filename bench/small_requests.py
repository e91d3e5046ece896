"""Small requests: durable appends and queries against ``/healthz`` on the same connections."""

from __future__ import annotations

import statistics
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from .harness import Row, Section
from .load import Load, acknowledged, drive
from .served import Served

STREAM = {
    "name": "flights",
    "time": "timestamp",
    "schema": {"timestamp": "timestamp", "icao24": "varchar", "altitude": "double"},
}
COMMIT = 100
COUNT = "SELECT count(*) AS n, max(altitude) AS top FROM flights"


def run(short: bool = False) -> Section:
    seconds, rounds = (0.5, 1) if short else (1.0, 5)
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as directory,
        Served(Path(directory) / "store") as served,
    ):
        served.ask("/v1/streams", STREAM)
        rows = [*_appends(served, seconds, rounds), *_queries(served, seconds, rounds)]
    return Section(
        "Small requests to a server",
        f"`chronicle serve` with its defaults, on a disk that syncs; clients on the same machine. "
        f"Medians of {rounds} runs of {seconds:g} s of each side in turn.",
        rows,
        [
            "An append is one event of 80 bytes in a request of its own, answered when it is "
            "durable. Its peer, and that of queries, is `/healthz` over as many connections.",
            "At 80 %, requests are sent at a fixed rate, and waits count from when one was due.",
        ],
    )


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class _Events:
    def __init__(self) -> None:
        self._given = 0

    def next(self, count: int) -> list[bytes]:
        first, self._given = self._given, self._given + count
        return [
            b'{"timestamp": "2018-08-%02dT%02d:%02d:%02dZ", "icao24": "4b%04x", "altitude": %d.5}\n'
            % (1 + n // 86400 % 30, n // 3600 % 24, n // 60 % 60, n % 60, n % 97, n % 12000)
            for n in range(first, self._given)
        ]


HEALTHZ = [_request("GET", "/healthz")]


def _against(
    served: Served, ours: Callable[[], Load], connections: int, seconds: float, rounds: int
) -> tuple[Load, float, float]:
    pairs = []
    for _ in range(rounds):
        bare = drive(served.port, HEALTHZ, connections, seconds)
        pairs.append((ours(), bare.rate))
    middle = sorted((load for load, _ in pairs), key=lambda load: load.rate)[len(pairs) // 2]
    return (
        middle,
        statistics.median(bare for _, bare in pairs),
        statistics.median(load.rate / bare for load, bare in pairs),
    )


def _appends(served: Served, seconds: float, rounds: int) -> list[Row]:
    events = _Events()

    def appends(rate: float | None = None) -> Load:
        lines = events.next(int(5000 * seconds))
        requests = [_request("POST", "/v1/streams/flights/events", line) for line in lines]
        return drive(served.port, requests, 32, seconds, rate)

    def commits() -> float:
        lines = events.next(int(200_000 * seconds))
        cut = [b"".join(lines[at : at + COMMIT]) for at in range(0, len(lines), COMMIT)]
        return acknowledged(served.port, "flights", cut, COMMIT, seconds)

    load, bare, ratio = _against(served, appends, 32, seconds, rounds)
    calm = [appends(0.8 * load.rate) for _ in range(rounds)]
    p99 = statistics.median(each.p99 for each in calm)
    flow = [commits() for _ in range(rounds)]
    rate = statistics.median(flow)
    return [
        Row(
            "one-event appends, 32 connections",
            f"{load.rate:,.0f}/s",
            f"{bare:,.0f}/s",
            f"{ratio:.2f}",
            "0.6",
            ratio >= 0.6,
        ),
        Row(
            "the same at 80 % of that rate, 99th percentile",
            f"{p99 * 1000:.1f} ms",
            "",
            "",
            "below 50 ms",
            p99 < 0.05,
        ),
        Row(
            f"one connection with `ack=each`, durable commits of {COMMIT}",
            f"{rate:,.0f} events/s",
            f"{load.rate:,.0f} events/s in requests of one",
            f"{rate / load.rate:.0f}",
            "100,000 events/s",
            rate >= 100_000,
        ),
    ]


def _queries(served: Served, seconds: float, rounds: int) -> list[Row]:
    query = [_request("GET", f"/v1/query?q={urllib.parse.quote(COUNT)}")]
    events = [_request("GET", "/v1/streams/flights/events?limit=1")]

    def many() -> Load:
        return drive(served.port, query, 16, seconds)

    load, bare, ratio = _against(served, many, 16, seconds, rounds)
    single = [drive(served.port, query, 1, seconds) for _ in range(rounds)]
    alone = statistics.median(each.rate for each in single)
    first = [drive(served.port, events, 1, seconds) for _ in range(rounds)]
    wait = statistics.median(each.p50 for each in first)
    return [
        Row(
            "an aggregate over a stream, 16 connections",
            f"{load.rate:,.0f}/s",
            f"{bare:,.0f}/s",
            f"{ratio:.2f}",
            "0.4",
            ratio >= 0.4,
        ),
        Row(
            "the same, 16 connections against one",
            f"{load.rate:,.0f}/s",
            f"{alone:,.0f}/s",
            f"{load.rate / alone:.2f}",
            "1.5",
            load.rate >= 1.5 * alone,
        ),
        Row(
            "`events?limit=1`, one connection, median",
            f"{wait * 1000:.2f} ms",
            "",
            "",
            "within 1.5 ms",
            wait <= 0.0015,
        ),
    ]
