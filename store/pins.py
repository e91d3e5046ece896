"""Pins: references to one version of a stream, for tasks in other processes.

A ``Pin`` carries the manifest (perhaps with pages) and the log's additions: the late buffer, the
tail, and about 150 bytes per segment, or 60 per page of 256.  ``open_pinned`` gives the same events
everywhere and always, or raises ``SnapshotExpired``.  The pin's lease keeps the files of its
version for ``ttl_seconds``, also when the process that took it ends; without write access to the
directory there is none, and a compaction or retention may end the pin early.

Pins in files ``<stream>/pins/<position>-<random>.pin``, for followers that stop and resume.

The file has JSON: manifest, checkpoint, lease, expiry.  A stored pin can be opened, and its files
stay, until it expires (``KEPT_SECONDS`` after it was made or renewed) or is dropped, or replaced
files exceed the option ``kept_bytes_max``: the writer then drops the oldest pins.  Every follower
makes its own, so nobody drops another's, and needs write access to the stream's directory.

Garbage collection of replaced files that no lease can name; failures are retried later.

When the rest exceeds its space, follower positions are dropped, oldest first; never running readers
and planned reads.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import CorruptStore, SnapshotExpired, StreamNotFound
from ..schema import StreamSchema
from .catalog import StreamManifest, log_name, number_of
from .file_contract import Files, replace_file
from .journal import Journal, RecordKind, encode_checkpoint
from .lock import Lease, ReaderLease, held_leases
from .log import read_log
from .manifest_pages import read_pages
from .recovery import Recovered, leased, load, read_state
from .segment_list import COUNTER_MASK, SegmentList
from .segment_views import ViewSource
from .snapshot import Snapshot, closed

PIN_SECONDS = 6 * 3600.0

ATTEMPTS = 20


@dataclass(frozen=True)
class Pin:
    """A version of a stream; picklable.  ``checkpoint`` is the payload of a CHECKPOINT record."""

    directory: str
    manifest: dict[str, Any]
    checkpoint: bytes
    position: int
    lease: str | None = None

    @property
    def outline(self) -> StreamManifest:
        """The manifest as an object, without segments that are in pages."""
        paged = "pages" in self.manifest
        return StreamManifest.from_json(self.manifest, SegmentList.of(()) if paged else None)


def pin_stream(
    files: Files, directory: str, *, position: int | None = None, ttl_seconds: float = PIN_SECONDS
) -> Pin:
    """Pin the last commit, or an earlier one in its log; ``SnapshotExpired`` if it is not."""
    for _ in range(ATTEMPTS):
        try:
            loaded = load(files, directory)
            lease = leased(files, directory, loaded, ttl_seconds)
        except FileNotFoundError:
            continue  # the writer replaced manifest and log
        try:
            journal = loaded.journal
            if position is not None and position != journal.position:
                journal = _earlier(files, directory, loaded, position)
            manifest = _floored(files, directory, loaded.manifest, journal)
        except FileNotFoundError:
            lease.release()
            continue
        path = lease.path
        lease.detach()
        return Pin(
            directory,
            manifest.to_json(),
            b"".join(bytes(part) for part in encode_checkpoint(journal)),
            journal.position,
            path,
        )
    raise CorruptStore(f"{directory}: the log that the manifest names is missing")


def _floored(
    files: Files, directory: str, manifest: StreamManifest, journal: Journal
) -> StreamManifest:
    """The manifest with the floor of a commit: tasks read only some of its segments."""
    if manifest.options.retention is None:
        return manifest
    source = ViewSource(files, directory, manifest)
    state = read_state(files, directory, manifest, journal, source)
    try:
        return replace(manifest, floor=state.floor)
    finally:
        state.close()


def _earlier(files: Files, directory: str, loaded: Recovered, position: int) -> Journal:
    path = f"{directory}/{log_name(loaded.manifest.log)}"
    records = [(record.kind, record.payload) for record in read_log(files, path).records]
    schema = loaded.manifest.schema
    oldest = Journal.replay(records[:1], schema, path).position
    if not oldest <= position <= loaded.journal.position:
        raise SnapshotExpired(
            f"the stream {loaded.manifest.name!r} can be read as of the commits {oldest} to "
            f"{loaded.journal.position}, found {position}"
        )
    for count in range(1, len(records) + 1):  # almost always one commit per record
        at = min(len(records), position - oldest + count)
        journal = Journal.replay(records[:at], schema, path)
        if journal.position == position:
            return journal
    raise CorruptStore(f"{path} has no record of commit {position}; run `chronicle check`")


def journal_of(pin: Pin) -> Journal:
    schema = StreamSchema.from_json(pin.manifest["schema"])
    records = [(int(RecordKind.CHECKPOINT), memoryview(pin.checkpoint))]
    return Journal.replay(records, schema, pin.directory)


def below_of(pin: Pin) -> int:
    """Upper bound (exclusive) of the counters of a pin's own segments."""
    return Recovered(pin.outline, journal_of(pin), 0, 0, False).below


def catalog_of(files: Files, pin: Pin) -> StreamManifest:
    """The manifest of a pin with all segments; ``SnapshotExpired`` when a page is gone."""
    body = pin.manifest
    if "pages" not in body:
        return StreamManifest.from_json(body)
    try:
        segments = read_pages(files, pin.directory, body["pages"], pin.outline.identity)
    except FileNotFoundError as error:
        raise _expired(pin, error) from None
    return StreamManifest.from_json(body, segments)


def _expired(pin: Pin, error: FileNotFoundError) -> SnapshotExpired:
    return SnapshotExpired(
        f"commit {pin.position} of the stream {pin.manifest['name']!r} is no longer kept: "
        f"{error.filename or error} is gone after a compaction, retention or truncation; plan "
        "the read again (in Spark: load() again)"
    )


def open_pinned(
    files: Files, pin: Pin, start: int | None = None, end: int | None = None
) -> Snapshot:
    """Open a pinned version with at least the events of [start, end), in any process."""
    if not files.exists(pin.directory):
        raise StreamNotFound(f"{pin.directory} is gone: the stream was dropped")
    manifest = catalog_of(files, pin)
    journal = journal_of(pin)

    first, last = closed(start, end)
    segments = manifest.segments
    wanted = replace(
        manifest,
        segments=segments.ordered(segments.within(first, last)),
        runs=tuple(run for run in manifest.runs if run.last >= first and run.first <= last),
    )
    try:
        source = ViewSource(files, pin.directory, wanted)
        if source.eager or not source.keep(ReaderLease.take(files, pin.directory, wanted.version)):
            source.open_all()
        else:
            source.check_there()
        state = read_state(files, pin.directory, wanted, journal, source, pinned=True)
    except FileNotFoundError as error:
        raise _expired(pin, error) from None
    return Snapshot(state)


PINS = "pins"
SUFFIX = ".pin"
KEPT_SECONDS = 7 * 24 * 3600.0


def keep_pin(
    files: Files,
    directory: str,
    *,
    position: int | None = None,
    seconds: float = KEPT_SECONDS,
    clock: Callable[[], float] = time.time,
    suffix: str | None = None,
) -> str:
    """Pin a stream in a file; returns the pin's name."""
    pin = pin_stream(files, directory, position=position, ttl_seconds=seconds)
    name = f"{pin.position}-{suffix or secrets.token_hex(8)}"
    files.make_directory(f"{directory}/{PINS}")
    _write(files, name, pin, clock() + seconds)
    return name


def _path(directory: str, name: str) -> str:
    return f"{directory}/{PINS}/{name}{SUFFIX}"


def _write(files: Files, name: str, pin: Pin, ends: float) -> None:
    document = {
        "manifest": pin.manifest,
        "checkpoint": base64.b64encode(pin.checkpoint).decode("ascii"),
        "position": pin.position,
        "lease": pin.lease,
        "ends": ends,
    }
    path = _path(pin.directory, name)
    replace_file(files, path, json.dumps(document, separators=(",", ":")).encode())


def _read(files: Files, directory: str, name: str) -> tuple[Pin, float]:
    try:
        document = json.loads(files.read(_path(directory, name)))
        pin = Pin(
            directory,
            document["manifest"],
            base64.b64decode(document["checkpoint"]),
            document["position"],
            document["lease"],
        )
        return pin, document["ends"]
    except FileNotFoundError:
        raise SnapshotExpired(
            f"the position {name} of a follower is no longer kept (unused for too long, or "
            "dropped): follow the stream anew, with a new checkpoint"
        ) from None
    except (ValueError, KeyError) as error:
        raise CorruptStore(
            f"{_path(directory, name)} is damaged ({error}); follow the stream anew"
        ) from None


def load_pin(files: Files, directory: str, name: str) -> Pin:
    return _read(files, directory, name)[0]


def renew_pin(
    files: Files,
    directory: str,
    name: str,
    *,
    seconds: float = KEPT_SECONDS,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Extend a pin when more than half of its time is over; returns whether it did."""
    pin, ends = _read(files, directory, name)
    if ends - clock() > seconds / 2:
        return False
    version = int(pin.manifest["version"])
    below = below_of(pin)
    lease = ReaderLease.take(
        files, directory, version, ttl_seconds=seconds, below=below, clock=clock
    )
    path = lease.path
    lease.detach()
    _write(files, name, replace(pin, lease=path), clock() + seconds)
    _remove_lease(files, pin)
    return True


def _remove_lease(files: Files, pin: Pin) -> None:
    if pin.lease is not None:
        with suppress(OSError):
            files.remove(pin.lease)


def drop_pin(files: Files, directory: str, name: str) -> None:
    with suppress(SnapshotExpired, CorruptStore):
        _remove_lease(files, load_pin(files, directory, name))
    with suppress(FileNotFoundError):
        files.remove(_path(directory, name))


def stored_pins(files: Files, directory: str) -> list[str]:
    """Names of a stream's pins, including expired ones that were not swept yet."""
    try:
        names = files.list(f"{directory}/{PINS}")
    except FileNotFoundError:
        return []
    return [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]


def stored_leases(files: Files, directory: str) -> list[tuple[Lease, str]]:
    """Lease and name of each readable pin; oldest version first."""
    leases = []
    for name in stored_pins(files, directory):
        with suppress(SnapshotExpired, CorruptStore):
            pin = load_pin(files, directory, name)
            leases.append((Lease(int(pin.manifest["version"]), below_of(pin)), name))
    return sorted(leases, key=lambda each: each[0].version)


def sweep_pins(
    files: Files, directory: str, *, clock: Callable[[], float] = time.time
) -> list[str]:
    swept = []
    for name in stored_pins(files, directory):
        try:
            ends = _read(files, directory, name)[1]
        except (SnapshotExpired, CorruptStore):
            ends = 0.0
        if ends < clock():
            drop_pin(files, directory, name)
            swept.append(name)
    return swept


logger = logging.getLogger("chronicle.store")

Garbage = tuple[tuple[str, int], ...]
"""File names, each with the first manifest version that does not name it."""


def collect_garbage(
    files: Files, directory: str, garbage: Garbage, bytes_max: int
) -> tuple[Garbage, int]:
    """Remove files that no reader needs; returns the rest, up to ``bytes_max`` bytes, and dropped
    positions.
    """
    garbage, dropped = _unwanted_removed(files, directory, garbage), 0
    if sum(sizes(files, directory, garbage)) <= bytes_max:
        return garbage, dropped
    for lease, name in stored_leases(files, directory):
        if not any(lease.wants(_counter(file), version) for file, version in garbage):
            continue
        drop_pin(files, directory, name)
        dropped += 1
        logger.warning(
            "%s: the position %s of a follower is given up: replaced files took more than the %d "
            "bytes that kept_bytes_max leaves them",
            directory, name, bytes_max,
        )  # fmt: skip
        garbage = _unwanted_removed(files, directory, garbage)
        if sum(sizes(files, directory, garbage)) <= bytes_max:
            break
    return garbage, dropped


def _unwanted_removed(files: Files, directory: str, garbage: Garbage) -> Garbage:
    if not garbage:
        return ()
    try:
        leases = held_leases(files, directory)
    except OSError as error:
        logger.warning("%s: cannot look for readers: %s", directory, error)
        return garbage
    return tuple(
        (file, version)
        for file, version in garbage
        if any(lease.wants(_counter(file), version) for lease in leases)
        or not remove_quietly(files, directory, file)
    )


def _counter(file: str) -> int:
    """Counter of a stream's own segment; 0 for files that every earlier version may need."""
    if not file.endswith(".seg"):
        return 0
    number = number_of(file)
    return number if number <= COUNTER_MASK else 0


def sizes(files: Files, directory: str, garbage: Garbage) -> list[int]:
    lengths = []
    for file, _ in garbage:
        with suppress(FileNotFoundError):  # removed since the manifest was written
            lengths.append(files.size(f"{directory}/{file}"))
    return lengths


def remove_quietly(files: Files, directory: str, file: str) -> bool:
    """Remove a file that nothing names; failures are logged, the next opening retries."""
    try:
        files.remove(f"{directory}/{file}")
    except FileNotFoundError:
        return True
    except OSError as error:
        logger.warning("%s: %s", directory, error)
        return False
    return True
