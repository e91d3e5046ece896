"""The RocksDB database that holds the indexes of one stream.

Purpose
    Key-value storage for run descriptors and blocks, in ``<stream>/indexes/``.  One value is a
    block of thousands of entries; RocksDB brings checksums, an LSM-tree that many runs can be
    written to, and readers in other processes.

Layout
    Keys, all integers big-endian (so that they sort)::

        i <name>                                        definition of an index: JSON
        d <index 4> <segment 8> <first 8>               descriptor of a run, which makes it exist
        k <index 4> <segment 8> <first 8> <generation 4> <block 4>      a block of keys
        p ...  n ...  s ...                             its positions, nulls, dictionary (block 0)
        D <segment 8> <first 8>                         descriptor of the times of a range
        t <segment 8> <first 8> <generation 4> <block 4>                its times

Guarantee
    Writes reach the disk in the order in which they were made, so a descriptor that is there after
    a crash has its blocks.  There is no write-ahead log: what a crash takes is built again.
    :meth:`flush` makes writes visible to readers in other processes.

Limits
    Readers open as RocksDB *secondaries*, which need a directory of their own for their log: a
    temporary one.  It carries the number of its process, and the next reader removes those of
    processes that were killed.  RocksDB takes one writer; the stream's own lock has seen to that
    already.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import StorageFailed, StoreClosed
from ..ownership import leave_to_parent

__all__ = [
    "BATCH_BYTES",
    "IndexStorage",
    "block_key",
    "descriptor_key",
    "time_key",
    "write_table",
]

BATCH_BYTES = 1 << 20
"""Writes are cut to about this size: RocksDB holds the interpreter's lock while it takes one."""

PRIVATE = "chronicle-index-"
"""How the temporary directories of readers begin; the number of the process follows."""

_USED_IN: list[int] = []
"""The process that used RocksDB first: its threads are no threads of a forked child."""

_RUN = struct.Struct(">cIQQ")
_BLOCK = struct.Struct(">cIQQII")
_TIMES = struct.Struct(">cQQ")
_TIME_BLOCK = struct.Struct(">cQQI")


def descriptor_key(index: int, segment: int, first: int) -> bytes:
    """Key of a run's descriptor."""
    return _RUN.pack(b"d", index, segment, first)


def block_key(
    kind: bytes, index: int, segment: int, first: int, generation: int, block: int = 0
) -> bytes:
    """Key of a run's block: kind ``k``, ``p``, ``n`` or ``s``."""
    return _BLOCK.pack(kind, index, segment, first, generation, block)


def time_key(segment: int, first: int, generation: int | None = None) -> bytes:
    """Key of the times of a range of positions; without a generation, of their descriptor."""
    if generation is None:
        return _TIMES.pack(b"D", segment, first)
    return _TIME_BLOCK.pack(b"t", segment, first, generation)


def parse_descriptor_key(key: bytes) -> tuple[int, int, int]:
    """Index, segment and first position from the key of a run's descriptor."""
    _, index, segment, first = _RUN.unpack(key)
    return index, segment, first


def parse_time_key(key: bytes) -> tuple[int, int]:
    """Segment and first position from the key of a time descriptor."""
    _, segment, first = _TIMES.unpack(key)
    return segment, first


def write_table(path: Path, puts: list[tuple[bytes, bytes]]) -> None:
    """Write entries into a file of their own, for :meth:`IndexStorage.take_over`."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    writer = rocksdict.SstFileWriter(options)
    try:
        writer.open(str(path))
        for key, value in sorted(puts):
            writer[key] = value
        writer.finish()
    except Exception as error:
        raise StorageFailed(f"the runs in {path} cannot be written: {error}") from error


class IndexStorage:
    """An open index database.

    Parameters
    ----------
    path : Path
    writable : bool
        Else the database must exist.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        import rocksdict

        self.path = path
        self.writable = writable
        self._rocksdict = rocksdict
        self._private: str | None = None
        self._lock = threading.Lock()
        self._db: Any = None
        if not _USED_IN:
            _USED_IN.append(os.getpid())
        elif writable and _USED_IN[0] != os.getpid():
            raise StorageFailed(
                f"indexes cannot be written in process {os.getpid()}: it was forked from process "
                f"{_USED_IN[0]}, which had indexes open, and RocksDB would wait for the threads of "
                "that one; start processes that write with the method spawn or forkserver"
            )
        leave_to_parent(self)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(writable)
        options.set_write_buffer_size(32 << 20)
        options.set_max_open_files(512 if writable else -1)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(32 << 20))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        try:
            if writable:
                path.mkdir(parents=True, exist_ok=True)
                self._db = rocksdict.Rdict(str(path), options)
            else:
                _sweep_private()
                self._private = tempfile.mkdtemp(prefix=f"{PRIVATE}{os.getpid()}-")
                access = rocksdict.AccessType.secondary(self._private)
                self._db = rocksdict.Rdict(str(path), options, access_type=access)
        except Exception as error:
            self._discard()
            raise StorageFailed(
                f"the indexes in {path} cannot be opened: {error}; remove that directory and "
                "create them again, queries answer the same without"
            ) from error
        self._write = rocksdict.WriteOptions()
        self._write.disable_wal = True

    def _open(self) -> Any:
        if self._db is None:
            raise StoreClosed(f"the indexes in {self.path} are closed; open the store again")
        return self._db

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        value: bytes | None = self._open().get(key)
        return value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that begin with a prefix, in order, with their values."""
        options = self._rocksdict.ReadOptions()
        options.set_iterate_upper_bound(prefix[:-1] + bytes([prefix[-1] + 1]))
        items = self._open().items(from_key=prefix, read_opt=options)
        try:
            yield from items
        finally:
            del items  # a live iterator keeps the database's lock after it is closed

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] | None = None) -> None:
        """Write in pieces of :data:`BATCH_BYTES`, in order; the deletes go with the last one.

        The last put, a descriptor, is what makes the ones before it count.
        """
        database = self._open()
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        size = 0
        for key, value in puts:
            if size and size + len(value) > BATCH_BYTES:
                database.write(batch, write_opt=self._write)
                batch = self._rocksdict.WriteBatch(raw_mode=True)
                size = 0
            batch.put(key, value)
            size += len(value)
        for key in deletes or ():
            batch.delete(key)
        database.write(batch, write_opt=self._write)

    def take_over(self, paths: list[Path]) -> None:
        """Make files of :func:`write_table` part of the database; they are gone afterwards."""
        options = self._rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._open().ingest_external_file([str(path) for path in paths], options)
        except StoreClosed:
            raise
        except Exception as error:
            raise StorageFailed(f"the runs of a load cannot be taken over: {error}") from error

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete every key that begins with a prefix."""
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))
        self._open().write(batch, write_opt=self._write)

    def flush(self) -> None:
        """Put everything written so far on disk."""
        self._open().flush()

    def refresh(self) -> None:
        """See what the writer has flushed since; of a reader."""
        if not self.writable:
            with self._lock:
                self._open().try_catch_up_with_primary()

    @property
    def disk_bytes(self) -> int:
        """Size of the database's files."""
        return sum(file.stat().st_size for file in self.path.glob("*.sst"))

    def close(self) -> None:
        """Flush and close; doing so again does nothing."""
        database, self._db = self._db, None
        if database is not None:
            try:
                if self.writable:
                    database.flush()
            finally:
                database.close()
                del database
                self._discard()

    def _discard(self) -> None:
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None


def _sweep_private() -> None:
    """Remove what killed readers of this user have left; one that still runs only loses its log."""
    for path in Path(tempfile.gettempdir()).glob(f"{PRIVATE}*-*"):
        number = path.name.removeprefix(PRIVATE).partition("-")[0]
        try:
            if number.isdigit() and path.stat().st_uid == os.getuid():
                os.kill(int(number), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # gone meanwhile, or somebody else's
