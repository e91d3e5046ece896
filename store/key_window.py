"""Keys that were seen lately: a hash table in flat arrays, read and filled a batch at a time.

Purpose
    Whether the key of an event was seen near its time has to be known for each event of an append.
    :class:`KeyWindow` holds the hashes and times of the keys of some stretch of time, and says of a
    batch which of its events can have an equal one there, or in the batch itself.

Guarantee
    No event that has an equal one is missed; what is named may only have the same hash, or an equal
    one that is gone.

Layout
    Entries in the order in which they came, those of one slot linked, the newest first::

        heads    -1  3 -1  2      slot of a hash to its newest entry, -1 for none
        links    -1 -1  0  1      entry to an older one of that slot
        hashes    h  g  h  g
        ticks     5  7 31 32

    28 bytes for each entry, where the table is as full as it gets, and 48 at most.

Limits
    Of the events of one hash, :data:`HITS_MAX` are looked at; where there are more, the whole
    stretch around an event is said to be where its equals may be.
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
    """Events that may be duplicates.

    Attributes
    ----------
    rows : int64[n]
        Of the batch, ascending.
    first, last : int64[n]
        Ticks between which, both inclusive, the equal events lie that were seen before the batch;
        there are none where ``first > last``.
    """

    rows: Ticks
    first: Ticks
    last: Ticks


@kernel
def _apart(a, b):
    """How far two ticks are from each other; as uint64, which holds any distance."""
    if a < b:
        return np.uint64(b) - np.uint64(a)
    return np.uint64(a) - np.uint64(b)


@kernel
def _find(hashes, ticks, within, heads, links, known, times, own, found, first, last):
    """Mark the events of a batch, which is in order of time, that may have an equal one."""
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
        # Of the batch's own, the last one of the hash is the nearest: where it is too far, so are
        # those before it; where it is not, they have been marked with it.
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
    """See the module.

    Attributes
    ----------
    size : int
        Entries.
    """

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
        """Memory taken."""
        arrays = (self._hashes, self._ticks, self._links, self._heads)
        return sum(array.nbytes for array in arrays)

    @property
    def middle(self) -> int:
        """A tick with half of the entries before it."""
        return int(np.partition(self._ticks[: self.size], self.size // 2)[self.size // 2])

    def find(self, hashes: Hashes, ticks: Ticks, within: int) -> Suspects:
        """The events of a batch that may have an equal one within so many ticks.

        Parameters
        ----------
        hashes, ticks : arrays of equal length
            In order of time.
        """
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
        """Take keys in, in any order."""
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
        """Let go of the keys from before a tick."""
        kept = self._ticks[: self.size] >= before
        hashes, ticks = self._hashes[: self.size][kept], self._ticks[: self.size][kept]
        self._make(max(len(hashes) + len(hashes) // 2, ROOM_MIN))
        self._take(0, hashes, ticks)
