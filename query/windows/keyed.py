"""Windows with group keys, such as ``GROUP BY window_start, icao24``, in one pass over the events.
Cost: events plus output rows.  Memory: that of ``slices``, and active keys.

Sessions are computed by replay; ``SESSION(s, t, gap, k)`` and sessions grouped by keys have their
own for each key.  Sessions are numbered by first event, independently of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import order_of
from ...schema import StreamSchema
from ...store.tail import ticks_of_column
from ..pattern.columns import StoredKeys
from . import kernels as k
from .aggregation import Check, WindowAggregation
from .expand import with_bounds
from .fields import Aggregate, FieldPlan
from .group_cache import GroupHook, merge_rows
from .kernels import absorb, fold_ordered, load_validity
from .slices import BatchColumns, Slider, fold_batch, frozen, in_pieces
from .spec import TICK_MAX, CountWindows, SessionWindows, TimeWindows

Words = npt.NDArray[np.int64]

KEYS_IDLE_MAX = 1 << 16
"""Idle keys that are remembered, or three per active key if that is more."""

_ALL_VALID = np.empty(0, np.uint8)


class KeyedAggregation(WindowAggregation[TimeWindows | CountWindows]):
    """Windows and keys; ``scan`` reads in time order, ``hook`` processes groups."""

    def __init__(
        self,
        schema: StreamSchema,
        windows: TimeWindows | CountWindows,
        aggregates: Sequence[Aggregate],
        keys: Sequence[str],
        scan: Callable[[list[str]], Iterator[pa.RecordBatch]],
        check: Check = lambda: None,
        hook: GroupHook | None = None,
    ) -> None:
        super().__init__(schema, windows, aggregates, check, keys)
        self._keys = tuple(keys)
        self._scan = scan
        self._hook = hook
        self._table = (
            StoredKeys(schema.arrow, keys) if hook is None else hook.kept.keys(self.plan, keys)
        )
        self._slider = Slider(windows, self.plan, check)
        self._edges = _Edges(windows) if isinstance(windows, CountWindows) else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        names = list(dict.fromkeys((plan.schema.time, *plan.names, *self._keys)))
        for batch in in_pieces(self._scan(names), self._check):
            ticks = ticks_of_column(batch.column(batch.schema.get_field_index(plan.schema.time)))
            if self._edges is not None:
                self._edges.pass_over(ticks, self._events)
            ids, codes, words = self._grouped(batch, ticks)
            self._events += batch.num_rows
            self.metrics.events += batch.num_rows
            self.metrics.slices += len(ids)
            yield from self._given(ids, codes, words, False)
            self._forget_keys()
        nothing = np.empty(0, np.int64)
        yield from self._given(nothing, nothing, np.empty((0, plan.width), np.int64), True)

    def _grouped(self, batch: pa.RecordBatch, ticks: Words) -> tuple[Words, Words, Words]:
        rows, plan, slicing = batch.num_rows, self.plan, self._windows.kernel_form()
        codes = self._table.encode(pa.Table.from_batches([batch]))
        ids = np.empty(rows + 1, np.int64)
        starts = np.empty(rows + 1, np.int64)
        runs = k.slice_runs(ticks, slicing, self._events, ids, starts)
        groups, group_ids, group_keys = np.empty((3, rows), np.int64)
        slots = np.zeros(max(1, self._table.count), np.int64)
        count = group_rows(
            ids, starts, runs, bool(slicing[4]), codes, slots, groups, group_ids, group_keys
        )
        words = fold_rows(batch, ticks, groups, count, plan)
        return group_ids[:count], group_keys[:count], words

    def _given(
        self, ids: Words, codes: Words, words: Words, finish: bool
    ) -> Iterator[pa.RecordBatch]:
        windows = self._windows
        for numbers, keys, partials in self._slider.slide(
            ids, codes, words, self._table.count, finish
        ):
            shown: Words | None = None
            if isinstance(windows, CountWindows):
                assert self._edges is not None
                complete = int(np.searchsorted(numbers, windows.complete(self._events), "left"))
                if not complete:
                    continue
                shown, keys, partials = numbers[:complete], keys[:complete], partials[:complete]
                start, end = self._edges.bounds(shown)
            else:
                if self._hook is not None:
                    numbers, keys, partials = self._hook.through((numbers, keys, partials))
                start, end = windows.bounds(numbers)
            yield self._batch(start, end, partials, ids=shown, keys=self._table.arrays(keys))

    def _forget_keys(self) -> None:
        active = self._slider.active
        if self._hook is None and self._table.count > max(KEYS_IDLE_MAX, 4 * len(active)):
            self._table.keep(active)
            self._slider.renumber()


def fold_rows(
    batch: pa.RecordBatch, ticks: Words, groups: Words, count: int, plan: FieldPlan
) -> Words:
    """Partials of ``count`` groups of a batch; ``groups``: group of each row, or -1."""
    words = np.empty((count, plan.width), np.int64)
    k.fill_identity(words, 0, count, plan.own.fields)
    fields = BatchColumns(batch, plan)
    for op, at, _, _, column, unsigned in plan.own.fields.tolist():
        values, validity, offset = ticks, frozen(_ALL_VALID), 0
        if column not in (k.EVENTS, k.TIME):
            values, validity, offset = fields.of(column, op)
        fold_groups(
            values, frozen(validity), offset, groups, op, column == k.EVENTS,
            bool(unsigned), words, at,
        )  # fmt: skip
    return words


class _Edges:
    def __init__(self, windows: CountWindows) -> None:
        self._slide = windows.slide
        self._size = windows.size
        self._starts = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)
        self._first = 0  # window of the first stored start and end

    def pass_over(self, ticks: Words, position: int) -> None:
        slide = self._slide
        self._starts = np.concatenate((self._starts, ticks[-position % slide :: slide]))
        before = self._size - 1 - position  # position of the first window's last event
        skip = before if before >= 0 else before % slide
        if skip < len(ticks):
            self._ends = np.concatenate((self._ends, ticks[skip::slide]))

    def bounds(self, numbers: Words) -> tuple[Words, Words]:
        """Bounds of ascending complete windows; drops those of earlier ones."""
        passed = int(numbers[0]) - self._first
        if passed > len(self._ends) // 2:
            self._starts = self._starts[passed:].copy()
            self._ends = self._ends[passed:].copy()
            self._first += passed
        return self._starts[numbers - self._first], self._ends[numbers - self._first]


@kernel
def group_rows(ids, starts, runs, gaps, codes, slots, groups, group_ids, group_keys):  # type: ignore[no-untyped-def]
    """Number the pairs of slice and key among rows in runs; returns the number of groups.
    With ``gaps``, runs of number -1 are omitted.  ``slots``: scratch per key, any content.
    """
    count = 0
    for run in range(runs):
        base = count
        left_out = gaps and ids[run] == -1
        for i in range(starts[run], starts[run + 1]):
            if left_out:
                groups[i] = -1
                continue
            key = codes[i]
            group = slots[key]
            if group < base or group >= count or group_keys[group] != key:
                group = count
                slots[key] = group
                group_ids[group] = ids[run]
                group_keys[group] = key
                count += 1
            groups[i] = group
    return count


@kernel
def fold_groups(values, validity, bit_offset, groups, op, counts, unsigned, words, at):  # type: ignore[no-untyped-def]
    """Fold one field of rows into the partials of their groups; ``counts``: count rows."""
    floats = words.view(np.float64)
    values_float = values.view(np.float64)
    nullable = validity.size > 0
    valid = load_validity(validity, bit_offset, values.size)
    if counts or op == 0:
        for row in range(groups.size):
            group = groups[row]
            if group >= 0 and (counts or not nullable or valid[row]):
                words[group, at] += 1
        return
    if op == 7:
        for row in range(groups.size):
            group = groups[row]
            if group < 0 or (nullable and not valid[row]):
                continue
            value = values[row]
            low = np.uint64(words[group, at]) + np.uint64(value)
            words[group, at] = np.int64(low)
            high = np.int64(low < np.uint64(value))
            if not unsigned:
                high += value >> np.int64(63)
            words[group, at + 1] += high
        return
    for row in range(groups.size):
        group = groups[row]
        if group < 0:
            continue
        if op >= 9:
            fold_ordered(
                op, values, values_float, valid, nullable, row, row + 1, words, floats, group, at
            )
        elif nullable and not valid[row]:
            continue
        else:
            value = values[row]
            absorb(op, words, floats, group, at, value, value, values_float[row], 0.0)


@kernel
def number_sessions(codes, ticks, gap, number, last, count, sessions):  # type: ignore[no-untyped-def]
    """Number the session of each row, from ``count`` on; returns the next number.  ``codes``: empty
    without keys.  ``number``, ``last``: newest session of each key, or -1, and its last tick.
    """
    for i in range(ticks.size):
        key = codes[i] if codes.size else np.int64(0)
        # the difference of two ticks may exceed 63 bits, but not 64
        pause = np.uint64(ticks[i]) - np.uint64(last[key]) > np.uint64(gap)
        if pause or number[key] < 0:
            number[key] = count
            count += 1
        last[key] = ticks[i]
        sessions[i] = number[key]
    return count


@dataclass(frozen=True)
class Pieces:
    """The sessions of a batch.  ``of_row``: session of each row; ``order``: rows by session, None
    if they stand so; ``starts``: the first row of each session in this order, and the number of
    rows; ``old``: how many began in earlier batches, which come first; then per session its number,
    key, and first and last tick in the batch.
    """

    of_row: Words
    order: Words | None
    starts: Words
    old: int
    number: Words
    code: Words
    first: Words
    last: Words

    def fold(self, batch: pa.RecordBatch, plan: FieldPlan) -> Words:
        """The partials of the pieces."""
        time = plan.schema.time
        events = batch.select(list(dict.fromkeys((time, *plan.names))))
        if self.order is not None:
            events = events.take(pa.array(self.order))
        ticks = ticks_of_column(events.column(0))
        return fold_batch(events, ticks, self.starts, len(self.number), plan)


class Sessions:
    """Numbers the sessions of keys, batch by batch in time order; ``gap`` in ticks."""

    def __init__(self, gap: int, time: str, keys: Sequence[str]) -> None:
        self._gap = gap
        self._time = time
        self._keys = keys
        self._table: StoredKeys | None = None
        self._count = 0
        self._number = np.empty(0, np.int64)  # newest session by code, or -1
        self._last = np.empty(0, np.int64)

    def take(self, batch: pa.RecordBatch) -> Pieces:
        """The pieces of a batch with rows."""
        ticks = ticks_of_column(batch.column(batch.schema.get_field_index(self._time)))
        codes, order, before = np.empty(0, np.int64), None, self._count
        if self._keys:
            if self._table is None:
                self._table = StoredKeys(batch.schema, self._keys)
            codes = self._table.encode(pa.Table.from_batches([batch]))
        self._grow(int(codes.max(initial=0)) + 1)
        of_row = np.empty(len(ticks), np.int64)
        self._count = number_sessions(
            codes, ticks, self._gap, self._number, self._last, before, of_row
        )
        sessions = of_row
        if self._keys:
            order = order_of(of_row)
            sessions, codes, ticks = of_row[order], codes[order], ticks[order]
        changes = np.flatnonzero(np.diff(sessions)) + 1
        starts = np.concatenate([[0], changes, [len(sessions)]]).astype(np.int64)
        number = sessions[starts[:-1]]
        code = codes[starts[:-1]] if self._keys else np.zeros(len(number), np.int64)
        old = int(number.searchsorted(before))
        return Pieces(
            of_row, order, starts, old, number, code, ticks[starts[:-1]], ticks[starts[1:] - 1]
        )

    def forget_all_but(self, codes: Words) -> Words:
        """Forget keys without these codes, if there are many; returns the codes' new values."""
        if self._table is None or self._table.count <= max(KEYS_IDLE_MAX, 4 * len(codes)):
            return codes
        active = np.sort(codes)
        self._table.keep(active)
        self._number, self._last = self._number[active], self._last[active]
        return np.searchsorted(active, codes)

    def keys(self, codes: Words) -> list[pa.Array]:
        return [] if self._table is None else self._table.arrays(codes)

    def near(self, before: Words, after: Words | np.int64) -> npt.NDArray[np.bool_]:
        """Whether events at these ticks, the later one second, are of one session."""
        # the difference of two ticks may exceed 63 bits, but not 64
        apart = after.view(np.uint64) - before.view(np.uint64)
        near: npt.NDArray[np.bool_] = apart <= np.uint64(self._gap)
        return near

    def _grow(self, known: int) -> None:
        more = max(known, 2 * len(self._number)) - len(self._number)
        if known > len(self._number):
            self._number = np.append(self._number, np.full(more, -1, np.int64))
            self._last = np.append(self._last, np.zeros(more, np.int64))


class SessionAggregation(WindowAggregation[SessionWindows]):
    """Sessions, of each key if there are any."""

    def __init__(
        self,
        schema: StreamSchema,
        windows: SessionWindows,
        aggregates: Sequence[Aggregate],
        keys: Sequence[str],
        scan: Callable[[list[str]], Iterator[pa.RecordBatch]],
        check: Check = lambda: None,
    ) -> None:
        super().__init__(schema, windows, aggregates, check, keys)
        self._gap = windows.gap
        self._scan = scan
        self._columns = list(dict.fromkeys((schema.time, *self.plan.names, *keys)))
        self._sessions = Sessions(windows.gap, schema.time, keys)

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        bounds = np.empty((4, 0), np.int64)  # of open sessions: number, key, first, last
        partials = np.empty((0, plan.width), np.int64)
        for batch in in_pieces(self._scan(self._columns), self._check):
            pieces = self._sessions.take(batch)
            words = pieces.fold(batch, plan)
            self.metrics.events += batch.num_rows
            self.metrics.slices += len(words)
            old, new = slice(pieces.old), np.arange(pieces.old, len(words))
            at = bounds[0].searchsorted(pieces.number[old])
            merge_rows(plan.own.fields, partials, at, words[old])
            bounds[3, at] = pieces.last[old]
            now = pieces.last.max()
            going_on = self._sessions.near(bounds[3], now)
            yield from self._given(bounds[1:, ~going_on], partials[~going_on])
            bounds, partials = bounds[:, going_on], partials[going_on]
            going_on = self._sessions.near(pieces.last[new], now)
            done, new = new[~going_on], new[going_on]
            of_pieces = (pieces.number, pieces.code, pieces.first, pieces.last)
            yield from self._given([each[done] for each in of_pieces[1:]], words[done])
            bounds = np.concatenate((bounds, [each[new] for each in of_pieces]), axis=1)
            partials = np.concatenate((partials, words[new]))
            bounds[1] = self._sessions.forget_all_but(bounds[1])
        yield from self._given(bounds[1:], partials)

    def _given(self, bounds: Sequence[Words] | Words, partials: Words) -> Iterator[pa.RecordBatch]:
        code, first, last = bounds
        if len(code):
            end, keys = _ends(last, self._gap), self._sessions.keys(code)
            yield self._batch(first, end, partials, keys=keys)


def _ends(last: Words, gap: int) -> Words:
    ends: Words = np.where(last > TICK_MAX - gap, TICK_MAX, last + gap)
    return ends


def expand_sessions(
    batches: Iterable[pa.RecordBatch],
    ahead: Iterable[pa.RecordBatch],
    windows: SessionWindows,
    time: str,
    keys: Sequence[str],
    columns: Sequence[str],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """Each event with the session of its keys, which may be none; ``ahead``: the same events."""
    first, last, count = np.empty(0, np.int64), np.empty(0, np.int64), 0
    sessions = Sessions(windows.gap, time, keys)
    for batch in in_pieces(ahead, check):
        pieces = sessions.take(batch)
        count = max(count, int(pieces.number[-1]) + 1)
        if count > len(first):
            padding = np.zeros(max(count, 2 * len(first)) - len(first), np.int64)
            first, last = np.append(first, padding), np.append(last, padding)
        new = slice(pieces.old, None)
        first[pieces.number[new]] = pieces.first[new]
        last[pieces.number] = pieces.last  # a session has at most one piece per batch
    sessions = Sessions(windows.gap, time, keys)
    for batch in in_pieces(batches, check):
        session = sessions.take(batch).of_row
        end = _ends(last[session], windows.gap)
        rows, type_ = np.arange(batch.num_rows), batch.schema.field(time).type
        yield with_bounds(batch, rows, None, first[session], end, columns, type_)
