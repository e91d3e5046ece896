"""Deduplication of appends to a stream with ``unique``, also for bulk loads.

::

    batch ── hashes of keys ── KeyWindow.find ── no suspects: stored whole, nothing is read
                                    |
                                suspects ── events of the stream at the ticks of the hits
                                                    |
                                 keys compared, in time order ── duplicates

The key window (``KeyWindow``) covers the stream from its *floor* on: far enough back for events
that are late by at most half of ``within``.  For later events, the stream is read around the event,
except leaves whose bounds on the key columns rule it out.  The window is valid for one commit
position, else it is read again; keys of removed events are false positives.

Guarantee: an event is left out only after its key was compared, value by value, with that of a
stored event.  Decision and commit happen under the stream's lock, so no two appends store the same
key; all logged events count, so this holds across a crash.

Limits: the window holds ``KEYS_MAX`` keys; beyond, each append reads the stream, which is slow.

Keys are the values of a few columns.  -0.0 equals 0.0, and NaN equals NaN.  Their hashes are valid
in one process: a random seed prevents forced collisions.  The values of a key are hashed in turn,
eight bytes at a time: state XOR bytes, times an odd constant, high half XORed into the low one.  A
string is preceded by its length.

``KeyWindow`` is a hash table in flat arrays.  It holds hashes and times of the keys of a time
range, and finds the events of a batch that may have a duplicate there, or in the batch.  No false
negatives; false positives are hash collisions, and duplicates that were removed.  Entries are in
insertion order, those of one slot linked, newest first::

    heads    -1  3 -1  2      slot of a hash to its newest entry, -1 for none
    links    -1 -1  0  1      entry to an older one of that slot
    hashes    h  g  h  g
    ticks     5  7 31 32

28 bytes per entry at full load, 48 at most.  At most ``HITS_MAX`` hits are visited per event; with
more, the whole range around the event is reported.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.native import kernel
from ..core.sorting import distinct, numbered, order_of
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..schema import Storage, StreamSchema, Uniqueness
from .columns import ColumnView
from .commits import Commits
from .prune import AllOf, Prune, Range
from .snapshot import Snapshot
from .tail import ticks_of

# mypy: disable-error-code="no-untyped-def"


Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(secrets.randbits(64))


@kernel
def _mix_words(words, hashes):
    """Mix a word into each hash."""
    for i in range(hashes.shape[0]):
        mixed = (hashes[i] ^ words[i]) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        hashes[i] = mixed ^ (mixed >> np.uint64(29))


@kernel
def _mix_texts(offsets, data, hashes):
    """Mix a string into each hash."""
    for i in range(hashes.shape[0]):
        at = offsets[i]
        end = offsets[i + 1]
        mixed = (hashes[i] ^ np.uint64(end - at)) * np.uint64(0x9E3779B97F4A7C15)
        while at < end:
            word = np.uint64(0)
            stop = min(at + 8, end)
            for j in range(at, stop):
                word = (word << np.uint64(8)) | np.uint64(data[j])
            mixed = ((mixed ^ (mixed >> np.uint64(32))) ^ word) * np.uint64(0x9E3779B97F4A7C15)
            at = stop
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        hashes[i] = mixed ^ (mixed >> np.uint64(29))


def with_whole_key(batch: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Rows whose key has no null; None for all of them."""
    valid = None
    for name in columns:
        column = batch.column(name)
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
            valid = there if valid is None else valid & there
    return None if valid is None else np.flatnonzero(valid)


def key_hashes(batch: pa.RecordBatch, columns: Sequence[str], schema: StreamSchema) -> Hashes:
    """The hash of each event's key; the columns have the schema's types and no nulls."""
    hashes = np.full(batch.num_rows, _SEED)
    for name in columns:
        attribute = schema.attribute(name)
        column = _canonical(batch.column(name))
        view = ColumnView(attribute, column)
        if attribute.storage in (Storage.STRING, Storage.BINARY):
            _mix_texts(view.values.astype(np.int64), view.data, hashes)
        elif attribute.storage is Storage.DECIMAL:
            words = view.values.view(np.uint64)
            _mix_words(words[::2].copy(), hashes)
            _mix_words(words[1::2].copy(), hashes)
        elif attribute.storage is Storage.BOOL:
            bits = column.to_numpy(zero_copy_only=False)
            _mix_words(bits.astype(np.uint64), hashes)
        elif attribute.storage is Storage.FLOAT:
            _mix_words(view.values.astype(np.float64).view(np.uint64), hashes)
        else:
            _mix_words(view.values.astype(np.int64).view(np.uint64), hashes)
    return hashes


def key_groups(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each event of some batches, equal exactly where keys are equal."""
    groups = np.zeros(sum(batch.num_rows for batch in batches), np.int64)
    for name in columns:
        column = _canonical(pa.concat_arrays([batch.column(name) for batch in batches]))
        codes = column.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        several = groups * (int(codes.max(initial=0)) + 1) + codes
        groups = numbered(several)[1]
    return groups


def _canonical(column: pa.Array) -> pa.Array:
    """Floats with one bit pattern per value; other types unchanged."""
    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0
    return pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), column.type), plain)


# mypy: disable-error-code="no-untyped-def"


Ticks = npt.NDArray[np.int64]
HITS_MAX = 8
ROOM_MIN = 1024


class Suspects(NamedTuple):
    """Possible duplicates: ascending rows, and inclusive tick ranges of earlier ones (or empty)."""

    rows: Ticks
    first: Ticks
    last: Ticks


@kernel
def _apart(a, b):
    """Distance of two ticks; uint64, which holds any distance."""
    if a < b:
        return np.uint64(b) - np.uint64(a)
    return np.uint64(a) - np.uint64(b)


@kernel
def _find(hashes, ticks, within, heads, links, stored_hashes, times, own, suspected, first, last):
    """Mark the events of a batch in time order that may have a duplicate."""
    slots = np.uint64(heads.shape[0] - 1)
    own_slots = own.shape[0] - 1
    for i in range(hashes.shape[0]):
        wanted = hashes[i]
        tick = ticks[i]
        hits = 0
        entry = heads[np.int64(wanted & slots)]
        while entry >= 0:
            if stored_hashes[entry] == wanted and _apart(times[entry], tick) <= np.uint64(within):
                suspected[i] = True
                first[i] = min(first[i], times[entry])
                last[i] = max(last[i], times[entry])
                hits += 1
                if hits == HITS_MAX:
                    first[i] = tick - within if tick >= INT64_MIN + within else INT64_MIN
                    last[i] = tick + within if tick <= INT64_MAX - within else INT64_MAX
                    break
            entry = links[entry]
        # Within the batch, the last event with this hash is the nearest: if it is too far, so are
        # all before it; if it is near, those before it were marked together with it.
        at = np.int64((wanted >> np.uint64(20)) & np.uint64(own_slots))
        while own[at] >= 0 and hashes[own[at]] != wanted:
            at = (at + 1) & own_slots
        if own[at] >= 0 and _apart(ticks[own[at]], tick) <= np.uint64(within):
            suspected[own[at]] = True
            suspected[i] = True
        own[at] = i


@kernel
def _link(hashes, heads, links, start):
    """Link the entries from ``start`` on."""
    slots = np.uint64(heads.shape[0] - 1)
    for entry in range(start, hashes.shape[0]):
        slot = np.int64(hashes[entry] & slots)
        links[entry] = heads[slot]
        heads[slot] = entry


class KeyWindow:
    def __init__(self) -> None:
        self.size = 0
        self._make(ROOM_MIN)

    def _make(self, capacity: int) -> None:
        self._hashes: Hashes = np.empty(capacity, np.uint64)
        self._ticks: Ticks = np.empty(capacity, np.int64)
        self._links: npt.NDArray[np.int32] = np.empty(capacity, np.int32)
        self._heads: npt.NDArray[np.int32] = np.full(1 << (capacity - 1).bit_length(), -1, np.int32)

    @property
    def nbytes(self) -> int:
        arrays = (self._hashes, self._ticks, self._links, self._heads)
        return sum(array.nbytes for array in arrays)

    @property
    def middle(self) -> int:
        return int(np.partition(self._ticks[: self.size], self.size // 2)[self.size // 2])

    def find(self, hashes: Hashes, ticks: Ticks, within: int) -> Suspects:
        """Events of a batch in time order that may have a duplicate within ``within`` ticks."""
        rows = len(hashes)
        suspected = np.zeros(rows, np.bool_)
        first, last = np.full(rows, INT64_MAX), np.full(rows, INT64_MIN)
        own = np.full(1 << max(4, (2 * rows - 1).bit_length()), -1)
        _find(
            hashes, ticks, within, self._heads, self._links, self._hashes, self._ticks, own,
            suspected, first, last,
        )  # fmt: skip
        suspects = np.flatnonzero(suspected)
        return Suspects(suspects, first[suspects], last[suspects])

    def add(self, hashes: Hashes, ticks: Ticks) -> None:
        size = self.size + len(hashes)
        if size > len(self._hashes):
            hashes_before, times = self._hashes[: self.size], self._ticks[: self.size]
            self._make(max(size, 2 * len(hashes_before)))
            self._take(0, hashes_before, times)
        self._take(self.size, hashes, ticks)

    def _take(self, start: int, hashes: Hashes, ticks: Ticks) -> None:
        self.size = start + len(hashes)
        self._hashes[start : self.size] = hashes
        self._ticks[start : self.size] = ticks
        _link(self._hashes[: self.size], self._heads, self._links, start)

    def forget(self, before: int) -> None:
        recent = self._ticks[: self.size] >= before
        hashes, ticks = self._hashes[: self.size][recent], self._ticks[: self.size][recent]
        self._make(max(len(hashes) + len(hashes) // 2, ROOM_MIN))
        self._take(0, hashes, ticks)


# mypy: disable-error-code="no-untyped-def"


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

    def selected(self, mask: npt.NDArray[np.bool_]) -> tuple[Hashes, Ticks]:
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
    keys: Keys, window: KeyWindow, floor: int, fetch: Fetch, rule: Uniqueness, schema: StreamSchema
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
    chosen = events.select(compared_columns(rule, schema)).take(pa.array(numbers))
    stored = _stored(fetch, reads, chosen, keys.hashes[rows], rule, schema)
    groups = key_groups([*stored, chosen], rule.columns)
    ticks = np.concatenate([ticks_of(batch, schema) for batch in (*stored, chosen)])
    new = np.arange(ticks.size) >= ticks.size - rows.size
    order = order_of(ticks, groups)  # new events come after stored ones
    left_out = np.zeros(ticks.size, np.bool_)
    _decide(groups, ticks, new, order, rule.within, left_out)
    return np.asarray(numbers[left_out[ticks.size - rows.size :]])


def without(batch: pa.RecordBatch, out: Ticks) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
    stays = np.ones(batch.num_rows, np.bool_)
    stays[out] = False
    return batch.filter(pa.array(stays)) if out.size else batch, stays


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
    events: pa.RecordBatch,
    hashes: Hashes,
    rule: Uniqueness,
    schema: StreamSchema,
) -> list[pa.RecordBatch]:
    batches = []
    prune = _bounds(events, rule, schema)
    wanted = distinct(hashes)
    for first, last in reads:
        for batch in fetch(first, last, prune):
            rows = with_whole_key(batch, rule.columns)
            if rows is not None:
                batch = batch.take(pa.array(rows))
            same = np.isin(key_hashes(batch, rule.columns, schema), wanted)
            if same.any():
                batches.append(batch.filter(pa.array(same)))
    return batches


def _bounds(events: pa.RecordBatch, rule: Uniqueness, schema: StreamSchema) -> Prune | None:
    """A predicate on leaf bounds that holds wherever one of these keys may be."""
    ranges = []
    for name in rule.columns:
        attribute = schema.attribute(name)
        if name == schema.time or attribute.storage not in (Storage.SIGNED, Storage.STRING):
            continue
        column = events.column(name)
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
        batch, stays = without(keys.batch, out)
        return Sifted(batch, ticks_of(batch, schema), *keys.selected(stays), out.size)

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
