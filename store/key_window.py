"""The window of recent keys: a hash table in flat arrays, with batch operations.

``KeyWindow`` holds hashes and times of the keys of a time range, and finds the events of a batch
that may have a duplicate there, or in the batch.  No false negatives; false positives are hash
collisions, and duplicates that were removed.

Layout: entries in insertion order, those of one slot linked, newest first::

    heads    -1  3 -1  2      slot of a hash to its newest entry, -1 for none
    links    -1 -1  0  1      entry to an older one of that slot
    hashes    h  g  h  g
    ticks     5  7 31 32

28 bytes per entry at full load, 48 at most.  At most ``HITS_MAX`` hits are visited per event; with
more, the whole range around the event is reported.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from ..core.times import INT64_MAX, INT64_MIN
from .key_hash import Hashes

__all__ = ["KeyWindow", "Suspects"]

Ticks = npt.NDArray[np.int64]
HITS_MAX = 8
ROOM_MIN = 1024


class Suspects(NamedTuple):
    """Possible duplicates: ascending rows, and inclusive tick ranges of earlier ones (or empty)."""

    rows: Ticks
    first: Ticks
    last: Ticks


@kernel
def _apart(a, b):
    """Distance of two ticks; uint64, which holds any distance."""
    if a < b:
        return np.uint64(b) - np.uint64(a)
    return np.uint64(a) - np.uint64(b)


@kernel
def _find(hashes, ticks, within, heads, links, known, times, own, found, first, last):
    """Mark the events of a batch in time order that may have a duplicate."""
    slots = np.uint64(heads.shape[0] - 1)
    own_slots = own.shape[0] - 1
    for i in range(hashes.shape[0]):
        wanted = hashes[i]
        tick = ticks[i]
        hits = 0
        entry = heads[np.int64(wanted & slots)]
        while entry >= 0:
            if known[entry] == wanted and _apart(times[entry], tick) <= np.uint64(within):
                found[i] = True
                first[i] = min(first[i], times[entry])
                last[i] = max(last[i], times[entry])
                hits += 1
                if hits == HITS_MAX:
                    first[i] = tick - within if tick >= INT64_MIN + within else INT64_MIN
                    last[i] = tick + within if tick <= INT64_MAX - within else INT64_MAX
                    break
            entry = links[entry]
        # Within the batch, the last event with this hash is the nearest: if it is too far, so are
        # all before it; if it is near, those before it were marked together with it.
        at = np.int64((wanted >> np.uint64(20)) & np.uint64(own_slots))
        while own[at] >= 0 and hashes[own[at]] != wanted:
            at = (at + 1) & own_slots
        if own[at] >= 0 and _apart(ticks[own[at]], tick) <= np.uint64(within):
            found[own[at]] = True
            found[i] = True
        own[at] = i


@kernel
def _link(hashes, heads, links, start):
    """Link the entries from ``start`` on."""
    slots = np.uint64(heads.shape[0] - 1)
    for entry in range(start, hashes.shape[0]):
        slot = np.int64(hashes[entry] & slots)
        links[entry] = heads[slot]
        heads[slot] = entry


class KeyWindow:
    def __init__(self) -> None:
        self.size = 0
        self._make(ROOM_MIN)

    def _make(self, room: int) -> None:
        self._hashes: Hashes = np.empty(room, np.uint64)
        self._ticks: Ticks = np.empty(room, np.int64)
        self._links: npt.NDArray[np.int32] = np.empty(room, np.int32)
        self._heads: npt.NDArray[np.int32] = np.full(1 << (room - 1).bit_length(), -1, np.int32)

    @property
    def nbytes(self) -> int:
        arrays = (self._hashes, self._ticks, self._links, self._heads)
        return sum(array.nbytes for array in arrays)

    @property
    def middle(self) -> int:
        return int(np.partition(self._ticks[: self.size], self.size // 2)[self.size // 2])

    def find(self, hashes: Hashes, ticks: Ticks, within: int) -> Suspects:
        """Events of a batch in time order that may have a duplicate within ``within`` ticks."""
        rows = len(hashes)
        found = np.zeros(rows, np.bool_)
        first, last = np.full(rows, INT64_MAX), np.full(rows, INT64_MIN)
        own = np.full(1 << max(4, (2 * rows - 1).bit_length()), -1)
        _find(
            hashes, ticks, within, self._heads, self._links, self._hashes, self._ticks, own,
            found, first, last,
        )  # fmt: skip
        suspects = np.flatnonzero(found)
        return Suspects(suspects, first[suspects], last[suspects])

    def add(self, hashes: Hashes, ticks: Ticks) -> None:
        size = self.size + len(hashes)
        if size > len(self._hashes):
            known, times = self._hashes[: self.size], self._ticks[: self.size]
            self._make(max(size, 2 * len(known)))
            self._take(0, known, times)
        self._take(self.size, hashes, ticks)

    def _take(self, start: int, hashes: Hashes, ticks: Ticks) -> None:
        self.size = start + len(hashes)
        self._hashes[start : self.size] = hashes
        self._ticks[start : self.size] = ticks
        _link(self._hashes[: self.size], self._heads, self._links, start)

    def forget(self, before: int) -> None:
        kept = self._ticks[: self.size] >= before
        hashes, ticks = self._hashes[: self.size][kept], self._ticks[: self.size][kept]
        self._make(max(len(hashes) + len(hashes) // 2, ROOM_MIN))
        self._take(0, hashes, ticks)
