"""Windows from slices: each slice enters once and leaves once (thesis 3.3.1).
Nothing is subtracted.  Amortised cost: two merges per window and two per slice; empty windows cost
nothing.  Memory: the non-empty slices of one window, at most ``BUFFER_BYTES_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...errors import ResourceLimit
from .fields import FieldPlan
from .kernels import fill_identity
from .slices import SliceChunk
from .slide_kernels import slide_windows
from .spec import TICK_MIN, CountWindows, TimeWindows

__all__ = ["Slider"]

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
