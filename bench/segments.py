"""Many segments: what a stream of so many costs to open, to plan over and to commit to.

Purpose
    docs/scale.md reckons with 100,000 segments.  This measures how far that is away: the manifest
    by itself at that number, with entries that are made up, and whole streams of as many segments
    as one process can have open, each of few events.

Limits
    A segment that is open takes two descriptors (its file and the mapping), so the number of whole
    segments is bounded by what the system allows (``ulimit -n``).
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..schema import StreamSchema
from ..store import Store, StreamOptions
from ..store.catalog import SegmentEntry, StreamManifest, segment_name
from ..store.files import RealFiles
from ..store.manifest import read_manifest, write_manifest
from ..store.segment_writer import SegmentWriter
from .harness import Row, Section

__all__ = ["run"]

SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64())]), "t")
EVENTS = 8
WANTED = 100_000
OPEN_MS, PLAN_MS, COMMIT_MS = 200.0, 50.0, 10.0


def run(short: bool) -> Section:
    """Measure; a hundred segments when short."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2 - 200
    counts = [100] if short else [count for count in (1_000, 5_000) if count < allowed]
    section = Section(
        "Many segments",
        f"Segments of {EVENTS} events, made up. A bar is that of {WANTED:,} segments: with fewer "
        "it can be missed, not reached; there is no peer.",
    )
    base = os.environ.get("CHRONICLE_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=base) as directory:
        _manifest(section, Path(directory) / "manifest", 1_000 if short else WANTED)
        for count in counts:
            _streams(section, Path(directory) / str(count), count)
    return section


def _batch(number: int) -> pa.RecordBatch:
    ticks = np.arange(number * EVENTS, (number + 1) * EVENTS)
    return pa.RecordBatch.from_arrays([pa.array(ticks), pa.array(ticks * 0.5)], schema=SCHEMA.arrow)


def _empty(path: Path) -> tuple[RealFiles, str, StreamManifest]:
    """A store with one stream: its files, the stream's directory and manifest."""
    with Store.open(path, "rw") as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(compaction="manual"))
        directory = stream.commits.directory
    files = RealFiles(path)
    body = read_manifest(files, directory)
    assert body is not None
    return files, directory, StreamManifest.from_json(body)


def _timed(work: Callable[[], object], runs: int = 3) -> float:
    """Milliseconds, the least of some runs."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return min(times)


def _row(section: Section, what: str, found: float, bar: float, count: int) -> None:
    reached = None if found <= bar and count < WANTED else found <= bar  # fewer prove nothing
    section.rows.append(
        Row(what, f"{found:.1f} ms", "", "", f"{bar:.0f} ms at {WANTED:,}", reached)
    )


def _manifest(section: Section, path: Path, count: int) -> None:
    """The manifest alone."""
    files, directory, manifest = _empty(path)
    entries = tuple(
        SegmentEntry(manifest.next_id + i, EVENTS, i * EVENTS, (i + 1) * EVENTS - 1, 4096, 2)
        for i in range(count)
    )
    large = replace(manifest, segments=entries)

    def read() -> None:
        body = read_manifest(files, directory)
        assert body is not None
        StreamManifest.from_json(body)

    written = _timed(lambda: write_manifest(files, directory, large.to_json()))
    _row(section, f"manifest of {count:,} entries, written durably", written, COMMIT_MS, count)
    _row(section, f"manifest of {count:,} entries, read", _timed(read), OPEN_MS, count)


def _streams(section: Section, path: Path, count: int) -> None:
    """Streams that are there."""
    files, directory, manifest = _empty(path)
    entries = []
    for i in range(count):
        own = manifest.next_id + i
        writer = SegmentWriter(
            files, f"{directory}/{segment_name(own)}", own, SCHEMA, "none", 1 << 20
        )
        writer.write(_batch(i))
        writer.seal()
        writer.close()
        size = files.size(f"{directory}/{segment_name(own)}")
        first = i * EVENTS
        entries.append(SegmentEntry(own, EVENTS, first, first + EVENTS - 1, size, 2))
    changed = replace(manifest, segments=tuple(entries), next_id=manifest.next_id + count)
    write_manifest(files, directory, changed.to_json())

    def opened() -> None:
        with Store.open(path, "r") as store:
            found = store.stream("s").snapshot().count
        if found != count * EVENTS:
            raise AssertionError(f"{found} events of {count * EVENTS}")

    _row(
        section, f"stream of {count:,} segments, opened to be read", _timed(opened), OPEN_MS, count
    )
    with Store.open(path, "rw") as store:
        stream = store.stream("s")
        low, high = count * EVENTS // 3 + 1, 2 * count * EVENTS // 3 + 1

        def aggregated() -> None:
            stream.snapshot().aggregate(["x"], low, high)

        _row(
            section,
            f"aggregate over a third of {count:,} segments",
            _timed(aggregated),
            PLAN_MS,
            count,
        )
        number = iter(range(count, count + 1000))

        def committed() -> None:
            stream.append(_batch(next(number)))  # type: ignore[union-attr]
            stream.seal()  # type: ignore[union-attr]

        told = f"append and seal beside {count:,} segments"
        _row(section, told, _timed(committed), COMMIT_MS, count)
