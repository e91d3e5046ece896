"""Validation of appended batches: lossless casts, and no nulls in required columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..errors import InvalidData, SchemaMismatch
from ..schema import StreamSchema, Uniqueness
from .catalog import StreamManifest
from .columns import SIZED
from .options import StreamOptions, moving_ticks, uniqueness
from .segment_writer import leaf_events, plain_row_bytes


@dataclass(frozen=True)
class AppendRules:
    """What an append needs of schema and options: positions of ``required`` columns, whether all
    have a ``fixed`` width, the events that are certain to fill a leaf, the file size at which to
    seal.
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
        schema, options = manifest.schema, manifest.options
        ticks, _ = manifest.retention_limits
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
    """One batch in the stream's schema, without a copy if possible; ``before`` rows preceded it."""
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
    """A batch with missing attributes appended and types widened."""
    width, rows = batch.num_columns, batch.num_rows
    columns = [
        column if column.type == attribute.type else column.cast(attribute.type)
        for column, attribute in zip(batch.columns, schema.attributes, strict=False)
    ]
    columns += [attribute.missing(rows) for attribute in schema.attributes[width:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
