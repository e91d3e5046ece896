"""Numbers of pairs of words: a hash table in flat arrays, read and filled many pairs at a time.

Purpose
    What sixteen bytes identify, such as a window and its group, has to be found again among many
    thousands without a Python object for each.  :class:`PairNumbers` gives
    the pairs that come to it the numbers 0, 1, 2, ..., by which arrays beside it are addressed.

Layout
    Open addressing with linear probing, at most half full::

        slots   -1  2 -1  0  1 -1 -1 -1      number of a pair, -1 for none
        pairs   (a, b) (c, d) (e, f)         by number

Guarantee
    Equal pairs have one number, as long as it is kept.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .native import kernel

IntArray = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.uint64]
_FIRST_ROOM = 64
_AT_ONCE = 1 << 14
"""Pairs for which room is made at once: the table stays as small as pairs differ."""


@kernel
def _numbered(wanted, pairs, slots, count, out):
    """Number of each wanted pair; new ones are added.  Gives how many there are then."""
    last = slots.shape[0] - 1
    for i in range(wanted.shape[0]):
        a = wanted[i, 0]
        b = wanted[i, 1]
        mixed = (a ^ (b >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15) + b
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        at = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(last))
        while True:
            number = slots[at]
            if number < 0:
                number = count
                slots[at] = number
                pairs[number, 0] = a
                pairs[number, 1] = b
                count += 1
                break
            if pairs[number, 0] == a and pairs[number, 1] == b:
                break
            at = (at + 1) & last
        out[i] = number
    return count


class PairNumbers:
    """See the module.

    Attributes
    ----------
    count : int
        Pairs that have a number.
    """

    def __init__(self) -> None:
        self.count = 0
        self._pairs: Pairs = np.empty((_FIRST_ROOM, 2), np.uint64)
        self._slots: IntArray = np.full(2 * _FIRST_ROOM, -1)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self._pairs.nbytes + self._slots.nbytes)

    @property
    def pairs(self) -> Pairs:
        """Those that have a number, by number."""
        return self._pairs[: self.count]

    def take(self, pairs: Pairs) -> IntArray:
        """The number of each pair, a new one where it had none."""
        parts = [self._take(pairs[low : low + _AT_ONCE]) for low in range(0, len(pairs), _AT_ONCE)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def _take(self, pairs: Pairs) -> IntArray:
        needed = self.count + len(pairs)
        if needed > len(self._pairs):
            pairs_before = self.pairs
            self._pairs = np.empty((max(needed, 2 * len(self._pairs)), 2), np.uint64)
            self._slots = np.full(1 << (2 * len(self._pairs) - 1).bit_length(), -1)
            self.count = 0
            self._add(pairs_before)
        return self._add(pairs)

    def _add(self, pairs: Pairs) -> IntArray:
        out = np.empty(len(pairs), np.int64)
        self.count = int(_numbered(pairs, self._pairs, self._slots, self.count, out))
        return out

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Forget the others; those that stay are numbered anew, in their order."""
        chosen_pairs = self.pairs[chosen]
        self._slots[:] = -1
        self.count = 0
        self._add(chosen_pairs)
