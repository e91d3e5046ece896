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

A ``StreamForm`` reads one stream.  Relations in memory (pairs of a join, results of a subquery) are
queried like streams.

Patterns and instants keep a search between steps (``StatefulForm``), a cache: valid for one
watermark and one set of events up to it, and made again from the stream where it is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.times import moved
from ..errors import ChronicleError, ResourceLimit
from ..indexes.stream_indexes import StreamIndexes
from ..query.contract.access import VisibleStreams
from ..query.contract.cancellation import QueryControl
from ..query.contract.operator import InstantSearch, MatchLimits, Part, PartRun
from ..query.engine import PickedClause, QueryEngine
from ..query.plan.planner import Region
from ..query.plan.prepared import PreparedQuery
from ..query.windows.group_cache import GroupHook
from ..schema import StreamSchema
from ..store.segment import ScanMetrics
from ..store.snapshot import Snapshot, StreamState
from ..store.tail import MemoryLeaf, ticks_of_column
from ..store.tap import Spans
from ..store.views import StoredView
from .changes import Corrected, Removals, Results


class Overlaid(VisibleStreams):
    """A catalog with additional relations, or with other views."""

    def __init__(
        self,
        engine: QueryEngine,
        relations: Mapping[str, StreamSchema] | None = None,
        views: Mapping[str, StoredView] | None = None,
    ) -> None:
        super().__init__(engine.catalog, lambda _: True)
        self._relations = dict(relations or {})
        self._views = views

    def streams(self) -> list[str]:
        return [*super().streams(), *self._relations]

    def views(self) -> Mapping[str, StoredView]:
        return super().views() if self._views is None else self._views

    def stream_schema(self, name: str) -> StreamSchema:
        own = self._relations.get(name)
        return super().stream_schema(name) if own is None else own

    def snapshot(self, name: str) -> Snapshot:
        own = self._relations.get(name)
        return super().snapshot(name) if own is None else snapshot_of([], own)

    def indexes_of(self, name: str) -> StreamIndexes | None:
        return None if name in self._relations else super().indexes_of(name)


def engine_with(
    engine: Callable[[], QueryEngine], name: str, schema: StreamSchema
) -> Callable[[], QueryEngine]:
    """Lazily, the query engine with an additional relation."""
    cached: list[tuple[QueryEngine, QueryEngine]] = []

    def made() -> QueryEngine:
        whole = engine()
        if not cached or cached[0][0] is not whole:
            cached[:] = [(whole, whole.over_catalog(Overlaid(whole, {name: schema})))]
        return cached[0][1]

    return made


def snapshot_of(batches: list[pa.RecordBatch], schema: StreamSchema) -> Snapshot:
    """Rows in time order as a stream snapshot."""
    whole = pa.Table.from_batches(batches, schema.arrow).combine_chunks().to_batches()
    if not whole or not whole[0].num_rows:
        return Snapshot(StreamState(schema))
    leaf = MemoryLeaf(whole[0], schema)
    state = StreamState(schema, tail=lambda: leaf, tail_events=leaf.events, last=leaf.last)
    return Snapshot(state)


Ticks = npt.NDArray[np.int64]
RESULT_BYTES_MAX = MatchLimits().memory_bytes
EVENTS_BETWEEN = 4096
"""Fixed cost of evaluating a region, in events read."""


class Evaluator:
    """A SELECT, with internal columns added, over regions of one stream."""

    def __init__(
        self, engine: Callable[[], QueryEngine], tree: Any, text: str, stream: str
    ) -> None:
        self._engine = engine
        self._tree = tree
        self._text = text
        self.stream = stream
        self._prepared: PreparedQuery | None = None
        self._clause: PickedClause | None = None
        self._picks = True
        self._schema: StreamSchema | None = None
        self.control = QueryControl()

    def over(
        self,
        snapshot: Snapshot,
        low: int | None = None,
        high: int | None = None,
        part: Any = None,
        hook: GroupHook | None = None,
    ) -> pa.Table:
        """Evaluate over events with ``low <= t < high``, or over a part of the matches; raises
        ResourceLimit for more rows than an ad-hoc query may keep.
        """
        engine = self._engine()
        if self._prepared is None or self._schema != snapshot.schema:
            self._prepared = engine.prepared(self._tree.copy(), self._text)
            self._schema, self._clause, self._picks = snapshot.schema, None, True
        bounds = {} if low is None and high is None else {self.stream: (low, high)}
        region = Region({self.stream: snapshot}, bounds, part, hook)
        if part is not None and self._clause is None and self._picks:
            self._clause = engine.picked_clause(self._prepared, region, self.control)
            self._picks = self._clause is not None
        if part is not None and self._clause is not None:  # without a plan for each part
            compiled, check = self._clause.compiled, self.control.check
            run = PartRun(snapshot, compiled, ScanMetrics(), check, MatchLimits())
            with engine.careful(self._text, self.control):
                return self._clause.rows(self._bounded(part(snapshot, compiled).run(run)))
        result = engine.over(self._prepared, region, self.control)
        return pa.Table.from_batches(self._bounded(result.batches()), result.schema)

    def _bounded(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        taken, size = [], 0
        for batch in batches:
            taken.append(batch)
            size += batch.nbytes
            if size > RESULT_BYTES_MAX:
                raise ResourceLimit(
                    f"a step of a live query of {self.stream!r} has more than {RESULT_BYTES_MAX} "
                    "bytes of results; make its conditions narrower, or shorten WITHIN"
                )
        return taken

    def of_rows(self, schema: StreamSchema) -> Evaluator:
        """The same SELECT over a table in memory."""
        engine = engine_with(self._engine, self.stream, schema)
        return Evaluator(engine, self._tree, self._text, self.stream)


Moment = Mapping[str, Snapshot]
"""Snapshots by stream name, all of one step."""


@dataclass(frozen=True)
class LateEvents:
    """``count`` late events up to ``watermark``, which ``moment`` has; ``events``: them by time,
    then arrival (None if not at hand).
    """

    moment: Moment
    count: int
    watermark: int
    events: Mapping[str, pa.Table | None]


class Form(ABC):
    """A live SELECT over streams with one time unit, as one of the classes.

    ::

        appends         results behind the old watermark were never emitted before
        incremental     ``advanced`` may answer
        rebuilds        rebuilding the state costs no more than evaluating a region
        emits_changes   open results can be emitted
        corrects        effects of late events can be corrected
        in_order        results of one time are ordered as their events
        region_events   cost of evaluating a region, in events read
        hits            events that satisfied a condition; None if not counted
        parts           the forms that it is made of
    """

    kind: str
    parts: tuple[Form, ...] = ()
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    appends = True
    incremental = False
    rebuilds = False
    emits_changes = False
    corrects = True
    in_order = False
    region_events = EVENTS_BETWEEN
    hits: int | None = None

    @abstractmethod
    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        """Results with times ``low`` to ``high`` that are closed at ``known`` (INT64_MAX: all)."""

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        """Results closed at ``known`` but not at ``since``; None: evaluate the region.  Up to
        ``since`` the events must be those of the step before.
        """
        return None

    def corrected(self, late: LateEvents, known: int) -> Corrected | None:
        """Effect of late events on results closed at the watermark; ``advanced`` to ``known``
        follows.  None: evaluate the regions.  Only of a form that ``appends``.
        """
        return None

    def closing(self, moment: Moment, since: int, known: int) -> Results:
        """Results closed at ``known`` but not at ``since``, from the state or from regions."""
        results = self.advanced(moment, since, known) if self.incremental else None
        if results is None:
            begin = self.begin(moment, since)
            results = self.results(moment, begin, self.closed(known), known)
            if not self.appends:
                old = self.results(moment, begin, self.closed(since), since)
                closed = pc.is_in(results.id, value_set=old.id).to_numpy(zero_copy_only=False)
                results = results.where(~closed)
        return results

    @property
    def state_bytes(self) -> int:
        return sum(part.state_bytes for part in self.parts)

    def drop_state(self) -> None:
        """Drop the state kept between steps."""
        for part in self.parts:
            part.drop_state()

    def closed(self, watermark: int) -> int:
        """Greatest time of results that are closed at a watermark."""
        return watermark

    def begin(self, moment: Moment, watermark: int) -> int:
        """Least time of a result that was not closed at a watermark; one may be behind the last."""
        return self.closed(watermark) + 1

    @abstractmethod
    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """Ranges of result times that events in ranges of ticks may have changed."""

    @abstractmethod
    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        """Class, reach, closing rule and the like, for EXPLAIN."""


class StreamForm(Form):
    """A form that evaluates its SELECT over one stream, or over a relation in its place."""

    def __init__(self, evaluator: Evaluator, columns: tuple[str, ...]) -> None:
        self.evaluator = evaluator
        self.stream = evaluator.stream
        self.streams = (self.stream,)
        self.columns = columns

    @staticmethod
    def _between(table: pa.Table, ticks: Ticks, low: int, high: int) -> tuple[pa.Table, Ticks]:
        """The rows with times in a range."""
        inside = (ticks >= low) & (ticks <= high)
        if not inside.all():
            table, ticks = table.filter(pa.array(inside)), ticks[inside]
        return table, ticks


def ticks_of(table: pa.Table, name: str) -> Ticks:
    column = table.column(name).combine_chunks()
    return ticks_of_column(column).astype(np.int64)


def chosen(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of results; enumerations become texts, as which the sink has them."""
    table = table.select(list(columns))
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field.name, plain)
    return table


def coalesced(moment: Moment, regions: Spans, between: int = EVENTS_BETWEEN) -> Spans:
    """Merge ranges where reading the events between them is cheaper than another range."""
    if len(regions) < 2:
        return regions
    low, high = regions[0][0], regions[-1][1]
    held = sum(s.events_between(low, moved(high, 1)) for s in moment.values())
    near = between * (high - low + 1) // max(1, held)
    joined = [regions[0]]
    for first, last in regions[1:]:
        if first - joined[-1][1] <= near:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


STATE_BYTES_MAX = 256 << 20
"""Limit per live query; beyond it steps evaluate regions."""


Rows = list[pa.RecordBatch]


def fed(search: InstantSearch, run: PartRun, low: int, high: int) -> Rows:
    """The results that become known with the events between two ticks."""
    rows = [batch for events in run.scan_between(low, high) for batch in search.feed(events)]
    return [*rows, *search.finish(high)]


class Computed(Part):
    """Rows that are computed in a run of the clause, once: a part may be run repeatedly."""

    ticks = (0, 0)

    def __init__(self, compute: Callable[[PartRun], Rows]) -> None:
        self._compute = compute
        self._rows: Rows | None = None

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        if self._rows is None:
            self._rows = self._compute(run)
        yield from self._rows

    def describe(self) -> str:
        return "what a step computes"


class StatefulForm(StreamForm):
    """A form of one stream with a search that goes on from step to step, unless it must not keep
    one (``keeps``).  The search is valid for one watermark (None after a failure), one schema, and
    one set of events up to it.
    """

    appends = False
    incremental = True
    keeps = True

    def __init__(self, evaluator: Evaluator, columns: tuple[str, ...]) -> None:
        super().__init__(evaluator, columns)
        self._search: Any = None
        self._watermark: int | None = None
        self._schema: StreamSchema | None = None
        self._gone = Removals(0, 0, 0, 0)

    @abstractmethod
    def _begun(self, run: PartRun, since: int) -> InstantSearch:
        """A search that has had the events up to a tick."""

    @abstractmethod
    def _first(self, snapshot: Snapshot, watermark: int) -> int | None:
        """Tick of the first event that matters to the search at a watermark; None without one."""

    @abstractmethod
    def _results_of(self, rows: pa.Table) -> Results:
        """All results of a run."""

    def _holds(self, snapshot: Snapshot, since: int) -> bool:
        """Whether the search is valid at a watermark for the events of a snapshot."""
        if self._watermark != since or self._schema != snapshot.schema:
            return False
        if self._gone == Removals.of(snapshot.state):
            return True
        return self._gone.spare(snapshot.state, self._first(snapshot, since))

    def _computed(self, snapshot: Snapshot, compute: Callable[[PartRun], Rows]) -> Results:
        """Results from rows computed in a run of the clause."""
        part = Computed(compute)
        return self._results_of(self.evaluator.over(snapshot, part=lambda *_: part))

    def _step(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        """The results that close between two watermarks, from the search; None where the region
        must be evaluated.
        """

        def compute(run: PartRun) -> Rows:
            if not self._holds(snapshot, since):
                self.drop_state()
                memory = min(run.limits.memory_bytes, STATE_BYTES_MAX)
                limits = replace(run.limits, memory_bytes=memory)
                self._search = self._begun(run._replace(limits=limits), since)
            self._watermark = None
            self._search.go_on(run)
            rows = fed(self._search, run, since + 1, known)
            self._watermark, self._schema = known, snapshot.schema
            self._gone = Removals.of(snapshot.state)
            return rows

        try:
            return self._computed(snapshot, compute)
        except ChronicleError as error:  # the region reports the error, or avoids it
            self.keeps = not isinstance(error, ResourceLimit)  # it would be too large again
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    @property
    def state_bytes(self) -> int:
        return 0 if self._search is None else int(self._search.nbytes)

    def drop_state(self) -> None:
        self._search = self._watermark = None
