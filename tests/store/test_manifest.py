"""The manifest is the old one or the new one, whole, whatever happens while it is written."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import (
    CorruptStore,
    InvalidArgument,
    StorageFailed,
    StorageFull,
    UnsupportedFormat,
)
from chronicle.store.catalog import read_manifest, write_manifest
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles, SimulatedCrash
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

OLD: dict[str, Any] = {"version": 1, "segments": [{"id": n, "bytes": n * 1000} for n in range(40)]}
NEW: dict[str, Any] = {"version": 2, "segments": [{"id": n, "bytes": n * 999} for n in range(70)]}

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def stored(*documents: dict[str, Any]) -> MemoryFiles:
    """Return files in whose directory ``s`` these documents were committed one after the other."""
    files = MemoryFiles()
    files.make_directory("s")
    files.sync_directory("")
    for document in documents:
        write_manifest(files, "s", document)
    return files


def rewritten(data: bytes) -> MemoryFiles:
    files = stored()
    with files.create("s/MANIFEST") as file:
        file.write(data)
    return files


class TestReadingAndWriting:
    @settings(max_examples=rounds(5, 50))
    @given(st.dictionaries(st.text(), VALUES))
    def test_documents_come_back(self, document: dict[str, Any]) -> None:
        assert read_manifest(stored(document), "s") == document

    def test_there_may_be_none_and_the_last_one_counts(self) -> None:
        """In the root, too."""
        assert read_manifest(stored(), "s") is None
        assert read_manifest(stored(), "no/such/directory") is None
        assert read_manifest(stored(OLD, NEW), "s") == NEW
        files = MemoryFiles()
        write_manifest(files, "", OLD)
        assert read_manifest(files.crash(random.Random(0), "lose"), "") == OLD

    def test_the_file_is_json_that_people_can_read(self) -> None:
        outer = json.loads(stored(OLD).read("s/MANIFEST"))
        assert list(outer) == ["format", "version", "checksum", "body"]
        assert (outer["format"], outer["version"]) == ("chronicle manifest", 1)
        assert outer["body"] == OLD
        assert len(outer["checksum"]) == 16
        spaced = json.dumps(outer, indent=2, sort_keys=True).encode()
        assert read_manifest(rewritten(spaced), "s") == OLD

    @pytest.mark.parametrize("document", [{"a": float("nan")}, {"a": b"x"}])
    def test_what_would_not_come_back_is_refused(self, document: dict[str, Any]) -> None:
        files = stored(OLD)
        with pytest.raises(InvalidArgument, match="manifest"):
            write_manifest(files, "s", document)
        assert read_manifest(files, "s") == OLD
        assert files.list("s") == ["MANIFEST"]

    def test_a_leftover_is_ignored_and_replaced(self) -> None:
        files = stored()
        with files.create("s/MANIFEST.tmp") as file:
            file.write(b"half of a mani")
        assert read_manifest(files, "s") is None
        write_manifest(files, "s", NEW)
        assert read_manifest(files, "s") == NEW
        assert files.list("s") == ["MANIFEST"]


class TestDamage:
    def test_no_flipped_bit_changes_the_answer(self) -> None:
        data = stored({"a": [1, 2.5, "x"], "b": None}).read("s/MANIFEST")
        for at in range(len(data) - 1):  # the last byte is a line feed
            for bit in range(8):
                damaged = bytearray(data)
                damaged[at] ^= 1 << bit
                with pytest.raises((CorruptStore, UnsupportedFormat), match="s/MANIFEST"):
                    read_manifest(rewritten(bytes(damaged)), "s")

    def test_no_part_of_it_passes(self) -> None:
        data = stored(OLD).read("s/MANIFEST")
        for length in range(len(data) - 1):
            with pytest.raises(CorruptStore, match="s/MANIFEST is damaged"):
                read_manifest(rewritten(data[:length]), "s")

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "null",
            '{"format": "something else"}',
            '{"format": "chronicle manifest"}',
            '{"format": "chronicle manifest", "version": true, "body": {}}',
            '{"format": "chronicle manifest", "version": 0, "body": {}}',
            '{"format": "chronicle manifest", "version": 1, "body": []}',
            '{"format": "chronicle manifest", "version": 1, "body": {}}',
            '{"format": "chronicle manifest", "version": 1, "checksum": 5, "body": {}}',
            '{"format": "chronicle manifest", "version": 1, "checksum": "", "body": {"a": NaN}}',
        ],
    )
    def test_other_files(self, text: str) -> None:
        with pytest.raises(CorruptStore, match="s/MANIFEST is damaged"):
            read_manifest(rewritten(text.encode()), "s")

    def test_newer_versions_are_refused(self) -> None:
        data = stored(OLD).read("s/MANIFEST").replace(b'"version":1,"c', b'"version":6,"c')
        with pytest.raises(UnsupportedFormat, match="s/MANIFEST has format version 6"):
            read_manifest(rewritten(data), "s")


class TestCrashes:
    @pytest.mark.parametrize("before", [None, OLD])
    @pytest.mark.parametrize("fault", ["crash_before", "crash_halfway", "crash_after"])
    @pytest.mark.parametrize("sectors", [1, 2])
    def test_at_every_operation(
        self, before: dict[str, Any] | None, fault: Any, sectors: int
    ) -> None:
        number, struck, seen_old, seen_new = 0, True, 0, 0
        while struck:
            number += 1
            memory = stored(*([] if before is None else [before]))
            files = FaultyFiles(memory, FaultPlan(fault, number, sectors=sectors))
            finished = False
            try:
                write_manifest(files, "s", NEW)
                finished = True
            except SimulatedCrash:
                pass
            struck = files.struck
            assert finished != struck
            lefts = [memory.kill(), memory.crash(random.Random(0), "lose")]
            lefts += [memory.crash(random.Random(seed), "tear") for seed in range(40)]
            for left in lefts:
                found = read_manifest(left, "s")
                assert found in ((NEW,) if finished else (before, NEW))
                seen_old += found == before
                seen_new += found == NEW and not finished
                write_manifest(left, "s", NEW)  # and work goes on
                assert read_manifest(left, "s") == NEW
                assert left.list("s") == ["MANIFEST"]
        assert number == 7  # remove, create, write, sync, replace, sync_directory; one run without
        assert seen_old
        assert seen_new

    @pytest.mark.parametrize("fault", ["eio", "enospc", "fsync"])
    def test_errors_leave_the_old_one(self, fault: Any) -> None:
        for number in range(1, 8):
            memory = stored(OLD)
            files = FaultyFiles(memory, FaultPlan(fault, number, sectors=1))
            try:
                write_manifest(files, "s", NEW)
            except (StorageFull, StorageFailed):
                assert files.struck
                at_the_end = files.trace[number - 1].name == "sync_directory"
                assert read_manifest(files, "s") == (NEW if at_the_end else OLD)
                assert memory.list("s") == ["MANIFEST"]
            else:
                assert not files.struck
            files.plan = FaultPlan()
            write_manifest(files, "s", NEW)
            assert read_manifest(memory.crash(random.Random(0), "lose"), "s") == NEW
