"""From what Spark read to events: types, times, and a reason for each row that is none.

Purpose
    Spark's readers deliver text columns (CSV, JSON) or typed ones (Parquet, ORC, Avro).
    :class:`RowParser` turns them into the columns of a stream on the executors, with the same
    conversions as ``--engine arrow``, so that both engines agree on what a time, a number or a bad
    value is.

Layout
    The parser's output has the stream's columns in types that Spark has, and behind them:

    =============  ======  =========================================================
    ``_reason``    string  null for a good row, else what is wrong with it
    ``_column``    string  the column at fault, null when the row as a whole is
    ``_value``     string  what stands in that column
    ``_record``    string  the row as it was read, for bad rows only
    ``_source``    string  the file, for bad rows only
    ``_file``      int     order of events with equal times: file,
    ``_block``     long    place of the split in the file,
    ``_row``       long    row in the split
    =============  ======  =========================================================

Guarantee
    No row vanishes: each comes out, good or bad.  A value is never changed silently.

Limits
    Spark has microseconds: a finer time is a bad row here; use ``--engine arrow`` for such streams.
    Line numbers are unknown, because files are read in splits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..formats.convert import convert, flatten
from ..formats.kinds import stem_of
from ..formats.times import TimeRule

__all__ = ["CORRUPT", "NULL_WORDS", "TRAIL", "ColumnPlan", "RowParser"]

CORRUPT = "_corrupt_record"
NULL_WORDS = ("", "NULL", "null", "\\N")
"""Spellings of null in CSV, as ``--engine arrow`` knows them."""

TRAIL = pa.schema(
    [
        ("_reason", pa.string()),
        ("_column", pa.string()),
        ("_value", pa.string()),
        ("_record", pa.string()),
        ("_source", pa.string()),
        ("_file", pa.int32()),
        ("_block", pa.int64()),
        ("_row", pa.int64()),
    ]
)
_TAKEN = ("_path", "_block", "_row")


@dataclass(frozen=True)
class ColumnPlan:
    """How one column of the stream comes about.

    Attributes
    ----------
    name : str
        In the stream.
    source : str or None
        In the files; None for a column that they lack (null) or that is the file's name.
    type : pyarrow.DataType
        One that Spark has.
    required : bool
        Whether null makes the row a bad one.
    rule : TimeRule or None
        How values become times.
    file_name : bool
        The column holds the name of the file, without directory and suffixes.
    """

    name: str
    source: str | None
    type: pa.DataType
    required: bool = False
    rule: TimeRule | None = None
    file_name: bool = False


@dataclass(frozen=True)
class RowParser:
    """Turns batches as Spark read them into batches of events; picklable, for ``mapInArrow``.

    Attributes
    ----------
    plans : tuple of ColumnPlan
    files : dict of str to int
        Rank of each file known beforehand; others come last.
    null_words : tuple of str
        Text that stands for null.
    """

    plans: tuple[ColumnPlan, ...]
    files: dict[str, int] = field(default_factory=dict)
    null_words: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the output."""
        return pa.schema([pa.field(p.name, p.type) for p in self.plans] + list(TRAIL))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse batches."""
        for batch in batches:
            yield self.parse(batch)

    def parse(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Parse one batch.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Columns of the files, perhaps :data:`CORRUPT`, and ``_path``, ``_block``, ``_row``.
        """
        count = batch.num_rows
        faults = _Faults(count)
        if CORRUPT in batch.schema.names:
            broken = batch.column(CORRUPT).is_valid().to_numpy(zero_copy_only=False)
            faults.add(broken, "the record cannot be read", None, None)
        arrays = [self._column(plan, batch, faults) for plan in self.plans]
        arrays += self._trail(batch, faults)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, plan: ColumnPlan, batch: pa.RecordBatch, faults: _Faults) -> pa.Array:
        if plan.file_name:
            paths = batch.column("_path").dictionary_encode()
            stems = pa.array([stem_of(path) for path in paths.dictionary.to_pylist()], pa.string())
            return stems.take(paths.indices).cast(plan.type)
        if plan.source is None:
            return pa.nulls(batch.num_rows, plan.type)
        values = flatten(batch.column(plan.source))
        if self.null_words and pa.types.is_string(values.type):
            words = pa.array(self.null_words)
            values = pc.if_else(pc.is_in(values, words), pa.scalar(None, values.type), values)
        converted = convert(values, plan.type, rule=plan.rule, required=plan.required)
        if converted.codes is not None:
            for code, reason in enumerate(converted.reasons, 1):
                faults.add(converted.codes == code, reason, plan.name, values)
        return converted.values

    def _trail(self, batch: pa.RecordBatch, faults: _Faults) -> list[pa.Array]:
        count = batch.num_rows
        bad = np.flatnonzero(faults.bad)
        paths = batch.column("_path").dictionary_encode()
        ranks = [self.files.get(path, len(self.files)) for path in paths.dictionary.to_pylist()]
        rank = pa.array(ranks, pa.int32()).take(paths.indices)
        records: list[str | None] = [None] * count
        if len(bad):
            for at, record in zip(bad.tolist(), _records(batch, bad), strict=True):
                records[at] = record
        where = pa.array(faults.bad)
        source = pc.if_else(where, batch.column("_path"), pa.scalar(None, pa.string()))
        return [
            pa.array(faults.reasons, pa.string()),
            pa.array(faults.columns, pa.string()),
            pa.array(faults.values, pa.string()),
            pa.array(records, pa.string()),
            source,
            rank,
            batch.column("_block").cast(pa.int64()),
            batch.column("_row").cast(pa.int64()),
        ]


class _Faults:
    """The first thing that is wrong with each row of a batch."""

    def __init__(self, count: int) -> None:
        self.bad: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.reasons: list[str | None] = [None] * count
        self.columns: list[str | None] = [None] * count
        self.values: list[str | None] = [None] * count

    def add(
        self, where: npt.NDArray[np.bool_], reason: str, column: str | None, values: pa.Array | None
    ) -> None:
        """Note a reason for rows that have none yet; ``{value}`` in it stands for the value."""
        for at in np.flatnonzero(where & ~self.bad).tolist():
            value = None if values is None or not values[at].is_valid else str(values[at].as_py())
            self.reasons[at] = reason.replace("{value}", repr(_short(value)))
            self.columns[at] = column
            self.values[at] = value
        self.bad |= where


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= 80 else value[:77] + "..."


def _records(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> list[str]:
    """The rows as they were read: the raw text where Spark kept it, else as JSON."""
    taken = batch.take(pa.array(rows))
    names = [name for name in batch.schema.names if name not in (*_TAKEN, CORRUPT)]
    raw: list[Any] = [None] * len(rows)
    if CORRUPT in batch.schema.names:
        raw = taken.column(CORRUPT).to_pylist()
    fallback = taken.select(names).to_pylist()
    return [
        text if text is not None else json.dumps(record, default=str, ensure_ascii=False)
        for text, record in zip(raw, fallback, strict=True)
    ]
