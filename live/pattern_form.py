"""Live row patterns: one result per match, emitted when no later event can change it.

The search of a region begins at a *cut* (``query.split.cuts``), where it is independent of earlier
events; undecided matches are left out (``decided_part``).  Searches are cached between steps where
matches are found one at a time.  Results are ordered by time, then identity.  A late event changes
matches from the reach of a match before it to the next cut that depends only on later events.

The cache of a live pattern's searches lets a step in order read only its own events::

    cut            W0                W1
     |.. replayed ..|.. advanced over ..|
     found by the   nothing is emitted  decided matches are the rows of the step
     region's rule

A step gives what region evaluation gives that is new at W1.  A state is valid for one watermark and
one set of events up to it, and is rebuilt from the stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests
from ..core.sorting import firsts
from ..core.times import INT64_MAX, INT64_MIN, half_open, length_text, moved
from ..query.contract.operator import PartRun
from ..query.pattern.advancing import AdvancingMatch, final_with_last_event, marks_ends
from ..query.pattern.columns import KeyCodes
from ..query.pattern.compiled import CompiledMatch
from ..query.replay.applicability import demands
from ..query.split.cuts import DecidedPart, decided_at_once, decided_part, find_cut
from ..query.split.parts import Cut, GivenMatches, Reach, independent
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .changes import Results
from .forms import (
    Evaluator,
    Moment,
    Rows,
    StatefulForm,
    Ticks,
    chosen,
    ticks_of,
)
from .row_form import TIME


def keeps_state(compiled: CompiledMatch) -> bool:
    """Whether a continued search decides matches exactly when the search of a region does.  Further
    sort keys, or INCREMENTAL MATCH, leave open where a search stands at a position; where rows
    before a cut matter, searches start at the first event, which pays only with partitions.
    """
    asks = demands(compiled)
    return (
        compiled.in_time_order
        and (compiled.clause.selection is None or decided_at_once(compiled))
        and compiled.clause.rows != "all with unmatched"
        and not compiled.lookahead
        and not marks_ends(compiled)
        and not asks.ties
        and (bool(asks.partition_by) or not asks.neighbours)
    )


def _carried(compiled: CompiledMatch, cut: Cut, rows: pa.Table) -> tuple[pa.Table, Ticks, Ticks]:
    """Keys of the partitions with carried rows; tick and rank behind the last one of each."""
    keys = list(compiled.partition_by)
    codes = KeyCodes(len(keys)).of_rows(rows, keys)
    ticks = ticks_of(rows, str(compiled.columns.time))
    reverse = cut.carried[::-1]
    last = reverse[firsts(codes[reverse])[1]]
    rank = [int(((codes[:row] == codes[row]) & (ticks[:row] == ticks[row])).sum()) for row in last]
    return rows.select(keys).take(pa.array(last)), ticks[last], np.array(rank, np.int64) + 1


MATCH, EVENT = "#match", "#event"
SCANNED_EVENTS = 1 << 19
"""Up to this number, all of history is read; with more it is evaluated as an ad-hoc query."""
BACKLOG_EVENTS = 1 << 16
"""With more events to process and no state, a step evaluates a region."""


class PatternForm(StatefulForm):
    kind = "patterns"
    region_events = 1 << 15  # includes the search for cuts

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], compiled: CompiledMatch
    ) -> None:
        super().__init__(evaluator, columns)
        self.compiled = compiled
        self._every_row = compiled.clause.rows != "one"
        asks = demands(compiled)
        self._from_first = asks.neighbours and bool(asks.partition_by)
        """Whether the row before a match, anywhere in its partition, matters."""
        self._at_once = decided_at_once(compiled) and final_with_last_event(compiled)
        self.keeps = self._counts = keeps_state(compiled)
        self._none: Results | None = None
        self._given: GivenMatches | None = None
        self._hits = 0

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        snapshot = moment[self.stream]

        def part(at: Snapshot, compiled: CompiledMatch) -> DecidedPart:
            reach = Reach(at, compiled)
            begin = reach.first if self._from_first else reach.back(low)
            end = min(known, reach.after(reach.ahead(high)))
            return decided_part(at, compiled, begin, end)

        span = snapshot.time_range
        if span is None or low > high:
            return self._nothing(snapshot)
        tables, old = [], low
        if low <= span[0] and snapshot.count > SCANNED_EVENTS:  # indexes may help
            old = Reach(snapshot, self.compiled).back(min(known, span[1]))
            rows = self.evaluator.over(snapshot)
            tables.append(self._between(rows, ticks_of(rows, TIME), low, min(high, old - 1)))
        low = max(low, old)
        rows = self.evaluator.over(snapshot, part=part)
        tables.append(self._between(rows, ticks_of(rows, TIME), low, high))
        table = pa.concat_tables([part_result for part_result, _ in tables])
        return self._named(table, np.concatenate([part_result for _, part_result in tables]))

    def _nothing(self, snapshot: Snapshot) -> Results:
        return self._computed(snapshot, lambda _: []) if self._none is None else self._none

    def _named(self, table: pa.Table, ticks: Ticks) -> Results:
        if not len(ticks) and self._none is not None:
            return self._none
        names = table.column(MATCH).combine_chunks()
        order = np.asarray(
            pc.sort_indices(
                pa.table({"tick": ticks, "name": names, "row": np.arange(len(ticks))}),
                [("tick", "ascending"), ("name", "ascending"), ("row", "ascending")],
            )
        )
        table, ticks = table.take(pa.array(order)).combine_chunks(), ticks[order]
        names = table.column(MATCH)
        if self._every_row:
            names = digests(b"", [names, table.column(EVENT)])
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.chunks)
        results = Results(ticks, names, chosen(table, self.columns))
        if not len(results):
            self._none = results
        return results

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        snapshot = moment[self.stream]
        if not self.keeps or snapshot.time_range is None:
            return None
        if known <= since and self._watermark == since:  # nothing new is decided
            return self._nothing(snapshot)
        if not self._from_first and not self._holds(snapshot, since) and (
            snapshot.events_between(*half_open(moved(since, 1), known)) > BACKLOG_EVENTS
        ):  # fmt: skip
            return None
        before = self._search
        hits = 0 if before is None else before.hits
        results = self._step(snapshot, since, known)
        if self._search is not None:
            self._hits += self._search.hits - (hits if self._search is before else 0)
        return results

    def _begun(self, run: PartRun, since: int) -> AdvancingMatch:
        snapshot, compiled = run.snapshot, run.compiled
        search = AdvancingMatch(compiled, run.limits, run.check)
        reach, cut = Reach(snapshot, compiled), None
        if not demands(compiled).neighbours:
            begin = reach.back(min(moved(since, 1), reach.last))
            cut = decided_part(snapshot, compiled, begin, since, run.check).low
        low = reach.first if cut is None else cut.tick
        if cut is not None and len(cut.carried):
            rows = pa.Table.from_batches(run.scan_between(low, cut.last))
            search.begin_behind(*_carried(compiled, cut, rows))
        search.replay(run.scan_between(low, since), since)
        return search

    def _first(self, snapshot: Snapshot, watermark: int) -> int | None:
        return None if self._search is None else self._search.oldest_tick

    def _results_of(self, rows: pa.Table) -> Results:
        if self._none is not None and not rows.num_rows:
            return self._none
        return self._named(rows, ticks_of(rows, TIME))

    def results_of_matches(self, snapshot: Snapshot, events: pa.Table, offsets: Ticks) -> Results:
        """Results for matches whose events are given; see ``GivenMatches``."""

        def compute(run: PartRun) -> Rows:
            if self._given is None or self._given.compiled is not run.compiled:
                self._given = GivenMatches(run.compiled, run.limits, run.check)
            return list(self._given.matching(events, offsets))

        return self._computed(snapshot, compute)

    @property
    def hits(self) -> int | None:  # type: ignore[override]
        """Events that may match a variable, where a state is kept."""
        return self._hits if self._counts else None

    def begin(self, moment: Moment, watermark: int) -> int:
        """Matches open at a watermark began within their reach before it (or end behind it)."""
        snapshot = moment[self.stream]
        if snapshot.time_range is None or self._at_once:
            return watermark + 1
        if watermark == INT64_MAX:  # nothing is open
            return INT64_MAX + 1
        return Reach(snapshot, self.compiled).back(watermark + 1)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        """From a match's reach before an event to where the searches agree again."""
        snapshot, spans = moment[self.stream], late.get(self.stream, ())
        if not spans:
            return ()
        if snapshot.time_range is None:  # the stream was truncated
            return ((INT64_MIN, watermark),)
        reach = Reach(snapshot, self.compiled)
        return united(
            tuple(
                (
                    min(first, reach.back(first)),  # events before the stream's first were deleted
                    min(watermark, self._rejoined(snapshot, reach, last, watermark)),
                )
                for first, last in spans
            )
        )

    def _rejoined(self, snapshot: Snapshot, reach: Reach, last: int, watermark: int) -> int:
        """Greatest tick of a match that an event at ``last`` can have changed."""
        compiled = self.compiled
        if demands(compiled).neighbours:
            if compiled.partition_by:
                return watermark  # the next event of its partition may be far away
            last = reach.after(last)
        end = reach.ahead(last)
        if independent(compiled):
            return end
        while end < watermark:
            cut, _ = find_cut(snapshot, compiled, reach, moved(end, 1))
            if cut is not None:
                return reach.ahead(max(cut.tick, cut.last))
            end = reach.ahead(moved(end, 1))
        return watermark

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        within, state = self.compiled.within, "none: events {} are read again"
        if self.keeps:
            state = (
                "incremental: open matches are kept and a step reads its own events; one with late "
                "events, or after a restart, those {}"
            )
        again = "from the first one on" if self._from_first else "within the reach of open matches"
        how = "each match by itself" if independent(self.compiled) else "one match at a time"
        return [
            ("class", f"{self.kind} ({how})"),
            (
                "reach",
                "the greatest length of a match" if within is None else length_text(within, time),
            ),
            ("closed", "when no later event can change the match"),
            ("state", state.format(again)),
        ]
