"""Windows of a number of events (TUMBLE_ROWS, HOP_ROWS), closed by their last event.

A late event shifts all later windows, so emitted results stay, and only later windows count it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..core.identity import digests
from ..query.windows.spec import CountWindows
from ..store.snapshot import Snapshot
from ..store.tap import Spans
from .changes import Results
from .forms import Evaluator, Form, chosen, ticks_of

__all__ = ["LAST", "NUMBER", "CountForm"]

NUMBER, LAST = "#number", "#end"


class CountForm(Form):
    """The evaluator gives ``NUMBER``, ``LAST`` and keys; ``numbers`` select the window's number."""

    kind = "counted windows"
    corrects = False

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        windows: CountWindows,
        keys: Sequence[str],
        numbers: Sequence[str],
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self._windows = windows
        self._keys = keys
        self._numbers = numbers

    def following(self, snapshot: Snapshot, number: int, known: int) -> tuple[Results, int]:
        """The windows from ``number`` on that are closed at ``known``, and the next number."""
        total = int(snapshot.aggregate((), None, known + 1).count)
        beyond = max(number, self._windows.complete(total))
        position = number * self._windows.slide
        low, high = 0, 0
        skipped = 0
        if beyond > number:
            low, high = self._tick_of(snapshot, position), known + 1
            skipped = position - int(snapshot.aggregate((), None, low).count)
        table = self.evaluator.over(_Behind(snapshot, low, skipped), low, high).arrow()
        ticks = ticks_of(table, LAST)
        shown = chosen(table, self.columns)
        for name in self._numbers:
            place = shown.schema.names.index(name)
            moved = pa.array(shown.column(place).to_numpy() + number)
            shown = shown.set_column(place, name, moved)
        numbers = pa.array(table.column(NUMBER).to_numpy() + number)
        keys = [table.column(name) for name in self._keys]
        return Results(ticks, digests(self._seed, [numbers, *keys]), shown), beyond

    @staticmethod
    def _tick_of(snapshot: Snapshot, position: int) -> int:
        span = snapshot.time_range
        assert span is not None
        low, high = span
        while low < high:  # the least tick with more than ``position`` events up to it
            middle = (low + high) // 2
            if snapshot.aggregate((), None, middle + 1).count > position:
                high = middle
            else:
                low = middle + 1
        return low

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        """Always empty: only ``following`` gives windows."""
        return self.following(snapshot, 0, -1)[0]

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        return ()

    def explain(self) -> list[tuple[str, str]]:
        return [
            ("class", f"{self.kind} ({self._windows.describe()})"),
            ("reach", "none: late events are counted in from then on"),
            ("closed", "with the last event of the window"),
            ("state", "the number of the next window"),
        ]


class _Behind(Snapshot):
    """A snapshot without the events before a tick and without the first ``skipped`` at it."""

    def __init__(self, snapshot: Snapshot, tick: int, skipped: int) -> None:
        super().__init__(snapshot.state)
        self._tick = tick
        self._skipped = skipped

    def scan(
        self, start: int | None = None, end: int | None = None, *given: Any, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        left = self._skipped
        begin = self._tick if start is None else max(start, self._tick)
        for batch in super().scan(begin, end, *given, **options):
            dropped = min(left, batch.num_rows)
            left -= dropped
            if dropped < batch.num_rows:
                yield batch.slice(dropped)
