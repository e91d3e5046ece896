"""One live query at work: steps from what was known to what is known.

How a step goes
    ::

        (p0, W0)  what was taken in: a commit of the source, and the time up to which
        (p1, W1)  what is there now

        1  late events of the commits (p0, p1], at or before W0, and what they can have changed
        2  those regions are reconciled: the difference between the query and the sink
        3  results that have been closed between W0 and W1 are added
        4  one commit of the sink: all of that, and the mark (p1, W1)

    All of it is evaluated on one snapshot, that of p1.  What a result is made of is read from the
    stream, which is the buffer that puts late events where they belong.  Where no event came late,
    a form may know the results of 3 from what it keeps from step to step (``Form.advanced``): a
    cache, for the truth is the sink with its mark.

Guarantee
    After a step, what holds of the sink (``NET``) are the rows of the query over snapshot p1 that
    are closed at W1.  A step is in the sink with its mark or not at all: after a crash it is done
    again, from the mark.  A step that fails changes nothing; the query stops, tells why, and goes
    on there when it is resumed.

Without a mark
    (after REFRESH, a repair of the sink, or where the commits since the mark are not known) all
    that was put out is compared with the query.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import ChronicleError, InvalidArgument
from ..store import EventStream
from ..store.options import retention_limits
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from ..ticks import INT64_MAX, INT64_MIN
from .changes import Changes, Results, difference, newly
from .count_form import CountForm
from .definition import LiveDefinition
from .forms import Form, added
from .sink import Mark, Sink
from .watermark import watermark_of

__all__ = ["LiveQuery", "told"]

logger = logging.getLogger("chronicle.live")

EVENTS_PER_STEP = 1 << 20
QUIET_MARK_SECONDS = 1.0
"""A step without results is marked no more often than that."""


def told(error: Exception) -> str:
    """An error as people are told of it; what is none of ours is a fault of the program."""
    if isinstance(error, ChronicleError):
        return str(error)
    return f"a fault in Chronicle ({type(error).__name__}: {error}); the log has more of it"


class LiveQuery:
    """A live query that runs.

    Parameters
    ----------
    definition : LiveDefinition
    form : Form
    source : EventStream
    sink : Sink
    """

    def __init__(
        self, definition: LiveDefinition, form: Form, source: EventStream, sink: Sink
    ) -> None:
        self.definition = definition
        self.form = form
        self.source = source
        self.sink = sink
        self.error: str | None = None
        self.lock = threading.RLock()
        self.tap = source.tap()
        self._snapshot = source.snapshot()
        self._seen = (self._snapshot.version, time.monotonic())
        self._marked = 0.0
        self._emitted = 0.0
        self._unmarked = False
        self._caught_up = False
        kept = sink.mark()
        self.mark = kept or Mark()
        self._whole = kept is None and sink.stream.snapshot().count > 0
        """Whether everything that was put out is to be compared."""

    # -- what there is to do ----------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether steps are wanted."""
        return self.error is None and not self.definition.paused

    def behind(self) -> bool:
        """Whether there are commits that no step has taken in."""
        return self._whole or self.source.snapshot().version > self.mark.position

    def due_in(self) -> float | None:
        """Seconds until time alone gives something to do; None for never."""
        waits = []
        definition, quiet = self.definition, time.monotonic() - self._seen[1]
        if definition.idle_ms is not None:
            known = watermark_of(self._snapshot, definition.delay, True)
            if known is not None and (self.mark.watermark is None or known > self.mark.watermark):
                waits.append(definition.idle_ms / 1000 - quiet)
        if definition.every_ms is not None and self._emitted < self._seen[1]:
            waits.append(self._emitted + definition.every_ms / 1000 - time.monotonic())
        return max(0.0, min(waits)) if waits else None

    # -- a step -----------------------------------------------------------------------------------

    def step(self, cancelled: Callable[[], None] = lambda: None) -> bool:
        """Take in what there is, or a part of it; says whether there may be more at once.

        A failure stops the query: see :attr:`error`.
        """
        with self.lock:
            if not self.active:
                return False
            try:
                return self._step(cancelled)
            except Exception as error:  # whatever it is, the others go on
                self.error = told(error)
                self.form.drop_state()
                logger.warning(
                    "live query %s stopped: %s", self.definition.name, self.error,
                    exc_info=not isinstance(error, ChronicleError),
                )  # fmt: skip
                return False

    def _step(self, cancelled: Callable[[], None]) -> bool:
        snapshot = self.source.snapshot()
        position = snapshot.version
        if position != self._seen[0]:
            self._seen = (position, time.monotonic())
        self._snapshot = snapshot
        definition, before = self.definition, self.mark
        idle = definition.idle_ms is not None and (
            (time.monotonic() - self._seen[1]) * 1000 >= definition.idle_ms
        )
        known = watermark_of(snapshot, definition.delay, idle)
        if before.watermark is not None:
            known = before.watermark if known is None else max(known, before.watermark)
        if known is None or (
            known == before.watermark and position == before.position and not self._due()
            and not self._whole
        ):  # fmt: skip
            self.mark = replace(before, position=position)
            self._caught_up = True
            return False
        form, start = self.form, self._start
        upto = known
        if not self._whole and (form.appends or before.watermark is not None):
            upto = self._cut(snapshot, before.watermark, known)
        late, regions = self._late(snapshot, position)
        parts: list[Changes] = []
        windows = before.windows
        if isinstance(form, CountForm):
            if self._whole:
                raise InvalidArgument(
                    "it is not known which windows were put out, after a repair of the sink for "
                    "instance: drop the live query and create it again"
                )
            regions = ()
            found, windows = form.following(snapshot, windows, upto)
            parts.append(Changes.added(found.where(found.time >= start)))
        elif self._whole:
            regions = ((self._floor(snapshot, known), INT64_MAX),)
        else:
            low = start
            if before.watermark is not None:
                low = max(start, form.begin(snapshot, before.watermark))
            behind = (low, form.closed(upto))
            if form.appends and definition.every_ms is None:
                parts.append(Changes.added(form.results(snapshot, *behind, upto)))
            elif (new := self._advanced(snapshot, upto, bool(late or regions))) is not None:
                new = new.where(new.time >= start)
                parts.append(
                    newly(new, self.sink.said(*behind)) if len(new) else Changes.added(new)
                )
            elif behind[0] <= behind[1]:
                regions = united((*regions, behind))
        for low, high in regions:
            cancelled()
            parts.append(self._reconciled(snapshot, low, high, upto))
        if definition.every_ms is not None and upto == known and self._due():
            low = max(start, added(form.closed(upto), 1))
            parts.append(self._reconciled(snapshot, low, INT64_MAX, INT64_MAX))
            self._emitted = time.monotonic()
        changes = Changes.joined(parts) if parts else None
        self._put(changes, position, upto, late, windows)
        self._whole = False
        self._caught_up = upto >= known
        return upto < known

    def _advanced(self, snapshot: Snapshot, upto: int, disturbed: bool) -> Results | None:
        """What a step in order adds, where the form has kept what it takes to say that."""
        before = self.mark
        if before.watermark is None or disturbed or (
            _events(snapshot, before.watermark) != before.events
        ):  # fmt: skip
            self.form.drop_state()
            if before.watermark is None or not self.form.rebuilds:
                return None
        return self.form.advanced(snapshot, before.watermark, upto)

    def _due(self) -> bool:
        every = self.definition.every_ms
        if every is None or self._emitted >= self._seen[1]:
            return False
        return (time.monotonic() - self._emitted) * 1000 >= every

    def _cut(self, snapshot: Snapshot, before: int | None, known: int) -> int:
        """How far this step goes: as many events as one may take."""
        low = None if before is None else added(before, 1)
        if snapshot.aggregate((), low, known + 1).count <= EVENTS_PER_STEP:
            return known
        span = snapshot.time_range
        assert span is not None
        first, last = span[0] if low is None else max(low, span[0]), known
        while first < last:  # the greatest tick up to which there are not too many
            middle = (first + last + 1) // 2
            if snapshot.aggregate((), low, middle + 1).count <= EVENTS_PER_STEP:
                first = middle
            else:
                last = middle - 1
        return first

    def _late(self, snapshot: Snapshot, position: int) -> tuple[int, Spans]:
        """Late events of the commits since the last step, and regions to be reconciled."""
        watermark, definition = self.mark.watermark, self.definition
        if watermark is None or self._whole:
            return 0, ()
        arrivals = self.tap.between(self.mark.position, position)
        spans: Spans = ((INT64_MIN, watermark),)
        count = 0
        if arrivals is None and _events(snapshot, watermark) == self.mark.events:
            arrivals = []  # of commits that nobody has heard of, none was late
        if arrivals is not None:
            mine = [each for each in arrivals if any(low <= watermark for low, _ in each.spans)]
            count = sum(each.late_events for each in mine)
            spans = tuple(
                (low, min(high, watermark))
                for each in mine
                for low, high in each.spans
                if low <= watermark
            )
        if definition.correct_for is not None:
            bound = added(watermark, 1 - definition.correct_for)
            spans = tuple((max(low, bound), high) for low, high in spans if high >= bound)
        if not spans or not definition.correct:
            return count, ()
        top = self.form.closed(watermark)
        changed = self.form.changed(snapshot, united(spans), watermark)
        floor = self._floor(snapshot, watermark)
        return count, tuple(
            (max(low, floor), min(high, top))
            for low, high in changed
            if high >= floor and low <= top
        )

    @property
    def _start(self) -> int:
        return INT64_MIN if self.definition.start is None else self.definition.start

    def _floor(self, snapshot: Snapshot, watermark: int) -> int:
        """Results before this are never changed: what they are made of may have been dropped."""
        state = snapshot.state
        if not state.dropped or state.last is None:
            return self._start
        gone = INT64_MIN  # no event behind it was dropped
        if state.segments:
            gone = state.segments[0].first
        elif state.tail is not None:
            gone = state.tail().first
        age, _ = retention_limits(self.source.options.retention, snapshot.schema)
        if age is not None:
            gone = max(gone, added(state.last, -age))
        lost = self.form.changed(snapshot, ((gone, gone),), watermark)
        return max(self._start, added(lost[-1][1], 1))

    def _reconciled(self, snapshot: Snapshot, low: int, high: int, known: int) -> Changes:
        """The difference between the query and the sink over a region."""
        want = self.form.results(snapshot, low, high, known)
        return difference(want, self.sink.said(low, high))

    def _put(
        self, changes: Changes | None, position: int, upto: int, late: int, windows: int
    ) -> None:
        before = self.mark
        count = 0 if changes is None else len(changes)
        gone = 0 if changes is None else int((changes.sign < 0).sum())
        corrects = self.definition.correct
        mark = Mark(
            position, upto, _events(self._snapshot, upto), windows, before.step + 1,
            before.rows + count - gone, before.retractions + gone,
            before.late + (late if corrects else 0), before.ignored + (0 if corrects else late),
        )  # fmt: skip
        now = time.monotonic()
        if count or now - self._marked >= QUIET_MARK_SECONDS or before.watermark is None:
            self.sink.put(changes, mark)
            self._marked, self._unmarked = now, False
        else:
            self._unmarked = True
        self.mark = mark

    # -- what people ask for ----------------------------------------------------------------------

    def take(self, definition: LiveDefinition) -> None:
        """Go on, or stop after the step at hand, as a definition says."""
        with self.lock:
            self.definition = definition
            self.error = None
            if definition.paused:
                self.form.drop_state()

    def taken(self, position: int) -> bool:
        """Whether a commit of the source, and time up to it, were taken in."""
        return not self._whole and self.mark.position >= position and self._caught_up

    def close(self) -> None:
        """Leave the mark of what was done."""
        with self.lock:
            if self._unmarked and self.active:
                with contextlib.suppress(ChronicleError):
                    self.sink.put(None, self.mark)
            self.sink.wake()

    def refresh(self, low: int | None, high: int | None) -> int:
        """Reconcile results with times in a range; gives the number of changes."""
        with self.lock:
            self.form.drop_state()
            found = self._compared(low, high)
            if len(found):
                self.error = None
                self.sink.put(found, self._counted(found))
            return len(found)

    def _counted(self, changes: Changes) -> Mark:
        gone = int((changes.sign < 0).sum())
        mark = self.mark
        self.mark = replace(
            mark, step=mark.step + 1, rows=mark.rows + len(changes) - gone,
            retractions=mark.retractions + gone,
        )  # fmt: skip
        return self.mark

    def verify(self) -> int:
        """How many results are missing or wrong; 0 after every step."""
        with self.lock:
            return len(self._compared(None, None))

    def _compared(self, low: int | None, high: int | None) -> Changes:
        """The difference in a range of times, as of the last step."""
        snapshot = (
            self._snapshot
            if self._snapshot.version == self.mark.position
            else (self.source.snapshot())
        )
        watermark = self.mark.watermark
        if watermark is None or not self.form.corrects:
            return difference(self.form.results(snapshot, 1, 0, 0), self.sink.said(1, 0))
        floor = self._floor(snapshot, watermark)
        low = floor if low is None else max(low, floor)
        top = self.form.closed(watermark)
        high = top if high is None else min(high, top)
        return self._reconciled(snapshot, low, high, watermark)

    def retract(self) -> None:
        """Take everything back that holds, and end the mark."""
        with self.lock:
            said = self.sink.said(INT64_MIN, INT64_MAX)
            nothing = said.net.where(said.revision < 0)
            self.sink.put(difference(nothing, said), None)

    def status(self) -> dict[str, Any]:
        """The columns of SHOW LIVE QUERIES."""
        definition, mark = self.definition, self.mark
        snapshot = self.source.snapshot()
        watermark = mark.watermark
        after = None if watermark is None else added(watermark, 1)
        lag = int(snapshot.aggregate((), after, None).count) if self.behind() else 0
        state = "running"
        if self.error is not None:
            state = "failed"
        elif definition.paused:
            state = "paused"
        elif self.behind():
            state = "catching up"
        shown = None if watermark is None else snapshot.schema.from_ticks(watermark)
        return {
            "name": definition.name,
            "sink": definition.sink,
            "state": state,
            "sources": [definition.source],
            "watermark": shown,
            "lag_events": lag,
            "lag_ms": (time.monotonic() - self._seen[1]) * 1000 if self.behind() else 0.0,
            "rows": mark.rows,
            "retractions": mark.retractions,
            "late": mark.late,
            "ignored": mark.ignored,
            "state_bytes": self.form.state_bytes,
            "error": self.error,
        }


def _events(snapshot: Snapshot, watermark: int) -> int:
    """Events up to a watermark, with those that are gone."""
    held = snapshot.aggregate((), None, added(watermark, 1)).count
    return int(held) + snapshot.state.dropped
