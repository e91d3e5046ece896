"""The compiled slide: slices become windows with two stacks in one buffer.

Purpose
    The inner loop of :mod:`.slide`; see :mod:`.kernels` for partials and fields.

Guarantee
    No result is ever subtracted from: a window is joined from partials only.
"""

from __future__ import annotations

import numpy as np

from ...compiled import kernel_calling
from . import kernels
from .kernels import absorb_row, fill_identity

__all__ = ["slide_windows"]

_SIGNED_MAX = np.int64(9223372036854775807)
_SIGNED_MIN = np.int64(-9223372036854775807 - 1)


@kernel_calling(kernels)
def _last_slice(window, doubled, overlap):  # type: ignore[no-untyped-def]
    """Number of a window's last slice."""
    return 2 * (window + overlap) if doubled else window + overlap - 1


@kernel_calling(kernels)
def _first_window(number, doubled, overlap):  # type: ignore[no-untyped-def]
    """First window that does not end before a slice."""
    if doubled:
        return ((number + 1) >> 1) - overlap
    if number < _SIGNED_MIN + (overlap - 1):
        return _SIGNED_MIN
    return number - (overlap - 1)


@kernel_calling(kernels)
def slide_windows(  # type: ignore[no-untyped-def]
    ids, words, first, count, finish, doubled, overlap, fields, ring_ids, ring, back, state,
    out, out_words,
):  # fmt: skip
    """Join slices into windows with two stacks in one buffer: O(1) amortised merges a window.

    The front of the buffer holds suffix aggregates, the rest plain slices whose total is ``back``.
    A window is the first suffix joined with ``back``; when the front is used up the rest is turned
    into suffixes.

    Parameters
    ----------
    ids, words : int64[n], int64[n, w]
        Slices in ascending order; those from ``first`` to ``count`` are consumed.
    finish : bool
        Whether nothing follows.
    doubled : bool
        Whether a slide has two slices.
    overlap : int
        Whole slides in a window.
    ring_ids, ring : int64[m], int64[m, w]
        The buffer.
    back : int64[1, w]
    state : int64[4]
        Head, end of the front, tail, next window.
    out, out_words : int64[p], int64[p, w]
        Window numbers and their partials.

    Returns
    -------
    consumed : int
        Where to go on among the slices.
    written : int
        Windows.
    reason : int
        0 all consumed, 1 the output is full, 2 the buffer is full.
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
    written = 0
    at = first
    while True:
        arriving = at < count
        if not arriving and not finish:
            break
        # windows that end before the arriving slice are complete
        while head < tail and (not arriving or _last_slice(window, doubled, overlap) < ids[at]):
            lowest = 2 * window if doubled else window
            while head < tail and ring_ids[head] < lowest:
                if head == border:
                    for i in range(tail - 2, head - 1, -1):
                        absorb_row(fields, ring, ring_floats, i, ring, ring_floats, i + 1)
                    border = tail
                    fill_identity(back, 0, 1, fields)
                head += 1
            if head == tail:
                break
            if written == out.size:
                state[0] = head
                state[1] = border
                state[2] = tail
                state[3] = window
                return at, written, 1
            out[written] = window
            if head < border:
                for w in range(width):
                    out_words[written, w] = ring[head, w]
                absorb_row(fields, out_words, out_floats, written, back, back_floats, 0)
            else:
                for w in range(width):
                    out_words[written, w] = back[0, w]
            written += 1
            if window == _SIGNED_MAX:  # no window begins later
                head = tail
                break
            window += 1
        if not arriving:
            break
        if head == tail:
            head = border = tail = 0
            fill_identity(back, 0, 1, fields)
            window = max(window, _first_window(ids[at], doubled, overlap))
        if tail == ring_ids.size:
            state[0] = head
            state[1] = border
            state[2] = tail
            state[3] = window
            return at, written, 2
        ring_ids[tail] = ids[at]
        for w in range(width):
            ring[tail, w] = words[at, w]
        tail += 1
        absorb_row(fields, back, back_floats, 0, words, floats, at)
        at += 1
    state[0] = head
    state[1] = border
    state[2] = tail
    state[3] = window
    return at, written, 0
