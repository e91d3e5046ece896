"""Rows that cannot be read as events, and the policy for them, called with each ``BadRow``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ..errors import InvalidData

__all__ = ["BadRow", "BadRowPolicy", "fail"]

_SHOWN = 80


@dataclass(frozen=True)
class BadRow:
    """A row that could not be read.

    ``row`` is its number in the source from 1 (a CSV header is no row), ``line`` the line of the
    decompressed text at which it begins, ``column`` and ``value`` what is at fault (None if the row
    as a whole is), ``record`` the row as in the source (text) or as JSON.
    """

    source: str
    row: int
    reason: str
    line: int | None = None
    column: str | None = None
    value: str | None = None
    record: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else f"row {self.row}"
        if self.line is not None and self.line != self.row:
            where += f" (row {self.row})"
        column = f", column {self.column!r}" if self.column is not None else ""
        return f"{self.source}, {where}{column}: {self.reason}"

    def to_json(self) -> str:
        return json.dumps(
            {
                "source": self.source,
                "row": self.row,
                "line": self.line,
                "column": self.column,
                "value": self.value,
                "reason": self.reason,
                "record": self.record,
            },
            ensure_ascii=False,
        )


BadRowPolicy = Callable[[BadRow], None]
"""Called with each bad row; if it returns, the row is skipped."""


def fail(bad: BadRow) -> NoReturn:
    """The strict policy: raise InvalidData."""
    raise InvalidData(str(bad), row=bad.row)


def shown(value: object) -> str:
    """A value quoted for a message, truncated if long."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
