"""Reading the runs of one stream's indexes; damage never makes a query fail:

======================  ======================================================================
an unreadable block     its run is *set aside*: uncovered from then on, listed in ``damaged``,
                        rebuilt by the writer
the database does not   no index has runs, for the reason in ``fault``: until a rebuild if it
open                    is damaged (``broken``), else until the next attempt
a writer cannot write   the database is opened for reading, and for writing again by the next
(full disk)             write; ``fault`` says so
======================  ======================================================================

``_build_lock`` is held while writing, and taken first; ``_lock`` guards memory.

An immutable ``Catalogue`` says what is indexed at one moment, for query planning.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedDict

from ..core.caches import Lru
from ..errors import ChronicleError, CorruptStore, StorageFailed, StoreClosed
from . import definitions
from .definitions import Definitions
from .runs import Run
from .storage import TIMES, IndexStorage, block_key, parse_descriptor_key


class RunsChanged(Exception):
    """A run was replaced, dropped or set aside during a query; plan again."""


@dataclass(frozen=True)
class TimeRange:
    """Times of positions [first, end) of a segment are stored."""

    segment: int
    first: int
    end: int
    generation: int
    size: int
    index: ClassVar[int] = TIMES

    def to_bytes(self) -> bytes:
        record = {"end": self.end, "generation": self.generation, "size": self.size}
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, segment: int, first: int, data: bytes) -> TimeRange:
        try:
            return cls(segment, first, **json.loads(data))
        except (ValueError, TypeError) as error:
            raise CorruptStore(f"a descriptor of times does not read: {error}") from error


@dataclass(frozen=True)
class Catalogue:
    """Identifiers by attribute (none if unreadable), runs by (index, segment), times by segment."""

    attributes: Mapping[str, int]
    runs: Mapping[tuple[int, int], tuple[Run, ...]]
    times: Mapping[int, tuple[TimeRange, ...]]


def blocks_of(run: Run | TimeRange) -> list[tuple[bytes, int]]:
    if isinstance(run, TimeRange):
        return [(b"t", 0)]
    blocks = [(kind, block) for kind in (b"k", b"p") for block in range(run.blocks)]
    if run.listed:
        blocks.append((b"n", 0))
    if run.text == "dictionary":
        blocks.append((b"s", 0))
    return blocks


logger = logging.getLogger("chronicle.indexes")

CACHE_BYTES = 88 << 20
"""Above RocksDB's smaller cache, which copies each value twice per lookup: it halves the planning
of a pattern whose terms have 900,000 entries in 140 blocks.
"""

RunKey = tuple[int, int, int]
"""Index, segment and first position of a run; the index ``storage.TIMES`` for times."""


class OpenedIndexes:
    """The runs of one stream's indexes; a reader sees what the writer has flushed.

    ``fault``: why no run can be read, or (of a writer) written; ``broken`` if that is damage.
    ``damaged``: generation and reason of runs and times that were set aside.
    ``heard``: called when a run was set aside.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.fault = ""
        self.broken = False
        self.damaged: dict[RunKey, tuple[int, str]] = {}
        self.heard: Callable[[], None] | None = None
        self._storage: IndexStorage | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._build_lock = threading.RLock()
        self._definitions = Definitions()
        # ordered by key
        self._runs: dict[RunKey, Run | TimeRange] = SortedDict()
        self._catalogue: Catalogue | None = None
        self._cache = Lru[bytes, bytes](CACHE_BYTES, len)
        self._open()

    # -- opening ------------------------------------------------------------------------------

    def _open(self) -> None:
        with self._lock:
            self._no_runs()
            self.fault, self.broken = "", False
            try:
                self._definitions = definitions.read(self.path)
                if (self.path / "CURRENT").exists():
                    self._connect()
                    self._load()
                elif self._definitions.identifiers:
                    raise CorruptStore(
                        f"the database in {self.path} is missing; queries answer the same without; "
                        "`chronicle check --repair` builds it again"
                    )
            except ChronicleError as error:
                self._disconnect()
                self._failed(error)

    def _failed(self, error: ChronicleError) -> None:
        logger.warning("indexes cannot be used: %s", error)
        self.fault, self.broken = str(error), isinstance(error, CorruptStore)

    def _connect(self) -> None:
        """Open the database to write, or if that is impossible for now, to read."""
        try:
            self._storage = IndexStorage(self.path, self.writable)
        except StorageFailed as error:
            if not self.writable:
                raise
            self._storage = IndexStorage(self.path, False)
            self._failed(error)

    def _disconnect(self) -> None:
        storage, self._storage = self._storage, None
        if storage is not None:
            with suppress(ChronicleError):
                storage.close()

    def _load(self) -> None:
        storage = self._storage
        assert storage is not None
        numbers = set(self._definitions.identifiers.values())
        runs: dict[RunKey, Run | TimeRange] = SortedDict()
        strangers: set[int] = set()
        for key, value in (*storage.scan(b"d"), *storage.scan(b"D")):
            run_key = parse_descriptor_key(key)
            if run_key[0] == TIMES:
                runs[run_key] = TimeRange.from_bytes(*run_key[1:], value)
            elif run_key[0] in numbers:
                runs[run_key] = Run.from_bytes(*run_key, value)
            else:
                strangers.add(run_key[0])
        with self._lock:
            for run_key, (generation, _) in self.damaged.items():
                run = runs.get(run_key)
                if run is not None and run.generation <= generation:
                    del runs[run_key]
            self._runs, self._catalogue = runs, None
            # do not reuse the identifier of an interrupted creation
            self._definitions = self._definitions.beyond(max(strangers, default=0))

    def refresh(self) -> None:
        """In a reader: load the writer's changes."""
        if self.writable:
            return
        with self._lock:
            before, opened = self._definitions, self._storage
            try:
                self._definitions = definitions.read(self.path)
                if opened is not None:
                    if opened.refresh() or self._definitions != before:
                        self._load()
                    return
            except ChronicleError:
                pass  # reopening reports the problem
            self._disconnect()
            self._open()

    def close(self) -> None:
        self._closed = True
        with self._build_lock, self._lock:
            storage, self._storage = self._storage, None
            self._no_runs()
            try:
                if storage is not None:
                    storage.close()
            except ChronicleError as error:
                logger.warning("what was not on disk is built again: %s", error)

    def trouble(self, attribute: str | None = None) -> str:
        """Why some runs, of one attribute or of any, are not used; empty if none."""
        if self.fault:
            return self.fault
        with self._lock:
            index = None if attribute is None else self._definitions.identifiers.get(attribute)
            reasons = [why for at, (_, why) in self.damaged.items() if index in (None, at[0])]
        return f"{len(reasons)} damaged runs are not used: {reasons[0]}" if reasons else ""

    # -- what there is ------------------------------------------------------------------------

    @property
    def attributes(self) -> list[str]:
        identifiers = self._definitions.identifiers
        return sorted(identifiers, key=identifiers.__getitem__)

    @property
    def identifiers(self) -> dict[str, int]:
        return dict(self._definitions.identifiers)

    @property
    def definitions(self) -> Definitions:
        return self._definitions

    def catalogue(self) -> Catalogue:
        with self._lock:
            if self._catalogue is None:
                usable = {} if self._storage is None else dict(self._definitions.identifiers)
                numbers = set(usable.values())
                runs: dict[tuple[int, int], list[Run]] = {}
                times: dict[int, list[TimeRange]] = {}
                for (index, segment, _), run in self._runs.items():
                    if isinstance(run, TimeRange):
                        times.setdefault(segment, []).append(run)
                    elif index in numbers:
                        runs.setdefault((index, segment), []).append(run)
                self._catalogue = Catalogue(
                    usable,
                    {key: tuple(listed) for key, listed in runs.items()},
                    {segment: tuple(listed) for segment, listed in times.items()},
                )
            return self._catalogue

    # -- reading ------------------------------------------------------------------------------

    def block(self, kind: bytes, run: Run | TimeRange, number: int = 0) -> bytes:
        """A block; ``RunsChanged`` if gone or unreadable."""
        run_key = (run.index, run.segment, run.first)
        key = block_key(kind, *run_key, run.generation, number)
        with self._lock:  # held while a database is reopened with a new cache
            cache = self._cache
        value = cache.get(key)
        if value is None:
            value = self._fetch(key, run_key, run.generation)
            cache.put(key, value)
        return value

    def words(self, kind: bytes, run: Run | TimeRange, number: int = 0) -> npt.NDArray[Any]:
        """A block as 64-bit words: signed for keys and times, unsigned for positions."""
        dtype = np.int64 if kind in (b"k", b"t") else np.uint64
        return np.frombuffer(self.block(kind, run, number), dtype)

    def _no_runs(self) -> None:
        self._runs, self._catalogue = SortedDict(), None
        self._cache = Lru(CACHE_BYTES, len)

    def _fetch(self, key: bytes, run_key: RunKey, generation: int) -> bytes:
        storage = self._storage
        why = "a block is missing"
        try:
            if storage is not None:
                data = storage.get(key)
                if data is not None:
                    return data
        except StoreClosed:  # dropped, or reopened after a failed write
            raise RunsChanged from None
        except (StorageFailed, CorruptStore) as error:
            why = str(error)
        if self._set_aside(run_key, generation, why, storage):
            raise RunsChanged(why)
        raise RunsChanged

    def _set_aside(
        self, run_key: RunKey, generation: int, why: str, storage: IndexStorage | None
    ) -> bool:
        """Drop an unreadable run (or times); False if it was replaced meanwhile."""
        index, segment, first = run_key
        with self._lock:
            run = self._runs.get(run_key)
            if run is None or run.generation != generation or self._storage is not storage:
                return False  # replaced or dropped meanwhile
            del self._runs[run_key]
            self.damaged[run_key] = (generation, why)
            self._catalogue = None
        names = {number: name for name, number in self._definitions.identifiers.items()}
        logger.warning(
            "%s: %s of segment %d from position %d set aside: %s", self.path,
            "the times" if index == TIMES else f"the run of {names.get(index, index)}",
            segment, first, why,
        )  # fmt: skip
        if self.heard is not None:
            self.heard()
        return True
