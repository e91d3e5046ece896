"""What a stream promises beside equality: refusals, modes, readers, backups, threads, figures."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.core.caches import Lru
from chronicle.errors import (
    InvalidArgument,
    InvalidData,
    NotAStore,
    SchemaMismatch,
    StorageFailed,
    StoreClosed,
)
from chronicle.schema import StreamSchema
from chronicle.store import leaf, recovery
from chronicle.store.commits import Commits
from chronicle.store.lock import ReaderLease
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import wait_until

from .conftest import SCHEMA, batch_of, numbers

SMALL = StreamOptions(leaf_bytes=1024, segment_bytes=8192, late_events_max=64, compaction="manual")


# -- what is refused ----------------------------------------------------------------------------


def test_a_null_time_is_refused_with_its_row(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA)
    bad = pa.RecordBatch.from_arrays(
        [pa.array([1, None, 3], pa.int64()), pa.array([1, 2, 3]), pa.array(["a", "b", "c"])],
        schema=pa.schema([("t", pa.int64()), ("n", pa.int64()), ("s", pa.string())]),
    )
    with pytest.raises(InvalidData, match="row 2") as error:
        stream.append(bad)
    assert error.value.row == 2
    assert stream.snapshot().count == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"t": [1], "n": [2]},
        {"t": [1], "s": ["x"], "n": [2]},
        {"t": [1], "n": ["not a number"], "s": ["x"]},
        {"t": [1], "n": [1.5], "s": ["x"]},
    ],
)
def test_other_columns_are_refused(store: Store, columns: dict[str, list[object]]) -> None:
    stream = store.create_stream("s", SCHEMA)
    with pytest.raises(SchemaMismatch, match="expected the columns t int64, n int64, s string"):
        stream.append(pa.table(columns))
    assert stream.snapshot().count == 0


def test_columns_that_can_be_cast_without_loss_are_taken(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA)
    table = pa.table(
        {
            "t": pa.array([3, 1], pa.int32()),
            "n": pa.array([1, 2], pa.uint8()),
            "s": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    assert stream.append(pa.concat_tables([table, table])).appended == 4
    assert numbers(stream.snapshot()) == [2, 2, 1, 1]


def test_unknown_settings_are_refused(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA)
    with pytest.raises(InvalidArgument, match="durability"):
        stream.append(batch_of([1]), "eventually")
    for options in ({"codec": "gzip"}, {"compaction": "never"}, {"leaf_bytes": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(options))):
            StreamOptions(**options)  # type: ignore[arg-type]


def test_a_closed_stream_says_so(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA)
    stream.close()
    with pytest.raises(StoreClosed):
        stream.append(batch_of([1]))


def test_opening_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="no store"):
        Store.open(tmp_path / "missing", "r")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("hello")
    with pytest.raises(NotAStore, match=r"letter\.txt"):
        Store.open(tmp_path / "other")
    Store.open(tmp_path / "deep" / "er" / "store").close()
    Store.open(tmp_path / "deep" / "er" / "store", "r").close()


# -- durability ---------------------------------------------------------------------------------


def survivors(memory: MemoryFiles) -> int:
    with Store.open("memory", files=memory.crash(random.Random(0), "lose")) as store:
        return store.stream("s").snapshot().count


def test_each_mode_keeps_its_promise(memory: MemoryFiles, store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, StreamOptions(interval_ms=5))
    stream.append(batch_of([1]), "commit")
    assert survivors(memory) == 1
    stream.append(batch_of([2]), "none")
    assert stream.snapshot().count == 2
    assert survivors(memory) == 1
    stream.flush()
    assert survivors(memory) == 2
    stream.append(batch_of([3]), "none")
    stream.append(batch_of([4]), "interval")
    wait_until(lambda: survivors(memory) == 4)
    stream.append(batch_of([5]), "none")
    stream.close()
    assert survivors(memory) == 5


def test_a_leaf_is_durable_before_the_log_names_it() -> None:
    """Also right after a seal, when the new segment has a header and nothing else."""
    empty = 0
    options = StreamOptions(leaf_bytes=512, segment_bytes=4096, compaction="manual")
    for count in range(60, 700, 13):
        memory = MemoryFiles()
        with Store.open("memory", files=memory) as store:
            stream = store.create_stream("s", SCHEMA, options)
            stream.append(batch_of(range(count)))
            assert survivors(memory) == count
            extent = stream.commits.journal.extent
            empty += extent is not None and extent.events == 0
    assert empty > 0, "the case that this test is about does not occur"


def test_an_append_outlives_the_replacement_of_its_log(memory: MemoryFiles, store: Store) -> None:
    """Threads that wait for a log while another thread replaces it."""
    stream = store.create_stream("s", SCHEMA, SMALL)
    failures: list[BaseException] = []

    def work(which: int) -> None:
        try:
            for i in range(60):
                stream.append(batch_of([i], which * 1000 + i))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stream.seal()
    for thread in threads:
        thread.join()
    assert not failures
    assert stream.snapshot().count == 240
    assert survivors(memory) == 240


def test_a_commit_that_cannot_clean_up_has_happened_all_the_same() -> None:
    """A removal that fails after the manifest was replaced must not undo the commit."""
    for number in itertools.count(1):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        store = Store.open("memory", files=files)
        stream = store.create_stream("s", SCHEMA, SMALL)
        stream.append(batch_of(range(300)))
        stream.append(batch_of(range(70), 300))
        files.plan = FaultPlan("eio", number, only={"remove"})
        files.operations = 0
        with suppress(StorageFailed):  # a removal before the commit may refuse it
            stream.compact()
        assert len(numbers(stream.snapshot())) == 370
        assert store.check().ok
        store.close()
        with Store.open("memory", files=memory.kill()) as again:
            assert len(numbers(again.stream("s").snapshot())) == 370
            assert again.check().ok
        if not files.struck:
            break
    assert number > 2


def test_a_stream_survives_that_was_visible_but_not_durable() -> None:
    """Killed before its name was synced, seen again, used again, and then the power goes."""
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    store = Store.open("memory", files=files)
    files.plan = FaultPlan("crash_before", 1, only={"sync_directory"})
    files.operations = -2  # the third one is that of streams/
    with suppress(SimulatedCrash):
        store.create_stream("s", SCHEMA)
    memory = memory.kill()
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", SCHEMA, if_not_exists=True)
        stream.append(batch_of([1, 2]))
        assert survivors(memory) == 2


def test_a_writer_removes_files_that_no_commit_names() -> None:
    """What a crash between writing a file and committing it leaves; readers leave it alone."""
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", SCHEMA)
        stream.append(batch_of([1, 2]))
        directory = stream.commits.directory
    named = len(memory.list(directory))
    orphans = ["99.seg", "77.wal"]
    for name in orphans:
        with memory.create(f"{directory}/{name}") as file:
            file.write(b"half")
    with Store.open("memory", "r", files=memory) as reader:
        assert numbers(reader.stream("s").snapshot()) == [0, 1]
    assert set(orphans) <= set(memory.list(directory))
    with Store.open("memory", files=memory) as store:
        assert numbers(store.stream("s").snapshot()) == [0, 1]
    left = memory.list(directory)
    assert not set(orphans) & set(left)
    assert len(left) == named


# -- readers elsewhere --------------------------------------------------------------------------


def test_files_of_a_leased_version_are_kept_until_it_is_released(memory: MemoryFiles) -> None:
    """Also across a crash: what is garbage is in the manifest, and the lease counts again."""
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", SCHEMA, SMALL)
        stream.append(batch_of(range(300)))
        stream.seal()
        stream.append(batch_of([5, 6], 300))
        version = stream.stats()["manifest_version"]
        lease = ReaderLease.take(memory, "streams/s", version)
        old = {f for f in memory.list("streams/s") if f.endswith(".seg")}
        stream.compact()
        assert old <= set(memory.list("streams/s"))
        assert stream.stats()["garbage_files"] == len(old) + 1
    crashed = memory.crash(random.Random(1), "keep")
    again = ReaderLease.take(crashed, "streams/s", version)  # the reader is still there
    with Store.open("memory", files=crashed) as store:
        stream = store.stream("s")  # type: ignore[assignment]
        stream.append(batch_of([400], 400))
        assert old <= set(crashed.list("streams/s"))
        again.release()
        stream.seal()
        assert not old & set(crashed.list("streams/s"))
        assert store.check().ok
    lease.release()


def test_a_reader_in_another_process_keeps_its_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "store"
    script = (
        "import sys; from chronicle.store.store import Store\n"
        "s = Store.open(sys.argv[1], 'r').stream('s').snapshot()\n"
        "print('open', flush=True); sys.stdin.readline()\n"
        "print(sum(b.num_rows for b in s.scan()), s.aggregate(['n'])['n'].sum, flush=True)\n"
    )
    with Store.open(path) as store:
        stream = store.create_stream("s", SCHEMA, SMALL)
        stream.append(batch_of(range(500)))
        stream.seal()
        stream.append(batch_of(range(40), 500))
        stream.append(batch_of([1000], 540))
        process = subprocess.Popen(
            [sys.executable, "-c", script, os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        stream.compact()
        stream.append(batch_of(range(1000, 3000), 1000))
        stream.seal()
        out, _ = process.communicate("go\n")
        assert out.split() == ["541", str(sum(range(541)))]


def test_readers_refresh_to_the_last_commit(memory: MemoryFiles, store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(10)))
    with Store.open("memory", "r", files=memory) as other:
        reader = other.stream("s")
        before = reader.snapshot()
        stream.append(batch_of(range(10, 400), 10))
        stream.add_attribute("more", pa.float64())
        assert reader.snapshot() is before
        reader.refresh()  # type: ignore[union-attr]
        assert reader.snapshot().count == 400
        assert reader.schema.names == ["t", "n", "s", "more"]
        assert before.count == 10
        assert before.schema.names == ["t", "n", "s"]


# -- backup -------------------------------------------------------------------------------------


def test_a_backup_taken_while_writing_is_one_commit(tmp_path: Path) -> None:
    done = threading.Event()
    with Store.open(tmp_path / "store") as store:
        stream = store.create_stream("s", SCHEMA, SMALL)

        def write() -> None:
            for i in itertools.count():
                if done.is_set():
                    return
                late = 50 if i % 3 == 0 else 0
                stream.append(batch_of([i * 7 + j - late for j in range(7)], i * 7), "none")
                if i % 20 == 19:
                    stream.compact()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for i in range(4):
                wait_until(lambda i=i: stream.snapshot().count > 100 * i)  # type: ignore[misc]
                store.backup(tmp_path / f"backup{i}")
        finally:
            done.set()
            writer.join()
    for i in range(4):
        with Store.open(tmp_path / f"backup{i}") as copy:
            assert copy.check().ok
            found = copy.stream("s")
            assert isinstance(found, EventStream)
            count = found.snapshot().count
            assert count % 7 == 0
            assert sorted(numbers(found.snapshot())) == list(range(count))
            found.append(batch_of([10**6], 10**6))


def test_a_log_is_replaced_between_its_manifest_and_itself(
    memory: MemoryFiles, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a backup, or an ingest beside a writer, may find it."""
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(10)))
    read, paths = recovery.read_log, []

    def late(files: Any, path: str) -> Any:
        paths.append(path)
        if len(paths) == 1:
            stream.append(batch_of(range(5), 500))  # late events
            stream.compact()
        return read(files, path)

    monkeypatch.setattr(recovery, "read_log", late)
    found = recovery.load(store.files, store.directory_of("s"))
    assert len(set(paths)) == 2
    assert not store.files.exists(paths[0])
    assert found.manifest.log == stream.commits.manifest.log
    store.files.remove(paths[1])
    with pytest.raises(FileNotFoundError):
        recovery.load(store.files, store.directory_of("s"))


def test_a_backup_links_what_never_changes(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        stream = store.create_stream("s", SCHEMA, SMALL)
        stream.append(batch_of(range(500)))
        stream.seal()
        store.backup(tmp_path / "backup")
        with pytest.raises(InvalidArgument, match="not empty"):
            store.backup(tmp_path / "backup")
        with pytest.raises(InvalidArgument, match="inside"):
            store.backup(tmp_path / "store" / "backup")
    (segment,) = (tmp_path / "backup" / "streams" / "s").glob("*.seg")
    assert segment.stat().st_nlink == 2


# -- figures ------------------------------------------------------------------------------------


def test_figures(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(200)))
    stream.append(batch_of([3, 4, 250], 200))
    stats = stream.stats()
    assert (stats["events"], stats["late_total"], stats["late_buffered"]) == (203, 2, 2)
    assert stats["dirty_ranges"] == [(3, 4)]
    stream.append(batch_of([9] * 64, 300))
    stats = stream.stats()
    assert (stats["late_runs"], stats["late_events_in_runs"], stats["spills"]) == (1, 66, 1)
    stream.compact()
    stats = stream.stats()
    assert (stats["late_runs"], stats["compactions"]) == (0, 1)
    assert stats["compaction_seconds"] > 0
    assert stats["log_records"] == 1


def test_states_share_what_did_not_change(store: Store) -> None:
    """An append costs the same however many segments there are."""
    stream = store.create_stream("s", SCHEMA, SMALL)
    stream.append(batch_of(range(900)))
    stream.append(batch_of([5], 900))
    one = stream.snapshot().state
    stream.append(batch_of([2000], 901))
    other = stream.snapshot().state
    assert one.segments is other.segments
    assert one.late is other.late
    assert isinstance(stream.commits, Commits)


def test_listeners_hear_every_commit_in_order(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA, SMALL)
    heard: list[tuple[int, int]] = []
    stream.subscribe(lambda state: heard.append((state.position, state.manifest_version)))
    stream.append(batch_of(range(100)))
    stream.append(batch_of([5], 100))
    stream.seal()
    stream.compact()
    assert [position for position, _ in heard] == [1, 2, 2, 2]
    assert heard == sorted(heard)


def test_a_scan_gives_back_the_pages_of_what_it_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[leaf._Chunk] = []

    def give_back(chunk: leaf._Chunk) -> None:
        given.append(chunk)
        leaf._give_back(chunk)

    kept = Lru[tuple[int, int], leaf._Chunk](1 << 16, lambda chunk: chunk.length, give_back)
    monkeypatch.setattr(leaf, "_touched", kept)
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("n", pa.int64())]), "t")
    values = random.Random(1)
    columns = [range(100_000), [values.getrandbits(62) for _ in range(100_000)]]
    events = pa.table([pa.array(column) for column in columns], schema=schema.arrow)
    with Store.open(tmp_path, "rw") as store:
        stream = store.create_stream("s", schema, StreamOptions(codec="none"))
        stream.append(events)
        stream.seal()
        for _ in range(2):
            assert pa.Table.from_batches(stream.snapshot().scan()).equals(events)
        assert sum(chunk.length for chunk in given) > 500_000
