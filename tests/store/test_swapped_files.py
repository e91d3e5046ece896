"""Files that ended up in another stream, or in the place of another file, are noticed."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import CorruptStore
from chronicle.schema import StreamSchema
from chronicle.store import Store, StreamOptions
from chronicle.store.catalog import StreamManifest
from chronicle.store.manifest import read_manifest, write_manifest
from chronicle.store.memory_files import MemoryFiles

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.int64())])


def rows(first: int, count: int, sign: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"t": numbers, "x": [sign * n for n in numbers]}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two streams whose files have the same names, counts and times."""
    with chronicle.open(tmp_path / "store") as db:
        for name, sign in (("a", 1), ("b", -1)):
            stream = db.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 512})
            for first in (0, 1000, 2000):
                stream.append(rows(first, 1000, sign))
                stream.seal()
            stream.append(rows(3000, 300, sign))
    return tmp_path / "store"


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


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_closed_log_cannot_be_cut_unnoticed(share: float) -> None:
    files = MemoryFiles()
    schema = StreamSchema(SCHEMA, "t")
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", schema)
        for first in range(0, 100, 10):
            stream.append(rows(first, 10, 1))
    (log,) = [name for name in files.list("streams/s") if name.endswith(".wal")]
    path = f"streams/s/{log}"
    with files.append(path) as file:
        file.truncate(int(share * file.size))
    with Store.open("memory", files=files) as store:
        assert not store.check().ok
        report = store.check(repair=True)
        assert report.lost_events == 100
        assert store.stream("s").snapshot().count == 0
        assert store.stream("s").snapshot().version > 10
