"""Calendar windows: days, weeks, months and years in a time zone.

Between two changes of length they are ordinary time windows, so a ``Calendar`` is a sequence of
*pieces*, each evaluated as time windows by tree or by replay::

    days in Berlin    |24h|24h|24h|23h|24h|24h| ... |24h|25h|24h|24h|
    pieces            |-----------|---|-------- ... ----|---|-------|

Months and years count from January 1970, days from 1 January 1970, whole weeks from a Monday.  A
window begins at local midnight: the first one where clocks are set back across it, the change where
it is skipped; a day that is skipped altogether has no window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidArgument
from .spec import TICK_MAX, TICK_MIN, TimeWindows, Windows

__all__ = ["AnyWindows", "Calendar", "CalendarWindows", "Piece"]

Ticks = npt.NDArray[np.int64]

DAY_SECONDS = 86_400
MONTH_SECONDS = 2_629_746
MONDAY = -3
"""A day, counted from 1 January 1970."""
COUNT_MAX = 120_000
"""Most months (10,000 years) or days per window."""
SECONDS = (-62_135_596_800 + 2 * DAY_SECONDS, 253_402_300_800 - 2 * DAY_SECONDS)
"""The years 1 to 9999, less the greatest offset of a zone."""


class Piece(NamedTuple):
    """Adjacent windows of one length, from ``first`` to ``last`` tick."""

    windows: TimeWindows
    first: int
    last: int


@dataclass(frozen=True)
class CalendarWindows:
    """Windows of ``months`` or ``days`` (the other is 0) in a time zone; None is UTC."""

    months: int
    days: int
    zone: str | None = None

    def __post_init__(self) -> None:
        count = self.months or self.days
        if not 0 < count <= COUNT_MAX:
            raise InvalidArgument(
                f"calendar windows have 1 to {COUNT_MAX} months or days, found {count}"
            )
        if self.zone is not None:
            try:
                pc.local_timestamp(pa.array([0], pa.timestamp("s", self.zone)))
            except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
                raise InvalidArgument(
                    f"expected the name of a time zone such as 'Europe/Berlin', found {self.zone!r}"
                ) from None

    def typical(self, per_second: int) -> TimeWindows:
        """Fixed-length windows of about the same number, for cost estimates."""
        seconds = self.months * MONTH_SECONDS + self.days * DAY_SECONDS
        return TimeWindows(seconds * per_second, seconds * per_second)

    def calendar(self, first: int, last: int, per_second: int) -> Calendar:
        """Windows between two ticks; InvalidArgument beyond the years 1 to 9999."""
        seconds = np.array([first // per_second, last // per_second], np.int64)
        if seconds[0] < SECONDS[0] or seconds[1] > SECONDS[1]:
            raise InvalidArgument(
                "calendar windows are for times of the years 1 to 9999, and there are others: "
                "exclude them by a condition on the time"
            )
        local = seconds
        if self.zone is not None:
            walls = pc.local_timestamp(pa.array(seconds, pa.timestamp("s", self.zone)))
            local = walls.cast(pa.int64()).to_numpy()
        starts = self._starts(local)
        if self.zone is not None:
            zoned = pc.assume_timezone(
                pa.array(starts, pa.timestamp("s")), self.zone,
                ambiguous="earliest", nonexistent="latest",
            )  # fmt: skip
            starts = zoned.cast(pa.int64()).to_numpy()
        lowest, highest = -(-TICK_MIN // per_second), TICK_MAX // per_second
        edges = np.unique(np.clip(starts, lowest, highest)) * per_second
        begin = max(0, int(edges.searchsorted(first, "right")) - 1)
        end = max(begin + 2, int(edges.searchsorted(last, "right")) + 1)
        return Calendar(edges[begin:end])

    def _starts(self, local: Ticks) -> Ticks:
        if self.months:
            months = local.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
            first, last = (months // self.months).tolist()
            numbers = np.arange(first - 1, last + 3) * self.months
            return numbers.astype("datetime64[M]").astype("datetime64[s]").astype(np.int64)
        origin = MONDAY if self.days % 7 == 0 else 0
        first, last = ((local // DAY_SECONDS - origin) // self.days).tolist()
        return (np.arange(first - 1, last + 3) * self.days + origin) * DAY_SECONDS

    def describe(self) -> str:
        count, unit = (self.months, "month") if self.months else (self.days, "day")
        return f"calendar, {count} {unit}{'s' * (count > 1)}, time zone {self.zone or 'UTC'}"


AnyWindows = Windows | CalendarWindows


@dataclass(frozen=True, eq=False)
class Calendar:
    """Calendar windows over a range; ``edges``: ascending ticks of all starts, and the last end."""

    edges: Ticks

    def windows_of(self, ticks: Ticks) -> tuple[Ticks, Ticks]:
        number = self.edges.searchsorted(ticks, "right") - 1
        number = np.clip(number, 0, self.edges.size - 2)
        return number, number

    def bounds(self, numbers: Ticks) -> tuple[Ticks, Ticks]:
        return self.edges[numbers], self.edges[numbers + 1]

    def pieces(self) -> Iterator[Piece]:
        lengths = np.diff(self.edges)
        begins = np.concatenate(([0], np.flatnonzero(np.diff(lengths)) + 1, [lengths.size]))
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            first, length = int(self.edges[begin]), int(lengths[begin])
            windows = TimeWindows(length, length, first)
            yield Piece(windows, first, int(self.edges[end]) - 1)
