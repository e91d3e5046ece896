"""What a stream's manifest says.

Purpose
    The list of files that make up a stream, with what is worth knowing about each without opening
    it. The envelope (version, checksum, atomic replacement) is :mod:`~chronicle.store.manifest`'s.

Layout
    A stream's directory::

        MANIFEST            the body described by :class:`StreamManifest`
        00000017.seg        segments, late runs and the active segment, by identifier
        00000009.wal        the log that belongs to this manifest

Identity
    A stream draws a number when it is created.  Identifiers of its segments begin with it, and each
    block of a segment carries its identifier; checkpoints of the log carry the number itself.  So a
    file that belongs to another stream is noticed, though it may have the same name.

    ::

        identifier   | 0: 4 bits | identity of the stream: 28 bits | counter: 32 bits |
        of bulk load | 1 | drawn: 61 bits |           of old releases: the counter alone

Invariants
    Base segments are in time order.  Late runs are in order of arrival.  A file that neither the
    manifest nor the log's extent names is garbage: of a crash, or kept for a reader that still may
    open it.
"""

from __future__ import annotations

import secrets
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..schema import StreamSchema
from .options import StreamOptions

__all__ = [
    "COUNTER_BITS",
    "COUNTER_MASK",
    "QUARANTINE",
    "SegmentEntry",
    "StreamManifest",
    "directory_name",
    "first_id",
    "log_name",
    "new_identity",
    "number_of",
    "segment_name",
    "stream_name",
]


QUARANTINE = "quarantine"
"""Directory of a stream, for damaged files that its state no longer names."""

COUNTER_BITS = 32
COUNTER_MASK = (1 << COUNTER_BITS) - 1
IDENTITY_BITS = 28


def directory_name(stream: str) -> str:
    """Name of a stream's directory."""
    return urllib.parse.quote(stream, safe="").replace(".", "%2E")


def stream_name(directory: str) -> str:
    """Name of the stream whose directory has that name."""
    return urllib.parse.unquote(directory)


def new_identity() -> int:
    """A number that tells a stream's files from those of another; never 0."""
    return secrets.randbelow((1 << IDENTITY_BITS) - 1) + 1


def first_id(identity: int) -> int:
    """First identifier of the segments of a stream."""
    return identity << COUNTER_BITS | 1


def segment_name(segment_id: int) -> str:
    """File name of a segment: of what a stream numbers itself, the number."""
    drawn = segment_id >> (COUNTER_BITS + IDENTITY_BITS)  # by a bulk load
    return f"{segment_id if drawn else segment_id & COUNTER_MASK:08d}.seg"


def number_of(file: str) -> int:
    """The number in a segment's or log's file name."""
    return int(file.split(".", 1)[0])


def log_name(sequence: int) -> str:
    """File name of a log."""
    return f"{sequence:08d}.wal"


@dataclass(frozen=True)
class SegmentEntry:
    """A sealed segment or late run.

    Attributes
    ----------
    first, last : int
        Ticks, inclusive.
    bytes : int
        Length of the file.
    columns : int
        Columns of the stream's schema when it was written; later ones are null in it.
    """

    id: int
    events: int
    first: int
    last: int
    bytes: int
    columns: int

    @property
    def file(self) -> str:
        """Name of the segment file."""
        return segment_name(self.id)


@dataclass(frozen=True)
class StreamManifest:
    """Body of a stream's manifest.

    Attributes
    ----------
    version : int
        Grows by one with every replacement.
    log : int
        Sequence number of the log that goes with this version.
    next_id : int
        Lowest segment identifier that was never used.
    dropped_events : int
        Events removed by retention.
    garbage : tuple of (str, int)
        Files no longer named, each with the first version that does not name it.
    jobs : dict
        Bulk-load jobs that have been committed, so that repeating one does nothing.
    events, position : int or None
        Events and commit position when it was written, so that a repair can tell what is lost; None
        in manifests of releases that did not say.
    log_bytes : int or None
        Length of the log when the stream was closed, all of it durable: it is never shorter.  None
        as long as nobody has closed the stream since the log was begun.
    owner : str or None
        Who alone may change what the stream holds: ``live``, the live queries.
    """

    name: str
    schema: StreamSchema
    options: StreamOptions
    version: int = 1
    log: int = 1
    next_id: int = 1
    segments: tuple[SegmentEntry, ...] = ()
    runs: tuple[SegmentEntry, ...] = ()
    dropped_events: int = 0
    garbage: tuple[tuple[str, int], ...] = ()
    jobs: dict[str, Any] = field(default_factory=dict)
    events: int | None = None
    position: int | None = None
    log_bytes: int | None = None
    owner: str | None = None

    @property
    def identity(self) -> int:
        """What the identifiers of its segments begin with; 0 in streams of old releases."""
        return self.next_id >> COUNTER_BITS

    @property
    def stored_events(self) -> int:
        """Events in the segments and late runs that it names."""
        return sum(entry.events for entry in (*self.segments, *self.runs))

    def to_json(self) -> dict[str, Any]:
        """Body for :func:`~chronicle.store.manifest.write_manifest`."""
        return {
            "name": self.name,
            "schema": self.schema.to_json(),
            "options": self.options.to_json(),
            "version": self.version,
            "log": self.log,
            "next_id": self.next_id,
            "segments": [vars(entry) for entry in self.segments],
            "runs": [vars(entry) for entry in self.runs],
            "dropped_events": self.dropped_events,
            "garbage": [list(item) for item in self.garbage],
            "jobs": self.jobs,
            "events": self.events,
            "position": self.position,
            "log_bytes": self.log_bytes,
            **({} if self.owner is None else {"owner": self.owner}),
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> StreamManifest:
        """Read what :meth:`to_json` wrote."""
        return cls(
            body["name"],
            StreamSchema.from_json(body["schema"]),
            StreamOptions.from_json(body["options"]),
            body["version"],
            body["log"],
            body["next_id"],
            tuple(SegmentEntry(**entry) for entry in body["segments"]),
            tuple(SegmentEntry(**entry) for entry in body["runs"]),
            body["dropped_events"],
            tuple((name, version) for name, version in body["garbage"]),
            body["jobs"],
            body.get("events"),
            body.get("position"),
            body.get("log_bytes"),
            body.get("owner"),
        )

    def schema_of(self, columns: int) -> StreamSchema:
        """Schema of a segment that was written when the stream had that many columns."""
        if columns == len(self.schema.attributes):
            return self.schema
        return StreamSchema(pa.schema(list(self.schema.arrow)[:columns]), self.schema.time)
