"""The streams that a live query reads: how far each has come, and what came late.

Watermark
    ::

        of one stream       newest tick in order - DELAY - 1        a function of its history
                            newest tick in order - DELAY            quiet for IDLE AFTER
        of several          the least, of those that are not quiet
                            the greatest, where all are quiet

    A stream without events holds the others back until it counts as quiet.  What a quiet one brings
    later, before the watermark, is late.

Guarantee
    Of each stream, an event up to the watermark of the step before is told as late exactly when it
    was committed after that step; never less is told, and more where the commits are not known.
    What was deleted after it is to be looked at again just as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from ..core.times import INT64_MIN, moved
from ..store import EventStream
from ..store.bulk_jobs import truncated_at
from ..store.options import retention_limits
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .combined import Combined, Moment
from .definition import LiveDefinition
from .forms import ticks_of
from .sink import Mark
from .views import Views
from .watermark import combined_watermark

__all__ = ["Sources"]

EVENTS_PER_STEP = 1 << 20


class Sources:
    """The streams of one live query.

    Parameters
    ----------
    streams : mapping of str to EventStream
    views : Views
        Through which it is looked at them.
    """

    def __init__(self, streams: Mapping[str, EventStream], views: Views) -> None:
        self.streams = dict(streams)
        self._views = views
        self.taps = {name: stream.tap() for name, stream in streams.items()}
        now = time.monotonic()
        self.moment: dict[str, Snapshot] = {n: s.snapshot() for n, s in self.streams.items()}
        self._heard = dict.fromkeys(self.streams, now)

    # -- what there is ----------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """The newest commit of each."""
        return {name: stream.snapshot().version for name, stream in self.streams.items()}

    def look(self) -> Moment:
        """Each as it is now."""
        for name, stream in self.streams.items():
            seen = self.moment[name].version
            snapshot = self._views.look(stream, seen)
            if snapshot.version != seen:
                self._heard[name] = time.monotonic()
            self.moment[name] = snapshot
        return dict(self.moment)

    @property
    def heard(self) -> float:
        """When a commit was seen last, on the monotonic clock."""
        return max(self._heard.values())

    # -- watermarks -------------------------------------------------------------------------------

    def watermark(self, definition: LiveDefinition) -> int | None:
        """Up to which tick every event is taken as known; None for none yet."""
        waits = self._waits(definition)
        return self._known(definition, [name for name, wait in waits.items() if wait <= 0])

    def idle_in(self, definition: LiveDefinition, watermark: int | None) -> float | None:
        """Seconds until quiet alone moves the watermark; None for never."""
        waits = self._waits(definition)
        for wait in sorted(waits.values()):
            quiet = [name for name, other in waits.items() if other <= wait]
            known = self._known(definition, quiet)
            if known is not None and (watermark is None or known > watermark):
                return max(0.0, wait)
        return None

    def _waits(self, definition: LiveDefinition) -> dict[str, float]:
        """Seconds until each counts as quiet."""
        if definition.idle_ms is None:
            return {}
        after, now = definition.idle_ms / 1000, time.monotonic()
        return {name: heard + after - now for name, heard in self._heard.items()}

    def _known(self, definition: LiveDefinition, quiet: Iterable[str]) -> int | None:
        held = frozenset(quiet)
        return combined_watermark(
            ((snapshot, name in held) for name, snapshot in self.moment.items()), definition.delay
        )

    # -- steps ------------------------------------------------------------------------------------

    def cut(self, moment: Moment, before: int | None, known: int) -> int:
        """How far a step goes: as many events as one may take."""
        if before == known:
            return known
        low = None if before is None else moved(before, 1)

        def events(upto: int) -> int:
            each = (s.aggregate((), low, moved(upto, 1)).count for s in moment.values())
            return sum(int(count) for count in each)

        if events(known) <= EVENTS_PER_STEP:
            return known
        begun = [s.time_range[0] for s in moment.values() if s.time_range is not None]
        first, last = min(begun) if low is None else max(low, min(begun)), known
        while first < last:  # the greatest tick up to which there are not too many
            middle = (first + last + 1) // 2
            if events(middle) <= EVENTS_PER_STEP:
                first = middle
            else:
                last = middle - 1
        return first

    @staticmethod
    def events(moment: Moment, watermark: int) -> dict[str, int]:
        """Events of each up to a watermark, with those that are gone."""
        after = moved(watermark, 1)
        return {
            name: int(snapshot.aggregate((), None, after).count) + snapshot.state.gone
            for name, snapshot in moment.items()
        }

    def late(
        self, moment: Moment, mark: Mark, definition: LiveDefinition
    ) -> tuple[int, dict[str, Spans]]:
        """How many events came late since a step, and the ticks to be looked at, by stream."""
        watermark = mark.watermark
        if watermark is None:
            return 0, {}
        count, found = 0, {}
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
                    spans = ()  # of commits that nobody has heard of, none was late
                count += max(0, more)
            if definition.correct_for is not None:
                bound = moved(watermark, 1 - definition.correct_for)
                spans = tuple((max(low, bound), high) for low, high in spans if high >= bound)
            if spans:
                found[name] = united(spans)
        return count, found

    def late_events(
        self, name: str, snapshot: Snapshot, mark: Mark, definition: LiveDefinition
    ) -> pa.Table | None:
        """The events of :meth:`late` of a stream, in the order of time, ties in that of arrival.

        None where they are not at hand.
        """
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
        floor = snapshot.state.floor  # what is older is not shown, though it has come
        bound = INT64_MIN if floor is None else floor
        if definition.correct_for is not None:
            bound = max(bound, moved(watermark, 1 - definition.correct_for))
        order = np.argsort(ticks, kind="stable")
        order = order[(ticks[order] >= bound) & (ticks[order] <= watermark)]
        return events.take(pa.array(order))

    def truncated(self, mark: Mark) -> str | None:
        """The first that was truncated since a step; None without one."""
        return next((name for name in self.streams if self._is_truncated(name, mark)), None)

    def deleted(self, name: str, mark: Mark) -> bool:
        """Whether events of a stream were deleted since a step."""
        deletions = self.streams[name].commits.manifest.deletions
        return deletions.since(mark.positions.get(name, 0))

    def _is_truncated(self, name: str, mark: Mark) -> bool:
        jobs = self.streams[name].commits.manifest.jobs
        return mark.watermark is not None and truncated_at(jobs) > mark.positions.get(name, 0)

    def frozen(
        self, moment: Moment, form: Combined, watermark: int, *, held: bool = False
    ) -> int | None:
        """Greatest time of results made of what retention may have dropped; None without any.

        ``held``: what retention will drop it drops later (:class:`~..store.retention.Hold`).
        """
        found: list[int] = []
        for name, snapshot in moment.items():
            state = snapshot.state
            if not state.dropped or state.last is None:
                continue
            if held and state.dropped_before is not None:
                before = state.dropped_before - 1
                lost = form.changed(moment, {name: ((before, before),)}, watermark)
                found += [high for _, high in lost]
                continue
            gone = INT64_MIN  # no event behind it was dropped
            if state.segments:
                gone = state.segments[0].first
            elif state.tail is not None:
                gone = state.tail().first
            age, _ = retention_limits(self.streams[name].options.retention, snapshot.schema)
            if age is not None:
                gone = max(gone, moved(state.last, -age))
            lost = form.changed(moment, {name: ((gone, gone),)}, watermark)
            found += [high for _, high in lost]
        return max(found, default=None)

    # -- for people -------------------------------------------------------------------------------

    def events_since(self, moment: Moment) -> int:
        """Events that were committed since a moment."""
        count = 0
        for name, stream in self.streams.items():
            new, old = stream.snapshot(), moment[name]
            count += new.count + new.state.gone - old.count - old.state.gone
        return count

    def lag_events(self, watermark: int | None) -> int:
        """Events behind a watermark."""
        after = None if watermark is None else moved(watermark, 1)
        each = (s.snapshot().aggregate((), after, None).count for s in self.streams.values())
        return sum(int(count) for count in each)

    def lag_ms(self) -> float:
        """Wall clock since the last commit that was seen."""
        return (time.monotonic() - self.heard) * 1000
