"""What the write-ahead log says: appends, extents and checkpoints.

Purpose
    The log (:mod:`~chronicle.store.log`) keeps records; here is what they mean.  Replaying them
    over a manifest gives the state of the stream at its last commit: the committed part of the
    active segment, the tail and the buffer of late events.

Layout
    ==========  ==============================================================================
    APPEND      one Arrow record batch in the stream's schema, sorted: late events first, the
                rest goes to the tail
    EXTENT      leaves were written: document, tail, late.  The tail replaces the one before;
                the late events are added to the buffer
    CHECKPOINT  first record of every log: document, tail, late.  Both replace what was before
    ==========  ==============================================================================

    A document is JSON: ``{"extent": ..., "last": ..., "position": ..., "late": ...}``; ``last`` is
    the newest tick in order, ``position`` the commits so far, ``late`` all late events ever.
    Records with three parts begin with three lengths (uint64), each part padded to 8 bytes.

Guarantee
    One record is one commit: it is there entirely or not at all.  Splitting an APPEND into late and
    in-order events depends only on the state before it, so a replay splits as the writer did.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import CorruptStore
from ..schema import StreamSchema
from .segment_writer import Extent
from .tail import Tail, add_late, ticks_of

__all__ = ["Journal", "RecordKind", "decode_batch", "encode_batch", "encode_state", "split_late"]

_LENGTHS = struct.Struct("<QQQ")


class RecordKind(IntEnum):
    """Kinds of log records."""

    APPEND = 1
    EXTENT = 2
    CHECKPOINT = 3


def encode_batch(batch: pa.RecordBatch | None) -> Any:
    """A batch as an Arrow message without its schema; empty for no events."""
    if batch is None or batch.num_rows == 0:
        return b""
    return batch.serialize()


def decode_batch(data: memoryview, schema: StreamSchema) -> pa.RecordBatch | None:
    """Read what :func:`encode_batch` wrote; None for no events."""
    if not len(data):
        return None
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema.arrow)


def encode_state(
    extent: Extent | None,
    last: int | None,
    position: int,
    late_total: int,
    tail: pa.RecordBatch | None,
    late: pa.RecordBatch | None,
) -> list[Any]:
    """Parts of an EXTENT or CHECKPOINT record."""
    document = json.dumps(
        {
            "extent": None if extent is None else extent.to_bytes().decode(),
            "last": last,
            "position": position,
            "late": late_total,
        },
        separators=(",", ":"),
    ).encode()
    parts = [document, encode_batch(tail), encode_batch(late)]
    out: list[Any] = [_LENGTHS.pack(*(_size(part) for part in parts))]
    for part in parts:
        out.append(part)
        padding = -_size(part) % 8
        if padding:
            out.append(bytes(padding))
    return out


def _size(part: Any) -> int:
    return part.size if isinstance(part, pa.Buffer) else len(part)


def split_late(
    batch: pa.RecordBatch, last: int | None, schema: StreamSchema
) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """Split a sorted batch into events older than ``last`` and the rest; None where empty."""
    if last is None:
        return None, batch
    cut = int(np.searchsorted(ticks_of(batch, schema), last, "left"))
    late = batch.slice(0, cut) if cut else None
    fresh = batch.slice(cut) if cut < batch.num_rows else None
    return late, fresh


@dataclass(frozen=True)
class Journal:
    """State of a stream as its log tells it.

    Attributes
    ----------
    extent : Extent or None
        Committed part of the active segment; None when there is none.
    last : int or None
        Newest tick that is not late; events older than it are.
    position : int
        Commits since the stream was created.
    late_total : int
        Late events since the stream was created.
    tail : Tail
    late : tuple of pyarrow.RecordBatch
        The buffer of late events, in arrival order.
    """

    extent: Extent | None
    last: int | None
    position: int
    late_total: int
    tail: Tail
    late: tuple[pa.RecordBatch, ...]

    @classmethod
    def empty(cls, schema: StreamSchema) -> Journal:
        """State of a stream without events."""
        return cls(None, None, 0, 0, Tail(schema), ())

    @classmethod
    def replay(
        cls, records: Iterable[tuple[int, memoryview]], schema: StreamSchema, file: str
    ) -> Journal:
        """Apply the records of a log in order.

        Raises
        ------
        CorruptStore
            When a record that hashes right cannot be understood, or the first is no CHECKPOINT.
        """
        state: Journal | None = None
        for number, (kind, payload) in enumerate(records):
            try:
                if kind == RecordKind.CHECKPOINT:
                    state = cls._read_state(payload, schema, None)
                elif state is None:
                    raise CorruptStore(f"{file} does not begin with a checkpoint")
                elif kind == RecordKind.EXTENT:
                    state = cls._read_state(payload, schema, state)
                elif kind == RecordKind.APPEND:
                    state = state._append(payload, schema)
                else:
                    raise CorruptStore(f"record {number} of {file} has the unknown kind {kind}")
            except (pa.ArrowInvalid, ValueError, KeyError, struct.error) as error:
                raise CorruptStore(
                    f"record {number} of {file} hashes right but cannot be read: {error}"
                ) from error
        if state is None:
            raise CorruptStore(f"{file} holds no checkpoint; run `chronicle check`")
        return state

    @classmethod
    def _read_state(
        cls, payload: memoryview, schema: StreamSchema, before: Journal | None
    ) -> Journal:
        lengths = _LENGTHS.unpack_from(payload)
        parts = []
        at = _LENGTHS.size
        for length in lengths:
            parts.append(payload[at : at + length])
            at += length + (-length % 8)
        document = json.loads(bytes(parts[0]))
        extent = document["extent"]
        tail = decode_batch(parts[1], schema)
        late = decode_batch(parts[2], schema)
        buffer = () if before is None else before.late
        if late is not None:
            buffer = add_late(buffer, late, schema)
        return cls(
            None if extent is None else Extent.from_bytes(extent.encode()),
            document["last"],
            document["position"],
            document["late"],
            Tail(schema, [] if tail is None else [tail]),
            buffer,
        )

    def _append(self, payload: memoryview, schema: StreamSchema) -> Journal:
        batch = decode_batch(payload, schema)
        assert batch is not None
        late, fresh = split_late(batch, self.last, schema)
        state = replace(self, position=self.position + 1)
        if late is not None:
            state = replace(
                state,
                late=add_late(self.late, late, schema),
                late_total=self.late_total + late.num_rows,
            )
        if fresh is not None:
            self.tail.add(fresh)
            state = replace(state, last=int(ticks_of(fresh, schema)[-1]))
        return state
