"""Backups in objects: whole or unfinished, each sends what is new, and what is removed is gone."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import xxhash

import chronicle
from chronicle.errors import (
    CorruptStore,
    InvalidArgument,
    NotAStore,
    StorageFailed,
    UnsupportedFormat,
)
from chronicle.store import backup as there
from chronicle.store.backup import (
    BYTES,
    LISTINGS,
    list_backups,
    object_backups,
    remove_backup,
    restore_backup,
    verify_backup,
)
from chronicle.store.object_store import ObjectStore
from chronicle.store.progress import watched_by

from .patience import PATIENCE_S
from .rounds import rounds
from .test_backup import contents, path, rows  # noqa: F401

Put = Callable[[ObjectStore, str, Iterable[bytes]], None]
PUT: Put = ObjectStore.put


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/objects")


def backed_up(path: Path, objects: ObjectStore, name: str, mode: str = "r") -> None:  # noqa: F811
    with chronicle.open(path, mode=mode) as db:
        db.backup(objects.url, name=name)


def states(objects: ObjectStore) -> dict[str, str]:
    return {backup.name: backup.state for backup in object_backups(objects)}


def sent(objects: ObjectStore) -> set[str]:
    return set(objects.list(BYTES))


def test_what_is_restored_is_the_store(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    told: list[float] = []
    with watched_by(told.append):
        backed_up(path, objects, "monday")
    assert told == sorted(told)
    assert told[-1] > 0.9
    (found,) = object_backups(objects)
    counted = dict.fromkeys("abc", 1305)
    assert (found.name, found.state, found.streams) == ("monday", "whole", counted)
    assert found.events == 3 * 1305
    assert found.bytes >= sum(objects.sizes(BYTES).values())  # equal files are there once
    assert list_backups(objects.url) == [found]
    assert verify_backup(objects, "monday") == []
    made = restore_backup(objects, tmp_path / "deep" / "again")
    assert (made.name, made.made_at, made.streams) == ("monday", found.made_at, counted)
    again = tmp_path / "deep" / "again"
    for name in ("", "server", "server/tokens.json", "server/transactions/job/part", "streams/b"):
        theirs, ours = (stat.S_IMODE((place / name).stat().st_mode) for place in (again, path))
        assert theirs == ours, name
    assert (again / "server" / "idempotency.wal").read_bytes() == b"keys"
    with chronicle.open(again, mode="r") as db:  # which builds nothing
        for name in "abc":
            (index,) = db.stream(name).indexes()
            assert (index["attribute"], index["state"], index["covered_events"]) == (
                "k", "ready", 1000,
            )  # fmt: skip
    assert contents(again, "rw") == contents(path)


def test_the_next_backup_sends_what_is_new(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    backed_up(path, objects, "one", "rw")
    before = sent(objects)
    segments = {
        f"{BYTES}{xxhash.xxh3_128_hexdigest(data)}-{len(data)}"
        for data in (file.read_bytes() for file in (path / "streams").glob("*/*.seg"))
    }
    assert len(segments & before) >= 3  # the sealed ones
    with chronicle.open(path) as db:
        db.move(f"file://{tmp_path}/cold")
        db.stream("b").append(rows(5_000, 100))
        written: list[str] = []
        sending = lambda self, key, parts: (written.append(key), PUT(self, key, parts))[1]  # noqa: E731
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ObjectStore, "put", sending)
            db.backup(objects.url, name="two")
    assert not before & set(written), "what is there was sent once more"
    assert len(segments & before) >= 3
    restore_backup(objects, tmp_path / "two", "two")
    assert not list((tmp_path / "two").rglob("*.cold"))
    for file in (tmp_path / "cold").rglob("*.seg"):  # a backup needs nothing of where they moved
        file.unlink()
    with chronicle.open(tmp_path / "two", mode="r") as db:
        assert db.stream("b").count == 1405
        assert db.check().ok


def test_it_is_whole_or_unfinished(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever object could not be written: earlier backups stay, and the next try goes on."""
    backed_up(path, objects, "before")
    with chronicle.open(path) as db:
        db.stream("a").append(rows(9_000, 50))
    step = tried = 0
    while True:
        step += rounds(2, 1)
        seen = [0]

        def failing(self: ObjectStore, key: str, parts: Iterable[bytes]) -> None:
            seen[0] += 1  # noqa: B023
            if seen[0] == step:  # noqa: B023
                raise StorageFailed(f"could not write {key}")
            PUT(self, key, parts)

        monkeypatch.setattr(ObjectStore, "put", failing)
        name = f"try-{step}"
        try:
            backed_up(path, objects, name)
        except StorageFailed:
            tried += 1
        else:
            break
        finally:
            monkeypatch.setattr(ObjectStore, "put", PUT)
        assert states(objects).get(name, "unfinished") == "unfinished"
        with pytest.raises(InvalidArgument, match="there is no backup"):
            restore_backup(objects, tmp_path / name, name)
        assert verify_backup(objects, "before") == []
        if step > 1:  # else not even that it began is known
            with pytest.raises(InvalidArgument, match="cut short"):
                remove_backup(objects, "before")
        backed_up(path, objects, name)
        assert states(objects)[name] == "whole"
        restore_backup(objects, tmp_path / name, name)
        assert contents(tmp_path / name) == contents(path)
        remove_backup(objects, name)
    assert tried >= 3


def test_one_that_is_killed_is_unfinished(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    """A process that dies at each step in turn, its last ones among them."""
    program = (
        "import os, signal, sys, chronicle\n"
        "from chronicle.store.object_store import ObjectStore\n"
        "real, seen = os.replace, [0]\n"
        "def replace(*given):\n"
        "    seen[0] += 1\n"
        f"    if str(given[1]).startswith({str(tmp_path / 'objects')!r}):\n"
        "        left[0] -= 1\n"
        "        if not left[0]: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*given)\n"
        "left = [int(sys.argv[1])]\n"
        "os.replace = replace\n"
        f"with chronicle.open({str(path)!r}) as db: db.backup({objects.url!r}, name='x')\n"
    )

    def killed(step: int) -> bool:
        ran = subprocess.run(
            [sys.executable, "-c", program, str(step)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
        return bool(ran.returncode)

    backed_up(path, objects, "before")
    with chronicle.open(path) as db:
        db.stream("c").append(rows(9_000, 50))
    for step in (1, 2, 4, 100):
        assert killed(step) == (step < 100)
        if step < 100:
            assert states(objects).get("x", "unfinished") == "unfinished"
            assert verify_backup(objects, "before") == []
    assert states(objects) == {"before": "whole", "x": "whole"}
    restore_backup(objects, tmp_path / "x", "x")
    assert contents(tmp_path / "x", "rw") == contents(path, "rw")


def test_what_goes_on_meanwhile(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A compaction, a move, appends and deletes, while the first bytes are being sent."""
    expected = contents(path)
    began, go = threading.Event(), threading.Event()

    def slow(self: ObjectStore, key: str, parts: Iterable[bytes]) -> None:
        if key.startswith(BYTES):
            began.set()
            assert go.wait(PATIENCE_S)
        PUT(self, key, parts)

    monkeypatch.setattr(there, "THREADS", 1)  # most files are opened afterwards
    with chronicle.open(path) as db:
        monkeypatch.setattr(ObjectStore, "put", slow)
        thread = threading.Thread(target=db.backup, args=(objects.url,), kwargs={"name": "x"})
        thread.start()
        try:
            assert began.wait(PATIENCE_S)
            monkeypatch.setattr(ObjectStore, "put", PUT)
            db.stream("a").compact()
            assert db.stream("b").delete("k = 'k3'") > 0
            db.move(f"file://{tmp_path}/cold", stream="c")
            db.stream("c").append(rows(50_000, 10))
        finally:
            go.set()
            thread.join(PATIENCE_S)
    restore_backup(objects, tmp_path / "x")
    assert contents(tmp_path / "x", "rw") == expected


def test_what_is_sent_of_the_active_segment_is_what_is_committed(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    with chronicle.open(path) as db:
        stream = db.create_stream("long", rows(0, 1).schema, "t", options={"leaf_bytes": 1024})
        stream.append(rows(0, 3000))
        (active,) = (path / "streams" / "long").glob("*.seg")
        with active.open("ab") as out:
            out.write(b"what an append has begun to write")
        db.backup(objects.url)
    restore_backup(objects, tmp_path / "again")
    (found,) = (tmp_path / "again" / "streams" / "long").glob("*.seg")
    assert b"has begun to write" not in found.read_bytes()
    assert contents(tmp_path / "again")["long"].num_rows == 3000


def damaged(objects: ObjectStore, key: str, how: str) -> Path:
    file = Path(objects.url.removeprefix("file://"), key)
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    return file


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_damage_is_told_and_nothing_is_made_of_it(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
    how: str,
) -> None:
    backed_up(path, objects, "x")
    sizes = objects.sizes(BYTES)
    file = damaged(objects, max(sizes, key=lambda key: sizes[key]), how)
    problems = verify_backup(objects, "x")
    assert problems
    assert all(file.name in problem for problem in problems)  # equal files lie there once
    with pytest.raises(CorruptStore, match="choose another backup"):
        restore_backup(objects, tmp_path / "made")
    with pytest.raises(NotAStore, match="UNFINISHED"):
        chronicle.open(tmp_path / "made")
    (listing,) = objects.list(LISTINGS)
    damaged(objects, listing, "flipped")
    (told,) = object_backups(objects)
    assert (told.state, "checksum" in str(told.problem)) == ("damaged", True)
    with pytest.raises(CorruptStore, match="checksum"):
        restore_backup(objects, tmp_path / "other", "x")
    assert not (tmp_path / "other").exists()


def test_the_place_of_the_objects_fails_while_it_is_restored(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backed_up(path, objects, "x")
    read = ObjectStore.read
    for step in (2, 9, 20):
        seen = [0]

        def failing(self: ObjectStore, *given: Any) -> bytes:
            seen[0] += 1  # noqa: B023
            if seen[0] == step:  # noqa: B023
                raise StorageFailed("no answer")
            return read(self, *given)

        monkeypatch.setattr(ObjectStore, "read", failing)
        with pytest.raises(StorageFailed, match="no answer"):
            restore_backup(objects, tmp_path / f"{step}", "x")
        monkeypatch.setattr(ObjectStore, "read", read)
        with pytest.raises(NotAStore):
            chronicle.open(tmp_path / f"{step}", mode="r")


def test_what_is_removed_is_gone(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    """Deleted from the store, and the backup from before removed: no object has it."""
    secret = "to be forgotten"
    options = {"leaf_bytes": 1024}
    with chronicle.open(path) as db:
        schema = rows(0, 1).schema
        stream = db.create_stream("d", schema, time="t", codec="none", options=options)
        stream.append(rows(0, 500))
        stream.append([{"t": 501, "k": secret}])
        stream.seal()
        db.backup(objects.url, name="before")
        assert stream.delete(f"k = '{secret}'") == 1
        stream.compact()
        db.backup(objects.url, name="after")

    def holding() -> list[str]:
        place = Path(objects.url.removeprefix("file://"))
        return [
            str(file) for file in place.rglob("*") if file.is_file()
            and secret.encode() in file.read_bytes()
        ]  # fmt: skip

    assert holding()
    shared = sent(objects)
    assert remove_backup(objects, "before") > 0
    assert not holding()
    assert sent(objects) < shared
    assert verify_backup(objects, "after") == []
    restore_backup(objects, tmp_path / "after")
    assert contents(tmp_path / "after")["d"].num_rows == 500
    assert remove_backup(objects, "after") > 0
    assert objects.list("") == []


def test_listings_of_strangers(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    backed_up(path, objects, "x")
    key = f"{LISTINGS}x.backup"
    head, _, body = objects.read(key, 0, objects.size(key) or 0).partition(b"\n")

    def put(document: Any, line: bytes = b"CHRONICLE-BACKUP 1 ") -> None:
        data = json.dumps(document).encode()
        objects.put(key, [line, xxhash.xxh3_64_hexdigest(data).encode(), b"\n", data])

    told = json.loads(body)
    for outside in ("../outside", "/etc/passwd", "a/../../b", "a//b", ""):
        for kind in ("files", "directories"):
            changed = json.loads(body)
            if kind == "files":
                changed["files"][0]["path"] = outside
            else:
                changed["directories"].append([outside, 0o700])
            put(changed)
            with pytest.raises(CorruptStore, match="no file of a store"):
                restore_backup(objects, tmp_path / "made", "x")
    for wrong in ([], {}, {**told, "files": [{"path": "x"}]}, {**told, "directories": [["x"]]}):
        put(wrong)
        with pytest.raises(CorruptStore, match="not the listing"):
            restore_backup(objects, tmp_path / "made", "x")
    put(told, b"CHRONICLE-BACKUP 2 ")
    with pytest.raises(UnsupportedFormat, match="reads up to 1"):
        restore_backup(objects, tmp_path / "made", "x")
    put(told, b"something 1 ")
    with pytest.raises(CorruptStore, match="not the listing"):
        restore_backup(objects, tmp_path / "made", "x")
    put(told)
    assert head.split()[0] == b"CHRONICLE-BACKUP"
    assert verify_backup(objects, "x") == []
    assert not (tmp_path / "made").exists()


def test_wrong_input(
    path: Path,  # noqa: F811
    objects: ObjectStore,
    tmp_path: Path,
) -> None:
    with chronicle.open(path, mode="r") as db:
        for name in ("", ".hidden", "a/b", "../x", "x" * 101):
            with pytest.raises(InvalidArgument, match="a backup's name has"):
                db.backup(objects.url, name=name)
        with pytest.raises(InvalidArgument, match="named by its path"):
            db.backup(tmp_path / "copy", name="x")
        with pytest.raises(InvalidArgument, match=r"s3://bucket/prefix"):
            db.backup("https://example.org/x")
        db.backup(objects.url, name="x")
        with pytest.raises(InvalidArgument, match="already"):
            db.backup(objects.url, name="x")
    with pytest.raises(InvalidArgument, match=r"no backup 'y'.*x"):
        remove_backup(objects, "y")
    with pytest.raises(InvalidArgument, match=r"no backup 'y'.*x"):
        verify_backup(objects, "y")
    with pytest.raises(InvalidArgument, match="not empty"):
        restore_backup(objects, path)
    with pytest.raises(InvalidArgument, match="no whole backup"):
        restore_backup(ObjectStore(f"file://{tmp_path}/nowhere"), tmp_path / "made")
    assert not os.path.exists(tmp_path / "made")


def test_by_default_it_is_named_by_the_time(path: Path, objects: ObjectStore) -> None:  # noqa: F811
    with chronicle.open(path, mode="r") as db:
        db.backup(objects.url)
    (found,) = object_backups(objects)
    assert found.made_at is not None
    assert found.name[:13] == found.made_at.replace("-", "").replace(":", "")[:13]
