"""Binding of a join in a time window.

The conditions of ``a JOIN b ON ...`` are split::

    a.k = b.k                                       keys, by which rows are found
    b.t BETWEEN a.t - p AND a.t + q                 bounds, as -p <= b.t - a.t <= q in ticks
    a.x > 3                                         of one side: evaluated when it is read
    a.x < b.x                                       evaluated on pairs

Pairs that satisfy keys and bounds are a superset of the join's.  DuckDB adds intervals in
microseconds: for finer times the bounds are widened by a microsecond, and the condition itself is
also evaluated on pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..core.times import NS_PER_SECOND
from ..errors import SqlError
from ..query.binding.binder import conjuncts
from ..query.conditions.constants import Folder, Kind
from ..schema import StreamSchema
from .analysis import refused
from .row_form import PlainRows


@dataclass
class JoinedStream:
    """A side of a join: events of a stream, from the FROM item ``source``; the columns that are
    their time; the plain form of a query of them; pushed-down conditions and key expressions.
    """

    stream: str
    alias: str
    schema: StreamSchema
    source: Any
    times: Set[str]
    plain: PlainRows | None = None
    conditions: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)

    def attribute(self, column: Any) -> str | None:
        if column.table and column.table.lower() != self.alias.lower():
            return None
        for name in self.schema.names:
            if name.lower() == column.name.lower():
                return name
        return None


@dataclass
class BoundJoin:
    """``left - before <= right <= left + behind`` in ticks; ``outer`` is LEFT JOIN; ``on`` is left
    for pairs, ``where`` for rows.
    """

    left: JoinedStream
    right: JoinedStream
    outer: bool
    before: int = 0
    behind: int = 0
    on: list[Any] = field(default_factory=list)
    where: list[Any] = field(default_factory=list)

    @property
    def sides(self) -> tuple[JoinedStream, JoinedStream]:
        return self.left, self.right

    def side_of(self, column: Any) -> int | None:
        """0 or 1 for a column of the left or right side; None for neither."""
        for number, side in enumerate(self.sides):
            if side.attribute(column) is not None:
                return number
        return None

    def field_of(self, column: Any) -> tuple[int, pa.Field] | None:
        """The side and the attribute of a column; None for neither side's."""
        number = self.side_of(column)
        if number is None:
            return None
        side = self.sides[number]
        return number, side.schema.attribute(str(side.attribute(column)))

    def sides_in(self, node: Any) -> set[int | None]:
        return {self.side_of(column) for column in node.find_all(exp.Column)}


def bind_join(tree: Any, text: str, sides: Sequence[JoinedStream], folder: Folder) -> BoundJoin:
    """Bind a SELECT with one join; SqlError if it is not a join in a time window."""
    join = tree.args["joins"][0]
    bound = BoundJoin(sides[0], sides[1], outer=join.side.upper() == "LEFT")
    if sides[0].schema.time_type != sides[1].schema.time_type:
        raise refused(
            text, join, f"the times of {sides[0].stream} are {sides[0].schema.time_type} and those "
            f"of {sides[1].stream} {sides[1].schema.time_type}: a live query reads streams whose "
            "times have one type"
        )  # fmt: skip
    where = tree.args.get("where")
    conditions = list(conjuncts(join.args.get("on")))
    after = [] if where is None else list(conjuncts(where.this))
    if not bound.outer:
        conditions, after = [*conditions, *after], []
    _take_apart(bound, conditions, after, folder, text, join)
    return bound


def check_joins(joins: Sequence[Any], text: str) -> None:
    """SqlError for joins of no live kind."""
    if len(joins) > 1:
        raise refused(
            text, joins[1], "a live query joins two streams; make one of the first two and join "
            "the third where it is read"
        )  # fmt: skip
    join, advice = joins[0], None
    if join.args.get("using"):
        names = [f"a.{column.name} = b.{column.name}" for column in join.args["using"]]
        advice = f"write ON {' AND '.join(names)} AND b.time BETWEEN ..."
    elif join.method or join.kind.upper() not in ("", "INNER", "OUTER", "CROSS"):
        advice = "write JOIN or LEFT JOIN with a condition that bounds the times"
    elif join.side.upper() not in ("", "LEFT"):
        advice = "write LEFT JOIN, the streams the other way round"
        if join.side.upper() == "FULL":
            advice = "write a LEFT JOIN each way, in two live queries"
    if advice is not None:
        words = " ".join(word for word in (join.method, join.side, join.kind) if word).upper()
        raise refused(text, join.this, f"this {words or 'USING'} join cannot be live: {advice}")


def _take_apart(
    bound: BoundJoin, on: Sequence[Any], after: Sequence[Any], folder: Folder, text: str, at: Any
) -> None:
    lows: list[int] = []
    highs: list[int] = []
    per_second = bound.left.schema.ticks_per_second
    fine = per_second == NS_PER_SECOND
    for node in on:
        limits = list(_limits(bound, node, folder))
        lows += [low for low, _ in limits if low is not None]
        highs += [high for _, high in limits if high is not None]
        sides = bound.sides_in(node)
        if limits:
            bound.on += [node] if fine else []
        elif sides == {1} or (sides == {0} and not bound.outer):
            bound.sides[min(side for side in sides if side is not None)].conditions.append(node)
        elif not _keys(bound, node):
            bound.on.append(node)
    for node in after:  # LEFT JOIN: push conditions on the left side down
        if bound.sides_in(node) == {0}:
            bound.left.conditions.append(node)
        else:
            bound.where.append(node)
    if not lows or not highs:
        raise _unbounded(bound, text, at, bool(lows), bool(highs))
    slack = per_second // 1_000_000 if fine and per_second is not None else 0
    bound.before, bound.behind = slack - max(lows), slack + min(highs)
    if bound.before + bound.behind < 0:
        raise refused(text, at.this, "no two times are within the bounds of this join: turn them")


def _unbounded(bound: BoundJoin, text: str, at: Any, lower: bool, upper: bool) -> SqlError:
    left = f"{bound.left.alias}.{bound.left.schema.time}"
    right = f"{bound.right.alias}.{bound.right.schema.time}"
    length = "60" if bound.left.schema.ticks_per_second is None else "INTERVAL '1' MINUTE"
    missing = "an upper bound" if lower else "a lower bound" if upper else "any bound"
    return refused(
        text, at.this, f"a join without {missing} on the difference of times would wait for ever: "
        f"ON ... AND {right} BETWEEN {left} - {length} AND {left} + {length}"
    )  # fmt: skip


def _keys(bound: BoundJoin, node: Any) -> bool:
    """Take an equality of columns of one type, one per side, as a key; else False."""
    if not isinstance(node, exp.EQ):
        return False
    one, other = node.this, node.expression
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        return False
    if (bound.side_of(one), bound.side_of(other)) == (1, 0):
        one, other = other, one
    elif (bound.side_of(one), bound.side_of(other)) != (0, 1):
        return False
    names = bound.left.attribute(one), bound.right.attribute(other)
    types = [
        side.schema.attribute(name).type
        for side, name in zip(bound.sides, names, strict=True)
        if name is not None
    ]
    if types[0] != types[1]:
        return False
    bound.left.keys.append(one)
    bound.right.keys.append(other)
    return True


# -- bounds of time ---------------------------------------------------------------------------

_Linear = tuple[int, int, Fraction]
"""Coefficients of the left and the right time, and a constant in ticks."""

_TURNED = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.EQ: exp.EQ}


def _limits(bound: BoundJoin, node: Any, folder: Folder) -> Iterator[tuple[int | None, int | None]]:
    """Inclusive bounds of ``right - left`` that a condition sets."""
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        pairs = [(exp.GTE, node.this, node.args["low"]), (exp.LTE, node.this, node.args["high"])]
        limits = [_limit(bound, *pair, folder) for pair in pairs]
        if None not in limits:  # else the condition is evaluated on pairs
            yield from (each for each in limits if each is not None)
    elif type(node) in _TURNED:
        limit = _limit(bound, type(node), node.this, node.expression, folder)
        if limit is not None:
            yield limit


def _limit(
    bound: BoundJoin, kind: Any, one: Any, other: Any, folder: Folder
) -> tuple[int | None, int | None] | None:
    first, second = _linear(bound, one, folder), _linear(bound, other, folder)
    if first is None or second is None:
        return None
    left, right, ticks = first[0] - second[0], first[1] - second[1], first[2] - second[2]
    if (left, right) == (1, -1):
        kind, ticks = _TURNED[kind], -ticks
    elif (left, right) != (-1, 1):
        return None
    at = -Fraction(ticks)
    if kind is exp.EQ:
        return math.ceil(at), math.floor(at)
    if kind in (exp.GT, exp.GTE):
        return (math.floor(at) + 1 if kind is exp.GT else math.ceil(at)), None
    return None, (math.ceil(at) - 1 if kind is exp.LT else math.floor(at))


def _linear(bound: BoundJoin, node: Any, folder: Folder) -> _Linear | None:
    """An expression as a linear combination of the two times plus ticks."""
    if isinstance(node, exp.Paren):
        return _linear(bound, node.this, folder)
    if isinstance(node, exp.Column):
        for number, side in enumerate(bound.sides):
            if side.attribute(node) in side.times:
                return 1 - number, number, Fraction(0)
        return None
    if isinstance(node, exp.Add | exp.Sub):
        one, other = _linear(bound, node.this, folder), _linear(bound, node.expression, folder)
        if one is None or other is None:
            return None
        sign = 1 if isinstance(node, exp.Add) else -1
        return one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2]
    if node.find(exp.Column) is not None:
        return None
    value = folder.fold(node)
    per_second = bound.left.schema.ticks_per_second
    if per_second is None:
        return (0, 0, Fraction(value.value)) if value.kind is Kind.EXACT else None
    if value.kind is not Kind.INTERVAL:
        return None
    return 0, 0, Fraction(int(value.value) * per_second, NS_PER_SECOND)
