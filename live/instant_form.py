"""Live operators whose results become known at instants: situations, and ``EventOperator`` in FROM.

A region reads the events from the operator's reach before it; a late event changes the instants
that ``EventOperator.changed`` says.  Between steps the search is cached::

           reach                W0              W1
    ....|---------------------|===============|
          fed once, without     fed: the results that become known
          results               between W0 and W1

The cache is valid for one watermark and one set of events up to it, and rebuilt within the reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from ..core.identity import digests
from ..core.times import INT64_MAX, INT64_MIN, length_text, moved
from ..query.contract.operator import EventOperator, InstantRange, InstantSearch, PartRun
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .changes import Results
from .forms import Evaluator, Moment, StatefulForm, chosen, fed, ticks_of
from .row_form import TIME, ranks

PARTITIONS_LEAST = 1 << 16


class InstantForm(StatefulForm):
    """``identity``: the column with the identity of a result, or a seed for that of its instant and
    its rank within it.
    """

    rebuilds = True

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        operator: EventOperator,
        words: Sequence[tuple[str, str]],
        identity: str | bytes,
    ) -> None:
        super().__init__(evaluator, columns)
        self._operator = operator
        self._words = words
        self._identity = identity
        self._partitions = 0

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        snapshot = moment[self.stream]
        high, span = min(high, known), snapshot.time_range
        if span is None or low > high:
            return self._named(self.evaluator.over(snapshot, 0, 0), 1, 0)
        if low <= span[0] and high <= span[1]:  # all of history, evaluated as an ad-hoc query
            return self._named(self.evaluator.over(snapshot), low, high)

        def part(at: Snapshot, operator: EventOperator) -> InstantRange:
            return replace(InstantRange.of(at, operator, low, high), closed=True)

        return self._named(self.evaluator.over(snapshot, part=part), low, high)

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        snapshot = moment[self.stream]
        if not self.keeps or snapshot.time_range is None:
            return None
        return self._step(snapshot, since, known)

    def _begun(self, run: PartRun, since: int) -> InstantSearch:
        search: InstantSearch = run.compiled.begin_at(run, since + 1)
        fed(search, run, self._first(run.snapshot, since), since)
        self._partitions = search.partitions
        return search

    def _first(self, snapshot: Snapshot, watermark: int) -> int:
        return InstantRange.of(snapshot, self._operator, moved(watermark, 1), watermark).begin

    def _holds(self, snapshot: Snapshot, since: int) -> bool:
        many = max(PARTITIONS_LEAST, 2 * self._partitions)
        few = self._search is not None and self._search.partitions <= many
        return few and super()._holds(snapshot, since)

    def _results_of(self, rows: pa.Table) -> Results:
        return self._named(rows, INT64_MIN, INT64_MAX)

    def _named(self, rows: pa.Table, low: int, high: int) -> Results:
        table, ticks = self._between(rows, ticks_of(rows, TIME), low, high)
        if isinstance(self._identity, bytes):
            names = digests(self._identity, [pa.array(ticks), pa.array(ranks(ticks))])
        else:
            names = table.column(self._identity).combine_chunks()
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.chunks)
        return Results(ticks, names, chosen(table, self.columns))

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        spans = late.get(self.stream, ())
        return united(self._operator.changed(moment[self.stream], spans, watermark))

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        state = (
            "incremental: the open search is kept and a step reads its own events; one with late "
            "events, or after a restart, those of the reach"
        )
        if not self.keeps:
            state = "none: events within the reach are read again"
        least = self._operator.reach
        reach = "unbounded" if least is None else length_text(least, time)
        return [self._words[0], ("reach", reach), *self._words[1:], ("state", state)]
