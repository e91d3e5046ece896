"""Cold reads: patterns and aggregates when nothing is in memory, from a disk and from objects.

Purpose
    The thesis's synthetic stream (:mod:`.pattern_stream`) with an index on each attribute, on a
    disk whose page cache is empty, and with its segments in objects that answer each request 20 ms
    late.  Patterns through indexes against a full replay under the same conditions, and an
    aggregate by the bytes that it asks for.

Guarantee
    The rows of every plan are compared with those of a replay of the same query.

Limits
    The objects are files of another directory, read through :class:`_Late`, which waits before
    each request and counts; how many bytes a second a network would bring is left out, which is in
    favour of whoever reads more.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..store import Store
from ..store import object_store as objects_room
from ..store.cold_file import cache
from ..store.object_store import ObjectStore
from .harness import Row, Section
from .pattern_stream import Bed, random_query

__all__ = ["run"]

LATE_SECONDS = 0.020
SETTINGS = ((8, "a5", 5.0), (16, "a5", None), (8, "a2", None))
"""Symbols, the attribute of one of them, and how many times a replay is asked for on a disk."""
OBJECTS_BAR = 20.0
BYTES_BAR = 0.01


class _Late(ObjectStore):
    """A place of objects that answers late, and counts what it is asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests = 0
        self._counting = threading.Lock()

    def read(self, key: str, offset: int, length: int) -> bytes:
        """As :meth:`ObjectStore.read`, later."""
        with self._counting:
            self.requests += 1
        time.sleep(LATE_SECONDS)
        return super().read(key, offset, length)


@contextmanager
def _late(directory: Path) -> Iterator[_Late]:
    """Objects in a directory, for everybody in this process who asks for its address."""
    place = _Late(f"file://{directory}")
    objects_room._stores.put(place.url, place)
    try:
        yield place
    finally:
        objects_room._stores.drop(place.url)


def run(short: bool) -> Section:
    """Measure; a million events when short, else 50 millions."""
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
            with _late(Path(directory) / "objects") as place:
                _moved(bed, place)
                _aggregate(bed, section, place)
                for symbols, special, _ in SETTINGS:
                    _objects(bed, section, place, symbols, special, queries)
        finally:
            bed.close()
    return section


def _disk(
    bed: Bed, section: Section, symbols: int, special: str, bar: float | None, queries: int
) -> None:
    rng = np.random.default_rng(symbols)
    ours, theirs, left = [], [], []
    for _ in range(queries):
        text = random_query(symbols, rng, special)
        planned, rest = bed.cold(text, "auto")
        replayed, more = bed.cold(text, "replay")
        if not planned.rows.equals(replayed.rows):
            raise AssertionError(f"rows differ from those of a replay: {text}")
        ours.append(planned.total)
        theirs.append(replayed.total)
        left += [rest, more]
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    section.rows.append(
        Row(
            f"disk, empty page cache, m = {symbols}, {special.upper()}, auto; peer: replay",
            f"{statistics.median(ours):.0f} ms",
            f"{statistics.median(theirs):.0f} ms",
            f"{ratio:.1f}x",
            "" if bar is None else f"at least {bar:.0f}x",
            None if bar is None else ratio >= bar,
        )
    )
    section.notes.append(
        f"Disk, m = {symbols}, {special.upper()}: before each run the store was closed, synced and "
        f"dropped from the page cache (fadvise); at most {max(left):.1%} of its bytes were still "
        "there. A disk below the system may have caches of its own."
    )


def _moved(bed: Bed, place: ObjectStore) -> None:
    """Have all segments in objects."""
    bed.close()
    with Store.open(bed.directory, "rw") as store:
        store.stream("s").move(place, "bench", bed.total + 1)  # type: ignore[union-attr]
    bed.open()


def _aggregate(bed: Bed, section: Section, place: _Late) -> None:
    """An aggregate over nearly everything, which begins and ends within leaves."""
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
    rng = np.random.default_rng(symbols)
    ours, theirs, fetched, asked = [], [], [], []
    for _ in range(queries):
        text = random_query(symbols, rng, special)
        before, requests = cache.fetched, place.requests
        planned, _ = bed.cold(text, "auto")
        fetched.append(cache.fetched - before)
        asked.append(place.requests - requests)
        replayed, _ = bed.cold(text, "replay")
        if not planned.rows.equals(replayed.rows):
            raise AssertionError(f"rows differ from those of a replay: {text}")
        ours.append(planned.total)
        theirs.append(replayed.total)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    section.rows.append(
        Row(
            f"objects, {1000 * LATE_SECONDS:.0f} ms a request, m = {symbols}, {special.upper()}, "
            "auto; peer: replay",
            f"{statistics.median(ours):.0f} ms ({statistics.median(asked):.0f} requests, "
            f"{statistics.median(fetched) / 1e6:.1f} MB)",
            f"{statistics.median(theirs):.0f} ms",
            f"{ratio:.1f}x",
            f"at least {OBJECTS_BAR:.0f}x" if (symbols, special) == (8, "a5") else "",
            ratio >= OBJECTS_BAR if (symbols, special) == (8, "a5") else None,
        )
    )
