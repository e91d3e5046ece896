"""What a live query asks of its SELECT, whatever number of streams that reads.

Purpose
    A class of queries over one stream is a :class:`~.forms.Form`.  A :class:`Combined` answers the
    same questions over a :data:`Moment`: each stream as it is seen in a step.  The simplest one is
    a form with its stream, :class:`OneStream`; others are made of several.

Guarantee
    As of forms: what is said of a region does not depend on which region it is asked for, and
    ``changed`` is never less than what may have changed.
"""

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
"""Streams by name, each as it is seen in one step."""


def fewer(moment: Moment, regions: Spans, between: int = EVENTS_BETWEEN) -> Spans:
    """Regions, in order, with those joined that few events lie between: as many late events."""
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
    """A SELECT as a live query asks it.

    Attributes
    ----------
    streams : tuple of str
        That it reads; their times are in one unit.
    columns : tuple of str
        Of its results.
    appends, rebuilds, emits_changes, corrects, by_event : bool
    region_events : int
        See :class:`~.forms.Form`.
    incremental : bool
        Whether :meth:`advanced` may know.
    in_order : bool
        Whether results of one time come in the order of their events.
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
        """Of how many events a condition held; None where nobody counts."""
        return None

    @abstractmethod
    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        """The results with a time from ``low`` to ``high`` that are closed at ``known``."""

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        """The results that are closed at ``known`` and were not at ``since``.

        Up to ``since`` the events are those of the step before.  None: evaluate the region.
        """
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
        """See :meth:`.forms.Form.corrected`."""
        return None

    def added_by(self, moment: Moment, events: Mapping[str, pa.Table]) -> Results | None:
        """See :meth:`.forms.Form.added_by`."""
        return None

    @property
    def state_bytes(self) -> int:
        """Memory that is kept from one step to the next."""
        return 0

    def drop_state(self) -> None:  # noqa: B027 - some keep nothing
        """Forget what is kept from one step to the next."""

    def closed(self, watermark: int) -> int:
        """Greatest time of results that are closed at a watermark."""
        return watermark

    def begin(self, moment: Moment, watermark: int) -> int:
        """Least time of a result that was not closed at a watermark."""
        return moved(self.closed(watermark), 1)

    @abstractmethod
    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """Times of results that events in some ranges of ticks of the streams can have changed."""

    @abstractmethod
    def explain(self) -> list[tuple[str, str]]:
        """Class, reach, closing rule and the like, for people."""


class OneStream(Combined):
    """A class of queries over one stream.

    Attributes
    ----------
    form : Form
    stream : str
    """

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
        """As the form."""
        return self.form.results(moment[self.stream], low, high, known)

    @property
    def hits(self) -> int | None:
        """As the form."""
        return self.form.hits

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        """As the form."""
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
        """As the form."""
        one = self.stream
        return self.form.corrected(
            old[one], moment[one], late[one], count, watermark, events[one], known
        )

    def added_by(self, moment: Moment, events: Mapping[str, pa.Table]) -> Results | None:
        """As the form."""
        return self.form.added_by(moment[self.stream], events[self.stream])

    @property
    def state_bytes(self) -> int:
        """As the form."""
        return self.form.state_bytes

    def drop_state(self) -> None:
        """As the form."""
        self.form.drop_state()

    def closed(self, watermark: int) -> int:
        """As the form."""
        return self.form.closed(watermark)

    def begin(self, moment: Moment, watermark: int) -> int:
        """As the form."""
        return self.form.begin(moment[self.stream], watermark)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """As the form."""
        spans = late.get(self.stream, ())
        return self.form.changed(moment[self.stream], spans, watermark) if spans else ()

    def explain(self) -> list[tuple[str, str]]:
        """As the form."""
        return self.form.explain()
