"""Live situations: one result per match, final at the instant of its completion or detection.

A region reads rows from the reach of a match before it (``query.split.situation_parts``).  A late
row in a partition changes the runs that contain it, end or begin at it, or, if it splits or joins
two of them, begin at the next row (with PREV also behind rows that look back at it; with GAP no
further).  A match of such a run becomes known no earlier than the event, and at most its reach
after the run's start::

             t           next row of p
      -------x-----------x--------------------
             [--------- reach ---)             runs that begin up to t
                         [--------- reach ---) runs that begin at the next row

Where retention has dropped the row before a run, the run begins at the first row left, as ad hoc.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.native import kernel
from ..core.sorting import distinct
from ..core.times import INT64_MAX, INT64_MIN, moved
from ..errors import ChronicleError, ResourceLimit
from ..query.contract.result import Result
from ..query.pattern.columns import KeyCodes
from ..query.replay.situation_ticks import furthest
from ..query.situations.compiled import CompiledSituations
from ..query.split.situation_parts import SituationRange
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from ..store.tap import Spans, united
from .changes import Results
from .forms import Evaluator, Form, chosen, half_open, ticks_of
from .pattern_form import MATCH
from .row_form import TIME
from .situation_state import SituationState, SituationStep

__all__ = ["SituationForm"]

ROWS_FIRST = 1 << 12
ROWS_MAX = 1 << 20


class SituationForm(Form):
    kind = "situations"
    appends = False
    rebuilds = True

    def __init__(
        self, evaluator: Evaluator, columns: tuple[str, ...], compiled: CompiledSituations
    ) -> None:
        super().__init__(evaluator, columns)
        self._compiled = compiled
        reach = furthest(compiled)
        assert reach is not None
        self._reach = reach
        self._state: SituationState | None = SituationState()

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        high, span = min(high, known), snapshot.time_range
        if span is None or low > high:
            return self._named(self.evaluator.over(snapshot, 0, 0), 1, 0)
        if low <= span[0]:  # all of history, evaluated as an ad-hoc query
            return self._named(self.evaluator.over(snapshot), low, high)

        def part(at: Snapshot, compiled: CompiledSituations) -> SituationRange:
            return SituationRange.of(at, compiled, low, high)

        return self._named(self.evaluator.over(snapshot, situations=part), low, high)

    def advanced(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        state = self._state
        if state is None or snapshot.time_range is None:
            return None
        step = SituationStep(state, since, known)
        try:
            found = self.evaluator.over(snapshot, situations=lambda *_: step)
            return self._named(found, INT64_MIN, INT64_MAX)
        except ResourceLimit:  # a rebuilt state would be too large again
            self._state = None
            return None
        except ChronicleError:  # the region reports the error, or avoids it
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    def _named(self, result: Result, low: int, high: int) -> Results:
        table, ticks = self._table(result, low, high, lambda table: ticks_of(table, TIME))
        names = table.column(MATCH).combine_chunks()
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.chunks)
        return Results(ticks, names, chosen(table, self.columns))

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        if self._state is not None:
            self._state.drop()

    # -- late events -------------------------------------------------------------------------

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        compiled, found = self._compiled, []
        for first, last in spans:
            if compiled.gap is not None and not compiled.history:
                found.append((first, moved(moved(last, compiled.gap), self._reach)))
                continue
            found.append((first, moved(last, self._reach)))
            behind = self._next_rows(snapshot, first, last, watermark)
            found += [(tick, moved(tick, self._reach)) for tick in behind]
        return united(tuple((low, min(watermark, high)) for low, high in found))

    def _next_rows(self, snapshot: Snapshot, first: int, last: int, watermark: int) -> list[int]:
        """Times of rows behind a range that look back at a row in it, in any partition."""
        names = list(self._compiled.partition_by)
        codes = KeyCodes(max(1, len(names)))

        def rows(low: int, high: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            time = snapshot.schema.time
            read = snapshot.scan(*half_open(low, high), list(dict.fromkeys([*names, time])))
            ticks, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for batch in read:
                table = pa.Table.from_batches([batch])
                ticks.append(ticks_of_column(batch.column(time)).astype(np.int64))
                keys = [table.column(name) for name in names]
                found.append(codes.encode(keys) if names else np.zeros(len(ticks[-1]), np.int64))
            return np.concatenate(ticks), np.concatenate(found)

        _, touched = rows(first, last)
        left = np.zeros(max(codes.count, 1), np.int64)
        left[touched] = self._compiled.history + 1
        told: list[int] = []
        low, step = last + 1, max(1, last - first + 1)
        while left.any() and low <= watermark:
            high = min(watermark, low + step)
            ticks, found = rows(low, high)
            left = np.concatenate([left, np.zeros(max(0, codes.count - len(left)), np.int64)])
            kept = np.zeros(len(found), np.bool_)
            _first_of(found, left, kept)
            told += distinct(ticks[kept]).tolist()
            low = high + 1
            step = _wider(step, len(found))
        return told

    def explain(self) -> list[tuple[str, str]]:
        early = self._compiled.early
        return [
            ("class", f"{self.kind} ({'on detection' if early else 'on completion'})"),
            ("reach", f"{self._reach} ticks"),
            ("closed", f"when the watermark passes the {'detection' if early else 'completion'}"),
            (
                "state",
                "incremental: runs that last and situations within the reach are kept and a step "
                "reads its own events; one with late events, or after a restart, those of the reach"
                if self._state is not None
                else "none: events within the reach are read again",
            ),
        ]


def _wider(step: int, rows: int) -> int:
    """Ticks to read next, given the number of rows in the last range."""
    return step if rows > ROWS_MAX else min(step * (8 if rows < ROWS_FIRST else 2), INT64_MAX // 4)


@kernel
def _first_of(codes, left, kept):  # type: ignore[no-untyped-def]
    """Mark the first ``left[code]`` rows of each partition."""
    for i in range(codes.shape[0]):
        if left[codes[i]] > 0:
            left[codes[i]] -= 1
            kept[i] = True
