"""Syntax tree of a row pattern; ``at`` is an offset in the SQL text, ignored by equality."""

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
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Empty(Pattern):
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Anchor(Pattern):
    """``^`` (start of the partition) or ``$`` (end)."""

    end: bool
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Concatenation(Pattern):
    parts: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Alternation(Pattern):
    """``a | b``, earlier choices preferred."""

    choices: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Permutation(Pattern):
    """``PERMUTE(a, b, ...)``: all orders, preferred lexicographically."""

    parts: tuple[Pattern, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Quantified(Pattern):
    """``body{low,high}``; ``high`` None: unbounded."""

    body: Pattern
    low: int
    high: int | None
    greedy: bool = True
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Exclusion(Pattern):
    """``{- body -}``: matched, but hidden in ALL ROWS PER MATCH."""

    body: Pattern
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Absence(Pattern):
    """``[^X Y]``: between its neighbours no event satisfies one of the variables."""

    names: tuple[str, ...]
    at: int = field(default=0, compare=False)


def children(node: Pattern) -> tuple[Pattern, ...]:
    if isinstance(node, Concatenation | Permutation):
        return node.parts
    if isinstance(node, Alternation):
        return node.choices
    if isinstance(node, Quantified | Exclusion):
        return (node.body,)
    return ()


def walk(node: Pattern) -> Iterator[Pattern]:
    yield node
    for child in children(node):
        yield from walk(child)


def variables(node: Pattern) -> tuple[str, ...]:
    """Distinct names of variables, by first appearance."""
    names = dict.fromkeys(part.name for part in walk(node) if isinstance(part, Variable))
    return tuple(names)


def matches_nothing(node: Pattern) -> bool:
    """Whether the pattern can match the empty sequence."""
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
    """Text that parses to the same tree."""
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
