"""The journal: log records for appends, extents and checkpoints, and their replay.

Replaying the log (``log``) over a manifest gives the state of the stream at its last commit: the
committed part of the active segment, the tail and the buffer of late events.

==========  ==============================================================================
COUNTED     the events of the stream after this record (uint64), then one Arrow record batch
            in the stream's schema, sorted: late events first, the rest goes to the tail
APPEND      the same without the count, in logs of old releases
MARKED      two lengths (uint64): the events after it, and of a document that follows, padded
            to 8 bytes: marks by name, null for one that ends.  Then a batch as in COUNTED,
            which may have no events
EXTENT      leaves were written: document, tail, late.  The tail replaces the one before;
            the late events are added to the buffer
CHECKPOINT  first record of every log: document, tail, late.  Both replace what was before
==========  ==============================================================================

A document is JSON: ``extent``, ``last`` (newest in-order tick), ``position`` (commits), ``late``
(all late events ever), ``events`` (in the stream), ``stream`` (identity), ``marks`` (if any).
Records with three parts begin with three lengths (uint64), each part padded to 8 bytes.

Guarantee: one record is one commit, all or nothing.  The split of an append into late and in-order
events depends only on the state before it, so a replay splits as the writer did.  Every batch is
validated: an unsound one (older releases accepted such) is set aside in ``Journal.refused``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.soundness import require_sound
from ..errors import CorruptStore, InvalidData
from ..schema import StreamSchema
from .catalog import StreamManifest, log_name, write_manifest
from .file_contract import Files
from .log import LogWriter
from .merge import add_late, join_late
from .segment_writer import Extent
from .tail import Tail, concat_batches, sort_batch, ticks_of

_LENGTHS = struct.Struct("<QQQ")


_TOTAL = struct.Struct("<Q")
_MARKED = struct.Struct("<QQ")
_NOT_COUNTED = (1 << 64) - 1

Marks = Mapping[str, Any]
"""JSON values that writers store with their events, by name."""

_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, struct.error)


class RecordKind(IntEnum):
    APPEND = 1
    EXTENT = 2
    CHECKPOINT = 3
    COUNTED = 4
    MARKED = 5


def encode_batch(batch: pa.RecordBatch | None) -> Any:
    """A batch as an Arrow message without its schema; empty for no events."""
    if batch is None or batch.num_rows == 0:
        return b""
    return batch.serialize()


def encode_append(
    batch: pa.RecordBatch, events: int | None, marks: Marks | None = None
) -> tuple[RecordKind, list[Any]]:
    """Record kind and parts of an append after which the stream has ``events`` events."""
    if marks is not None:
        document = json.dumps(marks, separators=(",", ":")).encode()
        head = _MARKED.pack(_NOT_COUNTED if events is None else events, len(document))
        padding = bytes(-len(document) % 8)
        return RecordKind.MARKED, [head, document, padding, encode_batch(batch)]
    if events is None:  # unknown until the next checkpoint: the log is from an old release
        return RecordKind.APPEND, [encode_batch(batch)]
    return RecordKind.COUNTED, [_TOTAL.pack(events), encode_batch(batch)]


def append_of(kind: int, payload: memoryview) -> memoryview | None:
    if kind == RecordKind.COUNTED:
        return payload[_TOTAL.size :]
    if kind == RecordKind.MARKED:
        length = _MARKED.unpack_from(payload)[1]
        return payload[_MARKED.size + length + (-length % 8) :]
    return payload if kind == RecordKind.APPEND else None


def marks_of(kind: int, payload: memoryview) -> dict[str, Any]:
    """The marks that a record sets; null for those that end."""
    if kind != RecordKind.MARKED:
        return {}
    length = _MARKED.unpack_from(payload)[1]
    marks: dict[str, Any] = json.loads(bytes(payload[_MARKED.size : _MARKED.size + length]))
    return marks


def marked(before: Marks, marks: Marks) -> Marks:
    if not marks:
        return before
    return {name: mark for name, mark in {**before, **marks}.items() if mark is not None}


def events_after(kind: int, payload: memoryview) -> int | None:
    """Events of the stream after a record; None if it does not say."""
    if kind == RecordKind.COUNTED:
        return int(_TOTAL.unpack_from(payload)[0])
    if kind == RecordKind.MARKED:
        counted = int(_MARKED.unpack_from(payload)[0])
        return None if counted == _NOT_COUNTED else counted
    if kind in (RecordKind.EXTENT, RecordKind.CHECKPOINT):
        length = _LENGTHS.unpack_from(payload)[0]
        events = json.loads(bytes(payload[_LENGTHS.size : _LENGTHS.size + length])).get("events")
        return None if events is None else int(events)
    return None


def decode_batch(data: memoryview, schema: StreamSchema) -> pa.RecordBatch | None:
    """Inverse of ``encode_batch``; None for no events.  The batch may be unsound."""
    if not len(data):
        return None
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema.arrow)


def encode_state(journal: Journal, late: pa.RecordBatch | None) -> list[Any]:
    extent = journal.extent
    fields: dict[str, Any] = {
        "extent": None if extent is None else extent.to_bytes().decode(),
        "last": journal.last,
        "position": journal.position,
        "late": journal.late_total,
        "events": journal.events,
        "stream": journal.identity,
    }
    if journal.marks:
        fields["marks"] = dict(journal.marks)
    document = json.dumps(fields, separators=(",", ":")).encode()
    tail = journal.tail.batch() if journal.tail.rows else None
    parts = [document, encode_batch(tail), encode_batch(late)]
    out: list[Any] = [_LENGTHS.pack(*(_size(part) for part in parts))]
    for part in parts:
        out.append(part)
        padding = -_size(part) % 8
        if padding:
            out.append(bytes(padding))
    return out


def encode_checkpoint(journal: Journal) -> list[Any]:
    return encode_state(
        journal, join_late(journal.late, journal.tail.schema) if journal.late else None
    )


def begin_log(
    files: Files, directory: str, number: int, journal: Journal, *, durable: bool = True
) -> LogWriter:
    """Create a log that begins with a checkpoint.  If not ``durable``, the caller makes its name
    durable; else no other log than a sound one has the name, even after a power cut meanwhile.
    """
    log = LogWriter.create(files, f"{directory}/{log_name(number)}", number, durable=durable)
    try:
        log.append(RecordKind.CHECKPOINT, encode_checkpoint(journal))
        log.sync()
    except BaseException:
        log.close()
        raise
    return log


def install(files: Files, directory: str, manifest: StreamManifest, journal: Journal) -> None:
    """Make a directory the stream that a manifest names, durably; its files have been synced."""
    begin_log(files, directory, manifest.log, journal).close()
    write_manifest(files, directory, manifest.to_json())


def _size(part: Any) -> int:
    return part.size if isinstance(part, pa.Buffer) else len(part)


@dataclass(frozen=True)
class Journal:
    """State of a stream according to its log.

    ``last``: newest in-order tick; older events are late.
    ``position``, ``late_total``: commits and late events since the stream was created.
    ``late``: the buffer of late events, in arrival order.
    ``events``: in the stream; None while only records of old releases exist.
    ``refused``: batches set aside in the replay: number of events (0 if unknown), and the reason.
    """

    extent: Extent | None
    last: int | None
    position: int
    late_total: int
    tail: Tail
    late: tuple[pa.RecordBatch, ...]
    events: int | None = None
    identity: int = 0
    refused: tuple[tuple[int, str], ...] = ()
    marks: Marks = field(default_factory=dict)

    @classmethod
    def empty(cls, schema: StreamSchema) -> Journal:
        return cls(None, None, 0, 0, Tail(schema), ())

    @property
    def rows(self) -> int:
        """Events that are in no sealed segment and no late run."""
        active = 0 if self.extent is None else self.extent.events
        return active + self.logged

    @property
    def logged(self) -> int:
        """Events in the tail and the late buffer."""
        return int(self.tail.rows) + self.late_rows

    @property
    def late_rows(self) -> int:
        return sum(batch.num_rows for batch in self.late)

    def after(
        self,
        late: pa.RecordBatch | None,
        rows: int,
        last: int | None,
        tail: Tail,
        marks: Marks | None,
    ) -> Journal:
        """The journal after one more commit with ``rows`` events, ``last`` the newest not late."""
        return replace(
            self,
            last=self.last if last is None else last,
            position=self.position + 1,
            late_total=self.late_total + (0 if late is None else late.num_rows),
            tail=tail,
            late=self.late if late is None else add_late(self.late, late, tail.schema),
            events=None if self.events is None else self.events + rows,
            marks=marked(self.marks, marks or {}),
        )

    @classmethod
    def replay(
        cls, records: Iterable[tuple[int, memoryview]], schema: StreamSchema, file: str
    ) -> Journal:
        """Apply the records of a log in order; ``CorruptStore`` if one cannot be decoded."""
        replay: _Replay | None = None
        for number, (kind, payload) in enumerate(records):
            try:
                if kind == RecordKind.CHECKPOINT:
                    replay = _Replay(schema, f"record {number} of {file}")
                    replay.state(payload)
                elif replay is None:
                    raise CorruptStore(f"{file} does not begin with a checkpoint")
                elif (encoded := append_of(kind, payload)) is not None:
                    replay.where = f"record {number} of {file}"
                    replay.append(encoded, marks_of(kind, payload))
                    replay.expect(events_after(kind, payload))
                elif kind == RecordKind.EXTENT:
                    replay.where = f"record {number} of {file}"
                    replay.state(payload)
                else:
                    raise CorruptStore(f"record {number} of {file} has the unknown kind {kind}")
            except CorruptStore as error:
                raise CorruptStore(f"record {number} of {file}: {error}") from error
            except _UNREADABLE as error:
                raise CorruptStore(
                    f"record {number} of {file} hashes right but cannot be read: {error}"
                ) from error
        if replay is None:
            raise CorruptStore(f"{file} holds no checkpoint; run `chronicle check`")
        return replay.journal()


class _Replay:
    """Applies records; late events are sorted once, at the end, which a stable sort allows."""

    def __init__(self, schema: StreamSchema, where: str) -> None:
        self._schema = schema
        self.where = where
        self._refused: list[tuple[int, str]] = []
        self._extent: Extent | None = None
        self._last: int | None = None
        self._position = 0
        self._late_total = 0
        self._events: int | None = None
        self._identity = 0
        self._marks: Marks = {}
        self._fresh: list[pa.RecordBatch] = []
        self._late: list[pa.RecordBatch] = []

    def _batch(self, data: memoryview) -> pa.RecordBatch | None:
        events = 0
        try:
            batch = decode_batch(data, self._schema)
            if batch is not None:
                events = batch.num_rows
                require_sound(batch)
            return batch
        except (InvalidData, pa.ArrowInvalid, OSError) as error:
            self._refused.append((events, f"{self.where}: {error}"))
            self._events = None  # counts of later records no longer match
            return None

    def state(self, payload: memoryview) -> None:
        lengths = _LENGTHS.unpack_from(payload)
        parts = []
        at = _LENGTHS.size
        for length in lengths:
            parts.append(payload[at : at + length])
            at += length + (-length % 8)
        document = json.loads(bytes(parts[0]))
        extent = document["extent"]
        self._extent = None if extent is None else Extent.from_bytes(extent.encode())
        self._last = document["last"]
        self._position = document["position"]
        self._late_total = document["late"]
        self._events = None if self._refused else document.get("events")
        self._identity = document.get("stream", 0)
        self._marks = document.get("marks", {})
        tail = self._batch(parts[1])
        late = self._batch(parts[2])
        self._fresh = [] if tail is None else [tail]
        if late is not None:
            self._late.append(late)

    def append(self, payload: memoryview, marks: Marks) -> None:
        batch = self._batch(payload)
        self._position += 1
        self._marks = marked(self._marks, marks)
        if batch is None:
            return
        ticks = ticks_of(batch, self._schema)
        last = self._last
        if self._events is not None:
            self._events += batch.num_rows
        if last is not None and ticks[0] < last:
            cut = int(np.searchsorted(ticks, last, "left"))
            self._late.append(batch.slice(0, cut))
            self._late_total += cut
            if cut == batch.num_rows:
                return
            batch = batch.slice(cut)
        self._fresh.append(batch)
        self._last = int(ticks[-1])

    def expect(self, events: int | None) -> None:
        if events is not None and self._events is not None and events != self._events:
            raise CorruptStore(f"after it the stream has {events} events, found {self._events}")

    def journal(self) -> Journal:
        schema = self._schema
        tail = [concat_batches(self._fresh, schema.arrow)] if self._fresh else []
        late: tuple[pa.RecordBatch, ...] = ()
        if self._late:
            late = (sort_batch(concat_batches(self._late, schema.arrow), schema),)
        return Journal(
            self._extent,
            self._last,
            self._position,
            self._late_total,
            Tail(schema, tail),
            late,
            self._events,
            self._identity,
            tuple(self._refused),
            self._marks,
        )
