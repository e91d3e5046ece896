"""The write-ahead log: what is synced is read back, and nothing that was not written ever is."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import (
    CorruptBlock,
    InvalidArgument,
    StorageFailed,
    StorageFull,
    StoreClosed,
    UnsupportedFormat,
)
from chronicle.store import log as log_module
from chronicle.store.file_contract import Files
from chronicle.store.files import RealFiles
from chronicle.store.log import LogWriter, read_log
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

HEADER = 32
PAYLOADS = [b"", b"a", b"12345678", b"x" * 100, bytes(24), b"last record, of odd length"]


def filled(payloads: Sequence[bytes] = PAYLOADS, *, sync_each: bool = True) -> bytes:
    """Return the bytes of a log with these payloads, of kind 1, 2, ..."""
    files = MemoryFiles()
    with patch("chronicle.store.log.os.urandom", bytes):
        log = LogWriter.create(files, "log", 7)
    with log:
        for kind, payload in enumerate(payloads, 1):
            position = log.append(kind, [payload])
            if sync_each:
                log.sync(position)
    return files.read("log")


def holding(data: bytes) -> MemoryFiles:
    """Return files with a log of these bytes, all of them durable."""
    files = MemoryFiles()
    with files.create("log") as file:
        file.write(data)
        file.sync()
    files.sync_directory("")
    return files


def ends(data: bytes) -> list[int]:
    return [record.end for record in read_log(holding(data), "log").records]


def payloads(files: Files, path: str = "log") -> list[bytes]:
    return [bytes(record.payload) for record in read_log(files, path).records]


class TestFormat:
    def test_the_bytes_are_as_documented(self) -> None:
        data = filled([b"abc"])
        assert data[:8] == b"CHRONLOG"
        assert struct.unpack_from("<IIQ", data, 8) == (2, 0, 7)
        salt = xxhash.xxh3_64_intdigest(data[:24])
        assert struct.unpack_from("<Q", data, 24) == (salt,)
        checksum, length, kind, unsynced = struct.unpack_from("<QIHH", data, HEADER)
        assert (length, kind, unsynced) == (3, 1, 0)
        assert data[HEADER + 16 :] == b"abc" + bytes(5)
        assert checksum == xxhash.xxh3_64_intdigest(data[HEADER + 8 :], salt ^ HEADER)

    def test_records_are_aligned_and_small(self) -> None:
        files = MemoryFiles()
        with LogWriter.create(files, "log", 0) as log:
            for length in range(50):
                before = log.size
                after = log.append(0, [bytes(length)])
                assert after % 8 == 0
                assert after == log.size
                assert after - before - length <= 24
            assert log.records == 50
        assert files.size("log") == log.size

    def test_unsynced_is_rounded_up_and_saturates(self) -> None:
        files = MemoryFiles()
        with LogWriter.create(files, "log", 0) as log:
            starts = [log.size]
            starts += [log.append(1, [bytes(size)]) for size in (490, 1, 1, 40 << 20, 1)]
            log.sync()
            log.append(1, [b""])
        data = files.read("log")
        found = [struct.unpack_from("<H", data, start + 14)[0] for start in starts]
        assert found == [0, 1, 2, 2, 0xFFFF, 0]


class TestReading:
    def test_large_payloads_in_many_parts(self, tmp_path: Path) -> None:
        files = RealFiles(tmp_path)
        numbers = np.arange(100_000)
        parts = [b"head", numbers, b"", memoryview(numbers)[5:9], b"tail!"]
        with LogWriter.create(files, "log", 1) as log:
            log.append(1, parts)
            log.append(2, [b"small"])
            log.sync()
        first, second = payloads(files)
        assert first == b"".join(parts)
        assert second == b"small"

    def test_both_ways_to_write_a_record_agree(self, monkeypatch: pytest.MonkeyPatch) -> None:
        joined = filled()
        monkeypatch.setattr(log_module, "JOIN_BYTES", 0)
        assert filled() == joined

    @given(st.lists(st.tuples(st.integers(0, 65535), st.lists(st.binary(max_size=300)))))
    def test_anything_comes_back(self, records: list[tuple[int, list[bytes]]]) -> None:
        files = MemoryFiles()
        with LogWriter.create(files, "log", 3) as log:
            positions = [log.append(kind, parts) for kind, parts in records]
        contents = read_log(files, "log")
        assert [tuple(record) for record in contents.records] == [
            (kind, b"".join(parts), end)
            for (kind, parts), end in zip(records, positions, strict=True)
        ]
        assert contents.valid_length == max(positions, default=HEADER)
        assert (contents.sequence, contents.torn) == (3, False)
        assert all(record.payload.readonly for record in contents.records)

    def test_arguments_out_of_range(self) -> None:
        with LogWriter.create(MemoryFiles(), "log", 1) as log:
            for kind in (-1, 65536):
                with pytest.raises(InvalidArgument, match="kind"):
                    log.append(kind, [b""])
            assert log.records == 0


class TestDamage:
    def test_a_log_cut_at_any_byte_ends_at_the_last_whole_record(self) -> None:
        data = filled()
        borders = [HEADER, *ends(data)]
        for length in range(HEADER, len(data)):
            contents = read_log(holding(data[:length]), "log")
            assert contents.valid_length == max(end for end in borders if end <= length)
            assert contents.torn == (length not in borders)
            assert len(contents.records) == borders.index(contents.valid_length)

    def test_a_log_cut_in_its_header_was_never_used(self) -> None:
        data = filled()
        for head in (data[:HEADER], bytes(HEADER)):
            for length in range(HEADER):
                assert read_log(holding(head[:length]), "log") == (0, [], 0, True)

    @pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x08\0\0\0"])
    def test_filled_tails(self, filler: bytes) -> None:
        data = filled()
        contents = read_log(holding(data + filler * 5000), "log")
        assert (contents.valid_length, contents.torn) == (len(data), True)
        assert len(contents.records) == len(PAYLOADS)

    def test_every_flipped_bit_is_noticed(self) -> None:
        """The last record counts as torn, earlier ones are errors, and none is ever returned."""
        data = filled()
        borders = [HEADER, *ends(data)]
        for at in range(len(data)):
            for bit in range(8):
                damaged = bytearray(data)
                damaged[at] ^= 1 << bit
                files = holding(bytes(damaged))
                if at < HEADER:
                    with pytest.raises(CorruptBlock, match="header"):
                        read_log(files, "log")
                elif at < borders[-2]:
                    start = max(end for end in borders if end <= at)
                    with pytest.raises(CorruptBlock, match="log at byte") as caught:
                        read_log(files, "log")
                    assert caught.value.offset == start
                else:
                    contents = read_log(files, "log")
                    assert contents.torn
                    assert contents.valid_length == borders[-2]

    def test_unsynced_records_after_a_bad_one_prove_nothing(self) -> None:
        data = filled([b"x" * 100] * 20, sync_each=False)
        borders = [HEADER, *ends(data)]
        damaged = bytearray(data)
        damaged[borders[3] + 20] ^= 1
        contents = read_log(holding(bytes(damaged)), "log")
        assert (contents.valid_length, contents.torn) == (borders[3], True)

    def test_a_witness_far_behind_many_unsynced_records_is_found(self) -> None:
        files = MemoryFiles()
        with LogWriter.create(files, "log", 1) as log:
            log.sync(log.append(1, [b"durable"]))
            for _ in range(3000):
                log.append(1, [b"x" * 1000])
            log.sync()
            log.append(1, [b"witness"])
        damaged = bytearray(files.read("log"))
        damaged[HEADER + 4000] ^= 1
        with pytest.raises(CorruptBlock):
            read_log(holding(bytes(damaged)), "log")
        # Without the last one nothing says that the many were ever durable...
        assert read_log(holding(bytes(damaged[:-24])), "log").torn
        # ... but the first of them vouches for what was durable before it.
        damaged[HEADER + 20] ^= 1
        with pytest.raises(CorruptBlock) as caught:
            read_log(holding(bytes(damaged[:-24])), "log")
        assert caught.value.offset == HEADER

    def test_a_swap_is_noticed(self) -> None:
        data = filled([b"a" * 8, b"b" * 8, b"c" * 8], sync_each=False)
        one, two, three = data[HEADER:56], data[56:80], data[80:]
        for swapped in (two + one + three, one + three + two, two + three, one + one + three):
            contents = read_log(holding(data[:HEADER] + swapped), "log")
            assert contents.torn
            assert len(contents.records) == (swapped[:24] == one)

    def test_records_of_another_log_are_not_taken(self) -> None:
        files = MemoryFiles()
        for name in "ab":
            with LogWriter.create(files, name, 1) as log:
                for _ in range(3):
                    log.append(1, [b"same"])
        mixed = files.read("a")[: HEADER + 24] + files.read("b")[HEADER + 24 :]
        contents = read_log(holding(mixed), "log")
        assert (len(contents.records), contents.torn) == (1, True)

    def test_newer_versions_are_refused(self) -> None:
        header = struct.pack("<8sIIQ", b"CHRONLOG", 3, 0, 5)
        data = header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header))
        with pytest.raises(UnsupportedFormat, match="version 3"):
            read_log(holding(data), "log")

    def test_the_search_for_a_witness_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_module, "SEARCH_BYTES", 10)
        damaged = bytearray(filled())
        damaged[HEADER + 8] ^= 0xFF
        assert read_log(holding(bytes(damaged)), "log") == (7, [], HEADER, True)

    def test_a_witness_on_every_side_of_a_block_of_the_search(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = filled()
        for block in range(8, 200, 8):
            monkeypatch.setattr(log_module, "SEARCH_BLOCK", block)
            for at in (HEADER + 8, HEADER + 20):
                damaged = bytearray(data)
                damaged[at] ^= 0xFF
                with pytest.raises(CorruptBlock):
                    read_log(holding(bytes(damaged)), "log")

    def test_a_writer_that_takes_back_is_not_corruption(self) -> None:
        """A reader may see half of an old record before records that came later; it looks again."""
        data = filled()
        damaged = bytearray(data)
        damaged[HEADER + 16] ^= 1

        class Racing(MemoryFiles):
            reads = 0

            def read(self, path: str) -> bytes:
                self.reads += 1
                return bytes(damaged) if self.reads == 1 else data

        files = Racing()
        assert len(read_log(files, "log").records) == len(PAYLOADS)
        assert files.reads == 2


class TestReopening:
    def test_goes_on_after_the_last_record(self) -> None:
        data = filled()
        files = holding(data + b"torn tail")
        contents = read_log(files, "log")
        with LogWriter.reopen(files, "log", contents.valid_length, len(contents.records)) as log:
            assert (log.size, log.durable_size, log.records) == (len(data), len(data), 6)
            assert log.sequence == 7
            log.sync(log.append(9, [b"next"]))
        assert payloads(files) == [*PAYLOADS, b"next"]
        assert not read_log(files, "log").torn

    def test_makes_durable_what_a_killed_process_left(self) -> None:
        files = MemoryFiles()
        log = LogWriter.create(files, "log", 1)
        log.append(1, [b"seen by readers"])
        left = files.kill()
        contents = read_log(left, "log")
        LogWriter.reopen(left, "log", contents.valid_length, 1).close()
        assert payloads(left.crash(random.Random(0), "lose")) == [b"seen by readers"]

    @pytest.mark.parametrize("valid_length", [0, 31, 10_000])
    def test_refuses_what_is_no_log(self, valid_length: int) -> None:
        files = holding(filled())
        with pytest.raises(InvalidArgument, match="create a new one"):
            LogWriter.reopen(files, "log", valid_length, 0)

    def test_created_logs_are_durable(self) -> None:
        files = MemoryFiles()
        files.make_directory("d")
        files.sync_directory("")
        LogWriter.create(files, "d/log", 5)
        left = files.crash(random.Random(0), "lose")
        assert read_log(left, "d/log") == (5, [], HEADER, False)


class TestCrashes:
    @settings(max_examples=rounds(30, 300), deadline=None)
    @given(
        steps=st.lists(st.one_of(st.binary(max_size=1500), st.just("sync")), max_size=12),
        seed=st.integers(0, 1 << 32),
        mode=st.sampled_from(["lose", "keep", "tear"]),
    )
    def test_a_power_cut_leaves_a_prefix_with_all_that_was_synced(
        self, steps: list[bytes | str], seed: int, mode: str
    ) -> None:
        files = MemoryFiles()
        log = LogWriter.create(files, "log", 1)
        written: list[bytes] = []
        synced = 0
        for step in steps:
            if isinstance(step, bytes):
                log.append(1, [step])
                written.append(step)
            else:
                log.sync()
                synced = len(written)
        for life in range(3):  # what is left is cut, continued and cut off again
            files = files.crash(random.Random(seed + life), mode)  # type: ignore[arg-type]
            contents = read_log(files, "log")
            found = [bytes(record.payload) for record in contents.records]
            assert found == written[: len(found)]
            assert len(found) >= synced
            log = LogWriter.reopen(files, "log", contents.valid_length, len(found))
            written = [*found, b"life"]
            synced = len(found)
            log.append(1, [b"life"])

    @pytest.mark.parametrize("sectors", [0, 2, 5])
    def test_every_operation_crashed(self, sectors: int) -> None:
        for fault in ("crash_before", "crash_halfway", "crash_after"):
            number = 0
            struck = True
            while struck:
                number += 1
                memory = MemoryFiles()
                files = FaultyFiles(memory, FaultPlan(fault, number, sectors=sectors))  # type: ignore[arg-type]
                acknowledged = 0
                created = False
                try:
                    log = LogWriter.create(files, "log", 1)
                    created = True
                    for count in range(1, 4):
                        log.sync(log.append(1, [bytes([count]) * 1000]))
                        acknowledged = count
                except BaseException:
                    assert files.crashed
                struck = files.struck
                for left in (memory.kill(), *(memory.crash(random.Random(s)) for s in range(8))):
                    if not created and not left.exists("log"):
                        continue
                    found = payloads(left)
                    assert found == [bytes([n]) * 1000 for n in range(1, len(found) + 1)]
                    assert acknowledged <= len(found) <= acknowledged + 1


class TestFailures:
    @pytest.mark.parametrize("sectors", [0, 1, 2])
    def test_a_full_disk_refuses_one_record_and_no_more(self, sectors: int) -> None:
        plan = FaultPlan("enospc", 3, sectors=sectors, only={"write"})
        files = FaultyFiles(MemoryFiles(), plan)
        with LogWriter.create(files, "log", 1) as log:
            first = log.append(1, [b"one" * 500])
            with pytest.raises(StorageFull):
                log.append(2, [b"two" * 500])
            assert (log.size, log.records) == (first, 1)
            log.sync(log.append(3, [b"three" * 500]))
        assert payloads(files) == [b"one" * 500, b"three" * 500]

    def test_a_large_record_is_taken_back_too(self) -> None:
        memory = MemoryFiles(capacity=500_000)
        with LogWriter.create(memory, "log", 1) as log:
            with pytest.raises(StorageFull):
                log.append(1, [bytes(300_000), bytes(300_000)])
            assert memory.size("log") == HEADER
            log.append(1, [b"small"])
        assert payloads(memory) == [b"small"]

    def test_a_record_that_cannot_be_taken_back_ends_the_log(self) -> None:
        plan = FaultPlan("eio", 6, length=2, sectors=1)
        files = FaultyFiles(MemoryFiles(), plan)
        log = LogWriter.create(files, "log", 1)
        log.append(1, [b"one"])
        with pytest.raises(StorageFailed, match="write to"):
            log.append(1, [b"two" * 500])
        with pytest.raises(StorageFailed, match="takes nothing more"):
            log.append(1, [b"three"])
        assert payloads(files) == [b"one"]

    def test_a_failed_sync_is_not_repeated(self) -> None:
        files = FaultyFiles(MemoryFiles(), FaultPlan("fsync", 3, only={"sync"}))
        log = LogWriter.create(files, "log", 1)
        log.sync(log.append(1, [b"one"]))
        position = log.append(1, [b"two"])
        with pytest.raises(StorageFailed, match="could not sync"):
            log.sync(position)
        for act in (log.sync, lambda: log.sync(position), lambda: log.append(1, [b"x"])):
            with pytest.raises(StorageFailed, match="takes nothing more") as caught:
                act()
            assert isinstance(caught.value.__cause__, StorageFailed)
        # What was durable before is acknowledged still.
        log.sync(log.durable_size)
        assert [operation.name for operation in files.trace].count("sync") == 3

    def test_a_closed_log(self) -> None:
        log = LogWriter.create(MemoryFiles(), "log", 1)
        log.close()
        log.close()
        with pytest.raises(StoreClosed):
            log.append(1, [b""])
        with pytest.raises(StoreClosed):
            log.sync()
