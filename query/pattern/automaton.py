"""Compiles a program to an automaton: positions and ordered edges (Glushkov's construction).

Position 0 is the entry, 1..P are the MATCH instructions.  The edges of position ``p`` are
``first[p] .. first[p + 1]`` in order of preference; ``target`` is a position or ``ACCEPT``;
``anchor`` has bit 1 for ``^`` and bit 2 for ``$``; ``absent`` has one bit per name in ``absences``.
The first edge, in order, that leads to a match leads to the match that the standard prefers.  Two
edges of a position have the same target only if the later one requires less.

A pattern tree is compiled to a program for a backtracking machine, which EXPLAIN prints.

==========  ==============================================================================
MATCH v     consume one event as variable ``v``; the n-th MATCH is *position* n
SPLIT a b   continue at ``a``; if that fails, at ``b``
JUMP a      continue at ``a``
ENTER k     begin an iteration of loop ``k``, whose body may match nothing
AGAIN k a   end an iteration: continue at ``a``, or leave the loop if it consumed nothing
START, END  the anchors ``^`` and ``$``
ABSENT ns   no event that satisfies one of ``ns`` before the next consumed one
ACCEPT      a match
==========  ==============================================================================

The order of choices is the standard's preference order: earlier alternatives first, greedy
quantifiers more before fewer, reluctant ones fewer before more.  A loop whose iteration consumed
nothing is left, as in Perl, so every program terminates.  ``excluded`` marks MATCH in ``{- -}``.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import dataclass, replace

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
)

INSTRUCTIONS_MAX = 60_000
PERMUTE_MAX = 8


@dataclass(frozen=True)
class Instruction:
    op: str
    name: str = ""
    target: int = -1
    other: int = -1
    loop: int = -1
    names: tuple[str, ...] = ()
    excluded: bool = False

    def __str__(self) -> str:
        if self.op == "MATCH":
            return f"MATCH {self.name}" + ("  (excluded)" if self.excluded else "")
        if self.op == "SPLIT":
            return f"SPLIT {self.target}, {self.other}"
        if self.op == "JUMP":
            return f"JUMP {self.target}"
        if self.op == "ENTER":
            return f"ENTER loop {self.loop}"
        if self.op == "AGAIN":
            return f"AGAIN loop {self.loop}, {self.target}"
        if self.op == "ABSENT":
            return "ABSENT " + " ".join(self.names)
        return self.op


@dataclass(frozen=True)
class Program:
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        width = len(str(len(self.instructions) - 1))
        return "\n".join(f"{i:>{width}}  {step}" for i, step in enumerate(self.instructions))


class _Compiler:
    def __init__(self, root: Pattern) -> None:
        self.root = root
        self.steps: list[Instruction] = []
        self.loops = 0
        self.excluded = 0

    def emit(self, step: Instruction) -> int:
        if len(self.steps) >= INSTRUCTIONS_MAX:
            text = describe(self.root)
            shown = text if len(text) <= 120 else text[:117] + "..."
            raise ResourceLimit(
                f"the pattern {shown} unrolls to more than {INSTRUCTIONS_MAX} instructions; "
                "use smaller quantifier bounds"
            )
        self.steps.append(step)
        return len(self.steps) - 1

    def split(self, at: int, body: int, leave: int, greedy: bool) -> None:
        first, second = (body, leave) if greedy else (leave, body)
        self.steps[at] = Instruction("SPLIT", target=first, other=second)

    def compile(self, node: Pattern) -> None:
        if isinstance(node, Variable):
            self.emit(Instruction("MATCH", name=node.name, excluded=self.excluded > 0))
        elif isinstance(node, Concatenation):
            for part in node.parts:
                self.compile(part)
        elif isinstance(node, Alternation):
            self.alternation(node.choices)
        elif isinstance(node, Permutation):
            if len(node.parts) > PERMUTE_MAX:
                raise ResourceLimit(
                    f"PERMUTE takes up to {PERMUTE_MAX} parts (it stands for all their orders), "
                    f"found {len(node.parts)}"
                )
            orders = itertools.permutations(node.parts)
            self.alternation(tuple(Concatenation(order) for order in orders))
        elif isinstance(node, Quantified):
            self.quantified(node)
        elif isinstance(node, Exclusion):
            self.excluded += 1
            self.compile(node.body)
            self.excluded -= 1
        elif isinstance(node, Anchor):
            self.emit(Instruction("END" if node.end else "START"))
        elif isinstance(node, Absence):
            self.emit(Instruction("ABSENT", names=node.names))
        elif not isinstance(node, Empty):
            raise TypeError(f"not a pattern: {node!r}")

    def alternation(self, choices: tuple[Pattern, ...]) -> None:
        leaves = []
        for choice in choices[:-1]:
            fork = self.emit(Instruction("SPLIT"))
            self.compile(choice)
            leaves.append(self.emit(Instruction("JUMP")))
            self.split(fork, fork + 1, len(self.steps), greedy=True)
        self.compile(choices[-1])
        for leave in leaves:
            self.steps[leave] = Instruction("JUMP", target=len(self.steps))

    def quantified(self, node: Quantified) -> None:
        node = _counted(node)
        needs_event = not matches_nothing(node.body)
        repeated = node.high is None and node.low > 0 and needs_event
        for _ in range(node.low - 1 if repeated else node.low):
            self.compile(node.body)
        if repeated:  # the last required iteration is the body of the loop
            body = len(self.steps)
            self.compile(node.body)
            fork = self.emit(Instruction("SPLIT"))
            self.split(fork, body, fork + 1, node.greedy)
            return
        if node.high is None and needs_event:
            fork = self.emit(Instruction("SPLIT"))
            self.compile(node.body)
            self.emit(Instruction("JUMP", target=fork))
            self.split(fork, fork + 1, len(self.steps), node.greedy)
            return
        if node.high is None:
            loop = self.loops
            self.loops += 1
            fork = self.emit(Instruction("SPLIT"))
            self.emit(Instruction("ENTER", loop=loop))
            self.compile(node.body)
            self.emit(Instruction("AGAIN", loop=loop, target=fork))
            self.split(fork, fork + 1, len(self.steps), node.greedy)
            return
        forks = []
        for _ in range(node.high - node.low):
            forks.append(self.emit(Instruction("SPLIT")))
            self.compile(node.body)
        for fork in forks:
            self.split(fork, fork + 1, len(self.steps), node.greedy)


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


def compile_program(tree: Pattern) -> Program:
    """Unroll a pattern; raises ResourceLimit when the program gets too large."""
    compiler = _Compiler(tree)
    compiler.compile(tree)
    compiler.emit(Instruction("ACCEPT"))
    return Program(tuple(compiler.steps))


ACCEPT = -1
ANCHOR_START = 1
ANCHOR_END = 2
EDGES_MAX = 200_000
STEPS_MAX = 2_000_000

LARGE = 500

ABSENCES_MAX = 32

_PLAIN = frozenset({"SPLIT", "JUMP", "MATCH", "ACCEPT"})


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


def _closure(
    program: Program,
    start: int,
    position_of: dict[int, int],
    absence_bit: dict[str, int],
) -> tuple[Edge, ...]:
    edges: list[Edge] = []
    by_target: dict[int, list[Edge]] = {}
    seen: set[tuple[int, frozenset[int], int, int]] = set()
    stack: list[tuple[int, frozenset[int], int, int]] = [(start, frozenset(), 0, 0)]
    push, instructions = stack.append, program.instructions
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        if len(seen) % 64 == 0:
            checkpoint()
        if len(edges) > EDGES_MAX or len(seen) > STEPS_MAX:
            raise _too_many()
        at, fresh, anchor, absent = state
        step = instructions[at]
        op = step.op
        if op == "SPLIT":  # most frequent first: large patterns have a million
            push((step.other, fresh, anchor, absent))
            push((step.target, fresh, anchor, absent))
        elif op in ("MATCH", "ACCEPT"):
            target = position_of[at] if op == "MATCH" else ACCEPT
            before = by_target.setdefault(target, [])
            if not before or not any(
                e.anchor & anchor == e.anchor and e.absent & absent == e.absent for e in before
            ):
                edge = Edge(target, anchor, absent)
                before.append(edge)
                edges.append(edge)
        elif op == "JUMP":
            push((step.target, fresh, anchor, absent))
        elif op == "ENTER":
            push((at + 1, fresh | {step.loop}, anchor, absent))
        elif op == "AGAIN":
            if step.loop in fresh:  # empty iteration: leave the loop
                push((at + 1, fresh - {step.loop}, anchor, absent))
            else:
                push((step.target, fresh, anchor, absent))
        elif op == "START":
            push((at + 1, fresh, anchor | ANCHOR_START, absent))
        elif op == "END":
            push((at + 1, fresh, anchor | ANCHOR_END, absent))
        else:  # ABSENT
            bits = 0
            for name in step.names:
                bits |= 1 << absence_bit[name]
            push((at + 1, fresh, anchor, absent | bits))
    return tuple(edges)


def _plain_closure(program: Program, start: int, position_of: dict[int, int]) -> tuple[Edge, ...]:
    """The same when only splits and jumps lie between events, so an address is the whole state."""
    edges: list[Edge] = []
    instructions, steps, accepts = program.instructions, 0, False
    seen = bytearray(len(instructions))
    stack = [start]
    while stack:
        at = stack.pop()
        if seen[at]:
            continue
        seen[at] = 1
        steps += 1
        if steps % 256 == 0:
            checkpoint()
        step = instructions[at]
        if step.op == "SPLIT":
            stack += (step.other, step.target)
        elif step.op == "JUMP":
            stack.append(step.target)
        elif step.op == "MATCH":
            edges.append(Edge(position_of[at], 0, 0))
        elif not accepts:
            accepts = True
            edges.append(Edge(ACCEPT, 0, 0))
    return tuple(edges)


def _too_many() -> ResourceLimit:
    return ResourceLimit(
        f"the pattern needs more than {EDGES_MAX} transitions; use smaller quantifier bounds"
    )


def build_automaton(program: Program) -> Automaton:
    with alone() if len(program.instructions) > LARGE else nullcontext():
        return _built(program)


def _built(program: Program) -> Automaton:
    position_of: dict[int, int] = {}
    names = [""]
    excluded = [False]
    absence_bit: dict[str, int] = {}
    for at, step in enumerate(program.instructions):
        if step.op == "MATCH":
            position_of[at] = len(names)
            names.append(step.name)
            excluded.append(step.excluded)
        for name in step.names:
            absence_bit.setdefault(name, len(absence_bit))
    if len(absence_bit) > ABSENCES_MAX:
        raise ResourceLimit(
            f"a pattern may name {ABSENCES_MAX} absent variables, found {len(absence_bit)}"
        )
    starts = [0] + [at + 1 for at in position_of]
    edges = []
    total = 0
    plain = all(step.op in _PLAIN for step in program.instructions)
    for start in starts:
        if plain:
            edges.append(_plain_closure(program, start, position_of))
        else:
            edges.append(_closure(program, start, position_of, absence_bit))
        total += len(edges[-1])
        if total > EDGES_MAX:
            raise _too_many()
    return Automaton(tuple(names), tuple(excluded), tuple(edges), tuple(absence_bit))
