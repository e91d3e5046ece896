"""One running live query: a step moves its results from one watermark to the next.

::

    (p0, W0)  processed so far: a commit of each source, and the watermark
    (p1, W1)  available now
    1  find late events of the commits (p0, p1] at or before W0, and the regions they may change
    2  reconcile those regions: emit the difference between query and sink
    3  add results that closed between W0 and W1
    4  commit all that and the mark (p1, W1) to the sink at once

After a step, the sink's net contents (``NET``) are the rows of the query over the snapshots p1 that
are closed at W1.  A step and its mark are atomic; after a crash it is repeated.  A failing step
changes nothing, and the query stops until resumed.  Without a mark, or with unknown commits since,
the whole output is compared with the query.

Reconciliation finds which results late events may have changed, and corrects them::

    late events of the commits (p0, p1]          Sources.late
      |      the form knows their effects        _corrected -> _exchanged
      |      else regions of result times        _regions
    want = the query over the snapshots p1, in a region
    have = the sink's net contents there
    have - want is retracted, want - have is added         _region

Regions may be too large or repeated.  Results of events that retention may have dropped stay.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN, moved
from ..errors import ChronicleError, InvalidArgument, ResourceLimit
from ..schema import StreamSchema
from ..store.tap import Spans, united
from .bank.symbols import Card
from .changes import Changes, Corrected, Emitted, Results, difference, newly
from .definition import LiveDefinition
from .forms import Form, LateEvents, Moment, coalesced
from .sink import Mark, Put, Sink, SinkReader, leave_marks
from .sources import Sources
from .window_form import CountForm

if TYPE_CHECKING:
    from .pattern_group import PatternGroup


logger = logging.getLogger("chronicle.live")

Step = Generator[Put, float, bool]

QUIET_MARK_SECONDS = 5.0
"""Interval between marks of steps without results."""


def error_text(error: Exception) -> str:
    """Text of an error for users."""
    if isinstance(error, ChronicleError):
        return str(error)
    return f"a fault in Chronicle ({type(error).__name__}: {error}); the log has more of it"


@dataclass
class Timer:
    """Number of calls and their wall time; not thread-safe."""

    times: int = 0
    seconds: float = 0.0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.count(begun)

    def count(self, begun: float) -> None:
        self.times += 1
        self.seconds += time.perf_counter() - begun


def figures(stepping: Timer, reconciling: Timer, hits: int | None) -> dict[str, float]:
    """Counters for metrics."""
    counters: dict[str, float] = {
        "steps": stepping.times, "step_seconds": stepping.seconds,
        "reconciles": reconciling.times, "reconcile_seconds": reconciling.seconds,
    }  # fmt: skip
    return counters if hits is None else {**counters, "hits": hits}


def status_row(
    definition: LiveDefinition, mark: Mark, schema: StreamSchema, sources: Sources, behind: bool
) -> dict[str, Any]:
    """A row of SHOW LIVE QUERIES for a query that runs, without the size of its state."""
    watermark = mark.watermark
    return {
        "name": definition.name,
        "sink": definition.sink,
        "state": "catching up" if behind else "running",
        "sources": list(definition.sources),
        "watermark": None if watermark is None else schema.from_ticks(watermark),
        "lag_events": sources.lag_events(watermark) if behind else 0,
        "lag_ms": sources.lag_ms() if behind else 0.0,
        "rows": mark.rows,
        "retractions": mark.retractions,
        "late": mark.late,
        "ignored": mark.ignored,
        "state_bytes": None,
        "error": None,
    }


class LiveQuery:
    """A running live query; ``card`` is its pattern if that can share a bank."""

    def __init__(
        self,
        definition: LiveDefinition,
        form: Form,
        sources: Sources,
        sink: Sink,
        card: Card | None = None,
    ) -> None:
        self.definition = definition
        self.form = form
        self.sources = sources
        self.sink = sink
        self.card = card
        self.error: str | None = None
        self.stepping, self.reconciling = Timer(), Timer()
        self.lock = threading.RLock()
        self.group: PatternGroup | None = None
        """Group that does its steps and whose lock it uses, if any."""
        self._moment = self.sources.look()
        self._marked = 0.0
        self._emitted = 0.0
        self._unmarked = False
        self._caught_up = False
        self._known_moment = self._moment
        """Sources when the query last had no backlog."""
        stored_mark = sink.mark(definition.sources)
        self._mark = stored_mark or Mark()
        self._previous = self._moment
        """Sources at the mark, where results are not stored."""
        self._first = INT64_MIN if definition.start is None else definition.start
        if not definition.store:
            self._begin_now()
        self._whole = stored_mark is None and sink.stream.snapshot().count > 0
        """Compare the whole output."""

    def _begin_now(self) -> None:
        watermark = self.sources.watermark(self.definition)
        if watermark is not None:
            positions = {name: snapshot.version for name, snapshot in self._moment.items()}
            self._mark = Mark(positions, watermark, self.sources.events(self._moment, watermark))
            self._first = moved(self.form.closed(watermark), 1)

    @property
    def mark(self) -> Mark:
        """Its progress, from its group if it has one."""
        if self.group is None:
            return self._mark
        return self.group.mark_of(self.definition.name)

    @property
    def moment(self) -> Moment:
        return self._moment if self.group is None else self.group.moment

    # -- what there is to do ----------------------------------------------------------------------

    @property
    def active(self) -> bool:
        return self.error is None and not self.definition.paused

    def behind(self) -> bool:
        return self._whole or not self._reached(self.sources.positions())

    def _reached(self, positions: Mapping[str, int]) -> bool:
        mine = self.mark.positions
        return all(mine.get(name, 0) >= position for name, position in positions.items())

    def due_in(self) -> float | None:
        """Seconds until the passing of time alone causes a step; None for never."""
        definition = self.definition
        waits = [self.sources.idle_in(definition, self.mark.watermark)]
        if definition.every_ms is not None and self._emitted < self.sources.heard:
            waits.append(self._emitted + definition.every_ms / 1000 - time.monotonic())
        bounded = [wait for wait in waits if wait is not None]
        return max(0.0, min(bounded)) if bounded else None

    # -- a step -----------------------------------------------------------------------------------

    def step(self, at: tuple[Moment, int] | None = None) -> Step:
        """Process what is new, or a part (to ``at`` if given); returns whether there may be more.
        Yields what it puts out, before it goes on with the seconds that this took.
        """
        with self.holding():
            if not self.active or self.group is not None:
                return False
            try:
                return (yield from self._step(at))
            except Exception as error:  # other queries continue
                self.fail(error)
                return False

    def fail(self, error: Exception) -> None:
        self.error = error_text(error)
        self.form.drop_state()
        logger.warning(
            "live query %s stopped: %s", self.definition.name, self.error,
            exc_info=not isinstance(error, ChronicleError),
        )  # fmt: skip

    def _step(self, at: tuple[Moment, int] | None) -> Step:
        moment = self._moment = self.sources.look() if at is None else at[0]
        positions = {name: snapshot.version for name, snapshot in moment.items()}
        definition, before = self.definition, self.mark
        watermark = self.sources.watermark(definition) if at is None else at[1]
        if before.watermark is not None:
            watermark = before.watermark if watermark is None else max(watermark, before.watermark)
        if watermark is None or (
            watermark == before.watermark and positions == before.positions and not self._due()
            and not self._whole
        ):  # fmt: skip
            self._mark = replace(before, positions=positions)
            self._caught_up, self._known_moment = True, moment
            return False
        if definition.on_truncate == "stop":
            self._check_truncated()
        begun = time.perf_counter()
        more = yield from self._taken_in(moment, watermark)
        self.stepping.count(begun)
        return more

    def _taken_in(self, moment: Moment, known: int) -> Step:
        definition, before = self.definition, self.mark
        form, start = self.form, self._first
        upto = known
        if not self._whole and (form.appends or before.watermark is not None):
            upto = self.sources.cut(moment, before, known)
        late, spans = (0, {}) if self._whole else self.sources.late(moment, before, definition)
        corrected = self._corrected(spans, late, upto) if spans and late > 0 else None
        if corrected is not None:
            regions = self._within(corrected.rest)
        else:
            regions = self._regions(spans)
            if spans or self._whole:
                form.drop_state()  # it lacks the late events
        parts: list[Changes] = []

        def add(results: Results) -> None:
            if len(results):
                parts.append(Changes.added(results))

        windows = before.windows
        if isinstance(form, CountForm):
            if self._whole:
                raise InvalidArgument(
                    "it is not known which windows were put out, after a repair of the sink for "
                    "instance: drop the live query and create it again"
                )
            regions = ()
            (snapshot,) = moment.values()
            results, windows = form.following(snapshot, windows, upto)
            add(results.since(start))
        elif self._whole:
            regions = ((self.floor(moment, known), INT64_MAX),)
        else:
            new = self._advanced(moment, upto, corrected is None, bool(late or regions))
            if form.appends and definition.every_ms is None:
                if new is None:
                    low, high = self._behind(moment, upto)
                    new = form.results(moment, *((low, high) if low <= high else (1, 0)), upto)
                add(new.since(start))
                if corrected is not None:
                    parts.append(self._exchanged(corrected))
            elif new is not None:
                new = new.since(start)
                if len(new) and (late or regions or self._may_repeat()):
                    parts.append(self._newly(new, *self._behind(moment, upto)))
                else:
                    add(new)
            elif upto != before.watermark:
                low, high = self._behind(moment, upto)
                if low <= high and (definition.correct or before.watermark is None):
                    regions = united((*regions, (low, high)))
                elif low <= high and before.watermark is not None:
                    new = form.closing(moment, before.watermark, upto)
                    parts.append(self._newly(new.since(start), low, high))
        for low, high in regions:
            parts.append(self._region(low, high, upto))
        if definition.every_ms is not None and upto == known and self._due():
            low = max(start, moved(form.closed(upto), 1))
            parts.append(self._region(low, INT64_MAX, INT64_MAX))
            self._emitted = time.monotonic()
        self._check_state()
        parts = [part for part in parts if len(part)]
        changes = Changes.joined(parts) if parts else None
        yield from self._put(changes, moment, upto, late, windows)
        self._previous = moment
        self._whole = False
        self._caught_up = upto >= known
        if self._caught_up:
            self._known_moment = moment
        return upto < known

    def _behind(self, moment: Moment, upto: int) -> tuple[int, int]:
        """Times of the results that close in a step, and of some that were closed before."""
        form, before, low = self.form, self.mark.watermark, self._first
        if before is not None:
            low = max(low, form.begin(moment, before))
        return low, form.closed(upto)

    def _may_repeat(self) -> bool:
        """Whether a result that closes may have been emitted before, in this or another revision:
        after a retraction, while it was open, before a late event that was ignored, by a group.
        """
        definition = self.definition
        ignores = not definition.correct or definition.correct_for is not None
        opened = definition.every_ms is not None
        return ignores or opened or self.card is not None or self.mark.retractions > 0

    def _check_truncated(self) -> None:
        name = self.sources.truncated(self.mark)
        if name is not None:
            raise InvalidArgument(
                f"the stream {name!r} was truncated, and on_truncate is 'stop': ALTER LIVE QUERY "
                f"{self.definition.name} REFRESH takes back what it had made of it, and goes on"
            )

    def _advanced(
        self, moment: Moment, upto: int, checked: bool, disturbed: bool
    ) -> Results | None:
        """Results of a step in order, from the form's state; None without one.  A state that is not
        to be ``checked`` has the late events.
        """
        form, before = self.form, self.mark
        if not form.incremental and not form.state_bytes:
            return None
        if before.watermark is None or (checked and (
            disturbed or any(self.sources.deleted(name, before) for name in moment)
            or self.sources.events(moment, before.watermark) != before.events
        )):  # fmt: skip
            form.drop_state()
            if before.watermark is None or not form.rebuilds:
                return None
        return form.advanced(moment, before.watermark, upto)

    def _check_state(self) -> None:
        size, most = self.form.state_bytes, self.definition.state_bytes_max
        if size > most and not self.form.incremental:  # the state is optional
            self.form.drop_state()
        elif size > most:
            raise ResourceLimit(
                f"{size} bytes are kept from step to step, more than state_bytes_max = {most}: "
                "narrow its time window, or create it again WITH (state_bytes_max = ...)"
            )

    def _due(self) -> bool:
        every = self.definition.every_ms
        if every is None or self._emitted >= self.sources.heard:
            return False
        return (time.monotonic() - self._emitted) * 1000 >= every

    # -- late events ------------------------------------------------------------------------------

    def _corrected(self, late: Mapping[str, Spans], count: int, upto: int) -> Corrected | None:
        """The effect of late events, if the form knows it."""
        before, definition = self.mark, self.definition
        versions = {name: snapshot.version for name, snapshot in self._previous.items()}
        if (
            before.watermark is None or versions != before.positions or not definition.store
            or not definition.correct or definition.correct_for is not None
            or definition.every_ms is not None or self.sources.truncated(before) is not None
            or any(spans[0][0] <= INT64_MIN for spans in late.values())
            or any(self.sources.deleted(name, before) for name in self._moment)
        ):  # fmt: skip
            return None
        events = {
            name: self.sources.late_events(name, self._moment[name], before, definition)
            for name in late
        }
        begun = time.perf_counter()
        late_events = LateEvents(self._moment, count, before.watermark, events)
        corrected = self.form.corrected(late_events, upto)
        if corrected is not None:
            self.reconciling.count(begun)
        return corrected

    def _exchanged(self, corrected: Corrected) -> Changes:
        watermark, want = self.mark.watermark, corrected.replacements
        assert watermark is not None
        floor = self.floor(self._moment, watermark)
        want = want.since(floor)
        if not len(corrected.ids):
            return Changes.added(want)
        ids = pa.concat_arrays([corrected.ids, want.id])
        times = np.concatenate([corrected.time, want.time])
        return difference(
            want, self._output_of(ids, max(floor, int(times.min())), int(times.max()))
        )

    def _newly(self, more: Results, low: int, high: int) -> Changes:
        if not len(more):
            return Changes.added(more)
        return newly(more, self._output_of(more.id, low, high))

    def _regions(self, late: Mapping[str, Spans]) -> Spans:
        watermark, moment, definition = self.mark.watermark, self._moment, self.definition
        if not late or not definition.correct or watermark is None:
            return ()
        if definition.correct_for is None:  # with a limit, events between must not be touched
            between = self.form.region_events
            late = {n: coalesced({n: moment[n]}, spans, between) for n, spans in late.items()}
        top = self.form.closed(watermark)
        regions = self._within(self.form.changed(moment, late, watermark), top)
        return regions if definition.correct_for is not None else coalesced(moment, regions)

    def _within(self, spans: Spans, top: int = INT64_MAX) -> Spans:
        watermark = self.mark.watermark
        if not spans or watermark is None:
            return ()
        floor = self.floor(self._moment, watermark)
        return tuple(
            (max(low, floor), min(high, top)) for low, high in spans if high >= floor and low <= top
        )

    def floor(self, moment: Moment, watermark: int) -> int:
        """Least time of results that may change after retention; truncation does not count."""
        if self.sources.truncated(self.mark) is not None:
            return self._first
        held = self.definition.rollup is not None
        frozen = self.sources.frozen(moment, self.form, watermark, held=held)
        return self._first if frozen is None else max(self._first, moved(frozen, 1))

    def _region(self, low: int, high: int, known: int, sink: SinkReader | None = None) -> Changes:
        with self.reconciling.timed():
            want = self.form.results(self._moment, low, high, known)
            emitted = self._output(low, high, sink)
            takes_back = self.definition.correct or self.definition.every_ms is not None
            return difference(want, emitted) if takes_back else newly(want, emitted)

    def _output_of(self, ids: pa.Array, low: int, high: int) -> Emitted:
        if self.definition.store:
            return self.sink.emitted_of(ids, low, high)
        return self._output(low, high).named(ids)

    def _output(self, low: int, high: int, sink: SinkReader | None = None) -> Emitted:
        """The output in a region; recomputed if results are not stored."""
        if self.definition.store:
            return (sink or self.sink).emitted(low, high)
        if (watermark := self.mark.watermark) is None:
            low, high, watermark = 1, 0, 0
        top = min(high, self.form.closed(watermark))
        low = max(low, self._first)
        return Emitted.anew(self.form.results(self._previous, low, top, watermark))

    # -- the sink ---------------------------------------------------------------------------------

    def _put(
        self, changes: Changes | None, moment: Moment, upto: int, late: int, windows: int
    ) -> Generator[Put, float, None]:
        definition, before = self.definition, self.mark
        mark = before.counted(
            changes, before.step + 1, watermark=upto, windows=windows, group="",
            positions={name: snapshot.version for name, snapshot in moment.items()},
            events=self.sources.events(moment, upto),
            late=before.late + (late if definition.correct else 0),
            ignored=before.ignored + (0 if definition.correct else late),
        )  # fmt: skip
        now = time.monotonic()
        quiet = not changes and before.watermark is not None
        if not quiet:
            waits = time.perf_counter()
            seconds = yield self.sink.stream, [(self.sink, changes, mark)], {}
            self.stepping.seconds += seconds - (time.perf_counter() - waits)  # others step, too
        elif now - self._marked >= QUIET_MARK_SECONDS:
            leave_marks(self.sink.stream, {definition.name: mark.to_json()})
        else:
            self._unmarked = True
            self._mark = mark
            return
        self._marked, self._unmarked = now, False
        self._mark = mark

    # -- with others ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold its lock, even if that is replaced while waiting."""
        while True:
            lock = self.lock
            with lock:
                if lock is self.lock:
                    yield
                    return

    def share(self, group: PatternGroup) -> None:
        """Let a group do its steps; the caller holds the group's lock."""
        self.group, self.lock, self._unmarked = group, group.lock, False
        self.form.drop_state()

    def part(self, mark: Mark) -> None:
        """Leave the group at a mark; the caller holds the group's lock."""
        group, self.group = self.group, None
        if group is not None:
            self._moment = group.moment
        self._mark, self._unmarked, self._whole = mark, True, False
        self.lock = threading.RLock()

    @property
    def blank(self) -> bool:
        return self.active and not self._whole and self._mark.watermark is None

    @property
    def settled(self) -> bool:
        """Whether it is caught up, at a watermark, and nothing must be compared."""
        has_watermark = self._mark.watermark is not None
        return self.active and not self._whole and self._caught_up and has_watermark

    # -- what people ask for ----------------------------------------------------------------------

    def take(self, definition: LiveDefinition) -> None:
        """Take a changed definition: continue, or stop after the current step."""
        with self.holding():
            self.definition = definition
            self.error = None
            if definition.paused:
                self.form.drop_state()

    def taken(self, positions: Mapping[str, int]) -> bool:
        """Whether commits of the sources, and time up to them, were processed."""
        return not self._whole and self._reached(positions) and self._caught_up

    def close(self) -> None:
        with self.holding():
            if self.active:
                with contextlib.suppress(ChronicleError):
                    self.leave_mark()
            self.sink.wake()

    def leave_mark(self) -> None:
        if self._unmarked:
            self.sink.put(None, self.mark)
            self._unmarked = False

    def refresh(self, low: int | None, high: int | None) -> int:
        with self.holding():
            self.form.drop_state()
            self.sink.forget()
            changes = self._compared(low, high)
            watermark, every = self.mark.watermark, low is None and high is None
            if every and self.group is None and watermark is not None:
                moment = self._moment
                self._mark = replace(
                    self._mark, events=self.sources.events(moment, watermark),
                    positions={name: snapshot.version for name, snapshot in moment.items()},
                )  # fmt: skip
            if every or len(changes):
                self.error = None
                self.sink.put(changes, self._counted(changes))
            return len(changes)

    def _counted(self, changes: Changes) -> Mark:
        counted = self.mark.counted(changes, self.mark.step + 1)
        if self.group is None:
            self._mark = counted
        else:
            self.group.count(self.definition.name, counted)
        return counted

    def verify(self) -> int:
        """Number of missing or wrong results; 0 after every step."""
        with self.holding():
            return len(self._compared(None, None))

    def _compared(self, low: int | None, high: int | None) -> Changes:
        self._moment, watermark, stored = self.moment, self.mark.watermark, self.sink.stored
        versions = {name: snapshot.version for name, snapshot in self._moment.items()}
        if versions != self.mark.positions:
            self._moment = self.sources.look()
        if watermark is None or not self.form.corrects:
            return difference(self.nothing(), self._output(1, 0, stored))
        floor = self.floor(self._moment, watermark)
        low = floor if low is None else max(low, floor)
        top = self.form.closed(watermark)
        high = top if high is None else min(high, top)
        return self._region(low, high, watermark, stored)

    def lag(self) -> int:
        """Events committed since the query last had no backlog."""
        return self.sources.events_since(self._known_moment)

    def nothing(self) -> Results:
        return self.form.results(self._moment, 1, 0, 0)

    def retract(self) -> None:
        with self.holding():
            emitted = self.sink.emitted(INT64_MIN, INT64_MAX)
            nothing = emitted.net.where(emitted.revision < 0)
            self.sink.put(difference(nothing, emitted), None)

    def figures(self) -> dict[str, float]:
        return figures(self.stepping, self.reconciling, self.form.hits)

    def status(self) -> dict[str, Any]:
        schema = next(iter(self.moment.values())).schema
        row = status_row(self.definition, self.mark, schema, self.sources, self.behind())
        if self.error is not None:
            row["state"] = "failed"
        elif self.definition.paused:
            row["state"] = "paused"
        return {**row, "state_bytes": self.form.state_bytes, "error": self.error}
