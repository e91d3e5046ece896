"""Files that ended up in another stream, or in the place of another file, are noticed."""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import CorruptStore
from chronicle.schema import StreamSchema
from chronicle.store.catalog import StreamManifest, read_manifest, write_manifest
from chronicle.store.log import read_log
from chronicle.store.options import StreamOptions
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.int64())])


def rows(first: int, count: int, sign: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"t": numbers, "x": [sign * n for n in numbers]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams whose files have the same names, counts and times."""
    path = tmp_path_factory.mktemp("sound") / "store"
    with chronicle.open(path) as db:
        for name, sign in (("a", 1), ("b", -1)):
            stream = db.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 512})
            for first in (0, 1000, 2000):
                stream.append(rows(first, 1000, sign))
                stream.seal()
            stream.append(rows(3000, 300, sign))
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "store")


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def sign_of(name: str) -> int:
    return 1 if name == "a" else -1


@pytest.mark.parametrize("what", ["1.seg", "2.seg", "4.seg", "wal", "MANIFEST", ""])
def test_between_two_streams(path: Path, what: str) -> None:
    places = [path / "streams" / name for name in ("a", "b")]
    found = [sorted(place.glob(f"*{what}"))[0] if what else place for place in places]
    swap(*found)
    for mode in ("r", "rw"):
        with chronicle.open(path, mode=mode) as db:
            assert {problem.stream for problem in db.check().problems} == {"a", "b"}
            assert list(db.damaged()) == ["a", "b"]
            with pytest.raises(CorruptStore):
                db.sql("SELECT sum(x) FROM a").fetchall()
    with chronicle.open(path) as db:
        report = db.check(repair=True)
        if what in ("MANIFEST", ""):
            assert not report.ok
            return
        assert report.ok
        kept = 0
        for name in ("a", "b"):
            table = db.stream(name).scan().read_all()
            assert all(
                x == sign_of(name) * t for t, x in table.select(["t", "x"]).to_pandas().values
            )
            kept += table.num_rows
        assert report.lost_events == 6600 - kept


@pytest.mark.parametrize("pair", list(combinations([1, 2, 3, 4], 2)))
def test_within_a_stream(path: Path, pair: tuple[int, int]) -> None:
    place = path / "streams" / "a"
    swap(*(place / f"{number:08d}.seg" for number in pair))
    with chronicle.open(path, mode="r") as db:
        assert not db.check().ok
        assert list(db.damaged()) == ["a"]


def test_a_stream_of_an_old_release_gets_an_identity() -> None:
    """Its files stay as they are; what is written from now on carries it."""
    files = MemoryFiles()
    schema = StreamSchema(SCHEMA, "t")
    with Store.open("memory", files=files) as store:
        store.create_stream("s", schema, StreamOptions(leaf_bytes=512)).append(rows(0, 10, 1))
    body = read_manifest(files, "streams/s")
    assert body is not None
    for newer in ("events", "position"):
        del body[newer]
    body["next_id"] &= (1 << 32) - 1
    write_manifest(files, "streams/s", body)
    with Store.open("memory", files=files) as store:
        stream = store.stream("s")
        stream.append(rows(10, 2000, 1))
        stream.append(rows(2010, 5, 1))
        assert stream.snapshot().count == 2015
    body = read_manifest(files, "streams/s")
    assert body is not None
    assert StreamManifest.from_json(body).identity > 0
    assert body["events"] == 2015
    with Store.open("memory", "r", files=files) as store:
        assert store.check().ok
        assert store.stream("s").snapshot().count == 2015


def closed_store() -> tuple[MemoryFiles, str]:
    """A store whose stream has had ten commits of ten events, and the path of its log."""
    files = MemoryFiles()
    schema = StreamSchema(SCHEMA, "t")
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", schema)
        for first in range(0, 100, 10):
            stream.append(rows(first, 10, 1))
    (log,) = [name for name in files.list("streams/s") if name.endswith(".wal")]
    return files, f"streams/s/{log}"


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_closed_log_cannot_be_cut_unnoticed(share: float, reopened: bool) -> None:
    files, path = closed_store()
    if reopened:
        with Store.open("memory", files=files) as store:
            assert store.stream("s").snapshot().count == 100
    with files.append(path) as file:
        file.truncate(int(share * file.size))
    with Store.open("memory", files=files) as store:
        assert not store.check().ok
        report = store.check(repair=True)
        kept = store.stream("s").snapshot().count
        assert report.lost_events == 100 - kept
        assert kept <= 100 * share
        assert store.stream("s").snapshot().version > kept / 10
    with Store.open("memory", files=files) as store:
        assert store.check().ok
        assert store.stream("s").snapshot().count == kept


def test_every_cut_of_a_closed_log_is_noticed() -> None:
    """At the border of two records above all: what is left of them is sound."""
    files, path = closed_store()
    ends = [record.end for record in read_log(files, path).records]
    assert len(ends) == 11
    for end in [*ends[:-1], ends[-1] - 1]:
        cut = files.kill()
        with cut.append(path) as file:
            file.truncate(end)
        with Store.open("memory", "r", files=cut) as store:
            assert not store.check().ok
            with pytest.raises(CorruptStore, match="when the stream was closed"):
                store.stream("s").snapshot()


def test_a_flipped_bit_at_the_end_of_a_closed_log_is_no_torn_record() -> None:
    files, path = closed_store()
    data = bytearray(files.read(path))
    data[-20] ^= 4
    with files.append(path) as file:
        file.truncate(0)
        file.write(bytes(data))
    with Store.open("memory", files=files) as store:
        assert not store.check().ok
        assert store.check(repair=True).lost_events == 10


def test_what_a_closed_log_lost_is_counted_by_the_manifest() -> None:
    """The last record that can be read behind the damage knows of nothing after it."""
    files, path = closed_store()
    ends = [record.end for record in read_log(files, path).records]
    data = bytearray(files.read(path))
    for record in (3, 9, 10):
        data[ends[record] - 20] ^= 4
    with files.append(path) as file:
        file.truncate(0)
        file.write(bytes(data))
    with Store.open("memory", files=files) as store:
        report = store.check(repair=True)
        kept = store.stream("s").snapshot().count
        assert (kept, report.lost_events) == (20, 80)


def test_earlier_commits_can_be_named_after_closing_and_opening() -> None:
    files, path = closed_store()
    for opening in range(3):
        if opening:
            with Store.open("memory", files=files) as store:
                store.stream("s").append(rows(100 * opening, 10, 1))
        assert files.exists(path)
        for position in (1, 5, 10, 10 + opening):
            pin = pin_stream(files, "streams/s", position=position)
            assert open_pinned(files, pin).count == 10 * position


def test_a_log_that_nobody_closed_is_renewed() -> None:
    files, path = closed_store()
    store = Store.open("memory", files=files)
    store.stream("s").append(rows(100, 10, 1))
    left = files.kill()  # as a killed process leaves it
    store.close()
    with Store.open("memory", files=left) as store:
        assert store.stream("s").snapshot().count == 110
        assert not left.exists(path)


def test_a_log_may_be_shorter_than_the_one_before() -> None:
    """What a clean close says of a log is not said of the next one, which a crash ends."""
    memory = MemoryFiles()
    with Store.open("memory", files=memory) as store:
        stream = store.create_stream("s", StreamSchema(SCHEMA, "t"), StreamOptions())
        stream.append(rows(0, 1000, 1))
    store = Store.open("memory", files=memory)
    store.stream("s").seal()
    store.stream("s").append(rows(1000, 1, 1))
    with Store.open("memory", files=memory.kill()) as again:
        assert again.stream("s").snapshot().count == 1001
