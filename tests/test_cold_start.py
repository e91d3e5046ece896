"""Many threads at once from the first moment of a fresh process: no raw error, no wrong count.

``make nightly`` runs it with other seeds each time, for as long as ``CHRONICLE_STRESS_SECONDS``
says; a seed that fails is given in the message (``python tests/cold_start.py DIRECTORY SEED 10``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import StreamNotFound
from chronicle.indexes.stream_indexes import StreamIndexes

from .patience import wait_for_indexes
from .rounds import rounds

SECONDS = float(os.environ.get("CHRONICLE_STRESS_SECONDS", "0"))
SEED = int(os.environ.get("CHRONICLE_SEED", str(time.time_ns() % 1_000_000 if SECONDS else 0)))
SCRIPT = Path(__file__).with_name("cold_start.py")


def stress(place: Path, seed: int, seconds: float) -> None:
    """One process of :mod:`cold_start`."""
    place.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(place), str(seed), str(seconds)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"


@pytest.mark.parametrize("first", ["pattern", "matched", "window", "filtered", "index"])
def test_threads_that_begin_together_in_a_fresh_process(tmp_path: Path, first: str) -> None:
    names = ["pattern", "matched", "window", "filtered", "index"]
    stress(tmp_path / first, names.index(first), 0.75)


@pytest.mark.skipif(not SECONDS, reason="CHRONICLE_STRESS_SECONDS says for how long")
def test_fresh_processes_for_a_long_time(tmp_path: Path) -> None:
    until, seed = time.monotonic() + SECONDS, SEED
    while time.monotonic() < until:
        stress(tmp_path / str(seed), seed, 10)
        seed += 1


def test_several_threads_forget_the_same_segments(tmp_path: Path) -> None:
    """As a transaction's commit and the thread that builds indexes do."""
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
    with chronicle.open(tmp_path / "s") as database:
        stream = database.create_stream(
            "s", schema, "t", options={"leaf_bytes": 1 << 12, "segment_bytes": 1 << 13}
        )
        for start in range(0, 20_000, 2_000):
            t = range(start, start + 2_000)
            stream.append(pa.table({"t": t, "x": t}, schema=schema))
        stream.create_index("x")
        wait_for_indexes(database)
        indexes: StreamIndexes = catalog_of(database).indexes_of("s")
        full = stream.snapshot().state
        empty = database.create_stream("empty", schema, "t").snapshot().state
        errors: list[BaseException] = []

        def forget() -> None:
            try:
                indexes.forget(empty)
            except BaseException as error:
                errors.append(error)

        assert len(indexes._runs) > 3
        threads = [threading.Thread(target=forget) for _ in range(8)]
        with indexes._build_lock:  # all of them see what there is to forget
            for thread in threads:
                thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        assert errors == []
        assert not indexes._runs
        indexes.catch_up(full)
        assert indexes.verify(full) == []


def test_a_stream_that_is_dropped_takes_its_indexes_with_it(tmp_path: Path) -> None:
    """A stream of the same name, made at once, does not find the runs of the one before."""
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
    wrong: list[object] = []
    with chronicle.open(tmp_path / "s") as database:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                try:
                    catalog_of(database).create_index("s", "x", wait=False)
                except chronicle.errors.ChronicleError:
                    pass
                except BaseException as error:
                    wrong.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        for value in range(rounds(4, 8)):
            options = {"leaf_bytes": 1 << 12}
            stream = database.create_stream("s", schema, "t", options=options)
            x = [value if i % 500 == 0 else -1 for i in range(5_000)]
            stream.append(pa.table({"t": range(5_000), "x": x}, schema=schema))
            for other in range(max(0, value - 2), value + 2):
                text = f"SELECT count(*) FROM s WHERE x = {other}"
                ((found,),) = database.sql(text).fetchall()
                if found != (10 if other == value else 0):
                    wrong.append((value, other, found))
            database.drop_stream("s")
        stop.set()
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("made_again", [False, True])
def test_an_index_on_a_stream_that_is_dropped_while_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_again: bool
) -> None:
    """Its definition went to the next stream of that name, or nowhere: a failure of the disk."""
    schema = pa.schema([("t", pa.int64()), ("x", pa.int64())])
    build = StreamIndexes.catch_up

    def dropped(self: StreamIndexes, *arguments: object) -> None:
        monkeypatch.setattr(StreamIndexes, "catch_up", build)
        database.drop_stream("s")
        if made_again:
            database.create_stream("s", schema, "t")

    with chronicle.open(tmp_path / "s") as database:
        database.create_stream("s", schema, "t")
        monkeypatch.setattr(StreamIndexes, "catch_up", dropped)
        with pytest.raises(StreamNotFound, match="dropped meanwhile"):
            catalog_of(database).create_index("s", "x")
        assert database.streams() == ["s"] * made_again
    assert not list(tmp_path.rglob("definitions"))
