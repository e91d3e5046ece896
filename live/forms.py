"""Interface of the live query classes: when a result is final, and what must be read for it.

A ``Form`` evaluates the ad-hoc query over a *region*, a range of result times.  The results of a
region do not depend on the region asked for; ``changed`` is a superset of what may have changed.

============  ==========================  =====================  ==============================
class         ``_time``                   closed at W when       a late event at t changes
============  ==========================  =====================  ==============================
rows          of the event                t <= W                 {t}
windows       the last tick of it         window_end - 1 <= W    [t, t + size - 1]
sessions      the tick before its end     last + gap <= W        from t - 1 to the end of the
                                                                 session that t is in
counted       of the last event           that is <= W           nothing (LATE IGNORE)
patterns      of the last event           decided                from t - w to where searches
                                                                 agree again
situations    of completion or detection  that is <= W           up to a reach behind t, and
                                                                 behind the next row
============  ==========================  =====================  ==============================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN
from ..query.contract.cancellation import QueryControl
from ..query.contract.result import Result
from ..query.engine import QueryEngine
from ..query.plan.prepared import PreparedQuery
from ..query.region import Region
from ..query.windows.kept_groups import GroupHook
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from ..store.tap import Spans
from .changes import Corrected, Results
from .relations import engine_with

__all__ = ["EVENTS_BETWEEN", "Evaluator", "Form", "half_open"]

Ticks = npt.NDArray[np.int64]
EVENTS_BETWEEN = 4096
"""Fixed cost of evaluating a region, in events read."""


def half_open(low: int, high: int) -> tuple[int | None, int | None]:
    """A range of ticks with both ends as one without its end; from behind the last tick: empty."""
    if low > INT64_MAX:
        return INT64_MAX, INT64_MAX
    return (None if low <= INT64_MIN else low), (None if high >= INT64_MAX else high + 1)


class Evaluator:
    """A SELECT, with internal columns added, over regions of one stream."""

    def __init__(
        self, engine: Callable[[], QueryEngine], tree: Any, text: str, stream: str
    ) -> None:
        self._engine = engine
        self._tree = tree
        self._text = text
        self._stream = stream
        self._prepared: PreparedQuery | None = None
        self._schema: StreamSchema | None = None
        self.control = QueryControl()

    def over(
        self,
        snapshot: Snapshot,
        low: int | None = None,
        high: int | None = None,
        part: Any = None,
        situations: Any = None,
        hook: GroupHook | None = None,
    ) -> Result:
        """Evaluate over events with ``low <= t < high``, or over a part of the matches."""
        engine = self._engine()
        if self._prepared is None or self._schema != snapshot.schema:
            self._prepared = engine.prepared(self._tree.copy(), self._text)
            self._schema = snapshot.schema
        bounds = {} if low is None and high is None else {self._stream: (low, high)}
        region = Region({self._stream: snapshot}, bounds, part, situations, hook)
        return engine.over(self._prepared, region, self.control)

    def of_rows(self, schema: StreamSchema) -> Evaluator:
        """The same SELECT over a table in memory."""
        engine = engine_with(self._engine, self._stream, schema)
        return Evaluator(engine, self._tree, self._text, self._stream)


class Form(ABC):
    """A live SELECT as one of the classes.

    ::

        appends         results behind the old watermark were never emitted before
        rebuilds        rebuilding the state costs no more than evaluating a region
        emits_changes   open results can be emitted
        corrects        effects of late events can be corrected
        in_order        results of one time are ordered as their events
        region_events   cost of evaluating a region, in events read
        by_event        a result depends on one event, and ``added_by`` may answer
        hits            events that satisfied a condition; None if not counted
    """

    kind: str
    appends = True
    rebuilds = False
    emits_changes = False
    corrects = True
    in_order = False
    region_events = EVENTS_BETWEEN
    by_event = False
    hits: int | None = None

    def __init__(self, evaluator: Evaluator, columns: tuple[str, ...]) -> None:
        self.evaluator = evaluator
        self.columns = columns

    @abstractmethod
    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        """Results with times ``low`` to ``high`` that are closed at ``known`` (INT64_MAX: all)."""

    def advanced(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        """Results closed at ``known`` but not at ``since``; None: evaluate the region.  Up to
        ``since`` the events must be those of the step before.
        """
        return None

    def corrected(
        self,
        old: Snapshot,
        snapshot: Snapshot,
        spans: Spans,
        count: int,
        watermark: int,
        events: pa.Table | None,
        known: int,
    ) -> Corrected | None:
        """Effect of ``count`` late events in ``spans`` on results closed at ``watermark``.

        ``old`` lacks the events; ``events`` has them by time, then arrival (None if not at hand);
        ``advanced`` to ``known`` follows.  None: evaluate the regions.
        """
        return None

    def added_by(self, snapshot: Snapshot, events: pa.Table) -> Results | None:
        """Results of newly arrived events, by time, then arrival; None: evaluate the regions."""
        return None

    @property
    def state_bytes(self) -> int:
        return 0

    def drop_state(self) -> None:  # noqa: B027 - most forms keep nothing
        """Drop the state kept between steps."""

    def closed(self, watermark: int) -> int:
        """Greatest time of results that are closed at a watermark."""
        return watermark

    def begin(self, snapshot: Snapshot, watermark: int) -> int:
        """Least time of a result that was not closed at a watermark; one may be behind the last."""
        return self.closed(watermark) + 1

    @abstractmethod
    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """Ranges of result times that events in ranges of ticks may have changed."""

    @abstractmethod
    def explain(self) -> list[tuple[str, str]]:
        """Class, reach, closing rule and the like, for EXPLAIN."""

    def _table(self, result: Result, low: int, high: int, time: Callable[[pa.Table], Ticks]) -> Any:
        table = result.arrow()
        ticks = time(table)
        inside = (ticks >= low) & (ticks <= high)
        if not inside.all():
            table, ticks = table.filter(pa.array(inside)), ticks[inside]
        return table, ticks


def ticks_of(table: pa.Table, name: str) -> Ticks:
    column = table.column(name).combine_chunks()
    return ticks_of_column(column).astype(np.int64)


def chosen(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return table.select(list(columns))
