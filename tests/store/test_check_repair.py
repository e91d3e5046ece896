"""Damage is found, never answered from, and repaired with an account of what was lost."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import CorruptBlock, CorruptStore, ReadOnlyStore
from chronicle.schema import StreamSchema
from chronicle.store import leaf as leaf_module
from chronicle.store.block import open_block
from chronicle.store.layout import (
    BLOCK_FRAME,
    CHUNK_ENTRY,
    FILE_HEADER,
    FOOTER,
    LEAF_HEADER,
    BlockKind,
)
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultyFiles, SimulatedCrash, strikes
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds

SCHEMA = StreamSchema(
    pa.schema([("t", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]), "t"
)
LONG = os.environ.get("CHRONICLE_CRASH") == "long"
SEGMENT = "streams/s/00000001.seg"


def batch_of(first: int, count: int, times: list[int] | None = None) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    rng = np.random.default_rng(first)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(times if times is not None else numbers * 2, pa.int64()),
            pa.array(numbers),
            pa.array(rng.random(count), mask=numbers % 7 == 0),
            pa.array([f"name {n % 13}" for n in numbers]),
        ],
        schema=SCHEMA.arrow,
    )


def make(codec: str = "lz4", *, sealed: bool = True, late: bool = False) -> MemoryFiles:
    """A stream with leaves, two levels of nodes, dictionary pages, and a little of the rest."""
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        options = StreamOptions(
            codec=codec, leaf_bytes=512, late_events_max=50, compaction="manual"
        )
        stream = store.create_stream("s", SCHEMA, options)
        for first in range(0, 600, 100):
            stream.append(batch_of(first, 100))
        if sealed:
            stream.seal()
        if late:
            stream.append(batch_of(600, 60, [n * 3 for n in range(60)]))
        stream.append(batch_of(660, 3))
    return files


def table(files: MemoryFiles) -> pa.Table:
    with Store.open("memory", "r", files=files) as store:
        snapshot = store.stream("s").snapshot()
        return pa.Table.from_batches(snapshot.scan(), schema=SCHEMA.arrow)


def answer(files: MemoryFiles) -> pa.Table | str:
    """Every event, or the file that an error names."""
    try:
        return table(files)
    except CorruptBlock as error:
        return error.file
    except CorruptStore as error:
        return SEGMENT if SEGMENT in str(error) else str(error)


def flip(files: MemoryFiles, path: str, at: int, bit: int = 0) -> MemoryFiles:
    """A copy of the files with one bit changed."""
    copy = files.kill()
    data = bytearray(copy.read(path))
    data[at] ^= 1 << bit
    copy.remove(path)
    with copy.create(path) as file:
        file.write(data)
        file.sync()
    copy.sync_directory(path.rpartition("/")[0])
    return copy


def blocks(files: MemoryFiles, path: str) -> Iterator[tuple[BlockKind, int, int, int]]:
    """Kind, offset, head and total bytes of each block of a segment."""
    data = memoryview(files.read(path))
    at = FILE_HEADER.size
    while at + FOOTER.size < len(data):
        frame = open_block(data, at, FILE_HEADER.unpack_from(data)[4], path)
        yield frame.kind, at, frame.head_bytes, frame.total_bytes
        at += frame.total_bytes


def check(files: MemoryFiles) -> bool:
    with Store.open("memory", "r", files=files) as store:
        return store.check().ok


def chunks(files: MemoryFiles, path: str) -> list[tuple[int, int]]:
    """Where the column chunks of all leaves lie, padding left out."""
    data = files.read(path)
    found = []
    for kind, at, _, _ in blocks(files, path):
        if kind is BlockKind.LEAF:
            columns = len(SCHEMA.attributes)
            for column in range(columns):
                entry = CHUNK_ENTRY.unpack_from(
                    data, at + BLOCK_FRAME.size + LEAF_HEADER.size + column * CHUNK_ENTRY.size
                )
                found.append((at + entry[4], entry[5]))
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_flipped_bit_is_found_wherever_it_is(codec: str) -> None:
    """Every byte of a sealed segment: check says so, and no reader answers from it.

    Only the zeros between chunks are not covered by a checksum: nobody reads them.
    """
    files = make(codec)
    data = files.read(SEGMENT)
    good = table(files)
    covered = np.zeros(len(data), np.bool_)
    covered[: FILE_HEADER.size] = covered[len(data) - FOOTER.size :] = True
    kinds = set()
    for kind, at, head, total in blocks(files, SEGMENT):
        kinds.add(kind)
        covered[at : at + head] = True
        if kind is BlockKind.DICTIONARY:
            length = int.from_bytes(data[at + 64 + 16 : at + 64 + 24], "little")
            covered[at + head : at + head + length] = True
        assert total >= head
    for at, length in chunks(files, SEGMENT):
        covered[at : at + length] = True
    assert kinds == set(BlockKind)
    assert not any(data[at] for at in np.flatnonzero(~covered))
    rng = random.Random(5)
    for at in range(0, len(data), 7 if LONG else rounds(389, 193)):
        broken = flip(files, SEGMENT, at, rng.randrange(8))
        assert check(broken) == (not covered[at]), f"byte {at} of {len(data)}"
        found = answer(broken)
        assert found == SEGMENT or (isinstance(found, pa.Table) and found.equals(good))


@pytest.mark.parametrize("kind", list(BlockKind))
def test_each_kind_of_block_names_its_place(kind: BlockKind) -> None:
    files = make()
    at, head = next((at, head) for k, at, head, _ in blocks(files, SEGMENT) if k is kind)
    broken = flip(files, SEGMENT, at + head // 2, 3)
    with Store.open("memory", "r", files=broken) as store:
        report = store.check()
    assert not report.ok
    assert all(problem.file == SEGMENT for problem in report.problems)
    assert f"byte {at}" in str(report.problems[0])


def test_an_aggregate_is_not_answered_from_damage() -> None:
    files = make()
    at = next(at for kind, at, _, _ in blocks(files, SEGMENT) if kind is BlockKind.LEAF)
    broken = flip(files, SEGMENT, at + 100)
    with Store.open("memory", "r", files=broken) as store:
        snapshot = store.stream("s").snapshot()
        with pytest.raises(CorruptBlock) as error:
            snapshot.aggregate(["n"], 3, 5)
        assert (error.value.file, error.value.offset) == (SEGMENT, at)
        assert snapshot.aggregate(["n"], 600, 700).count == 50


def test_the_manifest_notices_a_flipped_bit() -> None:
    files = make()
    path = "streams/s/MANIFEST"
    size = len(files.read(path))
    for at in range(0, size, 1 if LONG else 11):
        broken = flip(files, path, at, 2)
        with Store.open("memory", "r", files=broken) as store:
            assert not store.check().ok


def test_the_log_loses_nothing_silently_but_its_last_records() -> None:
    """A flip in a record that others follow is an error; in the last it looks like a torn tail."""
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", SCHEMA)
        for first in range(8):
            stream.append(batch_of(first, 1))
        (path,) = [f"streams/s/{f}" for f in files.list("streams/s") if f.endswith(".wal")]
        files = files.kill()
    good = table(files)
    size = len(files.read(path))
    reported = 0
    for at in range(0, size, 5):
        broken = flip(files, path, at, 1)
        with Store.open("memory", "r", files=broken) as store:
            report = store.check()
        if report.ok:
            assert report.notes
            found = table(broken)
            assert found.num_rows >= 6, f"byte {at}"
            assert found.equals(good.slice(0, found.num_rows))
        else:
            reported += 1
            with pytest.raises(CorruptStore):
                table(broken)
    assert reported > size // 5 // 2


@pytest.mark.parametrize("row", [1, 3, 5, 6, 7, 8])
def test_a_zone_that_says_something_else_than_its_events_is_found(
    row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksums are right here: what was written was wrong."""

    def wrong(*arguments: object) -> np.ndarray:
        table = zone_table(*arguments)  # type: ignore[arg-type]
        table[row, 0] += 1
        return table

    zone_table = leaf_module.zone_table
    with monkeypatch.context() as patch:
        patch.setattr(leaf_module, "zone_table", wrong)
        files = MemoryFiles()
        with Store.open("memory", files=files) as store:
            stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=512))
            stream.append(batch_of(0, 40))
            stream.seal()
    assert not check(files)


# -- repair -------------------------------------------------------------------------------------


def repaired(files: MemoryFiles) -> tuple[list[str], int, pa.Table]:
    with Store.open("memory", files=files) as store:
        assert not store.check().ok
        report = store.check(repair=True)
        assert report.ok, report.problems
        assert report.repairs
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        found = pa.Table.from_batches(stream.snapshot().scan(), schema=SCHEMA.arrow)
        stream.append(batch_of(9000, 2))  # it takes events again
        assert stream.snapshot().count == found.num_rows + 2
        stream.compact()
    with Store.open("memory", files=files.kill()) as store:
        assert store.check().ok
        assert store.check(repair=True).repairs == []
    return report.repairs, report.lost_events, found


@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_leaf_costs_its_events_only(sealed: bool) -> None:
    files = make(sealed=sealed)
    good = table(files)
    leaves = [at for at, _ in chunks(files, SEGMENT)][:: len(SCHEMA.attributes)]
    broken = flip(files, SEGMENT, leaves[5])
    damaged = broken.read(SEGMENT)
    repairs, lost, found = repaired(broken)
    assert 0 < lost < 100
    assert found.num_rows == good.num_rows - lost
    gone = sorted(set(good["n"].to_pylist()) - set(found["n"].to_pylist()))
    assert gone == list(range(gone[0], gone[-1] + 1))
    assert f"{lost} events lost" in repairs[0]
    assert f"between the ticks {gone[0] * 2 - 2} to {gone[-1] * 2 + 2}" in repairs[0]
    assert "streams/s/quarantine/00000001.seg" in repairs[0]
    assert broken.read("streams/s/quarantine/00000001.seg") == damaged


@pytest.mark.parametrize("where", ["header", "root", "summary", "footer"])
def test_damage_outside_of_leaves_costs_nothing(where: str) -> None:
    files = make()
    good = table(files)
    size = len(files.read(SEGMENT))
    found = {kind: at for kind, at, _, _ in blocks(files, SEGMENT)}
    at = {
        "header": 20,
        "root": found[BlockKind.NODE] + 80,
        "summary": found[BlockKind.SUMMARY] + 90,
        "footer": size - 60,
    }[where]
    _, lost, kept = repaired(flip(files, SEGMENT, at))
    assert lost == 0
    assert kept.equals(good)


def test_a_damaged_dictionary_page_costs_the_leaves_that_need_it() -> None:
    files = make()
    at = next(at for kind, at, _, _ in blocks(files, SEGMENT) if kind is BlockKind.DICTIONARY)
    _, lost, found = repaired(flip(files, SEGMENT, at + 130))
    assert lost == 600
    assert found.num_rows == 3


def test_a_missing_segment_is_reported_with_its_range() -> None:
    files = make()
    files.remove(SEGMENT)
    repairs, lost, found = repaired(files)
    assert lost == 600
    assert "0 to 1198" in repairs[0]
    assert found["n"].to_pylist() == [660, 661, 662]


def test_a_damaged_late_run_is_repaired_too() -> None:
    files = make(late=True)
    good = table(files)
    run = "streams/s/00000002.seg"
    _, lost, found = repaired(flip(files, run, 64 + 64 + 20))
    assert 0 < lost <= 60
    assert found.num_rows == good.num_rows - lost


@pytest.mark.parametrize("at", [3, 40, 700])
def test_a_damaged_log_keeps_the_records_before_the_damage(at: int) -> None:
    files = MemoryFiles()
    with Store.open("memory", files=files) as store:
        stream = store.create_stream("s", SCHEMA, StreamOptions(leaf_bytes=512))
        stream.append(batch_of(0, 100))
        for first in range(100, 112):
            stream.append(batch_of(first, 1))
        (path,) = [f"streams/s/{f}" for f in files.list("streams/s") if f.endswith(".wal")]
        files = files.kill()
    good = table(files)
    repairs, lost, found = repaired(flip(files, path, at))
    assert found["n"].to_pylist() == good["n"].to_pylist()[: found.num_rows]
    assert path in repairs[0]
    if at < 100:
        assert found.num_rows >= 80, "the leaves of the active segment were sound"
    assert lost == good.num_rows - found.num_rows


def test_a_damaged_manifest_is_left_alone() -> None:
    files = flip(make(), "streams/s/MANIFEST", 120)
    with Store.open("memory", files=files) as store:
        report = store.check(repair=True)
    assert not report.ok
    assert any("cannot be repaired" in note and "backup" in note for note in report.notes)


def test_only_a_writer_repairs() -> None:
    with Store.open("memory", "r", files=make()) as store, pytest.raises(ReadOnlyStore):
        store.check(repair=True)


def test_a_sound_store_is_not_touched_by_a_repair() -> None:
    files = make(late=True)
    with Store.open("memory", files=files) as store:
        stream = store.stream("s")
        version = stream.stats()["manifest_version"]
        report = store.check(repair=True)
        assert report.ok
        assert report.repairs == []
        assert store.stream("s") is stream
        assert stream.stats()["manifest_version"] == version


def opened(files: FaultyFiles) -> Store:
    return Store.open("memory", files=files)


def test_a_power_cut_during_a_repair_leaves_the_stream_repairable() -> None:
    files = make(late=True)
    broken = flip(files, SEGMENT, chunks(files, SEGMENT)[9][0])
    for number, files, _, store in strikes("crash_halfway", opened, begun=broken, step=3):
        with suppress(SimulatedCrash), store:
            store.check(repair=True)
        left = files.crash(random.Random(number), "tear")
        with Store.open("memory", files=left) as store:
            report = store.check(repair=True)
            assert report.ok, report.problems
            assert store.stream("s").snapshot().count >= 663 - 100
