"""Windows with group keys, such as ``GROUP BY window_start, icao24``, in one pass over the events.
Slices are joined to windows key by key, without subtraction; cost: events plus output rows. Memory:
the non-empty slices and keys of one window (at most ``BUFFER_BYTES_MAX``), and active keys.

Kernels map events to groups, and groups of slices to groups of windows.  Each key has two stacks as
in ``slide``, in nodes of a shared pool::

    key a   [suffix]-[suffix] | [slice]-[slice]-[slice]     back = total of the slices
    key b                     | [slice]                     back = that slice
    key c   (no node: not active)

A node has its slice number, its partial and its neighbours.  ``links`` has per key the first node,
the first that is not a suffix, and the last; -1 for none.

Sessions per key are ``SESSION(s, t, gap, k)``, and sessions grouped by keys.  Sessions are numbered
by first event, independently of batches.  A *piece* is a run of one key in a batch without a pause;
a key's first piece may continue its open session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...errors import ResourceLimit
from ...schema import StreamSchema
from . import kernels as k
from .aggregation import Check, WindowAggregation, times_array
from .expand import with_bounds
from .fields import Aggregate, FieldPlan
from .group_cache import GroupHook, KeyTable
from .kernels import absorb, absorb_row, fill_identity, fold_ordered, load_validity
from .slices import BatchColumns, SliceChunk, frozen, in_pieces, ticks_of
from .slide import (
    BUFFER_BYTES_MAX,
    STEPS_AT_ONCE,
    WINDOWS_AT_ONCE,
    first_window,
    slide_of,
    window_ended,
)
from .spec import TICK_MAX, TICK_MIN, CountWindows, SessionWindows, TimeWindows

Words = npt.NDArray[np.int64]

_FIRST_ROOM = 1 << 12
KEYS_IDLE_MAX = 1 << 16
"""Idle keys that are remembered, or three per active key if that is more."""

_ALL_VALID = np.empty(0, np.uint8)


class KeyedAggregation(WindowAggregation):
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
        types = [schema.attribute(name).type for name in keys]
        self._table = KeyTable(types) if hook is None else hook.kept.keys(self.plan, types)
        self._slider = _KeyedSlider(windows, self.plan, check)
        self._edges = _Edges(windows) if isinstance(windows, CountWindows) else None

    def _sources(self, windows: TimeWindows | CountWindows) -> list[Iterator[SliceChunk]]:
        raise AssertionError("groups do not come from slices without keys")

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        names = list(dict.fromkeys((plan.schema.time, *plan.names, *self._keys)))
        for batch in in_pieces(self._scan(names), self._check):
            ticks = ticks_of(batch.column(batch.schema.get_field_index(plan.schema.time)))
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
        windows = self._windows
        assert isinstance(windows, (TimeWindows, CountWindows))
        rows, plan, slicing = batch.num_rows, self.plan, windows.kernel_form()
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._keys]
        codes = self._table.codes(columns)
        ids = np.empty(rows + 1, np.int64)
        starts = np.empty(rows + 1, np.int64)
        runs = k.slice_runs(ticks, slicing, self._events, ids, starts)
        groups, group_ids, group_keys = np.empty((3, rows), np.int64)
        slots = np.zeros(max(1, len(self._table)), np.int64)
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
            ids, codes, words, len(self._table), finish
        ):
            if isinstance(windows, CountWindows):
                assert self._edges is not None
                kept = int(np.searchsorted(numbers, windows.complete(self._events), "left"))
                numbers, keys, partials = numbers[:kept], keys[:kept], partials[:kept]
                if not kept:
                    continue
                start, end = self._edges.bounds(numbers)
                leading = [pa.array(numbers)]
            else:
                assert isinstance(windows, TimeWindows)
                if self._hook is not None:
                    numbers, keys, partials = self._hook.through((numbers, keys, partials))
                start, end = windows.bounds(numbers)
                leading = []
            self.metrics.windows += len(numbers)
            time = self.plan.schema.time_type
            leading += [times_array(start, time), times_array(end, time)]
            yield pa.RecordBatch.from_arrays(
                [*leading, *self._table.columns(keys), *self.plan.columns(partials)],
                schema=self.schema,
            )

    def _forget_keys(self) -> None:
        active = self._slider.active
        if self._hook is None and len(self._table) > max(KEYS_IDLE_MAX, 4 * len(active)):
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
        values, validity, offset = ticks, frozen_bytes(_ALL_VALID), 0
        if column not in (k.EVENTS, k.TIME):
            values, validity, offset = fields.of(column, op)
        fold_groups(
            values, frozen_bytes(validity), offset, groups, op, column == k.EVENTS,
            bool(unsigned), words, at,
        )  # fmt: skip
    return words


def frozen_bytes(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A read-only view: kernels are compiled for read-only inputs."""
    view = array.view()
    view.flags.writeable = False
    return view


class _KeyedSlider:
    def __init__(self, windows: TimeWindows | CountWindows, plan: FieldPlan, check: Check) -> None:
        self._pairing = int(windows.pairing)
        self._overlap = windows.overlap
        self._fields = plan.own.fields
        self._width = plan.width
        self._check = check
        first = 0 if isinstance(windows, CountWindows) else TICK_MIN
        self._state = np.array([first, 0, 0, -1, -1], np.int64)
        self._nodes = np.empty((0, 3), np.int64)
        self._pool = np.empty((0, plan.width), np.int64)
        self._links = np.empty((0, 3), np.int64)
        self._backs = np.empty((0, plan.width), np.int64)
        self._active = np.empty(0, np.int64)

    @property
    def active(self) -> Words:
        """Codes of keys with events that windows still need."""
        return self._active[: int(self._state[ACTIVE])]

    def renumber(self) -> None:
        active = self.active
        self._links = self._links[active]
        self._backs = self._backs[active]
        self._active = np.arange(len(active))

    def slide(
        self, ids: Words, keys: Words, words: Words, known: int, finish: bool
    ) -> Iterator[tuple[Words, Words, Words]]:
        """Groups of slices in, (window numbers, keys, partials) out; ``known``: number of keys."""
        self._make_room_for_keys(known)
        at = 0
        while True:
            self._check()
            out, out_keys = np.empty((2, WINDOWS_AT_ONCE), np.int64)
            out_words = np.empty((WINDOWS_AT_ONCE, self._width), np.int64)
            at, written, reason = slide_groups(
                frozen(ids), frozen(keys), frozen(words), at, finish, self._pairing,
                self._overlap, self._fields, self._nodes, self._pool, self._links, self._backs,
                self._active, self._state, STEPS_AT_ONCE, out, out_keys, out_words,
            )  # fmt: skip
            if written:
                yield out[:written], out_keys[:written], out_words[:written]
            if reason == 0:
                return
            if reason == 2:
                self._make_room_for_nodes()

    def _make_room_for_keys(self, known: int) -> None:
        had = len(self._links)
        if known <= had:
            return
        size = max(known, 2 * had)
        self._links = _longer(self._links, size)
        self._links[had:] = -1
        self._backs = _longer(self._backs, size)
        k.fill_identity(self._backs, had, size, self._fields)
        self._active = _longer(self._active, size)

    def _make_room_for_nodes(self) -> None:
        """Double the pool; requires an empty free list."""
        had = len(self._nodes)
        size = max(_FIRST_ROOM, 2 * had)
        needed = size * (self._width + 3) * 8
        if needed > BUFFER_BYTES_MAX:
            raise ResourceLimit(
                f"a window spans more than {had} slides with events of a key, which takes "
                f"{needed >> 20} MiB; choose a longer slide, a smaller size or fewer keys"
            )
        self._nodes = _longer(self._nodes, size)
        self._pool = _longer(self._pool, size)
        self._nodes[had:, 1] = np.arange(had + 1, size + 1)
        self._nodes[-1, 1] = -1
        self._state[FREE] = had


def _longer(array: Words, rows: int) -> Words:
    longer = np.empty((rows, *array.shape[1:]), np.int64)
    longer[: len(array)] = array
    return longer


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


# words of the state
WINDOW = 0  # next window
ACTIVE = 1  # keys with nodes
CURSOR = 2  # index among these, within the current window
TURNED = 3  # node reached while turning a key's slices into suffixes, or -1
FREE = 4  # head of the free list, or -1
STATE_WORDS = 5

_SIGNED_MAX = np.int64(9223372036854775807)


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
def slide_groups(  # type: ignore[no-untyped-def]
    ids, keys, words, first, finish, pairing, overlap, fields, nodes, pool, links, backs, active,
    state, steps, out, out_keys, out_words,
):  # fmt: skip
    """Join groups of slices (ascending, from ``first`` on) to groups of windows.  The first slice
    may be the last one of the previous call.  ``nodes``: slice, next and previous node.  ``backs``:
    totals of non-suffixes.  ``active``: keys with nodes.  ``steps``: approximate limit of merges.
    Returns consumed, written, reason: 0 all consumed, 1 output full, 2 pool full, 3 steps used up.
    """
    floats = words.view(np.float64)
    pool_floats = pool.view(np.float64)
    back_floats = backs.view(np.float64)
    out_floats = out_words.view(np.float64)
    width = words.shape[1]
    count = ids.size
    window = state[0]
    written = 0
    at = first
    reason = 0
    while reason == 0:
        arriving = at < count
        if not arriving and not finish:
            break
        # windows that end before the arriving slice are complete
        while state[1] > 0 and (not arriving or window_ended(window, ids[at], pairing, overlap)):
            while state[2] < state[1]:
                key = active[state[2]]
                node = links[key, 0]
                while node != -1 and slide_of(nodes[node, 0], pairing) < window:
                    if node == links[key, 1]:
                        later = links[key, 2] if state[3] == -1 else state[3]
                        while later != node and steps > 0:
                            earlier = nodes[later, 2]
                            absorb_row(fields, pool, pool_floats, earlier, pool, pool_floats, later)
                            later = earlier
                            steps -= 1
                        if later != node:
                            state[3] = later
                            reason = 3
                            break
                        state[3] = -1
                        links[key, 1] = -1
                        fill_identity(backs, key, key + 1, fields)
                    following = nodes[node, 1]
                    nodes[node, 1] = state[4]
                    state[4] = node
                    node = following
                links[key, 0] = node
                if reason != 0:
                    break
                if node == -1:
                    links[key, 2] = -1
                    state[1] -= 1
                    active[state[2]] = active[state[1]]
                    continue
                if written == out.size:
                    reason = 1
                    break
                if steps <= 0:
                    reason = 3
                    break
                out[written] = window
                out_keys[written] = key
                if node == links[key, 1]:
                    for w in range(width):
                        out_words[written, w] = backs[key, w]
                else:
                    for w in range(width):
                        out_words[written, w] = pool[node, w]
                    absorb_row(fields, out_words, out_floats, written, backs, back_floats, key)
                written += 1
                steps -= 1
                state[2] += 1
            if reason != 0:
                break
            state[2] = 0
            if window == _SIGNED_MAX:  # no window begins later
                state[1] = 0
                break
            window += 1
        if reason != 0 or not arriving:
            break
        if state[1] == 0:
            window = max(window, first_window(ids[at], pairing, overlap))
        if steps <= 0:
            reason = 3
            break
        key = keys[at]
        last = links[key, 2]
        if last != -1 and nodes[last, 0] == ids[at]:  # same slice as the last node
            absorb_row(fields, pool, pool_floats, last, words, floats, at)
        else:
            node = state[4]
            if node == -1:
                reason = 2
                break
            state[4] = nodes[node, 1]
            nodes[node, 0] = ids[at]
            nodes[node, 1] = -1
            nodes[node, 2] = last
            for w in range(width):
                pool[node, w] = words[at, w]
            if last != -1:
                nodes[last, 1] = node
            else:
                links[key, 0] = node
                active[state[1]] = key
                state[1] += 1
            if links[key, 1] == -1:
                links[key, 1] = node
            links[key, 2] = node
        absorb_row(fields, backs, back_floats, key, words, floats, at)
        at += 1
        steps -= 1
    state[0] = window
    return at, written, reason


_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Pieces:
    """Pieces of a batch: of each row, and per piece session number, key, first and last tick."""

    of_row: Words
    number: Words
    code: Words
    first: Words
    last: Words


class SessionNumbers:
    """Numbers the sessions of keys, batch by batch in time order; ``gap`` in ticks."""

    def __init__(self, gap: int) -> None:
        self._gap = np.uint64(gap)
        self._count = 0
        self._number = _NONE  # newest session by code, or -1
        self._last = _NONE

    def take(self, codes: Words, ticks: Words) -> Pieces:
        """The pieces of a batch; ``codes``: dense key codes, ``ticks`` ascend."""
        if not len(codes):
            return Pieces(_NONE, _NONE, _NONE, _NONE, _NONE)
        self._make_room(int(codes.max()) + 1)
        order = np.argsort(codes, kind="stable")
        code, tick = codes[order], ticks[order]
        other = np.ones(len(code), np.bool_)  # first event of a key in this batch
        other[1:] = code[1:] != code[:-1]
        pause = np.ones(len(code), np.bool_)
        pause[1:] = self._apart(tick[:-1], tick[1:])
        starts = np.flatnonzero(other | pause)
        goes_on = other[starts] & (self._number[code[starts]] >= 0)
        goes_on &= ~self._apart(self._last[code[starts]], tick[starts])
        number = self._number[code[starts]]
        fresh = np.flatnonzero(~goes_on)
        number[fresh[np.argsort(order[starts[fresh]])]] = self._count + np.arange(len(fresh))
        self._count += len(fresh)
        ends = np.append(starts[1:], len(code)) - 1
        newest = np.append(code[starts[1:]] != code[starts[:-1]], True)
        self._number[code[ends[newest]]] = number[newest]
        self._last[code[ends[newest]]] = tick[ends[newest]]
        of_row = np.empty(len(code), np.int64)
        of_row[order] = np.repeat(np.arange(len(starts)), ends - starts + 1)
        return Pieces(of_row, number, code[starts], tick[starts], tick[ends])

    def keep(self, codes: Words) -> None:
        """Forget all other keys; ``codes[i]`` becomes i."""
        self._number, self._last = self._number[codes], self._last[codes]

    def is_open(self, last: Words, now: int) -> npt.NDArray[np.bool_]:
        """Whether sessions with these last ticks can continue after an event at ``now``."""
        return ~self._apart(last, np.full(len(last), now, np.int64))

    def _apart(self, before: Words, after: Words) -> npt.NDArray[np.bool_]:
        # the difference of two ticks may exceed 63 bits, but not 64
        found: npt.NDArray[np.bool_] = after.view(np.uint64) - before.view(np.uint64) > self._gap
        return found

    def _make_room(self, known: int) -> None:
        more = max(known, 2 * len(self._number)) - len(self._number)
        if known > len(self._number):
            self._number = np.append(self._number, np.full(more, -1, np.int64))
            self._last = np.append(self._last, np.zeros(more, np.int64))


class KeyedSessionAggregation(WindowAggregation):
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
        self._keys = tuple(keys)
        self._scan = scan
        self._table = KeyTable([schema.attribute(name).type for name in keys])
        self._sessions = SessionNumbers(windows.gap)

    def _sources(self, windows: TimeWindows | CountWindows) -> list[Iterator[SliceChunk]]:
        raise AssertionError("sessions of keys do not come from slices")

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        names = list(dict.fromkeys((plan.schema.time, *plan.names, *self._keys)))
        bounds = np.empty((4, 0), np.int64)  # of open sessions: number, key, first, last
        partials = np.empty((0, plan.width), np.int64)
        for batch in in_pieces(self._scan(names), self._check):
            ticks = ticks_of(batch.column(batch.schema.get_field_index(plan.schema.time)))
            columns = [batch.column(batch.schema.get_field_index(name)) for name in self._keys]
            pieces = self._sessions.take(self._table.codes(columns), ticks)
            words = fold_rows(batch, ticks, pieces.of_row, len(pieces.number), plan)
            self.metrics.events += batch.num_rows
            self.metrics.slices += len(words)
            added = np.stack((pieces.number, pieces.code, pieces.first, pieces.last))
            bounds, partials = self._merged_with(bounds, partials, added, words)
            going_on = self._sessions.is_open(bounds[3], int(ticks[-1]))
            yield from self._given(bounds[:, ~going_on], partials[~going_on])
            bounds, partials = bounds[:, going_on], partials[going_on]
            if len(self._table) > max(KEYS_IDLE_MAX, 4 * bounds.shape[1]):
                active = np.sort(bounds[1])
                self._table.keep(active)
                self._sessions.keep(active)
                bounds[1] = np.searchsorted(active, bounds[1])
        yield from self._given(bounds, partials)

    def _merged_with(
        self, bounds: Words, partials: Words, added: Words, words: Words
    ) -> tuple[Words, Words]:
        bounds, both = np.concatenate((bounds, added), axis=1), np.concatenate((partials, words))
        order = np.argsort(bounds[0], kind="stable")
        ids, merged = np.empty(len(order), np.int64), np.empty_like(both)
        count = k.merge_equal(bounds[0], both, order, self.plan.own.fields, ids, merged)
        bounds = bounds[:, order]
        starts = np.searchsorted(bounds[0], ids[:count])
        ends = np.append(starts[1:], len(order)) - 1
        return np.stack((*bounds[:3, starts], bounds[3, ends])), merged[:count]

    def _given(self, bounds: Words, partials: Words) -> Iterator[pa.RecordBatch]:
        if not bounds.shape[1]:
            return
        self.metrics.windows += bounds.shape[1]
        time = self.plan.schema.time_type
        start, end = bounds[2], _ends(bounds[3], self._gap)
        yield pa.RecordBatch.from_arrays(
            [
                times_array(start, time),
                times_array(end, time),
                *self._table.columns(bounds[1]),
                *self.plan.columns(partials),
            ],
            schema=self.schema,
        )


def _ends(last: Words, gap: int) -> Words:
    found: Words = np.where(last > TICK_MAX - gap, TICK_MAX, last + gap)
    return found


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
    first, last, count = _NONE, _NONE, 0
    for pieces, _ in _pieces(ahead, windows.gap, time, keys, check):
        known, count = count, max(count, int(pieces.number.max()) + 1)
        if count > len(first):
            room = np.zeros(max(count, 2 * len(first)) - len(first), np.int64)
            first, last = np.append(first, room), np.append(last, room)
        begins = pieces.number >= known
        first[pieces.number[begins]] = pieces.first[begins]
        last[pieces.number] = pieces.last  # a session has at most one piece per batch
    for pieces, batch in _pieces(batches, windows.gap, time, keys, check):
        session = pieces.number[pieces.of_row]
        end = _ends(last[session], windows.gap)
        rows, type_ = np.arange(batch.num_rows), batch.schema.field(time).type
        yield with_bounds(batch, rows, None, first[session], end, columns, type_)


def _pieces(
    batches: Iterable[pa.RecordBatch],
    gap: int,
    time: str,
    keys: Sequence[str],
    check: Callable[[], None],
) -> Iterator[tuple[Pieces, pa.RecordBatch]]:
    table: KeyTable | None = None
    sessions = SessionNumbers(gap)
    for batch in batches:
        check()
        if not batch.num_rows:
            continue
        codes = np.zeros(batch.num_rows, np.int64)
        if keys:
            columns = [batch.column(batch.schema.get_field_index(name)) for name in keys]
            if table is None:
                table = KeyTable([column.type for column in columns])
            codes = table.codes(columns)
        ticks = ticks_of(batch.column(batch.schema.get_field_index(time)))
        yield sessions.take(codes, ticks), batch
