"""Numbers of texts: a hash table in flat arrays, read and filled many texts at a time.

Texts get the numbers 0, 1, 2, ... in the order in which they first occur; a null is a text of its
own.  Open addressing with linear probing, at most half full::

    slots     -1  2 -1  0  1 -1 -1 -1     number of a text, -1 for none
    entries   hash, first 8 bytes, size, place, by number; the size of a null is -1
    store     bytes of the texts, one after the other
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .native import kernel

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_CAPACITY_MIN = 64
HASH, WORD, SIZE, PLACE = range(4)
_AT_ONCE = 1 << 14
"""Texts for which room is made at once: the table stays as small as texts differ."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _block(data, at):
    """Eight bytes as a number: one load, as machine code."""
    at = np.uint64(at)  # unsigned: not compared with zero
    word = np.uint64(data[at])
    for k in range(1, 8):
        word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
    return word


@kernel
def _first_word(data, at, size):
    """The first eight bytes, or those that there are."""
    if size >= 8:
        return _block(data, at)
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@kernel
def _mixed(word, more):
    mixed = word ^ more
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _ODD
    return mixed ^ (mixed >> np.uint64(29))


@kernel
def _same(data, low, store, begin, size):
    """Whether two texts of at least eight bytes are equal."""
    for i in range(8, size - 8, 8):
        if _block(data, low + i) != _block(store, begin + i):
            return False
    return _block(data, low + size - 8) == _block(store, begin + size - 8)


@kernel
def _numbered(offsets, data, valid, entries, store, slots, count, out):
    """Number of each text; new ones are added.  Returns how many there are then."""
    last = slots.shape[0] - 1
    nullable = valid.shape[0] > 0
    used = np.int64(0)
    if count:
        used = entries[count - 1, PLACE] + max(np.int64(0), entries[count - 1, SIZE])
    for i in range(out.shape[0]):
        low = np.int64(offsets[i])
        size = np.int64(offsets[i + 1]) - low
        if nullable and not valid[i]:
            size = np.int64(-1)
        word = _first_word(data, low, size)
        mixed = _mixed(word, np.uint64(size))
        if size > 8:
            for k in range(8, size - 8, 8):
                mixed = _mixed(_block(data, low + k), mixed)
            mixed = _mixed(_block(data, low + size - 8), mixed)
        slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(last))
        while True:
            number = np.int64(slots[slot])
            if number < 0:
                number = count
                slots[slot] = number
                entries[number, HASH] = np.int64(mixed)
                entries[number, WORD] = np.int64(word)
                entries[number, SIZE] = size
                entries[number, PLACE] = used
                for k in range(size):
                    store[used + k] = data[low + k]
                used += max(np.int64(0), size)
                count += 1
                break
            if (
                entries[number, HASH] == np.int64(mixed)
                and entries[number, WORD] == np.int64(word)
                and entries[number, SIZE] == size
                and (size <= 8 or _same(data, low, store, entries[number, PLACE], size))
            ):
                break
            slot = (slot + 1) & last
        out[i] = number
    return count


@kernel
def _rehash(entries, count, slots):
    """Fill an empty table."""
    last = slots.shape[0] - 1
    for number in range(count):
        mixed = np.uint64(entries[number, HASH])
        slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(last))
        while slots[slot] >= 0:
            slot = (slot + 1) & last
        slots[slot] = number


class TextNumbers:
    """See the module; of texts or bytes, by the type of the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._type: pa.DataType = pa.string()
        self._entries: IntArray = np.empty((_CAPACITY_MIN, 4), np.int64)
        self._store: npt.NDArray[np.uint8] = np.empty(8 * _CAPACITY_MIN, np.uint8)
        self._slots = np.full(2 * _CAPACITY_MIN, -1, np.int32)
        self._values: pa.Array = pa.array([], pa.string())

    def take(self, texts: pa.Array) -> IntArray:
        """The number of each text, a new one where it had none."""
        if not self.count:
            self._type, self._values = texts.type, pa.array([], texts.type)
        if len(texts) == 0:
            return np.zeros(0, np.int64)
        _, offsets, data = texts.buffers()
        places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        some = data is not None and data.size > 0
        values = np.frombuffer(data if some else b" ", np.uint8)
        valid: BoolArray = np.zeros(0, np.bool_)
        if texts.null_count:
            valid = np.array(texts.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        out = np.empty(len(texts), np.int64)
        for low in range(0, len(texts), _AT_ONCE):
            high = min(len(texts), low + _AT_ONCE)
            self._reserve(high - low, int(places[high] - places[low]))
            self.count = int(
                _numbered(
                    places[low : high + 1], values, valid[low:high], self._entries, self._store,
                    self._slots, self.count, out[low:high],
                )
            )  # fmt: skip
        return out

    @property
    def values(self) -> pa.Array:
        """The texts by number."""
        if len(self._values) != self.count:
            offsets, data = self.laid_out(0)
            wide = pa.large_string() if self._type == pa.string() else pa.large_binary()
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.copy())]
            values = pa.Array.from_buffers(wide, self.count, buffers).cast(self._type)
            absent = self._entries[: self.count, SIZE] < 0
            if absent.any():
                values = values.take(pa.array(np.arange(self.count), mask=absent))
            self._values = values
        return self._values

    def laid_out(self, first: int) -> tuple[IntArray, npt.NDArray[np.uint8]]:
        """Offsets and bytes of the texts from this number on; a null has none."""
        size = self.size
        begin = int(self._entries[first, PLACE]) if first < self.count else size
        offsets = np.append(self._entries[first : self.count, PLACE], size) - begin
        return offsets, self._store[begin:size]

    @property
    def prefixes(self) -> npt.NDArray[np.uint64]:
        """By number, the first eight bytes as a big-endian number, padded with zeros."""
        return self._entries[: self.count, WORD].view(np.uint64).byteswap()

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        if not self.count:
            return 0
        _, _, size, place = self._entries[self.count - 1].tolist()
        return int(place + max(0, size))

    def _reserve(self, texts: int, size: int) -> None:
        """Make room for so many more texts and bytes."""
        used = self.size
        if used + size > len(self._store):
            store = np.empty(max(used + size, 2 * len(self._store)), np.uint8)
            store[:used] = self._store[:used]
            self._store = store
        if self.count + texts > len(self._entries):
            capacity = max(self.count + texts, 2 * len(self._entries))
            entries = np.empty((capacity, 4), np.int64)
            entries[: self.count] = self._entries[: self.count]
            self._entries = entries
            self._slots = np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int32)
            _rehash(self._entries, self.count, self._slots)
