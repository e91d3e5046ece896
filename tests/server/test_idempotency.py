"""Keys: what a repeated request gets, also after a crash at any moment."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from chronicle.errors import CorruptStore, InvalidArgument, InvalidData, StorageFailed, StorageFull
from chronicle.schema import StreamSchema
from chronicle.server.http.replies import Problem
from chronicle.server.service.idempotency import FILE_NAME, IdempotencyKeys
from chronicle.store.files import RealFiles
from chronicle.store.log import read_log
from chronicle.store.store import Store as EventStore
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

ANSWER = {"appended": 3, "late": 0, "count": 3}


class Store:
    """A stream whose version grows with each append, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 7
        self.now = 1_000_000.0
        self.appends = 0
        self.sound = True
        self.files: Any = RealFiles(str(path))
        path.mkdir()

    def open(self) -> IdempotencyKeys:
        return IdempotencyKeys(
            self.files,
            24 * 3600,
            lambda name: self.version,
            lambda name: self.sound,
            clock=lambda: self.now,
        )

    def append(self, keys: IdempotencyKeys, key: str = "k", said: str = "p") -> tuple[Any, bool]:
        with keys.request("s", key, said) as work:
            if not work.replayed:
                self.appends += 1
                self.version += 1
                work.answer, work.version = dict(ANSWER), self.version
        return work.answer, work.replayed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.code


def test_the_same_request_is_answered_again_without_work(store: Store) -> None:
    keys = store.open()
    assert store.append(keys) == (ANSWER, False)
    assert store.append(keys) == (ANSWER, True)
    assert store.append(keys, key="other") == (ANSWER, False)
    assert store.appends == 2


def test_answers_outlive_the_server(store: Store) -> None:
    store.append(store.open())
    for _ in range(3):
        assert store.append(store.open()) == (ANSWER, True)
    assert store.appends == 1


def test_another_request_under_the_key_is_refused(store: Store) -> None:
    keys = store.open()
    store.append(keys)
    assert code_of(lambda: store.append(keys, said="other")) == "idempotency-mismatch"
    assert code_of(lambda: store.append(store.open(), said="other")) == "idempotency-mismatch"


def test_a_request_that_runs_is_not_run_beside_itself(store: Store) -> None:
    keys = store.open()
    with keys.request("s", "k", "p") as work:
        assert code_of(lambda: store.append(keys)) == "idempotency-in-flight"
        work.answer = dict(ANSWER)
    assert store.append(keys) == (ANSWER, True)


@pytest.mark.parametrize("error", [InvalidData("bad row"), Problem("overloaded", "busy")])
def test_a_failed_request_may_be_sent_again(store: Store, error: Exception) -> None:
    keys = store.open()
    with pytest.raises(type(error)), keys.request("s", "k", "p"):
        raise error
    assert store.append(keys, said="mended") == (ANSWER, False)
    assert store.append(store.open(), said="mended") == (ANSWER, True)


def test_keys_belong_to_a_stream(store: Store) -> None:
    keys = store.open()
    for stream in ("s", "t"):
        with keys.request(stream, "k", "p") as work:
            assert not work.replayed
            work.answer = dict(ANSWER)
    keys.forget_stream("s")
    assert store.append(keys) == (ANSWER, False)
    with store.open().request("t", "k", "p") as work:
        assert work.replayed


def test_keys_are_forgotten_after_their_time_and_not_before(store: Store) -> None:
    keys = store.open()
    store.append(keys)
    store.now += 24 * 3600 - 1
    assert store.append(keys) == (ANSWER, True)
    keys.close()
    keys = store.open()
    assert store.append(keys) == (ANSWER, True)
    store.now += 2
    assert store.append(keys) == (ANSWER, False)
    assert len(store.open()) == 1


def attempt(store: Store, keys: IdempotencyKeys, key: str) -> tuple[str, Any, bool]:
    """The code that a request was refused with, or its answer."""
    try:
        answer, replayed = store.append(keys, key=key)
    except Problem as problem:
        return problem.code, None, False
    return "", answer, replayed


def log_of(store: Store) -> Path:
    return store.path / FILE_NAME


def crash_in_the_middle(store: Store, *, appended: bool) -> None:
    """Leave what a process leaves that is killed before it could log the end."""
    keys = store.open()
    work = keys.request("s", "k", "p")
    work.__enter__()
    if appended:
        store.version += 1


def test_a_crash_before_the_append_frees_the_key(store: Store) -> None:
    crash_in_the_middle(store, appended=False)
    assert store.append(store.open()) == (ANSWER, False)


def test_a_crash_after_the_append_is_not_guessed_about(store: Store) -> None:
    crash_in_the_middle(store, appended=True)
    keys = store.open()
    assert code_of(lambda: store.append(keys)) == "idempotency-in-doubt"
    assert code_of(lambda: store.append(store.open())) == "idempotency-in-doubt"
    assert store.appends == 0


def test_an_unexpected_error_leaves_the_key_in_doubt(store: Store) -> None:
    keys = store.open()
    with pytest.raises(MemoryError), keys.request("s", "k", "p"):
        raise MemoryError
    assert code_of(lambda: store.append(keys)) == "idempotency-in-doubt"


def ended(content: bytes, path: Path) -> set[str]:
    """Keys whose answer is in a log."""
    path.write_bytes(content)
    records = [orjson.loads(r.payload) for r in read_log(RealFiles(str(path.parent)), path.name)[1]]
    return {record["key"] for record in records if record["op"] == "end"}


def test_every_cut_of_the_log_is_survived(store: Store) -> None:
    keys = store.open()
    for number in range(4):
        store.append(keys, key=f"k{number}")
    whole = log_of(store).read_bytes()
    for cut in range(0, len(whole), rounds(17, 5)):
        answered = ended(whole[:cut], log_of(store))
        keys = store.open()
        before = store.appends
        for number in range(4):
            refused, answer, replayed = attempt(store, keys, f"k{number}")
            if refused:
                assert refused == "idempotency-in-doubt"
                continue
            assert answer == ANSWER
            assert replayed or f"s\nk{number}" not in answered, "an answer on disk was lost"
        store.appends = before


def test_a_flipped_bit_lets_no_request_in_twice(store: Store) -> None:
    """Damage is told and refused, or it only costs the end of the last request."""
    keys = store.open()
    for number in range(3):
        store.append(keys, key=f"k{number}")
    keys.close()
    whole = log_of(store).read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        log_of(store).write_bytes(damaged)
        before = store.appends
        keys = store.open()
        for number in range(3):
            try:
                code, _, replayed = attempt(store, keys, f"k{number}")
            except CorruptStore:
                refused += 1
                continue
            assert replayed or code == "idempotency-in-doubt", place
        assert store.appends == before
    assert refused > len(whole)


def test_a_begun_request_is_on_disk_before_its_work(store: Store) -> None:
    keys = store.open()
    with keys.request("s", "k", "p") as work:
        record = orjson.loads(read_log(store.files, FILE_NAME).records[-1].payload)
        assert record == {"op": "begin", "key": "s\nk", "at": 0.0, "print": "p", "version": 7}
        work.answer = dict(ANSWER)


def test_the_calendar_has_no_part_in_a_key_s_age(store: Store) -> None:
    """A server that is started again goes on counting; its monotonic clock began anew."""
    keys = store.open()
    store.append(keys)
    store.now += 23 * 3600
    keys.tidy()
    keys.close()
    store.now = 5.0  # the machine was started again
    keys = store.open()
    assert store.append(keys) == (ANSWER, True)
    store.now += 3600 + 1
    assert store.append(keys) == (ANSWER, False)


def test_answers_of_events_that_a_restored_store_does_not_have_are_forgotten(store: Store) -> None:
    store.append(store.open())
    store.version = 7  # the store is that of a backup made before
    assert store.append(store.open()) == (ANSWER, False)
    assert store.appends == 2


@pytest.mark.parametrize("error", [StorageFull("no space"), StorageFailed("sync")])
def test_a_failed_sync_leaves_its_key_in_doubt(store: Store, error: Exception) -> None:
    """What was not synced may survive a restart: the key must not be free."""
    keys = store.open()

    def fail() -> None:
        with keys.request("s", "k", "p"):
            store.version += 1
            store.sound = False
            raise error

    with pytest.raises(type(error)):
        fail()
    assert code_of(lambda: store.append(keys)) == "idempotency-in-doubt"
    assert code_of(lambda: store.append(store.open())) == "idempotency-in-doubt"
    store.version = 7  # the events did not survive
    assert store.append(store.open()) == (ANSWER, False)


def test_a_full_disk_that_left_nothing_frees_the_key(store: Store) -> None:
    keys = store.open()
    with pytest.raises(StorageFull), keys.request("s", "k", "p"):
        raise StorageFull("no space")
    assert store.append(keys) == (ANSWER, False)


@pytest.mark.parametrize("fault", ["enospc", "eio", "fsync"])
def test_an_end_that_cannot_be_written_is_no_refusal(store: Store, fault: Any) -> None:
    """The events are stored: the answer says so, and the key works on without a restart."""
    store.files = FaultyFiles(RealFiles(str(store.path)))
    keys = store.open()
    store.append(keys, key="first")
    only = {"sync"} if fault == "fsync" else {"write"}
    with keys.request("s", "k", "p") as work:
        store.version += 1
        work.answer, work.version = dict(ANSWER), store.version
        store.files.plan = FaultPlan(fault, 1, None, only=only)
    assert store.append(keys) == (ANSWER, True), "in flight no more"
    store.files = RealFiles(str(store.path))
    before = store.appends
    refused, _, replayed = attempt(store, store.open(), "k")
    assert replayed or refused == "idempotency-in-doubt"
    assert store.appends == before


SCHEMA = pa.schema([pa.field("t", pa.int64(), False), pa.field("k", pa.int64(), False)])
KEYS = 3


class Served:
    """A stream and its keys on one disk, as a server has them."""

    def __init__(self, files: Any) -> None:
        self.store = EventStore.open("memory", files=files)
        if "s" not in self.store.streams():
            self.store.create_stream("s", StreamSchema(SCHEMA, "t"))
        found = self.store.stream("s")
        assert isinstance(found, EventStream)
        self.stream = found
        self.keys = IdempotencyKeys(
            files, 86400, lambda name: found.snapshot().version, lambda name: found.sound
        )

    def append(self, number: int) -> str:
        """One request; what a client sees of it."""
        try:
            with self.keys.request("s", f"k{number}", "p") as work:
                if not work.replayed:
                    rows = {"t": [number, number + 10], "k": [number, number]}
                    done = self.stream.append(pa.table(rows, SCHEMA))
                    work.answer, work.version = {"appended": done.appended}, done.version
        except Problem as problem:
            return problem.code
        except (StorageFull, StorageFailed):
            return "failed"
        return "stored"

    def copies(self, number: int) -> int:
        table = pa.Table.from_batches(self.stream.snapshot().scan(), SCHEMA)
        return table.column("k").to_pylist().count(number) // 2


@pytest.mark.parametrize(
    "fault", ["eio", "enospc", "fsync", "crash_before", "crash_halfway", "crash_after"]
)
@pytest.mark.parametrize("left", ["lose", "keep", "tear"])
def test_no_fault_appends_twice_or_loses_what_was_answered(fault: Any, left: Any) -> None:
    """Each operation fails in turn; clients ask again, at once and after a restart."""
    for operation in itertools.count(1):
        disk = MemoryFiles()
        Served(disk).store.close()
        files = FaultyFiles(disk, FaultPlan(fault, operation))
        said: dict[int, set[str]] = {number: set() for number in range(KEYS)}
        try:
            served = Served(files)
            for number in range(KEYS):
                for _ in range(2):
                    said[number].add(served.append(number))
            served.keys.tidy()
        except (SimulatedCrash, StorageFull, StorageFailed):
            pass
        again = Served(disk.crash(random.Random(operation), left))
        for number in range(KEYS):
            copies = again.copies(number)
            assert copies <= 1
            if "stored" in said[number]:
                assert copies == 1, "what was answered is there"
            told = again.append(number)
            assert told in ("stored", "idempotency-in-doubt"), told
            assert again.copies(number) <= 1, "twice"
            if told == "stored":
                assert again.copies(number) == 1
        if not files.struck and files.operations < operation:
            break
    assert operation > 10


@pytest.mark.parametrize("key", ["", "a" * 256, "tab\there", "line\nbreak"])
def test_keys_that_are_none(store: Store, key: str) -> None:
    with pytest.raises(InvalidArgument, match="Idempotency-Key"):
        store.append(store.open(), key=key)


def test_many_threads_with_the_same_keys_append_once_each(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.server.service.idempotency.RECORDS_MIN", 8)
    keys = store.open()
    done: list[tuple[int, bool]] = []

    def work(thread: int) -> None:
        for number in range(25):
            refused, _, replayed = attempt(store, keys, f"k{number}")
            while refused == "idempotency-in-flight":
                refused, _, replayed = attempt(store, keys, f"k{number}")
            if not refused:
                done.append((number, replayed))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, replayed in done if not replayed) == list(range(25))
    assert len(done) == 200
    again = store.open()
    assert all(store.append(again, key=f"k{number}")[1] for number in range(25))
