"""Partial matches in dense arrays per state, in order of arrival; each event is compared with all.

For conditions ``|event - (last + shift)| < distance`` (thesis, 4.3.5 and table 4.1), under skip
till any match and skip till next match.  ``last`` is the value of the last event (NaN: removed),
``begin`` the number of the first.  A vectorised pass counts the candidates of a block; only blocks
with candidates are scanned.  States go from last to first, so that an event is used once per match.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel

__all__ = ["follow"]

BLOCK = 1024


@kernel
def _close_up(last, begin, span, state, oldest):
    """Compact the partial matches of a state."""
    n = 0
    for j in range(span[state, 0], span[state, 1]):
        if begin[state, j] >= oldest and last[state, j] == last[state, j]:
            last[state, n] = last[state, j]
            begin[state, n] = begin[state, j]
            n += 1
    span[state, 0] = 0
    span[state, 1] = n


@kernel
def follow(values, window, distance, shift, loop, once, last, begin, span, found):
    """Process events, each of which also begins a partial match; False when the arrays are too
    small.  ``window``: events from first to last of a match; ``distance``, ``shift``: condition to
    leave a state; ``loop``: distance below which an event replaces the last one (``B+``; 0: none);
    ``once``: skip till next match; ``span``: first and end of the used part; ``found``: number of
    matches, and the sum of first + last.
    """
    states = last.shape[0]
    gone = np.float32(np.nan)
    for i in range(values.shape[0]):
        x = values[i]
        oldest = i - window + 1
        for s in range(states - 1, -1, -1):
            while span[s, 0] < span[s, 1] and begin[s, span[s, 0]] < oldest:
                span[s, 0] += 1
            wanted = x - shift[s]
            near = distance[s]
            stays = loop[s]
            for low in range(span[s, 0], span[s, 1], BLOCK):
                some = last[s, low : min(span[s, 1], low + BLOCK)]
                hits = 0
                if stays > 0:
                    for j in range(some.shape[0]):
                        hits += (abs(some[j] - wanted) < near) | (abs(some[j] - x) < stays)
                else:
                    for j in range(some.shape[0]):
                        hits += abs(some[j] - wanted) < near
                if hits == 0:
                    continue
                for j in range(some.shape[0]):
                    first = begin[s, low + j]
                    if abs(some[j] - wanted) < near:
                        if first < oldest:
                            continue
                        if s + 1 == states:
                            found[0] += 1
                            found[1] += first + i
                        else:
                            if span[s + 1, 1] == last.shape[1]:
                                _close_up(last, begin, span, s + 1, oldest)
                                if span[s + 1, 1] == last.shape[1]:
                                    return False
                            last[s + 1, span[s + 1, 1]] = x
                            begin[s + 1, span[s + 1, 1]] = first
                            span[s + 1, 1] += 1
                        if once:
                            some[j] = gone
                    elif abs(some[j] - x) < stays:
                        some[j] = x
        if span[0, 1] == last.shape[1]:
            _close_up(last, begin, span, 0, oldest)
            if span[0, 1] == last.shape[1]:
                return False
        last[0, span[0, 1]] = x
        begin[0, span[0, 1]] = i
        span[0, 1] += 1
    return True
