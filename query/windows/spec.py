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
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...core.times import INT64_MAX, INT64_MIN
from ...errors import InvalidArgument

__all__ = [
    "TICK_MAX",
    "TICK_MIN",
    "CountWindows",
    "Pairing",
    "SessionWindows",
    "TimeWindows",
    "Windows",
]

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
        raise InvalidArgument(f"the {name} of a window must be above 0, found {value}")


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

    def describe(self) -> str:
        origin = "first event" if self.origin is None else str(self.origin)
        return f"time, size {self.size}, slide {self.slide}, origin {origin} (ticks)"


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

    def describe(self) -> str:
        return f"count, size {self.size}, slide {self.slide} (events)"


@dataclass(frozen=True)
class SessionWindows:
    """Maximal runs of events at most ``gap`` ticks apart; a session ends ``gap`` after its last."""

    gap: int

    def __post_init__(self) -> None:
        _measure("gap", self.gap)

    def describe(self) -> str:
        return f"session, gap {self.gap} (ticks)"


Windows = TimeWindows | CountWindows | SessionWindows
