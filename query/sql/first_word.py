"""Statements by their text: a script in pieces, reads or changes, INSERT with many parameter rows.

Many rows for one ``INSERT INTO s (...) VALUES (?, ...)`` become one append.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import InvalidArgument

_TOKEN = re.compile(
    r"""
      (?<!\w)[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)                     # text with escapes
    | '(?:[^']|'')*'            # text
    | "(?:[^"]|"")*"            # a quoted name
    | \$(\w*)\$.*?\$\1\$        # dollar-quoted text
    | '(?:[^']|'')*\Z | "(?:[^"]|"")*\Z | /\*(?:(?!\*/).)*\Z    # none of which may be open
    | --[^\n]*                  # a comment to the end of the line
    | /\*.*?\*/                 # a comment
    | ;
    | (?:(?!(?<!\w)[eE]')[^'"$;/-])+ | .                         # anything else
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_READING = {
    "select", "with", "from", "values", "show", "describe", "desc", "explain", "summarize", "table",
}  # fmt: skip


def plain(text: str) -> str:
    return _COMMENT.sub(" ", text).strip()


def only_reads(statement: str) -> bool:
    word = re.match(r"[(\s]*(\w+)", plain(statement))
    return word is not None and word[1].lower() in _READING


_INSERTED = re.compile(r"(insert\s+into\s.+?)\bvalues\s*\(([\s?,]*)\)\s*;?", re.I | re.S)


def as_columns(statement: str, rows: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Text and parameters of one INSERT of all rows; None for other statements."""
    match = _INSERTED.fullmatch(plain(statement))
    if match is None or not rows:
        return None
    width = match[2].count("?")
    if match[2].replace(" ", "").strip() != ",".join("?" * width) or not width:
        return None
    for place, row in enumerate(rows, 1):
        if not isinstance(row, Sequence) or isinstance(row, (str, bytes)) or len(row) != width:
            raise InvalidArgument(f"row {place} has to be a sequence of {width} values: {row!r}")
    columns = ", ".join(["unnest(?)"] * width)
    return f"{match[1]} SELECT {columns}", [list(column) for column in zip(*rows, strict=True)]


def parts_of(script: str) -> list[str]:
    """Pieces between semicolons, including the text after the last one."""
    parts = [""]
    for match in _TOKEN.finditer(script):
        if match[0] == ";":
            parts.append("")
        else:
            parts[-1] += match[0]
    return parts


def split(script: str) -> list[str]:
    """The statements of a script, without the semicolons between them."""
    return [part.strip() for part in parts_of(script) if plain(part)]
