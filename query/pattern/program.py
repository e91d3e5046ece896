"""Compiles a pattern tree to a program for a backtracking machine, which EXPLAIN prints.

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
from dataclasses import dataclass

from ...errors import ResourceLimit
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

__all__ = ["Instruction", "Program", "compile_program"]

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


def compile_program(tree: Pattern) -> Program:
    """Unroll a pattern; raises ResourceLimit when the program gets too large."""
    compiler = _Compiler(tree)
    compiler.compile(tree)
    compiler.emit(Instruction("ACCEPT"))
    return Program(tuple(compiler.steps))
