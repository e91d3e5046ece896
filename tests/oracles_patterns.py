"""A brute-force matcher for row patterns, written from the definitions: slow, small, independent.

Purpose
    The trusted side of the differential tests.  It imports nothing of the project.  A pattern is a
    nested tuple, a condition a Python function, a partition a list of rows; everything is found by
    trying.

Layout
    ``("var", name)``, ``("cat", a, b, ...)``, ``("alt", a, b, ...)``, ``("perm", a, b, ...)``,
    ``("rep", body, low, high or None, greedy)``, ``("excl", body)``, ``("empty",)``,
    ``("start",)``, ``("end",)``, ``("absent", name, ...)``.

    A state is what is left of the pattern: a stack of nodes.  :func:`choices` expands it to what
    may be consumed next, in the standard's order of preference.

    A condition is called with ``(rows, path, at, label)``: the rows of the partition, the list of
    (row number, label) matched so far, and the row that is tried as ``label``.

Limits
    Exponential in everything.  Meant for a dozen rows.
"""

from __future__ import annotations

import itertools
from typing import Any

ACCEPT = None


def choices(stack, first, last, total, nothing, fresh=frozenset(), excluded=0, absent=frozenset()):
    """What may come next: (label, excluded, remaining stack, absent names), preferred first.

    ``first``: number of the row that would be consumed first (for ``^``), ``last``: number of the
    last row consumed, ``nothing``: whether no row was consumed yet.
    """
    if not stack:
        yield ACCEPT, False, (), absent
        return
    node, rest = stack[0], stack[1:]
    kind = node[0]

    def go(new, fresh=fresh, excluded=excluded, absent=absent):
        return choices(new, first, last, total, nothing, fresh, excluded, absent)

    if kind == "var":
        remaining = tuple(n[1] if n[0] == "again" else n for n in rest)
        # a loop marker that was passed by consuming becomes its loop again
        yield node[1], excluded > 0, remaining, absent
    elif kind == "cat":
        yield from go(tuple(node[1:]) + rest)
    elif kind == "alt":
        for choice in node[1:]:
            yield from go((choice, *rest))
    elif kind == "perm":
        for order in itertools.permutations(node[1:]):
            yield from go(tuple(order) + rest)
    elif kind == "rep":
        _, body, low, high, greedy = node
        if low > 0:
            upper = None if high is None else high - 1
            yield from go((body, ("rep", body, low - 1, upper, greedy), *rest))
        elif high == 0:
            yield from go(rest)
        else:
            if high is None:
                more = (body, ("again", node), *rest)
            else:
                more = (body, ("rep", body, 0, high - 1, greedy), *rest)
            if greedy:
                yield from go(more)
                yield from go(rest)
            else:
                yield from go(rest)
                yield from go(more)
    elif kind == "again":  # the iteration consumed nothing: leave the loop
        yield from go(rest)
    elif kind == "excl":
        yield from go((("on",), node[1], ("off",), *rest))
    elif kind == "on":
        yield from go(rest, excluded=excluded + 1)
    elif kind == "off":
        yield from go(rest, excluded=excluded - 1)
    elif kind == "empty":
        yield from go(rest)
    elif kind == "start":
        if nothing and first == 0:
            yield from go(rest)
    elif kind == "end":
        if last == total - 1:
            yield from go(rest)
    elif kind == "absent":
        yield from go(rest, absent=absent | set(node[1:]))
    else:
        raise AssertionError(kind)


def _depth(stack):
    """Exclusion depth that a remaining stack is in: markers still to be closed."""
    level = 0
    for node in stack:
        if node[0] == "off":
            level += 1
        elif node[0] == "on":
            level -= 1
    return max(level, 0)


def _choices(stack, first, last, total, nothing):
    return choices(stack, first, last, total, nothing, excluded=_depth(stack))


def preferred(rows, pattern, start, conditions, window=None, time=lambda row: row["t"]):
    """The preferred contiguous match from a row: list of (row, label, excluded), or None."""
    total = len(rows)

    def search(stack, path):
        at = start + len(path)
        last = at - 1 if path else (at - 1 if start == total else -2)
        for label, excluded, rest, _ in _choices(stack, at, last, total, not path):
            if label is ACCEPT:
                return path
            if at >= total:
                continue
            if window is not None and time(rows[at]) - time(rows[start]) > window:
                continue
            bare = [(r, name) for r, name, _ in path]
            condition = conditions.get(label)
            if condition is not None and not condition(rows, bare, at, label):
                continue  # a condition may also raise: what the search never asks never fails
            found = search(rest, [*path, (at, label, excluded)])
            if found is not None:
                return found
        return None

    return search((pattern,), [])


class SkipError(Exception):
    """AFTER MATCH SKIP TO leads nowhere."""


def matches(rows, pattern, conditions, window=None, skip=("past last", ())):
    """All matches of a partition, one at a time, as the standard says.

    (start, [(row, label, excluded)]).
    """
    result = []
    at = 0
    while at < len(rows):
        found = preferred(rows, pattern, at, conditions, window)
        if found is None:
            at += 1
            continue
        result.append((at, found))
        if not found or skip[0] == "next":
            at += 1
        elif skip[0] == "past last":
            at += len(found)
        else:
            wanted = [row for row, label, _ in found if label in skip[1]]
            if not wanted:
                raise SkipError("missing")
            target = wanted[0] if skip[0] == "first" else wanted[-1]
            if target == at:
                raise SkipError("stuck")
            at = target
    return result


def _holds(rows, conditions, path, at, label):
    condition = conditions.get(label)
    return condition is None or condition(rows, path, at, label)


def labelings(rows, pattern, chosen, conditions, strategy, window=None):
    """Labelings of a sequence of row numbers that make it a match, preferred first.

    An absence at the end reaches until ``window`` after the first row.
    """
    total = len(rows)

    def search(stack, path):
        at = len(path)
        last = chosen[at - 1] if at else -2
        first = chosen[0] if not at else -1
        options = list(_choices(stack, first, last, total, not path))
        for label, _, rest, absent in options:
            if label is ACCEPT:
                after = range(last + 1, total) if at and absent else ()
                ahead = [z for z in after if rows[z]["t"] - rows[chosen[0]]["t"] <= window]
                found = any(_holds(rows, conditions, path, z, n) for z in ahead for n in absent)
                if at == len(chosen) and not found:
                    yield path
                continue
            if at == len(chosen):
                continue
            row = chosen[at]
            if at:
                passed = range(last + 1, row)
                if any(_holds(rows, conditions, path, z, name) for z in passed for name in absent):
                    continue
                if strategy == "contiguous" and row != last + 1:
                    continue
                if strategy == "next" and any(
                    _holds(rows, conditions, path, z, other)
                    for z in passed
                    for other, _, _, _ in options_without_anchors(stack, total)
                    if other is not ACCEPT
                ):
                    continue
            if not _holds(rows, conditions, path, row, label):
                continue
            yield from search(rest, [*path, (row, label)])

    def options_without_anchors(stack, total):
        """What the partial match could go on with, whatever the anchors say."""
        plain = tuple(_without_anchors(node) for node in stack)
        return _choices(plain, 0, total - 1, total, False)

    return search((pattern,), [])


def _without_anchors(node: Any) -> Any:
    if node[0] in ("start", "end"):
        return ("empty",)
    if node[0] == "rep":
        return ("rep", _without_anchors(node[1]), *node[2:])
    return tuple(_without_anchors(n) if isinstance(n, tuple) else n for n in node)


def selected(rows, pattern, conditions, strategy, window=None):
    """Every set of rows that is a match under a strategy (thesis, Definitions 2.15-2.17).

    Returns a list of labeled sequences [(row, label)], sorted by their row numbers.
    """
    total = len(rows)
    result = []
    for size in range(1, total + 1):
        for chosen in itertools.combinations(range(total), size):
            if window is not None and rows[chosen[-1]]["t"] - rows[chosen[0]]["t"] > window:
                continue
            found = next(labelings(rows, pattern, chosen, conditions, strategy, window), None)
            if found is not None:
                result.append(found)
    return sorted(result, key=lambda match: [row for row, _ in match])
