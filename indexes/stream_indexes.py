"""The indexes of one stream: what is defined, what is built, and building more.

Purpose
    :class:`StreamIndexes` keeps the definitions and run descriptors of a stream's indexes in
    memory, builds missing runs from committed leaves, and removes those whose segment is gone.
    Queries take :meth:`StreamIndexes.catalogue`, a picture that does not change.

Layout
    A segment's positions are cut at multiples of :data:`~chronicle.indexes.runs.RUN_EVENTS`; each
    piece has one run per index and its times.  The last piece of the active segment grows: its run
    is replaced once three times as many events are committed as it covers, so upkeep costs a
    constant factor. ::

        segment 7 |---- run ----|---- run ----|-- run --|........ not indexed: replayed
        segment 9 |---- run ----|- run -| tail .......

Guarantee
    A run tells the truth about its positions for ever, because segments only grow.  A run exists
    once its descriptor is written, after its blocks; what a crash interrupts is built again.
    Positions without a run are *uncovered*, never wrong.

    What is in memory never says more than what was written: a definition counts when its file has
    been replaced, a run when RocksDB has taken it.  After a write that failed (a full disk) the
    database is opened anew, what it then holds is believed, and the next write tries again.

    What cannot be read is done without: see :mod:`.opened`.

Limits
    Events in late runs, the late buffer and the tail are not indexed: compaction and sealing bring
    them into segments.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import (
    ChronicleError,
    CorruptStore,
    IndexNotFound,
    InvalidArgument,
    StorageFailed,
    StoreClosed,
)
from ..schema import StreamSchema
from ..store.catalog import Layout
from ..store.leaf_map import leaf_map
from ..store.segment import SegmentView
from ..store.segment_views import sizes_of
from ..store.snapshot import StreamState
from . import definitions
from .catalogue import Catalogue, RunsChanged, TimeRange, blocks_of, descriptor_of
from .definitions import Definitions
from .index_key import index_key
from .opened import OpenedIndexes, RunKey
from .runs import RUN_EVENTS, Run, build_run, build_times
from .storage import IndexStorage, block_key, descriptor_key, remove_database, time_key
from .verify import verify_indexes

__all__ = ["Catalogue", "RunsChanged", "StreamIndexes", "TimeRange"]

STEP_EVENTS = 1 << 16
"""Committed events of the active segment that are worth a new run."""
LAG_MAX = 1 << 40

logger = logging.getLogger("chronicle.indexes")


class StreamIndexes(OpenedIndexes):
    """The indexes of a stream that is written to; built behind :class:`OpenedIndexes`."""

    _generations = 0
    """Where generations begin."""

    @contextmanager
    def _writing(self) -> Iterator[IndexStorage]:
        """The database, to write to; a failure makes it be opened anew.

        ``_build_lock`` is held.  One that could not be opened for writing is tried again.

        Raises
        ------
        StorageFull, StorageFailed, CorruptStore
        """
        with self._lock:
            self._check_open()
            if self.broken:
                raise CorruptStore(self.fault)
            storage = self._storage
            if storage is None or not storage.writable:  # not made yet, or out of reach so far
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
            # RocksDB met damage while it compacted, and takes nothing more: nothing here is needed
            with suppress(ChronicleError):
                self.rebuild()
            if self.heard is not None:
                self.heard()
            raise

    # -- changing what is indexed -------------------------------------------------------------

    def take_over(self, paths: list[Path]) -> None:
        """Add files of runs that were built elsewhere (see :mod:`.staged`)."""
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
        """Define an index.

        Parameters
        ----------
        lag_events_max : int, optional
            Committed events that may wait for this index before appends wait for it.
        state : StreamState, optional
            Build it for that state first, and define it durably when it is built.

        Raises
        ------
        IndexExists
        StorageFull, StorageFailed
            Nothing is defined; it can be tried again.
        CorruptStore
            The stream's indexes are damaged.
        """
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
                if self._definitions.identifiers.get(attribute) == index:  # it was not dropped
                    self._define(self._definitions)
        except BaseException:
            with self._build_lock, suppress(ChronicleError):
                if self._definitions.identifiers.get(attribute) == index:
                    self._undefine(attribute, index)
            raise

    def drop(self, attribute: str) -> None:
        """Remove an index and its runs; raises :class:`IndexNotFound`."""
        with self._build_lock:
            index = self._definitions.identifiers.get(attribute)
            if index is None:
                raise IndexNotFound(f"there is no index on {attribute!r}")
            self._undefine(attribute, index)

    def follow(self, layouts: Sequence[Layout], schema: StreamSchema) -> None:
        """Have indexes go by the names that their attributes have now; those of dropped ones go."""
        with self._build_lock:
            changed = self._definitions.following(layouts, schema)
            if changed.identifiers == self._definitions.identifiers:
                return
            kept = set(changed.identifiers.values())
            gone = [n for n, i in self._definitions.identifiers.items() if i not in kept]
            for name in gone:
                self._undefine(name, self._definitions.identifiers[name])
            if changed.identifiers != self._definitions.identifiers:
                self._define(changed)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While it lasts, nothing is defined or built."""
        with self._build_lock:
            yield

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the indexes in {self.path} are closed; open the store again")

    def _define(self, changed: Definitions) -> None:
        """Make definitions durable, then believe them.

        Where the stream was dropped meanwhile its directory is gone, or another stream's already.
        """
        self._check_open()
        definitions.replace(self.path, changed)
        with self._lock:
            gone = set(self._definitions.identifiers) - set(changed.identifiers)
            self._definitions, self._catalogue = changed, None
        with _derived("definitions are kept without their copy"), self._writing() as storage:
            storage.write(definitions.copy_of(changed), [b"i" + name.encode() for name in gone])
            storage.flush()

    def _undefine(self, attribute: str, index: int) -> None:
        """Remove a definition, durably where it is durable; then its runs, as far as possible."""
        changed = self._definitions.without(attribute)
        defined = definitions.read(self.path)
        if defined is not None and attribute in defined.identifiers:
            self._define(changed)
        with self._lock:
            self._definitions, self._catalogue = changed, None
            for at in [at for at in self._runs if at[0] == index]:
                del self._runs[at]
            self.damaged = {at: why for at, why in self.damaged.items() if at[0] != index}
        with _derived("the runs of a dropped index are left"), self._writing() as storage:
            for kind in (b"d", b"k", b"p", b"n", b"s"):
                storage.delete_prefix(kind + index.to_bytes(4, "big"))
            if not changed.identifiers:
                self._drop_times(storage, list(self._times))
            storage.flush()
        if self.broken and not changed.identifiers:
            self.rebuild()

    # -- building -----------------------------------------------------------------------------

    def missing(
        self, state: StreamState, eager: bool
    ) -> Iterator[tuple[SegmentView, int, int, list[str]]]:
        """Pieces that lack runs: view, first and end position, attributes.

        With ``eager`` also what is not worth a run of its own yet.
        """
        with self._lock:
            attributes = dict(self._definitions.identifiers)
            runs, damaged = dict(self._runs), set(self.damaged)
        if not attributes:
            return
        for place, (segment, events, sealed) in enumerate(sizes_of(state.segments)):
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
                if wanting or (0, segment, first) in damaged:
                    yield state.segments[place].whole, first, end, wanting

    def build_next(self, state: StreamState, eager: bool = False) -> bool:
        """Build the first piece that is missing; False when there is none.

        Raises
        ------
        StorageFull, StorageFailed
            It could not be written, and is missing as before.
        CorruptStore
            The database is damaged.
        """
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
        known = self._definitions.identifiers.values()
        return max((_behind(catalogue, index, state) for index in known), default=0)

    def overdue(self, state: StreamState, share: float = 1.0) -> bool:
        """Whether an index is further behind than that share of what it was allowed."""
        catalogue, known = self.catalogue(), self._definitions
        return any(
            _behind(catalogue, known.identifiers[name], state) > share * limit
            for name, limit in known.limits.items()
        )

    def flush(self) -> None:
        """Make what was built visible to readers in other processes."""
        with self._build_lock:
            if self._storage is not None and self._storage.writable:
                with self._writing() as storage:
                    storage.flush()

    def purge(self, state: StreamState) -> None:
        """Have no file hold anything of segments that a state no longer has."""
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
        old_times = self._times.get((segment, first))
        if old_times is None or old_times.end < end:
            generation = self._generation((0, segment, first), old_times)
            packed = build_times(leaves.ticks(first, end))
            times = TimeRange(segment, first, end, generation, len(packed))
            with self._writing() as storage:
                storage.write(
                    [(time_key(segment, first, generation), packed), descriptor_of(times)]
                )
                with self._lock:
                    self._times[segment, first] = times
                    self.damaged.pop((0, segment, first), None)
                    self._catalogue = None
                if old_times is not None:
                    storage.write([], [time_key(segment, first, old_times.generation)])
        for name in names:
            index = self._definitions.identifiers.get(name)
            if index is None:
                continue
            run_key = (index, segment, first)
            old = self._runs.get(run_key)
            generation = self._generation(run_key, old)
            key = index_key(name, schema)
            values = key.column(leaves, first, end)
            built = build_run(
                index, segment, first, generation, end - first, values.column, key.attribute,
                values.gaps,
            )  # fmt: skip
            at = (index, segment, first, generation)
            puts = [(block_key(b"k", *at, i), block) for i, block in enumerate(built.keys)]
            puts += [(block_key(b"p", *at, i), block) for i, block in enumerate(built.positions)]
            if built.nulls is not None:
                puts.append((block_key(b"n", *at), built.nulls))
            if built.dictionary is not None:
                puts.append((block_key(b"s", *at), built.dictionary))
            puts.append((descriptor_key(index, segment, first), built.run.to_bytes()))
            with self._writing() as storage:
                storage.write(puts)
                with self._lock:
                    self._runs[run_key] = built.run
                    self.damaged.pop(run_key, None)
                    self._catalogue = None
                # what queries know of goes when they know what replaces it
                if old is not None:
                    at = (*run_key, old.generation)
                    gone = [block_key(kind, *at, number) for kind, number in blocks_of(old)]
                    storage.write([], gone)

    def _generation(self, run_key: RunKey, old: Run | TimeRange | None) -> int:
        """A number that neither what is replaced nor what was set aside has."""
        used = [-1 if old is None else old.generation, self.damaged.get(run_key, (-1, ""))[0]]
        return max(self._generations, max(used) + 1)

    def forget(self, state: StreamState, opened: bool = False) -> None:
        """Remove the runs of segments that a state no longer has (retention, compaction).

        With ``opened``, said before the first append to a stream that was opened, also runs that
        reach beyond their segment.  A power cut takes leaves of which nothing but their run was
        synced (durability ``interval`` or ``none``), and other events will come to their positions.
        Where these cannot be removed durably, all of the database is.
        """
        alive = {segment: events for segment, events, _ in sizes_of(state.segments)}
        with self._lock:
            if not any(self._false(alive, opened)):
                return
        with self._build_lock:
            with self._lock:
                runs, times = self._false(alive, opened)
                for run_key in runs:
                    del self._runs[run_key]
                for at in times:
                    del self._times[at]
                self.damaged = {at: why for at, why in self.damaged.items() if at[1] in alive}
                self._catalogue = None
            try:
                with self._writing() as storage:
                    for run_key in runs:
                        self._drop_run(storage, run_key)
                    self._drop_times(storage, times)
                    if opened:
                        storage.flush()
            except (StorageFailed, CorruptStore) as error:
                if not opened:
                    # they come back when the database is opened again, and are removed then
                    logger.warning("runs of segments that are gone are left: %s", error)
                    return
                self.rebuild()

    def _false(
        self, alive: dict[int, int], opened: bool
    ) -> tuple[list[RunKey], list[tuple[int, int]]]:
        """Runs and times that say nothing about the segments that there are."""
        runs = [at for at in self._runs if at[1] not in alive]
        times = [at for at in self._times if at[0] not in alive]
        if opened:
            runs += [at for at, r in self._runs.items() if r.end > alive.get(at[1], r.end)]
            times += [at for at, t in self._times.items() if t.end > alive.get(at[0], t.end)]
        return runs, times

    @staticmethod
    def _drop_run(storage: IndexStorage, run_key: RunKey) -> None:
        storage.write([], [descriptor_key(*run_key)])
        for kind in (b"k", b"p", b"n", b"s"):
            storage.delete_prefix(kind + descriptor_key(*run_key)[1:])

    def _drop_times(self, storage: IndexStorage, places: list[tuple[int, int]]) -> None:
        for at in places:
            storage.write([], [time_key(*at)])
            storage.delete_prefix(b"t" + time_key(*at)[1:])
        with self._lock:
            for at in places:
                self._times.pop(at, None)
            self._catalogue = None

    def rebuild(self) -> None:
        """Throw the database away, whatever state it is in; :meth:`catch_up` builds all anew.

        Raises
        ------
        StorageFull, StorageFailed
            There are no runs then, and :attr:`fault` says why.
        """
        with self._build_lock, self._lock:
            self._disconnect()
            self._no_runs()
            self.damaged = {}
            # a query that has begun must not take new blocks for those of the runs that it knows
            self._generations = secrets.randbits(30)
            try:
                remove_database(self.path, definitions.DIRECTORY)
                definitions.replace(self.path, self._definitions)
                self._storage = IndexStorage(self.path, True)
                self._storage.write(definitions.copy_of(self._definitions))
                self._storage.flush()
            except ChronicleError as error:
                self._disconnect()
                self._failed(error)
                self.broken = False  # nothing is left that could be damaged: try again
                raise
            self.fault, self.notice, self.broken = "", "", False

    # -- figures ------------------------------------------------------------------------------

    def figures(self, attribute: str, state: StreamState) -> dict[str, Any]:
        """Coverage, lag, runs and size of one index; from what is in memory, nothing is read."""
        catalogue = self.catalogue()
        index = self._definitions.identifiers.get(attribute)
        if index is None:
            raise IndexNotFound(f"there is no index on {attribute!r}")
        sizes = sizes_of(state.segments)
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

    @property
    def times_bytes(self) -> int:
        """Bytes of the times that all indexes share."""
        return sum(t.size for listed in self.catalogue().times.values() for t in listed)

    def verify(self, state: StreamState) -> list[str]:
        """Compare every run with the events that it stands for; returns what is wrong."""
        return verify_indexes(self, state)


@contextmanager
def _derived(consequence: str) -> Iterator[None]:
    """Around writes that may fail: nothing depends on them but space or speed."""
    try:
        yield
    except (StorageFailed, CorruptStore) as error:
        logger.warning("%s: %s", consequence, error)


def _behind(catalogue: Catalogue, index: int, state: StreamState) -> int:
    """Committed leaf events that an index does not cover yet."""
    return sum(
        events - sum(r.end - r.first for r in catalogue.runs.get((index, segment), ()))
        for segment, events, _ in sizes_of(state.segments)
    )
