"""Deduplication of appends to a stream with ``unique`` (see ``uniqueness``), also for bulk loads.

::

    batch ── hashes of keys ── KeyWindow.find ── no suspects: stored whole, nothing is read
                                    |
                                suspects ── events of the stream at the ticks of the hits
                                                    |
                                 keys compared, in time order ── duplicates

The key window (``key_window``) covers the stream from its *floor* on: far enough back for events
that are late by at most half of ``within``.  For later events, the stream is read around the event,
except leaves whose bounds on the key columns rule it out.  The window is valid for one commit
position, else it is read again; keys of removed events are false positives.

Guarantee: an event is left out only after its key was compared, value by value, with that of a
stored event.  Decision and commit happen under the stream's lock, so no two appends store the same
key; all logged events count, so this holds across a crash.

Limits: the window holds ``KEYS_MAX`` keys; beyond, each append reads the stream, which is slow.
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
"""Keys in a stream's window: half a gigabyte."""

KEYS_MIN = 1 << 16
"""The window is pruned only above this number of keys."""

READS_MAX = 16
"""Maximum ranges of a stream that are read for one append; smaller gaps are read, too."""

Fetch = Callable[[int, int, "Prune | None"], Iterable[pa.RecordBatch]]
"""Stored events between two inclusive ticks: the key columns and the time."""


@dataclass(frozen=True)
class Keys:
    """The keys of a batch in time order; ``rows`` are those with a complete key, None for all."""

    batch: pa.RecordBatch
    rows: Ticks | None
    hashes: Hashes
    ticks: Ticks

    def kept(self, mask: npt.NDArray[np.bool_]) -> tuple[Hashes, Ticks]:
        if self.rows is not None:
            mask = mask[self.rows]
        return self.hashes[mask], self.ticks[mask]


def keys_of(batch: pa.RecordBatch, ticks: Ticks, rule: Uniqueness, schema: StreamSchema) -> Keys:
    rows = with_whole_key(batch, rule.columns)
    if rows is None:
        return Keys(batch, None, key_hashes(batch, rule.columns, schema), ticks)
    whole = batch.select(rule.columns).take(pa.array(rows))
    return Keys(batch, rows, key_hashes(whole, rule.columns, schema), ticks[rows])


def compared_columns(rule: Uniqueness, schema: StreamSchema) -> list[str]:
    return [name for name in schema.names if name in (*rule.columns, schema.time)]


def stored_events(snapshot: Snapshot, rule: Uniqueness) -> Fetch:
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
    """Ascending rows that are duplicates; ``window`` has all stored keys from ``floor`` on."""
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
    order = order_of(ticks, groups)  # new events come after stored ones
    left_out = np.zeros(ticks.size, np.bool_)
    _decide(groups, ticks, new, order, rule.within, left_out)
    return np.asarray(numbers[left_out[ticks.size - rows.size :]])


def unique_events(batch: pa.RecordBatch, rule: Uniqueness, schema: StreamSchema) -> pa.RecordBatch:
    """A batch in time order without duplicates among its own events."""
    keys = keys_of(batch, ticks_of(batch, schema), rule, schema)
    out = duplicates_among(keys, KeyWindow(), INT64_MIN, lambda *_: (), rule, schema)
    return without(batch, out)[0]


def without(batch: pa.RecordBatch, out: Ticks) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    kept = np.ones(batch.num_rows, np.bool_)
    kept[out] = False
    return batch.filter(pa.array(kept)) if out.size else batch, kept


def _beyond(ticks: Ticks, floor: int, within: int) -> int:
    if floor == INT64_MIN:
        return 0
    return int(np.searchsorted(ticks, moved(floor, within)))


def _united(first: Ticks, last: Ticks) -> tuple[Ticks, Ticks]:
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
    """A predicate on leaf bounds that holds wherever one of these keys may be."""
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
    """Mark new events with a stored or accepted event of their group within ``within``.  The
    nearest decides: backward, the last one stored or accepted; forward, the next one stored.
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
    """A batch without its duplicates, with hashes and ticks of its keys."""

    batch: pa.RecordBatch
    ticks: Ticks
    hashes: Hashes
    key_ticks: Ticks
    duplicates: int


class RecentKeys:
    """The keys of a stream's recent events; callers hold the stream's lock."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._rule: Uniqueness | None = None
        self._position = -1
        self._window = KeyWindow()
        self._floor = INT64_MIN
        self._tidy_at = KEYS_MIN

    def sift(self, keys: Keys, rule: Uniqueness) -> Sifted:
        commits, schema = self._commits, self._commits.schema
        if self._rule != rule or self._position != commits.journal.position:
            self._read(Snapshot(commits.state()), rule)

        def fetch(first: int, last: int, prune: Prune | None) -> Iterable[pa.RecordBatch]:
            return stored_events(Snapshot(commits.state()), rule)(first, last, prune)

        out = duplicates_among(keys, self._window, self._floor, fetch, rule, schema)
        batch, kept = without(keys.batch, out)
        return Sifted(batch, ticks_of(batch, schema), *keys.kept(kept), out.size)

    def committed(self, sifted: Sifted) -> None:
        self._add(sifted.hashes, sifted.key_ticks)
        self._position = self._commits.journal.position

    def _read(self, snapshot: Snapshot, rule: Uniqueness) -> None:
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
