"""A process that is really killed while it deletes, updates, replaces, compacts and renames."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chronicle.schema import StreamSchema
from chronicle.store import EventStream, Snapshot, Store, StreamOptions
from chronicle.store.deleting import Choice
from chronicle.store.schema_change import rename_attribute
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("v", pa.int64())]), "t")
OPTIONS = StreamOptions(
    leaf_bytes=2048, segment_bytes=16 << 10, late_events_max=60, compaction="manual"
)
KILLS = 100 if os.environ.get("CHRONICLE_CRASH") == "long" else 3
KILLS = int(os.environ.get("KILLS", KILLS))

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60 * KILLS)]

CHANGER = """
import os, sys
sys.path.insert(0, {folder!r})
from test_kill_changes import change
from chronicle.store import Store, rewriting

rewriting.SMALL_BYTES = 0  # in threads

stream = Store.open(sys.argv[1]).stream("s")
number = int(sys.argv[2])
while True:
    change(stream, number)
    os.write(1, b"%d\\n" % number)
    number += 1
"""

Row = tuple[int, int, int]


def new_rows(number: int) -> list[Row]:
    """Some in order, some late."""
    begin = number * 20
    return [(begin + i % 40 - (150 if i % 9 == 0 else 0), number * 1000 + i, i) for i in range(250)]


def choice(modulus: int, rest: int) -> Choice:
    def choose(snapshot: Snapshot) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for batch in snapshot.scan(columns=["t", "n"]):
            yield batch.column(0).to_numpy(), batch.column(1).to_numpy() % modulus == rest

    return choose


def change(stream: EventStream, number: int) -> None:
    """The change of that number, as :meth:`Model.change` has it."""
    kind = number % 7
    if kind == 0:
        arrays = [pa.array(column, pa.int64()) for column in zip(*new_rows(number), strict=True)]
        stream.append(pa.RecordBatch.from_arrays(arrays, schema=stream.schema.arrow))
    elif kind == 1:
        stream.delete(choose=choice(11, number % 11))
    elif kind == 2:
        name = stream.schema.names[2]

        def increase(events: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_pydict({name: pc.add(events.column(2), 1)})

        stream.update(None, None, choice(5, number % 5), increase)
    elif kind == 3:
        stream.alter(rename_attribute, stream.schema.names[2], f"v{number}")
    elif kind == 4:
        stream.compact()
    elif kind == 5:
        stream.delete(number * 20 - 900, number * 20 - 700)
    else:
        replace_range(stream, number)


def replacement(number: int) -> tuple[int, int, list[Row]]:
    """A range, both ends inclusive, and what takes its place."""
    first = number * 20 - 600
    return first, first + 250, [(first + i, number * 1000 + i, i) for i in range(250)]


def replace_range(stream: EventStream, number: int) -> None:
    first, last, rows = replacement(number)
    job = new_job()
    plan = StagingPlan(stream.directory, job, stream.schema, stream.options, stream.layout)
    prepare_staging(stream.files, plan)
    arrays = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=stream.schema.arrow)
    staged = stage(stream.files, plan, 0, [iter([batch])])
    commit_staged(stream, job, staged, over=(first, last))


class Model:
    """What the stream holds after so many changes."""

    def __init__(self) -> None:
        self.number = 0
        self.rows: list[Row] = []
        self.column = "v"

    def change(self) -> None:
        number, kind = self.number, self.number % 7
        if kind == 0:
            self.rows += sorted(new_rows(number), key=lambda row: row[0])
        elif kind == 1:
            self.rows = [row for row in self.rows if row[1] % 11 != number % 11]
        elif kind == 2:
            self.rows = [
                (t, n, v + 1) if n % 5 == number % 5 else (t, n, v) for t, n, v in self.rows
            ]
        elif kind == 3:
            self.column = f"v{number}"
        elif kind == 5:
            low, high = number * 20 - 900, number * 20 - 700
            self.rows = [row for row in self.rows if not low <= row[0] < high]
        elif kind == 6:
            first, last, rows = replacement(number)
            self.rows = [row for row in self.rows if not first <= row[0] <= last] + rows
        self.number += 1

    def holds(self, stream: EventStream) -> bool:
        if stream.schema.names != ["t", "n", self.column]:
            return False
        found = pa.Table.from_batches(stream.snapshot().scan(), schema=stream.schema.arrow)
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return rows == sorted(self.rows, key=lambda row: row[0])


def test_kill_minus_nine_among_changes(tmp_path: Path) -> None:
    """What was acknowledged is there, and of the change that was under way all or nothing."""
    rng = random.Random(7)
    path = tmp_path / "store"
    with Store.open(path) as store:
        store.create_stream("s", SCHEMA, OPTIONS)
    model = Model()
    script = CHANGER.format(folder=os.path.dirname(__file__))
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(model.number)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        lines = [first, *process.stdout.read().splitlines()]
        process.wait()
        process.stdout.close()
        while model.number <= int(lines[-1]):
            model.change()
        with Store.open(path) as store:
            stream = store.stream("s")
            assert isinstance(stream, EventStream)
            report = store.check()
            assert report.ok, report.problems
            if not model.holds(stream):
                model.change()
                assert model.holds(stream)
    assert model.number > KILLS
