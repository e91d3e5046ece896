"""CREATE STREAM ... AS SELECT: a stream that begins with the rows of a query.

Atomic.  Columns have the query's names and types, all nullable but the time.  Memory is bounded by
a few batches; rows out of time order are written twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import InvalidData, SchemaMismatch, UnsupportedType
from ..schema import StreamSchema
from .contract.cancellation import QueryControl
from .sql.dialect import error_at, position_of

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["create_as", "require_different_names"]


def create_as(
    engine: QueryEngine,
    tree: Any,
    text: str,
    params: Any,
    control: QueryControl,
    settings: Mapping[str, Any],
) -> tuple[int, int]:
    """Create the stream of a query, or raise and create none; returns events and duplicates."""
    query = tree.args["query"]
    at = position_of(query)
    result = engine.query(query.copy(), text, params, control)
    rows = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in result.batches():
            rows += batch.num_rows
            yield batch

    options = dict(settings)
    try:
        schema = _schema(tree, result.schema, text)
        made = engine.catalog.create_stream(
            tree.this.name,
            schema,
            retention=options.pop("retention", None),
            codec=options.pop("codec", "lz4"),
            options=options,
            events=taken(),
        )
    except (SchemaMismatch, UnsupportedType) as error:
        raise error_at(text, at, f"{error}; say CAST(... AS ...) in the query") from None
    except InvalidData as error:
        raise error_at(text, at, f"{error} of the query's result") from None
    finally:
        result.close()
    stored = int(made.count)
    return stored, rows - stored


def require_different_names(names: Sequence[str], text: str, at: int | None) -> None:
    """Raise SqlError for query columns whose names differ at most in case."""
    known: dict[str, str] = {}
    for name in names:
        other = known.get(name.lower())
        if other is None:
            known[name.lower()] = name
            continue
        both = f"two columns {name!r}" if other == name else f"columns {other!r} and {name!r}"
        why = "" if other == name else ", which differ in case only"
        raise error_at(text, at, f"the query gives {both}{why}: name them with AS")


def _schema(tree: Any, given: pa.Schema, text: str) -> StreamSchema:
    at = position_of(tree.args["query"])
    require_different_names(given.names, text, at)
    folded = [name.lower() for name in given.names]
    time = tree.args.get("time")
    if time is not None:
        if time.name.lower() not in folded:
            raise error_at(
                text, position_of(time),
                f"the time attribute {time.name!r} is not among the columns of the query: "
                f"{', '.join(given.names)}",
            )  # fmt: skip
        name = given.names[folded.index(time.name.lower())]
    else:
        times = [field.name for field in given if pa.types.is_timestamp(field.type)]
        if len(times) != 1:
            found = f"there are {', '.join(times)}" if times else "no column is a TIMESTAMP"
            raise error_at(
                text, position_of(tree.this),
                f"say which column is the time, TIMESTAMP BY t before AS: {found}",
            )  # fmt: skip
        name = times[0]
    fields = [pa.field(field.name, field.type, field.name != name) for field in given]
    return StreamSchema(pa.schema(fields), name)
