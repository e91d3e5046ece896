"""A damaged stream is set aside and named; the others are served, and repair works on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import ChronicleError, CorruptStore, NotAStore, StorageFull, StreamNotFound
from chronicle.schema import StreamSchema
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.test_fork import rows

SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.string())])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams with indexes, segments, a tail and late events."""
    path = tmp_path_factory.mktemp("sound") / "store"
    with chronicle.open(path) as db:
        for name in ("bad", "good"):
            stream = db.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 2048})
            stream.create_index("k")
            stream.append(rows(0, 2000))
            stream.seal()
            stream.append(rows(2000, 500))
            stream.append(rows(10, 5))
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "store")


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 4
    path.write_bytes(data)


def newest(path: Path, kind: str) -> Path:
    return sorted((path / "streams" / "bad").glob(f"*.{kind}"))[-1]


DAMAGES = {
    "segment missing": lambda path: newest(path, "seg").unlink(),
    "segment cut": lambda path: cut(newest(path, "seg")),
    "segment empty": lambda path: newest(path, "seg").write_bytes(b""),
    "log missing": lambda path: newest(path, "wal").unlink(),
    "log cut": lambda path: cut(newest(path, "wal")),
    "log empty": lambda path: newest(path, "wal").write_bytes(b""),
    "log's header": lambda path: flip_header(newest(path, "wal")),
    "manifest damaged": lambda path: flip_header(path / "streams/bad/MANIFEST"),
    "manifest empty": lambda path: (path / "streams/bad/MANIFEST").write_bytes(b""),
    "manifest missing": lambda path: (path / "streams/bad/MANIFEST").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_the_others_are_served(path: Path, damage: str, mode: str) -> None:
    DAMAGES[damage](path)
    with chronicle.open(path, mode=mode) as db:
        assert list(db.damaged()) == ["bad"]
        assert db.streams() == ["bad", "good"]
        shown = db.sql("SHOW STREAMS").fetchall()
        assert [row[:3] for row in shown] == [("bad", None, None), ("good", "t", 2505)]
        assert "streams/bad" in shown[0][-1]
        assert shown[1][-1] is None
        assert db.sql("SHOW INDEXES").fetchall()[0][0] == "good"
        with pytest.raises(CorruptStore, match="streams/bad"):
            db.stream("bad")
        with pytest.raises(CorruptStore, match="streams/bad"):
            db.sql("SELECT count(*) FROM bad").fetchall()
        with pytest.raises(CorruptStore, match="streams/bad"):
            db.sql("SELECT count(*) FROM good JOIN bad USING (t)").fetchall()
        assert db.sql("SELECT count(*) FROM good WHERE k = 'k1'").fetchall() == [(357,)]
        assert not db.check().ok
        if mode == "rw":
            db.stream("good").append(rows(3000, 1))
            assert db.stream("good").count == 2506
            with pytest.raises(ChronicleError):
                db.create_stream("bad", SCHEMA, time="t")
            with pytest.raises(CorruptStore, match="streams/bad"):
                db.backup(path.parent / "copy")
            assert not (path.parent / "copy").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_works_on_it(path: Path, damage: str) -> None:
    DAMAGES[damage](path)
    with chronicle.open(path) as db:
        assert db.damaged()
        report = db.check(repair=True)
        if "manifest" in damage:
            assert not report.ok
            assert any("cannot be repaired" in note for note in report.notes)
            assert list(db.damaged()) == ["bad"]
            return
        assert report.ok
        assert report.lost_events == 2505 - db.stream("bad").count
        assert not db.damaged()
        assert db.stream("bad").append(rows(5000, 1)).count == db.stream("bad").count
    with chronicle.open(path) as db:
        assert db.check().ok


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_can_be_dropped_and_made_anew(path: Path, damage: str) -> None:
    DAMAGES[damage](path)
    with chronicle.open(path) as db:
        db.sql("DROP STREAM bad").fetchall()
        assert db.streams() == ["good"]
        assert not db.damaged()
        db.create_stream("bad", SCHEMA, time="t").append(rows(0, 3))
        assert db.check().ok
    with chronicle.open(path, mode="r") as db:
        assert db.stream("bad").count == 3


def test_a_repair_by_the_writer_is_seen_by_a_reader(path: Path) -> None:
    newest(path, "seg").unlink()
    with chronicle.open(path, mode="r") as reader:
        assert list(reader.damaged()) == ["bad"]
        with chronicle.open(path) as db:
            db.check(repair=True)
        assert not reader.damaged()
        assert reader.stream("bad").count > 0


def test_a_store_without_its_mark_is_not_made_a_new_one(path: Path) -> None:
    """Also a backup that was cut short, by releases before the file UNFINISHED-BACKUP."""
    shutil.rmtree(path / "CHRONICLE")
    for mode in ("r", "rw"):
        with pytest.raises(NotAStore):
            chronicle.open(path, mode=mode)
    assert not (path / "CHRONICLE").exists()


def test_a_drop_that_was_cut_short_is_finished(path: Path) -> None:
    (path / "streams/bad").rename(path / "streams/.dropped-1")
    with chronicle.open(path, mode="r") as db:
        assert db.streams() == ["good"]
        assert db.check().ok
    with chronicle.open(path) as db:
        with pytest.raises(StreamNotFound):
            db.stream("bad")
        assert not (path / "streams/.dropped-1").exists()


def test_a_store_opens_for_writing_on_a_full_disk() -> None:
    files = MemoryFiles()
    schema = StreamSchema(SCHEMA, "t")
    store = Store.open("memory", files=files)
    stream = store.create_stream("s", schema)
    stream.append(rows(0, 100))
    stream.append(rows(100, 100))
    killed = files.kill()
    for full in (killed, files):
        if full is files:
            store.close()
        full.capacity = sum(
            full.size(f"{place}/{name}")
            for place in ("CHRONICLE", "streams/s")
            for name in full.list(place)
        )
        with Store.open("memory", files=full) as again:
            opened = again.stream("s")
            assert opened.snapshot().count == 200
            with pytest.raises(StorageFull):
                opened.append(rows(200, 50))
            full.capacity = None
            assert opened.append(rows(200, 50)).count == 250
