"""Row patterns: syntax tree, and a recursive-descent parser, as ``?`` and ``{- -}`` are not SQL::

    alternation   := concatenation ('|' concatenation)*
    concatenation := quantified*
    quantified    := primary [ ('*' | '+' | '?' | '{' bounds '}') ['?'] ]
    primary       := name | '(' [alternation] ')' | '^' | '$' | '{-' alternation '-}'
                   | 'PERMUTE' '(' alternation (',' alternation)* ')' | '[^' name+ ']'

Unquoted names are folded to upper case, as in the standard.  ``[^ ]`` (absence) is an extension for
SKIP TILL strategies, which the binder checks.  ``at`` is an offset in the SQL text, ignored by
equality.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ...core.sql_text import quoted_name
from ...errors import SqlError


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
    return name if plain else quoted_name(name)


BOUND_MAX = 1_000_000
DEPTH_MAX = 200

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<open_exclusion>\{-) | (?P<close_exclusion>-\})
      | (?P<open_absence>\[\s*\^)
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d+)
      | (?P<symbol>[()|*+?{},^$\]])
    """,
    re.VERBOSE | re.DOTALL,
)


def position_error(message: str, sql: str, offset: int) -> SqlError:
    """A SqlError at an offset of the SQL text (line and column from 1)."""
    offset = max(0, min(offset, len(sql)))
    line = sql.count("\n", 0, offset) + 1
    column = offset - (sql.rfind("\n", 0, offset) + 1) + 1
    return SqlError(message, line, column)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, sql: str, start: int, end: int) -> None:
        self.sql = sql
        self.end = end
        self.tokens = self._tokenize(start, end)
        self.index = 0
        self.depth = 0

    def _tokenize(self, start: int, end: int) -> list[_Token]:
        tokens = []
        offset = start
        while offset < end:
            token = _TOKEN.match(self.sql, offset, end)
            if token is None:
                self._fail(f"unexpected {self.sql[offset]!r} in PATTERN", offset)
            kind = token.lastgroup or ""
            if kind == "name" and token.group().upper() == "PERMUTE":
                kind = "permute"
            if kind != "space":
                kind = token.group() if kind == "symbol" else kind
                tokens.append(_Token(kind, token.group(), offset))
            offset = token.end()
        return tokens

    def _fail(self, message: str, at: int) -> NoReturn:
        raise position_error(message, self.sql, at)

    @property
    def kind(self) -> str:
        return self.tokens[self.index].kind if self.index < len(self.tokens) else "end"

    @property
    def at(self) -> int:
        return self.tokens[self.index].at if self.index < len(self.tokens) else self.end

    def _current_text(self) -> str:
        return "the end" if self.kind == "end" else repr(self.tokens[self.index].text)

    def _take(self, kind: str, what: str) -> _Token:
        if self.kind != kind:
            self._fail(f"expected {what} in PATTERN, found {self._current_text()}", self.at)
        token = self.tokens[self.index]
        self.index += 1
        return token

    def parse(self) -> Pattern:
        tree = self._alternation()
        if self.kind != "end":
            self._fail(f"unexpected {self._current_text()} in PATTERN", self.at)
        return tree

    def _alternation(self) -> Pattern:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self._fail(f"PATTERN is nested more than {DEPTH_MAX} deep", self.at)
        at = self.at
        choices = [self._concatenation()]
        while self.kind == "|":
            self.index += 1
            choices.append(self._concatenation())
        self.depth -= 1
        return choices[0] if len(choices) == 1 else Alternation(tuple(choices), at)

    def _concatenation(self) -> Pattern:
        at = self.at
        parts: list[Pattern] = []
        while self.kind not in ("end", "|", ")", ",", "close_exclusion"):
            parts.append(self._quantified())
        if not parts:
            self._fail(
                f"expected a pattern variable, found {self._current_text()}; "
                "write () for the empty pattern",
                self.at,
            )
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts), at)

    def _quantified(self) -> Pattern:
        at = self.at
        body = self._primary()
        if self.kind not in ("*", "+", "?", "{"):
            return body
        if isinstance(body, Absence):
            self._fail("an absence [^ ] cannot be repeated", self.at)
        low, high = self._bounds()
        greedy = True
        if self.kind == "?":
            self.index += 1
            greedy = False
        if self.kind in ("*", "+", "?", "{"):
            self._fail(
                "a quantifier follows a quantifier; put the inner one in parentheses", self.at
            )
        return Quantified(body, low, high, greedy, at)

    def _bounds(self) -> tuple[int, int | None]:
        token = self.tokens[self.index]
        self.index += 1
        if token.kind != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token.kind]
        low = self._number()
        high = low
        if self.kind == ",":
            self.index += 1
            high = self._number()
        elif low is None:
            self._fail(f"expected a number after '{{', found {self._current_text()}", self.at)
        self._take("}", "'}'")
        least = 0 if low is None else low
        if high is not None and high < 1:
            self._fail("the upper bound of a quantifier must be at least 1", token.at)
        if high is not None and high < least:
            self._fail(f"the bounds of a quantifier are reversed: {least} > {high}", token.at)
        return least, high

    def _number(self) -> int | None:
        if self.kind != "number":
            return None
        token = self._take("number", "a number")
        if len(token.text) > 9 or int(token.text) > BOUND_MAX:
            self._fail(f"a quantifier may go to {BOUND_MAX}, found {token.text}", token.at)
        return int(token.text)

    def _primary(self) -> Pattern:
        kind, at = self.kind, self.at
        if kind in ("name", "quoted"):
            return Variable(self._name(), at)
        if kind == "(":
            self.index += 1
            if self.kind == ")":
                self.index += 1
                return Empty(at)
            inner = self._alternation()
            self._take(")", "')'")
            return inner
        if kind in ("^", "$"):
            self.index += 1
            return Anchor(kind == "$", at)
        if kind == "open_exclusion":
            self.index += 1
            inner = self._alternation()
            self._take("close_exclusion", "'-}'")
            return Exclusion(inner, at)
        if kind == "open_absence":
            self.index += 1
            names = [self._name()]
            while self.kind in ("name", "quoted", "|"):
                if self.kind == "|":
                    self.index += 1
                names.append(self._name())
            self._take("]", "']'")
            return Absence(tuple(names), at)
        if kind == "permute":
            self.index += 1
            self._take("(", "'(' after PERMUTE")
            parts = [self._alternation()]
            while self.kind == ",":
                self.index += 1
                parts.append(self._alternation())
            self._take(")", "')' or ','")
            return parts[0] if len(parts) == 1 else Permutation(tuple(parts), at)
        if kind in ("*", "+", "?", "{"):
            self._fail("a quantifier needs something to repeat before it", at)
        message = f"expected a pattern variable, found {self._current_text()}"
        raise position_error(message, self.sql, at)

    def _name(self) -> str:
        if self.kind not in ("name", "quoted"):
            self._fail(f"expected a pattern variable, found {self._current_text()}", self.at)
        token = self.tokens[self.index]
        self.index += 1
        if token.kind == "quoted":
            return token.text[1:-1].replace('""', '"')
        return token.text.upper()


def parse_pattern(sql: str, start: int = 0, end: int | None = None) -> Pattern:
    """Parse the pattern between two offsets of a SQL text; raises SqlError."""
    parser = _Parser(sql, start, len(sql) if end is None else end)
    if parser.kind == "end":
        return Empty(start)
    return parser.parse()
