"""Kernels for partials: find slices, fold events into them, merge partials.

A *partial* is a row of 64-bit words.  A field is a row of ``fields``: operation, first word in the
partial, row of an entry table, row of the count that says whether the table's words are valid,
folded column (``EVENTS`` for none, ``TIME`` for the time attribute), and whether integers are
unsigned.  A slicing comes from ``spec.TimeWindows.kernel_form``; mode 0 cuts by time, mode 1 by
position.

Float sums are pairs of doubles (TwoSum); NaN is the greatest value.  Moments of a run use two
passes and are merged by the formula of Chan, Golub and LeVeque (1979), without differences of large
sums.
"""

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from ...store.aggregates import settled, two_sum

# operations of fields
ADD = 0  # counts
MIN_SIGNED = 1
MAX_SIGNED = 2
MIN_UNSIGNED = 3
MAX_UNSIGNED = 4
MIN_FLOAT = 5
MAX_FLOAT = 6
SUM_WIDE = 7  # 128 bits: low word, high word
SUM_FLOAT = 8  # a pair of doubles
# not stored by the tree; partials of earlier events must come first
FIRST = 9  # 0 nothing, 1 a null, 2 a value; the value
LAST = 10
FIRST_VALUE = 11  # first non-null value
MOMENTS = 12  # as doubles: count, mean, sum of squared distances from the mean

EVENTS = -1  # the field counts events
TIME = -2  # the field is the first or last tick

_SIGNED_MAX = np.int64(9223372036854775807)
_SIGNED_MIN = np.int64(-9223372036854775807 - 1)


@kernel
def fill_identity(words, first, end, fields):  # type: ignore[no-untyped-def]
    """Set rows [first, end) of ``words`` to identities."""
    floats = words.view(np.float64)
    for f in range(fields.shape[0]):
        op = fields[f, 0]
        at = fields[f, 1]
        for i in range(first, end):
            if op == 1:
                words[i, at] = _SIGNED_MAX
            elif op == 2:
                words[i, at] = _SIGNED_MIN
            elif op == 3:
                words[i, at] = -1
            elif op == 5:
                floats[i, at] = np.nan
            elif op == 6:
                floats[i, at] = -np.inf
            else:
                words[i, at] = 0
                if op >= 7:
                    words[i, at + 1] = 0
                if op == 12:
                    words[i, at + 2] = 0


@kernel
def absorb(op, ints, floats, i, at, a, b, x, y):  # type: ignore[no-untyped-def]
    """Merge one field, its words (a, b) and the same bits as doubles (x, y), into row i."""
    if op == 0:
        ints[i, at] += a
    elif op == 8:
        total, rest = two_sum(floats[i, at], x)
        floats[i, at], floats[i, at + 1] = settled(total, rest + (y + floats[i, at + 1]))
    elif op == 7:
        part = np.uint64(ints[i, at])
        total = part + np.uint64(a)
        ints[i, at] = np.int64(total)
        ints[i, at + 1] += b
        if total < part:
            ints[i, at + 1] += 1
    elif op == 1:
        ints[i, at] = min(ints[i, at], a)
    elif op == 2:
        ints[i, at] = max(ints[i, at], a)
    elif op == 3:
        if np.uint64(a) < np.uint64(ints[i, at]):
            ints[i, at] = a
    elif op == 4:
        if np.uint64(a) > np.uint64(ints[i, at]):
            ints[i, at] = a
    elif op == 5:
        mine = floats[i, at]
        if x < mine or mine != mine:
            floats[i, at] = x
    else:
        mine = floats[i, at]
        if x > mine or x != x:
            floats[i, at] = x


@kernel
def _absorb_moments(floats, i, at, count, mean, squares):  # type: ignore[no-untyped-def]
    """Merge count, mean and squared distances into partial i."""
    mine = floats[i, at]
    if count == 0.0:
        return
    if mine == 0.0:
        floats[i, at] = count
        floats[i, at + 1] = mean
        floats[i, at + 2] = squares
        return
    total = mine + count
    distance = mean - floats[i, at + 1]
    floats[i, at] = total
    floats[i, at + 1] += distance * (count / total)
    floats[i, at + 2] += squares + distance * distance * (mine * (count / total))


@kernel
def absorb_row(fields, ints, floats, i, source, source_floats, j):  # type: ignore[no-untyped-def]
    """Merge partial j of ``source``, of the same or later events, into partial i."""
    for f in range(fields.shape[0]):
        op = fields[f, 0]
        at = fields[f, 1]
        if op == 12:
            _absorb_moments(
                floats, i, at, source_floats[j, at], source_floats[j, at + 1],
                source_floats[j, at + 2],
            )  # fmt: skip
        elif op == 10:
            if source[j, at] != 0:
                ints[i, at] = source[j, at]
                ints[i, at + 1] = source[j, at + 1]
        elif op >= 9:
            if ints[i, at] == 0:
                ints[i, at] = source[j, at]
                ints[i, at + 1] = source[j, at + 1]
        elif op >= 7:
            absorb(
                op, ints, floats, i, at, source[j, at], source[j, at + 1],
                source_floats[j, at], source_floats[j, at + 1],
            )  # fmt: skip
        else:
            value = source[j, at]
            absorb(op, ints, floats, i, at, value, value, source_floats[j, at], 0.0)


@kernel
def fold_floats(op, values, valid, nullable, first, end, ints, floats, i, at):  # type: ignore[no-untyped-def]
    """Fold float values [first, end) into a field of partial i; four lanes hide the latency."""
    if op == 8:
        total = 0.0
        error = 0.0
        k = first
        if not nullable and end - first >= 8:
            s0 = s1 = s2 = s3 = 0.0
            e0 = e1 = e2 = e3 = 0.0
            whole = first + ((end - first) >> 2 << 2)
            while k < whole:
                s0, r0 = two_sum(s0, values[k])
                s1, r1 = two_sum(s1, values[k + 1])
                s2, r2 = two_sum(s2, values[k + 2])
                s3, r3 = two_sum(s3, values[k + 3])
                e0 += r0
                e1 += r1
                e2 += r2
                e3 += r3
                k += 4
            total, rest = two_sum(s0, s1)
            error = e0 + e1 + rest
            total, rest = two_sum(total, s2)
            error += e2 + rest
            total, rest = two_sum(total, s3)
            error += e3 + rest
        while k < end:
            if not nullable or valid[k]:
                total, rest = two_sum(total, values[k])
                error += rest
            k += 1
        if not np.isfinite(total) or not np.isfinite(error):
            error = 0.0
        absorb(8, ints, floats, i, at, 0, 0, total, error)
    elif op == 0:
        if nullable:
            for k in range(first, end):
                ints[i, at] += valid[k]
        else:
            ints[i, at] += end - first
    else:
        best = floats[i, at]
        for k in range(first, end):
            if nullable and not valid[k]:
                continue
            value = values[k]
            if op == 5:
                if value < best or best != best:
                    best = value
            elif value > best or value != value:
                best = value
        floats[i, at] = best


@kernel
def fold_integers(op, values, valid, nullable, first, end, ints, floats, i, at, unsigned):  # type: ignore[no-untyped-def]
    """Fold 64-bit integers [first, end) into a field of partial i."""
    if op == 0:
        if nullable:
            for k in range(first, end):
                ints[i, at] += valid[k]
        else:
            ints[i, at] += end - first
    elif op == 7:
        low = np.int64(0)
        high = np.int64(0)
        for k in range(first, end):
            if nullable and not valid[k]:
                continue
            value = values[k]
            low += value & np.int64(0xFFFFFFFF)
            if unsigned:
                high += np.int64(np.uint64(value) >> np.uint64(32))
            else:
                high += value >> np.int64(32)
        part = np.uint64(high) << np.uint64(32)
        total = part + np.uint64(low)
        carry = np.int64(1) if total < part else np.int64(0)
        absorb(7, ints, floats, i, at, np.int64(total), (high >> np.int64(32)) + carry, 0.0, 0.0)
    else:
        for k in range(first, end):
            if nullable and not valid[k]:
                continue
            absorb(op, ints, floats, i, at, values[k], 0, 0.0, 0.0)


@kernel
def fold_ordered(op, values, values_float, valid, nullable, first, end, ints, floats, i, at):  # type: ignore[no-untyped-def]
    """Fold values [first, end) into a field that the tree does not store; doubles for moments."""
    if op == 12:
        count = 0.0
        total = 0.0
        for k in range(first, end):
            if not nullable or valid[k]:
                count += 1.0
                total += values_float[k]
        if count == 0.0:
            return
        mean = total / count
        rest = 0.0
        squares = 0.0
        if count > 1.0:
            for k in range(first, end):
                if not nullable or valid[k]:
                    distance = values_float[k] - mean
                    rest += distance
                    squares += distance * distance
            squares -= rest * (rest / count)
            mean += rest / count
        _absorb_moments(floats, i, at, count, mean, squares)
    elif op == 10:
        if first < end:
            k = end - 1
            ints[i, at] = 1 if nullable and not valid[k] else 2
            ints[i, at + 1] = values[k]
    elif ints[i, at] == 0:
        for k in range(first, end):
            missing = nullable and not valid[k]
            if op == 11 and missing:
                continue
            ints[i, at] = 1 if missing else 2
            ints[i, at + 1] = values[k]
            break


@kernel
def open_slice(value, slicing):  # type: ignore[no-untyped-def]
    """Number of the slice of a tick or position, its last one, and whether it is a gap."""
    slide = slicing[2]
    cut = slicing[3]
    if slide == 2 and cut == 1 and slicing[4] == 0:  # twice the slide would take 65 bits
        return value, value, False
    number = value // slide
    rest = value % slide - slicing[1]
    if rest < 0:
        rest += slide
        number -= 1
    gap = False
    distance = slide - 1 - rest
    if cut > 0:
        number = 2 * number
        if rest < cut:
            distance = cut - 1 - rest
        else:
            number += 1
            gap = slicing[4] != 0
    # compare before adding: compiled code may assume that nothing overflows
    last = _SIGNED_MAX if value > _SIGNED_MAX - distance else value + distance
    return number, last, gap


@kernel
def slice_runs(values, slicing, position, ids, starts):  # type: ignore[no-untyped-def]
    """Divide events (ascending ticks) into runs of one slice; returns their number.  Run i is
    events [starts[i], starts[i + 1]) of slice ``ids[i]``, -1 in gaps (slice numbers are then even).
    """
    runs = 0
    at = 0
    count = values.size
    by_position = slicing[0] == 1
    while at < count:
        value = position + at if by_position else values[at]
        number, last, gap = open_slice(value, slicing)
        ids[runs] = -1 if gap else number
        starts[runs] = at
        runs += 1
        if by_position:
            distance = last - value
            at = count if distance >= count - at else at + distance + 1
        else:
            at += 1
            while at < count and values[at] <= last:
                at += 1
    starts[runs] = count
    return runs


@kernel
def load_validity(validity, bit_offset, count):  # type: ignore[no-untyped-def]
    """One byte per bit of an Arrow bitmap; empty for an empty bitmap."""
    nullable = validity.size > 0
    valid = np.empty(count if nullable else 0, np.uint8)
    if nullable:
        for i in range(count):
            bit = i + bit_offset
            valid[i] = (validity[bit >> 3] >> (bit & 7)) & 1
    return valid


@kernel
def fold_runs(values, validity, bit_offset, starts, runs, op, unsigned, words, at):  # type: ignore[no-untyped-def]
    """Fold one field over runs: run i into partial i.  ``values``: bits of doubles for float
    operations and moments, else integers.  ``validity``: an Arrow bitmap, or empty.
    """
    floats = words.view(np.float64)
    values_float = values.view(np.float64)
    nullable = validity.size > 0
    valid = load_validity(validity, bit_offset, values.size)
    for run in range(runs):
        if op >= 9:
            fold_ordered(
                op, values, values_float, valid, nullable, starts[run], starts[run + 1], words,
                floats, run, at,
            )  # fmt: skip
        elif op == 8 or op == 5 or op == 6:
            fold_floats(
                op, values_float, valid, nullable, starts[run], starts[run + 1], words, floats,
                run, at,
            )  # fmt: skip
        else:
            fold_integers(
                op, values, valid, nullable, starts[run], starts[run + 1], words, floats, run, at,
                unsigned,
            )  # fmt: skip


@kernel
def merge_equal(ids, words, order, fields, out_ids, out_words):  # type: ignore[no-untyped-def]
    """Merge partials of equal number, in ascending ``order``; returns the number written."""
    source_floats = words.view(np.float64)
    floats = out_words.view(np.float64)
    written = 0
    for j in order:
        if written == 0 or out_ids[written - 1] != ids[j]:
            out_ids[written] = ids[j]
            for w in range(words.shape[1]):
                out_words[written, w] = words[j, w]
            written += 1
        else:
            absorb_row(fields, out_words, floats, written - 1, words, source_floats, j)
    return written
