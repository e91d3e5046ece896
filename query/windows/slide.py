"""Windows from slices: each slice enters once and leaves once (thesis 3.3.1).  Nothing is
subtracted. Amortised cost: two merges per window and two per slice; empty windows cost nothing.
Memory: the non-empty slices of one window, at most ``BUFFER_BYTES_MAX``.

The kernel joins slices to windows with two stacks in one buffer.  Slice numbers are halved and
compared, never doubled or added to, so no 64-bit number overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...errors import ResourceLimit
from .fields import FieldPlan
from .kernels import absorb_row, fill_identity
from .slices import SliceChunk
from .spec import TICK_MIN, CountWindows, TimeWindows

STATE_WORDS = 5

_SIGNED_MAX = np.int64(9223372036854775807)
_SIGNED_MIN = np.int64(-9223372036854775807 - 1)


@kernel
def slide_of(number, pairing):  # type: ignore[no-untyped-def]
    """The slide of a slice: the last window that begins at or before it."""
    if pairing == 0:
        return number
    if pairing == 2 and number & 1 == 0:
        return (number >> 1) - 1
    return number >> 1


@kernel
def _slides_before(number, pairing):  # type: ignore[no-untyped-def]
    """Number of slides that begin before a slice, counted from slide 0."""
    if pairing == 1:
        return (number >> 1) + (number & 1)
    if pairing == 2:
        return number >> 1
    return number


@kernel
def window_ended(window, number, pairing, overlap):  # type: ignore[no-untyped-def]
    """Whether a window's last slice lies before a slice."""
    before = _slides_before(number, pairing)
    if before <= window:
        return False
    distance = np.uint64(before) - np.uint64(window)
    if pairing == 0:
        return distance >= np.uint64(overlap)
    return distance > np.uint64(overlap)


@kernel
def first_window(number, pairing, overlap):  # type: ignore[no-untyped-def]
    """First window that does not end before a slice."""
    if pairing != 0:
        return _slides_before(number, pairing) - overlap
    if number < _SIGNED_MIN + (overlap - 1):
        return _SIGNED_MIN
    return number - (overlap - 1)


@kernel
def slide_windows(  # type: ignore[no-untyped-def]
    ids, words, first, count, finish, pairing, overlap, fields, ring_ids, ring, back, state,
    steps, out, out_words,
):  # fmt: skip
    """Join slices ``first .. count`` to windows with O(1) amortised merges per window.  The front
    of the buffer holds suffix aggregates, the rest plain slices whose total is ``back``; a window
    is the first suffix merged with ``back``.  When the front is empty, the rest is turned into
    suffixes.  ``state``: head, end of the front, tail, next window, suffix reached while turning
    (0: not turning).  Returns next slice, windows, reason: 0 all consumed, 1 output full, 2 buffer
    full, 3 steps used up.
    """
    floats = words.view(np.float64)
    ring_floats = ring.view(np.float64)
    back_floats = back.view(np.float64)
    out_floats = out_words.view(np.float64)
    width = words.shape[1]
    head = state[0]
    border = state[1]
    tail = state[2]
    window = state[3]
    turned = state[4]
    written = 0
    at = first
    reason = 0
    while reason == 0:
        arriving = at < count
        if not arriving and not finish:
            break
        # windows that end before the arriving slice are complete
        while head < tail and (not arriving or window_ended(window, ids[at], pairing, overlap)):
            while head < tail and slide_of(ring_ids[head], pairing) < window:
                if head == border:
                    i = turned - 1 if turned > 0 else tail - 2
                    while i >= head and steps > 0:
                        absorb_row(fields, ring, ring_floats, i, ring, ring_floats, i + 1)
                        i -= 1
                        steps -= 1
                    if i >= head:
                        turned = i + 1
                        reason = 3
                        break
                    turned = 0
                    border = tail
                    fill_identity(back, 0, 1, fields)
                head += 1
            if reason != 0 or head == tail:
                break
            if written == out.size:
                reason = 1
                break
            if steps <= 0:
                reason = 3
                break
            out[written] = window
            if head < border:
                for w in range(width):
                    out_words[written, w] = ring[head, w]
                absorb_row(fields, out_words, out_floats, written, back, back_floats, 0)
            else:
                for w in range(width):
                    out_words[written, w] = back[0, w]
            written += 1
            steps -= 1
            if window == _SIGNED_MAX:  # no window begins later
                head = tail
                break
            window += 1
        if reason != 0 or not arriving:
            break
        if head == tail:
            head = border = tail = 0
            fill_identity(back, 0, 1, fields)
            window = max(window, first_window(ids[at], pairing, overlap))
        if tail == ring_ids.size:
            reason = 2
            break
        if steps <= 0:
            reason = 3
            break
        ring_ids[tail] = ids[at]
        for w in range(width):
            ring[tail, w] = words[at, w]
        tail += 1
        absorb_row(fields, back, back_floats, 0, words, floats, at)
        at += 1
        steps -= 1
    state[0] = head
    state[1] = border
    state[2] = tail
    state[3] = window
    state[4] = turned
    return at, written, reason


Words = npt.NDArray[np.int64]

WINDOWS_AT_ONCE = 1 << 16
STEPS_AT_ONCE = 1 << 19
"""Merges per kernel call, some tens of milliseconds, between cancellation checks."""

BUFFER_BYTES_MAX = 4 << 30
_FIRST_ROOM = 1 << 12


class Slider:
    def __init__(
        self, windows: TimeWindows | CountWindows, plan: FieldPlan, check: Callable[[], None]
    ) -> None:
        self._windows = windows
        self._fields = plan.own.fields
        self._width = plan.width
        self._check = check
        self._pairing = int(windows.pairing)
        self._ring_ids = np.empty(_FIRST_ROOM, np.int64)
        self._ring = np.empty((_FIRST_ROOM, plan.width), np.int64)
        self._back = np.empty((1, plan.width), np.int64)
        fill_identity(self._back, 0, 1, self._fields)
        first = 0 if isinstance(windows, CountWindows) else TICK_MIN
        self._state = np.array([0, 0, 0, first, 0], np.int64)

    def windows(self, chunks: Iterable[SliceChunk]) -> Iterator[SliceChunk]:
        if self._windows.slices == 1:
            for ids, words in chunks:
                yield (ids >> 1 if self._pairing else ids), words
            return
        for ids, words in chunks:
            yield from self._slide(ids, words, False)
        nothing = np.empty(0, np.int64), np.empty((0, self._width), np.int64)
        yield from self._slide(*nothing, True)

    def _slide(self, ids: Words, words: Words, finish: bool) -> Iterator[SliceChunk]:
        at = 0
        while True:
            self._check()
            room = WINDOWS_AT_ONCE
            out = np.empty(room, np.int64)
            out_words = np.empty((room, self._width), np.int64)
            at, written, reason = slide_windows(
                ids, words, at, ids.size, finish, self._pairing, self._windows.overlap,
                self._fields, self._ring_ids, self._ring, self._back, self._state, STEPS_AT_ONCE,
                out, out_words,
            )  # fmt: skip
            if written:
                yield out[:written], out_words[:written]
            if reason == 0:
                return
            if reason == 2:
                self._make_room()

    def _make_room(self) -> None:
        """Compact the buffer; double it if it is more than half full."""
        head, border, tail = (int(word) for word in self._state[:3])
        size = self._ring_ids.size
        ring_ids, ring = self._ring_ids, self._ring
        if tail - head > size // 2:
            size *= 2
            needed = size * (self._width + 1) * 8
            if needed > BUFFER_BYTES_MAX:
                raise ResourceLimit(
                    f"a window spans more than {tail - head} slides with events, which takes "
                    f"{needed >> 20} MiB; choose a longer slide or a smaller size"
                )
            self._ring_ids = np.empty(size, np.int64)
            self._ring = np.empty((size, self._width), np.int64)
        self._ring_ids[: tail - head] = ring_ids[head:tail].copy()
        self._ring[: tail - head] = ring[head:tail].copy()
        self._state[:3] = 0, max(0, border - head), tail - head
