"""Moving: sealed segments whose events are old go to objects, and their nodes stay.

Purpose
    :func:`move_segments` takes segments of a stream to an
    :class:`~chronicle.store.object_store.ObjectStore` and leaves stubs (:mod:`.cold_stub`), so that
    a disk holds what is new, and years lie where storage is cheap.

Order
    ::

        NNN.seg.moving, durable | put the object | read it back, compare | put the stub beside it
        | NNN.seg.moving becomes NNN.seg.cold, durable | remove NNN.seg

    A stub that is ``moving`` says which object an accident has left: the next move removes it.  An
    accident before the last step leaves both, and the file is read.

    The last two steps are made with the stream's lock held, if the manifest still names the
    segment; appends, queries, compactions and deletes go on beside all others.  Where one of these
    replaces the segment meanwhile, the move of it ends between two pieces, and what there is of the
    object goes.  No commit is made: where a segment lies is none of what a stream says.

    Beside each object lies its stub, and beside those of a stream its manifest as of the last move,
    of nothing perhaps: :mod:`.restoring` begins with these where the disk is lost.  Pages that the
    manifest names are put before it, those that are new, and what it no longer names goes after::

        new pages, under names with their checksums | manifest | pages of the one before

How it keeps out of the way
    Nobody waits for it.  Between two pieces of a segment it rests while the processors are wanted
    elsewhere (:mod:`.pace`), unless less is free on the disk than is left to move.  Copies to a
    directory are made by a thread of low priority (:mod:`.low_priority`), which holds no lock, and
    past the cache of pages (:mod:`.direct_file`).  What readers remember of other segments stays.

Guarantee
    At each moment a segment can be read whole, from the file or from the object.

Limits
    Late runs and the active segment stay.  A compaction or delete that rewrites a cold segment
    reads it whole, and what it writes is on the disk until it is moved.  Secondary indexes stay on
    the disk.  Requests to a service are made at the priority of who moves: the threads that send
    and encrypt are those of a library, and read for queries, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import xxhash

from ..errors import InvalidArgument, StorageFailed
from .atomic_file import replace_file
from .catalog import SegmentEntry, StreamManifest
from .cold_files import DOOMED, MOVING, ColdFiles, purge
from .cold_stub import SUFFIX, ColdStub, pages_of
from .commits import Commits
from .file_contract import ReadFile
from .layout import BLOCK_FRAME, FILE_HEADER, FOOTER, ROW_COUNT, ROW_LENGTH, ROW_OFFSET
from .low_priority import standing_back
from .manifest import MANIFEST, manifest_content
from .manifest_pages import PAGES, page_key
from .object_store import ObjectStore
from .pace import Pace
from .progress import each
from .read_plan import Range
from .segment import SegmentView

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Chosen", "Moved", "Stopped", "ending_before", "move_segments", "never"]

PIECE_BYTES = 1 << 20

KEPT_SHARE = 16
"""The heads of leaves, and the dictionaries, stay where each take no more than one part in so many
of a segment."""

Chosen = Callable[[StreamManifest, int | None], Sequence[SegmentEntry]]
"""Says of a stream, and of its newest tick in order, which of its segments go."""


Stopped = Callable[[], bool]
"""Asked now and then: True ends the work."""


def never() -> bool:
    """Go on."""
    return False


def ending_before(tick: int) -> Chosen:
    """Choose the segments that end before a tick."""

    def chosen(manifest: StreamManifest, newest: int | None) -> Sequence[SegmentEntry]:
        del newest
        return manifest.segments.where(manifest.segments.lasts < tick)

    return chosen


_Piece = TypeVar("_Piece")


class _Ended(Exception):
    """The move of a segment is not to go on."""


@dataclass(frozen=True)
class Moved:
    """What a move has done.

    Attributes
    ----------
    segments : int
    bytes : int
        Of their files.
    """

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
    """Move some segments of a stream; the caller keeps others from moving any.

    Parameters
    ----------
    owner : str
        Identity of the store: begins the keys of its objects.
    chosen : callable
        Those that lie in objects already are left out.
    stopped : callable
        Asked between two pieces: True ends the move with what has moved until then.
    pace : Pace
        Asked likewise: rests.

    Raises
    ------
    StorageFailed, StorageFull
        What had moved until then has.
    """
    files = commits.files
    if not isinstance(files, ColdFiles):
        raise InvalidArgument("this store cannot move segments: its files are not on a disk")
    with commits.lock:
        commits.check_writable()
        if not commits.manifest.identity:  # of an old release
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
        except FileNotFoundError:  # of a page: the manifest has been replaced, and is told later
            return Moved(segments, moved)
        commits.note_told(manifest.version)
    return Moved(segments, moved)


def _tell(
    store: ObjectStore, place: str, manifest: StreamManifest, read: Callable[[str], bytes]
) -> None:
    """Leave a stream's manifest with its objects, and those of its pages that are not there yet."""
    named = {page_key(place, page): page for page in manifest.segments.pages}
    there = set(store.list(f"{place}/{PAGES}/"))
    for key, page in named.items():
        if key not in there:
            store.put(key, [read(page.file)])
    store.put(f"{place}/{MANIFEST}", [manifest_content(manifest.to_json())])
    for key in there.difference(named):  # of the manifest that was there, or of an accident
        store.remove(key)


def _move(
    commits: Commits,
    files: ColdFiles,
    store: ObjectStore,
    place: str,
    entry: SegmentEntry,
    wanted: Callable[[], None],
) -> bool:
    """Move one segment; False when the stream has no such segment any more, or it was stopped."""
    path = commits.path(entry.file)
    moving = path + MOVING
    view = commits.views.get(entry.id)
    if view is None:
        return False
    try:
        if not files.inner.exists(path + SUFFIX):  # else an accident has left it to the last step
            copy = partial(_copy, files, store, place, path, entry, _parts(view), wanted)
            if store.in_this_thread:
                standing_back(copy)
            else:  # what it asks for begins threads, which others share
                copy()
    except _Ended:
        return False
    except FileNotFoundError:
        if entry.id in commits.views:
            raise
        return False  # replaced meanwhile, and nobody wants it any more
    with commits.lock:
        commits.check_writable()
        if entry not in commits.manifest.segments:
            return False  # replaced meanwhile
        if files.inner.exists(moving):
            files.inner.replace(moving, path + SUFFIX)
            files.sync_directory(commits.directory)
        files.inner.remove(path)
        files.sync_directory(commits.directory)
        view = commits.views.known(entry.id)  # not that of then: columns may have changed
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
    """Have the object of a segment be there, and a stub that is ``moving``; holds no lock."""

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
        kept, kept_heads = (
            b"".join(bytes(file.read(at, length)) for at, length in some)
            for some in (ranges, heads)
        )
        told = ColdStub(
            store.url, key, entry.bytes, digest, ranges, xxhash.xxh3_64_hexdigest(kept),
            heads, xxhash.xxh3_64_hexdigest(kept_heads),
        )  # fmt: skip
        stub = told.to_bytes(kept, kept_heads)
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
    """What of a segment stays: nodes, summary, small dictionaries; and the heads of its leaves."""
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
