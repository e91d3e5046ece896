"""The file layer for segments that may have moved to objects.

``ColdFiles`` wraps another ``Files``: a segment that has only a stub (``cold_stub``) is opened,
measured, listed, copied and removed under its own name.  A local file takes precedence over its
stub.  Removing a cold segment renames its stub, without a request; ``purge`` later removes the
objects of renamed stubs.  A reader of a removed object gets ``SnapshotExpired``.
"""

from __future__ import annotations

import logging
import os
import posixpath

from .cold_file import PIECE_BYTES, ColdFile
from .cold_stub import SUFFIX, ColdStub
from .file_contract import Files, ReadFile
from .manifest import MANIFEST
from .object_store import object_store

__all__ = ["DOOMED", "MOVING", "ColdFiles", "purge", "purge_quietly"]

logger = logging.getLogger("chronicle.store")

SEGMENT = ".seg"
COLD = SEGMENT + SUFFIX
DOOMED = ".doomed"
"""Suffix of a stub whose object is to be removed."""

MOVING = ".moving"
"""Suffix of a stub whose object is not yet complete."""


class ColdFiles:
    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.create = inner.create
        self.append = inner.append
        self.read = inner.read
        self.make_directory = inner.make_directory
        self.replace = inner.replace
        self.sync_directory = inner.sync_directory
        self.lock = inner.lock
        self.free_bytes = inner.free_bytes

    def __repr__(self) -> str:
        return f"ColdFiles({self.inner!r})"

    def cold(self, directory: str) -> frozenset[str]:
        names = set(self.inner.list(directory))
        return frozenset(
            name
            for name in (each.removesuffix(SUFFIX) for each in names if each.endswith(COLD))
            if name not in names
        )

    def is_cold(self, path: str) -> bool:
        return (
            path.endswith(SEGMENT)
            and not self.inner.exists(path)
            and self.inner.exists(path + SUFFIX)
        )

    def open(self, path: str) -> ReadFile:
        try:
            return self.inner.open(path)
        except FileNotFoundError:
            if not self.is_cold(path):
                raise
        return ColdFile(self.inner, path)

    def size(self, path: str) -> int:
        try:
            return self.inner.size(path)
        except FileNotFoundError:
            if not self.is_cold(path):
                raise
        return ColdStub.read(self.inner, path + SUFFIX).length

    def exists(self, path: str) -> bool:
        return self.inner.exists(path) or self.is_cold(path)

    def list(self, directory: str) -> list[str]:
        names = self.inner.list(directory)
        if not any(name.endswith(COLD) for name in names):
            return names
        return sorted(
            {name.removesuffix(SUFFIX) if name.endswith(COLD) else name for name in names}
        )

    def remove(self, path: str) -> None:
        stub = path + SUFFIX
        if not path.endswith(SEGMENT) or not self.inner.exists(stub):
            self.inner.remove(path)
            return
        self.inner.replace(stub, path + DOOMED)
        if self.inner.exists(path):
            self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        _forget(self.inner, path)
        purge(self.inner, path, (SUFFIX, DOOMED, MOVING))
        self.inner.remove_tree(path)

    def link(self, source: str, target: str) -> None:
        if not self.is_cold(source):
            self.inner.link(source, target)
            return
        with self.inner.create(target) as copy, ColdFile(self.inner, source) as file:
            for offset in range(0, file.size, PIECE_BYTES):
                copy.write(file.read(offset, min(PIECE_BYTES, file.size - offset)))
            copy.sync()

    def export(self, path: str, outside_path: str, *, length: int | None = None) -> None:
        if not self.is_cold(path):
            self.inner.export(path, outside_path, length=length)
            return
        from .files import RealFiles

        directory, name = os.path.split(outside_path)
        with RealFiles(directory).create(name) as copy, ColdFile(self.inner, path) as file:
            for offset in range(0, file.size if length is None else length, PIECE_BYTES):
                copy.write(file.read(offset, min(PIECE_BYTES, file.size - offset)))
            copy.sync()

    def local_path(self, path: str) -> str | None:
        return None if self.is_cold(path) else self.inner.local_path(path)


def _forget(files: Files, directory: str) -> None:
    """Remove a stream's manifest from the object store, so that a restore cannot revive it."""
    try:
        names = files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    stubs = (name for name in names if name.endswith((COLD, SEGMENT + DOOMED, SEGMENT + MOVING)))
    if MANIFEST not in names or (stub := next(stubs, None)) is None:
        return
    told = ColdStub.read(files, f"{directory}/{stub}")
    place, objects = posixpath.dirname(told.key), object_store(told.store)
    for key in objects.list(f"{place}/"):  # the manifest before its pages
        if SEGMENT not in key:
            objects.remove(key)


def purge_quietly(files: Files, directory: str, endings: tuple[str, ...] = (DOOMED,)) -> None:
    try:
        purge(files, directory, endings)
    except OSError as error:
        logger.warning("%s: %s", directory, error)


def purge(files: Files, directory: str, endings: tuple[str, ...] = (DOOMED,)) -> int:
    """Remove the objects of stubs with these ``endings``, recursively; returns their number."""
    try:
        names = files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    removed = 0
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(tuple(SEGMENT + ending for ending in endings)):
            try:
                found = ColdStub.read(files, path)
                objects = object_store(found.store)
                objects.remove(found.key + SUFFIX)  # a restore reads it first
                objects.remove(found.key)
                files.remove(path)
            except FileNotFoundError:
                continue  # another call removed it
            removed += 1
        elif "." not in name:
            removed += purge(files, path, endings)
    return removed
