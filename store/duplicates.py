"""Duplicates: which events of an append are stored already.

Purpose
    :class:`RecentKeys` takes the duplicates out of what is appended to a stream with ``unique``
    (``schema.py`` defines them); :func:`duplicates_among` is the decision itself, which bulk
    loads share (:mod:`.bulk_duplicates`).

How it goes
    ::

        batch ── hashes of keys ── KeyWindow.find ── none suspect: stored whole, nothing is read
                                        |
                                    suspects ── events of the stream at the ticks of the hits
                                                        |
                                     keys compared, in order of time ── duplicates

    The window of keys (:mod:`.key_window`) covers the stream from some tick on, the *floor*: so far
    back that an event which is not late, or late by at most half of ``within``, is decided by it.
    For what is later, the stream is read around the event, as far as the bounds of leaves on the
    key's columns do not rule it out.

Guarantee
    Nothing is left out whose key has not been compared, value by value, with that of an event that
    is stored.  The decision is made and committed under the stream's lock, so no two appends can
    store the same key; and it is made on what is stored, from the log's last record on, so what was
    appended before a crash is recognised after it.

Why the window needs no undoing
    It is valid for one commit position, and read anew from the stream at any other: after opening,
    after a bulk load, after an alteration.  Keys in it whose events are gone (deleted, dropped)
    lead to a look at the stream, which does not find them.

Limits
    The window holds :data:`KEYS_MAX` keys.  When ``within`` holds more events than that, each
    append reads what the window does not cover: correct, and slow.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel
from ..core.sorting import distinct, order_of
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..schema import Storage, StreamSchema, Uniqueness
from .columns import ColumnView
from .commits import Commits
from .key_hash import Hashes, key_groups, key_hashes, with_whole_key
from .key_window import KeyWindow, Ticks
from .prune import AllOf, Prune, Range
from .snapshot import Snapshot
from .tail import ticks_of

__all__ = [
    "Keys",
    "RecentKeys",
    "Sifted",
    "compared_columns",
    "duplicates_among",
    "keys_of",
    "stored_events",
    "unique_events",
    "without",
]

logger = logging.getLogger("chronicle.store")

KEYS_MAX = 1 << 24
"""Keys that a stream's window holds: half a gigabyte."""

KEYS_MIN = 1 << 16
"""Keys below which the window is not tidied up."""

READS_MAX = 16
"""Stretches of a stream that are read for one append: a gap that is a smaller part of the whole is
read, too."""

Fetch = Callable[[int, int, "Prune | None"], Iterable[pa.RecordBatch]]
"""Events that are stored between two ticks, both inclusive: the key's columns and the time."""


@dataclass(frozen=True)
class Keys:
    """The keys of a batch's events.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        In order of time.
    rows : int64[n] or None
        Rows with a whole key; None for all of them.
    hashes, ticks : arrays
        Of these rows.
    """

    batch: pa.RecordBatch
    rows: Ticks | None
    hashes: Hashes
    ticks: Ticks

    def kept(self, mask: npt.NDArray[np.bool_]) -> tuple[Hashes, Ticks]:
        """Hashes and ticks of the keys among some rows of the batch."""
        if self.rows is not None:
            mask = mask[self.rows]
        return self.hashes[mask], self.ticks[mask]


def keys_of(batch: pa.RecordBatch, ticks: Ticks, rule: Uniqueness, schema: StreamSchema) -> Keys:
    """The keys of a batch, which is in order of time."""
    rows = with_whole_key(batch, rule.columns)
    if rows is None:
        return Keys(batch, None, key_hashes(batch, rule.columns, schema), ticks)
    whole = batch.select(rule.columns).take(pa.array(rows))
    return Keys(batch, rows, key_hashes(whole, rule.columns, schema), ticks[rows])


def compared_columns(rule: Uniqueness, schema: StreamSchema) -> list[str]:
    """The columns of the key, and the time."""
    return [name for name in schema.names if name in (*rule.columns, schema.time)]


def stored_events(snapshot: Snapshot, rule: Uniqueness) -> Fetch:
    """Reads the events of a snapshot, for :func:`duplicates_among`."""
    columns = compared_columns(rule, snapshot.schema)

    def fetch(first: int, last: int, prune: Prune | None) -> Iterator[pa.RecordBatch]:
        end = None if last == INT64_MAX else last + 1
        return snapshot.scan(first, end, columns, prune=prune)

    return fetch


def duplicates_among(
    keys: Keys,
    window: KeyWindow,
    floor: int,
    fetch: Fetch,
    rule: Uniqueness,
    schema: StreamSchema,
) -> Ticks:
    """Rows of a batch that are duplicates, ascending.

    Parameters
    ----------
    window : KeyWindow
        Holds the key of every stored event from the tick ``floor`` on.
    fetch : callable
        Gives stored events.
    """
    suspects = window.find(keys.hashes, keys.ticks, rule.within)
    reads = [
        (int(first), int(last))
        for first, last in zip(*_united(suspects.first, suspects.last), strict=True)
    ]
    rows = suspects.rows
    below = _beyond(keys.ticks, floor, rule.within)
    if below:
        last_read = min(moved(int(keys.ticks[below - 1]), rule.within), floor - 1)
        reads.append((moved(int(keys.ticks[0]), -rule.within), last_read))
        rows = distinct(np.concatenate([rows, np.arange(below)]))
    if not rows.size:
        return rows
    events = keys.batch
    numbers = rows if keys.rows is None else keys.rows[rows]
    asked = events.select(compared_columns(rule, schema)).take(pa.array(numbers))
    known = _stored(fetch, reads, asked, keys.hashes[rows], rule, schema)
    groups = key_groups([*known, asked], rule.columns)
    ticks = np.concatenate([ticks_of(batch, schema) for batch in (*known, asked)])
    new = np.arange(ticks.size) >= ticks.size - rows.size
    order = order_of(ticks, groups)  # new ones stand behind the others
    left_out = np.zeros(ticks.size, np.bool_)
    _decide(groups, ticks, new, order, rule.within, left_out)
    return np.asarray(numbers[left_out[ticks.size - rows.size :]])


def unique_events(batch: pa.RecordBatch, rule: Uniqueness, schema: StreamSchema) -> pa.RecordBatch:
    """A batch, which is in order of time, without the duplicates of its own events."""
    keys = keys_of(batch, ticks_of(batch, schema), rule, schema)
    out = duplicates_among(keys, KeyWindow(), INT64_MIN, lambda *_: (), rule, schema)
    return without(batch, out)[0]


def without(batch: pa.RecordBatch, out: Ticks) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    """A batch without some of its rows, and which of them are kept."""
    kept = np.ones(batch.num_rows, np.bool_)
    kept[out] = False
    return batch.filter(pa.array(kept)) if out.size else batch, kept


def _beyond(ticks: Ticks, floor: int, within: int) -> int:
    """Events at the front that may have an equal one before the floor."""
    if floor == INT64_MIN:
        return 0
    return int(np.searchsorted(ticks, moved(floor, within)))


def _united(first: Ticks, last: Ticks) -> tuple[Ticks, Ticks]:
    """A few stretches that cover others, which may be many: small gaps are read, too."""
    some = np.flatnonzero(first <= last)
    order = some[order_of(first[some])]
    first, last = first[order], np.maximum.accumulate(last[order])
    if not first.size:
        return first, last
    gaps = first[1:] - last[:-1]
    cuts = np.flatnonzero(gaps > max(1, (int(last[-1]) - int(first[0])) // READS_MAX))
    starts = np.concatenate([[0], cuts + 1])
    ends = np.concatenate([cuts, [first.size - 1]])
    return first[starts], last[ends]


def _stored(
    fetch: Fetch,
    reads: list[tuple[int, int]],
    asked: pa.RecordBatch,
    hashes: Hashes,
    rule: Uniqueness,
    schema: StreamSchema,
) -> list[pa.RecordBatch]:
    """Stored events that have the hash of one that is asked for."""
    found = []
    prune = _bounds(asked, rule, schema)
    wanted = distinct(hashes)
    for first, last in reads:
        for batch in fetch(first, last, prune):
            rows = with_whole_key(batch, rule.columns)
            if rows is not None:
                batch = batch.take(pa.array(rows))
            same = np.isin(key_hashes(batch, rule.columns, schema), wanted)
            if same.any():
                found.append(batch.filter(pa.array(same)))
    return found


def _bounds(asked: pa.RecordBatch, rule: Uniqueness, schema: StreamSchema) -> Prune | None:
    """What min and max of a leaf have to allow for one of these keys to be in it."""
    ranges = []
    for name in rule.columns:
        attribute = schema.attribute(name)
        if name == schema.time or attribute.storage not in (Storage.SIGNED, Storage.STRING):
            continue
        column = asked.column(name)
        if attribute.storage is Storage.SIGNED:
            values = ColumnView(attribute, column).values
            ranges.append(Range(name, int(values.min()), int(values.max())))
        else:
            limits = pc.min_max(column)
            ranges.append(Range(name, limits["min"].as_py(), limits["max"].as_py()))
    return AllOf(tuple(ranges)) if ranges else None


@kernel
def _decide(groups, ticks, new, order, within, left_out):
    """Mark the new events that have a stored one, or a kept new one, of their group near them.

    In order of group and time.  What is nearest decides: before, the last one that is stored or
    kept; behind, the next one that is stored.
    """
    nothing = -1
    behind = np.full(order.shape[0], nothing)
    following = nothing
    for i in range(order.shape[0] - 1, -1, -1):
        at = order[i]
        if following != nothing and groups[following] != groups[at]:
            following = nothing
        behind[i] = following
        if not new[at]:
            following = at
    before = nothing
    for i in range(order.shape[0]):
        at = order[i]
        if before != nothing and groups[before] != groups[at]:
            before = nothing
        if new[at]:
            if before != nothing and np.uint64(ticks[at]) - np.uint64(ticks[before]) <= np.uint64(
                within
            ):
                left_out[at] = True
                continue
            after = behind[i]
            if after != nothing and np.uint64(ticks[after]) - np.uint64(ticks[at]) <= np.uint64(
                within
            ):
                left_out[at] = True
                continue
        before = at


@dataclass(frozen=True)
class Sifted:
    """A batch without its duplicates.

    Attributes
    ----------
    batch, ticks
        What is to be stored.
    hashes, key_ticks : arrays
        The keys in it.
    duplicates : int
        Events that were left out.
    """

    batch: pa.RecordBatch
    ticks: Ticks
    hashes: Hashes
    key_ticks: Ticks
    duplicates: int


class RecentKeys:
    """The keys of a stream's recent events; the stream's lock is held wherever it is used."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._rule: Uniqueness | None = None
        self._position = -1
        self._window = KeyWindow()
        self._floor = INT64_MIN
        self._tidy_at = KEYS_MIN

    def sift(self, keys: Keys, rule: Uniqueness) -> Sifted:
        """Take the duplicates out of what is about to be appended."""
        commits, schema = self._commits, self._commits.schema
        if self._rule != rule or self._position != commits.journal.position:
            self._read(Snapshot(commits.state()), rule)

        def fetch(first: int, last: int, prune: Prune | None) -> Iterable[pa.RecordBatch]:
            return stored_events(Snapshot(commits.state()), rule)(first, last, prune)

        out = duplicates_among(keys, self._window, self._floor, fetch, rule, schema)
        batch, kept = without(keys.batch, out)
        return Sifted(batch, ticks_of(batch, schema), *keys.kept(kept), out.size)

    def committed(self, sifted: Sifted) -> None:
        """What was sifted last is stored, by the commit that came next."""
        self._add(sifted.hashes, sifted.key_ticks)
        self._position = self._commits.journal.position

    def _read(self, snapshot: Snapshot, rule: Uniqueness) -> None:
        """Read the keys of a stream's last stretch."""
        self._rule, self._position = None, -1
        self._window, self._floor, self._tidy_at = KeyWindow(), INT64_MIN, KEYS_MIN
        span = snapshot.time_range
        if span is not None:
            floor = moved(span[1], -(rule.within + rule.within // 2))
            self._floor = floor if floor > span[0] else INT64_MIN
            for batch in stored_events(snapshot, rule)(self._floor, INT64_MAX, None):
                keys = keys_of(batch, ticks_of(batch, snapshot.schema), rule, snapshot.schema)
                self._add(keys.hashes, keys.ticks)
        self._rule, self._position = rule, self._commits.journal.position

    def _add(self, hashes: Hashes, ticks: Ticks) -> None:
        """Take keys in, and let go of those that are too old, or too many."""
        recent = ticks >= self._floor
        window = self._window
        window.add(hashes[recent], ticks[recent])
        rule, last = self._rule, self._commits.journal.last
        if rule is not None and last is not None and window.size >= self._tidy_at:
            self._raise(moved(last, -(rule.within + rule.within // 2)))
            self._tidy_at = max(KEYS_MIN, window.size + window.size // 2)
        if window.size > KEYS_MAX:
            self._raise(window.middle + 1)
            if rule is not None and last is not None and moved(last, -rule.within) < self._floor:
                logger.warning(
                    "%s: %s holds more than %d keys: appends read the stream for what is before",
                    self._commits.directory, "the time that unique looks back", KEYS_MAX,
                )  # fmt: skip

    def _raise(self, floor: int) -> None:
        if floor > self._floor:
            self._window.forget(floor)
            self._floor = floor
