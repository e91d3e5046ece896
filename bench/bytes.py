"""Bytes a row and processor time of a load: Chronicle, DuckDB and Parquet on five kinds of events.

The data sets are made with a fixed seed, but for the flights, which are real and left out where
their file is absent.  All sides load the same Arrow table, sorted by time.  Bytes are those of all
files of the stream, database or table, after a checkpoint.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import chronicle

from ..commands.demonstrate import factory_events
from .harness import Row, Section

FLIGHTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "opensky-switzerland.json.gz"
START = 1_767_600_000
"""2026-01-05 08:00 UTC, in seconds."""
FLIGHT_COLUMNS = (
    "make_timestamp(CAST(timestamp AS BIGINT) * 1000) AS time, icao24, callsign, latitude, "
    "longitude, altitude, groundspeed, track, vertical_rate"
)


def flights(rows: int) -> pa.Table:
    read = f"SELECT {FLIGHT_COLUMNS} FROM read_json('{FLIGHTS}') ORDER BY timestamp LIMIT {rows}"
    return duckdb.connect().sql(read).to_arrow_table()


def trades(rows: int) -> pa.Table:
    """Prices to the cent that move by a few ticks, in bursts of nanoseconds."""
    random = np.random.default_rng(1)
    symbols = [f"{chr(65 + i % 26)}{chr(65 + i // 26 % 26)}{chr(65 + i % 7)}" for i in range(500)]
    weights = 1 / np.arange(1, 501)
    symbol = random.choice(500, rows, p=weights / weights.sum()).astype(np.int32)
    step = random.integers(-3, 4, rows)
    price = np.empty(rows)
    for code in range(500):
        own = symbol == code
        price[own] = np.round(20 + code * 0.9 + np.cumsum(step[own]) / 100, 2)
    gaps = random.exponential(4_000_000, rows).astype(np.int64)
    return pa.table(
        {
            "time": pa.array(START * 10**9 + np.cumsum(gaps)).cast(pa.timestamp("ns")),
            "symbol": _texts(symbol, symbols),
            "price": np.abs(price),
            "size": random.choice([1, 5, 10, 50, 100, 200, 300], rows)
            * random.integers(1, 4, rows),
            "side": _texts(random.integers(0, 2, rows), ["buy", "sell"]),
            "venue": _texts(random.integers(0, 8, rows), [f"venue-{i}" for i in range(8)]),
        }
    )


def web_log(rows: int) -> pa.Table:
    """Requests of many clients to paths of which some carry an identity."""
    random = np.random.default_rng(2)
    clients = [".".join(map(str, four)) for four in random.integers(1, 255, (20_000, 4)).tolist()]
    client = (random.pareto(0.8, rows) * 40).astype(np.int64) % 20_000
    pages = [f"/shop/{a}/{b}" for a in ("home", "search", "cart", "help") for b in range(60)]
    page = random.integers(0, len(pages), rows)
    item = random.integers(0, 2_000_000, rows)
    with_item = random.random(rows) < 0.4
    paths = [
        f"/shop/item/{number}?from={pages[at]}" if own else pages[at]
        for own, number, at in zip(with_item.tolist(), item.tolist(), page.tolist(), strict=True)
    ]
    agents = [
        f"Mozilla/5.0 (device {i}; build {i * 37 % 101}) Browser/{i % 40}" for i in range(300)
    ]
    gaps = random.exponential(30, rows).astype(np.int64)
    status = random.choice([200, 301, 304, 404, 500], rows, p=[0.9, 0.03, 0.04, 0.02, 0.01])
    return pa.table(
        {
            "time": pa.array(START * 1000 + np.cumsum(gaps)).cast(pa.timestamp("ms")),
            "client": _texts(client, clients),
            "method": _texts((random.random(rows) < 0.1).astype(np.int64), ["GET", "POST"]),
            "path": pa.array(paths),
            "status": status.astype(np.int16),
            "bytes": np.where(status == 304, 0, random.lognormal(8, 1.5, rows).astype(np.int64)),
            "seconds": np.round(random.lognormal(-4, 1, rows), 3),
            "agent": _texts(client * 7919 % 300, agents),
        }
    )


def sensors(rows: int) -> pa.Table:
    """Two hundred sensors that report each second what changes slowly."""
    random = np.random.default_rng(3)
    count = 200
    seconds = -(-rows // count)
    moving = np.cumsum(random.normal(0, 0.02, (seconds, count)), axis=0)
    level = random.normal(20, 5, count)
    noise = random.normal(0, 0.05, (seconds, count))
    second = np.repeat(np.arange(seconds), count)[:rows]
    steady = (np.round(random.random((seconds // 600 + 1, count)) * 3)).repeat(600, axis=0)
    return pa.table(
        {
            "time": pa.array((START + second) * 1_000_000).cast(pa.timestamp("us")),
            "sensor": np.tile(np.arange(count, dtype=np.int32), seconds)[:rows],
            "value": np.round(level + moving + noise, 2).ravel()[:rows],
            "humidity": np.round(50 + 10 * moving + 20 * noise, 1).ravel()[:rows],
            "mode": steady[:seconds].astype(np.int64).ravel()[:rows],
        }
    )


def _texts(codes: npt.NDArray[Any], texts: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), texts).cast(pa.string())


SETS: dict[str, Callable[[int], pa.Table]] = {
    "flights": flights,
    "factory": factory_events,
    "trades": trades,
    "web log": web_log,
    "sensors": sensors,
}


def _bytes_below(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _load_chronicle(table: pa.Table, path: Path, codec: str) -> None:
    with chronicle.open(path) as db:
        stream = db.create_stream("s", table.schema, time="time", codec=codec)
        stream.append(table)
        stream.seal()


def _load_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.register("source", table)
        connection.execute("CREATE TABLE s AS SELECT * FROM source")
        connection.execute("CHECKPOINT")


def _load_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


LOADS: dict[str, Callable[[pa.Table, Path], None]] = {
    "lz4": lambda table, path: _load_chronicle(table, path, "lz4"),
    "zstd": lambda table, path: _load_chronicle(table, path, "zstd"),
    "duckdb": _load_duckdb,
    "parquet": _load_parquet,
}


def run(short: bool = False) -> Section:
    """Measure bytes a row, and the medians of the processor time of loads."""
    rows, runs = (200_000, 1) if short else (2_000_000, 5)
    section = Section(
        "Bytes a row and the cost of a load",
        f"Up to {rows:,} events of each kind from the same Arrow table, sorted by time; bytes of "
        "all files. Chronicle: `append` and `seal` with codec lz4 (and zstd). DuckDB: CREATE "
        "TABLE AS, CHECKPOINT. Parquet: zstd by pyarrow. Load: processor time of all threads.",
    )
    shares: dict[str, list[float]] = {"duckdb": [], "parquet": [], "load": []}
    for name, make in SETS.items():
        if name == "flights" and not FLIGHTS.exists():
            section.notes.append("Flights are left out: their file is absent.")
            continue
        size, seconds = _measure(make(rows), runs)
        best = min(size["lz4"], size["zstd"])
        shares["duckdb"].append(best / size["duckdb"])
        shares["parquet"].append(best / size["parquet"])
        shares["load"].append(seconds["duckdb"] / seconds["lz4"])
        section.rows.append(
            Row(
                name,
                f"{size['lz4']:.1f} / {size['zstd']:.1f} B",
                f"{size['duckdb']:.1f} / {size['parquet']:.1f} B",
                f"{best / size['duckdb']:.2f} / {best / size['parquet']:.2f}",
                "0.9 / 1.1",
            )
        )
        section.rows.append(
            Row(
                f"{name}: load",
                f"{seconds['lz4']:.2f} / {seconds['zstd']:.2f} s",
                f"{seconds['duckdb']:.2f} / {seconds['parquet']:.2f} s",
                f"{seconds['duckdb'] / seconds['lz4']:.2f}",
                "1.5",
            )
        )
    means = {key: math.exp(statistics.fmean(map(math.log, all_))) for key, all_ in shares.items()}
    section.notes.append(
        f"Geometric means: {means['duckdb']:.2f} of DuckDB's bytes, {means['parquet']:.2f} of "
        f"Parquet's; load {means['load']:.2f} times DuckDB's speed."
    )
    return section


def _measure(table: pa.Table, runs: int) -> tuple[dict[str, float], dict[str, float]]:
    size: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in LOADS}
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
            for name, load in LOADS.items():
                path = Path(scratch) / f"{name}{number}"
                begun = time.process_time()
                load(table, path)
                seconds[name].append(time.process_time() - begun)
                size[name] = _bytes_below(path) / table.num_rows
    return size, {name: statistics.median(each) for name, each in seconds.items()}
