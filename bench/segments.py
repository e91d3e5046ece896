"""100,000 segments (docs/scale.md): time to open, aggregate over a range, and commit.

The store is fabricated: only the segments at the ends of the range have events; reading another
file fails.  Least CPU time of some runs; a commit also shows wall time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..schema import StreamSchema
from ..store.catalog import StreamManifest, read_manifest, write_manifest
from ..store.files import RealFiles
from ..store.layout import ROW_ATTRIBUTES
from ..store.manifest_pages import write_pages
from ..store.options import StreamOptions
from ..store.segment import Root
from ..store.segment_list import SegmentEntry, SegmentList, segment_name
from ..store.segment_writer import SegmentWriter
from ..store.store import Store
from ..store.stream import EventStream
from .harness import Row, Section

SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64())]), "t")
EVENTS = 8
WANTED = 100_000
RUNS = 5
OPEN_MS, PLAN_MS, COMMIT_MS = 200.0, 50.0, 10.0


def run(short: bool) -> Section:
    count = 1_000 if short else WANTED
    section = Section(
        "Many segments",
        f"Segments of {EVENTS} events, made up. Milliseconds of processor time, the least of "
        f"{RUNS} runs; in brackets by the clock. A bar is that of {WANTED:,} segments: with fewer "
        "it can be missed, not reached; there is no peer.",
    )
    base = os.environ.get("CHRONICLE_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=base) as directory:
        _measure(section, Path(directory) / "store", count)
    return section


def _batch(number: int) -> pa.RecordBatch:
    ticks = np.arange(number * EVENTS, (number + 1) * EVENTS)
    return pa.RecordBatch.from_arrays([pa.array(ticks), pa.array(ticks * 0.5)], schema=SCHEMA.arrow)


def _made_up(path: Path, count: int, whole: tuple[int, ...]) -> None:
    with Store.open(path, "rw") as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(compaction="manual"))
        directory = stream.commits.directory
    files = RealFiles(path)
    body = read_manifest(files, directory)
    assert body is not None
    manifest = StreamManifest.from_json(body)
    entries = []
    for i in range(count):
        own, first = manifest.next_id + i, i * EVENTS
        file = f"{directory}/{segment_name(own)}"
        if i in whole:
            writer = SegmentWriter(files, file, own, SCHEMA, "none", 1 << 20)
            writer.write(_batch(i))
            writer.seal()
            writer.close()
        else:
            files.create(file).close()
        size = files.size(file)
        entries.append(SegmentEntry(own, EVENTS, first, first + EVENTS - 1, size, 2))
    listed = write_pages(
        files, directory, 2, manifest.identity, SegmentList.of(entries), SegmentList.of(()), _root
    )
    files.sync_directory(directory)
    changed = replace(
        manifest, version=2, segments=listed, next_id=manifest.next_id + count,
        events=count * EVENTS,
    )  # fmt: skip
    write_manifest(files, directory, changed.to_json())


def _root(entry: SegmentEntry) -> Root:
    values = np.arange(entry.first, entry.last + 1) * 0.5
    words = np.zeros(ROW_ATTRIBUTES + 5, np.int64)
    words[:ROW_ATTRIBUTES] = 0, 0, entry.events, entry.first, entry.last
    words[ROW_ATTRIBUTES] = entry.events
    numbers = [values.min(), values.max(), values.sum(), 0.0]
    words[ROW_ATTRIBUTES + 1 :] = np.array(numbers).view(np.int64)
    return Root(2, words)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    processor, clock = [], []
    for _ in range(RUNS):
        begun = time.process_time(), time.perf_counter()
        work()
        processor.append((time.process_time() - begun[0]) * 1000)
        clock.append((time.perf_counter() - begun[1]) * 1000)
    return min(processor), min(clock)


def _row(
    section: Section, what: str, found: tuple[float, float], bar: float | None, count: int
) -> None:
    processor, clock = found
    reached = None if bar is None else processor <= bar
    if reached and count < WANTED:
        reached = None  # fewer segments prove nothing
    told = "" if bar is None else f"{bar:.0f} ms at {WANTED:,}"
    section.rows.append(Row(what, f"{processor:.1f} ms ({clock:.1f})", "", "", told, reached))


def _measure(section: Section, path: Path, count: int) -> None:
    low, high = count * EVENTS // 3 + 1, 2 * count * EVENTS // 3 + 1
    _made_up(path, count, (low // EVENTS, (high - 1) // EVENTS))

    def opened(mode: str) -> None:
        with Store.open(path, mode) as store:
            found = store.stream("s").snapshot().count
        if found < count * EVENTS:
            raise AssertionError(f"{found} events of {count * EVENTS}")

    def aggregated() -> None:
        found = store.stream("s").snapshot().aggregate(["x"], low, high)
        if (found.count, found["x"].sum) != (high - low, sum(range(low, high)) / 2):
            raise AssertionError(f"{found.count} events, sum {found['x'].sum}")

    told = f"stream of {count:,} segments"
    _row(section, f"{told}, opened to be read", _timed(lambda: opened("r")), OPEN_MS, count)
    _row(section, f"{told}, opened to be written", _timed(lambda: opened("rw")), None, count)
    with Store.open(path, "rw") as store:
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        begun = time.process_time(), time.perf_counter()
        aggregated()
        first = time.process_time() - begun[0], time.perf_counter() - begun[1]
        over = "aggregate over a third of them"
        _row(section, f"{over}, the first", (first[0] * 1000, first[1] * 1000), None, count)
        _row(section, over, _timed(aggregated), PLAN_MS, count)
        number = iter(range(count, count + 1000))

        def committed() -> None:
            stream.append(_batch(next(number)))
            stream.seal()

        committed()
        _row(section, "append and seal beside them", _timed(committed), COMMIT_MS, count)
        written = sum(
            (path / stream.commits.directory / file).stat().st_size
            for file in ("MANIFEST", stream.commits.manifest.segments.pages[-1].file)
        )
        section.notes.append(
            f"Such a commit writes {written:,} bytes of manifest: the root and the last page."
        )
