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
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import xxhash

from ..core.threads import processors
from ..errors import InvalidArgument, StorageFailed
from .catalog import StreamManifest
from .cold_file import DOOMED, MOVING, SUFFIX, ColdFiles, ColdStub, pages_of, purge
from .commits import Commits
from .file_contract import ReadFile, replace_file
from .files import Range
from .layout import BLOCK_FRAME, FILE_HEADER, FOOTER, ROW_COUNT, ROW_LENGTH, ROW_OFFSET
from .manifest import MANIFEST, manifest_content
from .manifest_pages import PAGES, page_key
from .object_store import ObjectStore
from .progress import each
from .segment import SegmentView
from .segment_list import SegmentEntry

if TYPE_CHECKING:
    from typing_extensions import Buffer

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

Chosen = Callable[[StreamManifest, int | None], Sequence[SegmentEntry]]
"""From a manifest and the newest in-order tick: the segments to move."""


Stopped = Callable[[], bool]


def never() -> bool:
    return False


def ending_before(tick: int) -> Chosen:

    def chosen(manifest: StreamManifest, newest: int | None) -> Sequence[SegmentEntry]:
        del newest
        return manifest.segments.where(manifest.segments.lasts < tick)

    return chosen


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
    chosen: Chosen,
    stopped: Stopped,
    pace: Pace,
) -> Moved:
    """Move chosen local segments; the caller excludes other moves.  Errors keep what has moved."""
    files = commits.files
    if not isinstance(files, ColdFiles):
        raise InvalidArgument("this store cannot move segments: its files are not on a disk")
    with commits.lock:
        commits.check_writable()
        if not commits.manifest.identity:  # from an old release
            commits.renew_log()
        place = f"{owner}/{commits.manifest.identity:07x}"
        entries = chosen(commits.manifest, commits.journal.last)
    purge(files.inner, commits.directory, (DOOMED, MOVING))
    segments = moved = 0
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
            segments, moved, left = segments + 1, moved + entry.bytes, left - entry.bytes
        else:
            purge(files.inner, commits.directory, (MOVING,))
    with commits.lock:
        manifest = commits.manifest
    if manifest.version != commits.told and files.cold(commits.directory):
        try:
            _tell(store, place, manifest, lambda page: files.read(commits.path(page)))
        except FileNotFoundError:  # a page: the manifest was replaced; the next move puts it
            return Moved(segments, moved)
        commits.note_told(manifest.version)
    return Moved(segments, moved)


def _tell(
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
        view = commits.views.known(entry.id)  # the current view: columns may have changed
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
        kept, stored_heads = (
            b"".join(bytes(file.read(at, length)) for at, length in some)
            for some in (ranges, heads)
        )
        told = ColdStub(
            store.url, key, entry.bytes, digest, ranges, xxhash.xxh3_64_hexdigest(kept),
            heads, xxhash.xxh3_64_hexdigest(stored_heads),
        )  # fmt: skip
        stub = told.to_bytes(kept, stored_heads)
        replace_file(files.inner, path + MOVING, stub)
        store.put(key, read_from(file))
    found = _digest(each_of(store.contents(key, entry.bytes)))
    if found != digest:
        raise StorageFailed(
            f"{store.describe(key)} does not read back as it was written ({found}, "
            f"expected {digest}): {path} stays where it is; look at the place of the "
            "objects"
        )
    store.put(key + SUFFIX, [stub])


def _parts(view: SegmentView) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    file = view.file
    heads: list[tuple[int, int]] = []
    found = [(0, FILE_HEADER.size), (view.length - FOOTER.size, FOOTER.size)]

    def below(level: int, table: np.ndarray) -> None:
        if level == 1:
            places = table[[ROW_OFFSET, ROW_LENGTH, ROW_COUNT]].T.tolist()
            heads.extend((at, file.head_limit(events, length)) for at, length, events in places)
            return
        for offset, length in zip(
            table[ROW_OFFSET].tolist(), table[ROW_LENGTH].tolist(), strict=True
        ):
            found.append((offset, length))
            below(level - 1, file.node(offset, length))

    for level, table in view.fragments:
        below(level, table)
    dictionaries = []
    for offset in {at for pages in view.pages.values() for at in pages}:
        frame = BLOCK_FRAME.unpack_from(file.block(offset, BLOCK_FRAME.size), offset)
        dictionaries.append((offset, int(frame[6])))
    if sum(length for _, length in dictionaries) <= view.length // KEPT_SHARE:
        found += dictionaries
    at = FOOTER.unpack(bytes(file.block(*found[1])[view.length - FOOTER.size : view.length]))[7]
    return [*found, (at, view.length - at)], heads


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    for at in range(0, length, PIECE_BYTES):
        yield at, min(PIECE_BYTES, length - at)


def _digest(pieces: Iterable[Buffer]) -> str:
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
