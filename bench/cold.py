"""Cold reads of the thesis's synthetic stream: patterns and aggregates from disk and from objects.

With an empty page cache, or objects with 20 ms latency (files; bandwidth is not modelled, which
favours the side that reads more), index-based patterns against a full replay with equal rows.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..store import object_store as objects_room
from ..store.cold_file import cache
from ..store.object_store import ObjectStore
from ..store.store import Store
from .harness import Row, Section
from .pattern_stream import Bed, random_query

LATE_SECONDS = 0.020
SETTINGS = ((8, "a5", 5.0), (16, "a5", None), (8, "a2", None))
"""Symbols, the attribute of one of them, and the required speed-up over a replay from disk."""
OBJECTS_BAR = 20.0
BYTES_BAR = 0.01


class _Late(ObjectStore):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests = 0
        self._counting = threading.Lock()

    def read(self, key: str, offset: int, length: int) -> bytes:
        with self._counting:
            self.requests += 1
        time.sleep(LATE_SECONDS)
        return super().read(key, offset, length)

    def contents(self, key: str, length: int) -> Iterator[bytes]:
        came, asked = 0, 0
        for piece in super().contents(key, length):
            if came >= asked:
                with self._counting:
                    self.requests += 1
                time.sleep(LATE_SECONDS)
                asked += objects_room.PIECE_BYTES
            came += len(piece)
            yield piece


@contextmanager
def late_objects(directory: Path) -> Iterator[_Late]:
    place = _Late(f"file://{directory}")
    objects_room._stores.put(place.url, place)
    try:
        yield place
    finally:
        objects_room._stores.drop(place.url)


def run(short: bool) -> Section:
    total = 1_000_000 if short else 50_000_000
    queries = 1 if short else 5
    section = Section(
        "Cold reads",
        f"{total:,} events of five doubles and a time, no codec, an index on each attribute; "
        f"{queries} random queries each, in the median; every plan's rows are those of the replay.",
    )
    base = os.environ.get("CHRONICLE_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=base) as directory:
        bed = Bed(Path(directory) / "store", total)
        try:
            for symbols, special, bar in SETTINGS:
                _disk(bed, section, symbols, special, bar, queries)
            with late_objects(Path(directory) / "objects") as place:
                _moved(bed, place)
                _aggregate(bed, section, place)
                for symbols, special, _ in SETTINGS:
                    _objects(bed, section, place, symbols, special, queries)
        finally:
            bed.close()
    return section


@dataclass
class _Side:
    strategy: str
    milliseconds: list[float] = field(default_factory=list)
    processors: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    left: list[float] = field(default_factory=list)

    def run(self, bed: Bed, text: str, place: _Late | None) -> pa.Table:
        self.left.append(bed.drop())
        asked, fetched = 0 if place is None else place.requests, cache.fetched
        begun = time.process_time()
        found = bed.run(text, self.strategy)
        self.processors.append(1000 * (time.process_time() - begun))
        self.milliseconds.append(found.total)
        self.requests.append(0 if place is None else place.requests - asked)
        self.bytes.append(cache.fetched - fetched)
        return found.rows


def _compared(
    bed: Bed, symbols: int, special: str, queries: int, place: _Late | None = None
) -> tuple[_Side, _Side, float, str]:
    rng = np.random.default_rng(symbols)
    ours, theirs = _Side("auto"), _Side("replay")
    for number in range(queries):
        text = random_query(symbols, rng, special)
        if not number:
            bed.run(text, "auto")
        if not ours.run(bed, text, place).equals(theirs.run(bed, text, place)):
            raise AssertionError(f"rows differ from those of a replay: {text}")
    ratio = _ratio(ours.milliseconds, theirs.milliseconds)
    told = (
        f"m = {symbols}, {special.upper()}: {statistics.median(ours.processors):.0f} ms of "
        f"processors against {statistics.median(theirs.processors):.0f} ms, "
        f"{_ratio(ours.processors, theirs.processors):.1f}x (in the median of each)."
    )
    return ours, theirs, ratio, told


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def _disk(
    bed: Bed, section: Section, symbols: int, special: str, bar: float | None, queries: int
) -> None:
    ours, theirs, ratio, told = _compared(bed, symbols, special, queries)
    section.rows.append(
        Row(
            f"disk, empty page cache, m = {symbols}, {special.upper()}, auto; peer: replay",
            f"{statistics.median(ours.milliseconds):.0f} ms",
            f"{statistics.median(theirs.milliseconds):.0f} ms",
            f"{ratio:.1f}x",
            "" if bar is None else f"at least {bar:.0f}x",
            None if bar is None else ratio >= bar,
        )
    )
    section.notes.append(
        f"Disk, {told} Before each run the store was closed, synced and dropped from the page "
        f"cache (fadvise); at most {max(ours.left + theirs.left):.1%} of its bytes were still "
        "there. A disk below the system may have caches of its own."
    )


def _moved(bed: Bed, place: ObjectStore) -> None:
    bed.close()
    with Store.open(bed.directory, "rw") as store:
        store.stream("s").move(place, "bench", bed.total + 1)  # type: ignore[union-attr]
    bed.open()


def _aggregate(bed: Bed, section: Section, place: _Late) -> None:
    bed.drop()
    state = bed.snapshot.state
    stored = sum(view.length for view in state.segments)
    before, asked = cache.fetched, place.requests
    begun = time.perf_counter()
    bed.snapshot.aggregate(["a5"], bed.total // 100 + 7, bed.total - bed.total // 100 - 7)
    spent = (time.perf_counter() - begun) * 1000
    part = (cache.fetched - before) / stored
    section.rows.append(
        Row(
            "objects, sum of A5 over 98 % of the time; peer: all bytes",
            f"{cache.fetched - before:,} bytes, {place.requests - asked} requests, {spent:.0f} ms",
            f"{stored:,} bytes",
            f"{part:.3%}",
            f"below {BYTES_BAR:.0%}",
            part < BYTES_BAR,
        )
    )


def _objects(
    bed: Bed, section: Section, place: _Late, symbols: int, special: str, queries: int
) -> None:
    ours, theirs, ratio, told = _compared(bed, symbols, special, queries, place)
    section.rows.append(
        Row(
            f"objects, {1000 * LATE_SECONDS:.0f} ms a request, m = {symbols}, {special.upper()}, "
            "auto; peer: replay",
            f"{statistics.median(ours.milliseconds):.0f} ms "
            f"({statistics.median(ours.requests):.0f} requests, "
            f"{statistics.median(ours.bytes) / 1e6:.1f} MB)",
            f"{statistics.median(theirs.milliseconds):.0f} ms",
            f"{ratio:.1f}x",
            f"at least {OBJECTS_BAR:.0f}x" if (symbols, special) == (8, "a5") else "",
            ratio >= OBJECTS_BAR if (symbols, special) == (8, "a5") else None,
        )
    )
    section.notes.append(f"Objects, {told}")
