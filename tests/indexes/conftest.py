"""Disks that fail under indexes: at a chosen write, or because they are full or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from chronicle.errors import StorageFailed, StorageFull
from chronicle.indexes import definitions
from chronicle.indexes.manager import StoreIndexes
from chronicle.store.files import RealFiles

FAULTS = {
    "enospc": "IO error: No space left on device: While appending to file: 000009.sst",
    "eio": "IO error: Input/output error: While fsync: 000009.sst",
}


class FaultyDisk:
    """Fails one change of RocksDB or of the file of definitions, counted from 1.

    As RocksDB does, a database that has failed takes no more writes until it is opened again.
    """

    def __init__(self) -> None:
        self.fault, self.number, self.count = "", 0, 0
        self.struck = False

    def arm(self, fault: str, number: int) -> None:
        """Let change ``number`` from now on fail."""
        self.fault, self.number, self.count, self.struck = fault, number, 0, False

    def due(self) -> bool:
        """Count a change; whether it is the one."""
        self.count += 1
        if self.fault and self.count == self.number:
            self.struck = True
            return True
        return False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    """Every index database and file of definitions of this process is on this disk."""
    disk = FaultyDisk()
    real = rocksdict.Rdict

    class Faulty:
        def __init__(self, path: str, options: Any, **settings: Any) -> None:
            self._poisoned = False
            if not settings:
                self._strike()
            self._inner = real(path, options, **settings)

        def _strike(self) -> None:
            if disk.due():
                self._poisoned = True
            if self._poisoned:
                raise Exception(FAULTS[disk.fault])

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._inner, name)
            if name not in ("write", "flush", "ingest_external_file"):
                return found

            def call(*arguments: Any, **settings: Any) -> Any:
                self._strike()
                return found(*arguments, **settings)

            return call

    class FaultyDefinitions(RealFiles):
        def _strike(self, doing: str) -> None:
            if disk.due():
                raise {"enospc": StorageFull, "eio": StorageFailed}[disk.fault](f"fault: {doing}")

        def create(self, path: str, *, private: bool = False) -> Any:
            self._strike("create")
            return super().create(path, private=private)

        def replace(self, source: str, target: str) -> None:
            self._strike("replace")
            super().replace(source, target)

        def sync_directory(self, path: str) -> None:
            self._strike("sync")
            super().sync_directory(path)

    monkeypatch.setattr(rocksdict, "Rdict", Faulty)
    monkeypatch.setattr(definitions, "RealFiles", FaultyDefinitions)
    return disk


@pytest.fixture
def nobody_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that builds runs in the background never hears of anything."""
    monkeypatch.setattr(StoreIndexes, "_notify", lambda self, name: None)


def _mounted(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


class SmallDisk:
    """A file system of its own, to be filled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Use up all that is left."""
        with (self.path / "filler").open("ab", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Give it back."""
        (self.path / "filler").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """32 MB that can be filled; skips where nothing can be mounted."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root can mount a file system")
    path = tmp_path / "disk"
    path.mkdir()
    _mounted("-t", "tmpfs", "-o", "size=32m", "chronicle-test", str(path))
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Makes a directory read-only, for root too; skips where nothing can be mounted."""
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root can mount a directory read-only; a mode does not stop root")
    mounted: list[Path] = []

    def protect(path: Path) -> None:
        _mounted("--bind", str(path), str(path))
        mounted.append(path)
        _mounted("-o", "remount,ro,bind", str(path))

    try:
        yield protect
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=False)
