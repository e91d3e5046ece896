"""Kernels for windows with group keys: events to groups, groups of slices to groups of windows.

Each key has two stacks as in ``slide_kernels``, in nodes of a shared pool::

    key a   [suffix]-[suffix] | [slice]-[slice]-[slice]     back = total of the slices
    key b                     | [slice]                     back = that slice
    key c   (no node: not active)

A node has its slice number, its partial and its neighbours.  ``links`` has per key the first node,
the first that is not a suffix, and the last; -1 for none.
"""

from __future__ import annotations

import numpy as np

from ...core.native import kernel
from .kernels import absorb, absorb_row, fill_identity, fold_ordered, load_validity
from .slide_kernels import first_window, slide_of, window_ended

__all__ = ["STATE_WORDS", "fold_groups", "group_rows", "slide_groups"]

# words of the state
WINDOW = 0  # next window
ACTIVE = 1  # keys with nodes
CURSOR = 2  # index among these, within the current window
TURNED = 3  # node reached while turning a key's slices into suffixes, or -1
FREE = 4  # head of the free list, or -1
STATE_WORDS = 5

_SIGNED_MAX = np.int64(9223372036854775807)


@kernel
def group_rows(ids, starts, runs, gaps, codes, slots, groups, group_ids, group_keys):  # type: ignore[no-untyped-def]
    """Number the pairs of slice and key among rows in runs; returns the number of groups.
    With ``gaps``, runs of number -1 are omitted.  ``slots``: scratch per key, any content.
    """
    count = 0
    for run in range(runs):
        base = count
        left_out = gaps and ids[run] == -1
        for i in range(starts[run], starts[run + 1]):
            if left_out:
                groups[i] = -1
                continue
            key = codes[i]
            group = slots[key]
            if group < base or group >= count or group_keys[group] != key:
                group = count
                slots[key] = group
                group_ids[group] = ids[run]
                group_keys[group] = key
                count += 1
            groups[i] = group
    return count


@kernel
def fold_groups(values, validity, bit_offset, groups, op, counts, unsigned, words, at):  # type: ignore[no-untyped-def]
    """Fold one field of rows into the partials of their groups; ``counts``: count rows."""
    floats = words.view(np.float64)
    values_float = values.view(np.float64)
    nullable = validity.size > 0
    valid = load_validity(validity, bit_offset, values.size)
    if counts or op == 0:
        for row in range(groups.size):
            group = groups[row]
            if group >= 0 and (counts or not nullable or valid[row]):
                words[group, at] += 1
        return
    if op == 7:
        for row in range(groups.size):
            group = groups[row]
            if group < 0 or (nullable and not valid[row]):
                continue
            value = values[row]
            low = np.uint64(words[group, at]) + np.uint64(value)
            words[group, at] = np.int64(low)
            high = np.int64(low < np.uint64(value))
            if not unsigned:
                high += value >> np.int64(63)
            words[group, at + 1] += high
        return
    for row in range(groups.size):
        group = groups[row]
        if group < 0:
            continue
        if op >= 9:
            fold_ordered(
                op, values, values_float, valid, nullable, row, row + 1, words, floats, group, at
            )
        elif nullable and not valid[row]:
            continue
        else:
            value = values[row]
            absorb(op, words, floats, group, at, value, value, values_float[row], 0.0)


@kernel
def slide_groups(  # type: ignore[no-untyped-def]
    ids, keys, words, first, finish, pairing, overlap, fields, nodes, pool, links, backs, active,
    state, steps, out, out_keys, out_words,
):  # fmt: skip
    """Join groups of slices (ascending, from ``first`` on) to groups of windows.  The first slice
    may be the last one of the previous call.  ``nodes``: slice, next and previous node.  ``backs``:
    totals of non-suffixes.  ``active``: keys with nodes.  ``steps``: approximate limit of merges.
    Returns consumed, written, reason: 0 all consumed, 1 output full, 2 pool full, 3 steps used up.
    """
    floats = words.view(np.float64)
    pool_floats = pool.view(np.float64)
    back_floats = backs.view(np.float64)
    out_floats = out_words.view(np.float64)
    width = words.shape[1]
    count = ids.size
    window = state[0]
    written = 0
    at = first
    reason = 0
    while reason == 0:
        arriving = at < count
        if not arriving and not finish:
            break
        # windows that end before the arriving slice are complete
        while state[1] > 0 and (not arriving or window_ended(window, ids[at], pairing, overlap)):
            while state[2] < state[1]:
                key = active[state[2]]
                node = links[key, 0]
                while node != -1 and slide_of(nodes[node, 0], pairing) < window:
                    if node == links[key, 1]:
                        later = links[key, 2] if state[3] == -1 else state[3]
                        while later != node and steps > 0:
                            earlier = nodes[later, 2]
                            absorb_row(fields, pool, pool_floats, earlier, pool, pool_floats, later)
                            later = earlier
                            steps -= 1
                        if later != node:
                            state[3] = later
                            reason = 3
                            break
                        state[3] = -1
                        links[key, 1] = -1
                        fill_identity(backs, key, key + 1, fields)
                    following = nodes[node, 1]
                    nodes[node, 1] = state[4]
                    state[4] = node
                    node = following
                links[key, 0] = node
                if reason != 0:
                    break
                if node == -1:
                    links[key, 2] = -1
                    state[1] -= 1
                    active[state[2]] = active[state[1]]
                    continue
                if written == out.size:
                    reason = 1
                    break
                if steps <= 0:
                    reason = 3
                    break
                out[written] = window
                out_keys[written] = key
                if node == links[key, 1]:
                    for w in range(width):
                        out_words[written, w] = backs[key, w]
                else:
                    for w in range(width):
                        out_words[written, w] = pool[node, w]
                    absorb_row(fields, out_words, out_floats, written, backs, back_floats, key)
                written += 1
                steps -= 1
                state[2] += 1
            if reason != 0:
                break
            state[2] = 0
            if window == _SIGNED_MAX:  # no window begins later
                state[1] = 0
                break
            window += 1
        if reason != 0 or not arriving:
            break
        if state[1] == 0:
            window = max(window, first_window(ids[at], pairing, overlap))
        if steps <= 0:
            reason = 3
            break
        key = keys[at]
        last = links[key, 2]
        if last != -1 and nodes[last, 0] == ids[at]:  # same slice as the last node
            absorb_row(fields, pool, pool_floats, last, words, floats, at)
        else:
            node = state[4]
            if node == -1:
                reason = 2
                break
            state[4] = nodes[node, 1]
            nodes[node, 0] = ids[at]
            nodes[node, 1] = -1
            nodes[node, 2] = last
            for w in range(width):
                pool[node, w] = words[at, w]
            if last != -1:
                nodes[last, 1] = node
            else:
                links[key, 0] = node
                active[state[1]] = key
                state[1] += 1
            if links[key, 1] == -1:
                links[key, 1] = node
            links[key, 2] = node
        absorb_row(fields, backs, back_floats, key, words, floats, at)
        at += 1
        steps -= 1
    state[0] = window
    return at, written, reason
