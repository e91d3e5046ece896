"""Row patterns: results for each match, known when no later event can change it.

How a region is searched
    The search begins at a *cut* (:mod:`chronicle.query.split.cuts`) before the region, where what
    came before is forgotten, and ends at what is known; matches that are not decided by that are
    left out (:mod:`chronicle.query.split.known`).  Where each match is found whatever others there
    are, every tick is a cut.

What is kept
    Where matches are found one at a time, the searches as they stand at the mark
    (:mod:`.pattern_state`): a step in order reads its own events.  A region is evaluated at the
    first step, and at one with late events.

In which order
    By the time of the match, then by its identity, however it was found.

What a late event changes
    A match that it could be part of begins at most the reach of a match before it.  Behind it, the
    search that has seen it and the one that has not take different ways until they come by the
    same place: the next cut that is made of later events only.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ChronicleError, ResourceLimit
from ..identity import digests
from ..query.contract.result import Result
from ..query.pattern.compiled import CompiledMatch
from ..query.pattern.known_matches import KnownMatches
from ..query.replay.applicability import demands
from ..query.split.cuts import find_cut, independent
from ..query.split.known import KnownPart, known_part
from ..query.split.reach import Reach
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from ..ticks import INT64_MAX, INT64_MIN
from .changes import Results
from .forms import Evaluator, Form, Ticks, added, chosen, ticks_of
from .pattern_state import PatternState, Step, keeps_state
from .row_form import TIME

__all__ = ["EVENT", "MATCH", "PatternForm"]

MATCH, EVENT = "#match", "#event"


class PatternForm(Form):
    """Matches of a row pattern over a stream.

    Parameters
    ----------
    evaluator : Evaluator
        With :data:`TIME` and :data:`MATCH`, and with ALL ROWS PER MATCH :data:`EVENT`.
    """

    kind = "patterns"
    appends = False

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], compiled: CompiledMatch
    ) -> None:
        super().__init__(evaluator, columns)
        self._compiled = compiled
        self._every_row = compiled.clause.rows != "one"
        asks = demands(compiled)
        self._from_first = asks.neighbours and bool(asks.partition_by)
        """Whether a row before the match counts, which may lie anywhere in its partition."""
        self._state = PatternState() if keeps_state(compiled) else None

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        """The matches that end in a range of ticks and are decided."""

        def part(at: Snapshot, compiled: CompiledMatch) -> KnownPart:
            reach = Reach(at, compiled)
            begin = reach.first if self._from_first else reach.back(low)
            end = min(known, reach.after(reach.ahead(high)))
            return known_part(at, compiled, begin, min(end, INT64_MAX - 1))

        span = snapshot.time_range
        if span is None or low > high:
            table, ticks = self._ended(self.evaluator.over(snapshot, 0, 0), 1, 0)
        else:
            tables, old = [], low
            if low <= span[0]:  # all of history, as any query is answered over it
                old = Reach(snapshot, self._compiled).back(min(known, span[1]))
                tables.append(self._ended(self.evaluator.over(snapshot), low, min(high, old - 1)))
            low = max(low, old)
            tables.append(self._ended(self.evaluator.over(snapshot, part=part), low, high))
            table = pa.concat_tables([found for found, _ in tables])
            ticks = np.concatenate([found for _, found in tables])
        return self._named(table, ticks)

    def _named(self, table: pa.Table, ticks: Ticks) -> Results:
        """Rows of matches as results."""
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
        """By the searches that are kept, where they are."""
        state = self._state
        if state is None or snapshot.time_range is None:
            return None
        step = Step(state, since, known)
        try:
            found = self.evaluator.over(snapshot, part=lambda *_: step)
            table, ticks = self._ended(found, INT64_MIN, INT64_MAX)
        except ResourceLimit:  # the state would be too large, and would be again
            self._state = None
            return None
        except ChronicleError:  # the region says the same, or does without
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise
        return self._named(table, ticks)

    def known(self, snapshot: Snapshot, events: pa.Table, offsets: Ticks) -> Results:
        """Matches of which the events are known: see :class:`~.known_matches.KnownMatches`."""
        part = KnownMatches(events, offsets)
        found = self.evaluator.over(snapshot, part=lambda *_: part)
        return self._named(*self._ended(found, INT64_MIN, INT64_MAX))

    @property
    def compiled(self) -> CompiledMatch:
        """The clause."""
        return self._compiled

    @property
    def hits(self) -> int | None:  # type: ignore[override]
        """Events that some variable may stand for, where searches are kept."""
        return None if self._state is None else self._state.hits

    @property
    def state_bytes(self) -> int:
        """Memory of the searches."""
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        """Forget the searches."""
        if self._state is not None:
            self._state.drop()

    def _ended(self, result: Result, low: int, high: int) -> tuple[pa.Table, Ticks]:
        """The matches of a result that end in a range of ticks."""
        table, ticks = self._table(result, low, high, lambda table: ticks_of(table, TIME))
        return table, ticks

    def begin(self, snapshot: Snapshot, watermark: int) -> int:
        """Matches that are open at a watermark have begun within their reach before it."""
        if snapshot.time_range is None:
            return INT64_MIN
        reach = Reach(snapshot, self._compiled)
        return reach.back(min(added(watermark, 1), reach.last))

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """From the reach of a match before an event to where the searches meet."""
        if snapshot.time_range is None:  # everything was truncated
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
        """Greatest tick of a match that an event at a tick can have changed."""
        compiled = self._compiled
        if demands(compiled).neighbours:
            if compiled.partition_by:
                return watermark  # the next event of its partition may be far away
            last = reach.after(last)
        end = reach.ahead(last)
        if independent(compiled):
            return end
        while end < watermark:
            cut, _ = find_cut(snapshot, compiled, reach, added(end, 1))
            if cut is not None:
                return reach.ahead(max(cut.tick, cut.last))
            end = reach.ahead(added(end, 1))
        return watermark

    def explain(self) -> list[tuple[str, str]]:
        """What is said of the class."""
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
        """What a step reads."""
        again = "from the first one on" if self._from_first else "within the reach of open matches"
        if self._state is None:
            return f"none: events {again} are read again"
        return (
            "incremental: open matches are kept and a step reads its own events; one with late "
            f"events, or after a restart, those {again}"
        )
