"""Classification of a statement by its first word, for routing only."""

from __future__ import annotations

import re

__all__ = ["only_reads", "plain"]

_COMMENT = re.compile(r"--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_READING = {
    "select", "with", "from", "values", "show", "describe", "desc", "explain", "summarize", "table",
}  # fmt: skip


def plain(text: str) -> str:
    return _COMMENT.sub(" ", text).strip()


def only_reads(statement: str) -> bool:
    word = re.match(r"[(\s]*(\w+)", plain(statement))
    return word is not None and word[1].lower() in _READING
