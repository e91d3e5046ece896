"""Live row patterns: one result per match, emitted when no later event can change it.

The search of a region begins at a *cut* (``query.split.cuts``), where it is independent of earlier
events; undecided matches are left out (``query.split.known``).  Searches are kept between steps
(``pattern_state``) where matches are found one at a time.  Results are ordered by time, then
identity.  A late event changes matches from the reach of a match before it to the next cut that
depends only on later events.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.identity import digests
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..errors import ChronicleError, ResourceLimit
from ..query.contract.result import Result
from ..query.pattern.advancing import known_with_last_event
from ..query.pattern.compiled import CompiledMatch
from ..query.pattern.late_region import KnownMatches
from ..query.replay.applicability import demands
from ..query.split.cuts import KnownPart, find_cut, independent, known_part, told_at_once
from ..query.split.parts import Reach
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from .changes import Corrected, Results, beyond
from .forms import Evaluator, Form, Ticks, chosen, half_open, ticks_of
from .late_between import late_among, late_between
from .pattern_state import Correction, Known, PatternState, Step, keeps_state
from .row_form import TIME

__all__ = ["EVENT", "MATCH", "PatternForm"]

MATCH, EVENT = "#match", "#event"
BACKLOG_EVENTS = 1 << 16
"""With more events to process and no state, a step evaluates a region."""


class PatternForm(Form):
    kind = "patterns"
    appends = False
    region_events = 1 << 15  # includes the search for cuts

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], compiled: CompiledMatch
    ) -> None:
        super().__init__(evaluator, columns)
        self._compiled = compiled
        self._every_row = compiled.clause.rows != "one"
        asks = demands(compiled)
        self._from_first = asks.neighbours and bool(asks.partition_by)
        """Whether the row before a match, anywhere in its partition, matters."""
        self._at_once = told_at_once(compiled) and known_with_last_event(compiled)
        self._state = PatternState() if keeps_state(compiled) else None
        self._none: Results | None = None

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:

        def part(at: Snapshot, compiled: CompiledMatch) -> KnownPart:
            reach = Reach(at, compiled)
            begin = reach.first if self._from_first else reach.back(low)
            end = min(known, reach.after(reach.ahead(high)))
            return known_part(at, compiled, begin, end)

        span = snapshot.time_range
        if span is None or low > high:
            return self._nothing(snapshot)
        tables, old = [], low
        if low <= span[0]:  # all of history, evaluated as an ad-hoc query
            old = Reach(snapshot, self._compiled).back(min(known, span[1]))
            tables.append(self._ended(self.evaluator.over(snapshot), low, min(high, old - 1)))
        low = max(low, old)
        tables.append(self._ended(self.evaluator.over(snapshot, part=part), low, high))
        table = pa.concat_tables([found for found, _ in tables])
        return self._named(table, np.concatenate([found for _, found in tables]))

    def _nothing(self, snapshot: Snapshot) -> Results:
        if self._none is None:
            self._none = self._part(snapshot, Known())
        return self._none

    def _named(self, table: pa.Table, ticks: Ticks) -> Results:
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
        return Results(ticks, names, chosen(table, self.columns))

    def advanced(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        state = self._state
        if state is None or snapshot.time_range is None:
            return None
        if known <= since and state.watermark == since:  # nothing new is decided
            return self._nothing(snapshot)
        if not self._from_first and not state.holds(snapshot, since) and (
            snapshot.aggregate((), *half_open(moved(since, 1), known)).count > BACKLOG_EVENTS
        ):  # fmt: skip
            return None
        step = Step(state, since, known)
        try:
            return self._part(snapshot, step)
        except ResourceLimit:  # a rebuilt state would be too large again
            self._state = None
            return None
        except ChronicleError:  # the region reports the error, or avoids it
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

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
        """By searching only the partitions of late events, if these are few."""
        state, compiled = self._state, self._compiled
        if state is None or compiled.within is None or compiled.clause.mode is not None:
            return None  # under a match mode, matches depend on each other
        if old.time_range is None or old.state.rewritten != snapshot.state.rewritten:
            return None
        if old.state.dropped != snapshot.state.dropped or not state.pays(old, watermark, count):
            return None
        if events is None:
            late = late_between(old, snapshot, spans)
        else:
            late = late_among(snapshot, ticks_of(events, snapshot.schema.time))
        if late is None or not len(late.tick):
            return None
        correction = Correction(state, old, late, watermark)
        try:
            found = self._part(snapshot, correction)
            if correction.gone is None:
                return None
            gone = self._nothing(snapshot)
            if correction.gone.num_rows:
                gone = self._part(snapshot, Known(correction.gone))
            over, more = beyond(gone, found), beyond(found, gone)
            return Corrected(over.id, over.time, more)
        except ChronicleError:  # the region reports the error, or avoids it
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    def _part(self, snapshot: Snapshot, part: Any) -> Results:
        found = self.evaluator.over(snapshot, part=lambda *_: part)
        return self._named(*self._ended(found, INT64_MIN, INT64_MAX))

    def known(self, snapshot: Snapshot, events: pa.Table, offsets: Ticks) -> Results:
        """Results for matches whose events are given; see ``KnownMatches``."""
        return self._part(snapshot, KnownMatches(events, offsets))

    @property
    def compiled(self) -> CompiledMatch:
        return self._compiled

    @property
    def hits(self) -> int | None:  # type: ignore[override]
        """Events that may match a variable, where a state is kept."""
        return None if self._state is None else self._state.hits

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        if self._state is not None:
            self._state.drop()

    def _ended(self, result: Result, low: int, high: int) -> tuple[pa.Table, Ticks]:
        table, ticks = self._table(result, low, high, lambda table: ticks_of(table, TIME))
        return table, ticks

    def begin(self, snapshot: Snapshot, watermark: int) -> int:
        """Matches open at a watermark began within their reach before it (or end behind it)."""
        if snapshot.time_range is None or self._at_once:
            return watermark + 1
        if watermark == INT64_MAX:  # nothing is open
            return INT64_MAX + 1
        return Reach(snapshot, self._compiled).back(watermark + 1)

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """From a match's reach before an event to where the searches agree again."""
        if snapshot.time_range is None:  # the stream was truncated
            return ((INT64_MIN, watermark),)
        reach = Reach(snapshot, self._compiled)
        return united(
            tuple(
                (
                    reach.back(first),
                    min(watermark, self._rejoined(snapshot, reach, last, watermark)),
                )
                for first, last in spans
            )
        )

    def _rejoined(self, snapshot: Snapshot, reach: Reach, last: int, watermark: int) -> int:
        """Greatest tick of a match that an event at ``last`` can have changed."""
        compiled = self._compiled
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

    def explain(self) -> list[tuple[str, str]]:
        within = self._compiled.within
        reach = "the greatest length of a match" if within is None else f"{within} ticks"
        every = independent(self._compiled)
        return [
            (
                "class",
                f"{self.kind} ({'each match by itself' if every else 'one match at a time'})",
            ),
            ("reach", reach),
            ("closed", "when no later event can change the match"),
            ("state", self._told_state()),
        ]

    def _told_state(self) -> str:
        again = "from the first one on" if self._from_first else "within the reach of open matches"
        if self._state is None:
            return f"none: events {again} are read again"
        return (
            "incremental: open matches are kept and a step reads its own events; with a few late "
            "ones those near them in their partitions, with many, or after a restart, those "
            f"{again}"
        )
