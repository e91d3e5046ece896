"""Compiled loops of windows: fold events, absorb partials, sweep the tree, slide windows.

Purpose
    Everything that happens once per event, zone, child or window.  The kernels call each other, so
    they live in this one file.

Layout
    A *partial* is a row of 64-bit words that holds the fields a query asks for and nothing else.
    A field is a row of the ``fields`` array: operation, first word in the partial, row of an entry
    table, row of the count that says whether the table's words mean anything, and the column whose
    events it folds (:data:`EVENTS` for none, :data:`TIME` for the time attribute).  Each operation
    has an identity (the smallest value for max, and so on), so that no field needs another one to
    be read.

    A slicing is what :meth:`~chronicle.query.windows.spec.TimeWindows.kernel_form` gives.  In mode
    0 events are cut by time, in mode 1 by their position in the stream.

Guarantee
    Float sums are pairs of doubles (TwoSum), merged as the store merges them; NaN is the greatest
    value.  No result is ever subtracted from: a window is joined from partials only.

Limits
    The sweep reads leaves as ``store/layout.py`` lays them out; the assertions at the end of this
    file hold the numbers written into it against that.
"""

from __future__ import annotations

import numpy as np

from ...compiled import kernel
from ...store import layout

__all__ = [
    "ADD",
    "CHILD",
    "EVENTS",
    "EVENTS_FOLDED",
    "LEAVES_CUT",
    "MAX_FLOAT",
    "MAX_SIGNED",
    "MAX_UNSIGNED",
    "MERGES",
    "MIN_FLOAT",
    "MIN_SIGNED",
    "MIN_UNSIGNED",
    "OPEN",
    "POSITION",
    "ROWS",
    "STATE_WORDS",
    "SUM_FLOAT",
    "SUM_WIDE",
    "TIME",
    "ZONES_READ",
    "cut_leaves",
    "cut_zones",
    "fill_identity",
    "fold_runs",
    "merge_equal",
    "slice_runs",
    "slide_windows",
    "sweep_leaves",
    "sweep_nodes",
]

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

EVENTS = -1  # the field counts events
TIME = -2  # the field is the first or last tick

# words of the state that a sweep carries from call to call
ROWS = 0  # partials begun; the last one is still open
OPEN = 1  # 0 no slice is open, 1 one is, 2 the open slice is a gap
BOUND = 2  # last tick or position of the open slice
POSITION = 3  # events passed
CHILD = 4  # where to go on
MERGES = 5  # children and zones absorbed whole
ZONES_READ = 6  # zones whose events were read
EVENTS_FOLDED = 7
LEAVES_CUT = 8
STATE_WORDS = 9

_SIGNED_MAX = np.int64(9223372036854775807)
_SIGNED_MIN = np.int64(-9223372036854775807 - 1)


@kernel
def fill_identity(words, first, end, fields):  # type: ignore[no-untyped-def]
    """Make rows [first, end) of ``words`` identities."""
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


@kernel
def _absorb(op, ints, floats, i, at, a, b, x, y):  # type: ignore[no-untyped-def]
    """Merge one field, its words (a, b) and the same bits as doubles (x, y), into row i."""
    if op == 0:
        ints[i, at] += a
    elif op == 8:
        mine = floats[i, at]
        new = mine + x
        back = new - mine
        rest = (mine - (new - back)) + (x - back) + (y + floats[i, at + 1])
        if not np.isfinite(new) or not np.isfinite(rest):
            rest = 0.0
        whole = new + rest
        if np.isfinite(whole):
            rest -= whole - new
            new = whole
        floats[i, at] = new
        floats[i, at + 1] = rest
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
def _absorb_row(fields, ints, floats, i, source, source_floats, j):  # type: ignore[no-untyped-def]
    """Merge partial j of ``source`` into partial i."""
    for f in range(fields.shape[0]):
        op = fields[f, 0]
        at = fields[f, 1]
        if op >= 7:
            _absorb(
                op, ints, floats, i, at, source[j, at], source[j, at + 1],
                source_floats[j, at], source_floats[j, at + 1],
            )  # fmt: skip
        else:
            value = source[j, at]
            _absorb(op, ints, floats, i, at, value, value, source_floats[j, at], 0.0)


@kernel
def _absorb_range(fields, ints, floats, i, table, table_floats, base, width, first, end):  # type: ignore[no-untyped-def]
    """Merge children [first, end) of an entry table into partial i, field by field.

    Row r of the table begins at word ``base + r * width``.
    """
    for f in range(fields.shape[0]):
        row = fields[f, 2]
        if row < 0:
            continue
        op = fields[f, 0]
        at = fields[f, 1]
        word = base + row * width
        guard = base + fields[f, 3] * width
        if op == 0:
            count = np.int64(0)
            for child in range(first, end):
                count += table[word + child]
            ints[i, at] += count
        elif op == 8:
            total = floats[i, at]
            error = floats[i, at + 1]
            for child in range(first, end):
                x = table_floats[word + child]
                new = total + x
                back = new - total
                error += (total - (new - back)) + (x - back) + table_floats[word + width + child]
                total = new
            if not np.isfinite(total) or not np.isfinite(error):
                error = 0.0
            whole = total + error
            if np.isfinite(whole):
                error -= whole - total
                total = whole
            floats[i, at] = total
            floats[i, at + 1] = error
        else:
            second = width if op == 7 else 0
            for child in range(first, end):
                if table[guard + child] != 0:
                    here = word + child
                    _absorb(
                        op, ints, floats, i, at, table[here], table[here + second],
                        table_floats[here], 0.0,
                    )  # fmt: skip


@kernel
def _fold_floats(op, values, valid, nullable, first, end, ints, floats, i, at):  # type: ignore[no-untyped-def]
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
                v0 = values[k]
                v1 = values[k + 1]
                v2 = values[k + 2]
                v3 = values[k + 3]
                n0 = s0 + v0
                n1 = s1 + v1
                n2 = s2 + v2
                n3 = s3 + v3
                b0 = n0 - s0
                b1 = n1 - s1
                b2 = n2 - s2
                b3 = n3 - s3
                e0 += (s0 - (n0 - b0)) + (v0 - b0)
                e1 += (s1 - (n1 - b1)) + (v1 - b1)
                e2 += (s2 - (n2 - b2)) + (v2 - b2)
                e3 += (s3 - (n3 - b3)) + (v3 - b3)
                s0 = n0
                s1 = n1
                s2 = n2
                s3 = n3
                k += 4
            total = s0
            new = total + s1
            back = new - total
            error = e0 + e1 + (total - (new - back)) + (s1 - back)
            total = new
            new = total + s2
            back = new - total
            error += e2 + (total - (new - back)) + (s2 - back)
            total = new
            new = total + s3
            back = new - total
            error += e3 + (total - (new - back)) + (s3 - back)
            total = new
        while k < end:
            if not nullable or valid[k]:
                value = values[k]
                new = total + value
                back = new - total
                error += (total - (new - back)) + (value - back)
                total = new
            k += 1
        if not np.isfinite(total) or not np.isfinite(error):
            error = 0.0
        _absorb(8, ints, floats, i, at, 0, 0, total, error)
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
def _fold_integers(op, values, valid, nullable, first, end, ints, floats, i, at, unsigned):  # type: ignore[no-untyped-def]
    """Fold 64-bit integers [first, end), signed or not, into a field of partial i."""
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
        _absorb(7, ints, floats, i, at, np.int64(total), (high >> np.int64(32)) + carry, 0.0, 0.0)
    else:
        for k in range(first, end):
            if nullable and not valid[k]:
                continue
            _absorb(op, ints, floats, i, at, values[k], 0, 0.0, 0.0)


@kernel
def _open_slice(value, slicing):  # type: ignore[no-untyped-def]
    """Number of the slice of a tick or position, its last one, and whether it is a gap."""
    slide = slicing[2]
    cut = slicing[3]
    number = value // slide
    rest = value % slide - slicing[1]
    if rest < 0:
        rest += slide
        number -= 1
    gap = False
    room = slide - 1 - rest
    if cut > 0:
        number = 2 * number
        if rest < cut:
            room = cut - 1 - rest
        else:
            number += 1
            gap = slicing[4] != 0
    # compared before it is added: compiled code may take for granted that nothing overflows
    last = _SIGNED_MAX if value > _SIGNED_MAX - room else value + room
    return number, last, gap


@kernel
def _enter(value, slicing, ids, words, fields, state):  # type: ignore[no-untyped-def]
    """Open the slice of a tick or position; continue the last one where it is the same."""
    number, last, gap = _open_slice(value, slicing)
    state[2] = last
    if gap:
        state[1] = 2
        return
    state[1] = 1
    row = state[0]
    if row > 0 and ids[row - 1] == number:
        return
    ids[row] = number
    fill_identity(words, row, row + 1, fields)
    state[0] = row + 1


@kernel
def slice_runs(values, slicing, position, ids, starts):  # type: ignore[no-untyped-def]
    """Cut consecutive events into runs of one slice each.

    Parameters
    ----------
    values : int64[n]
        Ticks, ascending.
    slicing : int64[5]
    position : int
        Of the first event in its stream; counts in mode 1.
    ids, starts : int64[n + 1]
        Filled; the run i is events [starts[i], starts[i + 1]).  Events in a gap form runs with
        ``ids == -1`` when the slicing has gaps (numbers of real slices are then even).

    Returns
    -------
    int
        Runs.
    """
    runs = 0
    at = 0
    count = values.size
    by_position = slicing[0] == 1
    while at < count:
        value = position + at if by_position else values[at]
        number, last, gap = _open_slice(value, slicing)
        ids[runs] = -1 if gap else number
        starts[runs] = at
        runs += 1
        if by_position:
            room = last - value
            at = count if room >= count - at else at + room + 1
        else:
            at += 1
            while at < count and values[at] <= last:
                at += 1
    starts[runs] = count
    return runs


@kernel
def fold_runs(values, validity, bit_offset, starts, runs, op, unsigned, words, at):  # type: ignore[no-untyped-def]
    """Fold one field over runs of events: run i goes into partial i.

    ``values`` are 64-bit words: the bits of doubles for the float operations, integers for the
    others; ``validity`` is an Arrow bitmap or empty.
    """
    floats = words.view(np.float64)
    values_float = values.view(np.float64)
    nullable = validity.size > 0
    valid = np.empty(values.size if nullable else 0, np.uint8)
    if nullable:
        for i in range(values.size):
            bit = i + bit_offset
            valid[i] = (validity[bit >> 3] >> (bit & 7)) & 1
    for run in range(runs):
        if op == 8 or op == 5 or op == 6:
            _fold_floats(
                op, values_float, valid, nullable, starts[run], starts[run + 1], words, floats,
                run, at,
            )  # fmt: skip
        else:
            _fold_integers(
                op, values, valid, nullable, starts[run], starts[run + 1], words, floats, run, at,
                unsigned,
            )  # fmt: skip


@kernel
def merge_equal(ids, words, order, fields, out_ids, out_words):  # type: ignore[no-untyped-def]
    """Merge partials of equal number; ``order`` brings the numbers into ascending order.

    Returns
    -------
    int
        Partials written.
    """
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
            _absorb_row(fields, out_words, floats, written - 1, words, source_floats, j)
    return written


# ------------------------------------------------------------------------------- the sweep


@kernel
def _absorb_whole(  # type: ignore[no-untyped-def]
    table, table_floats, base, children, child, last, by_position, fields, words, floats, state
):
    """Merge the children from ``child`` on that lie within the open slice; give the next one.

    The first of them is known to.  Row r of the entry table begins at word ``base + r *
    children``.
    """
    counts = base + 2 * children
    lasts = base + 4 * children
    first = child
    position = state[3]
    bound = state[2]
    while child < children:
        count = table[counts + child]
        if by_position:
            if position + count - 1 > bound or table[lasts + child] > last:
                break
        elif table[lasts + child] > bound or table[lasts + child] > last:
            break
        position += count
        child += 1
    if state[1] == 1:
        _absorb_range(
            fields, words, floats, state[0] - 1, table, table_floats, base, children, first, child
        )
    state[3] = position
    state[5] += child - first
    return child


@kernel
def sweep_nodes(table, first_child, start, last, slicing, fields, ids, words, state):  # type: ignore[no-untyped-def]
    """Absorb children of an entry table from left to right, up to one that a boundary cuts.

    Parameters
    ----------
    table : int64[rows, children]
    first_child : int
    start, last : int
        Ticks, inclusive; children outside are passed over.
    slicing, fields, ids, words, state
        As everywhere in this file.

    Returns
    -------
    int
        The child to descend into; the number of children at the end, or minus one when ``ids`` is
        full (``state[CHILD]`` says where to go on).
    """
    children = table.shape[1]
    flat = table.reshape(table.size)
    flat_floats = flat.view(np.float64)
    floats = words.view(np.float64)
    by_position = slicing[0] == 1
    child = first_child
    while child < children:
        first_tick = table[3, child]
        last_tick = table[4, child]
        if last_tick < start:
            child += 1
            continue
        if first_tick > last:
            return children
        if first_tick < start or last_tick > last:
            return child
        low = state[3] if by_position else first_tick
        high = low + table[2, child] - 1 if by_position else last_tick
        if state[1] == 0 or low > state[2]:
            if state[0] >= ids.size:
                state[4] = child
                return -1
            _enter(low, slicing, ids, words, fields, state)
        if high > state[2]:
            return child
        child = _absorb_whole(
            flat, flat_floats, 0, children, child, last, by_position, fields, words, floats, state
        )
    return children


@kernel
def cut_leaves(table, first_child, start, last, slicing, position):  # type: ignore[no-untyped-def]
    """Mark children, from ``first_child`` on, whose events a sweep may have to look at."""
    children = table.shape[1]
    marks = np.zeros(children, np.uint8)
    bound = np.int64(0)
    is_open = False
    for child in range(first_child, children):
        if table[4, child] < start:
            continue
        if table[3, child] > last:
            break
        if table[3, child] < start or table[4, child] > last:
            marks[child] = 1
            is_open = False
            if slicing[0] == 1:  # how many of its events count is not known yet
                marks[child:] = 1
                break
            continue
        low = position if slicing[0] == 1 else table[3, child]
        high = low + table[2, child] - 1 if slicing[0] == 1 else table[4, child]
        if not is_open or low > bound:
            _, bound, _ = _open_slice(low, slicing)
            is_open = True
        if high > bound:
            marks[child] = 1
            is_open = False
        position += table[2, child]
    return marks


@kernel
def _unpack_zone(data, at, events, zone, delta, out, row):  # type: ignore[no-untyped-def]
    """Decode one zone of a bit-packed chunk that begins at word ``at``."""
    zones = (events + 511) // 512
    count = min(512, events - zone * 512)
    value = np.uint64(data[at + zone])
    low = np.uint64(data[at + zones + zone])
    width = np.uint64(data[at + 3 * zones + 1 + zone])
    packed = at + 4 * zones + 1 + data[at + 2 * zones + zone]
    first = 0
    if delta:
        out[row, 0] = np.int64(value)
        first = 1
    if width == np.uint64(0):
        for i in range(first, count):
            if delta:
                value += low
            out[row, i] = np.int64(value)
        return
    mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    if width < np.uint64(64):
        mask = (np.uint64(1) << width) - np.uint64(1)
    bit = np.uint64(0)
    for i in range(first, count):
        word = packed + np.int64(bit >> np.uint64(6))
        shift = bit & np.uint64(63)
        part = np.uint64(data[word]) >> shift
        if shift + width > np.uint64(64):
            part |= np.uint64(data[word + 1]) << (np.uint64(64) - shift)
        part &= mask
        bit += width
        if delta:
            value += low + part
            out[row, i] = np.int64(value)
        else:
            out[row, i] = np.int64(value + part)


@kernel
def _load_plain(data, narrow, at, load, first, count, out, row):  # type: ignore[no-untyped-def]
    """Copy plain values [first, first + count) of a chunk at byte ``at``, widened to 64 bits.

    ``narrow`` holds views of the same bytes as int32, float32, int16 and uint8.
    """
    i32, f32, i16, u8 = narrow
    floats = out.view(np.float64)
    if load == 0 or load == 4 or load == 8:
        base = (at >> 3) + first
        for i in range(count):
            out[row, i] = data[base + i]
    elif load == 9:
        base = (at >> 2) + first
        for i in range(count):
            floats[row, i] = f32[base + i]
    elif load == 1 or load == 5:
        base = (at >> 2) + first
        for i in range(count):
            value = np.int64(i32[base + i])
            out[row, i] = value & np.int64(0xFFFFFFFF) if load == 5 else value
    elif load == 2 or load == 6:
        base = (at >> 1) + first
        for i in range(count):
            value = np.int64(i16[base + i])
            out[row, i] = value & np.int64(0xFFFF) if load == 6 else value
    elif load == 3 or load == 7:
        for i in range(count):
            value = np.int64(u8[at + first + i])
            out[row, i] = value - 256 if load == 3 and value > 127 else value
    elif load == 10:
        for i in range(count):
            bit = first + i
            out[row, i] = (u8[at + (bit >> 3)] >> (bit & 7)) & 1


@kernel
def _load_zone(data, narrow, leaf, events, zone, position, load, given, given_row, out, valid, row):  # type: ignore[no-untyped-def]
    """Bring one zone of a column into rows of ``out`` and ``valid``; say whether it has nulls."""
    entry = (leaf >> 3) + 10 + 5 * position
    first = zone * 512
    count = min(512, events - first)
    head = data[entry]
    encoding = head & 255
    codec = (head >> 8) & 255
    nulls = head >> 32
    at = leaf + data[entry + 1]
    nullable = nulls > 0
    u8 = narrow[3]
    if nullable:
        for i in range(count):
            bit = first + i
            valid[row, i] = (u8[at + (bit >> 3)] >> (bit & 7)) & 1
        at += (((events + 7) >> 3) + 63) & -64
    if load == 11:
        return nullable
    if encoding == 1 or encoding == 2:
        _unpack_zone(data, at >> 3, events, zone, encoding == 1, out, row)
    elif codec != 0:
        for i in range(count):
            out[row, i] = given[given_row, first + i]
    else:
        _load_plain(data, narrow, at, load, first, count, out, row)
    return nullable


@kernel
def cut_zones(data, leaf, start, last, slicing, position):  # type: ignore[no-untyped-def]
    """Mark the zones of the leaf at byte ``leaf`` whose events a sweep has to look at."""
    base = (leaf >> 3) + 8
    events = data[base] & np.int64(0xFFFFFFFF)
    columns = data[base + 1] >> 32
    zones = (events + 511) // 512
    rows = data[base + 2 + 5 * columns : base + 2 + 5 * columns + 5 * zones]
    return cut_leaves(rows.reshape((5, zones)), 0, start, last, slicing, position)


@kernel
def sweep_leaves(  # type: ignore[no-untyped-def]
    data, narrow, table, first_child, ready, given, start, last, slicing, fields, columns,
    time_position, ids, words, state, scratch, valid,
):  # fmt: skip
    """Sweep the leaves of an entry table from left to right: whole leaves, whole zones, events.

    Parameters
    ----------
    data : int64[bytes / 8]
        The mapped segment; ``narrow`` holds views of it as int32, float32, int16, uint8.
    table : int64[rows, leaves]
    first_child : int
    ready : uint8[leaves]
        1 where a leaf's head and the needed chunks are verified and nothing of them is compressed,
        or where ``given`` holds what is; anything else makes the sweep stop there.
    given : int64[columns + 1, events]
        Decompressed values (the last row: ticks) of the one leaf that needs it.
    start, last : int
        Ticks, inclusive.
    columns : int64[k, 2]
        Position among the schema's columns and load kind.
    time_position : int
        Of the time attribute among the schema's columns.
    ids, words : int64[n], int64[n, w]
        Partials, ascending; n exceeds the events of any leaf.
    scratch, valid : int64[k + 1, 512], uint8[k + 1, 512]

    Returns
    -------
    int
        0 at the end; 1 when the leaf ``state[CHILD]`` is not ready; 2 when ``ids`` may not hold
        the slices of the next leaf.
    """
    leaves = table.shape[1]
    flat = table.reshape(table.size)
    flat_floats = flat.view(np.float64)
    data_floats = data.view(np.float64)
    floats = words.view(np.float64)
    values_float = scratch.view(np.float64)
    by_position = slicing[0] == 1
    kinds = columns.shape[0]
    with_time = False
    for f in range(fields.shape[0]):
        with_time = with_time or fields[f, 4] == -2
    nullable = np.zeros(kinds + 1, np.uint8)
    child = first_child
    while child < leaves:
        first_tick = table[3, child]
        last_tick = table[4, child]
        if last_tick < start:
            child += 1
            continue
        if first_tick > last:
            break
        if state[0] + table[2, child] + 2 > ids.size:
            state[4] = child
            return 2
        inside = first_tick >= start and last_tick <= last
        if inside:
            low = state[3] if by_position else first_tick
            high = low + table[2, child] - 1 if by_position else last_tick
            if state[1] == 0 or low > state[2]:
                _enter(low, slicing, ids, words, fields, state)
            if high <= state[2]:
                child = _absorb_whole(
                    flat, flat_floats, 0, leaves, child, last, by_position, fields, words, floats,
                    state,
                )  # fmt: skip
                continue
        if ready[child] != 1:
            state[4] = child
            return 1
        # the leaf is cut: go through its zones
        state[8] += 1
        leaf = table[0, child]
        head = (leaf >> 3) + 8
        events = data[head] & np.int64(0xFFFFFFFF)
        zones = (events + 511) // 512
        zone_table = head + 2 + 5 * (data[head + 1] >> 32)
        zone = 0
        while zone < zones:
            zone_first = data[zone_table + 3 * zones + zone]
            zone_last = data[zone_table + 4 * zones + zone]
            if zone_last < start:
                zone += 1
                continue
            if zone_first > last:
                break
            count = data[zone_table + 2 * zones + zone]
            zone_inside = zone_first >= start and zone_last <= last
            if zone_inside:
                low = state[3] if by_position else zone_first
                high = low + count - 1 if by_position else zone_last
                if state[1] == 0 or low > state[2]:
                    _enter(low, slicing, ids, words, fields, state)
                if high <= state[2]:
                    zone = _absorb_whole(
                        data, data_floats, zone_table, zones, zone, last, by_position, fields,
                        words, floats, state,
                    )  # fmt: skip
                    continue
            # the zone is cut: go through its events
            state[6] += 1
            first = 0
            end = count
            if not by_position or not zone_inside or with_time:
                _load_zone(
                    data, narrow, leaf, events, zone, time_position, 0, given, kinds, scratch,
                    valid, kinds,
                )  # fmt: skip
                if not zone_inside:
                    while first < end and scratch[kinds, first] < start:
                        first += 1
                    while end > first and scratch[kinds, end - 1] > last:
                        end -= 1
            for c in range(kinds):
                nullable[c] = _load_zone(
                    data, narrow, leaf, events, zone, columns[c, 0], columns[c, 1], given, c,
                    scratch, valid, c,
                )  # fmt: skip
            state[7] += end - first
            while first < end:
                value = state[3] if by_position else scratch[kinds, first]
                if state[1] == 0 or value > state[2]:
                    _enter(value, slicing, ids, words, fields, state)
                if by_position:
                    room = state[2] - value
                    stop = end if room >= end - first else first + room + 1
                elif scratch[kinds, end - 1] <= state[2]:
                    stop = end
                else:
                    stop = first + 1
                    while stop < end and scratch[kinds, stop] <= state[2]:
                        stop += 1
                state[3] += stop - first
                if state[1] == 1:
                    row = state[0] - 1
                    for f in range(fields.shape[0]):
                        op = fields[f, 0]
                        at = fields[f, 1]
                        column = fields[f, 4]
                        if column == -1:
                            words[row, at] += stop - first
                        elif column == -2:
                            tick = scratch[kinds, first] if op == 1 else scratch[kinds, stop - 1]
                            _absorb(op, words, floats, row, at, tick, 0, 0.0, 0.0)
                        elif column == -3:
                            continue
                        elif op == 8 or op == 5 or op == 6:
                            _fold_floats(
                                op, values_float[column], valid[column], nullable[column] != 0,
                                first, stop, words, floats, row, at,
                            )  # fmt: skip
                        else:
                            _fold_integers(
                                op, scratch[column], valid[column], nullable[column] != 0, first,
                                stop, words, floats, row, at, fields[f, 5] != 0,
                            )  # fmt: skip
                first = stop
            zone += 1
        child += 1
    state[4] = leaves
    return 0


# -------------------------------------------------------------------------------- windows


@kernel
def _last_slice(window, doubled, overlap):  # type: ignore[no-untyped-def]
    """Number of a window's last slice."""
    return 2 * (window + overlap) if doubled else window + overlap - 1


@kernel
def _first_window(number, doubled, overlap):  # type: ignore[no-untyped-def]
    """First window that does not end before a slice."""
    if doubled:
        return ((number + 1) >> 1) - overlap
    if number < _SIGNED_MIN + (overlap - 1):
        return _SIGNED_MIN
    return number - (overlap - 1)


@kernel
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
                        _absorb_row(fields, ring, ring_floats, i, ring, ring_floats, i + 1)
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
                _absorb_row(fields, out_words, out_floats, written, back, back_floats, 0)
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
        _absorb_row(fields, back, back_floats, 0, words, floats, at)
        at += 1
    state[0] = head
    state[1] = border
    state[2] = tail
    state[3] = window
    return at, written, 0


# the sweep counts on these
assert layout.BLOCK_FRAME.size == 64
assert layout.LEAF_HEADER.size == 16
assert layout.CHUNK_ENTRY.size == 40
assert layout.ZONE_EVENTS == 512
assert layout.ROW_COUNT == 2
assert layout.ROW_FIRST == 3
assert layout.ROW_LAST == 4
assert (layout.Encoding.PLAIN, layout.Encoding.DELTA, layout.Encoding.PACKED) == (0, 1, 2)
