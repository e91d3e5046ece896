"""Plans as values: what a query will do, and after ANALYZE what it did.

Purpose
    EXPLAIN, ``db.explain`` and ``Result.plan`` answer with a :class:`Plan`: a tree of
    :class:`Operator` nodes, each with details known before running and figures known after.

Guarantee
    Plans are frozen and hold only plain values: ``str(plan)`` is the tree for people,
    :meth:`Plan.to_dict` the same for programs (JSON-ready).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Operator", "Plan"]

Detail = str | int | float | bool | None | tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """One step of a plan.

    Attributes
    ----------
    name : str
        ``Scan``, ``TreeAggregate``, or the relational executor's name of the step.
    details : tuple of (str, value)
        Known before running: stream, range, columns, prune, condition, ...
    figures : tuple of (str, number)
        Known after ANALYZE: rows, time_ms, blocks_read, blocks_skipped, bytes_read, ...
    """

    name: str
    details: tuple[tuple[str, Detail], ...] = ()
    figures: tuple[tuple[str, int | float], ...] = ()
    inputs: tuple[Operator, ...] = ()

    def walk(self) -> Iterator[Operator]:
        """This operator and all below it, top down."""
        yield self
        for below in self.inputs:
            yield from below.walk()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        document: dict[str, Any] = {"operator": self.name}
        document.update({key: list(v) if isinstance(v, tuple) else v for key, v in self.details})
        if self.figures:
            document["figures"] = dict(self.figures)
        if self.inputs:
            document["inputs"] = [below.to_dict() for below in self.inputs]
        return document

    def _lines(self, prefix: str, last: bool, top: bool) -> Iterator[str]:
        branch = "" if top else ("└─ " if last else "├─ ")
        below = prefix if top else prefix + ("   " if last else "│  ")
        yield f"{prefix}{branch}{self.name}"
        bar = "│  " if self.inputs else "   "
        for key, value in self.details:
            if value is None or value == ():
                continue
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            yield f"{below}{bar}{key.replace('_', ' ')}: {text}"
        if self.figures:
            shown = ", ".join(f"{key.replace('_', ' ')} {_number(v)}" for key, v in self.figures)
            yield f"{below}{bar}actual: {shown}"
        for position, child in enumerate(self.inputs):
            yield from child._lines(below, position == len(self.inputs) - 1, False)


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


@dataclass(frozen=True)
class Plan:
    """The plan of one query.

    Attributes
    ----------
    statement : str
        The text that was planned.
    analyzed : bool
        Whether the query was run for this plan.
    figures : tuple of (str, number)
        ``planning_ms`` and, when analyzed, ``total_ms`` and ``rows``.
    """

    statement: str
    root: Operator
    analyzed: bool = False
    figures: tuple[tuple[str, int | float], ...] = field(default=())

    def operators(self) -> list[Operator]:
        """All operators, top down."""
        return list(self.root.walk())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "statement": self.statement,
            "analyzed": self.analyzed,
            **dict(self.figures),
            "plan": self.root.to_dict(),
        }

    def __str__(self) -> str:
        lines = list(self.root._lines("", True, True))
        if self.figures:
            lines.append(
                ", ".join(f"{key.replace('_', ' ')} {_number(v)}" for key, v in self.figures)
            )
        return "\n".join(lines)
