"""The indexes of one stream: defining, building and removing.

A segment's positions are cut at multiples of ``runs.RUN_EVENTS``; each piece has one run per index
and its times.  The last run of the active segment is replaced once three times as many events are
committed as it covers, so write amplification is constant::

    segment 7 |---- run ----|---- run ----|-- run --|........ not indexed: replayed
    segment 9 |---- run ----|- run -| tail .......

Guarantee: a run stays valid for its positions, because segments only grow.  It exists once its
descriptor is written, after its blocks.  Positions without a run are *uncovered*, never wrong.  A
definition is in force when its file has been replaced.  After a failed write (a full disk) the
database is reopened and its state reloaded, and the next write retries.

Limits: events in late runs, the late buffer and the tail are not indexed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    ChronicleError,
    CorruptStore,
    IndexNotFound,
    InvalidArgument,
    StorageFailed,
    StoreClosed,
)
from ..schema import StreamSchema
from ..store.leaf_map import LeafMap, leaf_map
from ..store.segment import SegmentView
from ..store.snapshot import StreamState
from . import definitions
from .definitions import Definitions
from .index_key import IndexKey, index_key
from .opened import Catalogue, OpenedIndexes, RunKey, RunsChanged, TimeRange, blocks_of
from .runs import RUN_EVENTS, Run, build_run, build_times
from .storage import (
    TIMES,
    IndexStorage,
    block_key,
    block_prefixes,
    descriptor_key,
    remove_database,
)

if TYPE_CHECKING:
    from ..store.commits import Commits

STEP_EVENTS = 1 << 16
"""Committed events of the active segment that justify a new run."""
LAG_MAX = 1 << 40

logger = logging.getLogger("chronicle.indexes")


class StreamIndexes(OpenedIndexes):
    """The indexes of a stream that is written to; extends ``OpenedIndexes``."""

    _generations = 0
    _followed: StreamSchema | None = None

    @contextmanager
    def _writing(self) -> Iterator[IndexStorage]:
        """The database for writing, reopened after a failure; needs ``_build_lock``."""
        with self._lock:
            self._check_open()
            if self.broken:
                raise CorruptStore(self.fault)
            storage = self._storage
            if storage is None or not storage.writable:  # not created yet, or unavailable so far
                storage = IndexStorage(self.path, True)
                self._disconnect()
                self._storage, self.fault = storage, ""
                self._load()
        try:
            yield storage
        except StorageFailed:
            self._disconnect()
            self._open()
            raise
        except CorruptStore:
            # RocksDB found damage in a compaction and accepts no writes: rebuild
            with suppress(ChronicleError):
                self.rebuild()
            if self.heard is not None:
                self.heard()
            raise

    # -- changing what is indexed -------------------------------------------------------------

    def take_over(self, paths: list[Path]) -> None:
        with self._build_lock, self._writing() as storage:
            storage.take_over(paths)
            self._load()

    def create(
        self,
        attribute: str,
        schema: StreamSchema,
        lag_events_max: int | None = None,
        state: StreamState | None = None,
    ) -> None:
        """Define an index; with ``state`` build it first.  Errors define nothing."""
        attribute = index_key(attribute, schema).name
        if lag_events_max is not None and not 0 <= lag_events_max <= LAG_MAX:
            raise InvalidArgument(
                f"lag_events_max is a number of events from 0 to {LAG_MAX}, found {lag_events_max}"
            )
        with self._build_lock:
            changed = self._definitions.adding(attribute, lag_events_max)
            with self._writing():
                changed = self._definitions.adding(attribute, lag_events_max)
            if state is None:
                self._define(changed)
                return
            index = changed.identifiers[attribute]
            with self._lock:
                self._definitions, self._catalogue = changed, None
        try:
            self.catch_up(state)
            with self._build_lock:
                if self._definitions.identifiers.get(attribute) == index:  # not dropped meanwhile
                    self._define(self._definitions)
        except BaseException:
            with self._build_lock, suppress(ChronicleError):
                if self._definitions.identifiers.get(attribute) == index:
                    self._undefine(attribute, index)
            raise

    def drop(self, attribute: str) -> None:
        """Remove an index and its runs; ``IndexNotFound`` if there is none."""
        with self._build_lock:
            index = self._definitions.identifiers.get(attribute)
            if index is None:
                raise IndexNotFound(f"there is no index on {attribute!r}")
            self._undefine(attribute, index)

    def follow(self, commits: Commits) -> None:
        """Adopt renamed attributes; indexes of dropped ones, and of types without order, go."""
        with self._build_lock:
            manifest = commits.manifest  # under the lock: an older one would undo a rename
            schema = manifest.schema
            if schema is self._followed:
                return
            changed = self._definitions.following(manifest.layouts, schema)
            remaining = set(changed.identifiers.values())
            gone = [n for n, i in self._definitions.identifiers.items() if i not in remaining]
            for name in gone:
                self._undefine(name, self._definitions.identifiers[name])
            if changed.identifiers != self._definitions.identifiers:
                self._define(changed)
            self._followed = schema

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._build_lock:
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the indexes in {self.path} are closed; open the store again")

    def _define(self, changed: Definitions) -> None:
        """Make definitions durable, then adopt them, unless the stream was dropped."""
        self._check_open()
        definitions.replace(self.path, changed)
        with self._lock:
            self._definitions, self._catalogue = changed, None

    def _undefine(self, attribute: str, index: int) -> None:
        changed = self._definitions.without(attribute)
        if attribute in definitions.read(self.path).identifiers:
            self._define(changed)
        with self._lock:
            self._definitions, self._catalogue = changed, None
            for at in [at for at in self._runs if at[0] == index]:
                del self._runs[at]
            self.damaged = {at: why for at, why in self.damaged.items() if at[0] != index}
        try:
            with self._writing() as storage:
                for kind in (b"d", b"k", b"p", b"n", b"s"):
                    storage.delete_prefix(kind + index.to_bytes(4, "big"))
                if not changed.identifiers:
                    self._drop(storage, list(self._runs))
                storage.flush()
        except (StorageFailed, CorruptStore) as error:  # they only take space
            logger.warning("the runs of a dropped index are left: %s", error)
        if self.broken and not changed.identifiers:
            self.rebuild()

    # -- building -----------------------------------------------------------------------------

    def missing(
        self, state: StreamState, eager: bool
    ) -> Iterator[tuple[SegmentView, int, int, list[str]]]:
        """Pieces that lack runs (``eager``: small ones, too): view, range, attributes."""
        with self._lock:
            attributes = dict(self._definitions.identifiers)
            runs, damaged = dict(self._runs), set(self.damaged)
        if not attributes:
            return
        for place, (segment, events, sealed) in enumerate(state.segments.sizes):
            for first in range(0, events, RUN_EVENTS):
                end = min(first + RUN_EVENTS, events)
                whole = sealed or end == first + RUN_EVENTS
                wanting = []
                for name, index in attributes.items():
                    run = runs.get((index, segment, first))
                    covered = first if run is None else run.end
                    fresh = end - covered
                    worth = whole or eager or (index, segment, first) in damaged
                    worth = worth or fresh >= max(STEP_EVENTS, 3 * (covered - first))
                    if fresh > 0 and worth:
                        wanting.append(name)
                if wanting or (TIMES, segment, first) in damaged:
                    yield state.segments[place], first, end, wanting

    def build_next(self, state: StreamState, eager: bool = False) -> bool:
        with self._build_lock:
            for view, first, end, names in self.missing(state, eager):
                self._build(view, first, end, names, state.schema)
                return True
        return False

    def catch_up(self, state: StreamState) -> None:
        while self.build_next(state, eager=True):
            pass
        self.flush()

    def lag(self, state: StreamState) -> int:
        """Committed leaf events not covered by the index furthest behind."""
        catalogue = self.catalogue()
        numbers = self._definitions.identifiers.values()
        return max((_behind(catalogue, index, state) for index in numbers), default=0)

    def overdue(self, state: StreamState, share: float = 1.0) -> bool:
        """Whether an index exceeds a share of its lag limit."""
        catalogue, definitions = self.catalogue(), self._definitions
        return any(
            _behind(catalogue, definitions.identifiers[name], state) > share * limit
            for name, limit in definitions.limits.items()
        )

    def flush(self) -> None:
        with self._build_lock:
            if self._storage is not None and self._storage.writable:
                with self._writing() as storage:
                    storage.flush()

    def purge(self, state: StreamState) -> None:
        self.forget(state)
        with self._build_lock:
            if self._storage is not None and self._storage.writable:
                with self._writing() as storage:
                    storage.purge()

    def _build(
        self, view: SegmentView, first: int, end: int, names: list[str], schema: StreamSchema
    ) -> None:
        segment = view.file.segment_id
        leaves = leaf_map(view)
        old_times = self._runs.get((TIMES, segment, first))
        stale = old_times is None or old_times.end < end
        for name in [None, *names] if stale else names:
            index = TIMES if name is None else self._definitions.identifiers.get(name)
            if index is None:
                continue
            key = None if name is None else index_key(name, schema)
            run_key = (index, segment, first)
            old = self._runs.get(run_key)
            run, entries = run_of(leaves, index, key, first, end, self._generation(run_key, old))
            with self._writing() as storage:
                storage.write(entries)
                with self._lock:
                    self._runs[run_key] = run
                    self.damaged.pop(run_key, None)
                    self._catalogue = None
                # remove the old run once queries know the new one
                if old is not None:
                    at = (*run_key, old.generation)
                    gone = [block_key(kind, *at, number) for kind, number in blocks_of(old)]
                    storage.write([], gone)

    def _generation(self, run_key: RunKey, old: Run | TimeRange | None) -> int:
        """A number unused by the replaced run and by those set aside."""
        used = [-1 if old is None else old.generation, self.damaged.get(run_key, (-1, ""))[0]]
        return max(self._generations, max(used) + 1)

    def forget(self, state: StreamState, opened: bool = False) -> None:
        """Remove the runs of segments that a state no longer has.  ``opened``, before the first
        append, also removes runs beyond the end of their segment: a power cut may lose leaves but
        not their run, and other events would take their positions; if that fails, the database is
        rebuilt.
        """
        alive = {segment: events for segment, events, _ in state.segments.sizes}
        with self._lock:
            if not self._false(alive, opened):
                return
        with self._build_lock:
            with self._lock:
                false = self._false(alive, opened)
                for run_key in false:
                    del self._runs[run_key]
                self.damaged = {at: why for at, why in self.damaged.items() if at[1] in alive}
                self._catalogue = None
            try:
                with self._writing() as storage:
                    self._drop(storage, false)
                    if opened:
                        storage.flush()
            except (StorageFailed, CorruptStore) as error:
                if not opened:
                    # they reappear at the next opening, and are removed then
                    logger.warning("runs of segments that are gone are left: %s", error)
                    return
                self.rebuild()

    def _false(self, alive: dict[int, int], opened: bool) -> list[RunKey]:
        runs = [at for at in self._runs if at[1] not in alive]
        if opened:
            runs += [at for at, r in self._runs.items() if r.end > alive.get(at[1], r.end)]
        return runs

    def _drop(self, storage: IndexStorage, runs: list[RunKey]) -> None:
        for run_key in runs:
            storage.write([], [descriptor_key(*run_key)])
            for prefix in block_prefixes(*run_key):
                storage.delete_prefix(prefix)
        with self._lock:
            for run_key in runs:
                self._runs.pop(run_key, None)
            self._catalogue = None

    def rebuild(self) -> None:
        """Recreate the database, empty, whatever its state; on an error ``fault`` is set."""
        with self._build_lock, self._lock:
            self._disconnect()
            self._no_runs()
            self.damaged = {}
            # new generations: a running query must not read new blocks for old runs
            self._generations = secrets.randbits(30)
            try:
                remove_database(self.path, definitions.DIRECTORY)
                definitions.replace(self.path, self._definitions)
                self._storage = IndexStorage(self.path, True)
                self._storage.flush()
            except ChronicleError as error:
                self._disconnect()
                self._failed(error)
                self.broken = False  # nothing left to be damaged: retry later
                raise
            self.fault, self.broken = "", False

    # -- figures ------------------------------------------------------------------------------

    def figures(self, attribute: str, state: StreamState) -> dict[str, Any]:
        """Coverage, lag, runs and size of one index, from memory."""
        catalogue = self.catalogue()
        index = self._definitions.identifiers.get(attribute)
        if index is None:
            raise IndexNotFound(f"there is no index on {attribute!r}")
        sizes = state.segments.sizes
        events = sum(held for _, held, _ in sizes) + state.tail_events
        covered = runs = size = entries = 0
        for segment, held, _ in sizes:
            for run in catalogue.runs.get((index, segment), ()):
                covered += max(0, min(run.end, held) - run.first)
                runs += 1
                size += run.size
                entries += run.entries
        trouble = self.trouble(attribute)
        lacking = any(attribute in names for *_, names in self.missing(state, eager=False))
        return {
            "attribute": attribute,
            "state": "damaged" if trouble and (self.broken or not self.fault)
            else "unavailable" if self._storage is None and self.fault
            else "building" if lacking else "ready",
            "covered": covered / events if events else 1.0,
            "covered_events": covered,
            "lag_events": events - state.tail_events - covered,
            "entries": entries,
            "runs": runs,
            "bytes": size,
            "lag_events_max": self._definitions.limits.get(attribute),
            "usable": int(not trouble),
            "problem": trouble or None,
        }  # fmt: skip

    def verify(self, state: StreamState) -> list[str]:
        """What is wrong: each run and range of times is compared with one built from the events."""
        problems = [self.fault] if self.fault else []
        catalogue = self.catalogue()
        views = {view.file.segment_id: view for view in state.segments}
        names = {index: name for name, index in catalogue.attributes.items()}
        for (index, segment, first), (_, why) in sorted(self.damaged.items()):
            what = "times" if index == TIMES else f"index on {names.get(index, index)}"
            problems.append(f"{what}, segment {segment}, positions from {first}: {why}")
        for (index, segment), runs in catalogue.runs.items():
            name = names[index]
            if segment not in views and self.writable:
                problems.append(f"index on {name}: segment {segment} is not part of the stream")
            for run in runs if segment in views else ():
                what = f"index on {name}, segment {segment}, positions {run.first} to {run.end}"
                key, leaves = index_key(name, state.schema), leaf_map(views[segment])
                problems += self._differences(what, run, leaves, key)
        for segment, ranges in catalogue.times.items():
            for times in ranges if segment in views else ():
                what = f"times of segment {segment} from {times.first}"
                problems += self._differences(what, times, leaf_map(views[segment]), None)
        return problems

    def _differences(
        self, what: str, stored: Run | TimeRange, leaves: LeafMap, key: IndexKey | None
    ) -> list[str]:
        events, first, end = leaves.view.events, stored.first, stored.end
        if end > events:
            return [f"{what}: it ends at {end}, the segment at {events}"]
        place = stored.index, stored.segment, first
        try:
            lowest, gaps = None, True
            if isinstance(stored, Run) and stored.unknown >= 0:
                lowest = stored.seen
            elif isinstance(stored, Run):
                # older runs do not look back beyond their start, and know one kind of null
                lowest, gaps = first, False
            run, entries = run_of(
                leaves, stored.index, key, first, end, stored.generation, lowest, gaps
            )
            same = stored.says_the_same_as(run) if isinstance(stored, Run) else stored == run
            same = same and all(
                self._fetch(block, place, stored.generation) == value
                for block, value in entries[:-1]  # without the descriptor
            )
        except RunsChanged as error:
            return [f"{what}: {error}"] if str(error) else []
        except (CorruptStore, ValueError, IndexError) as error:
            return [f"{what}: {error}"]
        return [] if same else [f"{what}: it differs from what the events give"]


Entries = list[tuple[bytes, bytes]]
"""Keys and values of the database; the descriptor, which makes the others exist, is last."""


def run_of(
    leaves: LeafMap,
    index: int,
    key: IndexKey | None,
    first: int,
    end: int,
    generation: int,
    lowest: int | None = None,
    with_gaps: bool = True,
) -> tuple[Run | TimeRange, Entries]:
    """A run of the key, or the times without one.  ``with_gaps``: tell the kinds of nulls apart, as
    only newer runs do.
    """
    segment = leaves.view.file.segment_id
    at = (index, segment, first, generation)
    if key is None:
        packed = build_times(leaves.ticks(first, end))
        times = TimeRange(segment, first, end, generation, len(packed))
        descriptor = descriptor_key(index, segment, first), times.to_bytes()
        return times, [(block_key(b"t", *at), packed), descriptor]
    values = key.column(leaves, first, end, lowest)
    gaps = values.gaps if with_gaps else None
    built = build_run(
        index, segment, first, generation, end - first, values.column, key.attribute, gaps
    )
    entries = [(block_key(b"k", *at, i), block) for i, block in enumerate(built.keys)]
    entries += [(block_key(b"p", *at, i), block) for i, block in enumerate(built.positions)]
    if built.nulls is not None:
        entries.append((block_key(b"n", *at), built.nulls))
    if built.dictionary is not None:
        entries.append((block_key(b"s", *at), built.dictionary))
    entries.append((descriptor_key(index, segment, first), built.run.to_bytes()))
    return built.run, entries


def _behind(catalogue: Catalogue, index: int, state: StreamState) -> int:
    return sum(
        events - sum(r.end - r.first for r in catalogue.runs.get((index, segment), ()))
        for segment, events, _ in state.segments.sizes
    )
