"""The RocksDB database with the index runs of one stream, in ``<stream>/indexes/``.

Keys have big-endian integers, so that they sort; a value is a block of thousands of entries::

    d <index 4> <segment 8> <first 8>               descriptor of a run, which makes it exist
    k <index 4> <segment 8> <first 8> <generation 4> <block 4>      a block of keys
    p ...  n ...  s ...                             its positions, nulls, dictionary (block 0)
    D <segment 8> <first 8>                         descriptor of the times of a range
    t <segment 8> <first 8> <generation 4> <block 4>                their times

Writes become durable in order, so a descriptor that survives a crash has its blocks; without a
write-ahead log, lost runs are rebuilt.  After a failed write RocksDB accepts no other, and
unflushed data may be lost: the writer reopens the database.  A reader opens links in a temporary
directory, without write access, and sees flushed data.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.ownership import LOADING, Condition, leave_to_parent
from ..core.scratch import ScratchDirectory
from ..errors import ChronicleError, CorruptStore, StorageFailed, StorageFull, StoreClosed

BATCH_BYTES = 1 << 20
"""Size of write batches: RocksDB holds the interpreter's lock during each."""

ATTEMPTS = 5
LOOK_S = 0.05

_USED_IN: list[int] = []
"""The process that used RocksDB first: a forked child lacks its threads."""

_RUN = struct.Struct(">cIQQ")
_BLOCK = struct.Struct(">cIQQII")
_TIMES = struct.Struct(">cQQ")
_TIME_BLOCK = struct.Struct(">cQQI")


TIMES = 0
"""Index number of the times of a range, which are stored as a run of one block."""


def descriptor_key(index: int, segment: int, first: int) -> bytes:
    if index == TIMES:
        return _TIMES.pack(b"D", segment, first)
    return _RUN.pack(b"d", index, segment, first)


def block_key(
    kind: bytes, index: int, segment: int, first: int, generation: int, block: int = 0
) -> bytes:
    """Key of a run's block: kind ``k``, ``p``, ``n`` or ``s``; of times ``t``."""
    if index == TIMES:
        return _TIME_BLOCK.pack(kind, segment, first, generation)
    return _BLOCK.pack(kind, index, segment, first, generation, block)


def parse_descriptor_key(key: bytes) -> tuple[int, int, int]:
    """Index, segment and first position; inverse of ``descriptor_key``."""
    if key.startswith(b"D"):
        return TIMES, *_TIMES.unpack(key)[1:]
    _, index, segment, first = _RUN.unpack(key)
    return index, segment, first


def block_prefixes(index: int, segment: int, first: int) -> list[bytes]:
    """What the keys of all blocks of a run, or of some times, begin with."""
    kinds = (b"t",) if index == TIMES else (b"k", b"p", b"n", b"s")
    return [kind + descriptor_key(index, segment, first)[1:] for kind in kinds]


_MISSING = os.strerror(errno.ENOENT)
_FULL = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT))
_CODE = re.compile(r"os error (\d+)")


@contextmanager
def _translated(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except ChronicleError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else None
        text = " ".join((reason or str(error)).split())
        message = f"the indexes in {path} cannot be {doing}: {text}"
        code = error.errno if isinstance(error, OSError) else None
        if (named := _CODE.search(text)) is not None:
            code = int(named.group(1))
        if code in (errno.ENOSPC, errno.EDQUOT) or any(full in text for full in _FULL):
            raise StorageFull(f"{message}; free some space, then repeat") from error
        if code in (errno.ENOTDIR, errno.EEXIST, errno.ENOENT) or (
            text.startswith("Corruption") or _MISSING in text
        ):
            raise CorruptStore(
                f"{message}; queries answer the same without; `chronicle check --repair` builds "
                "them again"
            ) from error
        raise StorageFailed(f"{message}; queries answer the same without") from error


def write_table(path: Path, puts: list[tuple[bytes, bytes]]) -> None:
    """Write entries into a separate file for ``IndexStorage.take_over``."""
    with LOADING:
        import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    with _translated("written", path):
        writer = rocksdict.SstFileWriter(options)
        writer.open(str(path))
        for key, value in sorted(puts):
            writer[key] = value
        writer.finish()


def remove_database(path: Path, keep: str) -> None:
    """Remove a database's files except ``keep``; the first removal invalidates it."""
    with _translated("removed", path):
        (path / "CURRENT").unlink(missing_ok=True)
        for entry in list(path.iterdir()) if path.is_dir() else ():
            if entry.name == keep:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)


class _Lookup:
    __slots__ = ("__weakref__",)


class IndexStorage:
    """An open index database; created if ``writable`` and missing."""

    def __init__(self, path: Path, writable: bool) -> None:
        with LOADING:
            import rocksdict

        self.path = path
        self.writable = writable
        self._rocksdict = rocksdict
        self._lock = Condition()  # closing waits for lookups
        self._lookups: weakref.WeakKeyDictionary[_Lookup, int] = weakref.WeakKeyDictionary()
        self._seen: tuple[bytes, int] | None = None
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
        self._write = rocksdict.WriteOptions()
        self._write.disable_wal = True
        if writable:
            with _translated("opened", path):
                path.mkdir(parents=True, exist_ok=True)
                self._db = rocksdict.Rdict(str(path), self._options())
        else:
            self._db = self._read_only()

    def _options(self) -> Any:
        options = self._rocksdict.Options(raw_mode=True)
        options.create_if_missing(self.writable)
        options.set_write_buffer_size(32 << 20)
        options.set_max_open_files(512 if self.writable else -1)
        options.set_advise_random_on_open(False)  # blocks of a lookup are adjacent
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        table = self._rocksdict.BlockBasedOptions()
        table.set_block_cache(self._rocksdict.Cache(8 << 20))  # see opened.CACHE_BYTES
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        options.set_compression_type(self._rocksdict.DBCompressionType.none())
        return options

    def _read_only(self) -> Any:
        access = self._rocksdict.AccessType.read_only()
        for attempt in range(ATTEMPTS):
            try:
                with _translated("read", self.path), self._linked() as private:
                    return self._rocksdict.Rdict(private, self._options(), access_type=access)
            except CorruptStore:
                # a file that the writer has replaced looks missing
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(0.01 * attempt)
        raise AssertionError

    @contextmanager
    def _linked(self) -> Iterator[str]:
        """A temporary directory with links to the files: RocksDB writes where it opens."""
        self._seen = self._look()
        try:
            private = ScratchDirectory("index")
        except OSError as error:
            raise StorageFailed(
                f"the indexes in {self.path} cannot be read without a place for temporary files: "
                f"{error}; queries answer the same without"
            ) from error
        with private as directory:
            for name in os.listdir(self.path):
                if name == "CURRENT" or name.startswith("MANIFEST-") or name.endswith(".sst"):
                    source = os.path.join(os.path.abspath(self.path), name)
                    os.symlink(source, directory / name)
            yield str(directory)

    def _look(self) -> tuple[bytes, int]:
        current = (self.path / "CURRENT").read_bytes()
        return current, (self.path / os.fsdecode(current.strip())).stat().st_size

    def _open(self) -> Any:
        if self._db is None:
            raise StoreClosed(f"the indexes in {self.path} are closed; open the store again")
        return self._db

    @contextmanager
    def _looking(self) -> Iterator[Any]:
        with self._lock:
            database = self._open()
            lookup = _Lookup()
            self._lookups[lookup] = id(database)
        try:
            with _translated("read", self.path):
                yield database
        finally:
            with self._lock:
                del self._lookups[lookup]
                self._lock.notify_all()

    def _await_lookups(self, database: Any) -> None:
        """Wait for running lookups of a detached database; the lock is held."""
        while id(database) in self._lookups.values():
            self._lock.wait(LOOK_S)  # after Ctrl-C a lookup may have ended without a notice

    def get(self, key: bytes) -> bytes | None:
        with self._looking() as database:
            value: bytes | None = database.get(key)
            return value

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        options = self._rocksdict.ReadOptions()
        options.set_iterate_upper_bound(prefix[:-1] + bytes([prefix[-1] + 1]))
        pairs: list[tuple[bytes, bytes]] = []
        with self._lock, _translated("read", self.path):
            # not items(): it silently ends at a corrupt block
            entries = self._open().iter(options)
            try:
                entries.seek(prefix)
                while entries.valid():
                    pairs.append((entries.key(), entries.value()))
                    entries.next()
                entries.status()
            finally:
                del entries  # an exception would keep it, and thus the database, alive
        return pairs

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] | None = None) -> None:
        """Write in batches, in order; the last put, a descriptor, validates the others."""
        database = self._open()
        with _translated("written", self.path):
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
        """Ingest files of ``write_table``, which are moved."""
        options = self._rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with _translated("extended by the runs of a load", self.path):
            self._open().ingest_external_file([str(path) for path in paths], options)

    def delete_prefix(self, prefix: bytes) -> None:
        with _translated("written", self.path):
            batch = self._rocksdict.WriteBatch(raw_mode=True)
            batch.delete_range(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))
            self._open().write(batch, write_opt=self._write)

    def flush(self) -> None:
        with _translated("written", self.path):
            self._open().flush()

    def purge(self) -> None:
        """Compact, so that no file contains deleted data."""
        with _translated("written", self.path):
            database = self._open()
            database.flush()
            database.compact_range(None, None)

    def refresh(self) -> bool:
        """In a reader: see newly flushed data; False when there is none."""
        with _translated("read", self.path):
            if self._seen == self._look():
                return False
        fresh = self._read_only()
        with self._lock:
            stale, self._db = self._db, fresh
            if stale is None:  # closed meanwhile
                self._db = None
                stale = fresh
            self._await_lookups(stale)
            stale.close()
        return True

    def close(self) -> None:
        try:
            if self.writable and self._db is not None:
                self.flush()
        finally:
            with self._lock:
                database, self._db = self._db, None
                if database is not None:
                    self._await_lookups(database)
                    with _translated("closed", self.path):
                        database.close()
