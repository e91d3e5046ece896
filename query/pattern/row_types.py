"""Types of expressions over one input, cached; DuckDB is asked over an empty table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.json_text import is_json
from ...errors import SqlError
from ..sql.pattern_parser import position_error
from ..sql.sql_types import sql_type
from .binding import (
    CLASSIFIER,
    NUMBER,
    PSEUDO,
    Bound,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
)
from .conditions import number_of
from .scalar import column_types
from .typed import leaf_index, substitute

__all__ = ["RowTypes", "checked_types", "is_key", "plain_type", "unfit_key"]

_PSEUDO_TYPES = {CLASSIFIER: pa.string(), NUMBER: pa.int64()}


class RowTypes:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.known: dict[RowExpression, pa.DataType] = {}

    def __call__(self, row: RowExpression) -> pa.DataType:
        if row.column in PSEUDO:
            return _PSEUDO_TYPES[row.column]
        if row.column is not None:
            return plain_type(self.schema.field(row.column).type)
        if row not in self.known:
            self.known[row] = column_types([f"({row.sql})"], self._with_pseudo(row.columns))[0]
        return self.known[row]

    def _with_pseudo(self, columns: Iterable[str]) -> pa.Schema:
        added = [pa.field(name, _PSEUDO_TYPES[name]) for name in PSEUDO & set(columns)]
        return pa.schema([*self.schema, *added])

    def leaf(self, leaf: Leaf) -> pa.DataType:
        if isinstance(leaf, Navigation):
            return self(leaf.row)
        if isinstance(leaf, MatchAggregate):
            return column_types([leaf.sql], self._with_pseudo(leaf.columns))[0]
        return leaf.type if isinstance(leaf, Given) else pa.int64()

    def bound(self, bound: Bound) -> pa.DataType:
        fields = [(f"@{i}", self.leaf(leaf)) for i, leaf in enumerate(bound.leaves)]
        return column_types([bound.sql], pa.schema([*fields, ("@row", pa.int64())]))[0]

    def bounds(self, bounds: Sequence[Bound]) -> list[pa.DataType]:
        """Types of several expressions with one query; an error does not say which is wrong."""
        found: list[pa.DataType] = [self._plain(bound) for bound in bounds]
        asked = [i for i, type_ in enumerate(found) if type_ is None]
        fields, texts = [], []
        for i in asked:
            bound, names = bounds[i], {}
            for j, leaf in enumerate(bound.leaves):
                names[j] = f'"@{i}_{j}"'
                fields.append((f"@{i}_{j}", self.leaf(leaf)))
            texts.append(substitute(bound.sql, names))
        types = column_types(texts, pa.schema([*fields, ("@row", pa.int64())]))
        for i, type_ in zip(asked, types, strict=True):
            found[i] = type_
        return found

    def _plain(self, bound: Bound) -> pa.DataType | None:
        index = leaf_index(bound.scalar)
        if index is None:
            return self._plain_condition(bound.scalar, bound)
        leaf = bound.leaves[index]
        known = isinstance(leaf, Given | MatchNumber) or (
            isinstance(leaf, Navigation) and leaf.row.column is not None
        )
        return self.leaf(leaf) if known else None

    def _plain_condition(self, node: Any, bound: Bound) -> pa.DataType | None:
        """``boolean`` for numeric comparisons joined by AND, OR and NOT, else None."""
        if isinstance(node, exp.Paren | exp.Not):
            return self._plain_condition(node.this, bound)
        if isinstance(node, exp.And | exp.Or):
            left = self._plain_condition(node.this, bound)
            return left and self._plain_condition(node.expression, bound)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            sides = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ | exp.NEQ):
            sides = [node.this, node.expression]
        else:
            return None
        return pa.bool_() if all(self._is_number(side, bound) for side in sides) else None

    def _is_number(self, node: Any, bound: Bound) -> bool:
        index = leaf_index(node)
        if index is None:
            return number_of(node) is not None
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.row.column is None:
            return False
        type_ = self(leaf.row)
        return bool(pa.types.is_float64(type_) or pa.types.is_signed_integer(type_))


def is_key(type_: pa.DataType) -> bool:
    """Whether rows can be grouped and ordered by values of this type."""
    return not (is_json(type_) or pa.types.is_nested(type_))


def unfit_key(name: str, type_: pa.DataType) -> str:
    return (
        f"rows are not grouped or ordered by {name!r}: its values are {sql_type(type_)}; take out "
        "what is to be the key in a subquery"
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def checked_types(types: RowTypes, bounds: Iterable[Bound], sql: str) -> list[pa.DataType]:
    """Types of expressions with one query; raises the error of the first invalid one."""
    listed = list(bounds)
    try:
        return types.bounds(listed)
    except SqlError:
        for bound in listed:
            try:
                types.bound(bound)
            except SqlError as error:
                raise position_error(error.reason, sql, bound.at) from None
        raise
