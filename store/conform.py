"""The rules of an append: what a stream asks of events, and how others are brought into it.

Purpose
    :class:`AppendRules` holds what every append needs to know of the stream's schema and options,
    worked out once; :func:`conform` makes one batch in exactly the stream's columns and types out
    of what a caller has.

Guarantee
    A batch passes without a copy where its columns are the stream's.  Casts lose nothing; a column
    that must not be null is refused with the number of the first row that is.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..errors import InvalidData, SchemaMismatch
from ..schema import StreamSchema, Uniqueness
from .catalog import StreamManifest
from .columns import SIZED
from .options import StreamOptions, moving_ticks, retention_limits, uniqueness
from .segment_writer import leaf_events, plain_row_bytes

__all__ = ["AppendRules", "conform", "widened"]


@dataclass(frozen=True)
class AppendRules:
    """What an append needs to know of a stream, worked out once.

    Attributes
    ----------
    required : tuple of int
        Positions of the columns that must not hold nulls.
    fixed : bool
        Whether every column has a fixed width.
    leaf_events : int
        Events that fill a leaf for certain.
    segment_bytes : int
        Length at which a segment is sealed.
    unique : Uniqueness or None
        What makes an event a duplicate.
    """

    schema: StreamSchema
    options: StreamOptions
    arrow: pa.Schema
    required: tuple[int, ...]
    fixed: bool
    leaf_events: int
    segment_bytes: int
    retention_ticks: int | None
    moving_ticks: int | None
    unique: Uniqueness | None

    @classmethod
    def of(cls, manifest: StreamManifest) -> AppendRules:
        """The rules that a manifest sets."""
        schema, options = manifest.schema, manifest.options
        ticks, _ = retention_limits(options.retention, schema)
        return cls(
            schema,
            options,
            schema.arrow,
            tuple(i for i, attribute in enumerate(schema.attributes) if not attribute.nullable),
            not any(a.storage in SIZED for a in schema.attributes),
            leaf_events(plain_row_bytes(schema), options.leaf_bytes),
            options.sealed_bytes,
            ticks,
            moving_ticks(options, schema),
            uniqueness(options, schema),
        )


def conform(data: pa.RecordBatch | pa.Table, rules: AppendRules, before: int = 0) -> pa.RecordBatch:
    """One batch in the stream's schema, without a copy where the columns are contiguous.

    Rows are counted as if so many had come before.
    """
    arrow = rules.arrow
    if isinstance(data, pa.RecordBatch) and data.schema.equals(arrow):
        batch = data
    else:
        batch = _conformed(data, arrow)
    for position in rules.required:
        if batch.column(position).null_count:
            row = batch.column(position).is_valid().index(False).as_py() + 1 + before
            raise InvalidData(
                f"column {arrow.names[position]!r} must not be null, but is in row {row}", row
            )
    return batch


def _conformed(data: pa.RecordBatch | pa.Table, arrow: pa.Schema) -> pa.RecordBatch:
    """The columns of a table, or of a batch in types that can be cast without loss."""
    if data.schema.names != arrow.names:
        raise SchemaMismatch(
            f"expected the columns {_columns(arrow)}; found {_columns(data.schema)}"
        )
    columns = []
    try:
        for column, type_ in zip(data.columns, arrow.types, strict=True):
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                if isinstance(column, pa.ChunkedArray):  # too large for one chunk of strings
                    column = pa.concat_arrays(column.chunks)
            columns.append(column if column.type == type_ else column.cast(type_))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(
            f"expected the columns {_columns(arrow)}; found {_columns(data.schema)}, which cannot "
            f"be cast without loss: {error}"
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def widened(batch: pa.RecordBatch, schema: StreamSchema) -> pa.RecordBatch:
    """A batch with the attributes that it lacks, at the end, and the types that are wider now."""
    known, rows = batch.num_columns, batch.num_rows
    columns = [
        column if column.type == attribute.type else column.cast(attribute.type)
        for column, attribute in zip(batch.columns, schema.attributes, strict=False)
    ]
    columns += [attribute.missing(rows) for attribute in schema.attributes[known:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
