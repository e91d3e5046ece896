"""The indexes of one stream: what is defined, what is built, and building more.

Purpose
    :class:`StreamIndexes` keeps the definitions and run descriptors of a stream's indexes in
    memory, builds missing runs from committed leaves, and removes those whose segment is gone.
    Queries take :meth:`StreamIndexes.catalogue`, a picture that does not change.

Layout
    A segment's positions are cut at multiples of :data:`~chronicle.indexes.runs.RUN_EVENTS`; each
    piece has one run per index and its times.  The last piece of the active segment grows: its run
    is replaced once three
    times as many events are committed as it covers, so upkeep costs a constant factor. ::

        segment 7 |---- run ----|---- run ----|-- run --|........ not indexed: replayed
        segment 9 |---- run ----|- run -| tail .......

Guarantee
    A run tells the truth about its positions for ever, because segments only grow.  A run exists
    once its descriptor is written, after its blocks; what a crash interrupts is built again.
    Positions without a run are *uncovered*, never wrong.

Limits
    Events in late runs, the late buffer and the tail are not indexed: compaction and sealing bring
    them into segments.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import (
    CorruptStore,
    IndexExists,
    IndexNotFound,
    InvalidArgument,
)
from ..schema import StreamSchema
from ..store.segment import SegmentView
from ..store.snapshot import StreamState
from .keys import indexable
from .leaves import leaf_map
from .runs import RUN_EVENTS, Run, build_run, build_times
from .storage import (
    IndexStorage,
    block_key,
    descriptor_key,
    parse_descriptor_key,
    parse_time_key,
    time_key,
)

__all__ = [
    "Catalogue",
    "RunsChanged",
    "StreamIndexes",
    "TimeRange",
    "blocks_of",
    "definition_of",
    "descriptor_of",
]

STEP_EVENTS = 1 << 16
"""Committed events of the active segment that are worth a new run."""
CACHE_BYTES = 64 << 20
LAG_MAX = 1 << 40


class RunsChanged(Exception):
    """A run was replaced or dropped while a query was using it; plan again."""


@dataclass(frozen=True)
class TimeRange:
    """Times of positions [first, end) of a segment are stored."""

    segment: int
    first: int
    end: int
    generation: int
    size: int


@dataclass(frozen=True)
class Catalogue:
    """What is indexed at one moment.

    Attributes
    ----------
    attributes : mapping of str to int
        Indexed attributes and the identifiers of their indexes.
    runs : mapping of (index, segment) to tuple of Run
        In order of position.
    times : mapping of segment to tuple of TimeRange
    """

    attributes: Mapping[str, int]
    runs: Mapping[tuple[int, int], tuple[Run, ...]]
    times: Mapping[int, tuple[TimeRange, ...]]


class StreamIndexes:
    """See the module.

    Parameters
    ----------
    path : Path
        ``<stream directory>/indexes``.
    writable : bool
        A reader sees what the writer has flushed.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self._storage: IndexStorage | None = None
        self._lock = threading.RLock()
        self._build_lock = threading.Lock()
        self._attributes: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._runs: dict[tuple[int, int, int], Run] = {}
        self._times: dict[tuple[int, int], TimeRange] = {}
        self._catalogue: Catalogue | None = None
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached = 0
        self._next_id = 1
        if (path / "CURRENT").exists():
            self._load()

    # -- definitions --------------------------------------------------------------------------

    def _opened(self) -> IndexStorage:
        if self._storage is None:
            self._storage = IndexStorage(self.path, self.writable)
        return self._storage

    def _load(self) -> None:
        storage = self._opened()
        self._attributes, self._limits = {}, {}
        for key, value in storage.scan(b"i"):
            name, told = key[1:].decode(), json.loads(value)
            index = self._attributes[name] = int(told["id"])
            if told.get("lag_events_max") is not None:
                self._limits[name] = int(told["lag_events_max"])
            self._next_id = max(self._next_id, index + 1)
        known = set(self._attributes.values())
        self._runs = {}
        for key, value in storage.scan(b"d"):
            place = parse_descriptor_key(key)
            if place[0] in known:
                self._runs[place] = Run.from_bytes(*place, value)
        self._times = {}
        for key, value in storage.scan(b"D"):
            at = parse_time_key(key)
            self._times[at] = TimeRange(*at, **json.loads(value))
        self._catalogue = None

    def refresh(self) -> None:
        """Of a reader: see what the writer has done since."""
        if self.writable:
            return
        with self._lock:
            if self._storage is None:
                if (self.path / "CURRENT").exists():
                    self._load()
                return
            self._storage.refresh()
            self._load()

    @property
    def attributes(self) -> list[str]:
        """Indexed attributes, in the order in which they were created."""
        return sorted(self._attributes, key=self._attributes.__getitem__)

    @property
    def identifiers(self) -> dict[str, int]:
        """Indexed attributes and the identifiers of their indexes."""
        return dict(self._attributes)

    def take_over(self, paths: list[Path]) -> None:
        """Add files of runs that were built elsewhere (see :mod:`.staged`)."""
        with self._build_lock, self._lock:
            self._opened().take_over(paths)
            self._load()

    def create(
        self, attribute: str, schema: StreamSchema, lag_events_max: int | None = None
    ) -> None:
        """Define an index; raises :class:`IndexExists`.

        Parameters
        ----------
        lag_events_max : int, optional
            Committed events that may wait for this index before appends wait for it.
        """
        indexable(schema.attribute(attribute))
        if lag_events_max is not None and not 0 <= lag_events_max <= LAG_MAX:
            raise InvalidArgument(
                f"lag_events_max is a number of events from 0 to {LAG_MAX}, found {lag_events_max}"
            )
        with self._lock:
            if attribute in self._attributes:
                raise IndexExists(f"there is an index on {attribute!r} already")
            index = self._next_id
            self._opened().write([definition_of(attribute, index, lag_events_max)])
            self._opened().flush()
            self._next_id += 1
            self._attributes[attribute] = index
            if lag_events_max is not None:
                self._limits[attribute] = lag_events_max
            self._catalogue = None

    def drop(self, attribute: str) -> None:
        """Remove an index and its runs; raises :class:`IndexNotFound`."""
        with self._build_lock, self._lock:
            index = self._attributes.get(attribute)
            if index is None:
                raise IndexNotFound(f"there is no index on {attribute!r}")
            storage = self._opened()
            del self._attributes[attribute]
            self._limits.pop(attribute, None)
            # the definition goes first: runs without one are never read
            storage.write([], [b"i" + attribute.encode()])
            for kind in (b"d", b"k", b"p", b"n", b"s"):
                storage.delete_prefix(kind + index.to_bytes(4, "big"))
            self._runs = {at: run for at, run in self._runs.items() if at[0] != index}
            if not self._attributes:
                self._drop_times(list(self._times))
            self._forget_cache()
            storage.flush()

    def catalogue(self) -> Catalogue:
        """What is indexed now; it does not change."""
        with self._lock:
            if self._catalogue is None:
                runs: dict[tuple[int, int], list[Run]] = {}
                for index, segment, first in sorted(self._runs):
                    run = self._runs[index, segment, first]
                    runs.setdefault((index, segment), []).append(run)
                times: dict[int, list[TimeRange]] = {}
                for at in sorted(self._times):
                    times.setdefault(at[0], []).append(self._times[at])
                self._catalogue = Catalogue(
                    dict(self._attributes),
                    {key: tuple(listed) for key, listed in runs.items()},
                    {segment: tuple(listed) for segment, listed in times.items()},
                )
            return self._catalogue

    # -- building -----------------------------------------------------------------------------

    def missing(
        self, state: StreamState, eager: bool
    ) -> Iterator[tuple[SegmentView, int, int, list[str]]]:
        """Pieces that lack runs: view, first and end position, attributes.

        With ``eager`` also what is not worth a run of its own yet.
        """
        with self._lock:
            attributes = dict(self._attributes)
            runs = dict(self._runs)
        if not attributes:
            return
        for view in state.segments:
            segment = view.file.segment_id
            for first in range(0, view.events, RUN_EVENTS):
                end = min(first + RUN_EVENTS, view.events)
                whole = view.sealed or end == first + RUN_EVENTS
                wanting = []
                for name, index in attributes.items():
                    run = runs.get((index, segment, first))
                    covered = first if run is None else run.end
                    fresh = end - covered
                    worth = whole or eager or fresh >= max(STEP_EVENTS, 3 * (covered - first))
                    if fresh > 0 and worth:
                        wanting.append(name)
                if wanting:
                    yield view, first, end, wanting

    def build_next(self, state: StreamState, eager: bool = False) -> bool:
        """Build the first piece that is missing; False when there is none."""
        with self._build_lock:
            for view, first, end, names in self.missing(state, eager):
                self._build(view, first, end, names, state.schema)
                return True
        return False

    def catch_up(self, state: StreamState) -> None:
        """Index every committed leaf of a state and make it visible to other processes."""
        while self.build_next(state, eager=True):
            pass
        self.flush()

    def lag(self, state: StreamState) -> int:
        """Committed leaf events that some index does not cover yet, of the one furthest behind."""
        catalogue = self.catalogue()
        return max((_behind(catalogue, i, state) for i in catalogue.attributes.values()), default=0)

    def overdue(self, state: StreamState, share: float = 1.0) -> bool:
        """Whether an index is further behind than that share of what it was allowed."""
        catalogue = self.catalogue()
        return any(
            _behind(catalogue, catalogue.attributes[name], state) > share * limit
            for name, limit in list(self._limits.items())
            if name in catalogue.attributes
        )

    def flush(self) -> None:
        """Make what was built visible to readers in other processes."""
        if self._storage is not None and self.writable:
            self._storage.flush()

    def _build(
        self, view: SegmentView, first: int, end: int, names: list[str], schema: StreamSchema
    ) -> None:
        storage = self._opened()
        segment = view.file.segment_id
        leaves = leaf_map(view)
        old_times = self._times.get((segment, first))
        if old_times is None or old_times.end < end:
            generation = 0 if old_times is None else old_times.generation + 1
            packed = build_times(leaves.ticks(first, end))
            times = TimeRange(segment, first, end, generation, len(packed))
            storage.write(
                [(time_key(segment, first, generation), packed), descriptor_of(times)],
                [] if old_times is None else [time_key(segment, first, old_times.generation)],
            )
            with self._lock:
                self._times[segment, first] = times
                self._catalogue = None
        for name in names:
            with self._lock:
                index = self._attributes.get(name)
                old = self._runs.get((index or 0, segment, first))
            if index is None:
                continue
            generation = 0 if old is None else old.generation + 1
            column = leaves.column(name, first, end)
            attribute = schema.attribute(name)
            built = build_run(index, segment, first, generation, end - first, column, attribute)
            at = (index, segment, first, generation)
            puts = [(block_key(b"k", *at, i), block) for i, block in enumerate(built.keys)]
            puts += [(block_key(b"p", *at, i), block) for i, block in enumerate(built.positions)]
            if built.nulls is not None:
                puts.append((block_key(b"n", *at), built.nulls))
            if built.dictionary is not None:
                puts.append((block_key(b"s", *at), built.dictionary))
            puts.append((descriptor_key(index, segment, first), built.run.to_bytes()))
            storage.write(puts, [] if old is None else blocks_of(old))
            with self._lock:
                self._runs[index, segment, first] = built.run
                self._catalogue = None

    def forget(self, state: StreamState, opened: bool = False) -> None:
        """Remove the runs of segments that a state no longer has (retention, compaction).

        With ``opened``, said before the first append to a stream that was opened, also runs that
        reach beyond their segment.  A power cut takes leaves of which nothing but their run was
        synced (durability ``interval`` or ``none``), and other events will come to their positions.
        """
        alive = {view.file.segment_id: view.events for view in state.segments}
        with self._lock:
            gone = [at for at in self._runs if at[1] not in alive]
            old_times = [at for at in self._times if at[0] not in alive]
            if opened:
                gone += [at for at, r in self._runs.items() if r.end > alive.get(at[1], r.end)]
                old_times += [
                    at for at, t in self._times.items() if t.end > alive.get(at[0], t.end)
                ]
        if not gone and not old_times:
            return
        with self._build_lock, self._lock:
            self._drop_runs(gone)
            self._drop_times(old_times)
            self._forget_cache()
            if opened:
                self._opened().flush()

    def _drop_runs(self, places: list[tuple[int, int, int]]) -> None:
        for at in places:
            run = self._runs.pop(at)
            self._opened().write([], [descriptor_key(*at), *blocks_of(run)])
        self._catalogue = None

    def _drop_times(self, places: list[tuple[int, int]]) -> None:
        for at in places:
            times = self._times.pop(at)
            self._opened().write([], [time_key(*at), time_key(*at, times.generation)])
        self._catalogue = None

    def rebuild(self) -> None:
        """Throw every run away; the next :meth:`catch_up` builds them anew."""
        with self._build_lock, self._lock:
            for kind in (b"d", b"k", b"p", b"n", b"s", b"D", b"t"):
                self._opened().delete_prefix(kind)
            self._runs.clear()
            self._times.clear()
            self._catalogue = None
            self._forget_cache()

    # -- reading ------------------------------------------------------------------------------

    def block(self, kind: bytes, run: Run, number: int = 0) -> bytes:
        """A block of a run; raises :class:`RunsChanged` when the run is gone."""
        key = block_key(kind, run.index, run.segment, run.first, run.generation, number)
        data = self._opened().get(key)
        if data is None:
            raise RunsChanged
        return data

    def stored(self, key: bytes) -> bytes | None:
        """What is stored under a key."""
        return self._opened().get(key)

    @property
    def limits(self) -> dict[str, int]:
        """By attribute, the events that may wait for its index; those without a limit are not."""
        return dict(self._limits)

    def words(self, kind: bytes, run: Run, number: int = 0) -> npt.NDArray[Any]:
        """A block of a run as 64-bit words: signed for keys, unsigned for positions."""
        dtype = np.int64 if kind == b"k" else np.uint64
        return np.frombuffer(self.block(kind, run, number), dtype)

    def remembered(self, kind: bytes, run: Run) -> bytes:
        """A block that is worth keeping in memory: dictionaries."""
        key = block_key(kind, run.index, run.segment, run.first, run.generation)
        return self._remembered(key)

    def times(self, times: TimeRange) -> npt.NDArray[np.int64]:
        """The packed times of a range, for the kernels."""
        key = time_key(times.segment, times.first, times.generation)
        return np.frombuffer(self._remembered(key), np.int64)

    def _remembered(self, key: bytes) -> bytes:
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        data = self._opened().get(key)
        if data is None:
            raise RunsChanged
        with self._lock:
            if key not in self._cache:
                self._cache[key] = data
                self._cached += len(data)
                while self._cached > CACHE_BYTES and len(self._cache) > 1:
                    self._cached -= len(self._cache.popitem(last=False)[1])
        return data

    def _forget_cache(self) -> None:
        self._cache.clear()
        self._cached = 0
        self._catalogue = None

    # -- figures ------------------------------------------------------------------------------

    def figures(self, attribute: str, state: StreamState) -> dict[str, Any]:
        """Coverage, lag, runs and size of one index; from what is in memory, nothing is read."""
        catalogue = self.catalogue()
        index = catalogue.attributes.get(attribute)
        if index is None:
            raise IndexNotFound(f"there is no index on {attribute!r}")
        events = sum(view.events for view in state.segments) + state.tail_events
        covered = runs = size = entries = 0
        for view in state.segments:
            for run in catalogue.runs.get((index, view.file.segment_id), ()):
                covered += max(0, min(run.end, view.events) - run.first)
                runs += 1
                size += run.size
                entries += run.entries
        return {
            "attribute": attribute,
            "state": "ready"
            if not any(True for _ in self._lacking(attribute, state))
            else "building",
            "covered": covered / events if events else 1.0,
            "covered_events": covered,
            "lag_events": events - state.tail_events - covered,
            "entries": entries,
            "runs": runs,
            "bytes": size,
            "lag_events_max": self._limits.get(attribute),
        }

    def _lacking(self, attribute: str, state: StreamState) -> Iterator[int]:
        for _, first, _, names in self.missing(state, eager=False):
            if attribute in names:
                yield first

    @property
    def times_bytes(self) -> int:
        """Bytes of the times that all indexes share."""
        return sum(times.size for times in self._times.values())

    def close(self) -> None:
        """Flush and close; doing so again does nothing."""
        with self._build_lock, self._lock:
            storage, self._storage = self._storage, None
            if storage is not None:
                storage.close()

    def verify(self, state: StreamState) -> list[str]:
        """Compare every run with the events that it stands for; returns what is wrong.

        A reader passes over the runs of segments that are gone: the writer removes them when it
        comes to it.
        """
        from .verify import verify_run, verify_times

        problems = []
        catalogue = self.catalogue()
        views = {view.file.segment_id: view for view in state.segments}
        names = {index: name for name, index in catalogue.attributes.items()}
        for (index, segment), listed in catalogue.runs.items():
            if segment not in views:
                if self.writable:
                    problems.append(
                        f"index on {names[index]}: segment {segment} is not part of the stream"
                    )
                continue
            for run in listed:
                try:
                    verify_run(self, run, views[segment], state.schema.attribute(names[index]))
                except (CorruptStore, RunsChanged, ValueError, IndexError) as error:
                    problems.append(
                        f"index on {names[index]}, segment {segment}, positions {run.first} to "
                        f"{run.end}: {error or 'a block is missing'}"
                    )
        for segment, ranges in catalogue.times.items():
            for times in ranges:
                try:
                    if segment in views:
                        verify_times(self, times, views[segment])
                except (CorruptStore, RunsChanged, ValueError, IndexError) as error:
                    problems.append(
                        f"times of segment {segment} from {times.first}: {error or 'missing'}"
                    )
        return problems


def definition_of(name: str, index: int, lag_events_max: int | None) -> tuple[bytes, bytes]:
    """Key and value that define an index."""
    told = {"id": index}
    if lag_events_max is not None:
        told["lag_events_max"] = lag_events_max
    return b"i" + name.encode(), json.dumps(told).encode()


def descriptor_of(times: TimeRange) -> tuple[bytes, bytes]:
    """Key and value that make the times of a range exist."""
    told = {"end": times.end, "generation": times.generation, "size": times.size}
    return time_key(times.segment, times.first), json.dumps(told).encode()


def _behind(catalogue: Catalogue, index: int, state: StreamState) -> int:
    """Committed leaf events that an index does not cover yet."""
    return sum(
        view.events
        - sum(r.end - r.first for r in catalogue.runs.get((index, view.file.segment_id), ()))
        for view in state.segments
    )


def blocks_of(run: Run) -> list[bytes]:
    """Keys of all blocks that a run may have."""
    at = (run.index, run.segment, run.first, run.generation)
    keys = [block_key(kind, *at, block) for kind in (b"k", b"p") for block in range(run.blocks)]
    return [*keys, block_key(b"n", *at), block_key(b"s", *at)]
