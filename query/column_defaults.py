"""DEFAULT of a column: a literal, because it is computed once, cast as INSERT casts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..core.json_text import is_json
from ..schema import StreamSchema
from .contract.cancellation import QueryControl
from .insertion import Insertion
from .sql.dialect import error_at, position_of

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["default_of"]

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
