"""Group keys of a SELECT over windows; parameters or window columns in a key need expanded events.

In GROUP BY and HAVING an attribute precedes an alias, in ORDER BY an alias an attribute.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ..sql.dialect import error_at, position_of, to_text
from ..sql.gate import is_volatile
from .window_select import WindowSelect, has_aggregate, unqualified

__all__ = ["Keys", "group_keys", "session_keys"]


def group_keys(windowed: WindowSelect) -> Keys | None:
    """Keys besides the windows; None if windows are not grouped by, or a key is unsupported."""
    group = windowed.select.args.get("group")
    if group is None or any(
        group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")
    ):
        return None
    nodes = _grouped(group, windowed)
    if nodes is None:
        return None
    windows = {
        node.name.lower()
        for node in nodes
        if isinstance(node, exp.Column) and windowed.is_window(node)
    }
    apart = {"window_id"} if windowed.call.counts else {"window_start", "window_end"}
    if not windows & apart:
        return None
    keys = Keys(windowed)
    for node in nodes:
        if isinstance(node, exp.Column) and windowed.is_window(node):
            continue
        if not _is_key(node, windowed):
            return None
        keys.add(node)
    return keys


def _grouped(group: Any, windowed: WindowSelect) -> list[Any] | None:
    nodes: list[Any] = []
    projections = windowed.select.expressions
    if group.args.get("all"):
        nodes = [p.unalias() for p in projections if not has_aggregate(p)]
    for node in group.expressions:
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            position = int(node.this)
            if not 1 <= position <= len(projections):
                return None
            node = projections[position - 1].unalias()
        elif isinstance(node, exp.Column) and not windowed.is_window(node) and len(node.parts) == 1:
            named = [p for p in projections if p.alias.lower() == node.name.lower()]
            if len(named) == 1 and windowed.attribute(node) is None:
                node = named[0].unalias()
        nodes.append(node)
    return nodes


def _is_key(node: Any, windowed: WindowSelect) -> bool:
    if isinstance(node, exp.Column):
        return windowed.attribute(node) is not None
    columns = list(node.find_all(exp.Column))
    forbidden = (exp.Query, exp.Star, exp.Window, exp.Placeholder, exp.Lambda)
    return (
        bool(columns)
        and all(windowed.attribute(column) for column in columns)
        and not any(isinstance(n, forbidden) or _volatile(n) for n in node.walk())
        and not has_aggregate(node)
    )


def _volatile(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and is_volatile(node.name)


def session_keys(windowed: WindowSelect) -> tuple[str, ...]:
    """Session keys of a SELECT that is not fused; SqlError if a key cannot distinguish sessions."""
    group = windowed.select.args.get("group")
    if group is None:
        return ()
    keys = group_keys(windowed) if windowed.alone else None
    if keys is not None:
        names = [
            windowed.attribute(node) if isinstance(node, exp.Column) else None
            for node in keys.nodes
        ]
        if None not in names:
            return tuple(str(name) for name in names)
    else:
        nodes = _grouped(group, windowed) or []
        sets = any(isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets) for node in nodes)
        windows = [isinstance(node, exp.Column) and windowed.is_window(node) for node in nodes]
        if not sets and (all(windows) or not any(windows)):
            return ()
    raise error_at(
        windowed.call.text,
        position_of(group),
        "sessions are told apart by attributes: name them in SESSION(stream, time, gap, key, ...) "
        "and group by window_start, window_end and them",
    )


class Keys:
    """Ordered, distinct, unqualified keys; attributes as spelled in the schema."""

    def __init__(self, windowed: WindowSelect) -> None:
        self.nodes: list[Any] = []
        self._windowed = windowed
        self._texts: list[str] = []
        self._kinds: set[type] = set()

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, node: Any) -> None:
        own = self._own(node)
        text = to_text(own)
        if text not in self._texts:
            self.nodes.append(own)
            self._texts.append(text)
            self._kinds.add(type(own))

    def find(self, node: Any) -> int | None:
        if type(node) not in self._kinds:
            return None
        text = to_text(self._own(node))
        return self._texts.index(text) if text in self._texts else None

    def _own(self, node: Any) -> Any:
        copy = unqualified(node)
        for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
            name = self._windowed.attribute(column)
            if name is not None:
                column.set("this", exp.to_identifier(name, quoted=True))
        return copy
