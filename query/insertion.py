"""The rows of an INSERT, in the types of the stream.

A value that its column cannot take, or that the cast would change, is an error at its position in
the statement.  Only a failing INSERT evaluates its source again, to find the value.

The DEFAULT of a column is a literal, because it is computed once; it is cast as INSERT casts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..core.json_text import is_json
from ..errors import SqlError
from ..schema import StreamSchema
from .contract.cancellation import QueryControl
from .sql.dialect import error_at, parse_predicate, position_of
from .sql.gate import is_text, lost_by_cast
from .sql.sql_types import cast_of_texts, sql_type

if TYPE_CHECKING:
    from .engine import QueryEngine

SHOWN_CHARACTERS = 100
"""Characters of a rejected value in an error."""

_FROM_COLUMN = re.compile(r" when casting from source column c(\d+)$")


@dataclass
class Insertion:
    """One INSERT; ``source``: VALUES or a query."""

    engine: QueryEngine
    stream: str
    schema: StreamSchema
    source: Any
    text: str
    params: Any
    control: QueryControl

    def given(self) -> pa.Schema:
        found = self._query(exp.select("*").from_(self._select().subquery("q")))
        found.close()
        return found.schema

    def rows(self, names: Sequence[str], given: pa.Schema) -> pa.Table:
        """All rows, cast to the stream's columns of these names; raises SqlError."""
        columns = list(self._columns(names, given.types))
        query = exp.select(*(c.cast for c in columns), *(c.loss for c in columns if c.loss))
        try:
            table = self._query(query.from_(self._numbered(len(columns)))).arrow()
        except SqlError as error:
            raise self._refused(error, columns) from None
        losing = [column for column in columns if column.loss]
        for column, lost in zip(losing, table.columns[len(columns) :], strict=True):
            refused = self._first(column, lost, column.why)
            if refused is not None:
                raise refused
        return table.select(range(len(columns)))

    def _columns(self, names: Sequence[str], types: Sequence[pa.DataType]) -> Iterator[_Column]:
        for place, (name, given) in enumerate(zip(names, types, strict=True)):
            attribute = self.schema.attribute(name)
            alias = f"c{place}"
            kind = sql_type(attribute.type)
            cast = exp.cast(
                exp.column(exp.to_identifier(alias, quoted=True)), kind, dialect="duckdb"
            )
            if is_text(given) and pa.types.is_timestamp(attribute.type) and not attribute.type.tz:
                cast = parse_predicate(cast_of_texts(f'"{alias}"', attribute.type, kind))
            found = lost_by_cast(f'"{alias}"', given, attribute, name == self.schema.time)
            condition, why = found or ("", "")
            yield _Column(
                place, name, kind, exp.alias_(cast, name, quoted=True, copy=False),
                _shown(condition, alias) if condition else None, why,
            )  # fmt: skip

    def _refused(self, error: SqlError, columns: Sequence[_Column]) -> SqlError:
        failing = [
            _shown(f'"{a}" IS NOT NULL AND TRY_CAST("{a}" AS {column.kind}) IS NULL', a)
            for column in columns
            for a in (column.alias,)
        ]
        try:
            query = exp.select(*failing).from_(self._numbered(len(columns)))
            table = self._query(query).arrow()
        except SqlError:  # no such cast exists, or the source itself fails
            named = _FROM_COLUMN.search(error.reason)
            if named is None:
                return error
            column, reason = columns[int(named[1])], error.reason[: named.start()]
            return error_at(
                self.text,
                self._position(column.place, None),
                f"column {column.name!r} of stream {self.stream!r}: {reason}",
            )
        found = (
            self._first(column, failed, f"it cannot be cast to {column.kind}")
            for column, failed in zip(columns, table.columns, strict=True)
        )
        return next((refused for refused in found if refused is not None), error)

    def _first(self, column: _Column, refused: pa.ChunkedArray, why: str) -> SqlError | None:
        if refused.null_count == len(refused):
            return None
        row, value = next((i, v) for i, v in enumerate(refused.to_pylist()) if v is not None)
        if len(value) > SHOWN_CHARACTERS:
            value = f"{value[:SHOWN_CHARACTERS]}..."
        return error_at(
            self.text,
            self._position(column.place, row),
            f"column {column.name!r} cannot take the value {value!r} (stream {self.stream!r}, "
            f"{self._row(row)}): {why}",
        )

    def _row(self, row: int) -> str:
        return f"row {row + 1}"

    def _position(self, place: int, row: int | None) -> int | None:
        source = self.source
        items: list[Any] = []
        if isinstance(source, exp.Values) and row is not None:
            items = _cells(source.expressions[row])
        elif isinstance(source, exp.Select) and not source.is_star:
            items = source.expressions
        return position_of(items[place]) if place < len(items) else None

    def _select(self) -> Any:
        source = self.source.copy()
        if isinstance(source, exp.Values):
            source.set("alias", None)
            _read_as_text(source)
            return exp.select("*").from_(source)
        return source

    def _numbered(self, count: int) -> Any:
        subquery = self._select().subquery()
        names = [exp.to_identifier(f"c{place}", quoted=True) for place in range(count)]
        subquery.set("alias", exp.TableAlias(this=exp.to_identifier("q"), columns=names))
        return subquery

    def _query(self, tree: Any) -> Any:
        return self.engine.query(tree, self.text, self.params, self.control)


@dataclass
class _Column:
    """A column of the source: its target, its cast, and when the cast would change a value."""

    place: int
    name: str
    kind: str
    cast: Any
    loss: Any
    why: str

    @property
    def alias(self) -> str:
        return f"c{self.place}"


def _cells(row: Any) -> list[Any]:
    return row.expressions if isinstance(row, exp.Tuple) else [row]


def _read_as_text(values: Any) -> None:
    """Cast columns of VALUES with texts and others to text; else ``(1), ('2.5')`` is integers."""
    rows = [_cells(row) for row in values.expressions]
    if len({len(row) for row in rows}) != 1:
        return  # the executor reports the error
    for column in zip(*rows, strict=True):
        given = [cell for cell in column if not isinstance(cell, exp.Null)]
        texts = sum(1 for cell in given if isinstance(cell, exp.Literal) and cell.is_string)
        if 0 < texts < len(given):
            for cell in given:
                cell.replace(exp.cast(cell.copy(), "VARCHAR", dialect="duckdb"))


def _shown(condition: str, alias: str) -> Any:
    case = f'CASE WHEN {condition} THEN CAST("{alias}" AS VARCHAR) END'
    return exp.alias_(parse_predicate(case), f"@{alias}", quoted=True, copy=False)


_LITERALS = (exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.ByteString)


def default_of(
    engine: QueryEngine, stream: str, column: Any, type_: pa.DataType, text: str
) -> pa.Scalar | None:
    """The default in a column's definition, or None; raises SqlError."""
    value = column.args.get("default")
    if value is None:
        return None
    if not _is_literal(value):
        raise error_at(
            text,
            position_of(value),
            f"the default of {column.this.name!r} is a literal, such as 0, 'none' or DATE "
            "'2018-08-01'",
        )
    name = column.this.name
    time = "t" if name.lower() != "t" else "u"
    schema = StreamSchema(pa.schema([(time, pa.int64()), (name, type_)]), time)
    row = exp.values([(value.copy(),)])
    insertion = Insertion(engine, stream, schema, row, text, None, QueryControl())
    found = insertion.rows([name], insertion.given()).column(0)[0]
    if not found.is_valid:
        return None
    return found if is_json(type_) else found.cast(type_)


def _is_literal(node: Any) -> bool:
    if isinstance(node, (exp.Neg, exp.Paren, exp.Cast)):
        return _is_literal(node.this)
    return isinstance(node, _LITERALS)
