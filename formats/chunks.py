"""Interface of format readers: chunks of complete records.

A chunk is parsed by type first; if that fails, as text, with all broken records.  Records are
numbered from 0 in a chunk, broken ones included; ``first_row`` counts from 1 in the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .badrows import BadRow

__all__ = [
    "CHUNK_BYTES",
    "SAMPLE_BYTES",
    "ChunkReader",
    "LineNumbers",
    "RecordChunk",
    "Texts",
    "TooWide",
]

CHUNK_BYTES = 4 << 20

SAMPLE_BYTES = 8 << 20
"""Text in the first chunk, from which types are inferred."""


@dataclass
class Texts:
    """A chunk parsed as text, with the record number of each row.

    ``quoted``: columns of JSON strings (digits are no numbers); ``nested``: JSON text of lists and
    objects; ``broken``: records that are no rows, with the reason.
    """

    columns: dict[str, pa.Array]
    records: npt.NDArray[np.int64]
    quoted: frozenset[str] = frozenset()
    broken: list[tuple[int, str]] = field(default_factory=list)
    nested: frozenset[str] = frozenset()


class TooWide(Exception):
    """A chunk has too many cells to decode at once; read ``parts`` instead."""

    def __init__(self, *parts: RecordChunk) -> None:
        self.parts = parts


class LineNumbers:
    """Line numbers by byte position; ``first`` is the number of the first line."""

    def __init__(self, data: bytes, first: int) -> None:
        self._breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        self._first = first

    def at(self, position: int) -> int:
        return self._first + int(np.searchsorted(self._breaks, position))


class RecordChunk(Protocol):
    """Some complete records of a source."""

    first_row: int

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        """Columns parsed by type (None: the parser's choice), some perhaps missing or additional.

        Raises ArrowInvalid if any record does not fit.
        """
        ...

    def texts(self) -> Texts: ...

    def describe(self, record: int) -> BadRow:
        """Position and text of a record, as a ``BadRow`` without a reason."""
        ...


class ChunkReader(Protocol):
    typed: bool
    """Whether the format has types (Parquet, Arrow)."""

    def chunks(self) -> Iterator[RecordChunk]: ...
