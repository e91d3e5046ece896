"""What a statement is about to do, by its first word; nothing is parsed.

Limits
    For choosing how to open a store or to send a request.  Whether a statement really changes
    nothing is decided by the engine, which is told to refuse it otherwise.
"""

from __future__ import annotations

import re

__all__ = ["only_reads", "plain"]

_COMMENT = re.compile(r"--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_READING = {
    "select", "with", "from", "values", "show", "describe", "desc", "explain", "summarize", "table",
}  # fmt: skip


def plain(text: str) -> str:
    """A text without comments."""
    return _COMMENT.sub(" ", text).strip()


def only_reads(statement: str) -> bool:
    """Whether a statement leaves the store as it is."""
    word = re.match(r"[(\s]*(\w+)", plain(statement))
    return word is not None and word[1].lower() in _READING
