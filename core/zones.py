"""Clocks of time zones: instants to local times and back, in seconds since 1970-01-01 00:00.

Arrow answers; but where it reads the system's database, its zones end with 2037 and have no summer
time behind.  There Python's ``zoneinfo`` knows the rules.  From 2137 on they repeat every 400
years, as the Gregorian calendar does, so the changes of 500 years are enough for all times.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .times import CYCLE_DAYS

Seconds = npt.NDArray[np.int64]
Side = Literal["earliest", "latest"]

DAY_S = 86_400
CYCLE_S = CYCLE_DAYS * DAY_S
RULES_S = 2_114_380_800
"""1 January 2037: from here on the rules of ``zoneinfo`` are taken."""
END_S = RULES_S + CYCLE_S + 36_525 * DAY_S


class _Changes(NamedTuple):
    """Instants at which the offset changes, from 2037 on; the offsets before and after each."""

    at: Seconds
    offsets: Seconds


@lru_cache(maxsize=64)
def _changes(zone: str) -> _Changes | None:
    try:
        clocks = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # such as "+02:00"
        return None

    def offset(second: int) -> int:
        shown = dt.datetime.fromtimestamp(second, clocks).utcoffset()
        return 0 if shown is None else int(shown.total_seconds())

    at, offsets = [], [offset(RULES_S - 7 * DAY_S)]
    for week in range(RULES_S, END_S, 7 * DAY_S):
        if (after := offset(week)) == offsets[-1]:
            continue
        low, high = week - 7 * DAY_S, week
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if offset(middle) == after else (middle, high)
        at.append(high)
        offsets.append(after)
    return _Changes(np.array(at, np.int64), np.array(offsets, np.int64))


def _folded(seconds: Seconds) -> Seconds:
    """Times of the years with known changes that are whole cycles before these."""
    folded: Seconds = seconds - np.maximum(0, -((END_S - DAY_S - seconds) // CYCLE_S)) * CYCLE_S
    return folded


def local_times(instants: Seconds, zone: str) -> Seconds:
    shown = pc.local_timestamp(pa.array(instants, pa.timestamp("s", zone)))
    found: Seconds = shown.cast(pa.int64()).to_numpy()
    far = np.flatnonzero(instants >= RULES_S)
    if far.size and (changes := _changes(zone)) is not None:
        place = changes.at.searchsorted(_folded(instants[far]), "right")
        found = found.copy()
        found[far] = instants[far] + changes.offsets[place]
    return found


def instants_of_local(local: Seconds, zone: str, twice: Side, skipped: Side) -> Seconds:
    """Of local times that exist twice or not at all, the earlier or the later instant; around
    skipped ones these are the last second before the change and the change.
    """
    walls = pa.array(local, pa.timestamp("s"))
    zoned = pc.assume_timezone(walls, zone, ambiguous=twice, nonexistent=skipped)
    found: Seconds = zoned.cast(pa.int64()).to_numpy()
    far = np.flatnonzero(local >= RULES_S)
    if far.size and (changes := _changes(zone)) is not None:
        near = _folded(local[far])
        before = (changes.at + changes.offsets[:-1]).searchsorted(near, "right")
        after = (changes.at + changes.offsets[1:]).searchsorted(near, "right")
        instants = near - changes.offsets[before if twice == "earliest" else after]
        gap = np.flatnonzero(before > after)
        instants[gap] = changes.at[after[gap]] - (skipped == "earliest")
        found = found.copy()
        found[far] = instants + (local[far] - near)
    return found
