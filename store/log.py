"""The write-ahead log: one sequential write per small append, replayed after a crash.

Guarantee: when ``sync(position)`` has returned, every record that ends at or before that position
survives a power cut.  A record is read back whole and at its place, or the log ends before it.
Damage to a durable record raises ``CorruptBlock`` whenever it is distinguishable (below).

Layout: numbers are little-endian and unsigned; each record begins at a multiple of eight bytes.

=====================  ======  =====  =======================================================
header (32 bytes)      offset  size   meaning
=====================  ======  =====  =======================================================
magic                       0      8  ``CHRONLOG``
version                     8      4  2 (1: of releases whose appends do not count events)
nonce                      12      4  random, so that no two logs have the same header
sequence                   16      8  number of this log among those of its stream
checksum                   24      8  XXH3-64 of bytes 0 to 23, seed 0
=====================  ======  =====  =======================================================
record (16 bytes + n)  offset  size   meaning
=====================  ======  =====  =======================================================
checksum                    0      8  XXH3-64 of bytes 8 to the end of the padding; the seed
                                      is the header's checksum XOR the record's offset
length                      8      4  n, the bytes of the payload
kind                       12      2  type of the payload; the log does not interpret it
unsynced                   14      2  when this was written, every byte that lies more than
                                      ``unsynced`` x 512 bytes before the record was durable;
                                      65535: nothing is known
payload                    16      n
padding                16 + n    0-7  zeros, up to the next multiple of eight
=====================  ======  =====  =======================================================

The seed ties a record to its log and place: zeros, blocks of a deleted log, an older record of this
one or two swapped records do not verify.

Torn tails: a power cut may leave any part of unsynced data: whole sectors, in any order, others
zero or stale.  So the first invalid record ends the log, *even if valid ones follow*: they were not
acknowledged, because a sync covers everything before it.  The log is ``torn`` and is cut there.

Corruption: a flipped bit in a durable record looks the same, unless the field ``unsynced`` of a
later record proves that the bad one was already durable.  Then nothing is cut, and ``CorruptBlock``
names the place.  An invalid header of at most 32 bytes is an interrupted creation (torn, empty); of
a longer log, corruption.

Limits: the last synced group before a crash has no later witness: a flipped bit there is taken for
a torn tail and costs these records.  The search for a witness stops after ``SEARCH_BYTES`` hashed
bytes.  After a *failed* sync the bytes on disk are unknown while the page cache shows them as good:
before a reboot, copy the records to a new log instead of calling ``reopen``.

Group commit: threads that wait for the same file share its syncs.  ``sync(position)`` returns only
after a sync that began when all bytes before ``position`` had been written.  One thread syncs, the
others wait for its end; of those that it does not cover one syncs next.  A failed sync reaches all
present and later callers; it is never retried (see ``file_contract``). ::

    A  append ── sync ───────────────┐ returns
    B     append ── waits ───────────┴ sync ─────────────┐ returns
    C        append ── waits ────────── waits ───────────┴ returns

A's sync does not cover B and C, who may have written after it began.
"""

from __future__ import annotations

import os
import posixpath
import struct
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ..core.closing import Closing
from ..core.ownership import Condition
from ..errors import CorruptBlock, InvalidArgument, StorageFailed, StoreClosed
from .file_contract import AppendFile, Files, check_version

if TYPE_CHECKING:
    from typing_extensions import Buffer


class GroupCommit:
    """Shares the syncs of one growing file; ``end`` returns the position written so far."""

    def __init__(
        self, sync: Callable[[], None], end: Callable[[], int], durable: int, name: str
    ) -> None:
        self._sync_file = sync
        self._end = end
        self._name = name
        self._turn = Condition()
        self._syncing = False
        self.durable = durable
        """Position up to which everything survives a power cut; read without a lock."""
        self.failure: Exception | None = None
        """Why nothing can be made durable any more, if so."""

    def sync(self, position: int) -> None:
        """Return when everything before ``position`` is durable; a failure is final."""
        if self.durable >= position:
            return
        leads = False
        try:
            with self._turn:
                self._turn.wait_for(lambda: self.durable >= position or not self._syncing)
                if self.durable >= position:
                    return
                if self.failure is not None:
                    raise self.failed()
                leads = self._syncing = True
            # Read before the sync, which does not cover later writes.
            target = self._end()
            self._sync_file()
            self.durable = max(self.durable, target)
        except Exception as error:
            if leads:
                self.failure = error
            raise
        finally:
            if leads:
                with self._turn:
                    self._syncing = False
                    self._turn.notify_all()

    def failed(self) -> StorageFailed:
        error = StorageFailed(
            f"{self._name} takes nothing more, because it could not be written or synced "
            f"({self.failure}); what was acknowledged before is safe: open the store again"
        )
        error.__cause__ = self.failure
        return error


LOG_MAGIC = b"CHRONLOG"
LOG_VERSION = 2

LOG_HEADER = struct.Struct("<8sIIQ")
"""Magic, version, nonce, sequence; the checksum follows."""

LOG_CHECKSUM = struct.Struct("<Q")
"""XXH3-64, behind the header and in front of each record."""

LOG_RECORD = struct.Struct("<IHH")
"""Length, kind, unsynced; the payload follows."""

HEADER_BYTES = LOG_HEADER.size + LOG_CHECKSUM.size
RECORD_BYTES = LOG_CHECKSUM.size + LOG_RECORD.size
ALIGNMENT = 8
PADDING = tuple(bytes(count) for count in range(ALIGNMENT))

SECTOR_SHIFT = 9
UNSYNCED_UNKNOWN = 0xFFFF
LENGTH_MAX = 0xFFFFFFFF
KIND_MAX = 0xFFFF

FRAME = struct.Struct("<QIHH")

JOIN_BYTES = 1 << 17
"""Payloads up to this size are joined: cheaper than a gathering write."""

SEARCH_BLOCK = 1 << 20

SEARCH_BYTES = 1 << 26
"""Maximum bytes hashed in the search for a witness."""


class LogRecord(NamedTuple):
    kind: int
    payload: memoryview
    end: int
    """Offset after the record and its padding."""


class LogContents(NamedTuple):
    sequence: int
    records: list[LogRecord]
    valid_length: int
    """End of the last valid record; 0 when the header is missing."""
    torn: bool
    """Whether invalid bytes follow, or the header is missing."""


class LogWriter(Closing):
    """Appends to a log, made by ``create`` or ``reopen``; thread-safe."""

    def __init__(
        self, file: AppendFile, sequence: int, salt: int, records: int, durable: int | None = None
    ) -> None:
        self.path = file.path
        self.sequence = sequence
        self._file = file
        self._salt = salt
        self.records = records
        self.size = file.size
        self._closed = False
        self._lock = threading.Lock()
        self._commit = GroupCommit(
            file.sync, self._end, file.size if durable is None else durable, f"log {file.path}"
        )

    @classmethod
    def create(cls, files: Files, path: str, sequence: int, *, durable: bool = True) -> Self:
        """Create an empty log; if not ``durable``, the caller syncs directory and log."""
        nonce = int.from_bytes(os.urandom(4), "little")
        header = LOG_HEADER.pack(LOG_MAGIC, LOG_VERSION, nonce, sequence)
        salt: int = xxh3_64_intdigest(header)
        file = files.create(path)
        try:
            file.write(header + LOG_CHECKSUM.pack(salt))
            if durable:
                file.sync()
                files.sync_directory(posixpath.dirname(path))
        except BaseException:
            file.close()
            raise
        return cls(file, sequence, salt, 0, file.size if durable else 0)

    @classmethod
    def reopen(cls, files: Files, path: str, valid_length: int, records: int) -> Self:
        """Cut off a torn tail, make the rest durable and continue."""
        with files.open(path) as reading:
            header = _read_header(bytes(reading.read(0, min(reading.size, HEADER_BYTES))), path)
            size = reading.size
        if header is None or not HEADER_BYTES <= valid_length <= size:
            raise InvalidArgument(
                f"cannot continue log {path} ({size} bytes) at byte {valid_length}: "
                f"remove it and create a new one"
            )
        sequence, salt = header
        file = files.append(path)
        try:
            if size > valid_length:
                file.truncate(valid_length)
            # The previous process may have been killed before it synced these records.
            file.sync()
        except BaseException:
            file.close()
            raise
        return cls(file, sequence, salt, records)

    @property
    def durable_size(self) -> int:
        """Position up to which everything survives a power cut."""
        return self._commit.durable

    @property
    def failed(self) -> bool:
        """Whether a sync or a rollback has failed, after which the log takes nothing more."""
        return self._commit.failure is not None

    def append(self, kind: int, parts: Sequence[Buffer]) -> int:
        """Write one record, not yet durably; returns the position after it.  All or nothing."""
        length = 0
        for part in parts:
            length += len(part) if type(part) is bytes else memoryview(part).nbytes
        if length > LENGTH_MAX or not 0 <= kind <= KIND_MAX:
            raise InvalidArgument(
                f"a log record holds less than 4 GiB and has a kind of 0 to {KIND_MAX}, "
                f"found {length} bytes of kind {kind}"
            )
        padding = PADDING[-length & (ALIGNMENT - 1)]
        end = 0
        with self._lock:
            if self._commit.failure is not None or self._closed:
                raise self._unusable()
            start, records = self.size, self.records
            unsynced = (start - self._commit.durable + 511) >> SECTOR_SHIFT
            fixed = LOG_RECORD.pack(length, kind, min(unsynced, UNSYNCED_UNKNOWN))
            try:
                if length <= JOIN_BYTES:
                    body = b"".join((fixed, *parts, padding))
                    checksum = xxh3_64_intdigest(body, self._salt ^ start)
                    self._file.write(LOG_CHECKSUM.pack(checksum) + body)
                else:
                    digest = xxh3_64(fixed, self._salt ^ start)
                    for part in parts:
                        digest.update(part)
                    digest.update(padding)
                    head = LOG_CHECKSUM.pack(digest.intdigest()) + fixed
                    self._file.writev((head, *parts, padding))
                self.records = records + 1
                self.size = end = start + RECORD_BYTES + length + len(padding)
            except BaseException:
                self._take_back(start, records)
                raise
        return end

    def sync(self, position: int | None = None) -> None:
        """Return when a position (default: the end) is durable; an error is final for the log."""
        if self._closed:
            raise self._unusable()
        self._commit.sync(self.size if position is None else position)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._file.close()

    def _end(self) -> int:
        return self.size

    def _take_back(self, start: int, records: int) -> None:
        self.size, self.records = start, records
        try:
            if self._file.size > start:
                self._file.truncate(start)
        except Exception as error:
            self._commit.failure = error

    def _unusable(self) -> Exception:
        if self._commit.failure is not None:
            return self._commit.failed()
        return StoreClosed(f"log {self.path} was used after it had been closed")


def read_log(files: Files, path: str) -> LogContents:
    """Read a log up to its last valid record; another process may be appending.  Payloads are views
    of one buffer.  ``CorruptBlock`` when a durable record or the header is damaged.
    """
    data = files.read(path)
    contents = _parse(data, path)
    if contents.torn and (witness := _find_witness(data, contents.valid_length)) is not None:
        # A writer that ran out of space may have replaced its last record during the read.
        data = files.read(path)
        contents = _parse(data, path)
        witness = _find_witness(data, contents.valid_length) if contents.torn else None
        if witness is not None:
            raise CorruptBlock(
                f"a log record does not carry its checksum, and the record at byte {witness} shows "
                f"that it was durable",
                file=path,
                offset=contents.valid_length,
            )
    return contents


def salvage_log(files: Files, path: str) -> tuple[LogContents, list[LogRecord]]:
    """Contents of a damaged log before the first damage, and valid records behind it.  If the
    header is damaged, its stored or its computed checksum may still be the seed of the records.
    """
    data = files.read(path)
    if len(data) < HEADER_BYTES:
        return LogContents(0, [], 0, True), []
    _, _, _, sequence = LOG_HEADER.unpack_from(data)
    salt: int = LOG_CHECKSUM.unpack_from(data, LOG_HEADER.size)[0]
    contents = _records(data, sequence, salt)
    if not contents.records:
        hashed: int = xxh3_64_intdigest(data[: LOG_HEADER.size])
        again = _records(data, sequence, hashed)
        if again.records:
            contents, salt = again, hashed
    view = memoryview(data)
    behind: list[LogRecord] = []
    start = contents.valid_length + ALIGNMENT
    while start + RECORD_BYTES <= len(data):
        checksum, length, kind, _ = FRAME.unpack_from(data, start)
        end = start + RECORD_BYTES + ((length + 7) & -8)
        if (
            checksum
            and end <= len(data)
            and checksum == xxh3_64_intdigest(view[start + 8 : end], salt ^ start)
        ):
            payload = start + RECORD_BYTES
            behind.append(LogRecord(kind, view[payload : payload + length], end))
            start = end
        else:
            start += ALIGNMENT
    return contents, behind


def _parse(data: bytes, path: str) -> LogContents:
    header = _read_header(data[:HEADER_BYTES], path)
    if header is None:
        if len(data) > HEADER_BYTES:
            raise CorruptBlock("the header of a log is damaged", file=path, offset=0)
        return LogContents(0, [], 0, True)
    return _records(data, *header)


def _records(data: bytes, sequence: int, salt: int) -> LogContents:
    view = memoryview(data)
    size = len(data)
    records: list[LogRecord] = []
    # Local names for speed: once per small append since the last leaf.
    add, new, digest, frame_at = records.append, tuple.__new__, xxh3_64_intdigest, FRAME.unpack_from
    start = HEADER_BYTES
    while start + RECORD_BYTES <= size:
        checksum, length, kind, _ = frame_at(data, start)
        payload = start + RECORD_BYTES
        end = payload + ((length + 7) & -8)
        if end > size or checksum != digest(view[start + 8 : end], salt ^ start):
            break
        add(new(LogRecord, (kind, view[payload : payload + length], end)))
        start = end
    return LogContents(sequence, records, start, start < size)


def _read_header(header: bytes, path: str) -> tuple[int, int] | None:
    if len(header) < HEADER_BYTES:
        return None
    magic, version, _, sequence = LOG_HEADER.unpack_from(header)
    salt: int = xxh3_64_intdigest(header[: LOG_HEADER.size])
    if magic != LOG_MAGIC or LOG_CHECKSUM.unpack_from(header, LOG_HEADER.size)[0] != salt:
        return None
    check_version(f"log {path}", version, LOG_VERSION)
    return sequence, salt


def _find_witness(data: bytes, bad: int) -> int | None:
    """A valid record that proves that the one at ``bad`` was already durable.  Tries every aligned
    offset, nearest first, since the bad record's length may be damaged; the seed makes tries
    independent.
    """
    if bad < HEADER_BYTES:
        return None
    salt = LOG_CHECKSUM.unpack_from(data, LOG_HEADER.size)[0]
    view = memoryview(data)
    size = len(data)
    budget = SEARCH_BYTES
    for block in range(bad + RECORD_BYTES, size - RECORD_BYTES + 1, SEARCH_BLOCK):
        words = np.frombuffer(
            data, "<u8", min(SEARCH_BLOCK, (size - block) // 8 * 8 - 8) // 8 + 1, block
        )
        starts = block + 8 * np.arange(len(words) - 1, dtype=np.int64)
        ends = starts + RECORD_BYTES + (words[1:] & LENGTH_MAX).astype(np.int64)
        unsynced = (words[1:] >> 48).astype(np.int64)
        # Hash only records that prove something, fit and are not zeros.
        proves = (unsynced != UNSYNCED_UNKNOWN) & (starts - (unsynced << SECTOR_SHIFT) > bad)
        for start in starts[proves & (ends <= size) & (words[:-1] != 0)].tolist():
            checksum, length, _, _ = FRAME.unpack_from(data, start)
            end = start + RECORD_BYTES + ((length + 7) & -8)
            budget -= end - start
            if budget < 0:
                return None
            if checksum == xxh3_64_intdigest(view[start + 8 : end], salt ^ start):
                return int(start)
    return None
