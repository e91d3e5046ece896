"""Hot queries while segments move to objects, or while patterns read them there.

The objects are files behind ``cold.LATE_SECONDS``, so a move also writes to the queries' disk.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from ..store.cold_file import cache, cold_segments
from ..store.object_store import ObjectStore
from ..store.options import StreamOptions
from ..store.store import Store
from ..store.stream import EventStream
from .cold import late_objects
from .harness import Row, Section, paired
from .pattern_stream import SCHEMA, events

BAR = 0.9


def run(short: bool) -> Section:
    total, queries, size = (2_000_000, 20, 1 << 19) if short else (30_000_000, 2000, 16 << 20)
    section = Section(
        "Hot queries beside cold work",
        f"{total:,} events of five doubles and a time, segments of {size >> 10} KiB; "
        f"{queries} sums and scans of the last 200,000 events, in this process.",
    )
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("CHRONICLE_BENCH_DIR")) as directory,
        Store.open(Path(directory) / "store") as store,
        late_objects(Path(directory) / "objects") as place,
    ):
        stream = store.create_stream("s", SCHEMA, StreamOptions(codec="none", segment_bytes=size))
        rng = np.random.default_rng(7)
        for first in range(0, total, 1 << 19):
            stream.append(events(first, min(total, first + (1 << 19)), total, rng))
        stream.seal()
        hot = partial(_hot, stream, total, queries)
        for what, work in (("moving", _moving), ("cold reads", _reading)):
            beside, alone, ratio = paired(
                partial(work, stream, place, total, hot), hot, 2 if short else 7
            )
            section.rows.append(
                Row(
                    f"hot queries beside {what}; peer: beside nothing",
                    f"{1000 * beside / queries:.2f} ms",
                    f"{1000 * alone / queries:.2f} ms",
                    f"{ratio:.2f}x",
                    f"at least {BAR}x",
                    ratio >= BAR,
                )
            )
    return section


def _hot(stream: EventStream, total: int, queries: int) -> float:
    begun = time.perf_counter()
    snapshot = stream.snapshot()
    for number in range(queries):
        first = total - 200_000 + 900 * (number % 200)
        assert snapshot.aggregate(["a5"], first, total - 7).count > 0
        found = sum(batch.num_rows for batch in snapshot.scan(first, first + 5000, ["t", "a5"]))
        assert found == 5000
    return time.perf_counter() - begun


@contextmanager
def _beside(step: Callable[[], object]) -> Iterator[None]:
    ended, begun = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not ended.is_set():
                begun.set()
                step()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        alive = thread.is_alive()
        ended.set()
        thread.join()
    if failed or not alive:
        raise AssertionError("the work beside the queries ended before they did") from (
            failed[0] if failed else None
        )


def _moving(stream: EventStream, place: ObjectStore, total: int, hot: Callable[[], float]) -> float:
    recent = total - 400_000

    def step() -> None:
        cold = cold_segments(stream.files, stream.directory)
        local = (each for each in stream.commits.manifest.segments if each.file not in cold)
        before = min(next(local).last + 1, recent)
        if not stream.move(place, "bench", before).segments:
            raise AssertionError("there was nothing left to move; take more events")

    with _beside(step):
        return hot()


def _reading(
    stream: EventStream, place: ObjectStore, total: int, hot: Callable[[], float]
) -> float:
    stream.move(place, "bench", total - 400_000)
    rng, limit = np.random.default_rng(1), cache.limit
    cache.limit = 1 << 20

    def step() -> None:
        first = int(rng.integers(0, total - 500_000))
        for batch in stream.snapshot().scan(first, first + 20_000, ["t", "a5"]):
            batch.num_rows  # noqa: B018

    try:
        with _beside(step):
            return hot()
    finally:
        cache.limit = limit
