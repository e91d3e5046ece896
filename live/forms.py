"""Classes of live queries: when a result is known, and what must be read to know it.

Purpose
    Whatever a live query is, its results are those of the ad-hoc query.  A :class:`Form` evaluates
    that query over a *region*, a range of the times of results, reading only the events that such
    results can be made of.  The rest of the room needs to know of a class nothing but what a form
    answers.

Layout
    ============  ==========================  =====================  ==============================
    class         ``_time``                   closed at W when       a late event at t changes
    ============  ==========================  =====================  ==============================
    rows          of the event                t <= W                 {t}
    windows       the last tick of it         window_end - 1 <= W    [t, t + size - 1]
    sessions      the tick before its end     last + gap <= W        from t - 1 to the end of the
                                                                     session that t is in
    counted       of the last event           that is <= W           nothing (LATE IGNORE)
    patterns      of the last event           decided                from t - w to where searches
                                                                     meet again
    situations    of completion or detection  that is <= W           up to a reach behind t, and
                                                                     behind the next row
    ============  ==========================  =====================  ==============================

Guarantee
    What a form says of a region does not depend on which region it is asked for, and ``changed``
    is never less than what may have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN, moved
from ..query.contract.cancellation import QueryControl
from ..query.contract.result import Result
from ..query.engine import QueryEngine, Region
from ..query.plan.prepared import PreparedQuery
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
"""To evaluate a region takes most classes as long as to read so many events more."""


def half_open(low: int, high: int) -> tuple[int | None, int | None]:
    """A range of ticks with both ends as one without its end."""
    return (None if low <= INT64_MIN else low), (None if high >= INT64_MAX else high + 1)


class Evaluator:
    """A SELECT, with columns of our own beside those of the user, over regions of one stream.

    Parameters
    ----------
    engine : callable
        The query engine, when it is needed.
    tree : sqlglot tree
        It is kept, and copied when it is prepared.
    text : str
        What it was parsed from.
    """

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
        """Evaluate over the events with ``low <= t < high``, or the part of the matches."""
        engine = self._engine()
        if self._prepared is None or self._schema != snapshot.schema:
            self._prepared = engine.prepared(self._tree.copy(), self._text)
            self._schema = snapshot.schema
        bounds = {} if low is None and high is None else {self._stream: (low, high)}
        region = Region({self._stream: snapshot}, bounds, part, situations, hook)
        return engine.over(self._prepared, region, self.control)

    def of_rows(self, schema: StreamSchema) -> Evaluator:
        """The same over rows in memory in place of the stream."""
        engine = engine_with(self._engine, self._stream, schema)
        return Evaluator(engine, self._tree, self._text, self._stream)


class Form(ABC):
    """A live query's SELECT as one of the classes.

    Attributes
    ----------
    kind : str
        For people.
    fields : sequence of pyarrow.Field
        Columns of its results.
    appends : bool
        Whether results of the region behind the watermark were never put out before.
    rebuilds : bool
        Whether making anew what is kept, and going on with it, costs no more than a region.
    emits_changes : bool
        Whether results can be told before they are closed.
    corrects : bool
        Whether what a late event changes can be told and put right.
    in_order : bool
        Whether results of one time come in the order of their events.
    region_events : int
        To evaluate a region takes about as long as to read so many events more.
    by_event : bool
        Whether a result is made of one event, and :meth:`added_by` may know.
    hits : int or None
        Of how many events a condition held, as often as they were read; None where nobody counts.
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
        """The results with a time from ``low`` to ``high`` that are closed at ``known``.

        With ``known`` at the greatest tick, those that are still open, too.
        """

    def advanced(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        """The results that are closed at ``known`` and were not at ``since``.

        Up to ``since`` the events are those of the step before.  None: evaluate the region.
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
        """What late events make of the results that are closed at a watermark.

        Parameters
        ----------
        old : Snapshot
            That of the step before, without the late events.
        spans : tuple
            Ranges of ticks up to the watermark that they lie in.
        count : int
            How many there are.
        events : pyarrow.Table or None
            These, in the order of time, ties in that of arrival; None where they are not at hand.
        known : int
            The next watermark: up to it :meth:`advanced` will be asked next.

        Returns
        -------
        Corrected or None
            None: evaluate the regions.
        """
        return None

    def added_by(self, snapshot: Snapshot, events: pa.Table) -> Results | None:
        """The results that events are which have come to a stream since they were told last.

        Parameters
        ----------
        snapshot : Snapshot
            With them.
        events : pyarrow.Table
            All that have come to some ticks, in the order of time, ties in that of arrival.

        Returns
        -------
        Results or None
            None: evaluate the regions.
        """
        return None

    @property
    def state_bytes(self) -> int:
        """Memory that is kept from one step to the next."""
        return 0

    def drop_state(self) -> None:  # noqa: B027 - most forms keep nothing
        """Forget what is kept from one step to the next."""

    def closed(self, watermark: int) -> int:
        """Greatest time of results that are closed at a watermark."""
        return watermark

    def begin(self, snapshot: Snapshot, watermark: int) -> int:
        """Least time of a result that was not closed at a watermark."""
        return moved(self.closed(watermark), 1)

    @abstractmethod
    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """Times of results that events in some ranges of ticks can have changed."""

    @abstractmethod
    def explain(self) -> list[tuple[str, str]]:
        """Class, reach, closing rule and the like, for people."""

    def _table(self, result: Result, low: int, high: int, time: Callable[[pa.Table], Ticks]) -> Any:
        """Rows of a result in a range of times, and these times."""
        table = result.arrow()
        ticks = time(table)
        inside = (ticks >= low) & (ticks <= high)
        if not inside.all():
            table, ticks = table.filter(pa.array(inside)), ticks[inside]
        return table, ticks


def ticks_of(table: pa.Table, name: str) -> Ticks:
    """A column of times as ticks."""
    column = table.column(name).combine_chunks()
    return ticks_of_column(column).astype(np.int64)


def chosen(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The user's columns."""
    return table.select(list(columns))
