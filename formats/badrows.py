"""What is done about a row that cannot be read as an event.

Purpose
    A reader that meets a bad row describes it as a :class:`BadRow` and hands it to a *bad row
    policy*: :func:`fail` raises, anything else may count, keep or drop it.

Guarantee
    A bad row is described once, with the source it is from, its row and (for text) line counted
    from 1, and when one column is at fault that column and its value.
"""

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
    """A row that was not read.

    Attributes
    ----------
    source : str
        File or other source.
    row : int
        Number of the row among the source's rows, from 1 (a CSV header is no row).
    reason : str
        What was expected and what was found.
    line : int, optional
        Line of the (uncompressed) text in which the row begins, from 1.
    column : str, optional
        The column at fault; None when the row as a whole is.
    value : str, optional
        What stands in that column.
    record : str
        The row as it stands in the source (text), or as JSON.
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
        """One line of JSON, as kept in a quarantine file."""
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
"""Called with each bad row; when it returns, the row is left out."""


def fail(bad: BadRow) -> NoReturn:
    """The strict policy: the first bad row ends the reading."""
    raise InvalidData(str(bad), row=bad.row)


def shown(value: object) -> str:
    """A value as shown in a message: quoted, and cut when it is long."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
