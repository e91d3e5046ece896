"""Indexes on disks that fail, fill up, flip bits or cannot be written: answers stay the same."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import CorruptStore, StorageFailed, StorageFull, StoreClosed, outside
from chronicle.indexes.opened import RunsChanged
from chronicle.indexes.storage import TIMES, IndexStorage, descriptor_key
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.store.stream import EventStream
from chronicle.tests.patience import PATIENCE_S, wait_for_indexes

from .conftest import FaultyDisk, SmallDisk

LONG = os.environ.get("CHRONICLE_CRASH") == "long"
"""Whether every write is made to fail, and many bits are flipped (``make crash``)."""

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.int64()), ("y", pa.string())])
OPTIONS = {"leaf_bytes": 1 << 11, "segment_bytes": 1 << 15}
PATTERN = (
    "SELECT /*+ strategy({}) */ * FROM s MATCH_RECOGNIZE (ORDER BY t "
    "MEASURES A.t AS t, B.x AS x, B.y AS y PATTERN (A B) DEFINE A AS {} < {})"
)
FILTERS = ("x < 3", "y = 'k7'", "y < 'k11' AND x < 50")


def events(count: int, start: int = 0, seed: int = 0) -> pa.Table:
    random_ = np.random.default_rng(seed)
    x = random_.integers(0, 1000, count)
    y = [f"k{value}" for value in random_.integers(0, 500, count)]
    return pa.table({"t": start + np.arange(count), "x": x, "y": y}, schema=SCHEMA)


def make(path: Path, *indexed: str, count: int = 12_000, name: str = "s") -> None:
    """A store with one stream of several segments, and indexes on some attributes."""
    with chronicle.open(path) as database:
        stream = database.create_stream(name, SCHEMA, "t", options=OPTIONS)
        for start in range(0, count, 2_000):
            stream.append(events(2_000, start, start))
        for attribute in indexed:
            stream.create_index(attribute)


def answers(database: Any, strategy: str) -> list[Any]:
    """Filters and patterns; those of ``strategy(replay)`` use no index."""
    found: list[Any] = []
    hint = "" if strategy != "replay" else " + 0"
    for text in FILTERS:
        asked = text.replace("x ", f"x{hint} ")
        found.append(database.sql(f"SELECT * FROM s WHERE {asked} ORDER BY t").fetchall())
    for name, bound in (("x", "4"), ("y", "'k103'")):
        found.append(database.sql(PATTERN.format(strategy, name, bound)).fetchall())
    return found


def same(database: Any) -> None:
    """Whatever became of the indexes, they change no answer."""
    assert answers(database, "all") == answers(database, "replay")


def same_rows(database: Any) -> None:
    """The same of one filter, where it is asked often."""
    found = [database.sql(f"SELECT * FROM s WHERE {x} > 997").fetchall() for x in ("x", "x + 0")]
    assert found[0] == found[1]


def directory(path: Path) -> Path:
    """Of the indexes of the stream ``s``."""
    return path / "streams" / "s" / "indexes"


# -- writes that fail --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "wait", "key"),
    [
        ("enospc", True, "x"), ("enospc", False, "x"), ("eio", True, "x"), ("eio", False, "x"),
        ("enospc", False, "y, x"), ("eio", True, "x - PREV(x) PARTITION BY y"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("nobody_builds")
def test_an_index_that_cannot_be_created_leaves_nothing_behind(
    tmp_path: Path, disk: FaultyDisk, fault: str, wait: bool, key: str
) -> None:
    make(tmp_path / "fresh", count=4_000)
    make(tmp_path / "old", "y", count=4_000)
    for base in ("fresh", "old") if LONG else ("fresh",) if wait == (fault == "eio") else ("old",):
        for number in itertools.count(1, 1 if LONG else 2):
            path = tmp_path / f"{base}-{number}"
            shutil.copytree(tmp_path / base, path)
            with chronicle.open(path) as database:
                stream = database.stream("s")
                before = [index["attribute"] for index in stream.indexes()]
                disk.arm(fault, number)
                error: StorageFailed | None = None
                try:
                    stream.create_index(key, wait=wait)
                except StorageFailed as raised:
                    error = raised
                if error is not None:
                    assert isinstance(error, StorageFull) == (fault == "enospc")
                    assert [index["attribute"] for index in stream.indexes()] == before
                    same_rows(database)
                    struck = disk.struck
                    disk.arm("", 0)
                    stream.create_index("t")  # takes the next identifier, not the same one
                    stream.create_index(key)
                    disk.struck = struck
                same_rows(database)
            struck = disk.struck
            disk.arm("", 0)
            with chronicle.open(path) as database:
                assert key in {index["attribute"] for index in database.stream("s").indexes()}
                identifiers = list(catalog_of(database).indexes_of("s").identifiers.values())
                assert len(set(identifiers)) == len(identifiers)
                same_rows(database)
                database.stream("s").append(events(2_000, 4_000, 9))
                catalog_of(database).indexes_of("s").catch_up(database.stream("s").snapshot().state)
                same_rows(database)
                assert [str(problem) for problem in database.check().problems] == []
            shutil.rmtree(path)
            if not struck:
                break
        assert number > 3


@pytest.mark.parametrize(
    ("fault", "keys"),
    [
        ("enospc", ("x", "y")),
        ("eio", ("x", "y")),
        ("eio", ("x", "x - PREV(x) PARTITION BY y", "y, x")),
    ],
)
@pytest.mark.usefixtures("nobody_builds")
def test_whatever_write_of_upkeep_fails_answers_stay_the_same(
    tmp_path: Path, disk: FaultyDisk, fault: str, keys: tuple[str, ...]
) -> None:
    make(tmp_path / "base", *keys, count=4_000)

    def upkeep(database: Any) -> None:
        stream = database.stream("s")
        indexes = catalog_of(database).indexes_of("s")
        stream.append(events(2_000, 4_000, 4))
        indexes.catch_up(stream.snapshot().state)
        stream.append(events(10, 100, 1))
        stream.compact()
        indexes.forget(stream.snapshot().state)
        indexes.catch_up(stream.snapshot().state)
        stream.drop_index(keys[-1])
        stream.create_index(keys[-1])

    for number in itertools.count(1, 1 if LONG else 11):
        path = tmp_path / str(number)
        shutil.copytree(tmp_path / "base", path)
        with chronicle.open(path) as database:
            disk.arm(fault, number)
            with suppress(StorageFailed):
                upkeep(database)
            struck = disk.struck
            disk.arm("", 0)
            same_rows(database)
            if catalog_of(database).indexes_of("s") is not None:
                catalog_of(database).indexes_of("s").catch_up(database.stream("s").snapshot().state)
            same_rows(database)
        with chronicle.open(path) as database:
            same_rows(database)
            assert [str(problem) for problem in database.check(repair=True).problems] == []
        shutil.rmtree(path)
        if not struck:
            break
    assert number > 20


def test_runs_of_an_index_that_was_never_defined_are_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after runs are on disk and before the definition is."""
    make(tmp_path / "s")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with chronicle.open(tmp_path / "s") as database:
        with monkeypatch.context() as patch:
            patch.setattr(StreamIndexes, "_define", killed)
            patch.setattr(StreamIndexes, "_undefine", killed)
            with pytest.raises(KeyboardInterrupt):
                database.stream("s").create_index("x")
        assert database.sql("SELECT count(*) FROM s WHERE x < 3").fetchall() != [(0,)]
    with chronicle.open(tmp_path / "s") as database:
        assert database.stream("s").indexes() == []
        database.stream("s").create_index("y")
        same(database)
        assert database.check().ok


def test_a_store_on_a_full_disk(small_disk: SmallDisk) -> None:
    path = small_disk.path / "s"
    make(path, "x")
    with chronicle.open(path) as database:
        stream = database.stream("s")
        small_disk.fill()
        with pytest.raises(StorageFull) as caught:
            stream.create_index("y")
        assert isinstance(caught.value, StorageFailed)
        assert outside(caught.value).status == 507
        assert [index["attribute"] for index in stream.indexes()] == ["x"]
        same(database)
        small_disk.free()
        stream.create_index("y")
        assert stream.indexes()[1]["covered"] > 0.9
        same(database)
    small_disk.fill()
    with chronicle.open(path) as database:  # opens for writing, and reads its indexes
        same(database)
        (index, _) = database.stream("s").indexes()
        assert "No space left" in index["problem"]
        assert index["covered"] > 0.9
        assert "prune" in str(database.explain("SELECT * FROM s WHERE x < 3"))
        assert "entries read" in str(database.explain(PATTERN.format("all", "x", 4), analyze=True))
        with pytest.raises(StorageFull):
            database.sql("CREATE INDEX ON s (t)")
        small_disk.free()
        database.sql("CREATE INDEX ON s (t)")
        assert database.stream("s").indexes()[0]["problem"] is None
        same(database)
        assert database.check().ok


# -- damage ------------------------------------------------------------------------------------


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def _newest(path: Path, pattern: str) -> Path:
    return sorted(directory(path).glob(pattern))[-1]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no CURRENT": lambda path: (directory(path) / "CURRENT").unlink(),
    "garbage in CURRENT": lambda path: (directory(path) / "CURRENT").write_bytes(b"\0garbage"),
    "garbage manifest": lambda path: _newest(path, "MANIFEST-*").write_bytes(b"garbage" * 99),
    "no manifest": lambda path: _newest(path, "MANIFEST-*").unlink(),
    "a table is missing": lambda path: _newest(path, "*.sst").unlink(),
    "a table is cut": lambda path: _newest(path, "*.sst").write_bytes(b"x" * 100),
    "the end of a table": lambda path: _flip(_newest(path, "*.sst"), -20),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_indexes_keep_nothing_from_being_opened(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "s"
    make(path, "x", "y")
    DAMAGES[damage](path)
    with chronicle.open(path, "r") as database:
        same(database)
        assert any("indexes" in str(problem) for problem in database.check().problems)
    with chronicle.open(path) as database:
        stream = database.stream("s")
        same(database)
        assert [index["attribute"] for index in stream.indexes()] == ["x", "y"]
        for index in stream.indexes():
            assert (index["state"], index["covered"]) == ("damaged", 0.0)
            assert index["problem"]
        assert "damaged" in str(database.sql("SHOW INDEXES").fetchall())
        plan = str(database.explain(PATTERN.format("all", "x", 4)))
        assert "indexes unavailable" in plan
        assert not database.check().ok
        with pytest.raises(CorruptStore, match="repair"):
            stream.create_index("t")
        stream.append(events(5_000, 30_000, 8))
        same(database)
        assert [str(problem) for problem in database.check(repair=True).problems] == []
        for index in stream.indexes():
            assert (index["state"], index["problem"]) == ("ready", None)
        assert catalog_of(database).indexes_of("s").catalogue().runs
        same(database)
    with chronicle.open(path) as database:
        assert database.check().ok
        same(database)


def test_damaged_definitions_are_named_and_removed_by_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make(path, "x")
    _flip(directory(path) / "definitions" / "MANIFEST", 90)
    with chronicle.open(path, "r") as database:
        same(database)
        assert "definitions" in str(database.check().problems)
    with chronicle.open(path) as database:
        stream = database.stream("s")
        same(database)
        assert stream.indexes() == []
        with pytest.raises(CorruptStore, match="repair"):
            stream.create_index("x")
        assert not database.check().ok
        assert database.check(repair=True).ok
        stream.create_index("x")
        same(database)


@pytest.mark.usefixtures("nobody_builds")
def test_a_flipped_bit_in_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "base", "x", "y")
    table = max(directory(tmp_path / "base").glob("*.sst"), key=lambda found: found.stat().st_size)
    size, random_ = table.stat().st_size, random.Random(7)
    named = 0
    for _ in range(60 if LONG else 3):
        path = tmp_path / "s"
        shutil.copytree(tmp_path / "base", path)
        _flip(directory(path) / table.name, random_.randrange(size))
        caplog.clear()
        with chronicle.open(path, "r") as database:
            same(database)
        with chronicle.open(path) as database:
            same(database)
            found = [str(problem) for problem in database.check().problems]
            named += bool(found) or "built anew" in caplog.text  # RocksDB came by it, or did not
            told = database.stream("s").indexes()
            for index in told:
                assert (index["state"] == "damaged") == (index["problem"] is not None)
            indexes = catalog_of(database).indexes_of("s")
            if indexes.damaged:
                assert "set aside" in caplog.text
                assert "damaged" in {index["state"] for index in told} | {"damaged"}
                indexes.catch_up(database.stream("s").snapshot().state)  # as the thread does
                assert not indexes.damaged
            same(database)
            assert [str(problem) for problem in database.check(repair=True).problems] == []
            same(database)
        shutil.rmtree(path)
    assert named >= (30 if LONG else 2)


@pytest.mark.usefixtures("nobody_builds")
def test_a_flipped_bit_where_runs_are_listed(tmp_path: Path) -> None:
    """A list that ends early would read as one of fewer runs."""
    make(tmp_path / "s", "x", "y")
    with chronicle.open(tmp_path / "s") as database:
        catalog_of(database).indexes_of("s").purge(database.stream("s").snapshot().state)
    (table,) = directory(tmp_path / "s").glob("*.sst")
    _flip(table, 100)  # in the first block, with the descriptors
    for mode in "r", "rw":
        with chronicle.open(tmp_path / "s", mode) as database:
            assert "checksum" in str(database.check().problems)
            assert {index["state"] for index in database.stream("s").indexes()} == {"damaged"}
            same(database)
            if mode == "rw":
                assert [str(problem) for problem in database.check(repair=True).problems] == []
                assert {index["state"] for index in database.stream("s").indexes()} == {"ready"}
                same(database)


def test_the_writer_builds_a_damaged_run_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make(path, "x")
    with chronicle.open(path) as database:
        indexes = catalog_of(database).indexes_of("s")
        wait_for_indexes(database)
        (place, run), *_ = sorted(item for item in indexes._runs.items() if item[0][0] != TIMES)
        real = IndexStorage.get
        broken = [True]

        def get(self: IndexStorage, key: bytes) -> bytes | None:
            if broken and key.startswith(descriptor_key(*place).replace(b"d", b"p", 1)):
                raise CorruptStore("block checksum mismatch")
            return real(self, key)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IndexStorage, "get", get)
            patch.setattr(indexes, "heard", None)
            same(database)
            assert indexes.damaged[place] == (run.generation, "block checksum mismatch")
            (told,) = database.stream("s").indexes()
            assert told["state"] == "damaged"
            assert "block checksum mismatch" in told["problem"]
            plan = str(database.explain(PATTERN.format("all", "x", 4)))
            assert "block checksum mismatch" in plan
            (problem,) = database.check().problems
            assert "block checksum mismatch" in str(problem)
            broken.clear()
        catalog_of(database).indexes._notify("s")
        wait_for_indexes(database)
        assert not indexes.damaged
        assert indexes._runs[place].generation > run.generation
        assert database.check().ok
        same(database)


def test_damage_that_keeps_rocksdb_from_writing_has_the_indexes_built_anew(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules[FaultyDisk.__module__].FAULTS, "rot", "Corruption: bad block")
    make(tmp_path / "s", "x")
    with chronicle.open(tmp_path / "s") as database:
        stream = database.stream("s")
        stream.append(events(5_000, 30_000, 3))
        disk.arm("rot", 1)
        with pytest.raises(CorruptStore):
            catalog_of(database).indexes_of("s").flush()
        disk.arm("", 0)
        wait_for_indexes(database)
        assert stream.indexes()[0]["state"] == "ready"
        same(database)
        assert database.check().ok


def test_one_damaged_stream_keeps_the_indexes_of_others(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make(path, "x")
    make(path, "x", name="other")
    manifest = path / "streams" / "other" / "MANIFEST"
    manifest.write_bytes(b"garbage")
    with chronicle.open(path) as database:
        same(database)
        assert database.stream("s").indexes()[0]["state"] == "ready"
        assert not database.check().ok


# -- readers -----------------------------------------------------------------------------------


def test_a_reader_of_a_read_only_directory(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    path = tmp_path / "s"
    make(path, "x", "y")
    before = sorted(str(found) for found in path.rglob("*"))
    read_only(path)
    with chronicle.open(path, "r") as database:
        same(database)
        assert database.sql("SELECT count(*) FROM (SELECT * FROM s)").fetchall() == [(12_000,)]
        assert [index["state"] for index in database.stream("s").indexes()] == ["ready", "ready"]
        assert "entries read" in str(database.explain(PATTERN.format("all", "x", 4), analyze=True))
        assert [str(problem) for problem in database.check().problems] == []
    assert sorted(str(found) for found in path.rglob("*")) == before
    done = subprocess.run(
        [sys.executable, "-m", "chronicle.cli", "check", "--store", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_reader_without_temporary_files_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "s", "x")

    def nowhere(*_: object, **__: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with chronicle.open(tmp_path / "s", "r") as database:
        same(database)
        (index,) = database.stream("s").indexes()
        assert (index["state"], index["covered"]) == ("unavailable", 0.0)
        assert "temporary files" in str(database.explain(PATTERN.format("all", "x", 4)))


def test_a_reader_follows_a_writer_that_flushes_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "s"
    make(path, "x", count=5_000)
    errors: list[BaseException] = []
    with chronicle.open(path) as database, chronicle.open(path, "r") as reader:
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    reader.sql("SELECT * FROM s WHERE x < 2").fetchall()
                    (index,) = reader.stream("s").indexes()
                    assert index["problem"] is None
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        stream = database.stream("s")
        for step in range(20):
            stream.append(events(2_000, 5_000 + 2_000 * step, step))
            catalog_of(database).indexes_of("s").catch_up(stream.snapshot().state)
        done.set()
        thread.join()
        assert errors == []
        same(reader)


def test_a_copy_leaves_out_what_does_not_read(tmp_path: Path) -> None:
    make(tmp_path / "s", "x")
    with chronicle.open(tmp_path / "s") as database:
        indexes = catalog_of(database).indexes_of("s")
        (first, *_) = indexes.catalogue().runs.values()
        real = type(indexes).block

        def block(self: StreamIndexes, kind: bytes, run: Any, number: int = 0) -> bytes:
            if run is first[0]:
                raise RunsChanged("block checksum mismatch")
            return real(self, kind, run, number)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(indexes), "block", block)
            database.backup(tmp_path / "copy")
    with chronicle.open(tmp_path / "copy", "r") as database:
        assert 0 < database.stream("s").indexes()[0]["covered"] < 1
        same(database)


class Slow:
    """A database whose answers wait until they may come."""

    def __init__(self) -> None:
        self.may, self.asked = threading.Event(), threading.Event()
        self.closed = False

    def get(self, key: bytes) -> bytes:
        self.asked.set()
        assert self.may.wait(PATIENCE_S)
        assert not self.closed
        return key * 2

    def close(self) -> None:
        self.closed = True


def test_a_database_is_not_closed_during_a_lookup(tmp_path: Path) -> None:
    storage = IndexStorage(tmp_path, True)
    storage.close()
    storage = IndexStorage(tmp_path, False)
    storage._db.close()
    slow = storage._db = Slow()
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(storage.get, b"k")
        assert slow.asked.wait(PATIENCE_S)
        ended = threads.submit(storage.close)
        with pytest.raises(TimeoutError):
            ended.result(0.2)
        with pytest.raises(StoreClosed):
            storage.get(b"k")
        assert not slow.closed
        slow.may.set()
        assert answer.result(PATIENCE_S) == b"kk"
        ended.result(PATIENCE_S)
    assert slow.closed


def test_a_column_is_widened_while_its_stream_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who drops holds the store's lock and waits for the stream's, which who widens holds."""
    widening, dropping = threading.Event(), threading.Event()
    with chronicle.open(tmp_path / "s") as database:
        schema = pa.schema([("t", pa.int64()), ("x", pa.int32()), ("y", pa.string())])
        database.create_stream("w", schema, "t").create_index("y")
        catalog = catalog_of(database)

        def widens(*types: pa.DataType) -> bool:
            widening.set()
            assert dropping.wait(PATIENCE_S)
            return True

        def close(stream: EventStream) -> None:
            dropping.set()
            closed(stream)

        closed = EventStream.close
        monkeypatch.setattr("chronicle.indexes.manager.widens", widens)
        monkeypatch.setattr(EventStream, "close", close)
        widener = threading.Thread(
            target=catalog.widen_column, args=("w", "x", pa.int64()), daemon=True
        )
        widener.start()
        assert widening.wait(PATIENCE_S)
        dropper = threading.Thread(target=catalog.store.drop_stream, args=("w",), daemon=True)
        dropper.start()
        for thread in (widener, dropper):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
