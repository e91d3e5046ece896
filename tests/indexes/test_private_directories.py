"""Readers of indexes in other processes leave nothing behind for long."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from chronicle.indexes.storage import PRIVATE, IndexStorage

KILLED = """
import os, sys
from pathlib import Path
from chronicle.indexes.storage import IndexStorage
IndexStorage(Path(sys.argv[1]), writable=False)
os._exit(9)
"""


def test_the_next_reader_removes_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    writer = IndexStorage(tmp_path / "indexes", writable=True)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "indexes")], check=False)
    assert done.returncode == 9
    (left,) = place.glob(f"{PRIVATE}*")
    (place / f"{PRIVATE}of-another-program").mkdir()
    first = IndexStorage(tmp_path / "indexes", writable=False)
    second = IndexStorage(tmp_path / "indexes", writable=False)
    assert not left.exists()
    assert len(list(place.glob(f"{PRIVATE}{os.getpid()}-*"))) == 2
    for storage in (first, second, writer):
        storage.close()
    assert [path.name for path in place.iterdir()] == [f"{PRIVATE}of-another-program"]
