"""The machine: compiled code that walks the automaton over the rows of each partition.

Purpose
    :func:`match_contiguous` finds, from each starting row, the one match that the standard prefers, by
    depth-first search over ordered edges.  It tests a row against a position by one bit of a word; only
    conditions that look at what is already matched run bytecode (:func:`holds`).  The machine for event
    selection strategies, :mod:`.selection`, shares the bytecode and the trackers.

Layout
    Rows are sorted by partition, then by order: group ``g`` is rows ``offsets[g] .. offsets[g + 1]``.  ``position[g]`` is
    the next row at which a match may begin; it is read and written, so that a call can go on where the last
    one stopped.  ``words[row]`` holds the bits; ``Tables.bit[p]`` says which bit belongs to position ``p``.

    A *column* is the state of a partial match: for the contiguous machine its length, for the other one the
    number of its thread.  The trackers (:class:`Path`) keep for each column where FIRST and LAST are and what
    the running aggregates are, so that a condition costs the same at any length of the match.

Guarantee
    A row that is needed but not there yet ends the group with its start undecided, never with a wrong answer.  Where no
    condition depends on the path, a state that failed is not entered again: without a window its bit is cleared for
    good, with one it is remembered for the start.  So time is linear in rows times states, or
    rows in the window times states.

Limits
    Path-dependent conditions can make the search exponential: ``steps_max`` bounds each start.  Numba does not
    notice that :mod:`.selection` calls code of this file: change both together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import kernel

# Status of a call
DONE, OUTPUT_FULL, PATH_FULL, BUDGET, SLICE, OVERFLOW, SKIP_MISSING, SKIP_STUCK = range(8)
# Entries of the state array
GROUP, MATCHES, ROWS, ERROR_ROW, STEPS, ERROR_DEPTH = range(6)
# What happens with the result of an attempt
FAIL, MATCH, MORE = range(3)
# AFTER MATCH SKIP
PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)
# Aggregates
COUNT, SUM_I, SUM_F, MIN_I, MIN_F, MAX_I, MAX_F, ANY_I, ANY_F = range(9)
# Bytecode
(
    CONST_I, CONST_F, CONST_NULL, LOAD_I, LOAD_F, LABEL, AGG_I, AGG_F, NUMBER,
    ADD_I, SUB_I, MUL_I, DIV_I, MOD_I, NEG_I, ABS_I, ADD_F, SUB_F, MUL_F, DIV_F, MOD_F, NEG_F, ABS_F,
    LT_I, LE_I, EQ_I, LT_F, LE_F, EQ_F, AND, OR, NOT, IS_NULL, JUMP, JUMP_NOT_TRUE, JUMP_NOT_NULL,
    TO_F, TO_I, SQRT_F, FLOOR_F, CEIL_F, POP, ROUND_F, LN_F, EXP_F, POW_F,
) = range(46)  # fmt: skip
STACK_MAX = 64


class Tables(NamedTuple):
    """The automaton, and which bit and which condition (-1: none) belong to a position."""

    first: np.ndarray
    target: np.ndarray
    flags: np.ndarray
    bit: np.ndarray
    condition: np.ndarray


class Conditions(NamedTuple):
    """Bytecode, its constants, and the columns that it reads."""

    code: np.ndarray  # (instructions, 4) int64: op, a, b, c
    begin: np.ndarray  # condition i is code[begin[i] : begin[i + 1]]
    const_i: np.ndarray
    const_f: np.ndarray
    column_i: np.ndarray  # (columns, rows)
    valid_i: np.ndarray
    column_f: np.ndarray
    valid_f: np.ndarray
    label: np.ndarray  # per position: code of the variable's name
    last_slot: np.ndarray  # (slots, 2): set of variables, steps back
    first_slot: np.ndarray  # (slots, 2): set of variables, steps on
    sum_slot: np.ndarray  # (slots, 3): set of variables, kind, column
    member: np.ndarray  # (sets, positions) bool


class Path(NamedTuple):
    """Partial matches by column."""

    place: np.ndarray  # position reached
    parent: np.ndarray  # column before, in the strategies
    row: np.ndarray  # row by depth
    last: np.ndarray  # (slots, columns): depth of the row, -1 when there is none
    first: np.ndarray
    count: np.ndarray  # (sets, columns)
    sum_i: np.ndarray
    sum_f: np.ndarray
    sum_n: np.ndarray


class Output(NamedTuple):
    """Matches found: per match group, first row, length and number; per matched row, row and position."""

    group: np.ndarray
    start: np.ndarray
    length: np.ndarray
    number: np.ndarray
    row: np.ndarray
    place: np.ndarray


@kernel
def combine(kind, value_i, value_f, count, x_i, x_f):
    """Running aggregate and one more value: (integer state, float state, overflow)."""
    if kind == SUM_I:
        total = value_i + x_i
        bad = (value_i ^ total) & (x_i ^ total) < 0
        return total, value_f, bad
    if kind == SUM_F:
        return value_i, value_f + x_f, False
    if count == 0:
        return x_i, x_f, False
    if kind == MIN_I:
        return min(value_i, x_i), value_f, False
    if kind == MAX_I:
        return max(value_i, x_i), value_f, False
    if kind == MIN_F:  # NaN is the greatest value
        return value_i, x_f if x_f < value_f or value_f != value_f else value_f, False
    if kind == MAX_F:
        return value_i, x_f if x_f > value_f or x_f != x_f else value_f, False
    return value_i, value_f, False


@kernel
def aggregate_with(cond, path, slot, column, include, row):
    """State of an aggregate over a column, the current row included when it carries its variables."""
    kind = cond.sum_slot[slot, 1]
    source = cond.sum_slot[slot, 2]
    a = path.sum_i[slot, column]
    f = path.sum_f[slot, column]
    n = path.sum_n[slot, column]
    if not include:
        return a, f, n, False
    x_i = np.int64(0)
    x_f = 0.0
    if kind == SUM_F or kind == MIN_F or kind == MAX_F or kind == ANY_F:
        if not cond.valid_f[source, row]:
            return a, f, n, False
        x_f = cond.column_f[source, row]
    elif source >= 0:
        if not cond.valid_i[source, row]:
            return a, f, n, False
        x_i = cond.column_i[source, row]
    if kind == COUNT:
        return a, f, n + 1, False
    a, f, bad = combine(kind, a, f, n, x_i, x_f)
    return a, f, n + 1, bad


@kernel
def begin_path(cond, path):
    """Column 0: nothing matched yet."""
    path.place[0] = 0
    path.last[:, 0] = -1
    path.first[:, 0] = -1
    path.count[:, 0] = 0
    path.sum_i[:, 0] = 0
    path.sum_f[:, 0] = 0.0
    path.sum_n[:, 0] = 0


@kernel
def extend_path(cond, path, column, new, depth, place, row):
    """Column ``new``: column ``column`` with one more row, at index ``depth``."""
    path.place[new] = place
    member = cond.member
    for s in range(cond.last_slot.shape[0]):
        if member[cond.last_slot[s, 0], place]:
            if cond.last_slot[s, 1] == 0:
                path.last[s, new] = depth
            else:  # slots of a set follow each other: one step less is the slot before
                path.last[s, new] = path.last[s - 1, column]
        else:
            path.last[s, new] = path.last[s, column]
    for s in range(cond.first_slot.shape[0]):
        value = path.first[s, column]
        chosen = cond.first_slot[s, 0]
        if value < 0 and member[chosen, place] and path.count[chosen, column] == cond.first_slot[s, 1]:
            value = depth
        path.first[s, new] = value
    for s in range(member.shape[0]):
        path.count[s, new] = path.count[s, column] + member[s, place]
    bad = False
    for s in range(cond.sum_slot.shape[0]):
        include = member[cond.sum_slot[s, 0], place]
        a, f, n, overflow = aggregate_with(cond, path, s, column, include, row)
        path.sum_i[s, new] = a
        path.sum_f[s, new] = f
        path.sum_n[s, new] = n
        bad |= overflow
    return bad


@kernel
def holds(cond, path, which, column, depth, place, row, begin, end, number, si, sf, sn):
    """Whether condition ``which`` is true for the row as next of a partial match: 1, 0, or -1 (overflow)."""
    code = cond.code
    at = cond.begin[which]
    stop = cond.begin[which + 1]
    top = -1
    while at < stop:
        op = code[at, 0]
        a = code[at, 1]
        b = code[at, 2]
        c = code[at, 3]
        at += 1
        if op == LOAD_I or op == LOAD_F or op == LABEL:
            # b: -1 the current row; even: LAST slot, odd: FIRST slot.  c: shift, for LABEL the name's code
            top += 1
            sn[top] = 1
            index = depth
            if b >= 0:
                slot = b >> 2
                include = (b >> 1) & 1
                if b & 1:
                    index = path.first[slot, column]
                    chosen = cond.first_slot[slot, 0]
                    if index < 0 and include and path.count[chosen, column] == cond.first_slot[slot, 1]:
                        index = depth
                elif include:
                    index = depth
                    if cond.last_slot[slot, 1] > 0:
                        index = path.last[slot - 1, column]
                else:
                    index = path.last[slot, column]
            if index < 0:
                continue
            if op == LABEL:
                walk = column
                reached = place
                if index < depth:
                    if path.parent[0] >= 0:
                        for _ in range(depth - index - 1):
                            walk = path.parent[walk]
                    else:
                        walk = index + 1
                    reached = path.place[walk]
                si[top] = cond.label[reached]
                sn[top] = 0
                continue
            where = row if index == depth else path.row[index]
            where += c
            if where < begin or where >= end:
                continue
            if op == LOAD_I:
                if cond.valid_i[a, where]:
                    si[top] = cond.column_i[a, where]
                    sn[top] = 0
            elif cond.valid_f[a, where]:
                sf[top] = cond.column_f[a, where]
                sn[top] = 0
        elif op == CONST_I:
            top += 1
            si[top] = cond.const_i[a]
            sn[top] = 0
        elif op == CONST_F:
            top += 1
            sf[top] = cond.const_f[a]
            sn[top] = 0
        elif op == CONST_NULL:
            top += 1
            sn[top] = 1
        elif op == NUMBER:
            top += 1
            si[top] = number
            sn[top] = 0
        elif op == AGG_I or op == AGG_F:
            top += 1
            x_i, x_f, n, bad = aggregate_with(cond, path, a, column, b == 1, row)
            if bad:
                return -1
            sn[top] = 1 if n == 0 else 0
            si[top] = x_i
            sf[top] = x_f
            if cond.sum_slot[a, 1] == COUNT:
                si[top] = n
                sn[top] = 0
        elif op == IS_NULL:
            si[top] = sn[top]
            sn[top] = 0
        elif op == JUMP:
            at = a
        elif op == JUMP_NOT_TRUE:
            if sn[top] or si[top] == 0:
                at = a
            top -= 1
        elif op == JUMP_NOT_NULL:
            if not sn[top]:
                at = a
            else:
                top -= 1
        elif op == POP:
            top -= 1
        elif op == NOT:
            si[top] = 1 - si[top]
        elif op == AND or op == OR:
            top -= 1
            x = -1 if sn[top] else si[top]
            y = -1 if sn[top + 1] else si[top + 1]
            decisive = 0 if op == AND else 1
            if x == decisive or y == decisive:
                si[top] = decisive
                sn[top] = 0
            elif x < 0 or y < 0:
                sn[top] = 1
            else:
                si[top] = 1 - decisive
                sn[top] = 0
        elif op == TO_F:
            sf[top] = si[top]
        elif op == TO_I:
            if not sn[top]:
                rounded = np.rint(sf[top])
                if not (rounded >= -9.223372036854775e18 and rounded <= 9.223372036854775e18):
                    return -1
                si[top] = np.int64(rounded)
        elif op == NEG_I or op == ABS_I:
            if not sn[top]:
                if si[top] == np.int64(-9223372036854775808):
                    return -1
                if op == NEG_I or si[top] < 0:
                    si[top] = -si[top]
        elif op == NEG_F:
            sf[top] = -sf[top]
        elif op == ABS_F:
            sf[top] = abs(sf[top])
        elif op == SQRT_F:
            sf[top] = np.sqrt(sf[top])
        elif op == FLOOR_F:
            sf[top] = np.floor(sf[top])
        elif op == CEIL_F:
            sf[top] = np.ceil(sf[top])
        elif op == ROUND_F:  # half away from zero, as SQL does
            sf[top] = np.copysign(np.floor(abs(sf[top]) + 0.5), sf[top])
        elif op == LN_F:
            sf[top] = np.log(sf[top])
        elif op == EXP_F:
            sf[top] = np.exp(sf[top])
        else:  # two operands
            top -= 1
            if sn[top] or sn[top + 1]:
                sn[top] = 1
                continue
            x_i = si[top]
            y_i = si[top + 1]
            x_f = sf[top]
            y_f = sf[top + 1]
            if op == ADD_I:
                z = x_i + y_i
                if (x_i ^ z) & (y_i ^ z) < 0:
                    return -1
                si[top] = z
            elif op == SUB_I:
                z = x_i - y_i
                if (x_i ^ y_i) & (x_i ^ z) < 0:
                    return -1
                si[top] = z
            elif op == MUL_I:
                z = x_i * y_i
                if x_i != 0 and (
                    (x_i == -1 and y_i == np.int64(-9223372036854775808)) or z // x_i != y_i
                ):
                    return -1
                si[top] = z
            elif op == DIV_I or op == MOD_I:  # toward zero; the sign of a remainder is the dividend's
                if y_i == 0:
                    return -1
                if y_i == -1:
                    if op == DIV_I and x_i == np.int64(-9223372036854775808):
                        return -1
                    si[top] = -x_i if op == DIV_I else 0
                else:
                    q = x_i // y_i
                    r = x_i - q * y_i
                    if r != 0 and (r < 0) != (x_i < 0):
                        q += 1
                        r -= y_i
                    si[top] = q if op == DIV_I else r
            elif op == ADD_F:
                sf[top] = x_f + y_f
            elif op == SUB_F:
                sf[top] = x_f - y_f
            elif op == MUL_F:
                sf[top] = x_f * y_f
            elif op == DIV_F:
                sf[top] = x_f / y_f
            elif op == MOD_F:
                sf[top] = np.fmod(x_f, y_f)
            elif op == POW_F:
                sf[top] = x_f**y_f
            elif op == LT_I:
                si[top] = 1 if x_i < y_i else 0
            elif op == LE_I:
                si[top] = 1 if x_i <= y_i else 0
            elif op == EQ_I:
                si[top] = 1 if x_i == y_i else 0
            elif op == LT_F:
                si[top] = 1 if x_f < y_f or (y_f != y_f and x_f == x_f) else 0
            elif op == LE_F:
                si[top] = 1 if x_f <= y_f or y_f != y_f else 0
            elif op == EQ_F:
                si[top] = 1 if x_f == y_f or (x_f != x_f and y_f != y_f) else 0
    return 1 if not sn[0] and si[0] == 1 else 0


@kernel
def match_contiguous(
    tables, cond, path, cursor, visited, visited_words, words, offsets, position, seen, number, time, window, now,
    final, lookahead, first_bits, empty_match, memo, skip, skip_member, steps_max, slice_max, state, out,
):  # fmt: skip
    """Find the preferred matches of each group, from ``position`` on; see the module's docstring.

    ``memo``: 0 conditions depend on the path; 1 no window: failed bits are cleared in ``words``; 2 failures
    are kept in ``visited`` per start; 3 as 2, but for the whole group (no window).
    """
    si = np.zeros(STACK_MAX, np.int64)
    sf = np.zeros(STACK_MAX, np.float64)
    sn = np.ones(STACK_MAX, np.uint8)
    one = np.uint64(1)
    groups = offsets.shape[0] - 1
    capacity = cursor.shape[0] - 2
    path.parent[0] = -1
    tracked = cond.begin.shape[0] > 1
    budget = slice_max
    for g in range(state[GROUP], groups):
        state[GROUP] = g
        begin = offsets[g]
        end = offsets[g + 1]
        usable = end if final else max(begin, end - lookahead)
        s = position[g]
        while s < usable:
            if not empty_match:
                while s < usable and words[s] & first_bits == 0:
                    s += 1
                if s >= usable:
                    break
            horizon = time[s] + window if window >= 0 else np.int64(9223372036854775807)
            if window >= 0 and horizon < time[s]:
                horizon = np.int64(9223372036854775807)
            waits = not final and now <= horizon
            # one attempt
            outcome = FAIL
            depth = 0
            deepest = 0
            steps = 0
            cursor[0] = tables.first[0]
            path.place[0] = 0
            if tracked:
                begin_path(cond, path)
            while True:
                p = path.place[depth]
                c = cursor[depth]
                row = s + depth
                if c == tables.first[p + 1]:
                    if depth == 0:
                        break
                    if memo == 1:
                        words[row - 1] &= ~(one << np.uint64(tables.bit[p]))
                    elif memo >= 2:
                        base = (row - 1 - (s if memo == 2 else 0)) * visited_words
                        visited[base + (p >> 6)] |= one << np.uint64(p & 63)
                    depth -= 1
                    continue
                cursor[depth] = c + 1
                flags = tables.flags[c]
                if flags & 1 and (row != begin or seen[g]):
                    continue
                if flags & 2:
                    if row < end:
                        continue
                    if not final:
                        outcome = MORE
                        break
                q = tables.target[c]
                if q < 0:
                    outcome = MATCH
                    break
                if row >= usable:  # not there, or there without the rows that its conditions read
                    if time[row] <= horizon if row < end else waits:
                        outcome = MORE
                        break
                    continue
                if time[row] > horizon:
                    continue
                if (words[row] >> np.uint64(tables.bit[q])) & one == 0:
                    continue
                steps += 1
                if memo >= 2:
                    if depth >= capacity:
                        position[g] = s
                        return PATH_FULL
                    base = (row - (s if memo == 2 else 0)) * visited_words
                    if (visited[base + (q >> 6)] >> np.uint64(q & 63)) & one:
                        continue
                which = tables.condition[q]
                if which >= 0:
                    if steps > steps_max:
                        state[ERROR_ROW] = s
                        state[ERROR_DEPTH] = depth
                        return BUDGET
                    truth = holds(
                        cond, path, which, depth, depth, q, row, begin, end, number[g] + 1, si, sf, sn
                    )
                    if truth < 0:
                        state[ERROR_ROW] = row
                        return OVERFLOW
                    if truth == 0:
                        continue
                if depth >= capacity:
                    position[g] = s
                    return PATH_FULL
                if tracked:
                    if extend_path(cond, path, depth, depth + 1, depth, q, row):
                        state[ERROR_ROW] = row
                        return OVERFLOW
                    path.row[depth] = row
                depth += 1
                deepest = max(deepest, depth)
                path.place[depth] = q
                cursor[depth] = tables.first[q]
            if memo == 2:
                visited[: (deepest + 1) * visited_words] = 0
            if memo == 0 and steps > steps_max:
                state[ERROR_ROW] = s
                state[ERROR_DEPTH] = deepest
                return BUDGET
            if outcome == MORE:
                break
            following = s + 1
            if outcome == MATCH:
                if depth == 0 and not empty_match:
                    outcome = FAIL
            if outcome == MATCH:
                m = state[MATCHES]
                r = state[ROWS]
                if m >= out.start.shape[0] or r + depth > out.row.shape[0]:
                    position[g] = s
                    return OUTPUT_FULL
                number[g] += 1
                out.group[m] = g
                out.start[m] = s
                out.length[m] = depth
                out.number[m] = number[g]
                for i in range(depth):
                    out.row[r + i] = s + i
                    out.place[r + i] = path.place[i + 1]
                state[MATCHES] = m + 1
                state[ROWS] = r + depth
                if depth > 0 and skip != TO_NEXT:
                    following = s + depth
                    if skip != PAST_LAST:
                        found = -1
                        for i in range(depth):
                            if skip_member[path.place[i + 1]]:
                                found = i
                                if skip == TO_FIRST:
                                    break
                        if found <= 0:
                            state[ERROR_ROW] = s
                            return SKIP_MISSING if found < 0 else SKIP_STUCK
                        following = s + found
            s = following
            position[g] = s
            budget -= steps + 1
            state[STEPS] += steps + 1
            if budget < 0:
                return SLICE
        position[g] = s
    state[GROUP] = groups
    return DONE
