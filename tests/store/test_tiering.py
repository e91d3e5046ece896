"""What is due to move by a stream's settings, and the mover that moves it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chronicle
from chronicle.api.database import catalog_of
from chronicle.catalog.streams import handle_of
from chronicle.errors import ChronicleError, InvalidArgument, StorageFailed
from chronicle.store import moving as mover_module
from chronicle.store import options as options_module
from chronicle.store.catalog import MANIFEST, SegmentEntry, StreamManifest
from chronicle.store.moving import due_segments, move_due
from chronicle.store.object_store import ObjectStore, object_store
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S, wait_until
from chronicle.tests.rounds import rounds

from .conftest import SCHEMA, batch_of, numbers
from .test_cold_segments import TIMED, answers, cold_files, one

SECOND = 1_000_000
START = 10**15


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mover_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(mover_module, "RETRY_SECONDS", 0.05)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return object_store(f"file://{tmp_path}/objects")


@pytest.fixture
def open_store(tmp_path: Path, objects: ObjectStore) -> Iterator[chronicle.Database]:
    with chronicle.open(tmp_path / "store", objects=objects.url) as database:
        yield database


def events(first: int, count: int, step: int = 10_000) -> pa.Table:
    rng = np.random.default_rng(first + 1)
    times = START + (first + np.arange(count)) * step
    keys = pa.array([f"k{n}" for n in rng.integers(0, 20, count)])
    columns = [
        pa.array(times, pa.timestamp("us")), keys, pa.array(rng.integers(0, 10_000, count)),
        rng.random(count),
    ]  # fmt: skip
    return pa.table(columns, TIMED)


def fill(stream: chronicle.catalog.streams.Stream, count: int) -> None:
    """In pieces: what comes at once is cut where a piece of a million events ends."""
    for first in range(0, count, 2000):
        stream.append(events(first, 2000))
    stream.seal()


SMALL = {"leaf_bytes": 4096, "segment_bytes": 48 << 10, "compaction": "manual"}


# ------------------------------------------------------------------------ what is due


@given(
    sizes=st.lists(st.integers(1, 50), max_size=12),
    cold=st.sets(st.integers(0, 11)),
    age=st.none() | st.integers(0, 200),
    keep=st.none() | st.integers(0, 400),
    late=st.integers(0, 100),
)
@settings(max_examples=rounds(30, 300), deadline=None)
def test_due_is_what_the_settings_say(
    sizes: list[int], cold: set[int], age: int | None, keep: int | None, late: int
) -> None:
    """Compared with the rule, one segment after the other, over what is left each time."""
    entries, tick = [], 0
    for number, size in enumerate(sizes):
        entries.append(SegmentEntry(number + 1, size, tick, tick + size - 1, size, 2))
        tick += size
    run = (SegmentEntry(99, late, 0, 0, late, 2),) if late else ()
    options = StreamOptions(move_after=None if age is None else str(age), keep_local_bytes=keep)
    manifest = StreamManifest("s", SCHEMA, options, segments=tuple(entries), runs=run)
    newest = tick - 1
    gone = frozenset(entries[n].file for n in cold if n < len(entries))
    found = due_segments(manifest, newest, gone)
    local = [entry for entry in entries if entry.file not in gone]
    expected = []
    for entry in local:
        taken = late + sum(e.bytes for e in local if e not in expected)
        if (age is not None and newest - entry.last > age) or (keep is not None and taken > keep):
            expected.append(entry)
    assert found == expected
    left = sum(entry.bytes for entry in local if entry not in found) + late
    if keep is not None:
        assert left <= keep or left == late
    if age is not None:
        assert all(newest - e.last <= age for e in local if e not in found)


@pytest.mark.parametrize(
    ("given_options", "what"),
    [
        ({"move_after": "3 GB"}, "keep_local_bytes is a size"),
        ({"move_after": "soon"}, "an age such as '90 days'"),
        ({"move_after": "100"}, "needs a unit"),
        ({"keep_local_bytes": "3 days"}, "move_after is an age"),
        ({"keep_local_bytes": "3 parsecs"}, "use KB, MB, GB, TB"),
        ({"keep_local_bytes": -1}, "a size such as '50 GB'"),
        ({"keep_local_bytes": True}, "a size such as '50 GB'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    open_store: chronicle.Database, given_options: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidArgument, match=what):
        open_store.create_stream("s", TIMED, time="t", options=given_options)
    stream = open_store.create_stream("s", TIMED, time="t")
    with pytest.raises(InvalidArgument, match=what):
        stream.set_options(**given_options)
    assert catalog_of(open_store).stream_options("s")["move_after"] is None


# ------------------------------------------------------------------------- the mover


def test_segments_move_by_age(
    open_store: chronicle.Database, objects: ObjectStore, tmp_path: Path
) -> None:
    open_store.sql(
        "CREATE STREAM s (t TIMESTAMP NOT NULL, k VARCHAR, x BIGINT, y DOUBLE) TIMESTAMP BY t "
        "WITH (leaf_bytes = 4096, segment_bytes = 49152, move_after = '100 seconds')"
    )
    stream = open_store.stream("s")
    for first in range(0, 30_000, 5000):
        stream.append(events(first, 5000))
    wait_until(lambda: stream.stats()["due_segments"] == 0)
    entries = handle_of(stream).commits.manifest.segments  # type: ignore[union-attr]
    horizon = START + 29_999 * 10_000 - 100 * SECOND
    assert (
        cold_files(tmp_path / "store")
        == [f"{entry.file}.cold" for entry in entries if entry.last < horizon]
        != []
    )
    figures = stream.stats()
    assert figures["moved_segments"] == figures["cold_segments"] == len(objects.list("")) // 2
    assert figures["moved_bytes"] == figures["cold_bytes"] > 0
    told = open_store.sql("SELECT move_after, keep_local_bytes FROM chronicle.streams").fetchall()
    assert told == [("100 seconds", None)]
    placed = open_store.sql(
        "SELECT place, count(*) FROM chronicle.segments WHERE kind = 'sealed' GROUP BY ALL"
    ).fetchall()
    assert dict(placed)["objects"] == figures["cold_segments"]
    assert open_store.sql("SELECT count(*) FROM s").fetchall() == [(30_000,)]
    assert catalog_of(open_store).store.moving()["state"] == "waiting"  # type: ignore[index]
    open_store.sql("ALTER STREAM s SET (move_after = NULL)")
    stream.append(events(60_000, 5000))
    time.sleep(0.3)
    assert stream.stats()["moved_segments"] == figures["moved_segments"]


def test_segments_move_by_size(open_store: chronicle.Database, tmp_path: Path) -> None:
    stream = open_store.create_stream("s", TIMED, time="t", options=SMALL)
    for first in range(0, 30_000, 5000):
        stream.append(events(first, 5000))
    stream.seal()
    assert not cold_files(tmp_path / "store")
    wanted = answers(open_store)
    stream.set_options(keep_local_bytes="200 KB")
    wait_until(lambda: stream.stats()["due_segments"] == 0)
    figures, entries = stream.stats(), handle_of(stream).commits.manifest.segments  # type: ignore[union-attr]
    sizes = [entry.bytes for entry in entries]
    local = sum(sizes) - figures["cold_bytes"]
    assert local <= 200_000 < local + sizes[figures["cold_segments"] - 1]
    assert cold_files(tmp_path / "store") == [
        f"{entry.file}.cold" for entry in entries[: figures["cold_segments"]]
    ]
    assert answers(open_store) == wanted


def test_a_sparse_stream_is_no_crowd_of_objects(open_store: chronicle.Database) -> None:
    """What spans enough is sealed only when it is worth an object."""
    stream = open_store.create_stream("s", TIMED, time="t", options={"move_after": "1 second"})
    for first in range(0, 100):
        stream.append(events(first * 1000, 10))
    assert stream.stats()["segments"] <= 1
    assert stream.stats()["due_segments"] == 0


def test_what_spans_enough_is_sealed(
    open_store: chronicle.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_module, "MOVED_BYTES_MIN", 32 << 10)
    options = {"leaf_bytes": 4096, "move_after": "100 seconds"}
    stream = open_store.create_stream("s", TIMED, time="t", options=options)
    for first in range(0, 50_000, 500):
        stream.append(events(first, 500))
    wait_until(lambda: stream.stats()["due_segments"] == 0)
    entries = handle_of(stream).commits.manifest.segments  # type: ignore[union-attr]
    assert len(entries) > 10
    assert all(entry.last - entry.first <= 35 * SECOND for entry in entries)
    assert stream.stats()["cold_segments"] >= len(entries) - 5


def test_objects_of_dropped_segments_go(
    open_store: chronicle.Database, objects: ObjectStore
) -> None:
    """Retention lets a cold segment go, and nobody asks for anything."""
    options = {**SMALL, "move_after": "50 seconds"}
    stream = open_store.create_stream("s", TIMED, time="t", options=options, retention="300 days")
    fill(stream, 20_000)
    # the manifest comes last, and only where something is cold still: what stays is that
    wait_until(
        lambda: (
            stream.stats()["cold_segments"] > 2
            and any(key.endswith(MANIFEST) for key in objects.list(""))
        )
    )
    there = len(objects.list(""))
    stream.set_options(retention="60 seconds")
    stream.append(events(40_000, 10_000))
    stream.seal()
    wait_until(lambda: 0 < len(objects.list("")) < there and stream.stats()["due_segments"] == 0)
    wait_until(
        lambda: (
            len([key for key in objects.list("") if key.endswith(".seg")])
            == stream.stats()["cold_segments"]
        )
    )


def test_without_a_place_nothing_moves_and_it_is_told(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as database:
        stream = database.create_stream(
            "s", TIMED, time="t", options={**SMALL, "move_after": "1 s"}
        )
        fill(stream, 20_000)
        assert catalog_of(database).store.moving() is None
        assert stream.stats()["due_segments"] > 3
        url = f"file://{tmp_path}/objects"
        with pytest.raises(InvalidArgument, match="leave out older_than"):
            database.move(url, older_than="1 s", due=True)
        moved = database.move(url, due=True)["s"]
        assert moved.segments == stream.stats()["cold_segments"] > 3
        assert stream.stats()["due_segments"] == 0
    with pytest.raises(InvalidArgument, match="mode='rw'"):
        chronicle.open(tmp_path / "store", "r", objects=url)
    with pytest.raises(InvalidArgument, match="s3://bucket/prefix"):
        chronicle.open(tmp_path / "store", objects="nowhere")


def test_failures_are_told_and_tried_again(
    open_store: chronicle.Database, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stream that cannot move does not hold up the others, and all go on when it can."""
    tried: list[float] = []
    put = ObjectStore.put
    broken, began = {"on": True}, time.time()

    def refused(self: ObjectStore, key: str, parts: Any) -> None:
        if broken["on"]:
            tried.append(time.monotonic())
            raise StorageFailed(f"no answer for {key}")
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", refused)
    for name in "ab":
        stream = open_store.create_stream(
            name, TIMED, time="t", options={**SMALL, "move_after": "1 s"}
        )
        fill(stream, 10_000)
    wait_until(lambda: len(tried) >= 4)
    told = catalog_of(open_store).store.moving()
    assert told is not None
    assert told["state"] == "failing"
    assert told["failures"] >= 3
    assert told["failed_total"] >= told["failures"]
    assert "no answer" in told["error"]
    assert began <= told["failing_since"] <= time.time()
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert [gap >= 0.05 * 2**n for n, gap in enumerate(gaps[:3])] == [True] * 3
    broken["on"] = False
    wait_until(lambda: catalog_of(open_store).store.moving()["error"] is None)  # type: ignore[index]
    assert catalog_of(open_store).store.moving()["state"] == "waiting"  # type: ignore[index]
    for name in "ab":
        assert open_store.stream(name).stats()["due_segments"] == 0
        assert open_store.sql(f"SELECT count(*) FROM {name}").fetchall() == [(10_000,)]


def test_one_that_cannot_move_does_not_hold_up_the_others(
    open_store: chronicle.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = ObjectStore.put
    for name in "abc":
        options = {**SMALL, "move_after": "1 s"}
        open_store.create_stream(name, TIMED, time="t", options=options)
    bad = f"/{handle_of(open_store.stream('a')).commits.manifest.identity:07x}/"  # type: ignore[union-attr]

    def refused(self: ObjectStore, key: str, parts: Any) -> None:
        if bad in key:
            raise StorageFailed(f"no place for {key}")
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", refused)
    for name in "abc":
        fill(open_store.stream(name), 10_000)
    for name in "bc":
        wait_until(lambda name=name: open_store.stream(name).stats()["due_segments"] == 0)  # type: ignore[misc]
    assert open_store.stream("a").stats()["due_segments"] > 0
    wait_until(lambda: catalog_of(open_store).store.moving()["state"] == "failing")  # type: ignore[index]


# ------------------------------------------------------- beside everything else that goes on


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Uploads hang: one event says that one has begun, the other lets all go on."""
    entered, go_on = threading.Event(), threading.Event()
    put = ObjectStore.put

    def hangs(self: ObjectStore, key: str, parts: Any) -> None:
        entered.set()
        go_on.wait()
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", hangs)
    yield entered, go_on
    go_on.set()


def test_deletes_and_compactions_do_not_wait_for_objects(
    open_store: chronicle.Database,
    objects: ObjectStore,
    hung: tuple[threading.Event, threading.Event],
) -> None:
    """While an upload hangs, its segment is rewritten: what was uploaded goes, nothing is lost."""
    entered, go_on = hung
    options = {**SMALL, "move_after": "1 s", "segment_bytes": 1 << 20}
    stream = open_store.create_stream("s", TIMED, time="t", options=options)
    fill(stream, 20_000)
    stream.append(events(10**6, 10))
    assert entered.wait(PATIENCE_S)
    assert stream.delete("x < 5000") > 0
    stream.append(one(START, 77))
    stream.compact()
    stream.append(events(2 * 10**6, 10))
    left = open_store.sql("SELECT count(*) FROM s").fetchall()
    go_on.set()
    wait_until(lambda: stream.stats()["due_segments"] == 0)
    assert open_store.sql("SELECT count(*) FROM s").fetchall() == left
    early = "t < TIMESTAMP '2001-09-09 02:00:00'"
    few = open_store.sql(f"SELECT count(*) FROM s WHERE x < 5000 AND {early}").fetchall()
    assert few == [(1,)]
    segments = [key for key in objects.list("") if key.endswith(".seg")]
    assert len(segments) == stream.stats()["cold_segments"] > 0
    assert open_store.check().ok


def test_what_is_rewritten_right_after_its_upload_does_not_move(
    open_store: chronicle.Database, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = open_store.create_stream("s", TIMED, time="t", options=SMALL)
    fill(stream, 20_000)
    copy, deleted = mover_module._copy, 0

    def copy_and_delete(*given: Any) -> None:
        nonlocal deleted
        copy(*given)
        deleted = deleted or stream.delete("x < 5000")

    monkeypatch.setattr(mover_module, "_copy", copy_and_delete)
    for _ in "12":
        open_store.move(objects.url, older_than="1 second")
        assert open_store.sql("SELECT count(*) FROM s").fetchall() == [(20_000 - deleted,)]
    segments = [key for key in objects.list("") if key.endswith(".seg")]
    assert len(segments) == stream.stats()["cold_segments"] > 0
    assert open_store.check().ok


def test_altered_columns_while_a_segment_moves(
    open_store: chronicle.Database, hung: tuple[threading.Event, threading.Event], tmp_path: Path
) -> None:
    entered, go_on = hung
    stream = open_store.create_stream("s", TIMED, time="t", options={**SMALL, "move_after": "1 s"})
    fill(stream, 20_000)
    assert entered.wait(PATIENCE_S)
    stream.rename_column("x", "z")
    stream.add_column("n", pa.int32(), nullable=False, default=7)
    wanted = open_store.sql("SELECT count(*), sum(z), sum(n) FROM s WHERE y > 0.5").fetchall()
    go_on.set()
    wait_until(lambda: stream.stats()["due_segments"] == 0)
    found = open_store.sql("SELECT count(*), sum(z), sum(n) FROM s WHERE y > 0.5").fetchall()
    assert found == wanted
    assert cold_files(tmp_path / "store")


def test_closing_ends_a_move_between_two_requests(
    tmp_path: Path, objects: ObjectStore, hung: tuple[threading.Event, threading.Event]
) -> None:
    entered, go_on = hung
    database = chronicle.open(tmp_path / "store", objects=objects.url)
    stream = database.create_stream("s", TIMED, time="t", options={**SMALL, "move_after": "1 s"})
    fill(stream, 20_000)
    assert entered.wait(PATIENCE_S)
    closing = threading.Thread(target=database.close)
    closing.start()
    time.sleep(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    with chronicle.open(tmp_path / "store", objects=objects.url) as database:
        wait_until(lambda: database.stream("s").stats()["due_segments"] == 0)
        assert database.sql("SELECT count(*) FROM s").fetchall() == [(20_000,)]
        assert database.check().ok
        cold = database.stream("s").stats()["cold_segments"]
    assert len([key for key in objects.list("") if key.endswith(".seg")]) == cold


def test_closing_waits_for_the_request_of_a_move_by_hand(
    tmp_path: Path, objects: ObjectStore, hung: tuple[threading.Event, threading.Event]
) -> None:
    entered, go_on = hung
    database = chronicle.open(tmp_path / "store")
    fill(database.create_stream("s", TIMED, time="t", options=SMALL), 20_000)

    def move() -> None:
        with suppress(ChronicleError):
            database.move(objects.url, older_than="1 second")

    threads = [threading.Thread(target=work) for work in (move, database.close)]
    threads[0].start()
    assert entered.wait(PATIENCE_S)
    threads[1].start()
    threads[1].join(0.3)
    assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    with chronicle.open(tmp_path / "store") as database:
        assert database.sql("SELECT count(*) FROM s").fetchall() == [(20_000,)]
        assert database.check().ok


def test_a_stream_is_dropped_while_it_moves(
    open_store: chronicle.Database, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = open_store.create_stream("s", TIMED, time="t", options={**SMALL, "move_after": "1 s"})
    fill(stream, 20_000)
    wait_until(lambda: bool(objects.list("")))
    open_store.drop_stream("s")
    time.sleep(0.1)  # the mover looks twice more
    assert not any(".seg" in key for key in objects.list(""))
    assert catalog_of(open_store).store.moving()["state"] == "waiting"  # type: ignore[index]


def test_what_has_moved_is_not_joined_with_small_neighbours(tmp_path: Path) -> None:
    """Folding a late event brings no crowd of cold segments back to the disk."""
    url = f"file://{tmp_path}/objects"
    with chronicle.open(tmp_path / "store") as database:
        options = {"leaf_bytes": 4096, "compaction": "manual"}
        stream = database.create_stream("s", TIMED, time="t", options=options)
        for number in range(24):
            stream.append(events(number * 1000, 1000))
            stream.seal()
        assert database.move(url, older_than="40 seconds")["s"].segments > 10
        before = stream.stats()["cold_segments"]
        stream.append(one(START + 23_500 * 10_000, 5))
        stream.compact()
        assert stream.stats()["cold_segments"] == before
        assert stream.count == 24_001


# ------------------------------------------------------------------------- accidents


def test_an_accident_while_moving_what_is_due(objects: ObjectStore) -> None:
    """At each operation: nothing is lost, and the next look finishes what was begun."""

    def filled(memory: MemoryFiles) -> None:
        with Store.open("memory", files=memory) as store:
            options = StreamOptions(
                leaf_bytes=1024, segment_bytes=4096, compaction="manual", move_after="500"
            )
            stream = store.create_stream("s", SCHEMA, options)
            for first in range(0, 2000, 100):
                stream.append(batch_of(range(first, first + 100), first))
            stream.seal()

    origin = MemoryFiles()
    filled(origin)
    counting = FaultyFiles(origin.kill())
    with Store.open("memory", files=counting) as store:
        begun = counting.operations
        assert move_due(store.stream("s"), objects, store.identity).segments > 2  # type: ignore[arg-type]
        steps = counting.operations
        store.drop_stream("s")
    for kind in ("crash_before", "crash_after", "eio"):
        for step in range(begun, steps, rounds(4, 2)):
            memory = origin.kill()
            faulty = FaultyFiles(memory, FaultPlan(kind, step))  # type: ignore[arg-type]
            try:
                with Store.open("memory", files=faulty) as store:
                    move_due(store.stream("s"), objects, store.identity)  # type: ignore[arg-type]
            except (SimulatedCrash, OSError):
                pass
            with Store.open("memory", files=memory.kill()) as store:
                stream = store.stream("s")
                assert numbers(stream.snapshot()) == list(range(2000))
                move_due(stream, objects, store.identity)  # type: ignore[arg-type]
                assert numbers(stream.snapshot()) == list(range(2000))
                figures = stream.stats()
                assert figures["due_segments"] == 0
                assert store.check().ok
                held = [key for key in objects.list("") if key.endswith(".seg")]
                assert len(held) == figures["cold_segments"] > 2, (kind, step)
                store.drop_stream("s")
