"""Compiles a pattern to an automaton: positions and ordered edges (Glushkov's construction).

Position 0 is the entry, 1..P are the variables as they stand in the unrolled pattern.  The edges of
position ``p`` are ``first[p] .. first[p + 1]`` in order of preference; ``target`` is a position or
``ACCEPT``; ``anchor`` has bit 1 for ``^`` and bit 2 for ``$``; ``absent`` has one bit per name in
``absences``.  The first edge, in order, that leads to a match leads to the match that the standard
prefers.  Two edges of a position have the same target only if the later one requires less.

A pattern tree first becomes a graph, built from its end: a node consumes an event, or leads on to
others, preferred first, and may bear an anchor or an absence::

    A (B | C)* D      A -> loop -> B -> loop        the order of a node's ways is the standard's:
                           |    -> C -> loop        earlier alternatives first, greedy quantifiers
                           D -> accept              more before fewer, reluctant ones the reverse

A loop whose iteration consumed nothing is left, as in Perl, so every search ends.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...errors import ResourceLimit
from ..contract.cancellation import alone, checkpoint
from ..sql.pattern_tree import (
    Absence,
    Alternation,
    Anchor,
    Concatenation,
    Empty,
    Exclusion,
    Pattern,
    Permutation,
    Quantified,
    Variable,
    describe,
    matches_nothing,
    walk,
)

NODES_MAX = 60_000
PERMUTE_MAX = 8

ACCEPT = -1
ANCHOR_START = 1
ANCHOR_END = 2
EDGES_MAX = 200_000
STEPS_MAX = 2_000_000

LARGE = 500

ABSENCES_MAX = 32


@dataclass(frozen=True)
class Edge:
    target: int
    anchor: int
    absent: int


@dataclass(frozen=True)
class Automaton:
    """Per position its variable, whether it is in ``{- -}``, and its edges, preferred first."""

    names: tuple[str, ...]
    excluded: tuple[bool, ...]
    edges: tuple[tuple[Edge, ...], ...]
    absences: tuple[str, ...]

    @property
    def positions(self) -> int:
        """Number of positions without the entry."""
        return len(self.names) - 1

    @property
    def empty_match(self) -> bool:
        return any(edge.target == ACCEPT for edge in self.edges[0])

    @property
    def sequence(self) -> bool:
        """Whether event ``i`` of every match has position ``i + 1``, all of one length."""
        last = self.positions
        return last > 0 and all(
            [edge.target for edge in edges] == [p + 1 if p < last else ACCEPT]
            for p, edges in enumerate(self.edges)
        )

    @lazy
    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """``first``, ``target`` and ``flags`` (anchor in the low two bits, absences above)."""
        counts = [len(edges) for edges in self.edges]
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = [edge for edges in self.edges for edge in edges]
        target = np.array([edge.target for edge in flat], dtype=np.int64)
        flags = np.array([edge.anchor | (edge.absent << 2) for edge in flat], dtype=np.int64)
        return first, target, flags

    @lazy
    def length_max(self) -> int | None:
        """Most events of a match; None if unbounded."""
        longest = [0] * len(self.names)
        state = [0] * len(self.names)  # 0 new, 1 open, 2 done
        stack = [(0, 0)]
        state[0] = 1
        while stack:
            position, cursor = stack.pop()
            edges = self.edges[position]
            if cursor < len(edges):
                stack.append((position, cursor + 1))
                target = edges[cursor].target
                if target == ACCEPT or state[target] == 2:
                    continue
                if state[target] == 1:
                    return None
                state[target] = 1
                stack.append((target, 0))
                continue
            state[position] = 2
            longest[position] = max(
                (1 + longest[e.target] for e in edges if e.target != ACCEPT), default=0
            )
        return longest[0]


class _Node(NamedTuple):
    """``name``: the variable that it consumes.  ``loop``: it begins an iteration of a loop whose
    body may match nothing; with ``again`` it ends one: the second way leaves the loop.
    """

    ways: tuple[int, ...]
    name: str = ""
    excluded: bool = False
    anchor: int = 0
    absent: int = 0
    loop: int = -1
    again: bool = False


_END = 0


class _Graph:
    """``nodes[_END]`` is a match."""

    def __init__(self, root: Pattern) -> None:
        self.root = root
        self.nodes = [_Node(())]
        self.loops = self.excluded = 0
        names = [n for part in walk(root) if isinstance(part, Absence) for n in part.names]
        self.absences = tuple(dict.fromkeys(names))
        if len(self.absences) > ABSENCES_MAX:
            raise ResourceLimit(
                f"a pattern may name {ABSENCES_MAX} absent variables, found {len(self.absences)}"
            )
        self.begin = self.build(root, _END)

    def add(self, node: _Node) -> int:
        if len(self.nodes) >= NODES_MAX:
            text = describe(self.root)
            shown = text if len(text) <= 120 else text[:117] + "..."
            raise ResourceLimit(
                f"the pattern {shown} unrolls to more than {NODES_MAX} instructions; "
                "use smaller quantifier bounds"
            )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def build(self, node: Pattern, after: int) -> int:
        """The node at which a part begins that leads to ``after``; later variables come first."""
        if isinstance(node, Variable):
            return self.add(_Node((after,), node.name, self.excluded > 0))
        if isinstance(node, Concatenation):
            for part in reversed(node.parts):
                after = self.build(part, after)
            return after
        if isinstance(node, Alternation):
            return self.alternation(node.choices, after)
        if isinstance(node, Permutation):
            if len(node.parts) > PERMUTE_MAX:
                raise ResourceLimit(
                    f"PERMUTE takes up to {PERMUTE_MAX} parts (it stands for all their orders), "
                    f"found {len(node.parts)}"
                )
            orders = itertools.permutations(node.parts)
            return self.alternation(tuple(Concatenation(order) for order in orders), after)
        if isinstance(node, Quantified):
            return self.quantified(_counted(node), after)
        if isinstance(node, Exclusion):
            self.excluded += 1
            begin = self.build(node.body, after)
            self.excluded -= 1
            return begin
        if isinstance(node, Anchor):
            return self.add(_Node((after,), anchor=ANCHOR_END if node.end else ANCHOR_START))
        if isinstance(node, Absence):
            bits = sum(1 << self.absences.index(name) for name in set(node.names))
            return self.add(_Node((after,), absent=bits))
        if not isinstance(node, Empty):
            raise TypeError(f"not a pattern: {node!r}")
        return after

    def alternation(self, choices: tuple[Pattern, ...], after: int) -> int:
        ways = [self.build(choice, after) for choice in reversed(choices)]
        return self.add(_Node(tuple(reversed(ways))))

    def quantified(self, node: Quantified, after: int) -> int:
        body, low = node.body, node.low
        if node.high is not None:
            begin = after
            for _ in range(node.high - low):
                begin = self.fork(node, self.build(body, begin), after)
        else:
            begin = self.add(_Node(()))
            if not matches_nothing(body):
                way = self.build(body, begin)
            else:
                loop, self.loops = self.loops, self.loops + 1
                end = self.add(_Node((begin, after), loop=loop, again=True))
                way = self.add(_Node((self.build(body, end),), loop=loop))
            self.nodes[begin] = self.nodes[self.fork(node, way, after)]
            if low and not matches_nothing(body):  # the last required iteration is the loop's body
                begin, low = way, low - 1
        for _ in range(low):
            begin = self.build(body, begin)
        return begin

    def fork(self, node: Quantified, way: int, after: int) -> int:
        return self.add(_Node((way, after) if node.greedy else (after, way)))


def _counted(node: Quantified) -> Quantified:
    """``(A?){2,5}`` as ``A{0,5}``, which finds the same matches in the same order without a way
    from each copy to all later ones.
    """
    body = node.body
    if not isinstance(body, Quantified) or node.high is None or matches_nothing(body.body):
        return node
    optional = (body.low, body.high) == (0, 1)
    if optional and (body.greedy == node.greedy or node.low == node.high):
        return replace(node, body=body.body, low=0, greedy=body.greedy)
    return node


def _closure(
    nodes: list[_Node], start: tuple[int, ...], position_of: dict[int, int]
) -> tuple[Edge, ...]:
    edges: list[Edge] = []
    by_target: dict[int, list[Edge]] = {}
    seen: set[tuple[int, frozenset[int], int, int]] = set()
    none: frozenset[int] = frozenset()
    stack = [(at, none, 0, 0) for at in start]
    push, steps = stack.append, 0
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        steps += 1
        if not steps % 64:
            checkpoint()
            if len(edges) > EDGES_MAX or steps > STEPS_MAX:
                raise _too_many()
        at, fresh, anchor, absent = state
        node = nodes[at]
        if node.name or at == _END:
            target = position_of[at]
            before = by_target.setdefault(target, [])
            if not before or not any(
                e.anchor & anchor == e.anchor and e.absent & absent == e.absent for e in before
            ):
                edge = Edge(target, anchor, absent)
                before.append(edge)
                edges.append(edge)
        elif node.again:
            repeats, leaves = node.ways
            if node.loop in fresh:  # empty iteration: leave the loop
                push((leaves, fresh - {node.loop}, anchor, absent))
            else:
                push((repeats, fresh, anchor, absent))
        else:
            if node.loop >= 0:
                fresh |= {node.loop}
            anchor |= node.anchor
            absent |= node.absent
            for way in reversed(node.ways):
                push((way, fresh, anchor, absent))
    return tuple(edges)


def _too_many() -> ResourceLimit:
    return ResourceLimit(
        f"the pattern needs more than {EDGES_MAX} transitions; use smaller quantifier bounds"
    )


def build_automaton(pattern: Pattern) -> Automaton:
    """Raises ResourceLimit when the automaton gets too large."""
    graph = _Graph(pattern)
    nodes = graph.nodes
    consuming = [at for at, node in enumerate(nodes) if node.name][::-1]
    position_of = {at: p for p, at in enumerate(consuming, 1)} | {_END: ACCEPT}
    edges: list[tuple[Edge, ...]] = []
    total = 0
    with alone() if len(nodes) > LARGE else nullcontext():
        for start in ((graph.begin,), *(nodes[at].ways for at in consuming)):
            edges.append(_closure(nodes, start, position_of))
            total += len(edges[-1])
            if total > EDGES_MAX:
                raise _too_many()
    names = ("", *(nodes[at].name for at in consuming))
    excluded = (False, *(nodes[at].excluded for at in consuming))
    return Automaton(names, excluded, tuple(edges), graph.absences)
