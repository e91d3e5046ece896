"""Positions: places in a stream's history from which a follower goes on.

Purpose
    A streaming query behind a url has read a stream up to some commit and wants what came after
    it: in order, late, or loaded in bulk.  :class:`Positions` keeps the commit for it under a name,
    says which time ranges have news beyond it, and reads them.

Guarantee
    What lies between two positions is the same events whenever it is asked for, each exactly once
    (see :mod:`chronicle.store.changes`), also after this server was stopped and started again: the
    positions lie in the stream's directory, and the files that they need stay as long as they do. A
    position that is no longer kept answers 410; others never take its place.  A position belongs
    to the token that made it, by the token's name: to any other one it is not kept.

Layout
    A position's name is its commit position, 16 random digits, and 8 that a hash makes of these and
    its owner: ``57-03ab5c7d9e1f2a4b6c8d0e2f``.  It is the same kind of file that followers of a
    path leave beside the stream (:mod:`chronicle.store.pin_files`).

Limits
    A position ends ``CHRONICLE_POSITION_TTL_HOURS`` after it was made or last renewed.  While it
    lives, compaction and retention cannot free what it needs: ``CHRONICLE_MAX_POSITIONS`` bounds
    how many a stream keeps.  An answer that is lost on its way leaves a position behind that ends
    by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import (
    ChronicleError,
    InvalidArgument,
    ReadOnlyStore,
    ResourceLimit,
    SnapshotExpired,
)
from ...store import EventStream
from ...store.changes import NewRange, new_events, new_ranges
from ...store.pin_files import drop_pin, keep_pin, kept_pins, load_pin, renew_pin, sweep_pins
from ...store.pins import Pin
from ...store.recovery import load

if TYPE_CHECKING:
    from ...api.database import Database

__all__ = ["Positions"]

_NAME = re.compile(r"([0-9]{1,19})-([0-9a-f]{16})([0-9a-f]{8})?")


class Positions:
    """The positions of one database's streams; all methods block.

    Parameters
    ----------
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

    def keep(
        self, stream: str, owner: str, at: int | None = None, after: str | None = None
    ) -> str | None:
        """Keep a commit of a stream; gives the position's name.

        Parameters
        ----------
        owner : str
            To whom it shall belong.
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
            _check_owner(after, owner)
            renew_pin(files, directory, after, seconds=self._keep_s, clock=self._clock)
            if load(files, directory).journal.position <= known:
                return None
        with self._guard:  # so that many who ask at once do not pass the bound together
            if self._full(kept_pins(files, directory), owner):
                sweep_pins(files, directory, clock=self._clock)
                if self._full(kept_pins(files, directory), owner):
                    raise ResourceLimit(
                        f"the stream {stream!r} keeps {self._most} positions for followers, "
                        "three quarters of them for one token at most "
                        "(CHRONICLE_MAX_POSITIONS); drop those that nobody needs, or raise it"
                    )
            return keep_pin(
                files,
                directory,
                position=at,
                seconds=self._keep_s,
                clock=self._clock,
                suffix=_suffix(secrets.token_hex(8), owner),
            )

    def _full(self, names: list[str], owner: str) -> bool:
        """Whether there are as many as a stream keeps, or one owner may have of them."""
        mine = sum(_belongs(name, owner) for name in names)
        share = self._most - (self._most // 4 if owner else 0)
        return len(names) >= self._most or mine >= share

    def drop(self, stream: str, owner: str, name: str) -> None:
        """Give a position up; doing so again, or with that of another, does nothing."""
        _commit_of(name)
        handle = self._writer(stream)
        if _belongs(name, owner):
            drop_pin(handle.commits.files, handle.commits.directory, name)

    def ranges(self, stream: str, owner: str, after: str | None, until: str) -> list[NewRange]:
        """Time ranges that hold what was committed after one position and up to another."""
        handle = self._writer(stream)
        before, later = self._pins(handle, owner, after, until)
        return new_ranges(handle.commits.files, before, later)

    def events(
        self,
        stream: str,
        owner: str,
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
        skip : int
            New events at the beginning that are left out.
        limit : int, optional
            How many are given after those.
        check : callable, optional
            Called often; what it raises ends the read.
        """
        handle = self._writer(stream)
        before, later = self._pins(handle, owner, after, until)
        files = handle.commits.files
        return _cut(new_events(files, before, later, start, end, columns, check), skip, limit)

    def sweep(self) -> None:
        """Remove the positions that have ended."""
        for name in self._database.streams():
            with contextlib.suppress(ChronicleError):
                handle = self._writer(name)
                sweep_pins(handle.commits.files, handle.commits.directory, clock=self._clock)

    def _pins(
        self, handle: EventStream, owner: str, after: str | None, until: str
    ) -> tuple[Pin | None, Pin]:
        files, directory = handle.commits.files, handle.commits.directory
        if after is not None and _commit_of(after) > _commit_of(until):
            raise InvalidArgument(f"'after' ({after}) lies behind 'until' ({until})")
        _commit_of(until)
        for name in (after, until):
            if name is not None:
                _check_owner(name, owner)
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
            f"expected the name of a position, such as 57-03ab5c7d9e1f2a4b6c8d0e2f, found {name!r}"
        )
    return int(found[1])


def _suffix(unique: str, owner: str) -> str:
    """What makes a position's name unique, and ties it to its owner."""
    return unique + hashlib.sha256(f"{unique}\n{owner}".encode()).hexdigest()[:8]


def _belongs(name: str, owner: str) -> bool:
    """Whether a position is the owner's, or nobody's.

    Nobody's are those of a server without tokens, of an earlier release and of followers of a path.
    """
    found = _NAME.fullmatch(name)
    if found is None or found[3] is None:
        return True
    return found[2] + found[3] in (_suffix(found[2], owner), _suffix(found[2], ""))


def _check_owner(name: str, owner: str) -> None:
    """Refuse the position of another as one that is not kept."""
    if not _belongs(name, owner):
        raise SnapshotExpired(
            f"the position {name} of a follower is no longer kept (unused for too long, or "
            "dropped): follow the stream anew, with a new checkpoint"
        )


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
