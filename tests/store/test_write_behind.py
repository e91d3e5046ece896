"""Write-behind: order, failures that are told, and pools that a forked child can use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.errors import StorageFailed
from chronicle.store.segment_writer import PIECE_BYTES, WriteBehind
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.patience import PATIENCE_S

FORKED = """
import os, sys
from chronicle.store.files import RealFiles
from chronicle.store.segment_writer import PIECE_BYTES, WriteBehind

def load(name):
    out = WriteBehind(RealFiles(sys.argv[1]).create(name))
    for letter in b"abcdefghijkl":
        out.put([bytes([letter]) * PIECE_BYTES], PIECE_BYTES)
    out.sync()
    out.close()

load("before")  # the threads of the pools run now, and will not in the child
child = os.fork()
load("child" if child == 0 else "parent")
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_writes_behind_with_threads_of_its_own(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)],
        check=True,
        timeout=PATIENCE_S,
    )
    expected = b"".join(bytes([letter]) * PIECE_BYTES for letter in b"abcdefghijkl")
    for name in ("before", "parent", "child"):
        assert (tmp_path / name).read_bytes() == expected


def test_pieces_reach_the_file_in_order_and_are_durable_after_a_sync() -> None:
    files = MemoryFiles()
    out = WriteBehind(files.create("f"))
    files.sync_directory("")
    expected = b""
    for number in range(9):
        data = bytes([number]) * (PIECE_BYTES // 2 + number)
        out.put([data[:100], data[100:]], len(data))
        expected += data
    assert out.length == len(expected)
    out.sync()
    out.close()
    assert files.read("f") == expected


def _load(out: WriteBehind) -> None:
    for _ in range(6):
        out.put([bytes(PIECE_BYTES)], PIECE_BYTES)
    out.sync()


@pytest.mark.parametrize("at", range(2, 6))
def test_a_write_that_fails_behind_is_told_at_the_latest_by_the_sync(at: int) -> None:
    files = FaultyFiles(MemoryFiles(), FaultPlan("eio", at))  # operation 1 creates the file
    out = WriteBehind(files.create("f"))
    with pytest.raises(StorageFailed):
        _load(out)
    out.close()
