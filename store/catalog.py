"""What a stream's manifest says.

Purpose
    The list of files that make up a stream, with what is worth knowing about each without opening
    it. The envelope (version, checksum, atomic replacement) is :mod:`~chronicle.store.manifest`'s.

Layout
    A stream's directory::

        MANIFEST            the body described by :class:`StreamManifest`
        00000017.seg        segments, late runs and the active segment, by identifier
        00000009.wal        the log that belongs to this manifest
        00000042.gone       which events the delete of commit 42 took out
        00000042-0.page     what version 42 says of segments, where they are many

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
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.caches import lazy
from ..schema import StreamSchema
from .deletions import KnownDeletions
from .evolution import Evolution, evolution_of
from .manifest import NEEDED
from .options import StreamOptions
from .segment_list import (
    COUNTER_BITS,
    COUNTER_MASK,
    IDENTITY_BITS,
    SegmentEntry,
    SegmentList,
    pages_to_json,
    segment_name,
)

__all__ = [
    "COUNTER_BITS",
    "COUNTER_MASK",
    "QUARANTINE",
    "Layout",
    "ReadAs",
    "SegmentEntry",
    "SegmentList",
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

DROPPED = "\x1f"
"""Begins what a dropped column is called, where segments still hold it."""


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


def number_of(file: str) -> int:
    """The number in a segment's or log's file name."""
    return int(file.split(".", 1)[0])


def log_name(sequence: int) -> str:
    """File name of a log."""
    return f"{sequence:08d}.wal"


@dataclass(frozen=True)
class Layout:
    """The columns that a stream had until one was renamed, dropped, or given another type.

    Segments from before hold them still; what these are called now says which of them are read,
    and as what.

    Attributes
    ----------
    written : StreamSchema
        As they were.
    names : tuple of str or None
        What each is called now; None when it was dropped.
    """

    written: StreamSchema
    names: tuple[str | None, ...]

    def after(self, old: str, new: str | None) -> Layout:
        """When a column that is called ``old`` now is called ``new``, or dropped."""
        return Layout(self.written, tuple(new if name == old else name for name in self.names))

    def to_json(self) -> dict[str, Any]:
        """A form for manifests."""
        return {"written": self.written.to_json(), "names": list(self.names)}


@dataclass(frozen=True)
class ReadAs:
    """How a segment is read.

    Attributes
    ----------
    schema : StreamSchema
        Its columns, under the names of today.
    written : StreamSchema
        The same under the names that they had.
    evolution : Evolution or None
        What makes columns of today's of them, where these are others.
    """

    schema: StreamSchema
    written: StreamSchema
    evolution: Evolution | None


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
    dropped_before : int or None
        All of these were older than this tick; None where none were, or nobody has said.
    floor : int or None
        Retention shows no event before this tick, and perhaps none up to a later one
        (:mod:`.floor`).
    hold : (int, int) or None
        What it has to leave, as of this version, see :class:`~.retention.Hold`.
    deleted_events : int
        Events removed by deletes.
    deletions : KnownDeletions
        The latest of these, and of updates.
    layouts : tuple of Layout
        One for each time that a column was renamed, dropped, or given another type.
    segments : SegmentList
        Base segments, with the pages that they are in (:mod:`.manifest_pages`), if they are.
    renaming : str or None
        The name that the stream is about to have: it has it when its directory says so.
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
    segments: SegmentList = field(default_factory=lambda: SegmentList.of(()))
    runs: tuple[SegmentEntry, ...] = ()
    dropped_events: int = 0
    garbage: tuple[tuple[str, int], ...] = ()
    jobs: dict[str, Any] = field(default_factory=dict)
    events: int | None = None
    position: int | None = None
    log_bytes: int | None = None
    owner: str | None = None
    deleted_events: int = 0
    deletions: KnownDeletions = field(default_factory=KnownDeletions)
    layouts: tuple[Layout, ...] = ()
    renaming: str | None = None
    dropped_before: int | None = None
    floor: int | None = None
    hold: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", SegmentList.of(self.segments))

    @property
    def identity(self) -> int:
        """What the identifiers of its segments begin with; 0 in streams of old releases."""
        return self.next_id >> COUNTER_BITS

    @property
    def stored_events(self) -> int:
        """Events in the segments and late runs that it names."""
        return int(self.segments.events.sum()) + sum(entry.events for entry in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Body for :func:`~chronicle.store.manifest.write_manifest`."""
        return {
            "name": self.name,
            "schema": self.schema.to_json(),
            "options": self.options.to_json(),
            "version": self.version,
            "log": self.log,
            "next_id": self.next_id,
            **self._listed(),
            "runs": [entry.to_json() for entry in self.runs],
            "dropped_events": self.dropped_events,
            "garbage": [list(item) for item in self.garbage],
            "jobs": self.jobs,
            "events": self.events,
            "position": self.position,
            "log_bytes": self.log_bytes,
            **({} if self.owner is None else {"owner": self.owner}),
            **self._deleted(),
            **({"layouts": [each.to_json() for each in self.layouts]} if self.layouts else {}),
            **({} if self.renaming is None else {"renaming": self.renaming}),
            **({} if self.dropped_before is None else {"dropped_before": self.dropped_before}),
            **({} if self.floor is None else {"floor": self.floor}),
            **({} if self.hold is None else {"hold": list(self.hold)}),
            **self._needed(),
        }

    def _listed(self) -> dict[str, Any]:
        """The segments, or the pages that they are in."""
        if self.segments.pages:
            return {"pages": pages_to_json(self.segments.pages)}
        return {"segments": self.segments.to_json()}

    @classmethod
    def from_json(cls, body: dict[str, Any], segments: SegmentList | None = None) -> StreamManifest:
        """Read what :meth:`to_json` wrote.

        Parameters
        ----------
        segments : SegmentList, optional
            Those in the pages, where it names pages.
        """
        return cls(
            body["name"],
            StreamSchema.from_json(body["schema"]),
            StreamOptions.from_json(body["options"]),
            body["version"],
            body["log"],
            body["next_id"],
            SegmentList.from_json(body["segments"]) if segments is None else segments,
            tuple(SegmentEntry(**entry) for entry in body["runs"]),
            body["dropped_events"],
            tuple((name, version) for name, version in body["garbage"]),
            body["jobs"],
            body.get("events"),
            body.get("position"),
            body.get("log_bytes"),
            body.get("owner"),
            body.get("deleted_events", 0),
            KnownDeletions.from_json(body.get("deletions")),
            tuple(
                Layout(StreamSchema.from_json(each["written"]), tuple(each["names"]))
                for each in body.get("layouts", ())
            ),
            body.get("renaming"),
            body.get("dropped_before"),
            body.get("floor"),
            tuple(body["hold"]) if body.get("hold") else None,
        )

    def dropping(self, events: int, before: int) -> StreamManifest:
        """When retention has removed so many events more, all older than a tick."""
        if not events:
            return self
        bound = before if self.dropped_before is None else max(before, self.dropped_before)
        return replace(self, dropped_events=self.dropped_events + events, dropped_before=bound)

    def _needed(self) -> dict[str, int]:
        """The version that whoever opens the stream has to know, where it is not the first."""
        widened = any(
            layout.written.attribute(was).type != self.schema.attribute(now).type
            for layout in self.layouts
            for was, now in zip(layout.written.names, layout.names, strict=True)
            if now is not None
        )
        if self.segments.pages:
            return {NEEDED: 5}
        if not all(attribute.comparable for attribute in self.schema.attributes):
            return {NEEDED: 4}
        if widened or self.schema.defaults or self.options.unique is not None:
            return {NEEDED: 3}
        return {NEEDED: 2} if self.layouts or self.deletions.has_updates else {}

    def _deleted(self) -> dict[str, Any]:
        """What is told of deletes and updates, where there were any."""
        if not self.deletions.newest:
            return {}
        return {"deleted_events": self.deleted_events, "deletions": self.deletions.to_json()}

    def written_as(self, entry: SegmentEntry) -> StreamSchema:
        """The columns of a segment, as they were called when it was written."""
        schema = self.schema
        if entry.layout < len(self.layouts):
            schema = self.layouts[entry.layout].written
        if entry.columns == len(schema.attributes):
            return schema
        return schema.head(entry.columns)

    def read_as(self, entry: SegmentEntry) -> ReadAs:
        """How a segment is read today."""
        key = entry.columns, entry.layout
        known = self._readings.get(key)
        if known is None:
            schema = self.schema_of(entry)
            evolution = evolution_of(schema, self.schema)
            known = self._readings[key] = ReadAs(schema, self.written_as(entry), evolution)
        return known

    @lazy
    def _readings(self) -> dict[tuple[int, int], ReadAs]:
        """What :meth:`read_as` has found: the same for all segments of one time."""
        return {}

    def schema_of(self, entry: SegmentEntry) -> StreamSchema:
        """The columns of a segment, as they are called now; a dropped one has no name of theirs."""
        written = self.written_as(entry)
        if entry.layout == len(self.layouts):
            return written
        hidden = DROPPED
        while any(name.startswith(hidden) for name in self.schema.names):
            hidden += DROPPED
        now = self.layouts[entry.layout].names[: entry.columns]
        return written.renamed(
            [f"{hidden}{i}" if name is None else name for i, name in enumerate(now)]
        )

    def holds_dropped(self, entry: SegmentEntry) -> bool:
        """Whether a segment holds values of a column that was dropped."""
        if entry.layout == len(self.layouts):
            return False
        return None in self.layouts[entry.layout].names[: entry.columns]
