"""Partial matches in dense arrays, one for each state: every event is held against all of them.

Purpose
    Patterns whose conditions compare an event with the last one of the match (thesis, 4.3.5 and
    table 4.1), under skip till any match and skip till next match.

Layout
    Of each state two arrays, in the order in which partial matches came to it::

        last     value of the last event of a partial match     NaN: gone
        begin    number of its first event

    An event looks at a block of them in one pass on vectors, which counts; only a block in which
    something fits is looked at again, one by one.  States are taken from the last to the first, so
    that no event is two of one match.  What the window has left behind is dropped from the front;
    the array is closed up when it is full.

Guarantee
    Matches, and their number, are those of looking at each partial match by itself.

Limits
    One attribute; conditions of the form ``|event - (last + shift)| < distance``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from ...core.native import kernel

__all__ = ["follow"]

BLOCK = 1024


@kernel
def _close_up(last, begin, span, state, oldest):
    """Move what is left of a state's partial matches to the front."""
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
    """Take events; every event begins a partial match.

    Parameters
    ----------
    values : float32 array
        An event each.
    window : int
        So many events, the first one among them, may a match span.
    distance, shift : float32 array
        Of each state: what an event must fulfil to go on from there.
    loop : float32 array
        Of each state: an event as near as that to the last one takes its place (``B+``; with
        ``once``); 0 for none.
    once : bool
        Skip till next match: what has gone on is not in its state any more.
    last, begin : (states, room) arrays
        The partial matches.
    span : (states, 2) int64 array
        First and end of those that there are.
    found : int64 array
        Number of matches, and the sum of (first + last) over them.

    Returns
    -------
    bool
        Whether the room was enough.
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
