"""A SELECT around a window function: which columns are attributes, and which are the window's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from ..sql.gate import AGGREGATES
from .binder import conjuncts
from .window_call import WindowCall

__all__ = ["WINDOW_COLUMNS", "WindowSelect", "has_aggregate", "unqualified"]

WINDOW_COLUMNS = ("window_start", "window_end", "window_id")


@dataclass
class WindowSelect:
    call: WindowCall
    select: Any
    alias: str
    _attributes: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._attributes = {name.lower(): name for name in self.call.schema.names}

    def attribute(self, column: Any) -> str | None:
        """The stream's attribute that a column refers to; None for others."""
        name = self._own(column)
        return None if name is None else self._attributes.get(name)

    def is_window(self, column: Any) -> bool:
        name = self._own(column)
        return name in WINDOW_COLUMNS and (name != "window_id" or self.call.counts)

    def _own(self, column: Any) -> str | None:
        parts = column.parts
        if isinstance(column.this, exp.Star) or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[0].name.lower() != self.alias:
            return None
        return str(parts[-1].name.lower())

    @property
    def alone(self) -> bool:
        args = self.select.args
        item = args["from_"].this if args.get("from_") is not None else None
        return (
            isinstance(self.select, exp.Select)
            and not any(args.get(key) for key in ("joins", "laterals", "sample"))
            and item is not None
            and not item.args.get("joins")
            and item.args.get("sample") is None
            and not (item.args.get("alias") and item.args["alias"].args.get("columns"))
        )

    def split_where(self) -> tuple[list[Any], list[Any]] | None:
        """Conditions on events and on windows; None if one is on both or neither."""
        where = self.select.args.get("where")
        events: list[Any] = []
        windows: list[Any] = []
        for part in conjuncts(where.this) if where is not None else ():
            if part.find(exp.Query) is not None:
                return None
            columns = list(part.find_all(exp.Column))
            if columns and all(self.attribute(column) for column in columns):
                events.append(part)
            elif all(self.is_window(column) for column in columns):
                windows.append(part)
            else:
                return None
        return events, windows


def unqualified(node: Any) -> Any:
    copy = node.copy()
    for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return copy


def has_aggregate(node: Any) -> bool:
    return any(isinstance(n, exp.Anonymous) and n.name.lower() in AGGREGATES for n in node.walk())
