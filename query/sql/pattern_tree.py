"""The tree of a row pattern: what PATTERN says, before anything runs it.

Purpose
    One frozen dataclass per construct of the row pattern language.  The matcher compiles the tree
    to a program; index planning reads it to find the symbols that every match must contain.

Guarantee
    A tree is plain data: no text, no schema, no behaviour beyond rendering itself.  ``at`` is the
    offset of the construct in the SQL text it came from (for error messages) and takes no part in
    equality.

Limits
    Quantifier bounds are kept as written; :mod:`..pattern.program` expands them and refuses what
    gets too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = [
    "Absence",
    "Alternation",
    "Anchor",
    "Concatenation",
    "Empty",
    "Exclusion",
    "Pattern",
    "Permutation",
    "Quantified",
    "Variable",
    "describe",
    "matches_nothing",
    "variables",
    "walk",
]


@dataclass(frozen=True)
class Pattern:
    """Root of every construct."""


@dataclass(frozen=True)
class Variable(Pattern):
    """One event that satisfies the condition of a pattern variable."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Empty(Pattern):
    """``()``: matches no event."""

    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Anchor(Pattern):
    """``^`` (start of the partition) or ``$`` (its end)."""

    end: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Concatenation(Pattern):
    """Parts one after the other."""

    parts: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Alternation(Pattern):
    """``a | b``: earlier choices are preferred."""

    choices: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Permutation(Pattern):
    """``PERMUTE(a, b, ...)``: every order of the parts, in lexicographic preference."""

    parts: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Quantified(Pattern):
    """``body{low,high}``; ``high`` is None when there is no upper bound."""

    body: Pattern
    low: int
    high: int | None
    greedy: bool = True
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Exclusion(Pattern):
    """``{- body -}``: matched, but left out of ALL ROWS PER MATCH."""

    body: Pattern
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Absence(Pattern):
    """``[^X Y]``: no event between its neighbours satisfies one of these variables.

    (no event itself).
    """

    names: tuple[str, ...]
    at: int = field(default=0, compare=False)


def children(node: Pattern) -> tuple[Pattern, ...]:
    """Direct parts of a node."""
    if isinstance(node, Concatenation | Permutation):
        return node.parts
    if isinstance(node, Alternation):
        return node.choices
    if isinstance(node, Quantified | Exclusion):
        return (node.body,)
    return ()


def walk(node: Pattern) -> Iterator[Pattern]:
    """The node and all below it, in the order they are written."""
    yield node
    for child in children(node):
        yield from walk(child)


def variables(node: Pattern) -> tuple[str, ...]:
    """Names of the variables that can match an event, each once.

    In the order of first appearance.
    """
    names = dict.fromkeys(part.name for part in walk(node) if isinstance(part, Variable))
    return tuple(names)


def matches_nothing(node: Pattern) -> bool:
    """Whether the pattern can be satisfied by no event."""
    if isinstance(node, Variable):
        return False
    if isinstance(node, Concatenation | Permutation):
        return all(matches_nothing(part) for part in node.parts)
    if isinstance(node, Alternation):
        return any(matches_nothing(choice) for choice in node.choices)
    if isinstance(node, Quantified):
        return node.low == 0 or matches_nothing(node.body)
    if isinstance(node, Exclusion):
        return matches_nothing(node.body)
    return True


def _quantifier(node: Quantified) -> str:
    low, high = node.low, node.high
    text = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if text is None:
        text = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
    return text + ("" if node.greedy else "?")


def describe(node: Pattern) -> str:
    """The pattern as text that parses to the same tree."""
    if isinstance(node, Variable):
        return _name(node.name)
    if isinstance(node, Empty):
        return "()"
    if isinstance(node, Anchor):
        return "$" if node.end else "^"
    if isinstance(node, Absence):
        return "[^" + " ".join(map(_name, node.names)) + "]"
    if isinstance(node, Exclusion):
        return "{- " + describe(node.body) + " -}"
    if isinstance(node, Permutation):
        return "PERMUTE(" + ", ".join(map(describe, node.parts)) + ")"
    if isinstance(node, Alternation):
        return " | ".join(describe(choice) for choice in node.choices)
    if isinstance(node, Concatenation):
        return " ".join(
            f"({describe(part)})"
            if isinstance(part, Alternation | Concatenation)
            else describe(part)
            for part in node.parts
        )
    if isinstance(node, Quantified):
        body = describe(node.body)
        if isinstance(node.body, Alternation | Concatenation | Quantified | Anchor):
            body = f"({body})"
        return body + _quantifier(node)
    raise TypeError(f"not a pattern: {node!r}")


def _name(name: str) -> str:
    plain = name.isidentifier() and name == name.upper() and name != "PERMUTE"
    return name if plain else '"' + name.replace('"', '""') + '"'
