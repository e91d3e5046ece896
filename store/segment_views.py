"""Views of a stream's segments, created on demand and shared between states.

A stream of at most ``OPENED_MAX`` segments opens all of them, so that damage is found at once; of a
larger one each is opened on first access, and ``segment_file`` bounds how many stay open.

Guarantee: a state stays readable while it is referenced and its stream is open.  Before a commit
drops files, ``ViewSource.part`` permanently opens those that a state may still read; or, above
``KEPT_OPEN_MAX`` of them, takes a lease of their version (if possible), which ends with these
states.  The next writer knows nothing of the states of a closed stream: a read of one raises
``SnapshotExpired`` when it opens a file again that was removed since.  So does that of a reader
without a lease (``OPENED_MAX``) when too many files were open. ::

    state 41   | 1 | 2 | 3 |                    has 1 and 2, opened before their names went
    commit 42      compaction: 1, 2 -> 4
    state 42       | 4 | 3 |                    makes 3 when asked; both share it

Roots of adjacent segments are read as tables, from the pages of a manifest (``manifest_pages``): an
aggregate over a long range merges thousands with one kernel call, without opening a segment.
Segments without a root in a page must be opened.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from ..core.caches import Lru
from ..core.ownership import OwnedLock
from ..errors import ChronicleError, CorruptBlock
from ..schema import StreamSchema
from .catalog import StreamManifest
from .file_contract import Files
from .lock import ReaderLease
from .manifest_pages import read_roots
from .segment import SegmentView, check_entry
from .segment_list import PageRef, SegmentEntry, SegmentList

Table = npt.NDArray[np.int64]
BYTES_REMEMBERED = 64 << 20


class RootRun(NamedTuple):
    """Roots of adjacent segments with the same columns; ``table`` begins ``skipped`` segments
    earlier.
    """

    first: int
    end: int
    schema: StreamSchema
    table: Table
    skipped: int = 0


class RootRuns:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._cache = Lru[PageRef, list[RootRun]](BYTES_REMEMBERED, _bytes)

    def between(
        self, manifest: StreamManifest, segments: SegmentList, first: int, end: int
    ) -> Iterator[RootRun]:
        """Runs of the known roots of segments [first, end), in order, under a manifest."""
        for page, begin, entries in segments.by_page():
            if begin + page.segments <= first or begin >= end:
                continue
            runs = self._cache.get(page)
            if runs is None:
                runs = self._read(manifest, entries, page)
                self._cache.put(page, runs)
            for run in runs:
                low, high = max(first, begin + run.first), min(end, begin + run.end)
                if low < high:
                    yield RootRun(low, high, run.schema, run.table, low - begin - run.first)

    def _read(self, manifest: StreamManifest, entries: SegmentList, page: PageRef) -> list[RootRun]:
        try:
            heights, roots = read_roots(self._files, self._directory, page)
        except (FileNotFoundError, CorruptBlock):
            return []  # fall back to the segments
        kinds = np.stack([*entries.shapes, heights > 0])
        edges = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0)) + 1
        runs = []
        bounds = [0, *edges.tolist(), len(entries)]
        for first, end in pairwise(bounds):
            if not heights[first]:
                continue
            how = manifest.read_as(entries[first])
            table = np.ascontiguousarray(np.stack(roots[first:end], axis=1))
            schema = how.schema
            if how.evolution is not None:
                table, schema = how.evolution.table(table), how.evolution.now
            runs.append(RootRun(first, end, schema, table))
        return runs


def _bytes(runs: list[RootRun]) -> int:
    return 1 + sum(run.table.nbytes for run in runs)


OPENED_MAX = 64
"""Up to this many segments, all are opened with the stream."""

KEPT_OPEN_MAX = 256
"""Maximum dropped files held open for states."""

VIEWS_REMEMBERED = 1024
FEW_VIEWS = 256


def open_entry(
    files: Files,
    directory: str,
    manifest: StreamManifest,
    entry: SegmentEntry,
    *,
    as_written: bool = False,
    later: bool = False,
) -> SegmentView:
    """Open a segment or late run, ``later`` on access, ``as_written`` with the file's columns."""
    path = f"{directory}/{entry.file}"
    how = manifest.read_as(entry)
    evolution = None if as_written else how.evolution
    if later:
        return SegmentView.promised(files, path, entry, how.schema, how.written, evolution)
    view = SegmentView.open_sealed(files, path, entry.id, how.schema, how.written, evolution)
    check_entry(view, entry, path)
    return view


class _LeaseHolder:
    def __init__(self, lease: ReaderLease) -> None:
        weakref.finalize(self, lease.release)


class ViewSource:
    def __init__(self, files: Files, directory: str, manifest: StreamManifest) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest
        self._lock = OwnedLock(f"the stream in {directory}")
        self._alive: weakref.WeakValueDictionary[int, SegmentView] = weakref.WeakValueDictionary()
        self._recent = Lru[int, SegmentView](VIEWS_REMEMBERED)
        self._states: weakref.WeakSet[SegmentViews] = weakref.WeakSet()
        self._lease: _LeaseHolder | None = None
        self._roots = RootRuns(files, directory)
        self._few: tuple[SegmentList, tuple[SegmentView, ...]] | None = None

    def keep(self, lease: ReaderLease) -> bool:
        """Hold a lease of the manifest's version; False if it is not registered."""
        if lease.registered:
            self._lease = _LeaseHolder(lease)
        return lease.registered

    @property
    def eager(self) -> bool:
        return len(self) <= OPENED_MAX

    def open_all(self) -> None:
        manifest = self._manifest
        opened: list[SegmentView] = []
        try:
            opened.extend(
                open_entry(self._files, self._directory, manifest, entry)
                for entry in (*manifest.segments, *manifest.runs)
            )
        except BaseException:
            for view in opened:
                view.close()
            raise
        self.add({view.file.segment_id: view for view in opened})

    def check_there(self) -> None:
        manifest = self._manifest
        for file in (*manifest.segments.files(), *(entry.file for entry in manifest.runs)):
            if not self._files.exists(f"{self._directory}/{file}"):
                raise FileNotFoundError(f"{self._directory}/{file}")

    def __len__(self) -> int:
        return len(self._manifest.segments) + len(self._manifest.runs)

    def __contains__(self, segment_id: int) -> bool:
        return self._entry(segment_id) is not None

    def get(self, segment_id: int) -> SegmentView | None:
        entry = self._entry(segment_id)
        return None if entry is None else self.view(entry)

    def cached(self, segment_id: int) -> SegmentView | None:
        return self._alive.get(segment_id)

    def _entry(self, segment_id: int) -> SegmentEntry | None:
        for run in self._manifest.runs:
            if run.id == segment_id:
                return run
        at = self._manifest.segments.find(segment_id)
        return None if at is None else self._manifest.segments[at]

    def view(self, entry: SegmentEntry, *, remember: bool = True) -> SegmentView:
        """The view of an entry, shared while it is referenced."""
        view = self._recent.get(entry.id)
        if view is not None:
            return view
        with self._lock:
            view = self._alive.get(entry.id)
            if view is None:
                view = open_entry(self._files, self._directory, self._manifest, entry, later=True)
                view.file.needs = self._lease
                view.file.may_close()
                self._alive[entry.id] = view
        if remember:
            self._recent.put(entry.id, view)
        return view

    def few(self, segments: SegmentList) -> tuple[SegmentView, ...] | None:
        """All views of a short list, cached while the list is current."""
        cached = self._few
        if cached is not None and cached[0] is segments:
            return cached[1]
        if len(segments) > FEW_VIEWS:
            return None
        views = tuple(self.view(entry) for entry in segments)
        self._few = segments, views
        return views

    def add(self, views: Mapping[int, SegmentView]) -> None:
        with self._lock:
            for number, view in views.items():
                self._alive[number] = view
                self._recent.put(number, view)
                view.file.may_close()

    def roots(self, segments: SegmentList, first: int, end: int) -> Iterator[RootRun]:
        """Known roots of the segments [first, end) of a list, without opening them."""
        if not segments.pages:
            return iter(())
        return self._roots.between(self._manifest, segments, first, end)

    def sequence(
        self,
        segments: SegmentList,
        active: SegmentView | None = None,
        hidden: int = 0,
    ) -> SegmentViews:
        """Views of all but the first ``hidden`` entries, then the active one."""
        views = SegmentViews(self, segments, active, hidden)
        with self._lock:
            self._states.add(views)
        return views

    def of_manifest(self, manifest: StreamManifest) -> Callable[[SegmentEntry], SegmentView]:
        """Gives the views of a manifest's entries, which stay readable while it is referenced."""
        segments = self.sequence(manifest.segments)
        runs = {run.id: self.view(run) for run in manifest.runs}
        return lambda entry: runs.get(entry.id) or segments.view(entry)

    def part(
        self, old: StreamManifest, segments: SegmentList, runs: Sequence[SegmentEntry]
    ) -> None:
        """Keep states readable before a commit drops segments and runs of ``old``."""
        self._few = None
        dropped = [*segments.ids.tolist(), *(entry.id for entry in runs)]
        for number in dropped:
            self._recent.drop(number)
        with self._lock:
            states = [each for each in self._states if each.has(segments)]
        if states and len(segments) > KEPT_OPEN_MAX:
            lease = None
            with suppress(OSError):
                lease = ReaderLease.take(self._files, self._directory, old.version)
            if lease is not None and lease.registered:
                holder = _LeaseHolder(lease)
                for state in states:
                    state.leases.append(holder)
                states = []
        if states:
            for entry in segments:
                view = self.view(entry)
                if _stays(view):
                    for state in states:
                        state.unlinked[entry.id] = view
                self._recent.drop(entry.id)
        for number in dropped:
            open_view = self._alive.get(number)
            if open_view is not None:  # a late run, or a view used without a state
                _stays(open_view)

    def after(self, manifest: StreamManifest, added: Mapping[int, SegmentView]) -> None:
        self._manifest = manifest
        self.add({i: view for i, view in added.items() if i in self})


def _stays(view: SegmentView) -> bool:
    """Open a segment permanently, even when its name is removed."""
    try:
        view.tree  # noqa: B018 - reads the file's length by name
        view.file.stay_open()
    except (ChronicleError, OSError):
        return False  # the next access raises it
    return True


class SegmentViews(Sequence[SegmentView]):
    """The views of a state's segments, in time order: ``hidden`` leading ones of a list are left
    out, ``unlinked`` have lost their file names.
    """

    __slots__ = (
        "__weakref__", "_all", "_hidden", "_source", "active", "entries", "leases", "unlinked",
    )  # fmt: skip

    def __init__(
        self,
        source: ViewSource,
        entries: SegmentList,
        active: SegmentView | None = None,
        hidden: int = 0,
    ) -> None:
        self._source = source
        self._all, self._hidden = entries, hidden
        self.entries = entries[hidden:] if hidden else entries
        self.active = active
        self.unlinked: dict[int, SegmentView] = {}
        self.leases: list[_LeaseHolder] = []

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __len__(self) -> int:
        return len(self.entries) + (self.active is not None)

    @overload
    def __getitem__(self, at: int) -> SegmentView: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[SegmentView]: ...

    def __getitem__(self, at: int | slice) -> SegmentView | Sequence[SegmentView]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        place = at + len(self) if at < 0 else at
        if place == len(self.entries) and self.active is not None:
            return self.active
        if not 0 <= place < len(self.entries):
            raise IndexError(f"place {at} of {len(self)} segments")
        return self._at(place)

    def __iter__(self) -> Iterator[SegmentView]:
        yield from map(self._at, range(len(self.entries)))
        if self.active is not None:
            yield self.active

    def _at(self, place: int) -> SegmentView:
        few = None if self.unlinked or self.leases else self._source.few(self._all)
        return self.view(self.entries[place]) if few is None else few[self._hidden + place]

    def view(self, entry: SegmentEntry) -> SegmentView:
        view = self.unlinked.get(entry.id)
        if view is None:
            dropped = bool(self.leases) and entry.id not in self._source
            view = self._source.view(entry, remember=not dropped)
            if dropped:
                view.file.needs = tuple(self.leases)
        return view

    def within(self, first: int, last: int) -> Iterator[SegmentView]:
        """Views that may hold events with first <= t <= last."""
        yield from map(self._at, self.entries.within(first, last).tolist())
        yield from self._active_within(first, last)

    def parts(self, first: int, last: int) -> Iterator[SegmentView | RootRun]:
        """As ``within``, with known roots in place of segments inside of the range."""
        entries, hidden = self.entries, self._hidden
        places = entries.within(first, last)
        if places.size:
            at, end = int(places[0]), int(places[-1]) + 1
            begin_whole = at + int(entries.firsts[at] < first)
            end_whole = max(begin_whole, end - int(entries.lasts[end - 1] > last))
            for run in self._source.roots(self._all, hidden + begin_whole, hidden + end_whole):
                yield from map(self._at, range(at, run.first - hidden))
                yield run
                at = run.end - hidden
            yield from map(self._at, range(at, end))
        yield from self._active_within(first, last)

    def _active_within(self, first: int, last: int) -> Iterator[SegmentView]:
        active = self.active
        if active is not None and active.last >= first and active.first <= last:
            yield active

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Tick ranges that cover all events."""
        spans = [] if self.active is None else [(self.active.first, self.active.last)]
        if len(self.entries):
            spans.append((int(self.entries.firsts.min()), int(self.entries.lasts.max())))
        return spans

    @property
    def sizes(self) -> list[tuple[int, int, bool]]:
        """Segment, number of stored events (also hidden ones), and whether sealed, of each view."""
        ids, events = self.entries.ids.tolist(), self.entries.events.tolist()
        sizes = [(i, n, True) for i, n in zip(ids, events, strict=True)]
        if self.active is not None:
            sizes.append((self.active.file.segment_id, self.active.events, False))
        return sizes

    @property
    def bytes(self) -> int:
        return int(self._all.bytes.sum()) + (0 if self.active is None else self.active.length)

    def has(self, segments: SegmentList) -> bool:
        return bool(np.isin(segments.ids, self._all.ids).any())

    def close(self) -> None:
        for number in self._all.ids.tolist():
            view = self.unlinked.get(number) or self._source.cached(number)
            if view is not None:
                view.close()
        if self.active is not None:
            self.active.close()


NO_SEGMENTS = SegmentViews(cast(Any, None), SegmentList.of(()))
