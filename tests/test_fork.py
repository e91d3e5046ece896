"""A forked child goes on with nothing that its parent opened, and never hangs."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.streams import handle_of
from chronicle.errors import StorageFailed, StoreClosed, StoreLocked
from chronicle.store.lock import ReaderLease, held_leases
from chronicle.store.staging import commit_staged

from .patience import PATIENCE_S, wait_for_indexes

LONG = os.environ.get("CHRONICLE_CRASH") == "long"
pytestmark = pytest.mark.crash
ROUNDS = 60 if LONG else 3
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.string())])


def rows(first: int, count: int = 100) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"t": list(numbers), "x": [n * 0.5 for n in numbers], "k": [f"k{n % 7}" for n in numbers]},
        schema=SCHEMA,
    )


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream(
            "s", SCHEMA, time="t", options={"leaf_bytes": 2048, "durability": "interval"}
        )
        stream.append(rows(0, 1000))
        stream.seal()
        stream.append(rows(1000))
        stream.append(rows(500, 50))
        catalog_of(database).create_index("s", "k")
        database.sql("SELECT count(*) FROM s").fetchall()
        yield database


def in_child(action: Callable[[], object]) -> str:
    """What an action does in a forked child: its outcome in words, or that it hung."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.enable(writing)
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True, file=writing)
        try:
            told = f"gave {action()!r}"
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return told if status == 0 else f"hung, or ended with status {status}: {told}"


def actions(db: Database) -> dict[str, Callable[[], object]]:
    """Everything that reads or changes, by name."""
    stream, store = db.stream("s"), catalog_of(db).store
    handle = handle_of(stream)
    snapshot = catalog_of(db).snapshot("s")
    began = stream.scan()
    began.read_next_batch()
    result = db.sql("SELECT t, x FROM s WHERE x > 1")
    reading = iter(result.batches())
    next(reading)
    return {
        "append": lambda: stream.append(rows(5000)),
        "append nothing": lambda: stream.append(rows(0, 0)),
        "append, other promise": lambda: handle.append(rows(5000), "commit"),
        "bulk append": lambda: stream.append(rows(5000, 20_000)),
        "flush": stream.flush,
        "seal": stream.seal,
        "compact": stream.compact,
        "add column": lambda: stream.add_column("y", pa.int64()),
        "commit staged": lambda: commit_staged(handle, "job", []),
        "create stream": lambda: db.create_stream("new", SCHEMA, time="t"),
        "create store stream": lambda: store.create_stream("new", handle.schema),
        "drop stream": lambda: db.drop_stream("s"),
        "drop store stream": lambda: store.drop_stream("s"),
        "create index": lambda: catalog_of(db).create_index("s", "x"),
        "drop index": lambda: catalog_of(db).drop_index("s", "k"),
        "insert": lambda: db.sql("INSERT INTO s VALUES (1, 1.0, 'a')").fetchall(),
        "repair": lambda: db.check(repair=True),
        "store repair": lambda: store.check(repair=True),
        "backup": lambda: db.backup(db.path.parent / "copy"),
        "list": db.streams,
        "count": lambda: stream.count,
        "stats": stream.stats,
        "scan": lambda: stream.scan().read_all(),
        "go on with a scan": began.read_all,
        "aggregate": lambda: stream.aggregate({"x": "sum"}),
        "query": lambda: db.sql("SELECT count(*) FROM s").fetchall(),
        "go on with a query": lambda: [batch.num_rows for batch in reading],
        "old snapshot": lambda: sum(batch.num_rows for batch in snapshot.scan()),
        "old snapshot's sums": lambda: snapshot.aggregate(["x"], 10, 700),
        "indexes": stream.indexes,
    }


def test_whatever_a_child_asks_of_its_parents_store_is_refused(db: Database) -> None:
    tried = actions(db)

    def sizes() -> dict[Path, int]:  # but for RocksDB's journal of what its threads do
        found = (p for p in db.path.rglob("*") if p.is_file() and p.name != "LOG")
        return {p: p.stat().st_size for p in found}

    files = sizes()
    for name, action in tried.items():
        told = in_child(action)
        assert told.startswith("StoreClosed: "), f"{name}: {told}"
        assert "forked" in told, f"{name}: {told}"
    assert sizes() == files
    db.stream("s").append(rows(1100))
    assert db.check().ok
    db.close()
    with chronicle.open(db.path) as again:
        assert again.stream("s").count == 1250
        assert again.check().ok


def test_a_readers_store_is_refused_too(db: Database) -> None:
    db.stream("s").flush()
    with chronicle.open(db.path, mode="r") as reader:
        stream = reader.stream("s")
        assert reader.sql("SELECT count(*) FROM s WHERE k = 'k1'").fetchall()
        for action in (
            lambda: stream.count,
            lambda: stream.scan().read_all(),
            lambda: reader.sql("SELECT count(*) FROM s").fetchall(),
        ):
            assert in_child(action).startswith("StoreClosed: ")
        assert stream.count == 1150


def holders(db: Database) -> list[Any]:
    """Locks that another thread may hold in the moment of a fork."""
    handle = handle_of(db.stream("s"))
    engine = catalog_of(db)._engine
    return [
        catalog_of(db)._guard,
        catalog_of(db).store._lock,
        handle.commits.lock,
        handle.commits._publishing,
        handle._compactor._one,
        handle.commits.log._lock,
        handle.commits.log._commit._turn,
        handle.commits.journal.tail._lock,
        *(view.file._lock for view in handle.snapshot().state.segments),
        catalog_of(db).indexes._lock,
        engine.executor._guard,
        engine._prepared._lock,
    ]


@contextmanager
def held_elsewhere(locks: list[Any]) -> Iterator[None]:
    """Have another thread hold locks."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()
        for lock in reversed(locks):
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE_S)
    try:
        yield
    finally:
        done.set()
        thread.join()


def fresh(path: Path) -> list[Any]:
    """What a child reads that opens the store itself."""
    with chronicle.open(path, mode="r") as own:
        counted = own.sql("SELECT count(*) FROM s WHERE k = 'k3'").fetchall()
        matched = own.sql(
            "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS a "
            "PATTERN (A B) DEFINE B AS x > PREV(x))"
        ).fetchall()
        windows = own.sql("SELECT count(*) FROM TUMBLE(s, t, 100)").fetchall()
        return [own.stream("s").scan().read_all().num_rows > 0, bool(counted), matched, windows]


def test_locks_that_other_threads_hold_do_not_hang_a_child(db: Database) -> None:
    db.stream("s").flush()
    tried = actions(db)
    with held_elsewhere(holders(db)):
        for name, action in {
            **tried,
            "close": db.close,
            "close store": catalog_of(db).store.close,
        }.items():
            told = in_child(action)
            refused = told.startswith("StoreClosed: ") or (told == "gave None" and "close" in name)
            assert refused, f"{name}: {told}"
        told = in_child(lambda: fresh(db.path))
        assert told.startswith("gave [True, True, "), told
        told = in_child(lambda: chronicle.open(db.path))
        assert told.startswith(StoreLocked.__name__), told


def test_a_child_reads_what_it_opens_itself_beside_a_busy_parent(db: Database) -> None:
    """Threads append, scan and query while children are forked from their midst."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def busy(work: Callable[[int], object]) -> None:
        number = 0
        try:
            while not stop.is_set():
                work(number)
                number += 1
        except BaseException as error:
            failures.append(error)

    stream = db.stream("s")
    works: list[Callable[[int], object]] = [
        lambda n: stream.append(rows(2000 + n), "commit"),
        lambda n: db.sql("SELECT k, sum(x) FROM s GROUP BY k").fetchall(),
        lambda n: stream.scan(columns=["x"]).read_all(),
    ]
    threads = [threading.Thread(target=busy, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(ROUNDS):
            told = in_child(lambda: fresh(db.path))
            assert told.startswith("gave [True, True, "), told
            assert in_child(lambda: stream.append(rows(0))).startswith("StoreClosed")
            time.sleep(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    count = stream.count
    assert db.check().ok
    db.close()
    with chronicle.open(db.path) as again:
        assert again.stream("s").count == count


PROGRAM = """
    import os, signal, sys
    import pyarrow as pa
    import chronicle
    from chronicle.tests.patience import wait_for_indexes

    db = chronicle.open(sys.argv[1])
    stream = db.create_stream("s", pa.schema([("t", pa.int64()), ("x", pa.int64())]), time="t")
    stream.append(pa.table({"t": list(range(50_000)), "x": list(range(50_000))}))
    stream.create_index("x")
    assert db.sql("SELECT sum(x) FROM s").fetchall() == [(1249975000,)]
    wait_for_indexes(db)
    before = sorted((name, os.path.getsize(os.path.join(d, name)))
                    for d, _, names in os.walk(sys.argv[1]) for name in names if name != "LOG")
    for how in ("exit", "exception", "close", "with", "del"):
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            if how == "exception":
                sys.stderr = open(os.devnull, "w")
                raise ValueError("a child that fails")
            if how == "close":
                db.close()
            if how == "with":
                with db:
                    pass
            if how == "del":
                del db, stream
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert not os.WIFSIGNALED(status), (how, os.WTERMSIG(status))
        assert os.WEXITSTATUS(status) == (1 if how == "exception" else 0), (how, status)
        after = sorted((name, os.path.getsize(os.path.join(d, name)))
                       for d, _, names in os.walk(sys.argv[1]) for name in names if name != "LOG")
        assert after == before, (how, set(after) ^ set(before))
    stream.append(pa.table({"t": [50_000], "x": [1]}))
    assert db.sql("SELECT count(*) FROM s WHERE x = 1").fetchall() == [(2,)]
    db.close()
    with chronicle.open(sys.argv[1]) as again:
        assert again.stream("s").count == 50_001
        assert again.check().ok
"""


def test_a_child_that_ends_tears_nothing_down(tmp_path: Path) -> None:
    """However it ends: RocksDB would write its tables, DuckDB free what its threads still use."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_child_may_collect_what_its_parent_left(db: Database) -> None:
    """Queries that were given up in the middle, in a circle: only a collection ends them."""
    gc.disable()
    try:
        for _ in range(20):
            batches = iter(db.sql("SELECT s.t, r.x FROM s, s AS r WHERE r.x > 1").batches())
            next(batches)
            circle: list[object] = [batches]
            circle.append(circle)
        del batches, circle
        assert in_child(lambda: gc.collect() > 0) == "gave True"
    finally:
        gc.enable()
    gc.collect()
    assert db.sql("SELECT count(*) FROM s").fetchall() == [(1150,)]


def test_a_fork_waits_for_imports(tmp_path: Path) -> None:
    """A module that another thread imports would stay locked in the child."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.3)\n")
    program = """
        import os, signal, sys, threading, time
        from chronicle.core.ownership import LOADING

        sys.path.insert(0, sys.argv[1])

        def load():
            with LOADING:
                begun.set()
                import slow_module

        begun = threading.Event()
        thread = threading.Thread(target=load)
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(300)
            with LOADING:
                import slow_module
            os._exit(0)
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        with LOADING:
            pass
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], check=False
    )
    assert ran.returncode == 0


def _append_in_worker(database: Database) -> str:
    try:
        database.stream("s").append(rows(0))
    except StoreClosed as error:
        return str(error)
    return "appended"


def test_multiprocessing_by_fork(db: Database) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    worker = context.Process(target=lambda: queue.put(_append_in_worker(db)))
    worker.start()
    worker.join(PATIENCE_S)
    assert worker.exitcode == 0
    assert "forked" in queue.get()
    db.stream("s").flush()
    with context.Pool(2) as pool:
        counts = pool.map(_count_of, [str(db.path)] * 4)
    assert counts == [1150] * 4
    db.stream("s").append(rows(3000))
    assert db.stream("s").count == 1250


def _count_of(path: str) -> int:
    with chronicle.open(path, mode="r") as own:
        return own.stream("s").count


def test_a_child_gives_up_no_lease_of_its_parent(db: Database) -> None:
    files, directory = catalog_of(db).store.files, catalog_of(db).store.directory_of("s")
    with ReaderLease.take(files, directory, 1) as lease:
        assert in_child(lease.release) == "gave None"
        assert [lease.version for lease in held_leases(files, directory)] == [1]


def test_a_child_may_write_once_its_parent_has_closed(db: Database) -> None:
    db.close()

    def write() -> object:
        with chronicle.open(db.path) as own:
            count = own.stream("s").append(rows(3000, 5000)).count
            with pytest.raises(StorageFailed, match="forked"):  # RocksDB would hang
                own["s"].create_index("x")
            return count, own.sql("SELECT count(*) FROM s WHERE k = 'k1'").fetchall()

    assert in_child(write) == "gave (6150, [(878,)])"
    with chronicle.open(db.path) as again:
        assert again.stream("s").count == 6150
        again.stream("s").seal()  # an active segment is indexed when that is worth a run
        wait_for_indexes(again)
        assert again.stream("s").indexes()[0]["covered"] > 0.9
        assert again.sql("SELECT count(*) FROM s WHERE k = 'k1'").fetchall() == [(878,)]
        assert again.check().ok
