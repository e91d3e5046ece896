"""Live TUMBLE and HOP windows: one result per window and group, final when the window has ended.

Once events come late and the windows have keys, emitted groups are cached (``group_cache``); a late
event is merged into its groups without reading the windows again::

                first                    watermark
    ..............|========================|- - - -
      regions       cached groups            open windows: read when they close

Sessions are final when the gap behind their last event has passed.  A region is read with a margin,
which is doubled while a wanted session may have begun before it.

Windows of a number of events (TUMBLE_ROWS, HOP_ROWS) are closed by their last event.  A late event
shifts all later windows, so emitted results stay, and only later windows count it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests
from ..core.times import INT64_MAX, INT64_MIN, half_open, length_text, moved
from ..query.windows.group_cache import (
    GroupCache,
    GroupHook,
    Keeping,
    Merging,
    MergingAndKeeping,
)
from ..query.windows.spec import CountWindows, TimeWindows
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from ..store.tap import Spans, tick_ranges, united
from .changes import Corrected, Results
from .forms import (
    Evaluator,
    LateEvents,
    Moment,
    StreamForm,
    Ticks,
    chosen,
    snapshot_of,
    ticks_of,
)

START, END = "#start", "#end"
KEPT_EVENTS_MAX = 1 << 20
"""Limit of events for which caching begins."""
EVENTS_FOR_LATE = 1 << 16
"""Events that may be read for the cache, per step with late ones."""
CLOSING_VALUES_MAX = 1 << 18
"""Limit of values (events times columns) aggregated together with late events."""


class GroupedForm(StreamForm):
    """A form of aggregates over windows and ``keys``."""

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], seed: bytes, keys: Sequence[str]
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self._keys = keys

    def _grouped(self, table: pa.Table, ticks: Ticks, window: pa.Array) -> Results:
        """Results, identified by their window and keys."""
        keys = [table.column(name) for name in self._keys]
        return Results(ticks, digests(self._seed, [window, *keys]), chosen(table, self.columns))


class WindowForm(GroupedForm):
    """Aggregates of time windows; ``chooses``: groups may have no result (HAVING)."""

    kind = "windows"
    emits_changes = True

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        windows: TimeWindows,
        keys: Sequence[str],
        *,
        chooses: bool = False,
    ) -> None:
        super().__init__(evaluator, columns, seed, keys)
        self.windows = windows
        self._none: Results | None = None
        self._chooses = chooses
        self._able = bool(keys)
        self._of_rows: tuple[StreamSchema, Evaluator] | None = None
        self._kept: GroupCache | None = None
        self._late_steps = 0
        self._watermark: int | None = None
        self._ahead: tuple[int, int, Results] | None = None
        """Two watermarks, and the results of ``advanced`` between them."""

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self._results(moment[self.stream], low, min(high, known), None)

    def _results(self, snapshot: Snapshot, low: int, high: int, hook: GroupHook | None) -> Results:
        first, last = self._starts(low, high)
        if first > last:  # no window ends in the range
            if self._none is None:
                self._none = self._read(self.evaluator, snapshot, 0, 0, 1, 0)
            return self._none
        start, end = half_open(first, moved(last, self.windows.size - 1))
        return self._read(self.evaluator, snapshot, start, end, low, high, hook)

    def _read(
        self,
        evaluator: Evaluator,
        snapshot: Snapshot,
        start: int | None,
        end: int | None,
        low: int,
        high: int,
        hook: GroupHook | None = None,
    ) -> Results:
        rows = evaluator.over(snapshot, start, end, hook=hook)
        ticks = self._last(ticks_of(rows, START), ticks_of(rows, END))
        table, ticks = self._between(rows, ticks, low, high)
        keys = [table.column(name) for name in self._keys]
        names = self._names(ticks_of(table, START), ticks_of(table, END), keys)
        return Results(ticks, names, chosen(table, self.columns))

    def _last(self, starts: Ticks, ends: Ticks) -> Ticks:
        """Last ticks of windows; of bounds clamped to 64 bits, at most one is clamped."""
        return np.where(starts == INT64_MIN, ends - 1, moved(starts, self.windows.size - 1))

    def _names(self, starts: Ticks, ends: Ticks, keys: Sequence[pa.ChunkedArray]) -> pa.Array:
        """Identities; windows that begin before the first tick are distinguished by their ends."""
        early = ends - self.windows.size != starts
        early &= starts == INT64_MIN
        if not early.any():
            return digests(self._seed, [pa.array(starts), *keys])
        names = [digests(self._seed, [pa.array(starts), *keys])]
        names.append(digests(self._seed, [pa.array(starts), pa.array(ends), *keys]))
        return pc.if_else(pa.array(early), names[1], names[0])

    def _starts(self, low: int, high: int) -> tuple[int, int]:
        """First and last start of a window whose last tick lies in a range, not held in 64 bits."""
        if low > INT64_MAX:
            return 1, 0
        size, slide = self.windows.size, self.windows.slide
        origin = (self.windows.origin or 0) % slide
        first = origin + -((origin - (low - size + 1)) // slide) * slide
        last = INT64_MAX
        if high < INT64_MAX:
            last = origin + (high - size + 1 - origin) // slide * slide
        return first, last

    # -- what is kept -----------------------------------------------------------------------------

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        snapshot = moment[self.stream]
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:2] == (since, known):
            self._watermark = known
            return ahead[2]
        cache = self._kept
        if cache is None or self._watermark != since:
            self.drop_state()
            return None
        self._watermark = None  # until all is well
        low = since + 1
        results = self._results(snapshot, low, known, Keeping(cache, low, known))
        self._watermark = known
        return results

    def corrected(self, late: LateEvents, known: int) -> Corrected | None:
        """Merge late events into cached groups, in one pass with closing windows if possible."""
        snapshot, events = late.moment[self.stream], late.events[self.stream]
        if not self._able or events is None or len(events) != late.count:
            return None
        watermark = late.watermark
        self._late_steps += 1
        ticks = ticks_of(events, snapshot.schema.time)
        cache = self._kept if self._watermark == watermark else None
        cache = cache if cache is not None and cache.able else None
        if cache is None or int(ticks[0]) < cache.first:
            begun = self._begun(snapshot, int(ticks[0]), watermark)
            if begun is not None:
                nothing = self._results(snapshot, 1, 0, None)
                return Corrected(nothing.id, nothing.time, nothing, (begun,))
        if cache is None:
            return None
        self._watermark = None  # None if the step fails
        schema = snapshot.schema
        if self._of_rows is None or self._of_rows[0] != schema:
            self._of_rows = schema, self.evaluator.of_rows(schema)
        begin, until, batches = cache.first, watermark, events.to_batches()
        merging = Merging(cache, begin, watermark)
        closing = self._closing(snapshot, events.schema, ticks, watermark, known)
        if closing is not None:
            merging = MergingAndKeeping(cache, begin, watermark, known)
            batches, until = [*events.slice(0, closing[0]).to_batches(), *closing[1]], known
        rows = snapshot_of(batches, schema)
        results = self._read(self._of_rows[1], rows, None, None, begin, until, merging)
        if closing is None:
            self._watermark = watermark
        else:
            new = results.time > watermark
            results, self._ahead = results.where(~new), (watermark, known, results.where(new))
        ids, time = results.id, results.time
        if self._chooses:  # HAVING may now exclude an emitted group
            bounds = self.windows.bounds(merging.numbers)
            ids, time = self._names(*bounds, cache.named(merging.codes)), self._last(*bounds)
        before = ticks[ticks < begin]
        rest = self.changed(late.moment, {self.stream: tick_ranges(before)}, watermark)
        rest = tuple((low, min(high, begin - 1)) for low, high in rest)
        return Corrected(ids, time, results, rest)

    def _closing(
        self, snapshot: Snapshot, schema: pa.Schema, ticks: Ticks, watermark: int, known: int
    ) -> tuple[int, list[pa.RecordBatch]] | None:
        """Events of the windows that close with a step, and how many late ones come before them.

        None where they are no matter of one pass: windows overlap, or none closes.
        """
        first, last = self._starts(watermark + 1, known)
        if self.windows.slide < self.windows.size or first > last:
            return None
        start, end = half_open(first, moved(last, self.windows.size - 1))
        count = snapshot.events_between(start, end)
        if count * len(schema.names) > CLOSING_VALUES_MAX:
            return None
        return int(np.searchsorted(ticks, max(first, INT64_MIN))), list(
            snapshot.scan(start, end, schema.names)
        )

    def _begun(self, snapshot: Snapshot, tick: int, watermark: int) -> tuple[int, int] | None:
        """Cache groups of windows from ``tick``, or from twice as far back; None if too much."""
        most = min(KEPT_EVENTS_MAX, self._late_steps * EVENTS_FOR_LATE)
        for low in (max(INT64_MIN, tick - (watermark - tick)), tick):
            first, _ = self._starts(low, watermark)
            if snapshot.events_between(*half_open(first, watermark)) > most:
                continue
            cache = GroupCache(self.windows, low)
            self.drop_state()
            self._results(snapshot, low, watermark, Keeping(cache, low, watermark))
            self._able = cache.able and (not self._chooses or all(map(_is_plain, cache.types)))
            if self._able:
                self._kept, self._watermark = cache, watermark
            return (low, watermark)
        return None

    @property
    def state_bytes(self) -> int:
        return 0 if self._kept is None else self._kept.nbytes

    def drop_state(self) -> None:
        self._kept = self._watermark = self._ahead = None

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        spans = late.get(self.stream, ())
        return united(tuple((first, moved(last, self.windows.size - 1)) for first, last in spans))

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        return [
            ("class", f"{self.kind} ({self.windows.describe(time)})"),
            ("reach", length_text(self.windows.size - 1, time)),
            ("closed", "when the watermark passes the last tick of the window"),
        ]


def _is_plain(type_: pa.DataType) -> bool:
    """Whether keys of a type have the same digests as those computed by the executor."""
    return bool(
        pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_)
    )


KEPT = "#kept"


class SessionForm(GroupedForm):
    """Sessions with a gap in ticks; the evaluator does not apply HAVING (``KEPT``), as sessions
    that fail it still separate others.
    """

    kind = "sessions"
    emits_changes = True

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        gap: int,
        keys: Sequence[str],
    ) -> None:
        super().__init__(evaluator, columns, seed, keys)
        self._gap = gap
        self._longest = gap

    def closed(self, watermark: int) -> int:
        """A neighbour at exactly a gap still joins: the tick after a session must be past."""
        return watermark if watermark == INT64_MAX else moved(watermark, -1)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        snapshot = moment[self.stream]
        if known < INT64_MAX:
            high = min(high, self.closed(known))
        stop = min(known, moved(high, 1))
        back = 2 * (self._longest + self._gap)
        span = snapshot.time_range
        while True:
            begin = INT64_MIN if low <= INT64_MIN else moved(low, -self._gap - back)
            if span is None or begin <= span[0]:
                begin = INT64_MIN
            read = half_open(begin, stop) if low <= high else (0, 0)
            rows = self.evaluator.over(snapshot, *read)
            table, ticks = self._between(rows, ticks_of(rows, END) - 1, low, high)
            starts = ticks_of(table, START)
            if begin <= INT64_MIN or not (starts < moved(begin, self._gap)).any():
                break
            back *= 2
        if len(ticks):
            self._longest = max(self._longest, int((ticks - starts).max()))
        results = self._grouped(table, ticks, pa.array(starts))
        if KEPT not in table.schema.names:
            return results
        return results.where(np.array(table.column(KEPT).fill_null(False).to_numpy(), np.bool_))

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """From the tick before an event to the end of its session, now or before it was deleted."""
        snapshot = moment[self.stream]
        return united(
            tuple(
                (
                    moved(first, -1),
                    max(moved(last, self._gap), self._end(snapshot, first, last, watermark)),
                )
                for first, last in late.get(self.stream, ())
            )
        )

    def _end(self, snapshot: Snapshot, first: int, last: int, watermark: int) -> int:
        ahead = 2 * (self._longest + self._gap)
        while True:
            stop = moved(last, ahead)
            read = half_open(moved(first, -self._gap), stop)
            table = self.evaluator.over(snapshot, *read)
            starts, ends = ticks_of(table, START), ticks_of(table, END)
            met = starts <= moved(last, self._gap)
            if stop >= watermark or not (ends[met] > stop).any():
                return min(watermark, int(ends[met].max()) - 1) if met.any() else last
            ahead *= 2

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        return [
            ("class", f"{self.kind} (gap {length_text(self._gap, time)})"),
            ("reach", f"sessions so far up to {length_text(self._longest, time)} long"),
            ("closed", "when the watermark passes the end of the pause behind the last event"),
        ]


NUMBER, LAST = "#number", "#end"


class CountForm(GroupedForm):
    """The evaluator gives ``NUMBER``, ``LAST`` and keys; ``numbers`` select the window's number."""

    kind = "counted windows"
    corrects = False

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        windows: CountWindows,
        keys: Sequence[str],
        numbers: Sequence[str],
    ) -> None:
        super().__init__(evaluator, columns, seed, keys)
        self._windows = windows
        self._numbers = numbers

    def following(self, snapshot: Snapshot, number: int, known: int) -> tuple[Results, int]:
        """The windows from ``number`` on that are closed at ``known``, and the next number."""
        total = snapshot.events_between(None, known + 1)
        beyond = max(number, self._windows.complete(total))
        position = number * self._windows.slide
        low, high = 0, 0
        skipped = 0
        if beyond > number:
            low, high = self._tick_of(snapshot, position), known + 1
            skipped = position - snapshot.events_between(None, low)
        table = self.evaluator.over(_Behind(snapshot, low, skipped), low, high)
        for name in (NUMBER, *self._numbers):
            place = table.schema.names.index(name)
            moved = pa.array(table.column(place).to_numpy() + number)
            table = table.set_column(place, name, moved)
        return self._grouped(table, ticks_of(table, LAST), table.column(NUMBER)), beyond

    @staticmethod
    def _tick_of(snapshot: Snapshot, position: int) -> int:
        span = snapshot.time_range
        assert span is not None
        low, high = span
        while low < high:  # the least tick with more than ``position`` events up to it
            middle = (low + high) // 2
            if snapshot.events_between(None, middle + 1) > position:
                high = middle
            else:
                low = middle + 1
        return low

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        """Always empty: only ``following`` gives windows."""
        return self.following(moment[self.stream], 0, -1)[0]

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return ()

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        return [
            ("class", f"{self.kind} ({self._windows.describe(time)})"),
            ("reach", "none: late events are counted in from then on"),
            ("closed", "with the last event of the window"),
        ]


class _Behind(Snapshot):
    """A snapshot without the events before a tick and without the first ``skipped`` at it."""

    def __init__(self, snapshot: Snapshot, tick: int, skipped: int) -> None:
        super().__init__(snapshot.state)
        self._tick = tick
        self._skipped = skipped

    def scan(
        self, start: int | None = None, end: int | None = None, *columns: Any, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        left = self._skipped
        begin = self._tick if start is None else max(start, self._tick)
        for batch in super().scan(begin, end, *columns, **options):
            dropped = min(left, batch.num_rows)
            left -= dropped
            if dropped < batch.num_rows:
                yield batch.slice(dropped)
