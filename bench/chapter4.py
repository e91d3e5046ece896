"""The CPU experiments of thesis chapter 4: filter, aggregation, join, patterns (figures 4.10-4.14).

The peer of each kernel is the thesis's baseline, a plain loop over events that rereads the window.
Both must agree.  One thread; slow peers are measured on fewer events and scaled.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ..live.kernels.filters import compact, norm_below
from ..live.kernels.partial_matches import follow
from ..live.kernels.sliding import sliding_sum
from ..live.kernels.window_join import join_near
from .harness import Row, Section

__all__ = ["run"]

kernel = numba.njit(nogil=True, error_model="numpy")

SHARES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


@kernel
def _one_by_one(columns, bound, out):
    """The filter, one event at a time."""
    n = 0
    for i in range(columns.shape[1]):
        total = np.float32(0.0)
        for a in range(columns.shape[0]):
            total += columns[a, i] * columns[a, i]
        if np.sqrt(total) < bound:
            out[n] = i
            n += 1
    return n


@kernel
def _read_again(values, window, out):
    """Each window's sum by reading the window."""
    for i in range(out.shape[0]):
        total = 0.0
        for j in range(window):
            total += values[i + j]
        out[i] = total


@kernel
def _near_one_by_one(columns, others, distance, left, right):
    """The join, one pair at a time."""
    n = 0
    for i in range(columns.shape[1]):
        for j in range(others.shape[1]):
            total = np.float32(0.0)
            for a in range(columns.shape[0]):
                d = others[a, j] - columns[a, i]
                total += d * d
            if np.sqrt(total) < distance:
                if n < left.shape[0]:
                    left[n] = i
                    right[n] = j
                n += 1
    return n


@kernel
def _one_partial_match_at_a_time(
    values, window, distance, shift, loop, once, last, begin, span, found
):
    """Patterns, one partial match at a time; parameters as for ``follow``."""
    states = last.shape[0]
    for i in range(values.shape[0]):
        x = values[i]
        for s in range(states - 1, -1, -1):
            n = span[s, 0]
            for j in range(span[s, 0], span[s, 1]):
                first = begin[s, j]
                if first <= i - window:
                    continue
                stays = True
                if abs(last[s, j] - (x - shift[s])) < distance[s]:
                    stays = not once
                    if s + 1 == states:
                        found[0] += 1
                        found[1] += first + i
                    else:
                        if span[s + 1, 1] == last.shape[1]:
                            return False
                        last[s + 1, span[s + 1, 1]] = x
                        begin[s + 1, span[s + 1, 1]] = first
                        span[s + 1, 1] += 1
                elif abs(last[s, j] - x) < loop[s]:
                    last[s, j] = x
                if stays:
                    if n < j:
                        last[s, n] = last[s, j]
                        begin[s, n] = first
                    n += 1
            span[s, 1] = n
        if span[0, 1] == last.shape[1]:
            return False
        last[0, span[0, 1]] = x
        begin[0, span[0, 1]] = i
        span[0, 1] += 1
    return True


def _seconds(run: Callable[[], Any], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        begun = time.thread_time()
        run()
        best = min(best, time.thread_time() - begun)
    return best


def _rate(events: float) -> str:
    return f"{events / 1e6:.2f} M/s" if events >= 1e5 else f"{events / 1e3:.3g} k/s"


def _add(section: Section, what: str, events: int, ours: float, theirs: float, bar: float) -> None:
    section.rows.append(
        Row(
            what,
            _rate(events / ours),
            _rate(events / theirs),
            f"{theirs / ours:.1f}x",
            f"{bar:g}x" if bar else "",
            theirs / ours >= bar if bar else None,
        )
    )


def _filters(section: Section, short: bool) -> None:
    rng = np.random.default_rng(410)
    size = 1 << (16 if short else 20)
    columns = rng.random((6, size), np.float32)
    norms = np.sort(np.sqrt((columns * columns).sum(axis=0)))
    cases = [(share, 4096) for share in SHARES] + [(1e-3, n) for n in (64, 256, 1024, 16384)]
    for share, batch in cases:
        bound = np.float32(norms[min(size - 1, int(size * share))])
        holds, out = np.empty(batch, np.bool_), np.empty(batch + 1, np.int64)
        pieces = [np.ascontiguousarray(columns[:, i : i + batch]) for i in range(0, size, batch)]
        square = np.empty(batch, np.float32)
        found = [0, 0]

        def batched(
            square: Any = square,
            pieces: Any = pieces, bound: Any = bound, holds: Any = holds, out: Any = out,
            found: Any = found,
        ) -> None:  # fmt: skip
            found[0] = 0
            for piece in pieces:
                norm_below(piece, bound, square, holds)
                found[0] += compact(holds, out)

        def alone(
            pieces: Any = pieces, bound: Any = bound, out: Any = out, found: Any = found
        ) -> None:
            found[1] = sum(_one_by_one(piece, bound, out) for piece in pieces)

        ours, theirs = _seconds(batched), _seconds(alone)
        if abs(found[0] - found[1]) > 2:  # the root may round differently than the square
            raise AssertionError(f"filter: {found}")
        _add(section, f"4.10 filter, {share:g} hold, batch {batch:,}", size, ours, theirs, 0)


def _sums(section: Section, short: bool) -> None:
    rng = np.random.default_rng(411)
    for power in (12, 14) if short else (12, 14, 16, 18, 20):
        window = 1 << power
        values = np.floor(rng.random(3 * window) * 100)
        out = np.empty(len(values) - window + 1)
        few = np.empty(max(16, (1 << 24) // window))
        ours = _seconds(lambda v=values, w=window, o=out: sliding_sum(v, w, o)) / len(out)  # type: ignore[misc]
        theirs = _seconds(lambda v=values, w=window, o=few: _read_again(v, w, o), 1) / len(few)  # type: ignore[misc]
        if not np.array_equal(out[: len(few)], few[: len(out)]):
            raise AssertionError(f"sums of {window}")
        bar = 1000 if power == 20 else 0
        _add(section, f"4.11 sum, slide 1, window 2^{power}", 1, ours, theirs, bar)


def _joins(section: Section, short: bool) -> None:
    rng = np.random.default_rng(412)
    largest = 1 << (14 if short else 19)
    cases = [(share, largest) for share in SHARES]
    cases += [(1e-3, 1 << power) for power in ((12,) if short else (12, 14, 16, 18, 20))]
    for share, window in cases:
        others = rng.random((6, window), np.float32)
        few = rng.random((6, max(8, (1 << 23) // window)), np.float32)
        apart = np.sqrt(((few[:, :8, None] - others[:, None, :4096]) ** 2).sum(axis=0))
        distance = np.float32(np.quantile(apart, share))
        room = int(few.shape[1] * window * min(1.0, 4 * share)) + 64
        left, right = np.empty(room, np.int64), np.empty(room, np.int64)
        near = np.empty(512, np.float32)
        found = [0, 0]

        def tiles(
            few: Any = few, others: Any = others, distance: Any = distance, left: Any = left,
            right: Any = right, near: Any = near, found: Any = found,
        ) -> None:  # fmt: skip
            found[0] = join_near(few, others, distance, 512, near, left, right)

        def pairs(
            few: Any = few, others: Any = others, distance: Any = distance, left: Any = left,
            right: Any = right, found: Any = found,
        ) -> None:  # fmt: skip
            found[1] = _near_one_by_one(few, others, distance, left, right)

        ours, theirs = _seconds(tiles), _seconds(pairs)
        if abs(found[0] - found[1]) > 1 + found[1] // 1000:
            raise AssertionError(f"join: {found}")
        events = few.shape[1]
        _add(section, f"4.12 join, {share:g} of pairs, window {window:,}", events, ours, theirs, 4)


def _matches(
    kernel_: Any, values: Any, window: int, near: list[float], loops: list[float], once: bool
) -> tuple[list[int], float]:
    states, room = len(near), 4 * window
    arguments = [np.array(each, np.float32) for each in (near, [0.0] * states, loops)]
    if any(loops):  # events of the loop do not advance the pattern
        arguments[1][-1] = 0.5
    last, begin = np.zeros((states, room), np.float32), np.zeros((states, room), np.int64)
    span, found = np.zeros((states, 2), np.int64), np.zeros(2, np.int64)
    last[0, :window], begin[0, :window] = values[:window], np.arange(-window, 0)
    span[0, 1] = window
    begun = time.thread_time()
    if not kernel_(values[window:], window, *arguments, once, last, begin, span, found):
        raise AssertionError("partial matches without room")
    return found.tolist(), (time.thread_time() - begun) / (len(values) - window)


def _patterns(section: Section, short: bool) -> None:
    rng = np.random.default_rng(413)
    symbols = "ABCDEFGH"
    cases: list[tuple[str, int, list[float], list[float], bool, float]] = []
    for power in (10, 12) if short else (10, 12, 14, 15, 16, 17):
        for figure, once, bar in (("4.13a any", False, 5.0), ("4.14a next", True, 3.0)):
            text = f"{figure}, (A, B), 1e-7, window 2^{power}"
            cases.append((text, 1 << power, [1e-7], [0.0], once, bar))
    power = 10 if short else 16
    for count in (2, 4) if short else (2, 3, 4, 5, 6, 7, 8):
        near = [0.5e-5] * (count - 1)
        text = f"4.13b any, ({', '.join(symbols[:count])}), 1e-5, window 2^{power}"
        cases.append((text, 1 << power, near, [0.0] * (count - 1), False, 5.0))
    text = f"4.14b next, (A, B+, C), 1e-5, window 2^{power}"
    cases.append((text, 1 << power, [0.5e-5] * 2, [0.0, 0.5e-5], True, 3.0))
    for text, window, near, loops, once, bar in cases:
        values = rng.random(window + (64 if short else 1 << 12)).astype(np.float32)
        case = (window, near, loops, once)
        _matches(follow, values[: window + 8], *case)
        found, ours = min((_matches(follow, values, *case) for _ in range(3)), key=lambda m: m[1])
        _matches(_one_partial_match_at_a_time, values[: window + 8], *case)
        wanted, theirs = _matches(_one_partial_match_at_a_time, values, *case)
        if found != wanted:
            raise AssertionError(f"{text}: {found}, {wanted}")
        _add(section, text, 1, ours, theirs, 0 if short else bar)


def run(short: bool = False) -> Section:
    section = Section(
        "Chapter 4 on the CPU",
        "Events of six float32 (one for patterns), one thread, processor time; the peer is one "
        "event, pair or partial match after the other, compiled by the same compiler. The axes are "
        "those of the figures named; figure 4.8 (a filter beside Flink) is a row of the live "
        "queries above.",
    )
    _filters(section, short)
    _sums(section, short)
    _joins(section, short)
    _patterns(section, short)
    return section
