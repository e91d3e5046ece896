"""Blocks of a lookup come together, and no others than it reads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.errors import StorageFailed, StoreClosed
from chronicle.indexes import runs as runs_module
from chronicle.indexes.lookup import IndexMetrics, KeyRanges, ahead, blocks_between, mark_run
from chronicle.indexes.opened import RunsChanged
from chronicle.indexes.runs import Run
from chronicle.indexes.storage import READERS, TOGETHER, IndexStorage, block_key
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import StreamSchema
from chronicle.store.options import StreamOptions
from chronicle.store.prune import IsNull, Range
from chronicle.store.store import Store
from chronicle.tests.patience import PATIENCE_S
from chronicle.tests.rounds import rounds

ARROW = pa.schema([pa.field("t", pa.int64(), False), pa.field("x", pa.int64())])
SCHEMA = StreamSchema(ARROW, "t")
EVENTS = 120_000


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead")
    rng = np.random.default_rng(2)
    values = pa.array(rng.integers(0, 1000, EVENTS), mask=rng.random(EVENTS) < 0.1)
    with Store.open(path, "rw") as store:
        stream = store.create_stream(
            "s", SCHEMA, StreamOptions(leaf_bytes=1 << 15, segment_bytes=1 << 16)
        )
        for first in range(0, EVENTS, 30_000):
            part = pa.table([np.arange(first, first + 30_000), values.slice(first, 30_000)], ARROW)
            stream.append(part)
        stream.seal()
        indexes = StreamIndexes(path / "own", True)
        indexes.create("x", SCHEMA)
        indexes.catch_up(stream.snapshot().state)
        indexes.close()
    return path / "own"


def all_runs(indexes: StreamIndexes) -> list[Run]:
    return [run for listed in indexes.catalogue().runs.values() for run in listed]


def marked(indexes: StreamIndexes, run: Run, keys: KeyRanges) -> list[int]:
    bits = np.zeros(EVENTS // 64 + 1, np.uint64)
    mark_run(run, keys, 0, bits, EVENTS, IndexMetrics())
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


@settings(
    max_examples=rounds(6, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(-10, 1010), st.integers(0, 400), st.booleans())
def test_a_lookup_reads_what_came(
    stored: Path, monkeypatch: pytest.MonkeyPatch, low: int, width: int, nulls: bool
) -> None:
    """After its blocks have come a lookup asks the database for nothing, and finds the same."""
    atoms = [Range("x", low, low + width), *([IsNull("x")] if nulls else [])]
    attribute = SCHEMA.attribute("x")
    plain = StreamIndexes(stored, False)
    wanted = [marked(plain, run, KeyRanges(plain, atoms, attribute)) for run in all_runs(plain)]
    plain.close()
    indexes = StreamIndexes(stored, False)
    keys = KeyRanges(indexes, atoms, attribute)
    with monkeypatch.context() as counting:
        single: list[bytes] = []
        get = IndexStorage.get

        def counted(self: IndexStorage, key: bytes) -> bytes | None:
            single.append(key)
            return get(self, key)

        counting.setattr(IndexStorage, "get", counted)
        coming = ahead([(run, [(run, keys)]) for run in all_runs(indexes)], indexes)
        found = [marked(indexes, run, keys) for run in coming]
        assert len(single) <= 1  # one block alone is left to who reads it
    indexes.close()
    assert found == wanted


def test_no_more_blocks_than_a_lookup_reads(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes = StreamIndexes(stored, False)
    run = max(all_runs(indexes), key=lambda each: each.entries)
    assert run.blocks > 2
    read: set[tuple[bytes, int]] = set()
    block = indexes.block

    def noted(kind: bytes, run: Run, number: int = 0, *, stored: bool = False) -> bytes:
        read.add((kind, number))
        return block(kind, run, number, stored=stored)

    monkeypatch.setattr(indexes, "block", noted)
    for low, width in ((0, 0), (100, 50), (3, 900), (500, 499), (-5, 2000)):
        keys = KeyRanges(indexes, [Range("x", low, low + width)], SCHEMA.attribute("x"))
        read.clear()
        marked(indexes, run, keys)
        spans, _ = keys.of(run)
        told = [place for span in spans for place in blocks_between(run, *span)]
        assert len(told) == len(set(told))
        assert read <= set(told)
        assert len(set(told) - read) <= 1  # a range that begins where a block ends
    indexes.close()


def test_what_cannot_come_is_told_by_who_needs_it(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes = StreamIndexes(stored, False)
    keys = KeyRanges(indexes, [Range("x", 100, 300)], SCHEMA.attribute("x"))

    def refused(self: IndexStorage, key: object) -> bytes:
        raise StorageFailed("no answer")

    runs = all_runs(indexes)
    wanted = marked(indexes, runs[0], keys)
    indexes.close()
    indexes = StreamIndexes(stored, False)
    keys = KeyRanges(indexes, [Range("x", 100, 300)], SCHEMA.attribute("x"))
    with monkeypatch.context() as broken:
        broken.setattr(IndexStorage, "get_all", refused)
        assert [
            marked(indexes, run, keys) for run in ahead([(runs[0], [(runs[0], keys)])], indexes)
        ] == [wanted]
        broken.setattr(IndexStorage, "get", refused)
        (run,) = ahead([(runs[1], [(runs[1], keys)])], indexes)
        with pytest.raises(RunsChanged, match="no answer"):
            marked(indexes, run, keys)
    indexes.close()


def test_only_what_is_missing_is_read(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes = StreamIndexes(stored, False)
    run = all_runs(indexes)[0]
    at = run.index, run.segment, run.first, run.generation
    names = [block_key(b"p", *at, number) for number in range(run.blocks)]
    read: list[bytes] = []
    get_all = IndexStorage.get_all

    def noted(self: IndexStorage, keys: list[bytes]) -> list[bytes | None]:
        read.extend(keys)
        return get_all(self, keys)

    monkeypatch.setattr(IndexStorage, "get_all", noted)
    indexes.block(b"p", run, 0)
    indexes.fetch(names)
    indexes.fetch(names)
    assert read == names[1:]
    assert all(map(indexes.holds, names))
    assert runs_module.BLOCK_ENTRIES * len(names) >= run.entries
    indexes.close()


class Slow:
    """A database whose answers wait until they may come."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Semaphore(0)
        self.closed = False

    def get(self, keys: list[bytes]) -> list[bytes]:
        self.asked.release()
        assert self.may.wait(PATIENCE_S)
        assert not self.closed
        return [key * 2 for key in keys]

    def close(self) -> None:
        self.closed = True


def test_many_values_are_read_side_by_side_and_never_of_a_closed_database(stored: Path) -> None:
    storage = IndexStorage(stored, False)
    storage._db.close()
    slow = storage._db = Slow()
    keys = [f"{n}".encode() for n in range(3 * TOGETHER + 5)]
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(storage.get_all, keys)
        for _ in range(READERS):  # all at once, though none has its answer
            assert slow.asked.acquire(timeout=PATIENCE_S)
        ended = threads.submit(storage.close)
        with pytest.raises(TimeoutError):
            ended.result(0.2)
        with pytest.raises(StoreClosed):
            storage.get(b"k")
        assert not slow.closed
        slow.may.set()
        assert answer.result(PATIENCE_S) == [key * 2 for key in keys]
        ended.result(PATIENCE_S)
    assert slow.closed
