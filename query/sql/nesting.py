"""Limits on length and depth of a statement, as parser, binder and renderer are recursive.

A text costs at most reading ``TOKENS_MAX`` tokens (about 0.1 ms each), under the query's time
limit; long texts are parsed one at a time.  Texts within ``BRACKETS_MAX`` do not exhaust the stack:
``headroom`` raises the recursion limit of all threads while in use.

The tokenizer checks the limits of long texts as it goes, because the longest take seconds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenizerCore

from ...core.ownership import ModuleLock
from ...errors import ChronicleError, SqlError
from ..contract.cancellation import QueryControl, alone, checked_by, checkpoint

TEXT_LENGTH_MAX = 1 << 20

TOKENS_MAX = 100_000

BRACKETS_MAX = 100
"""Limit of nested brackets."""

LONG_CHARACTERS = 1 << 12

_FRAMES = 8_000
"""Stack frames for parser (20 per bracket), binder and renderer."""

_SHORT = 32
_CHAINED = re.compile(r"\b(?:and|or)\b|&&|\|\|", re.IGNORECASE)
_TOKEN = re.compile(
    r"'[^']*+'?|\"[^\"]*+\"?|--[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|\w++|[^\s\w]"
)


def measure(text: Any) -> None:
    """Raise SqlError for a text that is too long or too deep."""
    if not isinstance(text, str):
        raise SqlError(f"expected SQL text, found {type(text).__name__}")
    if len(text) > TEXT_LENGTH_MAX:
        raise SqlError(
            f"the text has {len(text)} characters, at most {TEXT_LENGTH_MAX} are read; use "
            "parameters, or chronicle ingest for many rows"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise SqlError(
                f"the text is not valid Unicode: half of a surrogate pair at character "
                f"{error.start + 1}"
            ) from None
    if "\0" in text:
        raise SqlError(f"a zero character stands at character {text.index(chr(0)) + 1}")
    if len(text) <= TOKENS_MAX and sum(map(text.count, "([{")) <= BRACKETS_MAX:
        return  # a token has at least one character
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count >= TOKENS_MAX:
            raise SqlError(
                f"the text has more than {TOKENS_MAX} words and signs; use parameters, or "
                "chronicle ingest for many rows"
            )
        first = text[token.start()]
        if first in "([{":
            depth += 1
            if depth > BRACKETS_MAX:
                raise SqlError(
                    "the statement is nested too deeply: at most "
                    f"{BRACKETS_MAX} brackets stand inside each other"
                )
        elif first in ")]}":
            depth -= 1


@contextmanager
def turn(text: str, control: QueryControl) -> Iterator[None]:
    """Parse or prepare a statement under its query's limits; long texts one at a time."""
    with checked_by(control):
        checkpoint()
        with alone() if len(text) > LONG_CHARACTERS else nullcontext():
            yield


_guard = ModuleLock()
_users = 0
_before = 0


class _Headroom:
    def __enter__(self) -> None:
        global _users, _before
        with _guard:
            if not _users:
                _before = sys.getrecursionlimit()
                sys.setrecursionlimit(_before + _FRAMES)
            _users += 1

    def __exit__(self, *_: object) -> None:
        global _users
        with _guard:
            _users -= 1
            if not _users:
                _lower(_before)


_HEADROOM = _Headroom()


def headroom(text: str) -> AbstractContextManager[None]:
    return nullcontext() if len(text) < _SHORT else _HEADROOM


def _lower(limit: int) -> None:
    """Restore the limit unless someone else has changed it."""
    if sys.getrecursionlimit() == limit + _FRAMES:
        sys.setrecursionlimit(limit)


def balanced(root: Any, text: str) -> Any:
    """The tree with long chains of AND and OR balanced."""
    if len(_CHAINED.findall(text)) < _SHORT - 1:
        return root
    for node in list(root.find_all(exp.And, exp.Or)):
        kind = type(node)
        if type(node.parent) is kind or type(node.this) is not kind:
            continue
        parts, left = [], node
        while type(left) is kind:
            parts.append(left.expression)
            left = left.this
        if len(parts) < _SHORT:
            continue
        parts.append(left)
        parts.reverse()
        made = _joined(kind, [part.pop() if part.parent else part for part in parts])
        if node is root:
            root = made
        else:
            node.replace(made)
    return root


def all_true(conditions: Sequence[Any]) -> Any:
    """Conjunction of copies, as a balanced tree."""
    return _joined(exp.And, [condition.copy() for condition in conditions])


def _joined(kind: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        pairs = [kind(this=parts[i], expression=parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) & ~1 :]
    return parts[0]


STEPS_BETWEEN_CHECKS = 1 << 8


_DOLLAR_QUOTE = re.compile(r"\$([^\W\d]\w*)?\$")


class _Core(TokenizerCore):  # type: ignore[misc]
    """Takes ``$a,$b`` for two parameters: the tag of a dollar-quoted text is a name."""

    __slots__ = ()

    def __init__(self, plain: TokenizerCore) -> None:
        for name in TokenizerCore.__slots__:
            setattr(self, name, getattr(plain, name))

    def _scan_string(self, start: str) -> bool:
        if start == "$" and not _DOLLAR_QUOTE.match(self.sql, self._current - 1):
            return False
        return bool(super()._scan_string(start))


class _HeedingCore(_Core):
    __slots__ = ("_steps",)

    def __init__(self, plain: TokenizerCore) -> None:
        super().__init__(plain)
        self._steps = 0

    def _advance(self, i: int = 1, alnum: bool = False) -> None:
        self._steps += 1
        if not self._steps % STEPS_BETWEEN_CHECKS:
            checkpoint()
        super()._advance(i, alnum)


class HeedingTokenizer(DuckDB.Tokenizer):  # type: ignore[misc]
    def _init_core(self) -> TokenizerCore:
        return _Core(super()._init_core())

    def tokenize(self, sql: str) -> list[Any]:
        if len(sql) > 8 * STEPS_BETWEEN_CHECKS:  # others take about a millisecond
            self._core = _HeedingCore(self._init_core())
        try:
            tokens: list[Any] = super().tokenize(sql)
        except TokenError as error:
            if isinstance(error.__cause__, ChronicleError):
                raise error.__cause__ from None
            raise
        return tokens
