"""Times as the clocks of a zone showed them, and the instants that they were.

Purpose
    :func:`instants_of` turns local times of a named zone into seconds of UTC, whole columns at
    once, by Arrow's kernels over the system's time zone database.

Guarantee
    A local time that clocks were set forward over is no instant, and one that they showed twice is
    two: both are told, neither is moved to another time unasked.  A *date* is the instant at which
    its day began: the first midnight of two, the change where that skips midnight.

Limits
    Beyond the years 1 to 9999 a zone's offset is that at their ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument

__all__ = ["AMBIGUOUS", "DAY_SECONDS", "Instants", "check_zone", "instants_of"]

AMBIGUOUS = ("refuse", "earlier", "later")
DAY_SECONDS = 86_400
FIRST_S, LAST_S = -62_135_596_800 + 2 * DAY_SECONDS, 253_402_300_800 - 2 * DAY_SECONDS
"""The years 1 to 9999, less what a zone may differ by."""

Seconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Instants(NamedTuple):
    """What local times were.

    Attributes
    ----------
    seconds : int64 array
        Since 1970-01-01 UTC; of those that are no instant, or two, the earlier neighbour.
    skipped, twice : bool arrays
        Clocks never showed the time, or showed it twice and it was not said which is meant.
    """

    seconds: Seconds
    skipped: Mask
    twice: Mask


def check_zone(zone: str) -> None:
    """Refuse what the time zone database has no zone of.

    Raises
    ------
    InvalidArgument
    """
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), zone, ambiguous="earliest")
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        raise InvalidArgument(
            f"expected the name of a time zone such as 'Europe/Berlin', found {zone!r}"
        ) from None


def instants_of(walls: Seconds, zone: str, ambiguous: str, dates: Mask | bool) -> Instants:
    """The instants at which the clocks of a zone showed some times.

    Parameters
    ----------
    walls : int64 array
        Local times: seconds since 1970-01-01 00:00 on these clocks.
    ambiguous : {"refuse", "earlier", "later"}
        Which of both a time is that was shown twice.
    dates : bool array, or bool for all
        Which of them stand for the beginning of a day.
    """
    within = np.clip(walls, FIRST_S, LAST_S)
    local = pa.array(within, pa.timestamp("s"))
    early, late = (
        pc.assume_timezone(local, zone, ambiguous=side, nonexistent=side)
        for side in ("earliest", "latest")
    )
    first, last = (side.cast(pa.int64()).to_numpy() for side in (early, late))
    skipped = np.zeros(len(walls), np.bool_)
    twice = np.zeros(len(walls), np.bool_)
    seconds = first
    changed = np.flatnonzero(first != last)
    if changed.size:
        shown = pc.local_timestamp(early.take(pa.array(changed))).cast(pa.int64()).to_numpy()
        was_shown = shown == within[changed]
        of_date = np.broadcast_to(np.asarray(dates, np.bool_), len(walls))[changed]
        skipped[changed] = ~was_shown & ~of_date
        twice[changed] = was_shown & ~of_date & (ambiguous == "refuse")
        take_last = (~was_shown & of_date) | (was_shown & ~of_date & (ambiguous == "later"))
        seconds = first.copy()
        seconds[changed[take_last]] = last[changed[take_last]]
    return Instants(walls + (seconds - within), skipped, twice)
