"""Situations: results for each match, known at the instant of its completion or its detection.

How a region is read
    The matches of a range of instants begin at most their reach before it, so the rows from there
    on are read; a run that seems to begin with them counts when the row before says so
    (:class:`~chronicle.query.split.situation_parts.SituationRange`).

What is kept
    Runs that last and situations that may still match, as they stand at the mark
    (:mod:`.situation_state`): a step reads its own events.

What a late event changes
    A row in a partition changes the runs that hold it, end at it, or begin at it or, when it parts
    or joins two of them, at the row behind it (with PREV also those behind the rows that look back
    at it; with GAP no row further away).  A match of such a run becomes known no earlier than the
    event, for it depends on nothing later than its instant, and at most the reach of a match after
    the start of that run::

               t           next row of p
        -------x-----------x--------------------
               [--------- reach ---)             runs that begin up to t
                           [--------- reach ---) runs that begin at the next row

Limits
    Where retention has dropped the row before a run, a correction takes the run as begun with the
    first row that is left, as the same query over the stream does.
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
from ..query.pattern.groups import KeyCodes
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
    """Matches of situations of a stream.

    Parameters
    ----------
    evaluator : Evaluator
        With the instant of a match as :data:`TIME` and its identity as :data:`MATCH`.
    compiled : CompiledSituations
        With a bound on how long a match takes.
    """

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
        """The matches that become known in a range of ticks."""
        high, span = min(high, known), snapshot.time_range
        if span is None or low > high:
            return self._named(self.evaluator.over(snapshot, 0, 0), 1, 0)
        if low <= span[0]:  # all of history: as any query is answered over it
            return self._named(self.evaluator.over(snapshot), low, high)

        def part(at: Snapshot, compiled: CompiledSituations) -> SituationRange:
            return SituationRange.of(at, compiled, low, high)

        return self._named(self.evaluator.over(snapshot, situations=part), low, high)

    def advanced(self, snapshot: Snapshot, since: int, known: int) -> Results | None:
        """By the runs and situations that are kept; they are found again where they are not."""
        state = self._state
        if state is None or snapshot.time_range is None:
            return None
        step = SituationStep(state, since, known)
        try:
            found = self.evaluator.over(snapshot, situations=lambda *_: step)
            return self._named(found, INT64_MIN, INT64_MAX)
        except ResourceLimit:  # the state would be too large, and would be again
            self._state = None
            return None
        except ChronicleError:  # the region says the same, or does without
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    def _named(self, result: Result, low: int, high: int) -> Results:
        """Rows of matches as results; they come in the order of their instants."""
        table, ticks = self._table(result, low, high, lambda table: ticks_of(table, TIME))
        names = table.column(MATCH).combine_chunks()
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.chunks)
        return Results(ticks, names, chosen(table, self.columns))

    @property
    def state_bytes(self) -> int:
        """Memory of runs and situations."""
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        """Forget runs and situations."""
        if self._state is not None:
            self._state.drop()

    # -- late events -------------------------------------------------------------------------

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """From each event, and from the rows that it can have made the first of a run."""
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
        """Times of the rows behind a range that look back at a row in it, of any partition."""
        names = list(self._compiled.partition_by)
        codes = KeyCodes(max(1, len(names)))

        def rows(low: int, high: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
            """Ticks and partitions of the rows with ``low <= t <= high``."""
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
        low, step = moved(last, 1), max(1, last - first + 1)
        while left.any() and low <= watermark:
            high = min(watermark, moved(low, step))
            ticks, found = rows(low, high)
            left = np.concatenate([left, np.zeros(max(0, codes.count - len(left)), np.int64)])
            kept = np.zeros(len(found), np.bool_)
            _first_of(found, left, kept)
            told += distinct(ticks[kept]).tolist()
            low = moved(high, 1)
            step = _wider(step, len(found))
        return told

    def explain(self) -> list[tuple[str, str]]:
        """What is said of the class."""
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
    """How many ticks to look at next, when the last ones had so many rows."""
    return step if rows > ROWS_MAX else min(step * (8 if rows < ROWS_FIRST else 2), INT64_MAX // 4)


@kernel
def _first_of(codes, left, kept):  # type: ignore[no-untyped-def]
    """Mark the first rows of partitions, ``left[code]`` more of each."""
    for i in range(codes.shape[0]):
        if left[codes[i]] > 0:
            left[codes[i]] -= 1
            kept[i] = True
