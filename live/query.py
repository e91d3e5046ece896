"""One live query at work: steps from what was known to what is known.

How a step goes
    ::

        (p0, W0)  what was taken in: a commit of each source, and the time up to which
        (p1, W1)  what is there now

        1  late events of the commits (p0, p1], at or before W0, and what they can have changed
        2  those regions are reconciled: the difference between the query and the sink
        3  results that have been closed between W0 and W1 are added
        4  one commit of the sink: all of that, and the mark (p1, W1)

    All of it is evaluated on one snapshot of each source, those of p1.  What a result is made of is
    read from the streams, which are the buffer that puts late events where they belong.  Where no
    event came late, a form may know the results of 3 from what it keeps from step to step
    (``Form.advanced``): a cache, for the truth is the sink with its mark.

Guarantee
    After a step, what holds of the sink (``NET``) are the rows of the query over the snapshots p1
    that are closed at W1.  A step is in the sink with its mark or not at all: after a crash it is
    done again, from the mark.  A step that fails changes nothing; the query stops, tells why, and
    goes on there when it is resumed.

Without a mark
    (after REFRESH, a repair of the sink, or where the commits since the mark are not known) all
    that was put out is compared with the query.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import ChronicleError, InvalidArgument
from ..store import EventStream
from ..store.tap import Spans, united
from ..ticks import INT64_MAX, INT64_MIN
from .changes import Changes, Results, difference, newly
from .combined import Combined, Moment, OneStream
from .count_form import CountForm
from .definition import LiveDefinition
from .forms import added
from .sink import Mark, Sink
from .sources import Sources

__all__ = ["LiveQuery", "told"]

logger = logging.getLogger("chronicle.live")

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
    form : Combined
    streams : mapping of str to EventStream
        That it reads.
    sink : Sink
    """

    def __init__(
        self,
        definition: LiveDefinition,
        form: Combined,
        streams: Mapping[str, EventStream],
        sink: Sink,
    ) -> None:
        self.definition = definition
        self.form = form
        self.sources = Sources(streams)
        self.sink = sink
        self.error: str | None = None
        self.lock = threading.RLock()
        self._moment = self.sources.look()
        self._marked = 0.0
        self._emitted = 0.0
        self._unmarked = False
        self._caught_up = False
        kept = sink.mark(definition.sources)
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
        return self._whole or not self._reached(self.sources.positions())

    def _reached(self, positions: Mapping[str, int]) -> bool:
        mine = self.mark.positions
        return all(mine.get(name, 0) >= position for name, position in positions.items())

    def due_in(self) -> float | None:
        """Seconds until time alone gives something to do; None for never."""
        definition = self.definition
        waits = [self.sources.idle_in(definition, self.mark.watermark)]
        if definition.every_ms is not None and self._emitted < self.sources.heard:
            waits.append(self._emitted + definition.every_ms / 1000 - time.monotonic())
        known = [wait for wait in waits if wait is not None]
        return max(0.0, min(known)) if known else None

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
        moment = self._moment = self.sources.look()
        positions = {name: snapshot.version for name, snapshot in moment.items()}
        definition, before = self.definition, self.mark
        known = self.sources.watermark(definition)
        if before.watermark is not None:
            known = before.watermark if known is None else max(known, before.watermark)
        if known is None or (
            known == before.watermark and positions == before.positions and not self._due()
            and not self._whole
        ):  # fmt: skip
            self.mark = replace(before, positions=positions)
            self._caught_up = True
            return False
        form, start = self.form, self._start
        upto = known
        if not self._whole and (form.appends or before.watermark is not None):
            upto = self.sources.cut(moment, before.watermark, known)
        late, regions = self._late(moment)
        parts: list[Changes] = []
        windows = before.windows
        counted = form.form if isinstance(form, OneStream) else None
        if isinstance(counted, CountForm):
            if self._whole:
                raise InvalidArgument(
                    "it is not known which windows were put out, after a repair of the sink for "
                    "instance: drop the live query and create it again"
                )
            regions = ()
            (snapshot,) = moment.values()
            found, windows = counted.following(snapshot, windows, upto)
            parts.append(Changes.added(found.where(found.time >= start)))
        elif self._whole:
            regions = ((self._floor(moment, known), INT64_MAX),)
        else:
            low = start
            if before.watermark is not None:
                low = max(start, form.begin(moment, before.watermark))
            behind = (low, form.closed(upto))
            if form.appends and definition.every_ms is None:
                parts.append(Changes.added(form.results(moment, *behind, upto)))
            elif (new := self._advanced(moment, upto, bool(late or regions))) is not None:
                new = new.where(new.time >= start)
                parts.append(
                    newly(new, self.sink.said(*behind)) if len(new) else Changes.added(new)
                )
            elif behind[0] <= behind[1]:
                regions = united((*regions, behind))
        for low, high in regions:
            cancelled()
            parts.append(self._reconciled(moment, low, high, upto))
        if definition.every_ms is not None and upto == known and self._due():
            low = max(start, added(form.closed(upto), 1))
            parts.append(self._reconciled(moment, low, INT64_MAX, INT64_MAX))
            self._emitted = time.monotonic()
        changes = Changes.joined(parts) if parts else None
        self._put(changes, moment, upto, late, windows)
        self._whole = False
        self._caught_up = upto >= known
        return upto < known

    def _advanced(self, moment: Moment, upto: int, disturbed: bool) -> Results | None:
        """What a step in order adds, where the form has kept what it takes to say that."""
        before = self.mark
        if before.watermark is None or disturbed or (
            self.sources.events(moment, before.watermark) != before.events
        ):  # fmt: skip
            self.form.drop_state()
            return None
        return self.form.advanced(moment, before.watermark, upto)

    def _due(self) -> bool:
        every = self.definition.every_ms
        if every is None or self._emitted >= self.sources.heard:
            return False
        return (time.monotonic() - self._emitted) * 1000 >= every

    def _late(self, moment: Moment) -> tuple[int, Spans]:
        """Late events of the commits since the last step, and regions to be reconciled."""
        watermark = self.mark.watermark
        if watermark is None or self._whole:
            return 0, ()
        count, late = self.sources.late(moment, self.mark, self.definition)
        if not late or not self.definition.correct:
            return count, ()
        top = self.form.closed(watermark)
        changed = self.form.changed(moment, late, watermark)
        floor = self._floor(moment, watermark)
        return count, tuple(
            (max(low, floor), min(high, top))
            for low, high in changed
            if high >= floor and low <= top
        )

    @property
    def _start(self) -> int:
        return INT64_MIN if self.definition.start is None else self.definition.start

    def _floor(self, moment: Moment, watermark: int) -> int:
        """Results before this are never changed: what they are made of may have been dropped."""
        frozen = self.sources.frozen(moment, self.form, watermark)
        return self._start if frozen is None else max(self._start, added(frozen, 1))

    def _reconciled(self, moment: Moment, low: int, high: int, known: int) -> Changes:
        """The difference between the query and the sink over a region."""
        want = self.form.results(moment, low, high, known)
        return difference(want, self.sink.said(low, high))

    def _put(
        self, changes: Changes | None, moment: Moment, upto: int, late: int, windows: int
    ) -> None:
        before = self.mark
        count = 0 if changes is None else len(changes)
        gone = 0 if changes is None else int((changes.sign < 0).sum())
        corrects = self.definition.correct
        mark = Mark(
            {name: snapshot.version for name, snapshot in moment.items()}, upto,
            self.sources.events(moment, upto), windows, before.step + 1,
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

    def taken(self, positions: Mapping[str, int]) -> bool:
        """Whether commits of the sources, and time up to them, were taken in."""
        return not self._whole and self._reached(positions) and self._caught_up

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
        moment = self._moment
        if {name: snapshot.version for name, snapshot in moment.items()} != self.mark.positions:
            moment = self.sources.look()
        watermark = self.mark.watermark
        if watermark is None or not self.form.corrects:
            return difference(self.form.results(moment, 1, 0, 0), self.sink.said(1, 0))
        floor = self._floor(moment, watermark)
        low = floor if low is None else max(low, floor)
        top = self.form.closed(watermark)
        high = top if high is None else min(high, top)
        return self._reconciled(moment, low, high, watermark)

    def retract(self) -> None:
        """Take everything back that holds, and end the mark."""
        with self.lock:
            said = self.sink.said(INT64_MIN, INT64_MAX)
            nothing = said.net.where(said.revision < 0)
            self.sink.put(difference(nothing, said), None)

    def status(self) -> dict[str, Any]:
        """The columns of SHOW LIVE QUERIES."""
        definition, mark = self.definition, self.mark
        behind = self.behind()
        state = "running"
        if self.error is not None:
            state = "failed"
        elif definition.paused:
            state = "paused"
        elif behind:
            state = "catching up"
        shown: Any = mark.watermark
        if shown is not None:
            shown = next(iter(self._moment.values())).schema.from_ticks(shown)
        return {
            "name": definition.name,
            "sink": definition.sink,
            "state": state,
            "sources": list(definition.sources),
            "watermark": shown,
            "lag_events": self.sources.lag_events(mark.watermark) if behind else 0,
            "lag_ms": self.sources.lag_ms() if behind else 0.0,
            "rows": mark.rows,
            "retractions": mark.retractions,
            "late": mark.late,
            "ignored": mark.ignored,
            "state_bytes": self.form.state_bytes,
            "error": self.error,
        }
