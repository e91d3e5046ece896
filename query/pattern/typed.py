"""Type inference for path-dependent conditions, before they become bytecode.  DuckDB precomputes
what the stack machine has no instruction for: a part that reads one row becomes a column
(*lifting*), one that reads several rows a table (*tabulating*).  Types: ``i`` integer, ``f`` float,
``b`` truth value, ``s`` string, ``t`` time, ``d`` interval, ``n`` NULL.

A function of several rows' values, such as ``A.name || B.name LIKE 'x%'``, is tabulated with
DuckDB.  A buffer has few distinct values, so the function is computed for every combination and
looked up.  A *dimension* is a row that the function reads; its distinct values have codes from 1, 0
for a missing row.  Cells are numbered ``(code 1 * size of dimension 2 + code 2) * ...``.  Only rows
that pass the row-local conditions of their variables contribute values.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...core.sorting import numbered
from ...core.times import TICKS_PER_SECOND
from ...errors import ResourceLimit, SqlError
from ..relational.interface import evaluate
from ..sql.dialect import to_text
from ..sql.rendering import identifier as quote
from ..sql.rendering import literal
from ..sql.sql_types import OFFSET
from .binding import (
    CLASSIFIER,
    PSEUDO,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
)
from .machine import ONE, TWO
from .scalar import column_types, evaluate_all

CELLS_MAX = 1 << 21
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Dimension:
    """A row that the function reads: expressions ``rows`` and their column ``names`` in it."""

    place: Navigation
    rows: tuple[RowExpression, ...]
    names: tuple[str, ...]
    current: bool


@dataclass(frozen=True)
class Tabulated:
    """A function ``sql`` over dimensions, for ``variable``; ``what``: for errors."""

    dimensions: tuple[Dimension, ...]
    sql: str
    type: pa.DataType
    variable: str
    what: str


@dataclass(frozen=True)
class Values:
    """Code of each row (0: cannot occur there), and distinct values by code; code 0 is null."""

    codes: IntArray
    columns: list[pa.Array]


def distinct_values(arrays: list[pa.Array], usable: BoolArray) -> Values:
    """Number the distinct combinations of some columns in the usable rows."""
    codes = np.zeros(len(usable), np.int64)
    for array in arrays:
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * max(1, len(encoded.dictionary)) + own
        _, codes = numbered(codes)
    numbers, first, inverse = np.unique(codes[usable], return_index=True, return_inverse=True)
    out = np.zeros(len(usable), np.int64)
    out[usable] = inverse + 1
    taken = pa.array(
        np.concatenate([[0], np.flatnonzero(usable)[first]]),
        mask=np.arange(len(numbers) + 1) == 0,
    )
    return Values(out, [array.take(taken) for array in arrays])


def tabulate(table: Tabulated, values: list[Values]) -> tuple[pa.Array, BoolArray | None, str]:
    """All cells, a mask of failures (or None), and the first error; raises ResourceLimit."""
    sizes = [len(domain.columns[0]) for domain in values]
    total = prod(sizes)
    if total > CELLS_MAX:
        shown = " x ".join(f"{size - 1:,}" for size in sizes)
        raise ResourceLimit(
            f"the condition of {table.variable} needs {table.what}, which is computed ahead for "
            f"all values that occur together: {shown}, above {CELLS_MAX:,}; narrow the variables "
            "by conditions on one event, shorten the values (a prefix, a rounding), or compute "
            "them in a subquery"
        )
    columns = {}
    numbers = np.arange(total)
    step = total
    for dimension, domain, size in zip(table.dimensions, values, sizes, strict=True):
        step //= size
        chosen = pa.array(numbers // step % size)
        for name, array in zip(dimension.names, domain.columns, strict=True):
            columns[name] = array.take(chosen)
    arrays, failed, why = evaluate_all([table.sql], pa.table(columns))
    return arrays[0], failed[0], why


STEPS_MAX = 64
"""Greatest logical offset of FIRST and LAST in DEFINE."""
_EPOCH = dt.datetime(1970, 1, 1)
UNIT_US = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
    "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
OPERATORS = {"DPIPE": "||", "BITWISEAND": "&", "BITWISEOR": "|"}
INTEGERS = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1), "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1), "UINT": (0, 2**32 - 1), "UBIGINT": (0, 2**63 - 1),
}  # fmt: skip
INTERVAL_PARTS = {"day": None, "hour": 24, "minute": 60, "second": 60}
DIFFERENCES = ("date_diff", "datediff", "date_sub", "datesub")
MAKERS = {f"to_{unit}s": size for unit, size in UNIT_US.items()}
NAMES = {
    "i": "integer", "f": "number", "b": "boolean", "s": "string", "t": "time", "d": "interval",
}  # fmt: skip


class Unsupported(Exception):
    """The stack machine cannot compute this; the message says what."""

    def __init__(self, message: str, node: Any) -> None:
        super().__init__(message)
        self.node = node


def aggregated(leaf: MatchAggregate) -> RowExpression | None:
    """What an aggregate reads from a row: its argument, NULL where FILTER excludes the row."""
    if leaf.condition is None:
        return leaf.argument
    value = "1" if leaf.argument is None else f"({leaf.argument.sql})"
    columns = leaf.argument.columns if leaf.argument is not None else ()
    return RowExpression(
        f"CASE WHEN ({leaf.condition.sql}) THEN {value} END",
        tuple(dict.fromkeys([*leaf.condition.columns, *columns])),
    )


def leaf_index(node: Any) -> int | None:
    if isinstance(node, exp.Column):
        name = node.name
        if name.startswith("@") and name[1:].isdigit():
            return int(name[1:])
    return None


def leaves_of(node: Any) -> list[int]:
    indices = (leaf_index(part) for part in node.walk())
    return [index for index in indices if index is not None]


def substitute(sql: str, texts: dict[int, str]) -> str:
    """Replace the leaves ``"@0"``, ``"@1"``, ... in SQL, but not inside string literals."""

    def replaced(token: re.Match[str]) -> str:
        place = token.group("leaf")
        return texts.get(int(place), token.group()) if place else token.group()

    return _QUOTED.sub(replaced, sql)


_QUOTED = re.compile(r"'[^']*+(?:''[^']*+)*+'" r'|"(?:@(?P<leaf>\d+)"(?!")|[^"]*+(?:""[^"]*+)*+")')


def type_letter(type_: pa.DataType) -> str:
    """Type letter of an Arrow type; empty if it has none."""
    if pa.types.is_boolean(type_):
        return "b"
    if pa.types.is_integer(type_):
        return "i"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "f"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "s"
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return "t"
    return ""


class TypedCondition:
    """Types of the parts of a condition; ``unit`` of times: ``us`` or ``ns``."""

    def __init__(
        self,
        row_type: Callable[[RowExpression], pa.DataType],
        unit: str,
        leaves: tuple[Leaf, ...],
        variable: str,
    ) -> None:
        self.row_type = row_type
        self.unit = unit
        self.leaves = leaves
        self.variable = variable
        self.types: dict[int, str] = {}
        self.constants: dict[int, tuple[str, Any]] = {}
        self.lifted: dict[int, Navigation] = {}
        self.tabulated: dict[int, Tabulated] = {}
        self.keep: list[Any] = []

    # -- types ----------------------------------------------------------------------------------

    def type_of(self, node: Any) -> str:
        type_ = self.types.get(id(node))
        if type_ is None:
            self.keep.append(node)
            try:
                type_ = self._type(node)
            except Unsupported as error:
                if not leaves_of(node):
                    raise
                navigation = self._lift(node)
                if navigation is not None:
                    self.lifted[id(node)] = navigation
                    type_ = type_letter(self.row_type(navigation.row))
                else:
                    table = self._tabulate(node, error)
                    self.tabulated[id(node)] = table
                    type_ = type_letter(table.type)
                if not type_:
                    raise
            self.types[id(node)] = type_
        return type_

    def _tabulate(self, node: Any, error: Unsupported) -> Tabulated:
        dimensions: dict[tuple[Any, ...], list[RowExpression]] = {}
        places: dict[tuple[Any, ...], Navigation] = {}
        names: dict[tuple[Any, RowExpression], str] = {}

        def cut(part: Any) -> Any:
            if not leaves_of(part):
                return part
            index = leaf_index(part)
            leaf = self._lift(part) if index is None else self.leaves[index]
            if leaf is None:
                for child in list(part.iter_expressions()):
                    child.replace(cut(child))
                return part
            if not isinstance(leaf, Navigation) or leaf.offset > STEPS_MAX:
                raise error
            at = None if self._current(leaf) else leaf.variables
            label = leaf.row.column == CLASSIFIER
            place = (at, leaf.first, leaf.offset, leaf.shift, label, self._current(leaf))
            rows = dimensions.setdefault(place, [])
            places.setdefault(place, leaf)
            if leaf.row not in rows:
                rows.append(leaf.row)
                names[place, leaf.row] = f"@a{len(names)}"
            return exp.column(exp.to_identifier(names[place, leaf.row], quoted=True))

        root = exp.Paren(this=node.copy())
        root.this.replace(cut(root.this))
        fields = [pa.field(name, self.row_type(row)) for (_, row), name in names.items()]
        if any(pa.types.is_nested(field.type) for field in fields):
            raise error
        return Tabulated(
            tuple(
                Dimension(
                    places[place],
                    tuple(rows),
                    tuple(names[place, row] for row in rows),
                    self._current(places[place]),
                )
                for place, rows in dimensions.items()
            ),
            to_text(root),
            column_types([to_text(root)], pa.schema(fields))[0],
            self.variable,
            str(error),
        )

    def _lift(self, node: Any) -> Navigation | None:
        """A subexpression over one row only, as a column; None if impossible."""
        leaves = [self.leaves[i] for i in dict.fromkeys(leaves_of(node))]
        if not leaves or not all(isinstance(leaf, Navigation) for leaf in leaves):
            return None
        places = set()
        columns: dict[str, None] = {}
        for leaf in leaves:
            assert isinstance(leaf, Navigation)
            if CLASSIFIER in leaf.row.columns or leaf.offset > STEPS_MAX:
                return None
            variables = leaf.variables
            if self._current(leaf):
                variables = None
            places.add((variables, leaf.first, leaf.offset, leaf.shift))
            columns.update(dict.fromkeys(leaf.row.columns))
        if len(places) != 1:
            return None
        texts = {
            i: f"({leaf.row.sql})"
            for i, leaf in enumerate(self.leaves)
            if isinstance(leaf, Navigation)
        }
        row = RowExpression(substitute(to_text(node), texts), tuple(columns))
        if not self._strict(row):
            return None  # it would have a value for a missing row
        first = leaves[0]
        assert isinstance(first, Navigation)
        return Navigation(row, first.variables, first.first, first.offset, False, first.shift)

    def _strict(self, row: RowExpression) -> bool:
        nulls = {
            name: pa.nulls(1, self.row_type(RowExpression(quote(name), (name,), name)))
            for name in row.columns
        }
        try:
            result = evaluate(f"SELECT ({row.sql}) AS c FROM rows", rows=pa.table(nulls))
        except SqlError:
            return False
        return not result.column(0)[0].is_valid

    def _current(self, leaf: Navigation) -> bool:
        inside = leaf.variables is None or self.variable in leaf.variables
        return inside and not leaf.first and leaf.offset == 0

    def _unify(self, nodes: list[Any], what: Any) -> str:
        common = "n"
        for node in nodes:
            kind = self.type_of(node)
            if common == "n" or kind == common:
                common = kind
            elif {kind, common} == {"i", "f"}:
                common = "f"
            elif kind == "s" and common == "t" and self._as_time(node):
                self.types[id(node)] = "t"
            elif common == "s" and kind == "t":
                for other in nodes:
                    if self.type_of(other) == "s" and self._as_time(other):
                        self.types[id(other)] = "t"
                common = "t"
                if any(self.type_of(other) == "s" for other in nodes):
                    raise Unsupported("comparison of a string with a time", what)
            elif kind != "n":
                raise Unsupported(f"{NAMES[common]} and {NAMES[kind]} together", what)
        return common

    def _as_time(self, node: Any) -> bool:
        kind, value = self.constants.get(id(node), ("", None))
        if kind != "s":
            return False
        text = literal(str(value))
        instant = evaluate(f"SELECT CAST({text} AS TIMESTAMPTZ) AS c").column(0)[0]
        if self.unit == "ns" and not re.search(OFFSET, str(value)):
            fine = evaluate(f"SELECT TRY_CAST({text} AS TIMESTAMP_NS) AS c").column(0)[0]
            instant = fine if fine.is_valid else instant
        self.constants[id(node)] = ("t", self._ticks(instant))
        return True

    def _ticks(self, scalar: pa.Scalar) -> int:
        wanted = TICKS_PER_SECOND[self.unit]
        if pa.types.is_date(scalar.type):
            return int((scalar.as_py() - _EPOCH.date()).days * 86_400 * wanted)
        return int(scalar.value) * wanted // TICKS_PER_SECOND[scalar.type.unit]

    def _constant(self, node: Any) -> str:
        scalar = evaluate(f"SELECT {to_text(node)} AS c").column(0)[0]
        type_ = scalar.type
        if not scalar.is_valid:
            self.constants[id(node)] = ("n", None)
            return "n"
        if pa.types.is_interval(type_):
            value = scalar.as_py()
            if value.months or value.nanoseconds % 1000:  # beyond 64 bits, see only_durations
                raise Unsupported("an interval of months or years has no fixed length", node)
            nanos = value.days * 86_400 * 10**9 + value.nanoseconds
            constant = ("d", nanos if self.unit == "ns" else nanos // 1000)
        else:
            letter = type_letter(type_)
            if not letter:
                raise Unsupported(f"a constant of type {type_}", node)
            value = scalar.as_py() if letter != "t" else self._ticks(scalar)
            if letter == "f":
                value = float(value)
            constant = (letter, int(value) if letter in "ib" else value)
        self.constants[id(node)] = constant
        return constant[0]

    def _type(self, node: Any) -> str:  # one case for each kind of node
        index = leaf_index(node)
        if index is not None:
            return self._leaf_type(self.leaves[index], node)
        if not leaves_of(node):
            return self._constant(node)
        if isinstance(node, exp.Paren):
            return self.type_of(node.this)
        if isinstance(node, exp.Neg):
            kind = self.type_of(node.this)
            if kind not in ("i", "f", "n"):
                raise Unsupported("a minus sign before this type", node)
            return kind
        if isinstance(node, exp.And | exp.Or):
            self._need(node.flatten(), "b", node)
            return "b"
        if isinstance(node, exp.Not):
            self._need([node.this], "b", node)
            return "b"
        if isinstance(node, exp.Is):
            right = node.expression
            if isinstance(right, exp.Null):
                self.type_of(node.this)
                return "b"
            if isinstance(right, exp.Boolean):
                self._need([node.this], "b", node)
                return "b"
            raise Unsupported("IS with this operand", node)
        if isinstance(
            node,
            exp.LT
            | exp.LTE
            | exp.GT
            | exp.GTE
            | exp.EQ
            | exp.NEQ
            | exp.NullSafeEQ
            | exp.NullSafeNEQ,
        ):
            self._unify([node.this, node.expression], node)
            return "b"
        if isinstance(node, exp.Between):
            self._unify([node.this, node.args["low"], node.args["high"]], node)
            return "b"
        if isinstance(node, exp.In):
            if node.args.get("query") or node.args.get("unnest"):
                raise Unsupported("IN with a query", node)
            self._unify([node.this, *node.expressions], node)
            return "b"
        if isinstance(node, exp.Add | exp.Sub):
            return self._sum_type(node)
        if isinstance(node, exp.Mul | exp.Div | exp.IntDiv | exp.Mod):
            if isinstance(node, exp.Mul) and {
                self.type_of(node.this), self.type_of(node.expression)
            } == {"i", "d"}:  # fmt: skip
                return "d"
            kind = self._unify([node.this, node.expression], node)
            if kind not in ("i", "f", "n"):
                raise Unsupported("arithmetic on this type", node)
            if isinstance(node, exp.IntDiv) and kind == "f":
                raise Unsupported("// on floating-point numbers", node)
            return "f" if isinstance(node, exp.Div) else kind
        if isinstance(node, exp.Case):
            return self._case_type(node)
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            return self._cast_type(node)
        if isinstance(node, exp.Pow):
            if self._unify([node.this, node.expression], node) in ("i", "f", "n"):
                return "f"
            raise Unsupported("a power of this type", node)
        if isinstance(node, exp.Extract):
            return self._part_type(node.name.lower(), node.expression, node)
        name = self._function(node)
        if name:
            return self._function_type(name, node)
        word = type(node).__name__.upper()
        raise Unsupported(f"{OPERATORS.get(word, word)} on values from different rows", node)

    def _need(self, nodes: Any, kind: str, what: Any) -> None:
        for node in nodes:
            if self.type_of(node) not in (kind, "n"):
                raise Unsupported("a truth value is needed here", what)

    def _cast_type(self, node: Any) -> str:
        kind = self.type_of(node.this)
        wanted = str(node.to.this.name)
        if kind in ("i", "f", "b"):
            if wanted in INTEGERS:
                return "i"
            if wanted in ("DOUBLE", "FLOAT"):
                return "f"
            if wanted == "BOOLEAN":
                return "b"
        if kind == "t" and wanted in ("TIMESTAMP", "DATE"):
            return "t"
        raise Unsupported(f"CAST to {wanted} of values from different rows", node)

    def _part_type(self, part: str, of: Any, node: Any) -> str:
        kind = self.type_of(of)
        if part == "epoch" and kind in ("t", "d"):
            return "f"
        if part.rstrip("s") in INTERVAL_PARTS and kind == "d":
            return "i"
        raise Unsupported(f"EXTRACT of {part} on values from different rows", node)

    def text_of(self, node: Any) -> str:
        if self.type_of(node) != "s":
            return ""
        return str(self.constants.get(id(node), ("", ""))[1]).lower()

    def _sum_type(self, node: Any) -> str:
        left, right = self.type_of(node.this), self.type_of(node.expression)
        pair = (left, right)
        if set(pair) <= {"i", "f", "n"}:
            return self._unify([node.this, node.expression], node)
        if isinstance(node, exp.Sub) and pair == ("t", "t"):
            return "d"
        if pair in (("t", "d"), ("d", "d")):
            return left
        if pair == ("d", "t") and isinstance(node, exp.Add):
            return "t"
        raise Unsupported("arithmetic on these types", node)

    def _case_type(self, node: Any) -> str:
        results = []
        for branch in node.args["ifs"]:
            if node.this is not None:
                self._unify([node.this, branch.this], node)
            else:
                self._need([branch.this], "b", node)
            results.append(branch.args["true"])
        if node.args.get("default") is not None:
            results.append(node.args["default"])
        return self._unify(results, node)

    def _function(self, node: Any) -> str:
        if isinstance(node, exp.Anonymous):
            return str(node.this).lower()
        if isinstance(node, exp.Coalesce):
            return "coalesce"
        return "if" if isinstance(node, exp.If) else ""

    def _arguments(self, node: Any) -> list[Any]:
        if isinstance(node, exp.Coalesce):
            return [node.this, *node.expressions]
        if isinstance(node, exp.If):
            otherwise = node.args.get("false")
            if otherwise is None:
                otherwise = exp.Null()
                self.keep.append(otherwise)
                node.set("false", otherwise)
            return [node.this, node.args["true"], otherwise]
        return list(node.expressions)

    def _function_type(self, name: str, node: Any) -> str:
        arguments = self._arguments(node)
        if name in ("coalesce", "greatest", "least", "ifnull", "nvl") and arguments:
            return self._unify(arguments, node)
        if name == "nullif" and len(arguments) == 2:
            self._unify(arguments, node)
            return self.type_of(arguments[0])
        if name == "if" and len(arguments) == 3:
            self._need(arguments[:1], "b", node)
            return self._unify(arguments[1:], node)
        count = len(arguments)
        kinds = [self.type_of(argument) for argument in arguments]
        numeric = all(kind in ("i", "f", "n") for kind in kinds)
        unit = self.text_of(arguments[0]).rstrip("s") if count else ""
        if name in ("abs", "sign") and count == 1 and numeric:
            return "i" if name == "sign" else kinds[0]
        if name in ("isnan", "isinf", "isfinite") and kinds == ["f"]:
            return "b"
        if name == "mod" and count == 2 and numeric:
            return self._unify(arguments, node)
        whole = name in ("floor", "ceil", "ceiling", "round", "trunc") and kinds[:1] == ["i"]
        if whole and count == 1:
            return "i"
        if numeric and ((name in ONE and count == 1) or (name in TWO and count == 2 and not whole)):
            return "f"
        if name in MAKERS and kinds == ["i"]:
            return "d"
        if name in ("epoch", "epoch_ms") and count == 1 and kinds[0] in ("t", "d"):
            return "f" if name == "epoch" else "i"
        if name in ("date_part", "datepart") and count == 2:
            return self._part_type(self.text_of(arguments[0]), arguments[1], node)
        if name in DIFFERENCES and kinds == ["s", "t", "t"] and unit in UNIT_US:
            return "i"
        if name in ("date_trunc", "datetrunc") and kinds == ["s", "t"] and unit in UNIT_US:
            return "t"
        if name == "date_add" and kinds == ["t", "d"]:
            return "t"
        raise Unsupported(f"function {name} on values from different rows", node)

    def _leaf_type(self, leaf: Leaf, node: Any) -> str:
        if isinstance(leaf, MatchNumber):
            return "i"
        assert not isinstance(leaf, Given)  # refused in DEFINE
        if isinstance(leaf, Navigation):
            if leaf.offset > STEPS_MAX:
                raise Unsupported(f"an offset above {STEPS_MAX} in DEFINE", node)
            if leaf.row.column == CLASSIFIER:
                return "s"
            kind = type_letter(self.row_type(leaf.row))
            if not kind:
                raise Unsupported(f"type {self.row_type(leaf.row)} in DEFINE", node)
            return kind
        assert isinstance(leaf, MatchAggregate)
        counted = leaf.function in ("count", "sum", "avg", "mean")
        if leaf.distinct and counted:
            raise Unsupported(f"{leaf.function}(DISTINCT ...) in DEFINE", node)
        if not leaf.basic:
            raise Unsupported(f"{leaf.function} of several arguments or with ORDER BY", node)
        if not PSEUDO.isdisjoint(leaf.columns):
            of = "CLASSIFIER()" if CLASSIFIER in leaf.columns else "MATCH_NUMBER()"
            raise Unsupported(f"{leaf.function} over {of} in DEFINE", node)
        if leaf.function == "count":
            return "i"
        if leaf.argument is None:
            raise Unsupported(f"aggregate {leaf.function} of this form in DEFINE", node)
        kind = type_letter(self.row_type(leaf.argument))
        if leaf.function in ("min", "max", "arbitrary", "any_value") and kind:
            return kind
        if leaf.function == "sum" and kind in ("i", "f"):
            return kind
        if leaf.function in ("avg", "mean") and kind in ("i", "f"):
            return "f"
        if leaf.function in ("bool_and", "bool_or") and kind == "b":
            return "b"
        raise Unsupported(f"aggregate {leaf.function} in DEFINE", node)
