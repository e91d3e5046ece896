"""Windows in time, TUMBLE and HOP: a result for each window and group, known when it has ended."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..identity import digests
from ..query.windows.spec import TimeWindows
from ..store.snapshot import Snapshot
from ..store.tap import Spans, united
from ..ticks import INT64_MAX, INT64_MIN
from .changes import Results
from .forms import Evaluator, Form, added, chosen, half_open, ticks_of

__all__ = ["START", "WindowForm"]

START = "#start"


class WindowForm(Form):
    """Aggregates of time windows.

    Parameters
    ----------
    evaluator : Evaluator
        With the window's start as :data:`START`, and ``keys``.
    keys : sequence of str
        Columns that tell the groups of one window apart.
    """

    kind = "windows"
    emits_changes = True

    def __init__(
        self,
        evaluator: Evaluator,
        columns: tuple[str, ...],
        seed: bytes,
        windows: TimeWindows,
        keys: Sequence[str],
    ) -> None:
        super().__init__(evaluator, columns)
        self._seed = seed
        self.windows = windows
        self._keys = keys
        self._none: Results | None = None

    def results(self, snapshot: Snapshot, low: int, high: int, known: int) -> Results:
        """The windows whose last tick lies in a range."""
        high = min(high, known)
        first, last = self._starts(low, high)
        if first > last:  # no window ends there
            if self._none is None:
                self._none = self._read(snapshot, 0, 0, 1, 0)
            return self._none
        return self._read(
            snapshot, *half_open(first, added(last, self.windows.size - 1)), low, high
        )

    def _read(
        self, snapshot: Snapshot, start: int | None, end: int | None, low: int, high: int
    ) -> Results:
        result = self.evaluator.over(snapshot, start, end)
        size = self.windows.size
        table, ticks = self._table(result, low, high, lambda t: ticks_of(t, START) + (size - 1))
        keys = [table.column(name) for name in self._keys]
        names = digests(self._seed, [pa.array(ticks - (size - 1)), *keys])
        return Results(ticks, names, chosen(table, self.columns))

    def _starts(self, low: int, high: int) -> tuple[int, int]:
        """First and last start of a window whose last tick lies in a range."""
        size, slide = self.windows.size, self.windows.slide
        origin = (self.windows.origin or 0) % slide
        first = INT64_MIN
        if low > added(INT64_MIN, size):
            first = origin + -((origin - (low - size + 1)) // slide) * slide
        last = INT64_MAX
        if high < INT64_MAX:
            last = origin + (high - size + 1 - origin) // slide * slide
        return first, last

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        """The windows that hold one of the events."""
        return united(tuple((first, added(last, self.windows.size - 1)) for first, last in spans))

    def explain(self) -> list[tuple[str, str]]:
        """What is said of the class."""
        return [
            ("class", f"{self.kind} ({self.windows.describe()})"),
            ("reach", f"{self.windows.size - 1} ticks"),
            ("closed", "when the watermark passes the last tick of the window"),
            ("state", "none: a window is read, or looked up in the tree, when it closes"),
        ]
