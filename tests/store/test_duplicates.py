"""Events with a key that is stored already: against a plain model, and across every accident."""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import (
    AttributeNotFound,
    ChronicleError,
    InvalidArgument,
    StorageFailed,
    StorageFull,
    UnsupportedFormat,
)
from chronicle.schema import StreamSchema
from chronicle.store import duplicates
from chronicle.store.catalog import MANIFEST_VERSION, BulkCommit, read_manifest, write_manifest
from chronicle.store.options import StreamOptions
from chronicle.store.schema_change import drop_attribute, rename_attribute, set_options
from chronicle.store.segment import TICK_MAX, TICK_MIN
from chronicle.store.snapshot import Snapshot
from chronicle.store.staging import StagingPlan, commit_staged, new_job, prepare_staging, stage
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import Fault, FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import CrashMode, MemoryFiles
from chronicle.tests.patience import PATIENCE_S

from ..rounds import rounds
from .conftest import chosen

SCHEMA = StreamSchema(
    pa.schema([("t", pa.int64()), ("n", pa.int64()), ("k", pa.int64()), ("s", pa.string())]), "t"
)
WITHIN = 50
OPTIONS = StreamOptions(
    leaf_bytes=1024,
    segment_bytes=8192,
    late_events_max=40,
    compaction="manual",
    unique="k, s",
    within=str(WITHIN),
)

LONG = os.environ.get("CHRONICLE_CRASH") == "long"

Row = tuple[int, int, int | None, str | None]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    arrays = [pa.array(c, type_) for c, type_ in zip(columns, SCHEMA.arrow.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


def rows_of(snapshot: Snapshot) -> list[Row]:
    table = pa.Table.from_batches(snapshot.scan(), schema=snapshot.schema.arrow)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class Model:
    """What a stream with ``unique`` holds, event by event."""

    def __init__(self, within: int = WITHIN) -> None:
        self.rows: list[Row] = []
        self.within = within

    def append(self, rows: Sequence[Row]) -> int:
        """Take events in; gives the number of duplicates."""
        left_out = 0
        times: dict[Any, list[int]] = defaultdict(list)
        for t, _, *key in self.rows:
            times[tuple(key)].append(t)
        for row in sorted(rows, key=lambda row: row[0]):
            before = times[row[2:]]
            if None not in row[2:] and any(abs(row[0] - t) <= self.within for t in before):
                left_out += 1
            else:
                self.rows.append(row)
                before.append(row[0])
        return left_out

    @property
    def in_order(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: row[0])


@pytest.fixture
def stream(store: Store) -> EventStream:
    return store.create_stream("s", SCHEMA, OPTIONS)


def stage_rows(stream: EventStream, *parts: Sequence[Row], job: str) -> list[Any]:
    plan = StagingPlan(stream.directory, job, stream.schema, stream.options, stream.layout)
    prepare_staging(stream.files, plan)
    staged = []
    for part, rows in enumerate(parts):
        ordered = sorted(rows, key=lambda row: row[0])
        staged += stage(stream.files, plan, part, [iter([batch_of(ordered)])])
    return staged


def load(stream: EventStream, *parts: Sequence[Row], **how: Any) -> BulkCommit:
    job = new_job()
    return commit_staged(stream, job, stage_rows(stream, *parts, job=job), **how)


# ------------------------------------------------------------------------------ the definition


@pytest.mark.parametrize(
    ("stored", "given", "left_out"),
    [
        ([], [100, 100], [100]),
        ([100], [150], [150]),
        ([100], [151], []),
        ([100], [50], [50]),  # late: before it
        ([100], [49], []),
        ([100, 200], [150], [150]),
        ([], [100, 140, 160], [140]),  # one that was left out is not there to be compared with
        ([], [160, 140, 100], [140]),  # in order of time, not of arrival
        ([105], [100, 160], [100]),
        ([TICK_MAX], [TICK_MIN, TICK_MAX - WITHIN], [TICK_MAX - WITHIN]),
        ([TICK_MIN], [TICK_MIN + WITHIN, TICK_MAX], [TICK_MIN + WITHIN]),
    ],
)
def test_within_a_time_in_both_directions(
    stream: EventStream, stored: list[int], given: list[int], left_out: list[int]
) -> None:
    for t in stored:
        assert stream.append(batch_of([(t, 0, 1, "a")])).appended == 1
    done = stream.append(batch_of([(t, 1, 1, "a") for t in given]))
    assert (done.appended, done.duplicates) == (len(given) - len(left_out), len(left_out))
    for t in left_out:
        given = [*given[: given.index(t)], *given[given.index(t) + 1 :]]
    assert [row[0] for row in rows_of(stream.snapshot())] == sorted([*stored, *given])


def test_a_null_in_the_key_is_like_no_other(stream: EventStream) -> None:
    rows: list[Row] = [(1, 0, None, "a"), (1, 1, None, "a"), (1, 2, 5, None), (1, 3, 5, None)]
    assert stream.append(batch_of(rows)).duplicates == 0
    assert stream.append(batch_of(rows)).duplicates == 0
    assert stream.append(batch_of([(1, 0, 5, "a"), *rows, (1, 1, 5, "a")])).duplicates == 1
    assert stream.snapshot().count == 13


@pytest.mark.parametrize(
    ("type_", "equal", "other"),
    [
        (pa.float64(), [0.0, -0.0], 1.0),
        (pa.float64(), [float("nan"), float("nan")], 0.0),
        (pa.float32(), [1.5, 1.5], 2.5),
        (pa.bool_(), [True, True], False),
        (pa.int8(), [-3, -3], 3),
        (pa.uint64(), [2**64 - 1, 2**64 - 1], 1),
        (pa.decimal128(30, 3), [Decimal("1.500"), Decimal("1.5")], Decimal("1.501")),
        (pa.binary(), [b"\0a", b"\0a"], b"a"),
        (pa.large_string(), ["x" * 40, "x" * 40], "x" * 39 + "y"),
        (pa.string(), ["", ""], "\0"),
        (pa.timestamp("us"), [7, 7], 8),
        (pa.date32(), [7, 7], 8),
    ],
)
def test_keys_of_every_type(store: Store, type_: pa.DataType, equal: list[Any], other: Any) -> None:
    schema = StreamSchema(pa.schema([("t", pa.int64()), ("k", type_)]), "t")
    stream = store.create_stream("s", schema, StreamOptions(unique=["K"], within="10"))

    def append(*values: Any) -> int:
        arrays = [pa.array([5] * len(values)), pa.array(values, type_)]
        return stream.append(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)).duplicates

    assert append(equal[0], other, equal[1]) == 1
    assert append(equal[1]) == 1
    stream.seal()
    assert append(equal[0]) == 1
    assert append(other) == 1
    assert stream.snapshot().count == 2


def test_equal_hashes_are_not_equal_keys(
    stream: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_two(batch: pa.RecordBatch, *_: object) -> Any:
        return batch.column("k").to_numpy(zero_copy_only=False).astype(np.uint64) % np.uint64(2)

    monkeypatch.setattr(duplicates, "key_hashes", one_of_two)
    model, rng = Model(), random.Random(4)
    for number in range(60):
        rows = some_rows(rng, number)
        rows = [(t, n, 0 if k is None else k, s) for t, n, k, s in rows]
        assert stream.append(batch_of(rows)).duplicates == model.append(rows)
    assert rows_of(stream.snapshot()) == model.in_order


# ----------------------------------------------------------------------------------- a model


def some_rows(rng: random.Random, number: int) -> list[Row]:
    """Mostly in order, some late, some very late; keys that come again."""
    rows: list[Row] = []
    for i in range(rng.choice([1, 2, 20, 90])):
        t = number * 12 + i // 3 - rng.choice([0, 0, 0, 5, 40, 200, 900])
        key = rng.choice([None, *range(12)])
        rows.append((t, number * 1000 + i, key, rng.choice([None, "a", "b"])))
    return rows


@pytest.mark.parametrize("seed", range(40 if LONG else 3))
def test_random_histories_are_those_of_a_plain_model(
    memory: MemoryFiles, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends, loads, deletes, restarts, power cuts, with windows that are tidied up often."""
    rng = random.Random(seed)
    monkeypatch.setattr(duplicates, "KEYS_MIN", rng.choice([1, 8, 1 << 16]))
    monkeypatch.setattr(duplicates, "KEYS_MAX", rng.choice([4, 100, 1 << 24]))
    store = Store.open("memory", files=memory)
    store.create_stream("s", SCHEMA, OPTIONS)
    model = Model()
    for number in range(rounds(60, 90)):
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        what = rng.random()
        if what < 0.75:
            rows = some_rows(rng, number)
            done = stream.append(batch_of(rows))
            assert done.duplicates == model.append(rows), (seed, number)
            assert done.appended == len(rows) - done.duplicates
            assert done.count == len(model.rows)
        elif what < 0.8:
            parts = [some_rows(rng, number) for _ in range(rng.choice([1, 3]))]
            rows = [row for part in parts for row in part]
            loaded = load(stream, *parts)
            assert loaded.duplicates == model.append(rows), (seed, number)
            assert loaded.events == len(rows) - loaded.duplicates
        elif what < 0.84:
            low = number * 12 - rng.choice([30, 300])
            high = low + rng.choice([10, 100])
            rows = [row for row in some_rows(rng, number) if low <= row[0] <= high]
            model.rows = [row for row in model.rows if not low <= row[0] <= high]
            if rows:
                assert load(stream, rows, over=(low, high)).duplicates == model.append(rows)
            else:
                stream.delete(low, high + 1)
        elif what < 0.88:
            rest = rng.randrange(5)
            stream.delete(choose=chosen(lambda b, rest=rest: b.column("n").to_numpy() % 5 == rest))
            model.rows = [row for row in model.rows if row[1] % 5 != rest]
        elif what < 0.92:
            stream.compact()
        elif what < 0.96:
            store.close()
            store = Store.open("memory", files=memory)
        else:
            memory = memory.crash(rng, rng.choice(["lose", "keep", "tear"]))
            store = Store.open("memory", files=memory)
        assert rows_of(store.stream("s").snapshot()) == model.in_order, (seed, number)
    assert store.check().ok
    store.close()


def test_many_equal_keys_in_one_append_take_no_longer(stream: EventStream) -> None:
    """The work for an event does not grow with how often its key comes in the append."""
    rows: list[Row] = [(i, i, 1, "a") for i in range(100_000)]
    done = stream.append(batch_of(rows))
    assert done.appended == -(-100_000 // (WITHIN + 1))
    assert stream.append(batch_of(rows)).appended == 0


# --------------------------------------------------------------------------- what changes it


def test_the_key_of_a_deleted_event_can_be_stored_again(stream: EventStream) -> None:
    stream.append(batch_of([(1, 0, 1, "a"), (2, 1, 2, "a")]))
    stream.delete(1, 2)
    assert stream.append(batch_of([(3, 2, 1, "a"), (3, 3, 2, "a")])).duplicates == 1
    assert [row[1] for row in rows_of(stream.snapshot())] == [1, 2]


def test_the_setting_is_changed_and_looks_at_what_is_there(store: Store) -> None:
    stream = store.create_stream("s", SCHEMA)
    twice = batch_of([(1, 0, 1, "a"), (1, 1, 1, "a")])
    assert stream.append(twice).duplicates == 0
    stream.alter(set_options, unique="k, s", within="10")
    assert stream.append(twice).duplicates == 2
    stream.alter(set_options, within="20")
    assert stream.append(batch_of([(20, 0, 1, "a")])).duplicates == 1
    stream.alter(set_options, unique=["n"])
    assert stream.append(batch_of([(20, 7, 1, "a")])).duplicates == 0
    stream.alter(set_options, unique=None)
    assert stream.options.within is None
    assert stream.append(twice).duplicates == 0


def test_an_append_that_waits_goes_by_the_settings_of_now(store: Store) -> None:
    """It was prepared before the setting changed, and its turn comes after."""
    stream = store.create_stream("s", SCHEMA)
    stream.append(batch_of([(1, 0, 1, "a")]))
    told: list[int] = []
    with stream.quiet():
        thread = threading.Thread(
            target=lambda: told.append(stream.append(batch_of([(1, 1, 1, "a")])).duplicates)
        )
        prepared = threading.Event()
        prepare = stream._job

        def waiting(*arguments: Any) -> Any:
            job = prepare(*arguments)
            prepared.set()
            return job

        stream._job = waiting  # type: ignore[method-assign]
        thread.start()
        assert prepared.wait(PATIENCE_S)
        set_options(stream.commits, unique="k, s", within="10")
    thread.join()
    assert told == [1]


def test_a_key_follows_its_columns(stream: EventStream, store: Store) -> None:
    stream.append(batch_of([(1, 0, 1, "a")]))
    stream.alter(rename_attribute, "k", "key")
    assert stream.options.unique == ("key", "s")
    batch = batch_of([(1, 0, 1, "a")]).rename_columns(["t", "n", "key", "s"])
    assert stream.append(batch).duplicates == 1
    with pytest.raises(InvalidArgument, match="part of what makes events"):
        stream.alter(drop_attribute, "key")
    store.close()
    with Store.open("memory", files=stream.files) as again:
        assert again.stream("s").options.unique == ("key", "s")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"unique": "k"}, "go together"),
        ({"within": "5"}, "go together"),
        ({"unique": "", "within": "5"}, "names the columns of a key"),
        ({"unique": "k,,s", "within": "5"}, "names the columns of a key"),
        ({"unique": 'k, "s', "within": "5"}, "names the columns of a key"),
        ({"unique": [], "within": "5"}, "names the columns of a key"),
        ({"unique": "k, K", "within": "5"}, "twice"),
        ({"unique": "k", "within": "often"}, "within must be an age"),
        ({"unique": "k", "within": "5 GB"}, "span of time"),
        ({"unique": "k", "within": "5 hours"}, "plain number of ticks"),
        ({"unique": "missing", "within": "5"}, "missing"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    store: Store, settings: dict[str, Any], what: str
) -> None:
    with pytest.raises((InvalidArgument, AttributeNotFound), match=what):
        store.create_stream("s", SCHEMA, StreamOptions(**settings))
    assert store.streams() == []
    stream = store.create_stream("s", SCHEMA, OPTIONS)
    changed = {"unique": None, "within": None, **settings}
    with pytest.raises((InvalidArgument, AttributeNotFound), match=what):
        stream.alter(set_options, **changed)
    assert stream.options == OPTIONS


def test_names_with_commas_and_quotes_stand_in_quotes() -> None:
    options = StreamOptions(unique='"a, b", c , "d""e"', within="5")
    assert options.unique == ("a, b", "c", 'd"e')
    assert StreamOptions.from_json(options.to_json()) == options


def test_older_releases_refuse_such_a_stream(memory: MemoryFiles, stream: EventStream) -> None:
    stream.append(batch_of([(1, 0, 1, "a")]))
    body = read_manifest(memory, stream.directory)
    assert body is not None
    assert body["needs"] == 3
    write_manifest(memory, stream.directory, {**body, "needs": MANIFEST_VERSION + 1})
    with pytest.raises(UnsupportedFormat):
        read_manifest(memory, stream.directory)


def test_a_stream_that_begins_with_events_has_each_once(store: Store) -> None:
    rows: list[Row] = [(i // 2, i, i % 3, "a") for i in range(90)]
    model = Model()
    model.append(rows)
    made = store.create_stream("s", SCHEMA, OPTIONS, events=pa.Table.from_batches([batch_of(rows)]))
    assert rows_of(made.snapshot()) == model.in_order
    assert made.append(batch_of(rows[:5])).appended == 0


# -------------------------------------------------------------------------------- bulk loads


def test_a_load_without_duplicates_is_committed_as_it_was_staged(stream: EventStream) -> None:
    stream.append(batch_of([(i, i, i, "a") for i in range(200)]))
    job = new_job()
    rows: list[Row] = [(200 + i, i, 1000 + i, "a") for i in range(300)]
    staged = stage_rows(stream, rows[:100], rows[100:], job=job)
    done = commit_staged(stream, job, staged)
    assert (done.events, done.duplicates, done.runs) == (300, 0, 0)
    files = set(stream.files.list(stream.directory))
    assert {item.entry.file for item in staged} <= files


def test_a_load_that_holds_duplicates_keeps_the_order_and_tells_again(stream: EventStream) -> None:
    stream.append(batch_of([(i, i, i, "a") for i in range(100)]))
    rows: list[Row] = [(i, 1000 + i, i % 150, "a") for i in range(60, 400)]
    model = Model()
    model.append([(i, i, i, "a") for i in range(100)])
    expected = model.append(rows)
    job = new_job()
    staged = stage_rows(stream, rows[::2], rows[1::2], job=job)
    done = commit_staged(stream, job, staged)
    assert done.duplicates == expected > 0
    assert commit_staged(stream, job, staged).duplicates == expected
    assert sorted(rows_of(stream.snapshot())) == sorted(model.rows)
    stream.compact()
    assert sorted(rows_of(stream.snapshot())) == sorted(model.rows)


def test_a_load_of_nothing_but_duplicates_is_a_commit(stream: EventStream) -> None:
    rows: list[Row] = [(i, i, i, "a") for i in range(100)]
    stream.append(batch_of(rows))
    done = load(stream, rows)
    assert (done.events, done.duplicates, done.segments, done.runs) == (0, 100, 0, 0)
    assert rows_of(stream.snapshot()) == rows


def test_truncation_forgets_the_keys(stream: EventStream) -> None:
    rows: list[Row] = [(i, i, i, "a") for i in range(100)]
    stream.append(batch_of(rows))
    done = load(stream, rows, truncate=True)
    assert (done.events, done.duplicates) == (100, 0)
    assert stream.append(batch_of(rows)).duplicates == 100


# ---------------------------------------------------------------------------------- accidents


def test_threads_that_send_the_same_store_it_once(stream: EventStream) -> None:
    told: list[tuple[int, int]] = []

    def send() -> None:
        for number in range(40):
            rows: list[Row] = [(number, i, number * 10 + i, "a") for i in range(10)]
            done = stream.append(batch_of(rows), "none")
            told.append((done.appended, done.duplicates))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(appended for appended, _ in told) == 400
    assert sum(left_out for _, left_out in told) == 1200
    assert stream.snapshot().count == 400


def test_a_duplicate_is_as_durable_as_it_was_asked_for(
    memory: MemoryFiles, stream: EventStream
) -> None:
    stream.append(batch_of([(1, 0, 1, "a")]), "none")
    assert stream.append(batch_of([(1, 0, 1, "a")]), "commit").duplicates == 1
    left = memory.crash(random.Random(0), "lose")
    with Store.open("memory", files=left) as store:
        assert store.stream("s").snapshot().count == 1


@cache
def sends() -> list[list[Row]]:
    rng = random.Random(11)
    batches = [some_rows(rng, number) for number in range(9)]
    return [[row for row in rows if None not in row] for rows in batches]


class Client:
    """Sends batch after batch."""

    def __init__(self) -> None:
        self.sent = 0

    def run(self, stream: EventStream) -> None:
        """Go on with the first batch that was not acknowledged."""
        between: dict[int, Callable[[], object]] = {3: stream.seal, 5: stream.compact}
        batches = sends()
        while self.sent < len(batches):
            between.get(self.sent, lambda: None)()
            rows = batches[self.sent]
            if self.sent == 6:
                load(stream, rows)
            else:
                stream.append(batch_of(rows))
            self.sent += 1


def send_again(memory: MemoryFiles) -> None:
    """After an accident, send everything once more, from the beginning: each event is there once.

    Which says that what had been stored is recognised, whatever the accident has left.
    """
    with Store.open("memory", files=memory) as store:
        if "s" not in store.streams():
            store.create_stream("s", SCHEMA, OPTIONS)
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        model = Model()
        for rows in sends():
            stream.append(batch_of(rows))
            model.append(rows)
        assert rows_of(stream.snapshot()) == model.in_order
        report = store.check()
        assert report.ok, report.problems


def fresh(_: FaultyFiles) -> Client:
    return Client()


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["lose", "keep", "tear"])
def test_what_is_sent_again_after_a_power_cut_is_stored_once(mode: CrashMode) -> None:
    for number, memory, files, client in strikes("crash_after", fresh, step=1 if LONG else 13):
        with suppress(SimulatedCrash):
            store = Store.open("memory", files=files)
            client.run(store.create_stream("s", SCHEMA, OPTIONS))
            store.close()
        send_again(memory.crash(random.Random(number), mode))


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["eio", "enospc", "fsync"])
def test_what_is_sent_again_after_a_failure_is_stored_once(fault: Fault) -> None:
    for number, memory, files, client in strikes(fault, fresh, step=1 if LONG else 13):
        with suppress(ChronicleError):
            store = Store.open("memory", files=files)
            stream = store.create_stream("s", SCHEMA, OPTIONS)
            try:
                client.run(stream)
            except (StorageFailed, StorageFull):
                if stream.sound:  # the failure has left nothing: the same stream goes on
                    client.run(stream)
            store.close()
        send_again(memory.crash(random.Random(number), "lose"))
