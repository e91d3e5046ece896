"""MATCH_RECOGNIZE on replay: events per second, against DuckDB (``lead()``) and Flink SQL.

The thesis's stream (§3.5.3) with m symbols on A5, with and without Kleene symbols, window 300;
V-shapes over flights of ``CHRONICLE_FLIGHTS``; path-dependent conditions; skip-till-any with six
symbols.  Rows are checked against NumPy on a prefix, Flink, and a dynamic-programming count.  Scan,
conditions and matcher in one thread, from the page cache.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..query.pattern.compiled import CompiledMatch, InputColumns, compile_match
from ..query.sql.match_clause import clause_of_text
from ..schema import StreamSchema
from ..store.options import StreamOptions
from ..store.store import Store
from ..store.stream import EventStream
from . import figures
from .flink import FlinkJob, FlinkMissing, measure
from .harness import Row, Section, paired
from .pattern_stream import SCHEMA, events

SYMBOLS = (2, 4, 8, 16, 32)
WINDOW = 300
CHECKED = 2_000_000
FLIGHTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "opensky-switzerland.json.gz"

Ranges = list[tuple[float, float]]


def thesis_pattern(symbols: int, kleene: bool) -> tuple[str, list[Ranges]]:
    """Body of the clause, and the ranges of its symbols in blocks separated by Kleene symbols."""
    rng = np.random.default_rng(symbols)
    gaps: set[int] = set()
    low = 0
    while kleene and low < symbols - 1:
        cut = int(rng.integers(low, symbols - 1))
        gaps.add(cut)
        low = cut + 1
    parts, conditions = [], []
    blocks: list[Ranges] = [[]]
    for i in range(symbols):
        width = float(rng.random() * 0.1)
        begin = float(rng.random() * (1 - width))
        blocks[-1].append((begin, begin + width))
        parts.append(f"S{i}")
        conditions.append(f"S{i} AS a5 >= {begin!r} AND a5 <= {begin + width!r}")
        if i in gaps:
            parts.append(f"K{i}*")
            blocks.append([])
    body = (
        f"ORDER BY t MEASURES S0.t AS first_t, S{symbols - 1}.t AS last_t "
        f"AFTER MATCH SKIP TO NEXT ROW PATTERN ({' '.join(parts)}) WITHIN {WINDOW} "
        f"DEFINE {', '.join(conditions)}"
    )
    return body, blocks


def first_rows(blocks: list[Ranges], values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Rows at which a thesis pattern matches, by definition; times are 1 apart."""
    n = len(values)
    far = np.int64(2**62)
    after = np.arange(n + 1)  # last row of the earliest completion that starts at or after a row
    earliest = after
    for block in reversed(blocks):
        found = np.ones(n, np.bool_)
        for i, (low, high) in enumerate(block):
            holds = (values >= low) & (values <= high)
            found[: n - i] &= holds[i:]
            found[n - i :] = False
        size = len(block)
        earliest = np.full(n + 1, far)
        if block is blocks[-1]:
            earliest[:n] = np.where(found, np.arange(n) + size - 1, far)
        else:
            earliest[: n - size + 1] = np.where(found[: n - size + 1], after[size:], far)
        after = np.minimum.accumulate(earliest[::-1])[::-1]
    return np.flatnonzero(earliest[:n] - np.arange(n) <= WINDOW)


def compiled(body: str, schema: pa.Schema | StreamSchema) -> CompiledMatch:
    clause = clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({body})")
    columns = schema if isinstance(schema, StreamSchema) else InputColumns(schema, "t")
    return compile_match(clause, columns)


def replay(stream: EventStream, match: CompiledMatch, size: list[int] | None = None) -> float:
    """Seconds of one run over a stream; appends the row count to ``size``."""
    snapshot = stream.snapshot()
    begun = time.perf_counter()
    rows = sum(b.num_rows for b in match.run(snapshot.scan(columns=match.input_columns)))
    spent = time.perf_counter() - begun
    if size is not None:
        size.append(rows)
    return spent


def result(match: CompiledMatch, table: pa.Table) -> pa.Table:
    batches = table.select(match.input_columns).to_batches(max_chunksize=1 << 16)
    return pa.Table.from_batches(list(match.run(batches)), match.output_schema)


def by_lead(ranges: Ranges, table: pa.Table) -> float:
    columns = ", ".join(f"lead(a5, {i}) OVER (ORDER BY t) AS v{i}" for i in range(len(ranges)))
    tests = " AND ".join(f"v{i} BETWEEN {lo!r} AND {hi!r}" for i, (lo, hi) in enumerate(ranges))
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("s", table)
        begun = time.perf_counter()
        connection.sql(f"SELECT count(*) FROM (SELECT {columns} FROM s) WHERE {tests}").fetchall()
        return time.perf_counter() - begun


def run(short: bool = False) -> Section:
    if not short:
        figures.require()
    n = 1_000_000 if short else 50_000_000
    runs = 3 if short else 5
    section = Section(
        "Row patterns on replay",
        f"{n:,} events of five doubles and a time, no codec, one thread; the thesis's synthetic "
        f"stream, window {WINDOW}, AFTER MATCH SKIP TO NEXT ROW. The peer of contiguous patterns "
        f"is DuckDB with lead(), one thread, over a tenth of the events in memory. Medians of "
        f"{runs}.",
    )
    scratch = os.environ.get("CHRONICLE_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        with Store.open(Path(directory), "rw") as store:
            stream = store.create_stream("s", SCHEMA, StreamOptions(codec="none"))
            rng = np.random.default_rng(2021)
            prefix = []
            for first in range(0, n, 1 << 19):
                table = events(first, min(n, first + (1 << 19)), n, rng)
                stream.append(table)
                if first < max(CHECKED, n // 10):
                    prefix.append(table.select(["t", "a5"]))
            stream.seal()
            tenth = pa.concat_tables(prefix).slice(0, n // 10).combine_chunks()
            checked = pa.concat_tables(prefix).slice(0, CHECKED)
            _thesis(section, stream, checked, tenth, n, runs, not short)
            del prefix, tenth
            _dependent(section, stream, n, runs)
        _flights(section, Path(directory), 5 if short else 100, runs)
    _skip_any(section)
    if not short:
        _flink(section, checked.slice(0, 300_000), runs)
    return section


def _thesis(
    section: Section,
    stream: EventStream,
    checked: pa.Table,
    tenth: pa.Table,
    n: int,
    runs: int,
    draw: bool,
) -> None:
    values = checked["a5"].to_numpy()
    curves: dict[str, list[tuple[float, float]]] = {}
    for kleene in (False, True):
        for symbols in SYMBOLS:
            body, blocks = thesis_pattern(symbols, kleene)
            match = compiled(body, SCHEMA)
            found = result(match, checked)["first_t"].to_numpy()
            wanted = checked["t"].to_numpy()[first_rows(blocks, values)]
            if not np.array_equal(found, wanted):
                raise AssertionError(f"{len(found)} matches, expected {len(wanted)}: {body}")
            sizes: list[int] = []
            ours = partial(replay, stream, match, sizes)
            peer = None
            if kleene:
                ours()
                mine = statistics.median(ours() for _ in range(runs))
            else:
                mine, theirs, _ = paired(ours, partial(by_lead, blocks[0], tenth), runs)
                peer = tenth.num_rows / theirs
            name = "Kleene symbols between" if kleene else "contiguous"
            what = f"{symbols} symbols, {name} ({sizes[0]:,} rows)"
            _add(section, what, n / mine, peer, 30e6 if symbols == 8 else 0.0)
            curves.setdefault(f"Chronicle, {name}", []).append((symbols, n / mine / 1e6))
            if peer is not None:
                curves.setdefault("DuckDB, lead()", []).append((symbols, peer / 1e6))
    if draw:
        ticks = {float(symbols): str(symbols) for symbols in SYMBOLS}
        figures.lines(
            "pattern-symbols", "Row patterns on replay", "symbols", "million events per second",
            curves, ticks=ticks,
        )  # fmt: skip
        section.notes.append("![Events per second by symbols](figures/pattern-symbols.svg)")


def _dependent(section: Section, stream: EventStream, n: int, runs: int) -> None:
    for more, what in ((0.5, "rises by 0.5"), (0.05, "rises by 0.05: match-heavy")):
        body = (
            "ORDER BY t MEASURES A.t AS a, C.t AS c PATTERN (A B* C) WITHIN 300 "
            f"DEFINE B AS a5 > PREV(a5), C AS a5 >= A.a5 + {more}"
        )
        match = compiled(body, SCHEMA)
        sizes: list[int] = []
        replay(stream, match, sizes)
        taken = statistics.median(replay(stream, match) for _ in range(3))
        name = f"path-dependent, {what} ({sizes[0]:,} rows)"
        _add(section, name, n / taken, None, 5e6)


def _flights(section: Section, directory: Path, copies: int, runs: int) -> None:
    source = Path(os.environ.get("CHRONICLE_FLIGHTS", FLIGHTS))
    if not source.exists():
        section.notes.append("V-shapes over flights were left out: CHRONICLE_FLIGHTS names none.")
        return
    with gzip.open(source) as file:
        records = pa.Table.from_pylist(json.load(file))
    records = records.select(["timestamp", "icao24", "groundspeed"]).sort_by("timestamp")
    keys = records["icao24"].combine_chunks().dictionary_encode()
    aircraft = keys.indices.to_numpy().astype(np.int64)
    stamps = records["timestamp"].to_numpy().astype(np.int64)
    groundspeed = records["groundspeed"].combine_chunks()
    schema = StreamSchema(
        pa.schema(
            [
                pa.field("t", pa.int64(), False),
                pa.field("k", pa.int64()),
                pa.field("groundspeed", pa.float64()),
            ]
        ),
        "t",
    )
    rows = len(stamps)
    with Store.open(directory / "flights", "rw") as store:
        stream = store.create_stream("flights", schema, StreamOptions(codec="none"))
        step = max(1, (1 << 19) // copies)
        for first in range(0, rows, step):
            part = slice(first, min(rows, first + step))
            many = np.tile(np.arange(copies), part.stop - first)
            stream.append(
                pa.table(
                    {
                        "t": np.repeat(stamps[part], copies),
                        "k": np.repeat(aircraft[part], copies) * copies + many,
                        "groundspeed": groundspeed.slice(first, part.stop - first).take(
                            pa.array(np.repeat(np.arange(part.stop - first), copies))
                        ),
                    },
                    schema=schema.arrow,
                )
            )
        stream.seal()
        body = (
            "PARTITION BY k ORDER BY t MEASURES A.t AS a, LAST(D.groundspeed) AS bottom, "
            "LAST(U.t) AS u PATTERN (A D{3,} U{3,}) "
            "DEFINE D AS groundspeed < PREV(groundspeed), U AS groundspeed > PREV(groundspeed)"
        )
        match = compiled(body, schema)
        sizes: list[int] = []
        replay(stream, match, sizes)
        once = pa.table(
            {"t": stamps, "k": aircraft, "groundspeed": groundspeed.cast(pa.float64())},
            schema=schema.arrow,
        )
        if sizes[0] != copies * result(match, once).num_rows:
            raise AssertionError(f"{sizes[0]} V-shapes in {copies} copies of the flights")
        taken = statistics.median(replay(stream, match) for _ in range(runs))
        n = rows * copies
        name = f"V-shapes with PREV, {len(keys.dictionary):,} aircraft x {copies} ({n:,} events"
        _add(section, f"{name}, {sizes[0]:,} rows)", n / taken, None, 0.0)


def _add(section: Section, what: str, rate: float, peer: float | None, bar: float) -> None:
    section.rows.append(
        Row(
            what,
            f"{rate / 1e6:.1f} M/s",
            f"{peer / 1e6:.2f} M/s" if peer else "",
            f"{rate / peer:.1f}x" if peer else "",
            f"{bar / 1e6:.0f} M/s" if bar else "",
            rate >= bar if bar else None,
        )
    )


# -- skip till any match --------------------------------------------------------------------------


def skip_any(rising: bool) -> dict[str, float]:
    """Six tickers with any events between, over 100,000 trades; run in its own process."""
    rng = np.random.default_rng(35)
    n = 100_000
    ticker = rng.integers(0, 50, n)
    price = 100 + np.cumsum(rng.normal(0, 0.1, n))
    names = np.array([f"S{i:02}" for i in range(50)])
    table = pa.table({"t": np.arange(n), "symbol": names[ticker], "price": price})
    conditions = ", ".join(f"{v} AS symbol = 'S{i:02}'" for i, v in enumerate("ABCDEF"))
    match = compiled(
        "ORDER BY t MEASURES A.t AS a, F.t AS f PATTERN (A B C D E F) "
        f"WITHIN {WINDOW} EVENT SELECTION SKIP TILL ANY MATCH "
        f"DEFINE {conditions}" + (" AND price > A.price" if rising else ""),
        table.schema,
    )
    result(match, table.slice(0, 1000))
    before = _peak_kib()
    begun = time.perf_counter()
    rows = sum(b.num_rows for b in match.run(table.to_batches(max_chunksize=1 << 16)))
    seconds = time.perf_counter() - begun
    after = _peak_kib()
    expected = 0
    for a in np.flatnonzero(ticker == 0).tolist():
        last = min(n, a + WINDOW + 1)
        inside = ticker[a:last]
        ways = np.zeros(last - a)
        ways[0] = 1
        for symbol in range(1, 6):
            ways = np.where(inside == symbol, np.cumsum(ways) - ways, 0)
        expected += int(ways[price[a:last] > price[a]].sum() if rising else ways.sum())
    return {
        "rows": rows,
        "seconds": seconds,
        "megabytes": after / 1024,
        "before": before / 1024,
        "expected": expected,
        "events": n,
    }


def _peak_kib() -> int:
    """Peak memory of this program; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def _skip_any(section: Section) -> None:
    for rising in (False, True):
        code = (
            f"import json; from {__name__} import skip_any; print(json.dumps(skip_any({rising})))"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
        answer = json.loads(done.stdout)
        if answer["rows"] != answer["expected"]:
            raise AssertionError(f"skip-till-any: {answer}")
        what = "skip-till-any, six tickers" + (", F.price > A.price" if rising else "")
        _add(section, f"{what}, 100,000 trades", answer["events"] / answer["seconds"], None, 0.0)
        section.notes.append(
            f"{what}: {answer['rows']:,} matches in {answer['seconds']:.2f} s "
            f"({answer['rows'] / answer['seconds'] / 1e6:.2f} M matches/s); the process needed "
            f"{answer['megabytes']:.0f} MB at its peak, {answer['before']:.0f} MB before."
        )


# -- Flink ----------------------------------------------------------------------------------------


def _flink(section: Section, table: pa.Table, runs: int) -> None:
    eight = " ".join(f"S{i}" for i in range(8))
    narrow, _ = thesis_pattern(8, kleene=False)
    defined = narrow[narrow.index("DEFINE") :]
    wide = ", ".join(f"S{i} AS a5 {'<' if i % 2 else '>='} 0.5" for i in range(8))
    rising = "DEFINE B AS a5 < A.a5 + 0.5, C AS a5 >= A.a5 + 0.5"
    head = "AFTER MATCH SKIP PAST LAST ROW PATTERN"
    cases = [
        ("8 symbols", "S7", "", f"{head} ({eight}) WITHIN 300 {defined}", (1, 2)),
        ("8 wide symbols", "S7", "", f"{head} ({eight}) WITHIN 300 DEFINE {wide}", (1,)),
        ("path-dependent A B* C", "C", "", f"{head} (A B* C) WITHIN 10 {rising}", (1,)),
        ("the same by 842 keys", "C", "k", f"{head} (A B* C) WITHIN 8000 {rising}", (1, 2)),
    ]
    rng = np.random.default_rng(842)
    table = table.append_column("k", pa.array(rng.integers(0, 842, table.num_rows)))
    jobs, tasks = [], []
    for threads in (1, 2):
        scan = FlinkJob("scan", "", "", threads)
        jobs.append(scan)
        for name, last, key, rest, parallel in cases:
            if threads not in parallel:
                continue
            first = "S0" if last == "S7" else "A"
            body = (
                f"{f'PARTITION BY {key} ' if key else ''}ORDER BY t "
                f"MEASURES {first}.t AS first_t, {last}.t AS last_t {rest}"
            )
            theirs = body.replace("WITHIN 8000 ", "WITHIN INTERVAL '8.001' SECOND(1, 3) ")
            theirs = theirs.replace("WITHIN 10 ", "WITHIN INTERVAL '0.011' SECOND(1, 3) ")
            theirs = theirs.replace("WITHIN 300 ", "WITHIN INTERVAL '0.301' SECOND(1, 3) ")
            columns = f"{'k BIGINT, ' if key else ''}first_t TIMESTAMP(3), last_t TIMESTAMP(3)"
            job = FlinkJob(name, theirs, columns, threads)
            jobs.append(job)
            tasks.append((job, scan, body))
    try:
        answers = measure(table, jobs, min(runs, 2))
    except FlinkMissing as missing:
        section.notes.append(f"Flink was left out: {missing}.")
        print(f"Flink was left out: {missing}", file=sys.stderr, flush=True)
        return
    n = table.num_rows
    for job, scan, body in tasks:
        match = compiled(body, table.schema)
        rows = result(match, table)
        answer, reading = answers[job], answers[scan].seconds
        if _plain(answer.rows) != _plain(rows):
            raise AssertionError(f"Flink's rows differ from ours: {body}")
        batches = table.select(match.input_columns).to_batches(max_chunksize=1 << 16)
        times = []
        for _ in range(runs):
            begun = time.perf_counter()
            for _batch in match.run(batches):
                pass
            times.append(time.perf_counter() - begun)
        ours = statistics.median(times)
        ratio = answer.seconds / ours
        alone = max(answer.seconds - reading, 1e-9)
        section.rows.append(
            Row(
                f"{job.name}, Flink {answer.version} at parallelism {job.parallelism}, {n:,} "
                f"events ({rows.num_rows:,} rows)",
                f"{n / ours / 1e6:.1f} M/s",
                f"{n / answer.seconds / 1e6:.3f} M/s",
                f"{ratio:.0f}x",
                "100x",
                ratio >= 100,
            )
        )
        section.notes.append(
            f"{job.name}, parallelism {job.parallelism}: Flink took {answer.seconds:.2f} s, of "
            f"which reading its CSV takes {reading:.2f} s; without that {n / alone / 1e6:.2f} M/s, "
            f"and the ratio is {alone / ours:.0f}."
        )
    section.notes.append(
        "Flink: the same rows, both results compared row by row; streaming mode, event time by "
        "watermark, object reuse, the faster of two runs after one that warms it up; it reads "
        "CSV, we read Arrow from memory, hence the notes on reading."
    )


def _plain(rows: pa.Table | None) -> list[tuple[int, ...]]:
    if rows is None or rows.num_columns == 0:
        return []
    columns = []
    for column in rows.columns:
        stamped = pa.types.is_timestamp(column.type)
        columns.append(column.cast(pa.timestamp("ms")).cast(pa.int64()) if stamped else column)
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))
