"""Window kinds (thesis Definitions 2.7 and 2.8), and the slices that windows share.

Slices do not overlap; every window is a run of slices, so each event is aggregated once (3.3.1).
Where the size is no multiple of the slide, a slide has two slices, cut at ``size mod slide``
(3.3.3)::

    size 5, slide 2      time   0   1   2   3   4   5   6   7
                         slice  | 0 | 1 | 2 | 3 | 4 | 5 | 6 |       cut = 1
                         window |-------- 0 --------|
                                        |-------- 1 --------|     window k = slices 2k .. 2k + 4

    size 4, slide 2      slice  |   0   |   1   |   2   |   3
                         window |------ 0 ------|
                                        |------ 1 ------|           window k = slices k .. k + 1

    size 1, slide 2      slice  | 0 |gap| 2 |gap| 4 |gap|           window k = slice 2k
                         window |-0-|   |-1-|   |-2-|               gaps are not aggregated

Slice numbers of all 64-bit times fit 64 bits, for every slide and origin.  Only a cut slide of two
ticks needs all 64: there each tick is a slice with its own number, and window k begins with slice
``2k`` or, for an odd origin, ``2k + 1`` (``Pairing``).  Windows beyond the tick range are shown
clipped; with a slide of one tick, windows that would begin before the smallest tick are omitted.

Calendar windows are days, weeks, months and years in a time zone.  Between two changes of length
they are ordinary time windows, so a ``Calendar`` is a sequence of *pieces*, each evaluated as time
windows by tree or by replay::

    days in Berlin    |24h|24h|24h|23h|24h|24h| ... |24h|25h|24h|24h|
    pieces            |-----------|---|-------- ... ----|---|-------|

Months and years count from January 1970, days from 1 January 1970, whole weeks from a Monday.  A
window begins at local midnight: the first one where clocks are set back across it, the change where
it is skipped; a day that is skipped altogether has no window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.caches import lazy
from ...core.times import INT64_MAX, INT64_MIN, length_text
from ...core.zones import instants_of_local, local_times
from ...errors import InvalidArgument
from ..conditions.predicates import shown_time

TICK_MIN, TICK_MAX = INT64_MIN, INT64_MAX

Ticks = npt.NDArray[np.int64]

# modes of a slicing, see kernels.py
BY_TIME = 0
BY_POSITION = 1


class Pairing(IntEnum):
    """Slices per slide, and the first slice of window k."""

    SINGLE = 0
    """One; slice k."""

    EVEN = 1
    """Two; slice 2k."""

    ODD = 2
    """Two; slice 2k + 1."""


def _measure(name: str, value: int) -> None:
    if not 0 < value <= TICK_MAX:
        raise InvalidArgument(
            f"the {name} of a window must be above 0 and within 64 bits, found {value}"
        )


@dataclass(frozen=True)
class _Sliding:
    size: int
    slide: int

    def __post_init__(self) -> None:
        _measure("size", self.size)
        _measure("slide", self.slide)

    @property
    def cut(self) -> int:
        """Offset at which a slide is cut in two; 0 when it is not."""
        return self.size % self.slide

    @property
    def overlap(self) -> int:
        return self.size // self.slide

    @property
    def slices(self) -> int:
        return 2 * self.overlap + 1 if self.cut else self.overlap


@dataclass(frozen=True)
class TimeWindows(_Sliding):
    """Windows ``[origin + k * slide, origin + k * slide + size)`` in ticks, for every integer k.
    ``origin``: any tick at which a window begins; None stands for the first event.
    """

    origin: int | None = 0

    @property
    def pairing(self) -> Pairing:
        if not self.cut:
            return Pairing.SINGLE
        assert self.origin is not None, "the origin is resolved before anything runs"
        odd = self.slide == 2 and self.size > 2 and self.origin % 2 == 1
        return Pairing.ODD if odd else Pairing.EVEN

    def kernel_form(self) -> Ticks:
        """For kernels: mode, origin within a slide, slide, cut, whether odd slices are gaps."""
        assert self.origin is not None, "the origin is resolved before anything runs"
        return np.array(
            [BY_TIME, self.origin % self.slide, self.slide, self.cut, self.size < self.slide],
            np.int64,
        )

    def windows_of(self, ticks: Ticks) -> tuple[Ticks, Ticks]:
        """First and last window of each tick; last < first in a gap."""
        mode, origin, slide, cut, _ = self.kernel_form().tolist()
        del mode
        number = ticks // slide
        rest = ticks - number * slide - origin
        number = number - (rest < 0)
        rest = np.where(rest < 0, rest + slide, rest)
        back = self.overlap - 1 + (rest < cut)
        first = number - back
        if slide == 1:
            first = np.where(first > number, TICK_MIN, first)
        return first, np.where(back < 0, first - 1, number)

    def bounds(self, numbers: Ticks) -> tuple[Ticks, Ticks]:
        """Start and end of windows by number, clipped to 64 bits."""
        if not numbers.size:
            return numbers, numbers
        assert self.origin is not None
        shift = self.origin % self.slide
        starts = numbers * self.slide + shift
        ends = starts + self.size
        # array arithmetic wraps around; it is right where the true value fits 64 bits, so only
        # windows before the first and after the last such window are corrected
        lowest = -((shift - TICK_MIN) // self.slide)
        highest = (TICK_MAX - self.size - shift) // self.slide
        if int(numbers.min()) < lowest:
            starts = np.where(numbers < lowest, TICK_MIN, starts)
        if int(numbers.max()) > highest:
            ends = np.where(numbers > highest, TICK_MAX, ends)
        return starts, ends

    def last_ticks(self, numbers: Ticks) -> Ticks:
        """The last tick of windows by number, clipped."""
        assert self.origin is not None
        highest = (TICK_MAX - self.size - self.origin % self.slide) // self.slide
        return np.where(numbers > highest, TICK_MAX, self.bounds(numbers)[1] - 1)

    def describe(self, time: pa.DataType) -> str:
        size, slide = length_text(self.size, time), length_text(self.slide, time)
        origin = "first event" if self.origin is None else shown_time(self.origin, time)
        return f"time, size {size}, slide {slide}, origin {origin}"


@dataclass(frozen=True)
class CountWindows(_Sliding):
    """Windows of ``size`` consecutive events, one every ``slide`` events; complete ones only."""

    @property
    def pairing(self) -> Pairing:
        return Pairing.EVEN if self.cut else Pairing.SINGLE

    def kernel_form(self) -> Ticks:
        return np.array([BY_POSITION, 0, self.slide, self.cut, self.size < self.slide], np.int64)

    def complete(self, events: int) -> int:
        return 0 if events < self.size else (events - self.size) // self.slide + 1

    def describe(self, time: pa.DataType) -> str:
        return f"count, size {self.size}, slide {self.slide} (events)"


@dataclass(frozen=True)
class SessionWindows:
    """Maximal runs of events at most ``gap`` ticks apart; a session ends ``gap`` after its last."""

    gap: int

    def __post_init__(self) -> None:
        _measure("gap", self.gap)

    def describe(self, time: pa.DataType) -> str:
        return f"session, gap {length_text(self.gap, time)}"


Windows = TimeWindows | CountWindows | SessionWindows


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
                pc.local_timestamp(pa.array([0], pa.timestamp("s", self.zone or "?")))
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
            local = local_times(seconds, self.zone)
        starts = self._starts(local)
        if self.zone is not None:
            starts = instants_of_local(starts, self.zone, "earliest", "latest")
        starts = np.unique(starts)
        begin = max(0, int(starts.searchsorted(seconds[0], "right")) - 1)
        end = max(begin + 2, int(starts.searchsorted(seconds[1], "right")) + 1)
        return Calendar(starts[begin:end], per_second)

    def _starts(self, local: Ticks) -> Ticks:
        if self.months:
            months = local.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
            first, last = (months // self.months).tolist()
            numbers = np.arange(first - 1, last + 3) * self.months
            return numbers.astype("datetime64[M]").astype("datetime64[s]").astype(np.int64)
        origin = MONDAY if self.days % 7 == 0 else 0
        first, last = ((local // DAY_SECONDS - origin) // self.days).tolist()
        return (np.arange(first - 1, last + 3) * self.days + origin) * DAY_SECONDS

    def describe(self, time: pa.DataType) -> str:
        count, unit = (self.months, "month") if self.months else (self.days, "day")
        return f"calendar, {count} {unit}{'s' * (count > 1)}, time zone {self.zone or 'UTC'}"


AnyWindows = Windows | CalendarWindows


@dataclass(frozen=True, eq=False)
class Calendar:
    """Calendar windows over a range; ``starts``: ascending seconds, the last is an end."""

    starts: Ticks
    per_second: int

    @lazy
    def edges(self) -> Ticks:
        """``starts`` as ticks, clipped to 64 bits."""
        lowest, highest = -(-TICK_MIN // self.per_second), TICK_MAX // self.per_second
        edges = np.clip(self.starts, lowest, highest) * self.per_second
        edges[self.starts < lowest] = TICK_MIN
        edges[self.starts > highest] = TICK_MAX
        return edges

    def windows_of(self, ticks: Ticks) -> tuple[Ticks, Ticks]:
        number = self.edges.searchsorted(ticks, "right") - 1
        number = np.clip(number, 0, self.edges.size - 2)
        return number, number

    def bounds(self, numbers: Ticks) -> tuple[Ticks, Ticks]:
        return self.edges[numbers], self.edges[numbers + 1]

    def pieces(self) -> Iterator[Piece]:
        lengths = np.diff(self.starts)
        begins = np.concatenate(([0], np.flatnonzero(np.diff(lengths)) + 1, [lengths.size]))
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            first, length = self._tick(begin), int(lengths[begin]) * self.per_second
            last = min(self._tick(end) - 1, TICK_MAX)
            yield Piece(TimeWindows(length, length, first), max(first, TICK_MIN), last)

    def _tick(self, place: int) -> int:
        return int(self.starts[place]) * self.per_second
