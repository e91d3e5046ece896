"""Splits scripts into statements, and shows positions in them.  A semicolon inside quotes, dollar
quotes or comments does not split.
"""

from __future__ import annotations

import re
from unicodedata import east_asian_width

from ..query.sql.first_word import plain

__all__ = ["is_complete", "pointed_at", "split"]

_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'            # text
    | "(?:[^"]|"")*"            # a quoted name
    | \$(\w*)\$.*?\$\1\$        # dollar-quoted text
    | '(?:[^']|'')*\Z | "(?:[^"]|"")*\Z | /\*(?:(?!\*/).)*\Z    # none of which may be open
    | --[^\n]*                  # a comment to the end of the line
    | /\*.*?\*/                 # a comment
    | ;
    | [^'"$;/-]+ | .            # anything else
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE, _BEHIND = 50, 24
"""Characters of a long line that are shown beside a position."""


def _parts(script: str) -> list[str]:
    """Pieces between semicolons, including the text after the last one."""
    parts = [""]
    for match in _TOKEN.finditer(script):
        if match[0] == ";":
            parts.append("")
        else:
            parts[-1] += match[0]
    return parts


def split(script: str) -> list[str]:
    return [part.strip() for part in _parts(script) if plain(part)]


def is_complete(script: str) -> bool:
    """Whether the input ends with a semicolon that ends a statement."""
    parts = _parts(script)
    return len(parts) > 1 and not plain(parts[-1])


def pointed_at(statement: str, line: int | None, column: int | None) -> list[str]:
    """The line of a position (from 1), shortened, and a caret below; else nothing."""
    lines = statement.splitlines()
    if line is None or column is None or not 1 <= line <= len(lines):
        return []
    text, at = "".join(c if c.isprintable() else " " for c in lines[line - 1]), column - 1
    if not 0 <= at <= len(text):
        return []
    first = max(0, at - _BEFORE)
    left, right = ("..." if first else ""), ("..." if len(text) > at + _BEHIND else "")
    before, behind = left + text[first:at], text[at : at + _BEHIND] + right
    cells = sum(2 if east_asian_width(c) in "WF" else 1 for c in before)
    return [before + behind, " " * cells + "^"]
