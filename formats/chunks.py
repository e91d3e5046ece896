"""What a format reader gives to the event reader: chunks of records, parsed twice at most.

Purpose
    Every format is read in chunks of complete records.  A chunk is parsed *fast*, by the types
    that are expected, and when that fails once more *carefully*, as text with a note of every
    record that is broken.  :class:`RecordChunk` is that contract; ``csvtext.py``,
    ``jsonchunk.py`` and ``columnar.py`` fulfil it.

Invariants
    Records are numbered from 0 within a chunk, broken ones included; ``first_row`` is the number
    of the chunk's first record in its source, from 1.
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
"""Text read at a time."""

SAMPLE_BYTES = 8 << 20
"""Text in the first chunk of a source, from which types are inferred."""


@dataclass
class Texts:
    """A chunk parsed carefully.

    Attributes
    ----------
    columns : dict of str to pyarrow.Array
        Text (or typed) columns by the names in the source.
    quoted : frozenset of str
        Columns whose values are text in the source too (JSON strings): not to be read as numbers
        when types are inferred.
    records : int64 array
        For each row of the columns, the number of its record in the chunk.
    broken : list of (int, str)
        Records that are no rows, with the reason.
    nested : frozenset of str
        Columns with JSON text of lists and objects.
    """

    columns: dict[str, pa.Array]
    records: npt.NDArray[np.int64]
    quoted: frozenset[str] = frozenset()
    broken: list[tuple[int, str]] = field(default_factory=list)
    nested: frozenset[str] = frozenset()


class TooWide(Exception):
    """A chunk has too many cells to be decoded at once; its parts have fewer."""

    def __init__(self, *parts: RecordChunk) -> None:
        self.parts = parts


class LineNumbers:
    """Lines of a text by byte position.

    Parameters
    ----------
    first : int
        Number of its first line.
    """

    def __init__(self, data: bytes, first: int) -> None:
        self._breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
        self._first = first

    def at(self, position: int) -> int:
        """Number of the line that a byte is on."""
        return self._first + int(np.searchsorted(self._breaks, position))


class RecordChunk(Protocol):
    """Some complete records of a source."""

    first_row: int

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        """Columns by their names in the source, parsed fast.

        ``types`` gives what to parse the wanted columns as: None for a column stands for "as you
        see fit", None for all for "every column as you see fit".  A column that the records do not
        have is absent from the answer; one that was not asked for may be in it.

        Raises
        ------
        pyarrow.ArrowInvalid
            When any record does not fit; :meth:`texts` says which.
        """
        ...

    def texts(self) -> Texts:
        """All columns as text, with the broken records."""
        ...

    def describe(self, record: int) -> BadRow:
        """Where a record stands and what it says, as a :class:`BadRow` without a reason."""
        ...


class ChunkReader(Protocol):
    """The records of one source, chunk by chunk."""

    typed: bool
    """Whether the format has types of its own (Parquet, Arrow)."""

    def chunks(self) -> Iterator[RecordChunk]:
        """Chunks in order; a reader counts its own rows."""
        ...
