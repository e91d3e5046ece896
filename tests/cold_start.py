"""One fresh process in which many threads do everything at once, from its first moment on.

Run by ``test_cold_start.py``; by hand: ``python tests/cold_start.py DIRECTORY SEED SECONDS``.
It prints what went wrong, a traceback each, and ends with 1 if anything did.  Errors that say what
another thread has just done (a stream that is gone) are right; all others, and wrong counts, are
not.
"""

from __future__ import annotations

import collections
import faulthandler
import random
import shutil
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import (
    IndexExists,
    IndexNotFound,
    InvalidArgument,
    ReadOnlyStore,
    SchemaMismatch,
    SqlError,
    StoreClosed,
    StreamExists,
    StreamNotFound,
)
from chronicle.tests.patience import PATIENCE_S

THREADS = 10
BLOCK = 1_000
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.int64())])
OPTIONS = {"leaf_bytes": 1 << 12, "segment_bytes": 1 << 15, "late_events_max": 500}
NAMES = ("a", "b", "c")

EXPECTED = (StreamNotFound, StreamExists, StoreClosed, IndexExists, IndexNotFound)
"""What another thread's change makes of a call."""

PATTERN = (
    "SELECT * FROM {} MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS t, B.x AS x PATTERN (A B) "
    "WITHIN 50 DEFINE A AS x = 7, B AS x = 8)"
)


def block_of(number: int) -> pa.Table:
    """Events of one append: each value of x once."""
    t = range(number * BLOCK, (number + 1) * BLOCK)
    columns = {"t": t, "k": [f"k{i % 7}" for i in t], "x": [i % BLOCK for i in t]}
    return pa.table(columns, schema=SCHEMA)


class World:
    """A store, and what threads do to it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        self.database = chronicle.open(path / "store")
        self.reader: Any = None
        self.guard = threading.Lock()
        self.blocks = collections.Counter[str]()
        self.done = collections.Counter[str]()
        self.failures: list[str] = []
        self.steady = self.database.create_stream("steady", SCHEMA, "t", options=OPTIONS)
        self.steady.append(block_of(0))
        self.steady_blocks = 1

    # -- actions ------------------------------------------------------------------------------

    def create(self, name: str) -> None:
        self.database.create_stream(name, SCHEMA, "t", options=OPTIONS, if_not_exists=True)

    def append(self, name: str) -> None:
        with self.guard:
            number = self.blocks[name] = self.blocks[name] + 1
        self.database.stream(name).append(block_of(number))

    def append_steady(self, _: str) -> None:
        with self.guard:  # in order, so that the count is known
            self.steady.append(block_of(self.steady_blocks))
            self.steady_blocks += 1

    def late(self, name: str) -> None:
        self.database.stream(name).append(block_of(0).slice(0, 50))

    def index(self, name: str) -> None:
        attribute, wait = random.choice(["x", "k", "t"]), random.random() < 0.5
        catalog_of(self.database).create_index(name, attribute, wait=wait)

    def unindex(self, name: str) -> None:
        catalog_of(self.database).drop_index(name, random.choice(["x", "k", "t"]))

    def drop(self, name: str) -> None:
        self.database.drop_stream(name)

    def compact(self, name: str) -> None:
        self.database.stream(name).compact()

    def show(self, name: str) -> None:
        self.database.sql("SHOW STREAMS").fetchall()
        self.database.sql("SHOW INDEXES").fetchall()
        stream = self.database.stream(name)
        stream.stats(), stream.indexes(), stream.count

    def scan(self, name: str) -> None:
        self.database.sql(f"SELECT k, avg(x) FROM {name} GROUP BY k").fetchall()

    def window(self, name: str) -> None:
        text = f"SELECT window_start, max(x) FROM HOP({name}, t, 100, 300) GROUP BY window_start"
        self.database.sql(text).fetchall()

    def pattern(self, name: str) -> None:
        self.database.sql(PATTERN.format(name)).fetchall()

    def explain(self, name: str) -> None:
        str(self.database.explain(PATTERN.format(name), analyze=random.random() < 0.5))

    def scan_python(self, name: str) -> None:
        for _ in self.database.stream(name).scan():
            pass

    def aggregate(self, name: str) -> None:
        self.database.stream(name).aggregate({"x": ["min", "max", "sum"]})

    def filtered(self, _: str) -> None:
        low = self.steady_blocks
        rows = self.database.sql("SELECT t FROM steady WHERE x = 7 ORDER BY t").fetchall()
        self.between(low, len(rows))

    def matched(self, _: str) -> None:
        low = self.steady_blocks
        hint = random.choice(["", "/*+ strategy(all) */", "/*+ strategy(replay) */"])
        text = PATTERN.format("steady").replace("SELECT", f"SELECT {hint}", 1)
        self.between(low, len(self.database.sql(text).fetchall()))

    def steady_index(self, _: str) -> None:
        self.index("steady") if random.random() < 0.6 else self.unindex("steady")

    def between(self, low: int, found: int) -> None:
        high = self.steady_blocks + 1  # one append may be committed and not counted yet
        if not low <= found <= high:
            raise AssertionError(f"found {found} of {low} to {high}")

    def backup(self, _: str) -> None:
        copy = self.path / f"copy-{threading.get_ident()}"
        shutil.rmtree(copy, ignore_errors=True)
        self.database.backup(copy)
        with chronicle.open(copy, "r") as database:
            rows = database.sql("SELECT count(*), max(t) FROM steady").fetchall()
            assert rows[0][1] == rows[0][0] - 1, rows

    def check(self, _: str) -> None:
        report = self.database.check()
        wrong = [str(problem) for problem in report.problems if problem.stream == "steady"]
        assert not wrong, wrong

    def read(self, _: str) -> None:
        with chronicle.open(self.path / "store", "r") as reader:
            low = self.steady_blocks
            rows = reader.sql("SELECT t FROM steady WHERE x = 7").fetchall()
            self.between(low, len(rows))

    def reading_refuses(self, name: str) -> None:
        with chronicle.open(self.path / "store", "r") as reader:
            try:
                reader.sql(f"DROP STREAM {name}")
            except ReadOnlyStore:
                return
            raise AssertionError("a reader has dropped a stream")

    # -- threads ------------------------------------------------------------------------------

    ACTIONS = (
        *(create, append, append, append_steady, late, index, unindex, drop, compact, show, scan),
        *(window, pattern, explain, scan_python, aggregate, filtered, matched, steady_index),
        *(backup, check, read, reading_refuses),
    )

    def work(self, number: int, barrier: threading.Barrier, until: list[float]) -> None:
        """Actions one after the other; the first ones are the same in all threads, cold."""
        choice = random.Random(self.seed * 1_000 + number)
        first = (World.pattern, World.matched, World.window, World.filtered, World.index)
        barrier.wait()
        self.attempt(first[self.seed % len(first)], "steady")
        while time.monotonic() < until[0]:
            self.attempt(choice.choice(self.ACTIONS), choice.choice(NAMES))

    def attempt(self, action: Any, name: str) -> None:
        """One action, whose failure is noted."""
        try:
            action(self, name)
            self.done[action.__name__] += 1
        except EXPECTED:
            pass
        except (SqlError, InvalidArgument, SchemaMismatch) as error:
            if "no stream" not in str(error):
                self.failures.append(f"{action.__name__} {name}: {traceback.format_exc()}")
        except BaseException:
            self.failures.append(f"{action.__name__} {name}: {traceback.format_exc()}")


def main(path: Path, seed: int, seconds: float) -> int:
    """Run one process; gives its exit code."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + PATIENCE_S, exit=True)  # a deadlock is shown
    warnings.simplefilter("error")
    random.seed(seed)
    world = World(path, seed)
    threading.excepthook = lambda told: world.failures.append(
        "".join(traceback.format_exception(told.exc_type, told.exc_value, told.exc_traceback))
    )
    barrier = threading.Barrier(THREADS)
    until = [time.monotonic() + seconds]
    threads = [
        threading.Thread(target=world.work, args=(number, barrier, until))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = world.steady_blocks * BLOCK
    if world.steady.count != expected:
        world.failures.append(f"steady has {world.steady.count} events, not {expected}")
    world.database.close()
    with chronicle.open(path / "store") as database:
        if database.stream("steady").count != expected:
            world.failures.append("events are gone after opening again")
        world.failures += [str(problem) for problem in database.check().problems]
    print(f"seed {seed}: {sum(world.done.values())} actions, {dict(world.done)}")
    for failure in world.failures:
        print(failure)
    return int(bool(world.failures))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
