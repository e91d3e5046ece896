r"""``chronicle demo``: the main features on a synthetic stream of factory machines, with timings.
Three ways to the pattern must give the same rows, else the demo fails.

The stream is deterministic.  Machines report about once a second, work in jobs, rest, warm up and
cool down.

==============  ============  ==================================================
``time``        timestamp us  one second apart per machine, 0.4 s of jitter
``machine``     string        ``press-00`` ... ``robot-39``
``state``       string        idle, running, degraded, stopped
``temperature`` double        degrees Celsius
``vibration``   double        mm/s
``power``       double        kW
``produced``    int64         pieces since the beginning of the stream
==============  ============  ==================================================

A fault (400 steps)::

    vibration    ____________/~~~~~~~\______      climbs from step 0, high from 200 to 320
    temperature  ________________/~~~~\____      follows from step 120
    state        running  degraded     stopped    degraded from 100, stopped from 320 to 400
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from ..core.scratch import ScratchDirectory
from ..errors import CorruptStore, InvalidArgument, MissingDependency

if TYPE_CHECKING:
    import pyarrow as pa

    from ..api.database import Database

EVENTS = 2_000_000
MACHINES = 40
START = np.datetime64("2026-01-05T06:00:00", "us")
SEED = 20260105

KINDS = ("press", "mill", "lathe", "robot")
STATES = ("idle", "running", "degraded", "stopped")
IDLE, RUNNING, DEGRADED, STOPPED = range(4)
JOB_STEPS = 900
FAULT_STEPS = 400
FAULTS_PER_STEP = 1 / 12_000
LAG = 300

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us"), False),
        pa.field("machine", pa.string()),
        pa.field("state", pa.string()),
        pa.field("temperature", pa.float64()),
        pa.field("vibration", pa.float64()),
        pa.field("power", pa.float64()),
        pa.field("produced", pa.int64()),
    ]
)

Floats = npt.NDArray[np.float64]


def factory_events(events: int = EVENTS, seed: int = SEED) -> pa.Table:
    """The first ``events`` of the stream, in time order, ties in machine order."""
    steps = -(-events // MACHINES)
    random = np.random.default_rng(seed)
    working = _jobs(random, steps)
    fault = _faults(random, steps)  # step within a fault, -1 outside of one
    state = np.where(working, RUNNING, IDLE).astype(np.int8)
    state[(fault >= 100) & (fault < 320)] = DEGRADED
    state[fault >= 320] = STOPPED
    active = (state == RUNNING) | (state == DEGRADED)
    temperature = _temperature(random, active, fault)
    vibration = _vibration(random, active, fault)
    rated = 5.0 + 3.0 * np.arange(MACHINES)[:, None] / MACHINES
    power = np.where(active, rated, 0.4) * (1 + 0.05 * random.standard_normal((MACHINES, steps)))
    produced = np.cumsum(active & (np.arange(steps) % 7 == 0), axis=1)
    micros = np.arange(steps, dtype=np.int64) * 1_000_000
    jitter = random.integers(0, 400_000, (MACHINES, steps))
    time = micros[None, :] + jitter
    order = np.argsort(time.ravel(), kind="stable")[:events]

    def column(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(values).ravel()[order]

    machine = np.repeat(np.arange(MACHINES, dtype=np.int32), steps)[order]
    names = [f"{KINDS[at * len(KINDS) // MACHINES]}-{at:02}" for at in range(MACHINES)]
    start = int(START.astype(np.int64))
    return pa.table(
        [
            pa.array(column(time) + start, pa.int64()).cast(pa.timestamp("us")),
            pa.DictionaryArray.from_arrays(machine, names).cast(pa.string()),
            pa.DictionaryArray.from_arrays(column(state), list(STATES)).cast(pa.string()),
            column(np.round(temperature, 2)),
            column(np.round(vibration, 3)),
            column(np.round(power, 3)),
            column(produced),
        ],
        schema=SCHEMA,
    )


def _jobs(random: np.random.Generator, steps: int) -> npt.NDArray[np.bool_]:
    quarters = steps // JOB_STEPS + 2
    plan = np.repeat(random.random((MACHINES, quarters)) < 0.75, JOB_STEPS, axis=1)
    first = random.integers(0, JOB_STEPS, MACHINES)
    at = first[:, None] + np.arange(steps)[None, :]
    return np.take_along_axis(plan, at, axis=1)


def _faults(random: np.random.Generator, steps: int) -> npt.NDArray[np.int32]:
    fault = np.full((MACHINES, steps + FAULT_STEPS), -1, np.int32)
    count = max(1, round(MACHINES * steps * FAULTS_PER_STEP))
    profile = np.arange(FAULT_STEPS, dtype=np.int32)
    for machine, begin in zip(
        random.integers(0, MACHINES, count).tolist(),
        np.sort(random.integers(0, steps, count)).tolist(),
        strict=True,
    ):
        fault[machine, begin : begin + FAULT_STEPS] = profile
    return fault[:, :steps]


def _lagged(values: Floats) -> Floats:
    sums = np.cumsum(np.pad(values, ((0, 0), (LAG, 0)), mode="edge"), axis=1)
    mean: Floats = (sums[:, LAG:] - sums[:, :-LAG]) / LAG
    return mean


def _temperature(
    random: np.random.Generator, active: npt.NDArray[np.bool_], fault: npt.NDArray[np.int32]
) -> Floats:
    steps = active.shape[1]
    hour = 6 + np.arange(steps) / 3600
    hall = 19 + 4 * np.sin((hour - 9) * (2 * np.pi / 24))
    own = random.normal(0, 2, (MACHINES, 1))
    warm = 45 * _lagged(active.astype(np.float64))
    overheated = 30 * np.clip((fault - 120) / 150, 0, 1)
    return hall + own + warm + overheated + random.normal(0, 0.3, (MACHINES, steps))


def _vibration(
    random: np.random.Generator, active: npt.NDArray[np.bool_], fault: npt.NDArray[np.int32]
) -> Floats:
    steps = active.shape[1]
    worn = 6 * np.clip(fault / 200, 0, 1)
    calm = np.where(active, 2.0 + worn, 0.2)
    return np.abs(calm * (1 + 0.1 * random.standard_normal((MACHINES, steps))))


STREAM = "machines"
_BATCH_ROWS = 262_144

_QUERIES = (
    (
        "Aggregate six hours: answered from the inner nodes of the tree, leaves stay unread",
        "SELECT count(*) AS events, avg(temperature) AS mean, max(vibration) AS shaking\n"
        "FROM machines\n"
        "WHERE time >= TIMESTAMP '2026-01-05 08:00:00' AND time < TIMESTAMP '2026-01-05 14:00:00'",
    ),
    (
        "Filter: only leaves whose min and max allow a match are read",
        "SELECT time, machine, state, temperature, vibration FROM machines\n"
        "WHERE vibration > 9.5 AND temperature > 92 ORDER BY time LIMIT 5",
    ),
    (
        "Group: the relational part",
        "SELECT state, count(*) AS events, round(avg(power), 2) AS avg_kw,\n"
        "  max(temperature) AS hottest FROM machines GROUP BY state ORDER BY events DESC",
    ),
    (
        "Window: twenty minutes each, whole windows from the inner nodes",
        "SELECT window_start, avg(temperature) AS mean, max(vibration) AS shaking\n"
        "FROM TUMBLE(machines, time, INTERVAL '20' MINUTE)\n"
        "GROUP BY window_start, window_end ORDER BY window_start LIMIT 5",
    ),
    (
        "Situations: machines that shake while they run hot, reported as soon as it is certain",
        "SELECT * FROM machines MATCH_SITUATIONS (PARTITION BY machine\n"
        "  MEASURES STARTED(H) AS hot, DETECTED() AS at, max(S.vibration) AS shaking\n"
        "  PATTERN (S INTERSECTS H) WITHIN INTERVAL '1' HOUR EMIT ON DETECTION\n"
        "  DEFINE H AS temperature > 88 LASTING AT LEAST INTERVAL '5' SECOND, S AS vibration > 8)\n"
        "ORDER BY shaking DESC LIMIT 5",
    ),
)

PATTERN = """\
SELECT * FROM machines MATCH_RECOGNIZE (PARTITION BY machine ORDER BY time
  MEASURES S.time AS shook, S.vibration AS vibration, H.time AS hot
  AFTER MATCH SKIP TO NEXT ROW PATTERN (S Z*? H) WITHIN INTERVAL '5' MINUTE
  DEFINE S AS vibration > 10.5, H AS temperature > 97)"""
_AS_A_JOIN = """\
SELECT s.machine, s.time AS shook, s.vibration, min(h.time) AS hot FROM machines s
JOIN machines h ON h.machine = s.machine AND h.temperature > 97
  AND h.time > s.time AND h.time <= s.time + INTERVAL 5 MINUTE
WHERE s.vibration > 10.5 GROUP BY ALL"""
_ALERTED = (("00:00", 10.9, 71.0), ("00:20", 3.1, 80.0), ("00:40", 2.8, 98.5), ("00:41", 2.7, 98.3))
"""Time, vibration and temperature; the last event proves that the one before was alone at its time.
"""


class _Clock:
    @contextlib.contextmanager
    def step(self, what: str, events: int | None = None) -> Iterator[None]:
        print(f"\n== {what}", flush=True)
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        speed = "" if events is None else f", {events / seconds / 1e6:.1f} million events/s"
        print(f"   {_duration(seconds)}{speed}", flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def demo(
    events: Annotated[
        int, typer.Option("--events", min=1000, metavar="N", help="Events to generate.")
    ] = 2_000_000,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            "-s",
            metavar="DIR",
            help="Keep the store here. [default: a temporary one]",
            show_default=False,
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Also read by Spark, where there is one.")
    ] = True,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the store afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    """Show what Chronicle does, on generated events, with timings."""
    if store is not None and store.exists() and any(store.iterdir()):
        raise InvalidArgument(f"{store} is not empty; name a new directory")
    with contextlib.ExitStack() as stack:
        place = store or stack.enter_context(ScratchDirectory("demo"))
        _embedded(place, events)
        if spark:
            _by_spark(place, events)
        if serve:
            from .serving import serve as served

            print()
            served(store=place)
        if store is not None:
            print(f"\nThe store is in {store}: chronicle sql --store {store}")


def _embedded(place: Path, events: int) -> None:
    from ..api.database import open_database

    clock = _Clock()
    with clock.step(f"Generate {events:,} events of {MACHINES} machines", events):
        table = factory_events(events)
    with open_database(place, live=True) as database:
        stream = database.create_stream(STREAM, SCHEMA, time="time")
        with clock.step("Ingest them, durably", events):
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                stream.append(batch)
        print(f"   {_size(place):,.0f} MB on disk ({table.nbytes / 1e6:,.0f} MB as Arrow)")
        for what, text in _QUERIES:
            _query(database, what, text)
        with clock.step("Index what is rare: vibration and temperature", 2 * events):
            stream.create_index("vibration")
            stream.create_index("temperature")
        _pattern(database, table)
        _alert(database, table.column("time")[-1].as_py())
        with clock.step("Verify every checksum, order and aggregate"):
            report = database.check()
            print(f"   {'all is well' if report.ok else report.problems}")


def _pattern(database: Database, table: pa.Table) -> None:
    import duckdb

    what = "Pattern: which machine shook, and ran hot within five minutes?"
    rows = _query(database, what, PATTERN)
    for row in database.sql(f"EXPLAIN ANALYZE {PATTERN}").fetchall():
        replayed = re.search(r"(?<!estimated )replay: ([\d.]+%)", row[0])
        if replayed:
            print(f"   replayed: {replayed[1]} of the stream, the rest is ruled out by the indexes")
    whole = PATTERN.replace("SELECT", "SELECT /*+ strategy(replay) */")
    with duckdb.connect() as peer:
        peer.register("arrived", table)
        peer.execute(f"CREATE TABLE {STREAM} AS FROM arrived")

        def joined() -> pa.Table:
            return peer.sql(_AS_A_JOIN).to_arrow_table()

        _same("the same text again", lambda: database.sql(PATTERN).arrow(), rows)
        _same("a replay of everything", lambda: database.sql(whole).arrow(), rows)
        _same("DuckDB, as a join of the events in memory", joined, rows)


def _same(way: str, call: Callable[[], pa.Table], rows: pa.Table) -> None:
    order = [("shook", "ascending"), ("machine", "ascending")]
    if call().sort_by(order).to_pylist() != rows.sort_by(order).to_pylist():
        raise CorruptStore(f"{way} gives other rows; please report it")
    seconds = min(_timed(call) for _ in range(3))
    print(f"   {_duration(seconds)} by {way}: the same rows")


def _alert(database: Database, last: dt.datetime) -> None:
    """The pattern as a live query: append an event that completes a match, and print the row."""
    print("\n== Alert: the same text as a live query, over what is stored and what comes\n")
    alert = database.create_live("overheating", PATTERN, idle="never")
    database.run_live()
    before = alert.status()["rows"]
    print(f"   CREATE LIVE QUERY overheating AS ...   {before} rows from history")
    stream = database.stream(STREAM)
    for clock, vibration, temperature in _ALERTED:
        minutes, seconds = map(int, clock.split(":"))
        time_ = last + dt.timedelta(minutes=1 + minutes, seconds=seconds)
        began = time.perf_counter()
        stream.append(
            [{"time": time_, "machine": "press-00", "vibration": vibration,
              "temperature": temperature}]
        )  # fmt: skip
        database.run_live()
        took = time.perf_counter() - began
        print(f"   {time_:%H:%M:%S}  vibration {vibration:4}  temperature {temperature}")
    for batch in alert.rows(after=before):
        for row in batch.to_pylist():
            print(
                f"   !! {row['machine']} shook at {row['shook']:%H:%M:%S} and was hot at "
                f"{row['hot']:%H:%M:%S}: reported {_duration(took)} after the append began",
                flush=True,
            )


def _query(database: Database, what: str, text: str) -> pa.Table:
    from ..formats.text_tables import plain_table

    print(f"\n== {what}\n   " + text.replace("\n", "\n   ") + "\n")
    began = time.perf_counter()
    table = database.sql(text).arrow()
    taken = time.perf_counter() - began
    for line in plain_table(table.to_batches(), table.schema):
        print(f"   {line}")
    print(f"   {_duration(taken)}", flush=True)
    return table


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _size(place: Path) -> float:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / 1e6


# ---------------------------------------------------------------------------------------- Spark


def _by_spark(place: Path, events: int) -> None:
    try:
        from pyspark.sql import functions as column

        from ..spark_connector import register
        from ..spark_connector.session import pipeline_session
    except ImportError:
        print("\n== Spark: left out: pip install 'chronicle-eventstore[spark]'")
        return
    clock = _Clock()
    with contextlib.ExitStack() as stack:
        try:
            with clock.step("Start Spark on two cores of this machine"):
                session = stack.enter_context(pipeline_session("local[2]", "chronicle demo"))
        except MissingDependency as error:
            print(f"   left out: {error}")
            return
        register(session)
        frame = session.read.format("chronicle").option("path", str(place.resolve()))
        frame = frame.option("stream", STREAM).load()
        with clock.step("Read the stream as a Spark DataFrame and group it", events):
            frame.groupBy("state").agg(
                column.count("*").alias("events"),
                column.round(column.avg("power"), 2).alias("avg_kw"),
                column.max("temperature").alias("hottest"),
            ).orderBy(column.desc("events")).show()
