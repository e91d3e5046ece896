"""Local times of a named zone to UTC, a column at a time, by Arrow's time zone kernels.

A time in a DST gap has no instant, one in an overlap two; both are reported.  A *date* is the
instant at which its day begins: the first of two midnights, or the transition if it skips midnight.
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
"""The years 1 to 9999, less the largest offset."""

Seconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Instants(NamedTuple):
    """Seconds since 1970-01-01 UTC of local times; the earlier neighbour in a gap or overlap.

    ``skipped``: in a gap; ``twice``: in an overlap, and the choice is "refuse".
    """

    seconds: Seconds
    skipped: Mask
    twice: Mask


def check_zone(zone: str) -> None:
    """Raise ``InvalidArgument`` for a name that the time zone database lacks."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), zone, ambiguous="earliest")
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError):
        raise InvalidArgument(
            f"expected the name of a time zone such as 'Europe/Berlin', found {zone!r}"
        ) from None


def instants_of(walls: Seconds, zone: str, ambiguous: str, dates: Mask | bool) -> Instants:
    """Instants of local times (seconds since 1970-01-01 00:00 there); ``dates`` begin a day."""
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
