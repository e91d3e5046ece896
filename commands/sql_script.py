"""Cutting a script into SQL statements, and telling those that only read.

Guarantee
    A semicolon inside quotes, dollar quotes or comments does not cut.
"""

from __future__ import annotations

import re

__all__ = ["is_complete", "only_reads", "split"]

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
_COMMENT = re.compile(r"--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_READING = {
    "select", "with", "from", "values", "show", "describe", "desc", "explain", "summarize", "table",
}  # fmt: skip


def _parts(script: str) -> list[str]:
    """Pieces between semicolons; the last one is what follows the last semicolon."""
    parts = [""]
    for match in _TOKEN.finditer(script):
        if match[0] == ";":
            parts.append("")
        else:
            parts[-1] += match[0]
    return parts


def _plain(text: str) -> str:
    return _COMMENT.sub(" ", text).strip()


def split(script: str) -> list[str]:
    """The statements of a script, in order, without empty ones."""
    return [part.strip() for part in _parts(script) if _plain(part)]


def is_complete(script: str) -> bool:
    """Whether what was typed ends with a semicolon that ends a statement."""
    parts = _parts(script)
    return len(parts) > 1 and not _plain(parts[-1])


def only_reads(statement: str) -> bool:
    """Whether a statement leaves the store as it is, by its first word."""
    word = re.match(r"[(\s]*(\w+)", _plain(statement))
    return word is not None and word[1].lower() in _READING
