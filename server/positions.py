"""Positions: places in a stream's history from which a follower goes on.

Purpose
    A streaming query behind a url has read a stream up to some commit and wants what came after
    it: in order, late, or loaded in bulk.  :class:`Positions` keeps the commit for it under a name,
    says which time ranges have news beyond it, and reads them.

Guarantee
    What lies between two positions is the same events whenever it is asked for, each exactly once
    (see :mod:`chronicle.store.changes`), also after this server was stopped and started again: the
    positions lie in the stream's directory, and the files that they need stay as long as they do. A
    position that is no longer kept answers 410; others never take its place.

Layout
    A position's name begins with its commit position: ``57-03ab...``.  It is the same kind of file
    that followers of a path leave beside the stream (:mod:`chronicle.store.kept_pins`).

Limits
    A position ends ``CHRONICLE_POSITION_TTL_HOURS`` after it was made or last renewed.  While it
    lives, compaction and retention cannot free what it needs: ``CHRONICLE_MAX_POSITIONS`` bounds
    how many a stream keeps.  An answer that is lost on its way leaves a position behind that ends
    by itself.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..errors import ChronicleError, InvalidArgument, ReadOnlyStore, ResourceLimit
from ..store import EventStream
from ..store.changes import NewRange, new_events, new_ranges
from ..store.kept_pins import drop_pin, keep_pin, kept_pins, load_pin, renew_pin, sweep_pins
from ..store.pinned import Pin
from ..store.recovery import load

if TYPE_CHECKING:
    from ..database import Database

__all__ = ["Positions"]

_NAME = re.compile(r"([0-9]{1,19})-[0-9a-f]{16}")


class Positions:
    """The positions of one database's streams; all methods block.

    Parameters
    ----------
    database : Database
    keep_s : float
        Seconds that a position lives after it was made or renewed.
    most : int
        Positions that one stream keeps.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        keep_s: float,
        most: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._keep_s = keep_s
        self._most = most
        self._clock = clock
        self._guard = threading.Lock()

    def keep(self, stream: str, at: int | None = None, after: str | None = None) -> str | None:
        """Keep a commit of a stream; gives the position's name.

        Parameters
        ----------
        at : int, optional
            Which commit; the last one when not given.
        after : str, optional
            A position, which is renewed: None is given when nothing was committed after it.

        Raises
        ------
        ResourceLimit
            When the stream keeps as many as it may.
        SnapshotExpired
            When `after` is no longer kept, or `at` no longer known.
        """
        handle = self._writer(stream)
        files, directory = handle.commits.files, handle.commits.directory
        if after is not None:
            known = _commit_of(after)
            renew_pin(files, directory, after, seconds=self._keep_s, clock=self._clock)
            if load(files, directory).journal.position <= known:
                return None
        with self._guard:  # so that many who ask at once do not pass the bound together
            if len(kept_pins(files, directory)) >= self._most:
                sweep_pins(files, directory, clock=self._clock)
                if len(kept_pins(files, directory)) >= self._most:
                    raise ResourceLimit(
                        f"the stream {stream!r} keeps {self._most} positions for followers "
                        "(CHRONICLE_MAX_POSITIONS); drop those that nobody needs, or raise it"
                    )
            return keep_pin(files, directory, position=at, seconds=self._keep_s, clock=self._clock)

    def drop(self, stream: str, name: str) -> None:
        """Give a position up; doing so again does nothing."""
        _commit_of(name)
        handle = self._writer(stream)
        drop_pin(handle.commits.files, handle.commits.directory, name)

    def ranges(self, stream: str, after: str | None, until: str) -> list[NewRange]:
        """Time ranges that hold what was committed after one position and up to another."""
        handle = self._writer(stream)
        before, later = self._pins(handle, after, until)
        return new_ranges(handle.commits.files, before, later)

    def events(
        self,
        stream: str,
        after: str | None,
        until: str,
        start: int | None,
        end: int | None,
        columns: Sequence[str],
        skip: int = 0,
        limit: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The new events of a time range, in time order.

        Parameters
        ----------
        start, end : int or None
            Ticks, half-open.
        columns : sequence of str
        skip : int
            New events at the beginning that are left out.
        limit : int, optional
            How many are given after those.
        check : callable, optional
            Called often; what it raises ends the read.
        """
        handle = self._writer(stream)
        before, later = self._pins(handle, after, until)
        files = handle.commits.files
        return _cut(new_events(files, before, later, start, end, columns, check), skip, limit)

    def sweep(self) -> None:
        """Remove the positions that have ended."""
        for name in self._database.streams():
            with contextlib.suppress(ChronicleError):
                handle = self._writer(name)
                sweep_pins(handle.commits.files, handle.commits.directory, clock=self._clock)

    def _pins(self, handle: EventStream, after: str | None, until: str) -> tuple[Pin | None, Pin]:
        files, directory = handle.commits.files, handle.commits.directory
        if after is not None and _commit_of(after) > _commit_of(until):
            raise InvalidArgument(f"'after' ({after}) lies behind 'until' ({until})")
        _commit_of(until)
        before = None if after is None else load_pin(files, directory, after)
        return before, load_pin(files, directory, until)

    def _writer(self, stream: str) -> EventStream:
        handle = self._database.stream(stream).handle
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(
                "the store is open for reading here, and positions are files beside the stream; "
                "follow it through the server that writes"
            )
        return handle


def _commit_of(name: str) -> int:
    """Commit position in a position's name; names come from outside and become file names."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidArgument(
            f"expected the name of a position, such as 57-03ab5c7d9e1f2a4b, found {name!r}"
        )
    return int(found[1])


def _cut(
    batches: Iterator[pa.RecordBatch], skip: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None and left <= 0:
            return
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        chosen = batch.slice(skip) if left is None else batch.slice(skip, left)
        skip = 0
        if left is not None:
            left -= chosen.num_rows
        yield chosen
