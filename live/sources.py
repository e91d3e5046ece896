"""The streams that a live query reads: watermarks and late events.

::

    of one stream       newest tick in order - DELAY - 1        a function of its history
                        newest tick in order - DELAY            idle for IDLE AFTER
    of several          the least, of those that are not idle
                        the greatest, if all are idle

A stream without events holds the others back until it is idle.  An event up to the last step's
watermark is reported as late exactly if it was committed after that step; a superset where the
commits are not known, and deleted events' ticks as well.

A *watermark* is the tick up to which all events are assumed to have arrived.  The ``- 1`` leaves
the newest tick open.  Ticks more than ``AHEAD_SECONDS`` beyond the wall clock do
not advance a watermark, so that one wrong clock does not make all later events late.

The live queries of one round share snapshots, and the recent events as columns (``RecentEvents``).
A view answers as its snapshot does, and is never older than what a query has seen.  Outside a
round, and for sinks, every look takes a new snapshot.  Filtered, limited and large scans read the
stream.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN, half_open, moved
from ..schema import StreamSchema
from ..store.catalog import truncated_at
from ..store.merge import merge_batches
from ..store.options import retention_limits
from ..store.recent import LargeCommit
from ..store.snapshot import Snapshot, StreamState, closed
from ..store.stream import EventStream
from ..store.tail import concat_batches, sort_batch, ticks_of_column
from ..store.tap import Spans, united
from .changes import Removals
from .definition import LiveDefinition
from .forms import Form, Moment, ticks_of
from .sink import Mark

AHEAD_SECONDS = 3600.0
"""Default of ``CHRONICLE_LIVE_AHEAD_SECONDS``."""


def ahead_seconds() -> float:
    """Seconds by which an event time may exceed the wall clock and still count."""
    return float(os.environ.get("CHRONICLE_LIVE_AHEAD_SECONDS", AHEAD_SECONDS))


def watermark_of(snapshot: Snapshot, delay: int, idle: bool, ahead: float) -> int | None:
    """A source's watermark with ``delay`` in ticks; None while no tick is known."""
    last = snapshot.state.last
    per_second = snapshot.schema.ticks_per_second
    if last is not None and per_second is not None:
        limit = int((time.time() + ahead) * per_second)
        if last > limit:
            last = snapshot.aggregate((), None, limit + 1).last
    if last is None:
        return None
    watermark = last - delay - (0 if idle else 1)
    return watermark if watermark >= INT64_MIN else None


def combined_watermark(
    sources: Iterable[tuple[Snapshot, bool]], delay: int, ahead: float
) -> int | None:
    """The watermark of (snapshot, idle) sources: the least of those not idle, else the greatest."""
    waiting: list[int | None] = []
    quiet: list[int | None] = []
    for snapshot, idle in sources:
        (quiet if idle else waiting).append(watermark_of(snapshot, delay, idle, ahead))
    watermarks = [each for each in waiting or quiet if each is not None]
    if waiting:
        return min(watermarks) if len(watermarks) == len(waiting) else None
    return max(watermarks, default=None)


EVENTS_MAX, BYTES_MAX = 1 << 19, 64 << 20
CHUNKS_MAX, CHUNKS_FEW = 64, 4
VERSIONS_KEPT = 2


class RecentEvents:
    """The events of a stream from tick ``since`` on, as columns, from round to round.

    Commits are added, their late events merged in; where one is not at hand, or events were
    changed, the stream is read again.  It begins where most events from the first one on are asked
    for, and lets go what was not asked for at the last ``VERSIONS_KEPT`` versions.  A stream whose
    events take more than ``BYTES_MAX`` is always read.
    """

    def __init__(self, stream: EventStream) -> None:
        self._tap = stream.tap()
        self._lock = threading.RLock()
        self._batches: list[pa.RecordBatch] | None = None
        """Events in time order; the first batch may begin with some before ``since``."""
        self._names: list[str] = []
        self._arrow = pa.schema([])
        self._bytes = 0
        self._ticks = np.zeros(0, np.int64)
        self._since = INT64_MAX
        self._asked: deque[int] = deque([INT64_MAX], VERSIONS_KEPT)
        self._version = 0
        self._schema: StreamSchema | None = None
        self._removals = Removals(0, 0, 0, 0)
        self._is_wide = False

    def ticks(self, view: View, start: int | None, end: int | None) -> npt.NDArray[np.int64] | None:
        """Ticks of the events of a range; None where they are not at hand."""
        with self._lock:
            low, high = closed(start, end)
            if low > high or self._follows(view) is None or low < self._since:
                return None
            self._asked[-1] = min(self._asked[-1], low)
            return self._ticks[slice(*self._places(view, low, high))]

    def read(
        self, view: View, start: int | None, end: int | None, names: list[str]
    ) -> pa.RecordBatch | None:
        """Columns of the events of a range, as ``ticks``."""
        with self._lock:
            low, high = closed(start, end)
            if low > high:
                return None
            batches = self._follows(view)
            if batches is None or low < self._since or not {*names} <= {*self._names}:
                batches = self._begun(view, start, end, names)
            if batches is None:
                return None
            self._asked[-1] = min(self._asked[-1], low)
            first, last = self._places(view, low, high)
            events = self._between(batches, first, last)
            if len(batches) > CHUNKS_FEW and 2 * (last - first) > len(self._ticks):
                rest = ((0, first), (last, len(self._ticks)))
                before, behind = (self._between(batches, *each) for each in rest)
                batches[:] = [part for part in (before, events, behind) if part.num_rows]
                self._bytes = sum(batch.nbytes for batch in batches)
            return events if names == self._names else events.select(names)

    def _places(self, view: View, low: int, high: int) -> tuple[int, int]:
        if view.state.floor is not None:  # retention hides what is before
            low = max(low, view.state.floor)
        last = int(self._ticks.searchsorted(high, "right"))
        return min(last, int(self._ticks.searchsorted(low))), last

    def _between(self, batches: list[pa.RecordBatch], first: int, last: int) -> pa.RecordBatch:
        parts, end = [], len(self._ticks)
        for batch in reversed(batches):
            begin = end - batch.num_rows
            if begin < last:
                low = max(begin, first)
                parts.append(batch.slice(low - begin, min(last, end) - low))
            if begin <= first:
                break
            end = begin
        return concat_batches(parts[::-1], self._arrow)

    def _follows(self, view: View) -> list[pa.RecordBatch] | None:
        """The events of a view, after those of new commits were added; None if not at hand."""
        if self._batches is None or view.version <= self._version:
            return self._batches if view.version == self._version else None
        batches, self._batches = self._batches, None  # lost if this fails
        if self._added(batches, view):
            self._batches = batches
        self._version = view.version
        return self._batches

    def _added(self, batches: list[pa.RecordBatch], view: View) -> bool:
        """Add the events of new commits; False where these are not at hand, or too many."""
        commits = self._tap.commits(self._version, view.version)
        since, asked = self._since, min(self._asked)
        self._asked.append(INT64_MAX)
        if (
            commits is None or asked == INT64_MAX or view.schema != self._schema
            or not self._removals.spare(view.state, since)
        ):  # fmt: skip
            return False
        self._removals, self._since = Removals.of(view.state), max(since, asked)
        ticks, late = [self._ticks[int(self._ticks.searchsorted(self._since)) :]], []
        for commit in commits:
            if isinstance(commit, LargeCommit) or commit.events.schema != view.schema.arrow:
                return False
            new = ticks_of_column(commit.events.column(view.schema.time))
            first = int(new.searchsorted(self._since))
            events = commit.events.select(self._names)
            if first < commit.late:
                late.append(events.slice(first, commit.late - first))
            fresh = max(first, commit.late)
            if fresh < len(new):
                ticks.append(new[fresh:])
                batches.append(events.slice(fresh))
                self._bytes += batches[-1].nbytes
        self._ticks = np.concatenate(ticks)
        gone = sum(batch.num_rows for batch in batches) - len(self._ticks)
        while batches and gone >= batches[0].num_rows:
            gone -= batches[0].num_rows
            self._bytes -= batches.pop(0).nbytes
        if late:
            events = sort_batch(concat_batches(late, self._arrow), view.schema)
            batches[:1] = [batch.slice(gone) for batch in batches[:1]] or [events.slice(0, 0)]
            first = ticks_of_column(events.column(view.schema.time))[0]
            if len(batches) > CHUNKS_FEW and 2 * self._ticks.searchsorted(first) < len(self._ticks):
                batches[:] = [self._between(batches, 0, len(self._ticks))]
            self._merge(batches, events, view.schema)
        if len(batches) > CHUNKS_MAX:
            batches[:] = [self._between(batches, 0, len(self._ticks))]
            self._bytes = batches[0].nbytes
        return len(self._ticks) <= EVENTS_MAX and self._bytes <= BYTES_MAX

    def _merge(
        self, batches: list[pa.RecordBatch], late: pa.RecordBatch, schema: StreamSchema
    ) -> None:
        """Merge sorted events in, behind earlier ones of their ticks; of a batch that a few events
        fall into, only the part around them is copied.
        """

        def ticks_in(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
            return ticks_of_column(batch.column(schema.time))

        ticks, end, begin = ticks_in(late), late.num_rows, len(self._ticks)
        for at in reversed(range(len(batches))):
            batch = batches[at]
            begin -= batch.num_rows
            first = 0 if at == 0 else int(ticks[:end].searchsorted(self._ticks[begin]))
            if first == end:
                continue
            some, held = late.slice(first, end - first), ticks_in(batch)
            low, high = held.searchsorted(ticks[first]), held.searchsorted(ticks[end - 1], "right")
            if 2 * (high - low) > len(held):
                low, high = 0, len(held)
            around = merge_batches(batch.slice(low, high - low), some, schema)
            parts = (batch.slice(0, low), around, batch.slice(high))
            batches[at : at + 1] = [part for part in parts if part.num_rows]
            end = first
        self._ticks = np.concatenate([ticks_in(batch) for batch in batches])
        self._bytes = sum(batch.nbytes for batch in batches)

    def _begun(
        self, view: View, start: int | None, end: int | None, names: Sequence[str]
    ) -> list[pa.RecordBatch] | None:
        held, whole = (view.events_between(start, stop) for stop in (end, None))
        if self._is_wide or whole > min(EVENTS_MAX, 2 * held):
            return None
        if self._batches is not None and self._schema == view.schema:
            names = [*self._names, *names]
        names = list(dict.fromkeys([*names, view.schema.time]))
        self._arrow = pa.schema([view.schema.arrow.field(name) for name in names])
        rows = concat_batches(list(Snapshot.scan(view, start, None, names)), self._arrow)
        self._bytes, self._names = rows.nbytes, names
        self._is_wide = self._bytes > BYTES_MAX
        self._batches = None if self._is_wide else [rows]
        if self._batches is None:
            return None
        self._ticks = ticks_of_column(rows.column(view.schema.time))
        self._since, _ = closed(start, None)
        self._version, self._schema = view.version, view.schema
        self._removals = Removals.of(view.state)
        return self._batches


class View(Snapshot):
    """A snapshot that the queries of a round share."""

    def __init__(self, state: StreamState, recent: RecentEvents | None) -> None:
        super().__init__(state)
        self._recent = recent

    def forget(self) -> None:
        self._recent = None

    def events_between(self, start: int | None, end: int | None) -> int:
        ticks = None if self._recent is None else self._recent.ticks(self, start, end)
        return super().events_between(start, end) if ticks is None else len(ticks)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        recent, chosen = self._recent, options.get("prune") or options.get("filter")
        if recent and columns and chosen is None and options.get("limit") is None:
            events = recent.read(self, start, end, self.schema.select(columns))
            if events is not None:
                return iter([events] if events.num_rows else [])
        return super().scan(start, end, columns, **options)


class Views:
    def __init__(self) -> None:
        self._round = False
        self._views: dict[EventStream, View] = {}
        self._recent: dict[EventStream, RecentEvents] = {}

    @contextmanager
    def round(self) -> Iterator[None]:
        self._end()
        self._round = True
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        self._round = False
        for view in list(self._views.values()):
            view.forget()
        self._views.clear()

    def look(self, stream: EventStream, seen: int) -> Snapshot:
        """A stream now, or as seen earlier in this round unless that is before version ``seen``."""
        view = self._views.get(stream)
        if view is None or view.version < seen or stream.commits.manifest.owner is not None:
            recent = None
            if self._round:
                recent = self._recent.get(stream) or RecentEvents(stream)
                self._recent[stream] = recent
            view = View(stream.snapshot().state, recent)
            if self._round:
                self._views[stream] = view
        return view

    def drop(self, stream: EventStream) -> None:
        self._recent.pop(stream, None)


EVENTS_PER_STEP = 1 << 20


class Sources:
    def __init__(self, streams: Mapping[str, EventStream], views: Views) -> None:
        self.streams = dict(streams)
        self._views = views
        self.taps = {name: stream.tap() for name, stream in streams.items()}
        now = time.monotonic()
        self.moment: dict[str, Snapshot] = {n: s.snapshot() for n, s in self.streams.items()}
        self._heard = dict.fromkeys(self.streams, now)
        self._ahead = ahead_seconds()

    # -- what there is ----------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        return {name: stream.snapshot().version for name, stream in self.streams.items()}

    def look(self) -> Moment:
        for name, stream in self.streams.items():
            seen = self.moment[name].version
            snapshot = self._views.look(stream, seen)
            if snapshot.version != seen:
                self._heard[name] = time.monotonic()
            self.moment[name] = snapshot
        return dict(self.moment)

    @property
    def heard(self) -> float:
        return max(self._heard.values())

    # -- watermarks -------------------------------------------------------------------------------

    def watermark(self, definition: LiveDefinition) -> int | None:
        """Tick up to which all events are assumed to have arrived; None for none yet."""
        waits = self._waits(definition)
        return self._watermark(definition, [name for name, wait in waits.items() if wait <= 0])

    def idle_in(self, definition: LiveDefinition, watermark: int | None) -> float | None:
        """Seconds until idleness alone advances the watermark; None for never."""
        waits = self._waits(definition)
        for wait in sorted(waits.values()):
            quiet = [name for name, other in waits.items() if other <= wait]
            advanced = self._watermark(definition, quiet)
            if advanced is not None and (watermark is None or advanced > watermark):
                return max(0.0, wait)
        return None

    def _waits(self, definition: LiveDefinition) -> dict[str, float]:
        if definition.idle_ms is None:
            return {}
        after, now = definition.idle_ms / 1000, time.monotonic()
        return {name: heard + after - now for name, heard in self._heard.items()}

    def _watermark(self, definition: LiveDefinition, quiet: Iterable[str]) -> int | None:
        held = frozenset(quiet)
        return combined_watermark(
            ((snapshot, name in held) for name, snapshot in self.moment.items()),
            definition.delay, self._ahead,
        )  # fmt: skip

    # -- steps ------------------------------------------------------------------------------------

    def cut(self, moment: Moment, mark: Mark, known: int) -> int:
        """Watermark of a step, limited to ``EVENTS_PER_STEP`` events."""
        held = sum(snapshot.count + snapshot.state.gone for snapshot in moment.values())
        if mark.watermark == known or held - sum(mark.events.values()) <= EVENTS_PER_STEP:
            return known
        low = None if mark.watermark is None else moved(mark.watermark, 1)

        def events(upto: int) -> int:
            end = half_open(INT64_MIN, upto)[1]
            return sum(s.events_between(low, end) for s in moment.values())

        if events(known) <= EVENTS_PER_STEP:
            return known
        begun = [s.time_range[0] for s in moment.values() if s.time_range is not None]
        first, last = min(begun) if low is None else max(low, min(begun)), known
        while first < last:  # the greatest tick within the limit
            middle = (first + last + 1) // 2
            if events(middle) <= EVENTS_PER_STEP:
                first = middle
            else:
                last = middle - 1
        return first

    @staticmethod
    def events(moment: Moment, watermark: int) -> dict[str, int]:
        """Events of each up to a watermark, with those that are gone."""
        end = half_open(INT64_MIN, watermark)[1]
        return {
            name: snapshot.count + snapshot.state.gone
            - (0 if end is None else snapshot.events_between(end, None))
            for name, snapshot in moment.items()
        }  # fmt: skip

    def late(
        self, moment: Moment, mark: Mark, definition: LiveDefinition
    ) -> tuple[int, dict[str, Spans]]:
        """Number of late events since a step, and ranges of ticks to examine, by stream."""
        watermark = mark.watermark
        if watermark is None:
            return 0, {}
        count, late_spans = 0, {}
        for name, snapshot in moment.items():
            arrivals = self.taps[name].between(mark.positions.get(name, 0), snapshot.version)
            spans: Spans = ((INT64_MIN, watermark),)
            if arrivals is not None:
                spans = tuple(
                    (low, min(high, watermark))
                    for each in arrivals
                    for low, high in each.spans
                    if low <= watermark
                )
            if self._is_truncated(name, mark) or (arrivals is None and self.deleted(name, mark)):
                spans = ((INT64_MIN, watermark),)
            elif spans:
                more = self.events({name: snapshot}, watermark)[name] - mark.events.get(name, 0)
                if arrivals is None and not more:
                    spans = ()  # none of the unknown commits was late
                count += max(0, more)
            if definition.correct_for is not None:
                bound = moved(watermark, 1 - definition.correct_for)
                spans = tuple((max(low, bound), high) for low, high in spans if high >= bound)
            if spans:
                late_spans[name] = united(spans)
        return count, late_spans

    def late_events(
        self, name: str, snapshot: Snapshot, mark: Mark, definition: LiveDefinition
    ) -> pa.Table | None:
        """The events of ``late`` of a stream, by time, then arrival; None if not at hand."""
        watermark, after, upto = mark.watermark, mark.positions.get(name, 0), snapshot.version
        arrivals = self.taps[name].between(after, upto)
        held = self.taps[name].late_events(after, upto)
        if (
            watermark is None or arrivals is None or held is None
            or self._is_truncated(name, mark) or self.deleted(name, mark)
            or any(each.fresh is not None and each.fresh[0] <= watermark for each in arrivals)
            or any(batch.schema != snapshot.schema.arrow for batch in held)
        ):  # fmt: skip
            return None
        events = pa.Table.from_batches(held, snapshot.schema.arrow).combine_chunks()
        ticks = ticks_of(events, snapshot.schema.time)
        floor = snapshot.state.floor  # older events are hidden by retention
        bound = INT64_MIN if floor is None else floor
        if definition.correct_for is not None:
            bound = max(bound, moved(watermark, 1 - definition.correct_for))
        order = np.argsort(ticks, kind="stable")
        order = order[(ticks[order] >= bound) & (ticks[order] <= watermark)]
        return events.take(pa.array(order))

    def truncated(self, mark: Mark) -> str | None:
        return next((name for name in self.streams if self._is_truncated(name, mark)), None)

    def deleted(self, name: str, mark: Mark) -> bool:
        deletions = self.streams[name].commits.manifest.deletions
        return deletions.since(mark.positions.get(name, 0))

    def _is_truncated(self, name: str, mark: Mark) -> bool:
        jobs = self.streams[name].commits.manifest.jobs
        return mark.watermark is not None and truncated_at(jobs) > mark.positions.get(name, 0)

    def frozen(
        self, moment: Moment, form: Form, watermark: int, *, held: bool = False
    ) -> int | None:
        """Greatest time of results of events that retention may have dropped; None without any."""
        ticks: list[int] = []
        for name, snapshot in moment.items():
            state = snapshot.state
            if not state.dropped or state.last is None:
                continue
            if held and state.dropped_before is not None:
                before = state.dropped_before - 1
                lost = form.changed(moment, {name: ((before, before),)}, watermark)
                ticks += [high for _, high in lost]
                continue
            gone = INT64_MIN  # last tick that may have been dropped
            if state.segments:
                gone = state.segments[0].first
            elif state.tail is not None:
                gone = state.tail().first
            age, _ = retention_limits(self.streams[name].options.retention, snapshot.schema)
            if age is not None:
                gone = max(gone, moved(state.last, -age))
            lost = form.changed(moment, {name: ((gone, gone),)}, watermark)
            ticks += [high for _, high in lost]
        return max(ticks, default=None)

    # -- for people -------------------------------------------------------------------------------

    def events_since(self, moment: Moment) -> int:
        count = 0
        for name, stream in self.streams.items():
            new, old = stream.snapshot(), moment[name]
            count += new.count + new.state.gone - old.count - old.state.gone
        return count

    def lag_events(self, watermark: int | None) -> int:
        """Events behind a watermark."""
        span: tuple[int | None, int | None] = (None, None)
        if watermark is not None:
            span = half_open(watermark + 1, INT64_MAX)
        each = (s.snapshot().events_between(*span) for s in self.streams.values())
        return sum(int(count) for count in each)

    def lag_ms(self) -> float:
        return (time.monotonic() - self.heard) * 1000
