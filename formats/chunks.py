"""Interface of format readers: chunks of complete records.

Records are numbered from 0 in a chunk, broken ones included.

The policy for rows that cannot be read as events is called with each ``BadRow``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InvalidData

_SHOWN = 80


@dataclass(frozen=True)
class BadRow:
    """A row that could not be read.

    ``row`` is its number in the source from 1 (a CSV header is no row), ``line`` the line of the
    decompressed text at which it begins, ``column`` and ``value`` what is at fault (None if the row
    as a whole is), ``record`` the row as in the source (text) or as JSON.
    """

    source: str
    row: int
    reason: str
    line: int | None = None
    column: str | None = None
    value: str | None = None
    record: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line is not None else f"row {self.row}"
        if self.line is not None and self.line != self.row:
            where += f" (row {self.row})"
        column = f", column {self.column!r}" if self.column is not None else ""
        return f"{self.source}, {where}{column}: {self.reason}"

    def to_json(self) -> str:
        return json.dumps(
            {
                "source": self.source,
                "row": self.row,
                "line": self.line,
                "column": self.column,
                "value": self.value,
                "reason": self.reason,
                "record": self.record,
            },
            ensure_ascii=False,
        )


BadRowPolicy = Callable[[BadRow], None]
"""Called with each bad row; if it returns, the row is skipped."""


def fail(bad: BadRow) -> NoReturn:
    """The strict policy: raise InvalidData."""
    raise InvalidData(str(bad), row=bad.row)


def shown(value: object) -> str:
    """A value quoted for a message, truncated if long."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


CHUNK_BYTES = 4 << 20

SAMPLE_BYTES = 8 << 20
"""Text in the first chunk, from which types are inferred."""


@dataclass
class Columns:
    """Columns of a chunk with the record number of each row; those of text formats are text.

    ``quoted``: columns of JSON strings (digits are no numbers); ``nested``: columns with JSON text
    of lists and objects; ``broken``: records that are no rows, with the reason.
    """

    values: dict[str, pa.Array]
    records: npt.NDArray[np.int64]
    quoted: Collection[str] = ()
    broken: list[tuple[int, str]] = field(default_factory=list)
    nested: Collection[str] = ()


class LineNumbers:
    """Line numbers by byte position; ``first`` is the number of the first line."""

    def __init__(self, data: bytes, first: int) -> None:
        self._breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        self._first = first

    def at(self, position: int) -> int:
        return self._first + int(np.searchsorted(self._breaks, position))


class RecordChunk(Protocol):
    """Some complete records of a source."""

    def parts(self) -> Iterator[Columns]:
        """Its columns, of all records together or of some after others."""
        ...

    def describe(self, record: int) -> BadRow:
        """Position and text of a record, as a ``BadRow`` without a reason."""
        ...


class ChunkReader(Protocol):
    typed: bool
    """Whether the format has types (Parquet, Arrow)."""

    def chunks(self) -> Iterator[RecordChunk]: ...


def slices(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, rows_max):
            yield batch.slice(start, rows_max)


def regroup(
    batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int = 32 << 20
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most ``rows_max`` rows and about ``bytes_max`` bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in batches:
        batch: pa.RecordBatch = whole
        while batch.num_rows:
            part = batch.slice(0, rows_max - rows)
            batch = batch.slice(part.num_rows)
            held.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows >= rows_max or size >= bytes_max:
                yield pa.concat_batches(held) if len(held) > 1 else held[0]
                held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]
