"""Readers of indexes in other processes leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronicle.errors import StorageFailed
from chronicle.indexes.storage import IndexStorage

KILLED = """
import os, sys
from pathlib import Path
from chronicle.indexes.storage import IndexStorage
assert IndexStorage(Path(sys.argv[1]), writable=False).get(b"a") == b"1"
os._exit(9)
"""


def test_a_reader_leaves_nothing_behind_even_when_it_is_killed(tmp_path: Path, place: Path) -> None:
    writer = IndexStorage(tmp_path / "indexes", writable=True)
    writer.write([(b"a", b"1")])
    writer.flush()
    files = set(os.listdir(tmp_path / "indexes"))
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "indexes")], check=False)
    assert done.returncode == 9
    reader = IndexStorage(tmp_path / "indexes", writable=False)
    assert list(place.iterdir()) == []
    assert set(os.listdir(tmp_path / "indexes")) == files
    assert not reader.refresh()
    writer.write([(b"b", b"2")])
    assert reader.get(b"b") is None
    writer.flush()
    assert reader.refresh()
    assert (reader.get(b"a"), reader.get(b"b")) == (b"1", b"2")
    for storage in (reader, writer):
        storage.close()
    assert list(place.iterdir()) == []


def test_a_reader_without_a_place_for_temporary_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    IndexStorage(tmp_path / "indexes", writable=True).close()

    def nowhere(*_: object, **__: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", nowhere)
    with pytest.raises(StorageFailed, match=r"place for temporary files.*answer the same"):
        IndexStorage(tmp_path / "indexes", writable=False)
