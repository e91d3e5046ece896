"""Bands: conditions that bound a value of one event by a value of another.

Each side of a comparison in DEFINE is a sum of constants and columns, optionally scaled, with
exactly one column of each of the two variables.  The result is a pair of lines::

    B AS x - 2 * A.y < 7                      own <= 2 * other + 7
    B AS x BETWEEN 0.9 * A.x AND 1.1 * A.x    own >= 0.9 * other,  own <= 1.1 * other
    B AS name = A.name                        equal texts: no lines

Bands exclude leaves (``coarse``), propagate ranges (``symbols``) and drop occurrences
(``fitting``).  Guarantee: sound.  Bounds are computed in doubles and moved outward by more than all
rounding errors, those of the condition included: none of ``n`` operations is off by more than
``n / 2^53`` of the sum of the magnitudes added.  NaN and infinity bound nothing; a null fits
nothing.  Limits: numbers, and times other than the stream's, of one type; texts only for equality
of the same attribute.  The other variable stands alone: no union, PREV or offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.times import NS_PER_TICK
from ...schema import Storage, StreamSchema
from ...store.prune import Range
from ..conditions.constants import Folder, Kind
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.typed import leaf_index

Floats = npt.NDArray[np.float64]

NODES_MAX = 64
"""Nodes of a comparison; keeps rounding errors far below the margin of the bounds."""
_ERROR, _SINGLE_ERROR = 2.0**-44, 2.0**-16
_TINY = 1e-290
_TIME_NS = 2_000
"""Times may be subtracted in microseconds."""
_TURNED: dict[type, type] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """``scale * value + shift``; the scale is not zero."""

    scale: float
    shift: float


@dataclass(frozen=True)
class Condition:
    """Bounds of the own ``column`` by column ``source`` of another ``variable``.  ``first``: its
    first event, else its last one before.  ``low`` and ``high`` are lines of the other value, both
    None for equal texts.  The lines are moved outward by ``error`` (relative to what is added) and
    ``slack`` (absolute).
    """

    column: str
    variable: str
    source: str
    first: bool
    low: Line | None
    high: Line | None
    error: float
    slack: float
    text: str

    @property
    def equal(self) -> bool:
        return self.low is None and self.high is None

    @property
    def same(self) -> bool:
        """Whether it compares one attribute for equality."""
        line = self.low
        one = line is not None and line == self.high and line == Line(1.0, 0.0)
        return self.column == self.source and (one or self.equal)

    def own(self, least: Floats, most: Floats) -> tuple[Floats, Floats]:
        return self._bounds(self.low, self.high, least, most)

    def other(self, least: Floats, most: Floats) -> tuple[Floats, Floats]:
        low = high = None
        for line, above in ((self.low, False), (self.high, True)):
            if line is None:
                continue
            # own >= line(other) gives other <= ..., unless the line falls
            back = Line(1.0 / line.scale, -line.shift / line.scale)
            if above == (line.scale > 0):
                low = back
            else:
                high = back
        return self._bounds(low, high, least, most)

    def _bounds(
        self, low: Line | None, high: Line | None, least: Floats, most: Floats
    ) -> tuple[Floats, Floats]:
        below, above = np.full(len(least), -np.inf), np.full(len(least), np.inf)
        if low is not None:
            below = self._on(low, least if low.scale > 0 else most, False)
        if high is not None:
            above = self._on(high, most if high.scale > 0 else least, True)
        return below, above

    def _on(self, line: Line, values: Floats, above: bool) -> Floats:
        with np.errstate(all="ignore"):
            part = line.scale * values
            slack = self.error * (np.abs(part) + abs(line.shift))
            slack += self.slack * max(1.0, abs(line.scale)) + _TINY
            found = part + line.shift + (slack if above else -slack)
        return np.where(np.isfinite(found), found, np.inf if above else -np.inf)


@dataclass(frozen=True)
class Band:
    """A condition between two symbols of an outline, given by their places among all symbols."""

    earlier: int
    later: int
    condition: Condition


# ------------------------------------------------------------------------------- of a condition


def conditions_between(
    bound: Bound, variable: str, schema: StreamSchema, folder: Folder
) -> tuple[Condition, ...]:
    found: dict[tuple[str, str, str, bool], Condition] = {}
    kept: list[Condition] = []
    reader = _Reader(bound, variable, schema, folder)
    if len(bound.leaves) < 2:
        return ()
    for how, left, right in _comparisons(bound.scalar):
        one = reader.condition(how, left, right)
        if one is None:
            continue
        key = one.column, one.variable, one.source, one.first
        known = found.get(key)
        if known is None or one.equal:
            found[key] = one
            kept.append(one)
        elif known.low is None and one.high is None and not known.equal:
            merged = replace(known, low=one.low, text=f"{known.text} and {one.text}")
            kept[kept.index(known)] = found[key] = merged
        elif known.high is None and one.low is None and not known.equal:
            merged = replace(known, high=one.high, text=f"{known.text} and {one.text}")
            kept[kept.index(known)] = found[key] = merged
        else:
            kept.append(one)
    return tuple(kept)


def _comparisons(condition: Any) -> list[tuple[type, Any, Any]]:
    found: list[tuple[type, Any, Any]] = []
    parts = [condition]
    while parts:
        node = parts.pop()
        if isinstance(node, exp.Paren):
            parts.append(node.this)
        elif isinstance(node, exp.And):
            parts += [node.expression, node.this]
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            found += [
                (exp.GTE, node.this, node.args["low"]), (exp.LTE, node.this, node.args["high"])
            ]  # fmt: skip
        elif type(node) in _TURNED:
            found.append((type(node), node.this, node.expression))
    return found


@dataclass
class _Sum:
    """Scaled leaves by number, a constant, and the sum of magnitudes of the constants."""

    factors: dict[int, float]
    constant: float
    size: float

    def scaled(self, factor: float) -> _Sum:
        return _Sum(
            {leaf: factor * f for leaf, f in self.factors.items()},
            factor * self.constant, abs(factor) * self.size,
        )  # fmt: skip


class _Reader:
    def __init__(self, bound: Bound, variable: str, schema: StreamSchema, folder: Folder) -> None:
        self._bound, self._variable = bound, variable
        self._schema, self._folder = schema, folder

    def condition(self, how: Any, left: Any, right: Any) -> Condition | None:
        nodes = [node for side in (left, right) for node in side.walk()]
        leaves = [leaf for node in nodes if (leaf := leaf_index(node)) is not None]
        roles = {self._role(leaf): leaf for leaf in leaves}
        if len(leaves) != 2 or set(roles) != {"own", "other"} or len(nodes) > NODES_MAX:
            return None
        own, other = self._leaf(roles["own"]), self._leaf(roles["other"])
        if how is exp.EQ and self._same_text(_inside(left), _inside(right), own, other):
            text = self._shown(how, own, other, Line(1.0, 0.0))
            name, source = str(own.row.column), str(other.row.column)
            return Condition(name, _only(other), source, other.first, None, None, 0.0, 0.0, text)
        kind = self._kind(own, other)
        if kind is None:
            return None
        error, slack, tick_ns = kind
        one, two = self._sum(left, tick_ns), self._sum(right, tick_ns)
        if one is None or two is None:
            return None
        factors = {**one.factors, **two.scaled(-1.0).factors}
        scale, turned = factors[roles["own"]], -factors[roles["other"]]
        if not scale or not turned:
            return None
        line = Line(turned / scale, (two.constant - one.constant) / scale)
        if not (np.isfinite(line.scale) and np.isfinite(line.shift)) or not line.scale:
            return None
        slack += error * (one.size + two.size) / abs(scale)  # constants may cancel
        if scale < 0:
            how = _TURNED[how]
        return Condition(
            str(own.row.column), _only(other), str(other.row.column), other.first,
            line if how in (exp.GT, exp.GTE, exp.EQ) else None,
            line if how in (exp.LT, exp.LTE, exp.EQ) else None,
            error, slack, self._shown(how, own, other, line),
        )  # fmt: skip

    def _shown(self, how: Any, own: Navigation, other: Navigation, line: Line) -> str:
        sign = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "="}[how]
        factor = "" if line.scale == 1 else f"{line.scale:g} * "
        shift = "" if not line.shift else f" {'-' if line.shift < 0 else '+'} {abs(line.shift):g}"
        text = f"{_only(other)}.{other.row.column}"
        if other.first:
            text = f"FIRST({text})"
        return f"{self._variable}.{own.row.column} {sign} {factor}{text}{shift}"

    def _same_text(self, left: Any, right: Any, own: Navigation, other: Navigation) -> bool:
        plain = leaf_index(left) is not None and leaf_index(right) is not None
        name = str(own.row.column)
        same = other.row.column == name
        return plain and same and self._schema.attribute(name).storage is Storage.STRING

    def _leaf(self, number: int) -> Navigation:
        leaf = self._bound.leaves[number]
        assert isinstance(leaf, Navigation)
        return leaf

    def _role(self, number: int) -> str:
        """``own``, ``other``, or empty if unusable."""
        leaf = self._bound.leaves[number]
        if not isinstance(leaf, Navigation) or leaf.offset or leaf.shift or leaf.final:
            return ""
        column = leaf.row.column
        if column is None or column == CLASSIFIER or column not in self._schema:
            return ""
        if column == self._schema.time:
            return ""
        if leaf.variables is None or leaf.variables == {self._variable}:
            return "" if leaf.first else "own"
        return "other" if len(leaf.variables) == 1 else ""

    def _kind(self, own: Navigation, other: Navigation) -> tuple[float, float, int] | None:
        """Relative error, slack, and nanoseconds per tick (0 for numbers)."""
        types = [self._schema.attribute(str(leaf.row.column)).type for leaf in (own, other)]
        if all(pa.types.is_timestamp(type_) for type_ in types):
            tick_ns = NS_PER_TICK[types[0].unit]
            return (_ERROR, _TIME_NS / tick_ns, tick_ns) if types[0] == types[1] else None
        if not all(
            pa.types.is_integer(t) or pa.types.is_float32(t) or t == pa.float64() for t in types
        ):
            return None
        return (_SINGLE_ERROR if any(map(pa.types.is_float32, types)) else _ERROR), 0.0, 0

    def _sum(self, node: Any, tick_ns: int) -> _Sum | None:
        node = _inside(node)
        leaf = leaf_index(node)
        if leaf is not None:
            return _Sum({leaf: 1.0}, 0.0, 0.0)
        found = self._folder.fold(node)
        if found.kind in (Kind.EXACT, Kind.FLOAT, Kind.INTERVAL):
            if (found.kind is Kind.INTERVAL) != bool(tick_ns):
                return None
            constant = _double(found.value)
            if constant is None:
                return None
            constant /= tick_ns or 1
            return _Sum({}, constant, abs(constant))
        if isinstance(node, exp.Neg):
            inner = self._sum(node.this, tick_ns)
            return None if inner is None else inner.scaled(-1.0)
        if isinstance(node, exp.Mul) and not tick_ns:
            for one, two in ((node.this, node.expression), (node.expression, node.this)):
                factor = self._folder.fold(one)
                inner = self._sum(two, tick_ns)
                if factor.kind in (Kind.EXACT, Kind.FLOAT) and inner is not None:
                    times = _double(factor.value)
                    return None if times is None else inner.scaled(times)
            return None
        if not isinstance(node, exp.Add | exp.Sub):
            return None
        left, right = self._sum(node.this, tick_ns), self._sum(node.expression, tick_ns)
        if left is None or right is None:
            return None
        if isinstance(node, exp.Sub):
            right = right.scaled(-1.0)
        return _Sum(
            {**left.factors, **right.factors}, left.constant + right.constant,
            left.size + right.size,
        )  # fmt: skip


def _only(leaf: Navigation) -> str:
    assert leaf.variables is not None
    return next(iter(leaf.variables))


def _inside(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _double(value: Any) -> float | None:
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if np.isfinite(found) else None


# --------------------------------------------------------------------------------- of an outline


def bands_between(
    parts: Sequence[tuple[frozenset[str], bool]], conditions: Mapping[str, Sequence[Condition]]
) -> tuple[Band, ...]:
    """The bands of an outline, given (variables, is a gap) for each of its parts in order."""
    numbers, count = [], 0
    for _, gap in parts:
        numbers.append(-1 if gap else count)
        count += not gap
    found = []
    for at, (names, _) in enumerate(parts):
        if numbers[at] < 0 or len(names) != 1:
            continue
        for condition in conditions.get(next(iter(names)), ()):
            wanted = condition.variable
            places = [i for i, (some, _) in enumerate(parts[:at]) if wanted in some]
            if not places:
                continue
            place = places[0] if condition.first else places[-1]
            if numbers[place] >= 0 and parts[place][0] == {wanted}:
                found.append(Band(numbers[place], numbers[at], condition))
    return tuple(found)


def implied_ranges(band: Band, earlier: Range | None, later: Range | None) -> list[Range | None]:
    """The ranges of the earlier and the later symbol that a band implies."""
    one = band.condition
    if one.equal:
        return [None, None]
    back = forward = None
    if later is not None:
        back = _handed(later, one.source, one.other)
    if earlier is not None:
        forward = _handed(earlier, one.column, one.own)
    return [back, forward]


def _handed(known: Range, column: str, bounds: Callable[[Floats, Floats], Any]) -> Range | None:
    ends = []
    for value, otherwise in ((known.low, -np.inf), (known.high, np.inf)):
        if isinstance(value, bool | str | bytes):
            return None
        end = None if value is None else _double(value)
        ends.append(np.array([otherwise if end is None else end]))
    low, high = (float(found[0]) for found in bounds(*ends))
    if not np.isfinite(low) and not np.isfinite(high):
        return None
    return Range(column, low if np.isfinite(low) else None, high if np.isfinite(high) else None)
