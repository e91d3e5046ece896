"""Interface of a live SELECT over any number of streams; ``OneStream`` wraps a form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import pyarrow as pa

from ..core.times import moved
from ..store.snapshot import Snapshot
from ..store.tap import Spans
from .changes import Corrected, Results
from .forms import EVENTS_BETWEEN, Form

__all__ = ["Combined", "Moment", "OneStream", "fewer"]

Moment = Mapping[str, Snapshot]
"""Snapshots by stream name, all of one step."""


def fewer(moment: Moment, regions: Spans, between: int = EVENTS_BETWEEN) -> Spans:
    """Merge ranges where reading the events between them is cheaper than another range."""
    if len(regions) < 2:
        return regions
    low, high = regions[0][0], regions[-1][1]
    held = sum(int(s.aggregate((), low, moved(high, 1)).count) for s in moment.values())
    near = between * (high - low + 1) // max(1, held)
    joined = [regions[0]]
    for first, last in regions[1:]:
        if first - joined[-1][1] <= near:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


class Combined(ABC):
    """A live SELECT over streams with one time unit.

    Attributes and methods are those of ``Form``; ``incremental``: ``advanced`` may answer.
    """

    streams: tuple[str, ...]
    columns: tuple[str, ...]
    appends = True
    rebuilds = False
    emits_changes = False
    corrects = True
    by_event = False
    region_events = EVENTS_BETWEEN
    incremental = False
    in_order = False

    @property
    def hits(self) -> int | None:
        return None

    @abstractmethod
    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        """The results with times ``low`` to ``high`` that are closed at ``known``."""

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        """Results closed at ``known`` but not at ``since``; None: evaluate the range."""
        return None

    def corrected(
        self,
        old: Moment,
        moment: Moment,
        late: Mapping[str, Spans],
        count: int,
        watermark: int,
        events: Mapping[str, pa.Table | None],
        known: int,
    ) -> Corrected | None:
        return None

    def added_by(self, moment: Moment, events: Mapping[str, pa.Table]) -> Results | None:
        return None

    @property
    def state_bytes(self) -> int:
        return 0

    def drop_state(self) -> None:  # noqa: B027 - some keep nothing
        """Drop the state kept between steps."""

    def closed(self, watermark: int) -> int:
        return watermark

    def begin(self, moment: Moment, watermark: int) -> int:
        """Least time of a result that was not closed at a watermark."""
        return self.closed(watermark) + 1

    @abstractmethod
    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """Ranges of result times that events in ranges of ticks may have changed."""

    @abstractmethod
    def explain(self) -> list[tuple[str, str]]:
        """Class, reach, closing rule and the like, for EXPLAIN."""


class OneStream(Combined):
    """A form with its stream."""

    def __init__(self, form: Form, stream: str) -> None:
        self.form = form
        self.stream = stream
        self.streams = (stream,)
        self.columns = form.columns
        self.appends = form.appends
        self.rebuilds = form.rebuilds
        self.emits_changes = form.emits_changes
        self.corrects = form.corrects
        self.incremental = not form.appends
        self.in_order = form.in_order
        self.region_events = form.region_events
        self.by_event = form.by_event

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self.form.results(moment[self.stream], low, high, known)

    @property
    def hits(self) -> int | None:
        return self.form.hits

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        return self.form.advanced(moment[self.stream], since, known)

    def corrected(
        self,
        old: Moment,
        moment: Moment,
        late: Mapping[str, Spans],
        count: int,
        watermark: int,
        events: Mapping[str, pa.Table | None],
        known: int,
    ) -> Corrected | None:
        one = self.stream
        return self.form.corrected(
            old[one], moment[one], late[one], count, watermark, events[one], known
        )

    def added_by(self, moment: Moment, events: Mapping[str, pa.Table]) -> Results | None:
        return self.form.added_by(moment[self.stream], events[self.stream])

    @property
    def state_bytes(self) -> int:
        return self.form.state_bytes

    def drop_state(self) -> None:
        self.form.drop_state()

    def closed(self, watermark: int) -> int:
        return self.form.closed(watermark)

    def begin(self, moment: Moment, watermark: int) -> int:
        return self.form.begin(moment[self.stream], watermark)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        spans = late.get(self.stream, ())
        return self.form.changed(moment[self.stream], spans, watermark) if spans else ()

    def explain(self) -> list[tuple[str, str]]:
        return self.form.explain()
