"""How long and how deep a statement may be, decided before and right after it is parsed.

Purpose
    The parser, the binder and the renderer are recursive Python.  :func:`measure` counts tokens
    and brackets of a text in one cheap pass, so that a text which would keep the parser busy for
    seconds is refused before it starts; :func:`headroom` gives the frames that the rest needs;
    :func:`balanced` makes long chains of AND and OR shallow; :func:`turn` has long texts wait for
    each other.

Guarantee
    No text costs more than reading :data:`TOKENS_MAX` tokens does, at about a tenth of a
    millisecond each; the query's time limit holds meanwhile (the loops over tokens and nodes call
    :func:`~..contract.cancellation.checkpoint`).  Of the texts that take more than a tenth of a
    second one is read at a time, so that a crowd of them leaves the interpreter to everybody else.
    No text of at most :data:`BRACKETS_MAX` brackets inside each other fails for want of stack,
    wherever in the caller's own stack it is run.

Limits
    :func:`headroom` raises the interpreter's limit of recursion while such a statement is at work,
    for all threads; the limit that was set before returns when the last one is done.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlglot import exp

from ...core.ownership import ModuleLock
from ...errors import SqlError
from ..contract.cancellation import QueryControl, alone, checked_by, checkpoint

__all__ = [
    "BRACKETS_MAX",
    "TEXT_LENGTH_MAX",
    "TOKENS_MAX",
    "all_true",
    "balanced",
    "headroom",
    "measure",
    "turn",
]

TEXT_LENGTH_MAX = 1 << 20
"""Longest SQL text that is read, in characters."""

TOKENS_MAX = 100_000
"""Most tokens of a text."""

BRACKETS_MAX = 100
"""Most brackets inside each other."""

LONG_CHARACTERS = 1 << 12
"""Texts beyond this length are read one at a time."""

_FRAMES = 8_000
"""Room for the recursion of parser (20 frames a bracket), binder and renderer."""

_SHORT = 32
_CHAINED = re.compile(r"\b(?:and|or)\b|&&|\|\|", re.IGNORECASE)
_TOKEN = re.compile(
    r"'[^']*+'?|\"[^\"]*+\"?|--[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|\w++|[^\s\w]"
)


def measure(text: Any) -> None:
    """Refuse a text that is too long or too deep to be parsed.

    Raises
    ------
    SqlError
    """
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
        return  # a token takes a character
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
    """Read a statement or prepare it, under its query's limits; long texts one at a time."""
    with checked_by(control):
        checkpoint()
        with alone() if len(text) > LONG_CHARACTERS else nullcontext():
            yield


_guard = ModuleLock()
_users = 0
_before = 0


class _Headroom:
    """See :func:`headroom`; what is counted is counted for the process."""

    def __enter__(self) -> None:
        global _users, _before
        with _guard.lock:
            if not _users:
                _before = sys.getrecursionlimit()
                sys.setrecursionlimit(_before + _FRAMES)
            _users += 1

    def __exit__(self, *_: object) -> None:
        global _users
        with _guard.lock:
            _users -= 1
            if not _users:
                _lower(_before)


_HEADROOM = _Headroom()


def headroom(text: str) -> AbstractContextManager[None]:
    """Frames for a statement; short ones need none beyond what every program has."""
    return nullcontext() if len(text) < _SHORT else _HEADROOM


def _lower(limit: int) -> None:
    """Set the limit again that held before; other threads may be deep in calls of their own."""
    if sys.getrecursionlimit() == limit + _FRAMES:
        sys.setrecursionlimit(limit)


def balanced(root: Any, text: str) -> Any:
    """The tree of a text with long chains of AND and of OR balanced: the same with less depth."""
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
    """One condition of copies of several, shallow however many they are."""
    return _joined(exp.And, [condition.copy() for condition in conditions])


def _joined(kind: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        pairs = [kind(this=parts[i], expression=parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) & ~1 :]
    return parts[0]
