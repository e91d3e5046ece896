"""Moving: old sealed segments go to objects, and stubs with their nodes stay.

Order::

    NNN.seg.moving, durable | put the object | read it back, compare | put the stub beside it
    | NNN.seg.moving becomes NNN.seg.cold, durable | remove NNN.seg

A segment can be read at any moment.  A ``moving`` stub names the object of an interrupted move: the
next move removes it.  The last two steps hold the stream's lock, and happen only if the manifest
still names the segment; the others run beside all changes, and stop when one replaces the segment.
No commit is made: a segment's location is not part of the stream's state.

Beside each object is its stub, and beside those of a stream its manifest as of the last move, for a
restore: first its new pages, under names with checksums, then the manifest; then old pages are
removed.

Throttling: it rests while the processors are busy, unless the free disk space is less than what is
left to move.

Limits: late runs, the active segment and secondary indexes stay on disk.  Rewriting a cold segment
reads it whole, and its output is on disk until it is moved.

Pace: ``Pace`` is called between two pieces of background work.  While the other threads of the
process leave less than ``spare`` processors idle, it rests ``REST_FACTOR`` times as long as the
work has computed: one tenth of a processor is left to the work.  A rest takes at most
``REST_SECONDS_MAX``; overdue work does not rest.  Other processes are not considered.

Tiering: which segments of a stream are due to move to objects ::

    in objects             on the disk
    |======|======|======| |======|======|===| active |
                          ^ due: older than newest - move_after, or keep_local_bytes exceeded

Age counts from the newest event of the stream.  Late runs and the active segment stay.  The active
segment is sealed when it spans a quarter of the age and has ``StreamOptions.moved_bytes_min``, and
at an eighth of ``keep_local_bytes``, but not below that minimum, which avoids small objects.

``figures_of`` gives the statistics of a stream that is open for writing, for users and metrics.

The mover: a thread of the store's writer that moves due segments to objects.

It checks every stream each ``LOOK_SECONDS``, moves segments one by one, and removes unused objects.
A failure changes nothing: it is logged, shown by ``Mover.status``, and retried after
``RETRY_SECONDS``, doubled each time, up to ``RETRY_SECONDS_MAX``.  The retry begins with the next
stream, so one failing stream does not block the others.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from math import exp
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xxhash

from ..core.threads import Repeated, processors
from ..errors import ChronicleError, InvalidArgument, StorageFailed, StoreClosed
from .catalog import MANIFEST, StreamManifest, manifest_content
from .cold_file import DOOMED, MOVING, SUFFIX, ColdFiles, ColdStub, cold_segments, pages_of, purge
from .commits import Commits
from .file_contract import ReadFile, replace_file
from .files import Range
from .layout import BLOCK_FRAME, FILE_HEADER, FOOTER, ROW_COUNT, ROW_LENGTH, ROW_OFFSET
from .manifest_pages import PAGES, page_key
from .object_store import ObjectStore
from .options import moving_ticks
from .pins import sizes
from .progress import each
from .segment import TICK_MIN, SegmentView
from .segment_list import SegmentEntry
from .snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .stream import EventStream

REST_FACTOR = 9
REST_SECONDS_MAX = 0.5
BUSY_SECONDS = 0.05
BUSY_MIN = 0.25
"""A load of others below this is ignored, also with a single processor."""


class Pace:
    """Throttles work; ``wait`` sleeps, or ends with it; ``spare`` are idle processors."""

    def __init__(self, wait: Callable[[float], object], spare: float) -> None:
        self._wait = wait
        self._spare = spare
        self._thread = threading.current_thread()
        self._wall, self._all, self._own = self._clocks()
        self._busy = 0.0

    @staticmethod
    def _clocks() -> tuple[float, float, float]:
        """Wall time, processor time of all threads, and of this one, in seconds."""
        return time.perf_counter(), time.process_time(), time.thread_time()

    def __call__(self, overdue: Callable[[], bool]) -> None:
        """Rest, if the processors are busy and the work is not overdue."""
        thread = threading.current_thread()  # thread ids are reused
        wall, everybody, own = self._clocks()
        passed = max(wall - self._wall, 1e-6)
        computed = own - self._own if thread is self._thread else 0.0
        others = everybody - self._all - computed
        self._busy += (1 - exp(-passed / BUSY_SECONDS)) * (others / passed - self._busy)
        self._thread, self._wall, self._all, self._own = thread, wall, everybody, own
        if self._busy > max(processors() - self._spare, BUSY_MIN) and not overdue():
            self._wait(min(REST_FACTOR * computed, REST_SECONDS_MAX))


PIECE_BYTES = 1 << 20

KEPT_SHARE = 16
"""Leaf heads, and dictionaries, are cached in the stub if they take at most 1/16 of a segment."""

Stopped = Callable[[], bool]


def never() -> bool:
    return False


_Piece = TypeVar("_Piece")


class _Ended(Exception):
    """The move of a segment must stop."""


@dataclass(frozen=True)
class Moved:
    segments: int
    bytes: int


def move_segments(
    commits: Commits,
    store: ObjectStore,
    owner: str,
    before: int | None,
    stopped: Stopped,
    pace: Pace,
) -> Moved:
    """Move the local segments that end before a tick, by default those that are due; the caller
    excludes other moves.  Errors keep what has moved.
    """
    files = commits.files
    if not isinstance(files, ColdFiles):
        raise InvalidArgument("this store cannot move segments: its files are not on a disk")
    with commits.lock:
        commits.check_writable()
        if not commits.manifest.identity:  # from an old release
            commits.renew_log()
        place = f"{owner}/{commits.manifest.identity:07x}"
        segments = commits.manifest.segments
        entries = _due(commits) if before is None else segments.where(segments.lasts < before)
    purge(files.inner, commits.directory, (DOOMED, MOVING))
    count = moved = 0
    left = sum(entry.bytes for entry in entries)

    def wanted(entry: SegmentEntry) -> None:
        pace(lambda: files.free_bytes() < left)
        if stopped() or entry.id not in commits.views:
            raise _Ended

    for entry in each(entries):
        if stopped():
            break
        if files.is_cold(commits.path(entry.file)):
            left -= entry.bytes
            continue
        if _move(commits, files, store, place, entry, partial(wanted, entry)):
            count, moved, left = count + 1, moved + entry.bytes, left - entry.bytes
        else:
            purge(files.inner, commits.directory, (MOVING,))
    with commits.lock:
        manifest = commits.manifest
    if manifest.version != commits.stored_version and cold_segments(files, commits.directory):
        try:
            _publish(store, place, manifest, lambda page: files.read(commits.path(page)))
        except FileNotFoundError:  # a page: the manifest was replaced; the next move puts it
            return Moved(count, moved)
        commits.note_reported(manifest.version)
    return Moved(count, moved)


def _publish(
    store: ObjectStore, place: str, manifest: StreamManifest, read: Callable[[str], bytes]
) -> None:
    """Put a stream's manifest and its new pages beside its objects."""
    named = {page_key(place, page): page for page in manifest.segments.pages}
    there = set(store.list(f"{place}/{PAGES}/"))
    for key, page in named.items():
        if key not in there:
            store.put(key, [read(page.file)])
    store.put(f"{place}/{MANIFEST}", [manifest_content(manifest.to_json())])
    for key in there.difference(named):  # of the previous manifest, or of an interrupted move
        store.remove(key)


def _move(
    commits: Commits,
    files: ColdFiles,
    store: ObjectStore,
    place: str,
    entry: SegmentEntry,
    wanted: Callable[[], None],
) -> bool:
    path = commits.path(entry.file)
    moving = path + MOVING
    view = commits.views.get(entry.id)
    if view is None:
        return False
    try:
        if not files.inner.exists(path + SUFFIX):  # else a crash left only the last step
            _copy(files, store, place, path, entry, _parts(view), wanted)
    except _Ended:
        return False
    except FileNotFoundError:
        if entry.id in commits.views:
            raise
        return False  # replaced meanwhile
    with commits.lock:
        commits.check_writable()
        if entry not in commits.manifest.segments:
            return False  # replaced meanwhile
        if files.inner.exists(moving):
            files.inner.replace(moving, path + SUFFIX)
            files.sync_directory(commits.directory)
        files.inner.remove(path)
        files.sync_directory(commits.directory)
        view = commits.views.cached(entry.id)  # the current view: columns may have changed
        if view is not None:
            view.file.reopen()
        commits.count(moved_segments=1, moved_bytes=entry.bytes)
    return True


def _copy(
    files: ColdFiles,
    store: ObjectStore,
    place: str,
    path: str,
    entry: SegmentEntry,
    parts: tuple[list[Range], list[Range]],
    wanted: Callable[[], None],
) -> None:

    def each_of(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
        for piece in pieces:
            wanted()
            yield piece

    def read_from(file: ReadFile) -> Iterator[bytes | memoryview]:
        return (file.read(*piece) for piece in each_of(_pieces(entry.bytes)))

    key = f"{place}/{entry.file.removesuffix('.seg')}-{secrets.token_hex(8)}.seg"
    nodes, leaves = parts
    ranges, heads = pages_of(nodes, entry.bytes), pages_of(leaves, entry.bytes)
    if sum(length for _, length in heads) > entry.bytes // KEPT_SHARE:
        heads = ()
    with files.inner.open(path) as file:
        digest = _digest(read_from(file))
        copies, stored_heads = (
            b"".join(bytes(file.read(at, length)) for at, length in some)
            for some in (ranges, heads)
        )
        fresh = ColdStub(
            store.url, key, entry.bytes, digest, ranges, xxhash.xxh3_64_hexdigest(copies),
            heads, xxhash.xxh3_64_hexdigest(stored_heads),
        )  # fmt: skip
        stub = fresh.to_bytes(copies, stored_heads)
        replace_file(files.inner, path + MOVING, stub)
        store.put(key, read_from(file))
    read_back = _digest(each_of(store.contents(key, entry.bytes)))
    if read_back != digest:
        raise StorageFailed(
            f"{store.describe(key)} does not read back as it was written ({read_back}, "
            f"expected {digest}): {path} stays where it is; look at the place of the "
            "objects"
        )
    store.put(key + SUFFIX, [stub])


def _parts(view: SegmentView) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    file = view.file
    heads: list[tuple[int, int]] = []
    ranges = [(0, FILE_HEADER.size), (view.length - FOOTER.size, FOOTER.size)]

    def below(level: int, table: np.ndarray) -> None:
        if level == 1:
            places = table[[ROW_OFFSET, ROW_LENGTH, ROW_COUNT]].T.tolist()
            heads.extend((at, file.head_limit(events, length)) for at, length, events in places)
            return
        for offset, length in zip(
            table[ROW_OFFSET].tolist(), table[ROW_LENGTH].tolist(), strict=True
        ):
            ranges.append((offset, length))
            below(level - 1, file.node(offset, length))

    for level, table in view.fragments:
        below(level, table)
    dictionaries = []
    for offset in {at for pages in view.pages.values() for at in pages}:
        frame = BLOCK_FRAME.unpack_from(file.block(offset, BLOCK_FRAME.size), offset)
        dictionaries.append((offset, int(frame[6])))
    if sum(length for _, length in dictionaries) <= view.length // KEPT_SHARE:
        ranges += dictionaries
    at = FOOTER.unpack(bytes(file.block(*ranges[1])[view.length - FOOTER.size : view.length]))[7]
    return [*ranges, (at, view.length - at)], heads


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    for at in range(0, length, PIECE_BYTES):
        yield at, min(PIECE_BYTES, length - at)


def _digest(pieces: Iterable[Buffer]) -> str:
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def due_segments(
    manifest: StreamManifest, newest: int | None, cold: Set[str]
) -> list[SegmentEntry]:
    """The segments to move now, oldest first; ``cold`` ones have moved."""
    age = moving_ticks(manifest.options, manifest.schema)
    size = manifest.options.local_bytes
    if age is None and size is None:
        return []
    local = [entry for entry in manifest.segments if entry.file not in cold]
    bound = TICK_MIN if age is None or newest is None else newest - age
    taken = sum(entry.bytes for entry in (*local, *manifest.runs))
    due = []
    for entry in local:
        if entry.last < bound or (size is not None and taken > size):
            due.append(entry)
            taken -= entry.bytes
    return due


def _due(commits: Commits) -> list[SegmentEntry]:
    cold = cold_segments(commits.files, commits.directory)
    return due_segments(commits.manifest, commits.journal.last, cold)


def worth_moving(commits: Commits) -> bool:
    """Whether the active segment is large enough to seal it for moving; the lock is held."""
    active = commits.active
    return active is not None and active.writer.length >= commits.options.moved_bytes_min


def places(commits: Commits) -> dict[str, int]:
    """Numbers and bytes of cold and due segments, for ``stats``; the lock is held."""
    cold = cold_segments(commits.files, commits.directory)
    moved = [entry for entry in commits.manifest.segments if entry.file in cold] if cold else []
    due = _due(commits)
    return {
        "cold_segments": len(moved),
        "cold_bytes": sum(entry.bytes for entry in moved),
        "due_segments": len(due),
        "due_bytes": sum(entry.bytes for entry in due),
    }


def figures_of(commits: Commits) -> dict[str, Any]:
    manifest, journal = commits.manifest, commits.journal
    snapshot = Snapshot(commits.published)
    active = 0 if commits.active is None else commits.active.writer.length
    stored = int(manifest.segments.bytes.sum()) + sum(entry.bytes for entry in manifest.runs)
    garbage = sizes(commits.files, commits.directory, manifest.garbage)
    return {
        "events": snapshot.count,
        "position": snapshot.version,
        "segments": len(manifest.segments) + (commits.active is not None),
        "late_runs": len(manifest.runs),
        "late_buffered": journal.late_rows,
        "late_total": journal.late_total,
        "tail_events": journal.tail.rows,
        "dropped_events": snapshot.state.dropped,
        "deleted_events": manifest.deleted_events,
        "bytes": stored + active + commits.log.size,
        "log_bytes": commits.log.size,
        "log_records": commits.log.records,
        "late_events_in_runs": sum(entry.events for entry in manifest.runs),
        "garbage_files": len(garbage),
        "garbage_bytes": sum(garbage),
        "manifest_version": manifest.version,
        "dirty_ranges": snapshot.dirty_ranges(),
        **places(commits),
        **commits.figures,
    }


logger = logging.getLogger("chronicle.store")

LOOK_SECONDS = 5.0
RETRY_SECONDS = 5.0
RETRY_SECONDS_MAX = 300.0


def move_due(stream: EventStream, to: ObjectStore, owner: str, stopped: Stopped = never) -> Moved:
    """Move a stream's due segments, and remove unused objects; no requests without work."""
    commits, files = stream.commits, stream.files
    if not isinstance(files, ColdFiles):
        return Moved(0, 0)
    names = files.inner.list(commits.directory)
    with commits.lock:
        refuses = commits.closed or commits.failed is not None
        due = not refuses and (
            any(name.endswith((DOOMED, MOVING)) for name in names) or bool(_due(commits))
        )
    return stream.move(to, owner, None, stopped) if due else Moved(0, 0)


class Mover(Repeated):
    """Moves due segments until stopped; ``stream`` returns None if one cannot be opened."""

    def __init__(
        self,
        streams: Callable[[], list[str]],
        stream: Callable[[str], EventStream | None],
        objects: ObjectStore,
        owner: str,
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._owner = owner
        self.objects = objects
        self._failures = 0
        self._failed_total = 0
        self._error: str | None = None
        self._failing_since: float | None = None
        self._next_try: float | None = None
        self._first = ""
        super().__init__(self._look, self._until_next, "chronicle-mover")

    def status(self) -> dict[str, Any]:
        """Address, ``"waiting"`` or ``"failing"``, error, failures, seconds to the next attempt."""
        next_try = self._next_try
        return {
            "objects": self.objects.url.partition("?")[0],
            "state": "failing" if self._failures else "waiting",
            "error": self._error,
            "failing_since": self._failing_since,
            "failures": self._failures,
            "failed_total": self._failed_total,
            "next_try_s": None if next_try is None else max(0.0, next_try - time.monotonic()),
        }

    def _look(self) -> None:
        try:
            self._round()
        except StoreClosed:
            self.stopped.set()
        except (ChronicleError, OSError) as error:
            logger.warning("streams cannot be looked at for what is to move: %s", error)
        except Exception:
            logger.exception("what is due to move was not looked at")

    def _until_next(self) -> float:
        if not self._failures:
            self._next_try = None
            return LOOK_SECONDS
        seconds = min(RETRY_SECONDS * (1 << min(self._failures - 1, 30)), RETRY_SECONDS_MAX)
        self._next_try = time.monotonic() + seconds
        return seconds

    def _round(self) -> None:
        names = sorted(self._streams())
        at = sum(name < self._first for name in names)
        for name in names[at:] + names[:at]:
            if self.stopped.is_set():
                return
            try:
                stream = self._stream(name)
                if stream is None:
                    continue
                done = move_due(stream, self.objects, self._owner, self.stopped.is_set)
            except StoreClosed:
                continue  # just dropped, renamed or repaired
            except (ChronicleError, OSError) as error:
                self._fail(name, error)
                return
            if done.segments:
                logger.info(
                    "%s: %d segments, %d bytes moved to objects", name, done.segments, done.bytes
                )
        if self._failures:
            logger.info("moving to objects works again")
        self._failures, self._error, self._failing_since = 0, None, None

    def _fail(self, name: str, error: BaseException) -> None:
        if self._failing_since is None:
            self._failing_since = time.time()
        self._failures += 1
        self._failed_total += 1
        self._error = f"{name}: {error}"
        self._first = name + "\0"  # the one behind it
        logger.warning("%s: segments cannot move to objects: %s", name, error)
