"""Windows with group keys, such as ``GROUP BY window_start, icao24``, in one pass over the events.
Slices are joined to windows key by key, without subtraction; cost: events plus output rows.
Memory: the non-empty slices and keys of one window (at most ``BUFFER_BYTES_MAX``), and active keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import ResourceLimit
from ...schema import StreamSchema
from . import kernels as k
from . import keyed_kernels as kk
from .aggregation import Check, WindowAggregation, times_array
from .fields import Aggregate, FieldPlan
from .kept_groups import GroupHook
from .keys import KeyTable
from .slices import BatchColumns, SliceChunk, frozen, in_pieces, ticks_of
from .slide import BUFFER_BYTES_MAX, STEPS_AT_ONCE, WINDOWS_AT_ONCE
from .spec import TICK_MIN, CountWindows, TimeWindows

__all__ = ["KEYS_IDLE_MAX", "KeyedAggregation", "fold_rows"]

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
        count = kk.group_rows(
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
        kk.fold_groups(
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
        return self._active[: int(self._state[kk.ACTIVE])]

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
            at, written, reason = kk.slide_groups(
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
        self._state[kk.FREE] = had


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
