"""Segments in objects: the same answers, few requests, nothing lost at any step of a move."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import CorruptStore, InvalidArgument, NotAStore, StorageFailed
from chronicle.store import backup, cold_file, journal, moving
from chronicle.store.backup import restore_store
from chronicle.store.cold_file import PAGE, ColdFiles, ColdMapping, ColdStub, cache
from chronicle.store.files import RealFiles
from chronicle.store.leaf_map import LeafMap
from chronicle.store.object_store import ObjectStore, object_store
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import wait_for_indexes

from ..rounds import rounds
from .conftest import SCHEMA, batch_of, numbers

TIMED = pa.schema(
    [
        pa.field("t", pa.timestamp("us"), False),
        ("k", pa.string()),
        ("x", pa.int64()),
        ("y", pa.float64()),
    ]
)
EVENTS = 60_000
SECRET = "to be forgotten"

QUERIES = {
    "scan": "SELECT t, k, x, y FROM s WHERE x > 90 ORDER BY t",
    "all": "SELECT count(*), min(x), max(x), sum(x) FROM s",
    "window": "SELECT window_start, count(*) AS n, max(x) AS m FROM "
    "TUMBLE(s, t, INTERVAL '7' SECOND) GROUP BY window_start, window_end ORDER BY 1",
    "keyed": "SELECT k, window_start, sum(x) AS n FROM TUMBLE(s, t, INTERVAL '30' SECOND) "
    "GROUP BY k, window_start, window_end ORDER BY 1, 2",
    "pattern": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES "
    "FIRST(t) AS f, LAST(t) AS l, MATCH_ID() AS id PATTERN (A B) WITHIN INTERVAL '2' SECOND "
    "DEFINE A AS x > 9990, B AS x < 50)",
    "first": "SELECT t, x FROM s WHERE k = 'k3' ORDER BY t LIMIT 5",
}


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return object_store(f"file://{tmp_path}/objects")


@pytest.fixture(scope="session")
def stored_flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flights") / "store"
    with chronicle.open(path) as database:
        options = {"leaf_bytes": 4096, "segment_bytes": 48 << 10, "compaction": "manual"}
        stream = database.create_stream("s", TIMED, time="t", options=options)
        stream.create_index("x")
        rng = np.random.default_rng(7)
        for first in range(0, EVENTS, 5000):
            times = 10**15 + (first + np.arange(5000)) * 10_000
            keys = pa.array([f"k{n}" for n in rng.integers(0, 20, 5000)])
            values = pa.array(rng.integers(0, 10_000, 5000))
            columns = [pa.array(times, pa.timestamp("us")), keys, values, rng.random(5000)]
            stream.append(pa.table(columns, TIMED))
        stream.flush()
        wait_for_indexes(database)
    return path


@pytest.fixture
def flights(stored_flights: Path, tmp_path: Path) -> Iterator[Database]:
    """Several segments, an active one and a tail, with an index."""
    with chronicle.open(shutil.copytree(stored_flights, tmp_path / "store")) as database:
        yield database


def one(tick: int, x: int) -> pa.Table:
    return pa.table({"t": pa.array([tick], pa.timestamp("us")), "k": ["k1"], "x": [x], "y": [0.5]})


def answers(database: Database) -> dict[str, pa.Table]:
    return {name: database.sql(text).arrow() for name, text in QUERIES.items()}


def fetched_by(work: Callable[[], Any]) -> int:
    before = cache.fetched
    work()
    return cache.fetched - before


def cold_files(path: Path) -> list[str]:
    return sorted(file.name for file in path.rglob("*.seg.cold"))


def test_answers_stay_the_same(flights: Database, objects: ObjectStore, tmp_path: Path) -> None:
    wanted = answers(flights)
    moved = flights.move(objects.url)["s"]
    assert moved.segments == len(cold_files(tmp_path / "store")) > 3
    assert not flights.move(objects.url)["s"].segments
    assert answers(flights) == wanted
    flights.stream("s").append(one(10**15 + 5, 99_999))
    flights.stream("s").compact()
    wanted = answers(flights)
    flights.close()
    with chronicle.open(tmp_path / "store") as again:
        assert answers(again) == wanted
        assert again.check().ok
        assert again.move(objects.url)["s"].segments == 1
        assert answers(again) == wanted


def test_nodes_stay_at_home(flights: Database, objects: ObjectStore, tmp_path: Path) -> None:
    """Opening, planning and whole leaves ask nothing; a range reads the leaves at its ends."""
    wanted = answers(flights)
    moved = flights.move(objects.url)["s"]
    flights.close()

    def work() -> None:
        with chronicle.open(tmp_path / "store") as database:
            assert database.sql(QUERIES["all"]).arrow() == wanted["all"]
            for begin in (10_000_005, 13_370_005, 20_000_005):  # a page of one may be at home
                low, high = 10**15 + begin, 10**15 + begin + 490_000_000
                between = f"t >= make_timestamp({low}) AND t < make_timestamp({high})"
                found = database.sql(f"SELECT count(*) FROM s WHERE {between}").fetchall()
                assert found == [(49_000,)]

    assert 0 < fetched_by(work) < moved.bytes // 20
    stubs = (tmp_path / "store").rglob("*.seg.cold")
    assert sum(file.stat().st_size for file in stubs) < moved.bytes // 3  # leaves here are tiny


def test_a_stub_is_small_whatever_texts_are_long(objects: ObjectStore, tmp_path: Path) -> None:
    """Dictionaries of long texts go with the leaves; who wants them asks the object."""
    texts = [f"{number:03}" + "x" * 40_000 for number in range(20)]
    events = {
        "t": pa.array(range(400), pa.timestamp("us")),
        "k": [texts[n % 20] for n in range(400)],
        "x": range(400),
        "y": [0.5] * 400,
    }
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream("s", TIMED, time="t", codec="none")
        stream.append(pa.table(events, TIMED))
        stream.seal()
        moved = database.move(objects.url)["s"]
    assert moved.bytes > 20 * 40_000
    (stub,) = stubs_of(tmp_path)
    assert stub.stat().st_size < moved.bytes // moving.KEPT_SHARE
    with chronicle.open(tmp_path / "store") as database:
        text = f"SELECT count(*), max(x) FROM s WHERE k = '{texts[7]}'"
        assert database.sql("SELECT count(*), sum(x) FROM s").fetchall() == [(400, 79_800)]
        assert database.sql(text).fetchall() == [(20, 387)]
        assert database.check().ok


@pytest.mark.parametrize("share", [1, 1 << 40])
def test_heads_of_leaves_stay_at_home(
    share: int,
    flights: Database,
    objects: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where they take no more than their share: who looks at them asks the object for nothing."""
    wanted = answers(flights)
    monkeypatch.setattr(moving, "KEPT_SHARE", share)
    flights.move(objects.url)
    flights.close()
    stubs = [ColdStub.read(RealFiles(file.parent), file.name) for file in stubs_of(tmp_path)]
    assert all(bool(stub.heads) == (share == 1) for stub in stubs)
    assert {file.read_bytes()[7] for file in stubs_of(tmp_path)} == {2 if share == 1 else 1}
    with chronicle.open(tmp_path / "store") as database:
        sealed = [
            v for v in catalog_of(database).store.stream("s").snapshot().state.segments if v.sealed
        ]

        def work() -> None:
            for view in sealed:
                leaves = LeafMap(view)
                found = [leaves.leaf(i).zones.shape[1] for i in range(leaves.table.shape[1])]
                assert min(found) > 0

        assert bool(fetched_by(work)) == (share > 1)
        assert answers(database) == wanted


def test_a_damaged_head_of_a_leaf_is_told_by_who_reads_leaves(
    flights: Database, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "KEPT_SHARE", 1)
    flights.move(objects.url)
    flights.close()
    for number, file in enumerate(stubs_of(tmp_path)[:3]):
        sound, stub = file.read_bytes(), ColdStub.read(RealFiles(file.parent), file.name)
        at = len(sound) - sum(length for _, length in stub.heads) // 2
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        with chronicle.open(tmp_path / "store") as database:
            view = catalog_of(database).store.stream("s").snapshot().state.segments[number]
            leaves = LeafMap(view)  # of nodes
            for _ in range(2):
                with pytest.raises(CorruptStore, match="does not hash"):
                    _ = [leaves.leaf(number) for number in range(leaves.table.shape[1])]
            assert any(file.name.split(".")[0] in each.file for each in database.check().problems)
        file.write_bytes(sound)


def stubs_of(path: Path) -> list[Path]:
    return sorted((path / "store").rglob("*.seg.cold"))


def test_few_events_cost_few_bytes_and_waits(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern asks for the sections of its events, of many leaves at a time."""
    total, rounds = 1_000_000, []
    rng = np.random.default_rng(4)
    with chronicle.open(tmp_path / "large") as database:
        stream = database.create_stream("s", TIMED, time="t", codec="none")
        stream.create_index("x")
        times = 10**15 + np.arange(total) * 10_000
        keys = pa.array(np.full(total, "k"))
        columns = [pa.array(times, pa.timestamp("us")), keys, rng.permutation(total)]
        stream.append(pa.table([*columns, rng.random(total)], TIMED))
        stream.seal()
        stream.flush()
        text = (
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(y) AS l "
            "PATTERN (A B) WITHIN INTERVAL '1' SECOND DEFINE A AS x < 6, B AS y > 0.0)"
        )
        wait_for_indexes(database)
        wanted = database.sql(text).arrow()
        assert wanted.num_rows == 6
        moved = database.move(objects.url)["s"]
    fetch = ColdMapping._fetch

    def counted(self: ColdMapping, pieces: Any) -> None:
        rounds.append(len(pieces))
        fetch(self, pieces)

    monkeypatch.setattr(ColdMapping, "_fetch", counted)
    monkeypatch.setattr(cold_file, "GAP_BYTES", 0)  # what is read of gaps costs no wait
    with chronicle.open(tmp_path / "large") as database:
        asked = fetched_by(lambda: database.sql(text).arrow())
        assert database.sql(text).arrow() == wanted
        assert 0 < asked < moved.bytes // 10
        assert len(rounds) <= 4
        assert max(rounds) > 1


def test_the_cache_is_bounded(
    flights: Database, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = answers(flights)
    moved = flights.move(objects.url)["s"]
    largest = moved.bytes // moved.segments * 2
    monkeypatch.setattr(cache, "limit", 2 * largest)
    assert answers(flights) == wanted
    assert cache.bytes <= cache.limit + largest
    held = flights.sql("SELECT x FROM s ORDER BY t").arrow()  # arrays of mappings given up
    monkeypatch.setattr(cache, "limit", PAGE)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(answers, [flights] * 4):
            assert [name for name in wanted if found[name] != wanted[name]] == []
    assert held.equals(flights.sql("SELECT x FROM s ORDER BY t").arrow())


def test_only_what_is_old_moves(flights: Database, objects: ObjectStore, tmp_path: Path) -> None:
    segments = len(catalog_of(flights).store.stream("s").commits.views)
    moved = flights.move(objects.url, stream="s", older_than="300 seconds")["s"]
    assert 0 < moved.segments < segments - 1
    entries = catalog_of(flights).store.stream("s").commits.manifest.segments
    horizon = 10**15 + (EVENTS - 1) * 10_000 - 300 * 10**6
    assert entries[moved.segments - 1].last < horizon <= entries[moved.segments].last
    with pytest.raises(InvalidArgument, match="age such as"):
        flights.move(objects.url, older_than="3 GB")
    with pytest.raises(chronicle.StreamNotFound):
        flights.move(objects.url, stream="t")
    for address in ("ftp://x", "s3://", "file://x/y", "s3://me:key@bucket/x", "s3://b?color=red"):
        with pytest.raises(InvalidArgument):
            flights.move(address)


def test_what_is_deleted_leaves_the_objects(
    flights: Database, objects: ObjectStore, tmp_path: Path
) -> None:
    stream = flights.stream("s")
    stream.update({"k": f"'{SECRET}'"}, "x = 4711")
    stream.seal()
    flights.move(objects.url)

    def found() -> list[Path]:
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        return [file for file in files if SECRET.encode() in file.read_bytes()]

    assert any("objects" in file.parts for file in found())
    assert stream.delete(f"k = '{SECRET}'") > 0
    stream.compact()
    assert not found()
    assert flights.sql(f"SELECT count(*) FROM s WHERE k = '{SECRET}'").fetchall() == [(0,)]
    flights.move(objects.url)
    assert objects.list("")
    flights.drop_stream("s")
    assert objects.list("") == []  # nothing that a restore would begin with, either


def test_a_lost_disk_is_restored(flights: Database, objects: ObjectStore, tmp_path: Path) -> None:
    stream = flights.stream("s")
    stream.seal()
    flights.move(objects.url)
    wanted = answers(flights)
    end = 10**15 + EVENTS * 10_000
    stream.append(one(end, -1))
    flights.close()
    done = restore_store(ObjectStore(objects.url), tmp_path / "again")
    assert done["s"][1] == 0
    with chronicle.open(tmp_path / "again") as again:
        assert again.check().ok
        assert answers(again) == wanted
        again.stream("s").append(one(end, -2))
        assert again.stream("s").count == EVENTS + 1
    with pytest.raises(InvalidArgument, match="not empty"):
        restore_store(objects, tmp_path / "again")
    with pytest.raises(InvalidArgument, match="no streams"):
        restore_store(object_store(f"file://{tmp_path}/nothing"), tmp_path / "other")


def test_a_move_of_nothing_tells_what_the_stream_is_now(
    flights: Database, objects: ObjectStore, tmp_path: Path
) -> None:
    """Columns were renamed and events deleted since; a restore begins with that."""
    stream = flights.stream("s")
    stream.seal()
    flights.move(objects.url)
    stream.rename_column("x", "z")
    stream.delete(None, stream.time_range[0], "2001-09-09 01:50:00")  # type: ignore[index]
    flights.move(objects.url)
    wanted = flights.sql("SELECT count(*), sum(z) FROM s").fetchall()
    assert not flights.move(objects.url)["s"].segments
    stream.rename_column("z", "w")
    assert not flights.move(objects.url)["s"].segments
    restore_store(objects, tmp_path / "again")
    with chronicle.open(tmp_path / "again") as again:
        assert again.sql("SELECT count(*), sum(w) FROM s").fetchall() == wanted


def test_a_restore_that_ends_early_is_refused(
    flights: Database, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever step: a directory that is not whole is no store."""
    flights.stream("s").seal()
    flights.move(objects.url)
    wanted = answers(flights)

    class Ended(Exception):
        pass

    for owner, operation in (
        (backup.Store, "open"), (ObjectStore, "read"), (journal, "write_manifest"),
        (journal, "begin_log"),
    ):  # fmt: skip
        target = tmp_path / f"early-{operation}"

        def ends(*_: Any, **__: Any) -> Any:
            raise Ended

        with monkeypatch.context() as broken:
            broken.setattr(owner, operation, ends)
            with pytest.raises(Ended):
                restore_store(ObjectStore(objects.url), target)
        for mode in ("r", "rw"):
            with pytest.raises(NotAStore, match="cut short"):
                chronicle.open(target, mode)
    restore_store(ObjectStore(objects.url), tmp_path / "again")
    with chronicle.open(tmp_path / "again", "r") as again:
        assert answers(again) == wanted


def test_a_backup_has_all_bytes(flights: Database, objects: ObjectStore, tmp_path: Path) -> None:
    wanted = answers(flights)
    flights.move(objects.url)
    flights.backup(tmp_path / "copy")
    assert not cold_files(tmp_path / "copy")
    for key in objects.list(""):
        objects.remove(key)
    with chronicle.open(tmp_path / "copy") as copy:
        assert copy.check().ok
        assert answers(copy) == wanted


def test_objects_that_fail_are_told(
    flights: Database, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: ObjectStore, key: str, *_: Any) -> Any:
        raise StorageFailed(f"no answer for {key}")

    def cut(self: ObjectStore, key: str, parts: Any) -> None:
        self_put(self, key, [b"".join(parts)[:-1] + b"?"])

    wanted, self_put = answers(flights), ObjectStore.put
    for operation, instead, why in (
        ("put", refused, "no answer"),
        ("contents", refused, "no answer"),
        ("put", cut, "read back"),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(ObjectStore, operation, instead)
            with pytest.raises(StorageFailed, match=why):
                flights.move(objects.url)
        assert answers(flights) == wanted
    flights.move(objects.url)
    assert answers(flights) == wanted
    stubs = [key for key in objects.list("") if key.endswith(".cold")]
    segments = [key for key in objects.list("") if key.endswith(".seg")]
    assert len(stubs) == len(segments) == len(cold_files(tmp_path / "store"))  # nothing is left
    flights.close()
    with chronicle.open(tmp_path / "store") as again, monkeypatch.context() as broken:
        broken.setattr(ObjectStore, "read", refused)
        assert again.sql(QUERIES["all"]).arrow() == wanted["all"]
        with pytest.raises(StorageFailed, match="no answer"):
            again.sql(QUERIES["scan"]).arrow()
        broken.undo()
        assert answers(again) == wanted


@pytest.mark.parametrize("share", [16, 1])
def test_a_damaged_stub_is_told(
    share: int,
    flights: Database,
    objects: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By who reads what is damaged, and by a check wherever it is, also behind a leaf's columns."""
    wanted = flights.sql(QUERIES["scan"]).fetchall()
    monkeypatch.setattr(moving, "KEPT_SHARE", share)
    flights.move(objects.url)
    flights.close()
    stub = next((tmp_path / "store").rglob("*.seg.cold"))
    data = stub.read_bytes()
    rng, unread = random.Random(3), 0
    for length in (0, 7, 30, len(data) // 2):
        stub.write_bytes(data[:length])
        with chronicle.open(tmp_path / "store") as database, pytest.raises(CorruptStore):
            database.sql("SELECT count(*) FROM s").fetchall()
    for _ in range(rounds(16, 40)):
        at = rng.randrange(len(data))
        stub.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with chronicle.open(tmp_path / "store") as database:
            try:
                assert database.sql(QUERIES["scan"]).fetchall() == wanted
                unread += 1
            except CorruptStore:
                pass
            assert not database.check().ok
    assert unread <= (20 if share == 1 else 0)  # of heads: a scan reads on, also over these
    stub.write_bytes(data)
    with chronicle.open(tmp_path / "store") as database:
        assert database.sql("SELECT count(*) FROM s").fetchall() == [(EVENTS,)]


# ------------------------------------------------------------------- accidents


def filled(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        options = StreamOptions(leaf_bytes=1024, segment_bytes=8 << 10, compaction="manual")
        stream = store.create_stream("s", SCHEMA, options)
        for first in range(0, 3000, 100):
            stream.append(batch_of(range(first, first + 100), first))
        stream.seal()


def test_a_power_cut_at_any_operation_of_a_move_loses_nothing(objects: ObjectStore) -> None:
    """Names that were not made durable are lost each by itself."""
    origin = MemoryFiles()
    with Store.open("memory", files=origin) as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(compaction="manual"))
        stream.append(batch_of(range(100), 0))
        stream.seal()
    step, moved = 1, False
    while not moved:
        for seed in range(8):
            memory = origin.kill()
            faulty = FaultyFiles(memory, FaultPlan("crash_after", step))
            with suppress(SimulatedCrash), Store.open("memory", files=faulty) as store:
                store.stream("s").move(objects, "p", 3000)  # type: ignore[union-attr]
                moved = True
            after = memory.crash(random.Random(seed), "tear")
            with Store.open("memory", files=after) as store:
                assert numbers(store.stream("s").snapshot()) == list(range(100)), (step, seed)
        step += 1
    assert step > 10


def work_on(store: Store, objects: ObjectStore) -> None:
    """Move what is old, delete of it, compact, move the rest."""
    stream = store.stream("s")
    stream.move(objects, "p", 1500)  # type: ignore[union-attr]
    stream.delete(100, 400)  # type: ignore[union-attr]
    stream.compact()  # type: ignore[union-attr]
    stream.move(objects, "p", 3000)  # type: ignore[union-attr]


def test_an_accident_at_any_operation_loses_nothing(objects: ObjectStore) -> None:
    whole = list(range(3000))
    rest = whole[:100] + whole[400:]
    origin = MemoryFiles()
    filled(origin)
    counting = FaultyFiles(origin.kill())
    with Store.open("memory", files=counting) as store:
        begun = counting.operations
        work_on(store, objects)
        steps = counting.operations
        store.drop_stream("s")
    assert steps - begun > 60
    rng = random.Random(5)
    for kind in ("crash_before", "crash_after", "eio"):
        for step in range(begun, steps, 7 if kind == "eio" else rounds(9, 3)):
            memory = origin.kill()
            faulty = FaultyFiles(memory, FaultPlan(kind, step))  # type: ignore[arg-type]
            try:
                with Store.open("memory", files=faulty) as store:
                    work_on(store, objects)
            except (SimulatedCrash, OSError):
                pass
            after = memory.crash(rng, rng.choice(["lose", "keep", "tear"]))  # type: ignore[arg-type]
            with Store.open("memory", files=after) as store:
                assert numbers(store.stream("s").snapshot()) in (whole, rest)
                work_on(store, objects)
                assert numbers(store.stream("s").snapshot()) == rest
                assert isinstance(store.files, ColdFiles)
                assert store.check().ok
                store.drop_stream("s")
            left = [key for key in objects.list("") if ".seg" in key]
            assert len(left) <= 2, (kind, step, left)  # a power cut may have taken the stub's name
            for key in left:
                objects.remove(key)
