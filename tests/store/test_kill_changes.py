"""Processes that are really killed: one changes a stream in all ways and moves it, one restores."""

from __future__ import annotations

import os
import random
import shutil
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

from chronicle.errors import NotAStore
from chronicle.schema import StreamSchema
from chronicle.store.backup import restore_store
from chronicle.store.deleting import Choice
from chronicle.store.object_store import object_store
from chronicle.store.options import StreamOptions
from chronicle.store.schema_change import rename_attribute
from chronicle.store.segment import TICK_MAX
from chronicle.store.snapshot import Snapshot
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.store.stream import EventStream, StreamReader

SCHEMA = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64()), ("v", pa.int64())]), "t")
OPTIONS = StreamOptions(
    leaf_bytes=2048, segment_bytes=16 << 10, late_events_max=60, compaction="manual"
)
KILLS = 100 if os.environ.get("CHRONICLE_CRASH") == "long" else 3
KILLS = int(os.environ.get("KILLS", KILLS))

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 * KILLS)]

CHANGER = """
import os, sys
sys.path.insert(0, {folder!r})
from test_kill_changes import change
from chronicle.store.store import Store


stream = Store.open(sys.argv[1]).stream("s")
number = int(sys.argv[2])
while True:
    change(stream, number, sys.argv[3])
    os.write(1, b"%d\\n" % number)
    number += 1
"""

RESTORER = """
import os, signal, sys
from chronicle.store.object_store import object_store
from chronicle.store.backup import restore_store

left = int(sys.argv[3])

def kill(event, _):
    global left
    if event in ("open", "os.mkdir", "os.rename", "os.remove"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

objects = object_store(sys.argv[1])
sys.addaudithook(kill)
restore_store(objects, sys.argv[2])
"""

KINDS = 8
OWNER = "kills"

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


def change(stream: EventStream, number: int, objects: str) -> None:
    """The change of that number, as :meth:`Model.change` has it."""
    kind = number % KINDS
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
    elif kind == 6:
        replace_range(stream, number)
    else:
        stream.move(object_store(objects), OWNER, number * 20 - 300)


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
        number, kind = self.number, self.number % KINDS
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

    def holds(self, stream: EventStream | StreamReader) -> bool:
        if stream.schema.names != ["t", "n", self.column]:
            return False
        found = pa.Table.from_batches(stream.snapshot().scan(), schema=stream.schema.arrow)
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return rows == sorted(self.rows, key=lambda row: row[0])


def killed(script: str, *arguments: str, changes: int, after: float) -> int:
    """The last change that a process acknowledged before it was killed, after so many of them."""
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(changes)]
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    return int(lines[-1])


def test_kill_minus_nine_among_changes(tmp_path: Path) -> None:
    """What was acknowledged is there, and of the change that was under way all or nothing."""
    rng = random.Random(7)
    path, objects = tmp_path / "store", f"file://{tmp_path}/objects"
    with Store.open(path) as store:
        store.create_stream("s", SCHEMA, OPTIONS)
    model = Model()
    script = CHANGER.format(folder=os.path.dirname(__file__))
    cut_short = 0
    for kill in range(KILLS):
        changes, after = rng.randrange(2, 40), rng.random() * 0.02
        arguments = (str(path), str(model.number), objects)
        acknowledged = killed(script, *arguments, changes=changes, after=after)
        while model.number <= acknowledged:
            model.change()
        with Store.open(path) as store:
            stream = store.stream("s")
            assert isinstance(stream, EventStream)
            report = store.check()
            assert report.ok, report.problems
            if not model.holds(stream):
                model.change()
                assert model.holds(stream)
            # what a restore begins with: everything, as it is now
            stream.compact()
            stream.seal()
            stream.move(object_store(objects), OWNER, TICK_MAX)
            kept = [key for key in object_store(objects).list("") if key.endswith(".seg")]
            assert len(kept) == len(stream.commits.manifest.segments)
        target = tmp_path / f"restored-{kill}"
        steps = str(rng.randrange(60))  # some forty are needed
        restorer = [sys.executable, "-c", RESTORER, objects, str(target), steps]
        assert subprocess.run(restorer, check=False).returncode in (0, -signal.SIGKILL)
        try:
            with Store.open(target, "r") as restored:
                found = restored.streams()
        except NotAStore:  # it had not come so far
            cut_short += 1
            shutil.rmtree(target, ignore_errors=True)
            restore_store(object_store(objects), target)
        else:
            assert found == ["s"]
        with Store.open(target, "r") as restored:
            assert restored.check().ok
            assert model.holds(restored.stream("s"))
        shutil.rmtree(target)
    assert model.number > KILLS
    if KILLS > 50:
        assert 0 < cut_short < KILLS
