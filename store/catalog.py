"""The manifest: the file that is replaced atomically in each commit, and names all others.

Guarantee: after a crash the directory has the old manifest or the new one, whole.  When
``write_manifest`` has returned it is the new one, also after a power cut.  ``MANIFEST.tmp`` is part
of a commit that did not happen; the next one removes it.

Layout: one JSON object in UTF-8::

    {"format": "chronicle manifest", "version": 1, "checksum": "<16 hex digits>", "body": {...}}

The version is the minimum that a reader must support, from the body's ``"needs"``: 2 (updates,
renamed or dropped columns), 3 (column defaults, changed types, unique events), 4 (columns of JSON,
lists and structs), 5 (segments in pages, ``manifest_pages``); else 1.  The checksum is the XXH3-64
(seed 0) of the body in canonical form: keys sorted, no white space, non-ASCII escaped.

Limits: rewritten whole each time: for thousands of entries, not millions.  When the final sync of
the directory fails, the new manifest exists but may be lost in a power cut: the writer must assume
neither state, and open the store again.

The body of a stream's manifest.  A stream's directory::

    MANIFEST            the body described by ``StreamManifest``
    00000017.seg        segments, late runs and the active segment, by identifier
    00000009.wal        the log that belongs to this manifest
    00000042.gone       the events that the delete of commit 42 removed
    00000042-0.page     segment entries of version 42, when there are many

Identity: a stream draws a number when it is created, with which identifiers of its segments begin.
Blocks carry their segment's identifier, log checkpoints the number, so a file of another stream is
detected even when it has the same name::

    identifier   | 0: 4 bits | identity of the stream: 28 bits | counter: 32 bits |
    of bulk load | 1 | drawn: 61 bits |           of old releases: the counter alone

Invariants: base segments are in time order, late runs in order of arrival.  A file that neither the
manifest nor the log's extent names is garbage: left by a crash, or kept for a reader.

Each bulk-load job is committed once.  The manifest remembers, in ``jobs``, by name::

    job:<name>          figures of the commit of one of the latest ``JOBS_REMEMBERED`` jobs
    app:<application>   the same of an application's last version, with that version
    truncated           commit position of the last truncation
"""

from __future__ import annotations

import json
import posixpath
import secrets
import urllib.parse
from dataclasses import dataclass, field, replace
from typing import Any

from xxhash import xxh3_64_hexdigest

from ..core.caches import lazy
from ..errors import CorruptStore, InvalidArgument
from ..schema import StreamSchema
from .deletions import RecordedDeletions
from .evolution import Evolution, evolution_of
from .file_contract import Files, check_version, replace_file
from .options import StreamOptions, retention_limits
from .segment_list import COUNTER_BITS, IDENTITY_BITS, SegmentEntry, SegmentList, pages_to_json

MANIFEST = "MANIFEST"
TEMPORARY = "MANIFEST.tmp"
FORMAT = "chronicle manifest"
MANIFEST_VERSION = 5
NEEDED = "needs"
"""Key of a body with the minimum format version, if greater than 1."""


def write_manifest(files: Files, directory: str, document: dict[str, Any]) -> None:
    """Replace a manifest durably and atomically; files that it names must have been synced.
    ``InvalidArgument`` when the document is not exact JSON.  On an error the old one stays, unless
    only the sync of the directory failed.
    """
    content = manifest_content(document)
    temporary = posixpath.join(directory, TEMPORARY)
    path = posixpath.join(directory, MANIFEST)
    replace_file(files, path, content, temporary=temporary)


def manifest_content(document: dict[str, Any]) -> bytes:
    body = _canonical(document)
    text = (
        f'{{"format":"{FORMAT}","version":{document.get(NEEDED, 1)},'
        f'"checksum":"{_checksum(body)}","body":{body}}}\n'
    )
    return text.encode("ascii")


def read_manifest(files: Files, directory: str) -> dict[str, Any] | None:
    """The document of the last commit, if any; ``CorruptStore`` or ``UnsupportedFormat``."""
    path = posixpath.join(directory, MANIFEST)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    try:
        outer = json.loads(data, parse_constant=_no_constant)
    except ValueError as error:
        raise _corrupt(path, f"it is not JSON ({error})") from error
    if not isinstance(outer, dict) or outer.get("format") != FORMAT:
        raise _corrupt(path, f'it does not say "format": "{FORMAT}"')
    version = outer.get("version")
    if type(version) is not int or version < 1:
        raise _corrupt(path, f"its format version is {version!r}")
    check_version(path, version, MANIFEST_VERSION)
    body = outer.get("body")
    if not isinstance(body, dict):
        raise _corrupt(path, "it has no body")
    if version != body.get(NEEDED, 1):
        raise _corrupt(
            path, f"its format version is {version}, its body needs {body.get(NEEDED, 1)}"
        )
    as_written = data[data.find(b'"body":') + 7 : -2]  # canonical, unless edited by hand
    if outer.get("checksum") == xxh3_64_hexdigest(as_written):
        return body
    actual = _checksum(_canonical(body))
    if outer.get("checksum") != actual:
        raise _corrupt(path, f"it says checksum {outer.get('checksum')!r}, its body has {actual!r}")
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _canonical(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a manifest holds JSON values only: {error}") from error


def _checksum(body: str) -> str:
    checksum: str = xxh3_64_hexdigest(body.encode("ascii"))
    return checksum


def _corrupt(path: str, what: str) -> CorruptStore:
    return CorruptStore(
        f"{path} is damaged: {what}; restore it from a backup, or run `chronicle check --repair`"
    )


QUARANTINE = "quarantine"
"""Directory in a stream for damaged files that its state no longer names."""

DROPPED = "\x1f"
"""Prefix of the name of a dropped column that segments still hold."""


def directory_name(stream: str) -> str:
    try:
        return urllib.parse.quote(stream, safe="").replace(".", "%2E")
    except UnicodeEncodeError:
        raise InvalidArgument(f"the name {stream!r} has half of a surrogate pair") from None


def stream_name(directory: str) -> str:
    return urllib.parse.unquote(directory)


def new_identity() -> int:
    """A random identity of a stream, never 0."""
    return secrets.randbelow((1 << IDENTITY_BITS) - 1) + 1


def first_id(identity: int) -> int:
    return identity << COUNTER_BITS | 1


def number_of(file: str) -> int:
    return int(file.split(".", 1)[0])


def log_name(sequence: int) -> str:
    return f"{sequence:08d}.wal"


@dataclass(frozen=True)
class Layout:
    """The columns ``written`` before a rename, drop or type change; ``names`` are current, None if
    dropped.
    """

    written: StreamSchema
    names: tuple[str | None, ...]

    def after(self, old: str, new: str | None) -> Layout:
        """The layout after column ``old`` was renamed to ``new``, or dropped (None)."""
        return Layout(self.written, tuple(new if name == old else name for name in self.names))

    def to_json(self) -> dict[str, Any]:
        return {"written": self.written.to_json(), "names": list(self.names)}


@dataclass(frozen=True)
class ReadAs:
    """How a segment is read: current names, names ``written`` in the file, and their conversion."""

    schema: StreamSchema
    written: StreamSchema
    evolution: Evolution | None


_ALWAYS = ("name", "version", "log", "next_id", "dropped_events", "jobs")
_PERHAPS_NONE = ("events", "position", "log_bytes")
_ABSENT_IF_NONE = ("owner", "renaming", "dropped_before", "floor")
"""Members of a manifest that are stored as they are."""


@dataclass(frozen=True)
class StreamManifest:
    """Body of a stream's manifest, replaced with ``version`` + 1 in each commit that needs it.

    ``log``: sequence number of its log.
    ``next_id``: lowest segment identifier that was never used.
    ``dropped_before``: exclusive upper bound of dropped events' ticks; None if none, or unknown.
    ``floor``: retention hides events before this tick, and perhaps some up to a later one.
    ``layouts``: one for each rename, drop or type change of a column.
    ``renaming``: the stream's new name, valid once the directory has been renamed.
    ``garbage``: files no longer named, each with the first version that does not name it.
    ``jobs``: committed bulk-load jobs, by name.
    ``events``, ``position``: when it was written, for the losses of a repair; None in old releases.
    ``log_bytes``: durable length of the log at a clean close; None otherwise.
    ``owner``: the only one who may change the events: ``live``, the live queries.
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
    deletions: RecordedDeletions = field(default_factory=RecordedDeletions)
    layouts: tuple[Layout, ...] = ()
    renaming: str | None = None
    dropped_before: int | None = None
    floor: int | None = None
    hold: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", SegmentList.of(self.segments))

    @property
    def identity(self) -> int:
        """Prefix of its segment identifiers; 0 in streams of old releases."""
        return self.next_id >> COUNTER_BITS

    @lazy
    def retention_limits(self) -> tuple[int | None, int | None]:
        """Its retention as (ticks, bytes)."""
        return retention_limits(self.options.retention, self.schema)

    @lazy
    def stored_events(self) -> int:
        return int(self.segments.events.sum()) + sum(entry.events for entry in self.runs)

    def to_json(self) -> dict[str, Any]:
        optional = {
            **{name: getattr(self, name) for name in _ABSENT_IF_NONE},
            "layouts": [each.to_json() for each in self.layouts] or None,
            "hold": None if self.hold is None else list(self.hold),
        }
        return {
            **{name: getattr(self, name) for name in (*_ALWAYS, *_PERHAPS_NONE)},
            "schema": self.schema.to_json(),
            "options": self.options.to_json(),
            "runs": [entry.to_json() for entry in self.runs],
            "garbage": [list(item) for item in self.garbage],
            **self._listed(),
            **self._deleted(),
            **{name: value for name, value in optional.items() if value is not None},
            **self._needed(),
        }

    def _listed(self) -> dict[str, Any]:
        if self.segments.pages:
            return {"pages": pages_to_json(self.segments.pages)}
        return {"segments": self.segments.to_json()}

    @classmethod
    def from_json(cls, body: dict[str, Any], segments: SegmentList | None = None) -> StreamManifest:
        """Inverse of ``to_json``; ``segments`` are those in the pages, if it names pages."""
        members: dict[str, Any] = {name: body[name] for name in _ALWAYS}
        members |= {name: body.get(name) for name in (*_PERHAPS_NONE, *_ABSENT_IF_NONE)}
        return cls(
            schema=StreamSchema.from_json(body["schema"]),
            options=StreamOptions.from_json(body["options"]),
            segments=SegmentList.from_json(body["segments"]) if segments is None else segments,
            runs=tuple(SegmentEntry(**entry) for entry in body["runs"]),
            garbage=tuple((name, version) for name, version in body["garbage"]),
            deleted_events=body.get("deleted_events", 0),
            deletions=RecordedDeletions.from_json(body.get("deletions")),
            layouts=tuple(
                Layout(StreamSchema.from_json(each["written"]), tuple(each["names"]))
                for each in body.get("layouts", ())
            ),
            hold=tuple(body["hold"]) if body.get("hold") else None,
            **members,
        )

    def dropping(self, events: int, before: int) -> StreamManifest:
        """The manifest after retention removed ``events`` more, all before a tick."""
        if not events:
            return self
        bound = before if self.dropped_before is None else max(before, self.dropped_before)
        return replace(self, dropped_events=self.dropped_events + events, dropped_before=bound)

    def _needed(self) -> dict[str, int]:
        """The format version that a reader must support, where it is not the first."""
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
        if not self.deletions.newest:
            return {}
        return {"deleted_events": self.deleted_events, "deletions": self.deletions.to_json()}

    def written_as(self, entry: SegmentEntry) -> StreamSchema:
        """A segment's schema with the names in the file."""
        schema = self.schema
        if entry.layout < len(self.layouts):
            schema = self.layouts[entry.layout].written
        if entry.columns == len(schema.attributes):
            return schema
        return schema.head(entry.columns)

    def read_as(self, entry: SegmentEntry) -> ReadAs:
        key = entry.columns, entry.layout
        reading = self._readings.get(key)
        if reading is None:
            schema = self.schema_of(entry)
            evolution = evolution_of(schema, self.schema)
            reading = self._readings[key] = ReadAs(schema, self.written_as(entry), evolution)
        return reading

    @lazy
    def _readings(self) -> dict[tuple[int, int], ReadAs]:
        return {}

    def schema_of(self, entry: SegmentEntry) -> StreamSchema:
        """A segment's schema with current names; dropped columns get unused names."""
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
        if entry.layout == len(self.layouts):
            return False
        return None in self.layouts[entry.layout].names[: entry.columns]


JOBS_REMEMBERED = 256


@dataclass(frozen=True)
class BulkCommit:
    """Result of a commit of staged segments: ``events`` of which ``late`` went to ``runs``, and
    base ``segments``, at a commit ``position``.  ``repeated``: the figures of an earlier commit of
    the job.  ``duplicates`` were left out.
    """

    events: int
    late: int
    segments: int
    runs: int
    position: int
    repeated: bool = False
    duplicates: int = 0


def committed(
    jobs: dict[str, Any], job: str, application: str | None = None, version: int | None = None
) -> BulkCommit | None:
    """The earlier commit of a job or of an application's version; None without one."""
    record = jobs.get(f"job:{job}")
    if record is None and application is not None and version is not None:
        last = jobs.get(f"app:{application}")
        if last is not None and last["version"] >= version:
            record = last
    if record is None:
        return None
    figures = {name: value for name, value in record.items() if name != "version"}
    return BulkCommit(**figures, repeated=True)


def truncated_at(jobs: dict[str, Any]) -> int:
    """Commit position of a stream's last truncation; 0 without one."""
    return int(jobs.get("truncated", {"position": 0})["position"])


def remembered(
    jobs: dict[str, Any], job: str, result: BulkCommit, application: str | None, version: int | None
) -> dict[str, Any]:
    record = {name: figure for name, figure in vars(result).items() if name != "repeated"}
    if not result.duplicates:
        del record["duplicates"]
    records = dict(jobs)
    if application is not None and version is not None:
        records[f"app:{application}"] = {**record, "version": version}
    records[f"job:{job}"] = record
    names = sorted(
        (name for name in records if name.startswith("job:")),
        key=lambda name: records[name]["position"],
    )
    for name in names[:-JOBS_REMEMBERED]:
        del records[name]
    return records
