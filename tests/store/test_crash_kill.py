"""A writer process that is really killed, again and again, with a reader beside it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from chronicle.errors import StreamNotFound
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.snapshot import Snapshot
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.patience import wait_until

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("s", pa.string())]), "t")
OPTIONS = StreamOptions(leaf_bytes=4096, segment_bytes=64 << 10, late_events_max=300)
LONG = os.environ.get("CHRONICLE_CRASH") == "long"

pytestmark = pytest.mark.crash

WRITER = """
import os, sys
sys.path.insert(0, {folder!r})
from test_crash_kill import OPTIONS, SCHEMA, batch_of
from chronicle.store.store import Store

store = Store.open(sys.argv[1])
stream = store.create_stream("s", SCHEMA, OPTIONS, if_not_exists=True)
number = int(sys.argv[2])
while True:
    stream.append(batch_of(number))
    os.write(1, b"%d\\n" % number)
    number += 1
    if number % 23 == 0:
        stream.seal()
    if number % 37 == 0:
        stream.compact()
"""


def size_of(number: int) -> int:
    return (1, 1, 3, 40, 900)[number % 5]


def batch_of(number: int) -> pa.RecordBatch:
    """Append ``number``: some events in order, every third append with late ones among them."""
    count = size_of(number)
    late = 400 if number % 3 == 0 else 0
    times = [number * 10 + i % 10 - (late if i % 2 else 0) for i in range(count)]
    events = [number * 1000 + i for i in range(count)]
    return pa.RecordBatch.from_arrays(
        [pa.array(times, pa.int64()), pa.array(events), pa.array([f"k{e % 6}" for e in events])],
        schema=SCHEMA.arrow,
    )


def appends_in(snapshot: Snapshot) -> int:
    """How many appends a snapshot holds: the first so many, each of them whole, in time order."""
    table = pa.Table.from_batches(snapshot.scan(), schema=SCHEMA.arrow)
    times = table["t"].to_pylist()
    assert times == sorted(times)
    found = sorted(table["n"].to_pylist())
    number = 0
    expected: list[int] = []
    while len(expected) < len(found):
        expected += range(number * 1000, number * 1000 + size_of(number))
        number += 1
    assert found == expected, "an append is there in part, or one before it is missing"
    assert snapshot.aggregate(["n"]).count == len(found)
    return number


def test_kill_minus_nine(tmp_path: Path) -> None:
    """Every acknowledged append is there after SIGKILL, and no reader ever sees half of one."""
    rng = random.Random(11)
    path = tmp_path / "store"
    number = 0
    failures: list[BaseException] = []
    done = threading.Event()
    looks = [0]

    def watch() -> None:
        seen = 0
        while not done.is_set():
            try:
                with Store.open(path, "r") as store:
                    count = appends_in(store.stream("s").snapshot())
                assert count >= seen, "a reader saw the stream shrink"
                seen = count
                looks[0] += 1
            except StreamNotFound:
                pass
            except BaseException as error:
                failures.append(error)
                return
            time.sleep(0.01)

    Store.open(path).close()
    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for _ in range(25 if LONG else 3):
            script = WRITER.format(folder=os.path.dirname(__file__))
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(path), str(number)], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(rng.randrange(1, 100))]
            seen = looks[0]
            wait_until(lambda seen=seen: looks[0] > seen + 1 or failures)
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines()
            process.wait()
            process.stdout.close()
            acknowledged = int(lines[-1]) + 1
            with Store.open(path) as store:
                stream = store.stream("s")
                assert isinstance(stream, EventStream)
                found = appends_in(stream.snapshot())
                assert found in (acknowledged, acknowledged + 1)
                report = store.check()
                assert report.ok, report.problems
            number = found
    finally:
        done.set()
        reader.join()
    assert not failures, failures[0]
    assert number > 10
